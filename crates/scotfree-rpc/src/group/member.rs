//! What a client knows of one member: whether it serves, what it has not answered, and how long it may take.
//!
//! Invariant: a member that has failed is sent nothing before its back-off has passed, and then one request alone,
//! until it has answered one.

use crate::client::SessionHandle;
use scotfree_core::{Epoch, Nanos, SeqNum};
use scotfree_session::{backoff, Jitter, RoundTrip};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMember {
    /// Its name in the group.
    pub id: u8,
    /// Where its server listens.
    pub address: SocketAddr,
}

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    pub(super) timeout_min: Nanos,
    pub(super) timeout_max: Nanos,
    pub(super) retry_first: Nanos,
    pub(super) retry_max: Nanos,
}

/// Whether a member can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is no session with it; the next is to be opened at this time.
    Away {
        until: Nanos,
    },
    /// A session is being opened.
    Opening,
    /// One request at a time, until it has answered one.
    Trial,
    Serving,
    /// It has said that it does not serve now, and is not asked before this time.
    Resting {
        until: Nanos,
    },
}

/// A request that a member has and has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) seq: SeqNum,
    pub(super) number: u64,
    pub(super) at: Nanos,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u8,
    pub(super) address: SocketAddr,
    pub(super) standing: Standing,
    pub(super) session: Option<SessionHandle>,
    /// The server's, when the session was opened.
    pub(super) epoch: Epoch,
    /// In the order in which they were sent, in which the session completes them.
    pub(super) sent: VecDeque<Sent>,
    pub(super) trip: RoundTrip,
    /// Since when its silence counts.
    silent_since: Nanos,
    /// How often it has failed since it last answered.
    failures: u32,
}

impl Member {
    /// One whose session is to be opened at once.
    pub(super) fn new(now: Nanos, member: GroupMember, waits: &Waits) -> Member {
        Member {
            id: member.id,
            address: member.address,
            standing: Standing::Away { until: now },
            session: None,
            epoch: Epoch(0),
            sent: VecDeque::new(),
            trip: RoundTrip::new(Nanos(waits.timeout_min.0.saturating_mul(4))),
            silent_since: now,
            failures: 0,
        }
    }

    pub(super) fn named(&self) -> GroupMember {
        GroupMember { id: self.id, address: self.address }
    }

    /// Whether it may be sent to, were there room.
    pub(super) fn serves(&self) -> bool {
        match self.standing {
            Standing::Serving => true,
            Standing::Trial => self.sent.is_empty(),
            Standing::Away { .. } | Standing::Opening | Standing::Resting { .. } => false,
        }
    }

    pub(super) fn on_opened(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.standing = Standing::Trial;
    }

    pub(super) fn on_sent(&mut self, sent: Sent) {
        if self.sent.is_empty() {
            self.silent_since = sent.at;
        }
        self.sent.push_back(sent);
    }

    /// It has answered this request, whatever it says.
    pub(super) fn take_sent(&mut self, now: Nanos, seq: SeqNum) -> Option<Sent> {
        let at = self.sent.iter().position(|sent| sent.seq == seq)?;
        self.silent_since = now;
        self.sent.remove(at)
    }

    /// It serves: it has answered a request, sent at this time.
    pub(super) fn on_answer(&mut self, now: Nanos, sent_at: Nanos) {
        self.trip.measure(now.since(sent_at));
        self.failures = 0;
        self.standing = Standing::Serving;
    }

    /// It does not serve now. What it says of requests sent before is no further failure.
    pub(super) fn on_refusal(&mut self, now: Nanos, waits: &Waits, jitter: &mut Jitter) {
        if let Standing::Serving | Standing::Trial = self.standing {
            self.standing = Standing::Resting { until: now.plus(self.next_wait(waits, jitter)) };
        }
    }

    /// Its session is no more; what it had not answered is given back.
    pub(super) fn on_lost(&mut self, now: Nanos, waits: &Waits, jitter: &mut Jitter) -> VecDeque<Sent> {
        self.session = None;
        self.standing = Standing::Away { until: now.plus(self.next_wait(waits, jitter)) };
        std::mem::take(&mut self.sent)
    }

    fn next_wait(&mut self, waits: &Waits, jitter: &mut Jitter) -> Nanos {
        let wait = backoff(waits.retry_first, waits.retry_max, self.failures);
        self.failures = self.failures.saturating_add(1);
        jitter.around(wait)
    }

    /// When its silence has lasted too long; it has not answered, nor said anything, since it was sent the first of what
    /// it has. Sessions answer in order, so that a queue which moves on is no silence.
    pub(super) fn due(&self, waits: &Waits) -> Option<Nanos> {
        let usual = self.trip.timeout(waits.timeout_min, waits.timeout_max);
        let patience = backoff(usual, waits.timeout_max, self.failures);
        (!self.sent.is_empty()).then(|| self.silent_since.plus(patience))
    }

    /// Its silence counts from now on.
    pub(super) fn be_patient(&mut self, now: Nanos) {
        self.silent_since = now;
    }

    /// When something is to be done about it.
    pub(super) fn next_timer(&self, waits: &Waits) -> Nanos {
        let standing = match self.standing {
            Standing::Away { until } | Standing::Resting { until } => until,
            Standing::Opening | Standing::Trial | Standing::Serving => Nanos::MAX,
        };
        standing.min(self.due(waits).unwrap_or(Nanos::MAX))
    }
}
