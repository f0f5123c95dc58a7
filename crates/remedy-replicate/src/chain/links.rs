//! Between a member and its neighbours: writes go to the next, what it has comes back.
//!
//! Invariant: what the successor lacks is sent again until it has it, from the log (G10); a member says what it has
//! only of what it has with all before.

use crate::chain::message::{
    write_entry, write_forward_head, ForwardHead, Progress, COMMITTED, ENTRY_HEAD_BYTES, FORWARD, PROGRESS,
};
use crate::chain::Chain;
use crate::datagram::{fitting, write_numbers};
use crate::desk::Retry;
use crate::fault::Fault;
use crate::replica::{ReplicaOwn, StableWhen};
use crate::view::{MemberId, Standing};
use scotfree_core::{Effects, Nanos};
use scotfree_state::State;

/// The next member of the chain.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Successor {
    pub id: MemberId,
    pub standing: Standing,
    /// The last write that it has, once it has said so in this view.
    pub has: Option<u64>,
    /// The last that was sent.
    pub sent: u64,
    /// The last that it and all behind it have stored.
    pub stable: u64,
    /// A joiner without which nothing is committed any more.
    pub is_counted: bool,
    pub retry: Retry,
}

impl Successor {
    pub(crate) fn new(id: MemberId, standing: Standing) -> Successor {
        Successor { id, standing, has: None, sent: 0, stable: 0, is_counted: false, retry: Retry::default() }
    }
}

impl<S: State> Chain<S> {
    /// The next member says how far it is.
    pub(super) fn on_progress(
        &mut self,
        now: Nanos,
        from: MemberId,
        progress: &Progress,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let Some(next) = self.successor.as_mut().filter(|next| next.id == from) else { return };
        if next.has.is_none() {
            next.sent = progress.received;
            // It waits to hear from a member of this view.
            self.told_forward = None;
        }
        let is_further =
            next.has.is_none_or(|has| progress.received > has) || progress.committed > self.known_committed;
        if !is_further {
            // It says the same again: what it was told is lost.
            self.told_forward = None;
        }
        let forgets = next.has.is_none() && self.desk.config.planted.has(Fault::SentListDropped);
        next.has = Some(if forgets { self.log.last() } else { next.has.unwrap_or(0).max(progress.received) });
        next.stable = next.stable.max(progress.stable);
        if is_further {
            next.retry.restart(now, self.desk.config.limits.retry_min);
        }
        if next.standing == Standing::Full {
            self.known_committed = self.known_committed.max(progress.committed);
        } else {
            self.on_joiner(progress, effects);
        }
    }

    /// Sends what the calls since the last time have made.
    pub(super) fn pass_on(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.send_submits(now, false, effects);
        self.forward(now, false, effects);
        self.report(effects);
        let committed = self.committed;
        for origin in std::mem::take(&mut self.to_tell) {
            self.desk.tell(origin, COMMITTED, 8, effects, |out| write_numbers(&[committed], out));
        }
        self.send_reads(now, false, effects);
        self.log.trim(self.needed(), self.desk.config.limits.kept_bytes_max);
        if self.desk.config.stable_when == StableWhen::Stored && self.stable_all < self.committed {
            self.settling.start(now, self.desk.config.limits.retry_max);
        }
    }

    /// Tells the next member what it lacks, and how far this one is.
    fn forward(&mut self, now: Nanos, is_again: bool, effects: &mut Effects<ReplicaOwn>) {
        let Some(next) = self.successor.as_mut().filter(|next| next.has.is_some() && self.is_introduced)
        else {
            return;
        };
        let has = next.has.unwrap_or(0);
        if has + 1 < self.log.first() {
            // It needs the state; of a full member that cannot be.
            return;
        }
        if is_again {
            next.sent = has;
        }
        next.sent = next.sent.max(has);
        let mut head = ForwardHead {
            last: self.log.last(),
            committed: self.committed.max(self.known_committed),
            stable_all: self.stable_all,
            first: next.sent + 1,
        };
        let mut in_flight: usize =
            (has + 1..=next.sent).filter_map(|index| self.log.get(index)).map(|entry| entry.op.len()).sum();
        let is_joining = next.standing == Standing::Joining;
        let mut is_told = !is_again && self.told_forward.is_some_and(|told| told.is_like(&head, is_joining));
        while next.sent < self.log.last() && in_flight < self.desk.config.limits.window_bytes_max {
            head.first = next.sent + 1;
            let log = &self.log;
            let sizes = (head.first..=log.last()).filter_map(|index| log.get(index));
            let count = fitting(sizes.map(|entry| entry.op.len() + ENTRY_HEAD_BYTES)) as u64;
            let bytes: usize = (head.first..head.first + count)
                .filter_map(|index| self.log.get(index))
                .map(|entry| entry.op.len() + ENTRY_HEAD_BYTES)
                .sum();
            self.desk.tell(next.id, FORWARD, bytes + 36, effects, |out| {
                write_forward_head(&head, count as u32, out);
                (head.first..head.first + count)
                    .filter_map(|index| log.get(index))
                    .for_each(|entry| write_entry(entry, out));
            });
            next.sent += count;
            in_flight += bytes;
            is_told = true;
        }
        if !is_told {
            head.first = next.sent + 1;
            self.desk.tell(next.id, FORWARD, 36, effects, |out| write_forward_head(&head, 0, out));
        }
        self.told_forward = Some(head);
        if self.committed < self.log.last() || has < self.log.last() {
            next.retry.start(now, self.desk.config.limits.retry_min);
        } else {
            next.retry.stop();
        }
    }

    /// Tells the member before how far this one is, if that is news.
    fn report(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let Some(before) = self.predecessor.filter(|_| self.is_introduced) else { return };
        let progress = self.progress();
        let is_joining = self.desk.myself().is_some_and(|member| member.standing == Standing::Joining);
        let receives = self.is_tail() || is_joining;
        let is_news = |told: Progress| {
            told.committed != progress.committed
                || told.stable != progress.stable
                || (receives && told.received != progress.received)
        };
        if self.told_progress.is_none_or(is_news) {
            self.tell_progress(before, effects);
        }
    }

    fn progress(&self) -> Progress {
        Progress { received: self.log.last(), committed: self.committed, stable: self.stable_from_here() }
    }

    pub(super) fn tell_progress(&mut self, before: MemberId, effects: &mut Effects<ReplicaOwn>) {
        let progress = self.progress();
        self.told_progress = Some(progress);
        self.desk.tell(before, PROGRESS, 24, effects, |out| progress.write(out));
    }

    /// Sends again what has had no answer for a while.
    pub(super) fn fire(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let max = self.desk.config.limits.retry_max;
        if self.hello.is_due(now, max) {
            self.greet(now, effects);
        }
        if self.successor.as_mut().is_some_and(|next| next.retry.is_due(now, max)) {
            self.desk.counters.resent += 1;
            self.forward(now, true, effects);
        }
        if self.submits.retry.is_due(now, max) {
            self.send_submits(now, true, effects);
        }
        if self.reads.retry.is_due(now, max) {
            self.send_reads(now, true, effects);
        }
        if self.settling.is_due(now, max) {
            self.settle_again(effects);
        }
        self.want_again(now, effects);
    }

    /// A member that has just taken a view says what it has until it hears from the one before, and one that joins
    /// until it is full. One that is being given the state has nothing.
    fn greet(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let is_joining = self.desk.myself().is_some_and(|member| member.standing == Standing::Joining);
        let goes_on = self.taking.is_none() && (is_joining || !self.is_introduced);
        let Some(before) = self.predecessor.filter(|_| goes_on) else { return self.hello.stop() };
        self.tell_progress(before, effects);
        let limits = &self.desk.config.limits;
        self.hello.restart(now, if self.is_introduced { limits.retry_max } else { limits.retry_min });
    }

    /// What was told of stability may be lost: it is told again while something waits for it.
    fn settle_again(&mut self, effects: &mut Effects<ReplicaOwn>) {
        (self.told_progress, self.told_forward) = (None, None);
        if self.stored >= self.committed && self.stable_all >= self.committed {
            self.settling.stop();
        }
        self.settle(effects);
    }

    /// The first entry that the next member may still need. A joiner that has not spoken may be given the state.
    fn needed(&self) -> u64 {
        let needs = |next: &Successor| match (next.has, next.standing) {
            (Some(has), _) => has + 1,
            (None, Standing::Full) => 0,
            (None, Standing::Joining) => u64::MAX,
        };
        let giving = self.giving.as_ref().map_or(u64::MAX, |giving| giving.mark + 1);
        self.successor.as_ref().map_or(u64::MAX, needs).min(giving)
    }
}

impl ForwardHead {
    /// Whether another says the same, of the writes that follow apart. What is committed a full member knows before.
    fn is_like(&self, other: &ForwardHead, is_joining: bool) -> bool {
        self.stable_all == other.stable_all && (!is_joining || self.committed == other.committed)
    }
}
