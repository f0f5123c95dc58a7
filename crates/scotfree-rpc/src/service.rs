//! What a server does with requests: the traits [`Handler`] and [`Service`], and the reports by which they
//! answer.
//!
//! Invariant: a service executes requests in the order in which it is given them, once each; what it
//! reports as stable survives whatever its storage says it survives, positions included.

use crate::metrics::MetricsText;
use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_session::{DeadLetterReason, RecoveredSession, RequestKind};
use scotfree_wire::Identity;
use std::os::fd::RawFd;

/// A request to be executed.
#[derive(Debug, Clone, Copy)]
pub struct Execution<'a> {
    /// Names the execution; grows from one to the next.
    pub ticket: u64,
    /// Whose request it is.
    pub session: SessionId,
    /// Its place in the session. Stored as the session's position, atomically with what it writes.
    pub seq: SeqNum,
    /// What kind.
    pub kind: RequestKind,
    /// The request.
    pub payload: &'a [u8],
    /// It is executed anew, and may have been acknowledged before: what is true of the service for a while only (it
    /// takes no writes at present) is no answer to it, and nothing behind it may be executed before it is.
    pub is_replayed: bool,
    /// Who made it, beyond its session, if its client says so: it stays the same when the request is sent again to
    /// another server, so that servers which share their state execute it once. What takes more than one packet bears
    /// none, nor what a device's log gives back of a client that has died.
    pub identity: Option<Identity>,
}

/// An update that is never applied, because its session ended before it could be.
#[derive(Debug, Clone, Copy)]
pub struct DeadLetter<'a> {
    /// Whose update it was.
    pub session: SessionId,
    /// Its place in the session.
    pub seq: SeqNum,
    /// Why it is dead.
    pub reason: DeadLetterReason,
    /// The update.
    pub payload: &'a [u8],
}

/// A descriptor whose readiness calls for [`Handler::poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watch {
    /// The descriptor. It stays open as long as the service names it.
    pub fd: RawFd,
    /// Another number for each descriptor opened, since the system uses the same `fd` again.
    pub generation: u64,
    /// Wake when it is readable.
    pub readable: bool,
    /// Wake when it is writable.
    pub writable: bool,
}

/// What executes requests. One thread calls it; it never blocks longer than its work takes.
///
/// A handler that keeps nothing beyond its process is served through [`crate::Volatile`]; one that stores
/// what it executes is a [`Service`].
pub trait Handler {
    /// Executes a request: at once, with [`Replies::reply`], or later, reported by [`Handler::poll`].
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies);

    /// Told before a turn whether one of [`Handler::watches`] is ready, if it is known that none is: what would be
    /// found there is nothing.
    fn hear(&mut self, _is_ready: bool) {}

    /// Called once per turn of the loop, after the turn's executions: starts what was batched and
    /// reports what has come to an end. `wants_stable` says that replies wait for stability now.
    fn poll(&mut self, _wants_stable: bool, _replies: &mut Replies) {}

    /// Appends the descriptors to be watched.
    fn watches(&self, _out: &mut Vec<Watch>) {}

    /// When to call [`Handler::poll`] next even if nothing happens, in monotonic time.
    fn next_poll(&self) -> Option<Nanos> {
        None
    }

    /// Appends what an operator wants to know of it.
    fn write_metrics(&self, _text: &mut MetricsText) {}

    /// Why it executes nothing at present, if so: what `/healthz` says.
    fn not_serving(&self) -> Option<&'static str> {
        None
    }

    /// Why it can go on no longer, if so: its storage broke. The loop ends with this error, and nothing
    /// more is answered.
    fn broken(&self) -> Option<String> {
        None
    }
}

/// What a server runs: a handler that stores, with what it executes, the records of the sessions, and
/// that reports by [`Replies::stable`] what is stored.
pub trait Service: Handler {
    /// Stores a new session's record durably, then reports [`Replies::session_recorded`].
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies);

    /// Forgets a session durably, then reports [`Replies::session_deleted`].
    fn delete_session(&mut self, session: SessionId, replies: &mut Replies);

    /// Keeps an update that was never applied where an operator finds it.
    fn dead_letter(&mut self, letter: &DeadLetter<'_>);
}

/// One report of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// An execution is over.
    Reply {
        /// Which.
        ticket: u64,
        /// Where its reply lies: from here, see [`Replies::bytes`],
        start: usize,
        /// to here.
        end: usize,
        /// Whether the application refused it.
        failed: bool,
        /// When the handler ended, in real time; 0 if nobody knows.
        ended: Nanos,
    },
    /// What this ticket is answered says nothing of what was written before it, nor did it write.
    Independent {
        /// The ticket.
        ticket: u64,
    },
    /// What this ticket, a read, is answered next shows one value, which lives on if nobody writes it.
    Lives {
        /// The ticket.
        ticket: u64,
        /// So many milliseconds; `u64::MAX` if for ever.
        remaining_ms: u64,
    },
    /// Everything executed up to this ticket is stable.
    Stable {
        /// The ticket.
        ticket: u64,
    },
    /// Whatever has its answer is as stable as it will ever be.
    StableAsAnswered,
    /// A session's record is durable.
    SessionRecorded(SessionId),
    /// A session is durably forgotten.
    SessionDeleted(SessionId),
    /// The application can no longer serve a session.
    SessionFailed(SessionId),
    /// The application has no memory for a new session's record.
    SessionRefused(SessionId),
}

/// What is kept of the room for replies when all of them are passed on.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// What a service reports, in order. The runtime reuses one for all calls.
#[derive(Debug, Default)]
pub struct Replies {
    reports: Vec<Report>,
    bytes: Vec<u8>,
}

impl Replies {
    /// No reports.
    pub fn new() -> Self {
        Self::default()
    }

    /// The execution `ticket` is over; `write` appends its reply. `failed`: the application refused
    /// the request, which nevertheless took its place in the session.
    pub fn reply(&mut self, ticket: u64, failed: bool, write: impl FnOnce(&mut Vec<u8>)) {
        self.reply_ended(ticket, failed, Nanos(0), write);
    }

    /// As [`Replies::reply`], for a service that knows when the handler ended, in real time.
    pub fn reply_ended(&mut self, ticket: u64, failed: bool, ended: Nanos, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        assert!(self.bytes.len() >= start, "a reply's writer may only append");
        self.reports.push(Report::Reply { ticket, start, end: self.bytes.len(), failed, ended });
    }

    /// The reply to the read `ticket`, which is reported next, says nothing of anything that was written, so it
    /// waits for nothing to be stable.
    pub fn independent(&mut self, ticket: u64) {
        self.reports.push(Report::Independent { ticket });
    }

    /// The reply to the read `ticket`, which is reported next, shows one value, which lives so many milliseconds on if
    /// nobody writes it (`u64::MAX`: for ever). Only of clients that take such a note.
    pub fn lives(&mut self, ticket: u64, remaining_ms: u64) {
        self.reports.push(Report::Lives { ticket, remaining_ms });
    }

    /// Everything executed up to `ticket` is on stable storage, with the sessions' positions.
    pub fn stable(&mut self, ticket: u64) {
        self.reports.push(Report::Stable { ticket });
    }

    /// Whatever has its answer is as stable as it will ever be, up to the first request that has none. For
    /// those who keep nothing: see [`crate::Volatile`].
    pub fn stable_as_answered(&mut self) {
        self.reports.push(Report::StableAsAnswered);
    }

    /// A session's record is durable.
    pub fn session_recorded(&mut self, session: SessionId) {
        self.reports.push(Report::SessionRecorded(session));
    }

    /// A session is durably forgotten.
    pub fn session_deleted(&mut self, session: SessionId) {
        self.reports.push(Report::SessionDeleted(session));
    }

    /// The application can no longer serve a session; it ends with an error, others go on. What it has
    /// under way needs no reply any more, only stability.
    pub fn fail_session(&mut self, session: SessionId) {
        self.reports.push(Report::SessionFailed(session));
    }

    /// The application has no memory for the record of a session that is being opened; whoever opens it is
    /// told.
    pub fn refuse_session(&mut self, session: SessionId) {
        self.reports.push(Report::SessionRefused(session));
    }

    /// Moves all reports of `other` here, behind those that are here already.
    pub fn take_from(&mut self, other: &mut Replies) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let moved = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.reports.extend(other.reports.drain(..).map(|report| match report {
            Report::Reply { ticket, start, end, failed, ended } => {
                Report::Reply { ticket, start: start + moved, end: end + moved, failed, ended }
            }
            other => other,
        }));
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// Forgets all, keeping the memory for what is usual.
    pub fn clear(&mut self) {
        self.reports.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
    }

    /// A report, in the order in which they were made.
    pub fn report(&self, index: usize) -> Option<Report> {
        self.reports.get(index).copied()
    }

    /// The bytes of a reply.
    pub fn bytes(&self, start: usize, end: usize) -> &[u8] {
        &self.bytes[start..end]
    }
}

/// A reply as a test of a service reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyCopy {
    /// The execution.
    pub ticket: u64,
    /// Whether it was refused.
    pub failed: bool,
    /// The reply.
    pub bytes: Vec<u8>,
}

impl Replies {
    /// Copies of the replies reported, for tests of services.
    pub fn replies(&self) -> Vec<ReplyCopy> {
        self.reports
            .iter()
            .filter_map(|report| match *report {
                Report::Reply { ticket, start, end, failed, .. } => {
                    Some(ReplyCopy { ticket, failed, bytes: self.bytes[start..end].to_vec() })
                }
                _ => None,
            })
            .collect()
    }

    /// The highest ticket reported as stable, for tests of services.
    pub fn stable_through(&self) -> Option<u64> {
        self.reports
            .iter()
            .filter_map(|report| match report {
                Report::Stable { ticket } => Some(*ticket),
                _ => None,
            })
            .max()
    }
}
