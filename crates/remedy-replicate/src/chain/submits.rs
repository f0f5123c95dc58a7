//! Writes of this member's clients on their way to the head, in the order in which they came.
//!
//! Invariant: a write waits until it is applied here or refused; the head takes the writes of one member in their
//! order, each once.

use crate::chain::message::{read_submitted, write_refused, write_submitted, Submitted, REFUSED, SUBMIT};
use crate::chain::{Chain, Waits};
use crate::datagram::{fitting, Reader, Refusal};
use crate::desk::Retry;
use crate::fault::Fault;
use crate::replica::{Decline, ReplicaOwn, Write};
use crate::view::MemberId;
use scotfree_core::{Effects, Nanos, SeqNum, SessionId};
use scotfree_state::{request_of, Known, State};
use scotfree_wire::Identity;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A write that waits here.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Waiting {
    pub tickets: Vec<u64>,
    pub session: Option<(SessionId, SeqNum)>,
}

/// A write that the head has not ordered, as far as is known here.
#[derive(Debug, Clone, Hash)]
struct Unordered {
    identity: Identity,
    op: Box<[u8]>,
    /// It keeps its number until all before it are ordered.
    is_settled: bool,
}

#[derive(Debug, Clone, Hash, Default)]
pub(crate) struct Submits {
    waiting: Waits<Waiting>,
    unordered: VecDeque<Unordered>,
    /// The number of the first that is not ordered, in this view.
    first: u64,
    /// How many of them were sent.
    sent: usize,
    /// As the head: the next number of each member.
    next: BTreeMap<MemberId, u64>,
    pub(crate) retry: Retry,
}

impl Submits {
    /// Ends the waiting for a request.
    pub(crate) fn take(&mut self, identity: &Identity) -> Option<Waiting> {
        self.note_ordered(identity);
        self.waiting.remove(&request_of(identity))
    }

    /// The head has it, or it was executed before.
    pub(crate) fn note_ordered(&mut self, identity: &Identity) {
        if !self.waiting.contains_key(&request_of(identity)) {
            return;
        }
        let is_it = |waiting: &&mut Unordered| request_of(&waiting.identity) == request_of(identity);
        // Nearly always the first, since the head takes them in their order.
        let Some(found) = self.unordered.iter_mut().find(is_it) else { return };
        found.is_settled = true;
        while self.unordered.front().is_some_and(|first| first.is_settled) {
            self.unordered.pop_front();
            self.first += 1;
            self.sent = self.sent.saturating_sub(1);
        }
    }
}

impl<S: State> Chain<S> {
    pub(super) fn begin_write(&mut self, now: Nanos, write: &Write<'_>, effects: &mut Effects<ReplicaOwn>) {
        self.desk.counters.writes += 1;
        if let Err(why) = self.desk.may_take_requests(now) {
            return self.desk.decline(write.ticket, why, effects);
        }
        let now_ms = self.desk.real_ms(now);
        // What a state holds that is to be replaced was perhaps never agreed on.
        if self.lineage.is_some() && !self.desk.plants(Fault::IdentityForgotten) {
            // G6: what was executed is answered with what it was answered first.
            match self.state.results().look(&write.identity, now_ms) {
                Known::Answered(answer) => {
                    let reply = effects.append(|out| out.extend_from_slice(answer));
                    self.desk.counters.writes_known += 1;
                    effects.own(ReplicaOwn::Answer { ticket: write.ticket, reply, is_refused: false });
                    self.unstable.insert((self.log.applied(), write.ticket));
                    return self.settle(effects);
                }
                Known::Forgotten => return self.desk.decline(write.ticket, Decline::Forgotten, effects),
                Known::New | Known::NoRoom => {}
            }
        }
        if !self.state.has_room() {
            return self.desk.decline(write.ticket, Decline::Busy, effects);
        }
        self.wait_for(now, write, effects);
    }

    fn wait_for(&mut self, now: Nanos, write: &Write<'_>, effects: &mut Effects<ReplicaOwn>) {
        if let Some(waiting) = self.submits.waiting.get_mut(&request_of(&write.identity)) {
            self.desk.counters.writes_known += 1;
            waiting.tickets.push(write.ticket);
            waiting.session = write.session.or(waiting.session);
            return;
        }
        if self.submits.waiting.len() >= self.desk.config.limits.writes_max {
            return self.desk.decline(write.ticket, Decline::Busy, effects);
        }
        let waiting = Waiting { tickets: vec![write.ticket], session: write.session };
        self.submits.waiting.insert(request_of(&write.identity), waiting);
        let submitted = Submitted { identity: write.identity, op: write.op };
        if self.place_of(&submitted).is_some() {
            self.desk.counters.writes_known += 1;
        } else if self.is_head() {
            self.order_own(now, &submitted, effects);
        } else {
            self.submits.unordered.push_back(Unordered {
                identity: write.identity,
                op: write.op.into(),
                is_settled: false,
            });
            self.submits.retry.start(now, self.desk.config.limits.retry_min);
        }
    }

    fn order_own(&mut self, now: Nanos, submitted: &Submitted<'_>, effects: &mut Effects<ReplicaOwn>) {
        match self.order(now, self.desk.config.id, submitted) {
            Ok(()) => {
                self.commit(effects);
                self.settle(effects);
            }
            Err(why) => self.on_refused(&submitted.identity, why, effects),
        }
    }

    /// Answers what waits here and was executed before the state that was taken.
    pub(super) fn answer_known(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let now_ms = self.desk.real_ms(now);
        let requests: Vec<([u8; 16], u64)> = self.submits.waiting.keys().copied().collect();
        for (client, number) in requests {
            let identity = Identity { client, number };
            let Known::Answered(answer) = self.state.results().look(&identity, now_ms) else { continue };
            let reply = effects.append(|out| out.extend_from_slice(answer));
            let Some(waiting) = self.submits.take(&identity) else { continue };
            for ticket in waiting.tickets {
                effects.own(ReplicaOwn::Answer { ticket, reply, is_refused: false });
                self.unstable.insert((self.log.applied(), ticket));
            }
        }
    }

    /// The head has refused a write.
    pub(super) fn on_refused(
        &mut self,
        identity: &Identity,
        why: Decline,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let Some(waiting) = self.submits.take(identity) else { return };
        waiting.tickets.iter().for_each(|ticket| self.desk.decline(*ticket, why, effects));
    }

    /// Writes that other members' clients have made: the number before which all are ordered (8), that of the first that
    /// follows (8), how many (4), and they.
    pub(super) fn on_submit(
        &mut self,
        now: Nanos,
        from: MemberId,
        mut body: Reader<'_>,
        effects: &mut Effects<ReplicaOwn>,
    ) -> Result<(), Refusal> {
        let (ordered, first, count) = (body.u64()?, body.u64()?, body.u32()?);
        if !self.is_head() {
            return Ok(());
        }
        // What came by way of another member is not sent any more.
        let next = self.submits.next.entry(from).or_insert(0);
        *next = (*next).max(ordered);
        for number in (first..u64::MAX).take(count as usize) {
            let submitted = read_submitted(&mut body)?;
            let next = self.submits.next.entry(from).or_insert(0);
            // Behind a gap nothing is taken, so that a member's writes keep their order.
            if number > *next {
                return Ok(());
            }
            *next = (*next).max(number + 1);
            if let Err(why) = self.order(now, from, &submitted) {
                self.desk
                    .tell(from, REFUSED, 32, effects, |out| write_refused(&submitted.identity, why, out));
            }
        }
        body.end()
    }

    /// Begins anew in a view: what is not applied here is submitted to the head of today.
    pub(super) fn begin_again(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.submits.next.clear();
        (self.submits.first, self.submits.sent) = (0, 0);
        if self.desk.myself().is_none() {
            return self.decline_all(effects);
        }
        if self.desk.plants(Fault::SubmitsDropped) {
            self.submits.unordered.clear();
        }
        self.give_up_displaced(effects);
        let has_place =
            |waiting: &Unordered| waiting.is_settled || self.log.place_of(&waiting.identity).is_some();
        let unordered: VecDeque<Unordered> = std::mem::take(&mut self.submits.unordered)
            .into_iter()
            .filter(|waiting| !has_place(waiting))
            .collect();
        if self.is_head() {
            for waiting in unordered {
                self.order_own(now, &Submitted { identity: waiting.identity, op: &waiting.op }, effects);
            }
        } else if !unordered.is_empty() {
            self.submits.unordered = unordered;
            self.submits.retry.restart(now, self.desk.config.limits.retry_min);
        }
        self.ask_again(now);
    }

    /// What was ordered in a view that this member has been left out of may never be: whoever waits for it goes
    /// elsewhere, or sends it again. Then all else goes the same way, so that nothing overtakes what came before it.
    fn give_up_displaced(&mut self, effects: &mut Effects<ReplicaOwn>) {
        if self.desk.plants(Fault::SubmitsDropped) {
            return;
        }
        let displaced = self.displaced();
        if !displaced.is_empty() && !self.desk.plants(Fault::DisplacedOvertaken) {
            return self.give_up_all(effects);
        }
        for request in displaced {
            let Some(waiting) = self.submits.waiting.remove(&request) else { continue };
            for ticket in waiting.tickets {
                self.desk.decline(ticket, Decline::NoView, effects);
            }
        }
    }

    /// Requests that were ordered, and have no place any more.
    fn displaced(&self) -> Vec<([u8; 16], u64)> {
        let is_open = |waiting: &&Unordered| !waiting.is_settled;
        let unordered: BTreeSet<([u8; 16], u64)> = self
            .submits
            .unordered
            .iter()
            .filter(is_open)
            .map(|waiting| request_of(&waiting.identity))
            .collect();
        let is_displaced = |(client, number): &&([u8; 16], u64)| {
            let identity = Identity { client: *client, number: *number };
            !unordered.contains(&(*client, *number)) && self.log.place_of(&identity).is_none()
        };
        self.submits.waiting.keys().filter(is_displaced).copied().collect()
    }

    pub(super) fn give_up_all(&mut self, effects: &mut Effects<ReplicaOwn>) {
        self.submits.unordered.clear();
        self.submits.retry.stop();
        let waiting = std::mem::take(&mut self.submits.waiting);
        for ticket in waiting.into_values().flat_map(|waiting| waiting.tickets) {
            self.desk.decline(ticket, Decline::NoView, effects);
        }
    }

    /// This member is in no view: its clients go elsewhere with what they have asked.
    fn decline_all(&mut self, effects: &mut Effects<ReplicaOwn>) {
        for (_, ticket) in std::mem::take(&mut self.unstable) {
            effects.own(ReplicaOwn::Lost { ticket });
        }
        self.give_up_all(effects);
        self.decline_reads(effects);
    }

    /// Sends what has not been sent, or all of it again.
    pub(super) fn send_submits(&mut self, now: Nanos, is_again: bool, effects: &mut Effects<ReplicaOwn>) {
        let Some(head) = self.head.filter(|_| !self.is_head()) else { return };
        let Submits { unordered, first, sent, .. } = &mut self.submits;
        let from = if is_again { 0 } else { *sent };
        self.desk.counters.resent += if is_again { (*sent).min(unordered.len()) as u64 } else { 0 };
        let mut bytes_left = self.desk.config.limits.window_bytes_max;
        let mut at = from;
        while at < unordered.len() && bytes_left > 0 {
            let batch = fitting(unordered.range(at..).map(|waiting| waiting.op.len() + 28));
            let bytes: usize = unordered.range(at..at + batch).map(|waiting| waiting.op.len() + 28).sum();
            self.desk.tell(head, SUBMIT, bytes + 20, effects, |out| {
                out.extend_from_slice(&first.to_le_bytes());
                out.extend_from_slice(&(*first + at as u64).to_le_bytes());
                out.extend_from_slice(&(batch as u32).to_le_bytes());
                for waiting in unordered.range(at..at + batch) {
                    write_submitted(&Submitted { identity: waiting.identity, op: &waiting.op }, out);
                }
            });
            bytes_left = bytes_left.saturating_sub(bytes);
            at += batch;
        }
        *sent = (*sent).max(at);
        if unordered.is_empty() {
            self.submits.retry.stop();
        } else {
            self.submits.retry.start(now, self.desk.config.limits.retry_min);
        }
    }
}
