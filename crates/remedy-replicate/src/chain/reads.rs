//! Reads: answered by the tail, or here if no write of the key is on its way.
//!
//! Invariant: what is answered was the newest committed value at some moment between the read's coming and its
//! answer: the tail says so under its lease, or no write is under way that this member has not applied (G1, G11).

use crate::chain::message::{QUERY, QUERY_ANSWER, READ, READ_ANSWER};
use crate::chain::{Chain, ReadsAt};
use crate::datagram::{blob, write_numbers, Reader, Refusal, DATAGRAM_BYTES_MAX};
use crate::desk::Retry;
use crate::fault::Fault;
use crate::replica::{Decline, ReplicaOwn};
use crate::view::{MemberId, Standing};
use scotfree_core::{Effects, Nanos};
use scotfree_state::{State, Touches};
use std::collections::BTreeMap;

/// The largest answer that goes from one member to another.
const ANSWER_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - (1 << 10);
/// What stands in the place of whether the application refused, if the answer is larger.
const TOO_LARGE: u8 = 2;

/// A read that waits.
#[derive(Debug, Clone, Hash)]
struct Waiting {
    ticket: u64,
    op: Box<[u8]>,
    /// The tail reads; else it says how far it is.
    by_tail: bool,
    is_sent: bool,
    /// How far it was.
    through: Option<u64>,
}

#[derive(Debug, Clone, Hash, Default)]
pub(crate) struct Reads {
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    pub(crate) retry: Retry,
}

impl<S: State> Chain<S> {
    pub(super) fn begin_read(
        &mut self,
        now: Nanos,
        ticket: u64,
        op: &[u8],
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let facts = self.state.facts(op);
        if facts.touches == Touches::Nothing {
            return self.answer_of_nothing(ticket, op, effects);
        }
        if let Err(why) = self.desk.may_take_requests(now) {
            return self.desk.decline(ticket, why, effects);
        }
        let is_full = self.desk.is_full() || self.desk.plants(Fault::JoinerAnswers);
        let anyone = self.reads_at == ReadsAt::Anyone || self.desk.plants(Fault::AnyoneAnswers);
        let is_planted = self.desk.plants(Fault::DirtyAnswered) || self.desk.plants(Fault::AnyoneAnswers);
        let is_clean = !self.log.is_dirty(&facts) || is_planted;
        // G9, G11: the tail has what is committed; others have it of a key that no write is on its way to.
        let may = if self.is_tail() { self.may_speak_as_tail(now) } else { is_full && anyone && is_clean };
        if may {
            self.answer_here(ticket, op, self.log.shown_by(&facts.touches), effects);
            return self.settle(effects);
        }
        if self.reads.waiting.len() >= self.desk.config.limits.reads_max {
            return self.desk.decline(ticket, Decline::Busy, effects);
        }
        self.desk.counters.reads_asked += 1;
        let by_tail = !(self.is_tail() || is_full && anyone);
        let number = self.reads.next;
        self.reads.next += 1;
        // The tail itself waits for what it has received to be committed.
        let through = self.is_tail().then(|| self.log.last());
        let waiting = Waiting { ticket, op: op.into(), by_tail, is_sent: false, through };
        self.reads.waiting.insert(number, waiting);
        self.reads.retry.start(now, self.desk.config.limits.retry_min);
    }

    /// What does not depend on the state can be answered whatever becomes of it.
    fn answer_of_nothing(&mut self, ticket: u64, op: &[u8], effects: &mut Effects<ReplicaOwn>) {
        self.answer_here(ticket, op, 0, effects);
        self.settle(effects);
    }

    /// Answers from the state here. What the answer shows, up to this write, may be lost until that is stable; what
    /// others write is no matter of it.
    fn answer_here(&mut self, ticket: u64, op: &[u8], shown: u64, effects: &mut Effects<ReplicaOwn>) {
        self.desk.counters.reads_here += 1;
        self.reply.clear();
        let is_refused = self.state.query(op, &mut self.reply);
        let reply = effects.append(|out| out.extend_from_slice(&self.reply));
        effects.own(ReplicaOwn::Answer { ticket, reply, is_refused });
        self.unstable.insert((shown, ticket));
    }

    /// Whether what is applied here is what is committed, and no later view can say otherwise.
    fn may_speak_as_tail(&self, now: Nanos) -> bool {
        self.is_tail() && self.is_introduced && self.desk.has_lease(now)
    }

    /// How far is the tail?
    pub(super) fn on_query(
        &mut self,
        now: Nanos,
        from: MemberId,
        number: u64,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        if self.may_speak_as_tail(now) {
            let committed = self.log.applied();
            self.desk.tell(from, QUERY_ANSWER, 16, effects, |out| write_numbers(&[number, committed], out));
        }
    }

    pub(super) fn on_query_answer(&mut self, number: u64, committed: u64) {
        self.known_committed = self.known_committed.max(committed);
        if let Some(waiting) = self.reads.waiting.get_mut(&number).filter(|waiting| !waiting.by_tail) {
            waiting.through.get_or_insert(committed);
        }
    }

    /// A read of another member's client: number (8) and the operation.
    pub(super) fn on_read_for(
        &mut self,
        now: Nanos,
        from: MemberId,
        mut body: Reader<'_>,
        effects: &mut Effects<ReplicaOwn>,
    ) -> Result<(), Refusal> {
        let (number, op) = (body.u64()?, body.blob()?);
        body.end()?;
        let may =
            self.may_speak_as_tail(now) || (self.desk.plants(Fault::AnyoneAnswers) && self.desk.is_full());
        if may {
            self.reply.clear();
            let is_refused = self.state.query(op, &mut self.reply);
            let is_too_large = self.reply.len() > ANSWER_BYTES_MAX;
            if is_too_large {
                self.reply.clear();
            }
            let (reply, shown) = (&self.reply, self.log.shown_by(&self.state.facts(op).touches));
            self.desk.tell(from, READ_ANSWER, reply.len() + 21, effects, |out| {
                write_numbers(&[number, shown], out);
                out.push(if is_too_large { TOO_LARGE } else { u8::from(is_refused) });
                blob(reply, out);
            });
        }
        Ok(())
    }

    pub(super) fn on_read_answer(
        &mut self,
        mut body: Reader<'_>,
        effects: &mut Effects<ReplicaOwn>,
    ) -> Result<(), Refusal> {
        let (number, shown) = (body.u64()?, body.u64()?);
        let (outcome, answer) = (body.u8()?, body.blob()?);
        body.end()?;
        if self.reads.waiting.get(&number).is_some_and(|waiting| waiting.by_tail) {
            let waiting = self.reads.waiting.remove(&number).expect("it was there just now");
            if outcome == TOO_LARGE {
                self.desk.decline(waiting.ticket, Decline::TooLarge, effects);
                return Ok(());
            }
            let reply = effects.append(|out| out.extend_from_slice(answer));
            effects.own(ReplicaOwn::Answer { ticket: waiting.ticket, reply, is_refused: outcome != 0 });
            self.known_committed = self.known_committed.max(shown);
            self.unstable.insert((shown, waiting.ticket));
        }
        Ok(())
    }

    /// Answers the reads whose writes are applied by now.
    pub(super) fn answer_reads(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let applied = self.log.applied();
        // A tail that has not heard from its predecessor may lack what an earlier tail has committed.
        let may_know = !self.is_tail() || self.is_introduced;
        let is_ready =
            |waiting: &Waiting| may_know && waiting.through.is_some_and(|through| through <= applied);
        let ready: Vec<u64> = self
            .reads
            .waiting
            .iter()
            .filter(|(_, waiting)| is_ready(waiting))
            .map(|(number, _)| *number)
            .collect();
        for number in ready {
            let waiting = self.reads.waiting.remove(&number).expect("it was there just now");
            let shown = self.log.shown_by(&self.state.facts(&waiting.op).touches);
            self.answer_here(waiting.ticket, &waiting.op, shown, effects);
        }
        self.settle(effects);
        if self.reads.waiting.is_empty() {
            self.reads.retry.stop();
        }
    }

    /// Asks the tail for what waits and was not sent, or for all of it again.
    pub(super) fn send_reads(&mut self, _now: Nanos, is_again: bool, effects: &mut Effects<ReplicaOwn>) {
        let Some(tail) = self.tail.filter(|_| !self.is_tail()) else { return };
        for (number, waiting) in &mut self.reads.waiting {
            if waiting.through.is_some() || (waiting.is_sent && !is_again) {
                continue;
            }
            self.desk.counters.resent += u64::from(waiting.is_sent);
            waiting.is_sent = true;
            if waiting.by_tail {
                self.desk.tell(tail, READ, waiting.op.len() + 12, effects, |out| {
                    write_numbers(&[*number], out);
                    blob(&waiting.op, out);
                });
            } else {
                self.desk.tell(tail, QUERY, 8, effects, |out| write_numbers(&[*number], out));
            }
        }
    }

    /// In a new view all that waits is asked anew: the tail may be another, or this member.
    pub(super) fn ask_again(&mut self, now: Nanos) {
        let is_full = self.desk.myself().is_some_and(|member| member.standing == Standing::Full);
        let through = self.is_tail().then(|| self.log.last());
        for waiting in self.reads.waiting.values_mut() {
            waiting.is_sent = false;
            waiting.by_tail = (waiting.by_tail || !is_full) && through.is_none();
            waiting.through = through.or(waiting.through.filter(|_| !waiting.by_tail));
        }
        if !self.reads.waiting.is_empty() {
            self.reads.retry.restart(now, self.desk.config.limits.retry_min);
        }
    }

    pub(super) fn decline_reads(&mut self, effects: &mut Effects<ReplicaOwn>) {
        self.reads.retry.stop();
        for waiting in std::mem::take(&mut self.reads.waiting).into_values() {
            self.desk.decline(waiting.ticket, Decline::NoView, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_answer_fits_a_datagram_with_all_that_stands_before_it() {
        let mut datagram = Vec::new();
        crate::datagram::begin(&mut datagram);
        crate::datagram::message(READ_ANSWER, &mut datagram, |out| {
            write_numbers(&[1, 2], out);
            out.push(0);
            blob(&vec![0; ANSWER_BYTES_MAX], out);
        });
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
    }
}
