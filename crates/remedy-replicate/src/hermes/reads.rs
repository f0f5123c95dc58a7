//! Reads, and what waits for a key to be valid.
//!
//! Invariant: only a valid key is read, by a full member under its lease (G1); what waits for a key goes on in the
//! order in which it came.

use crate::fault::HermesFault;
use crate::hermes::{Hermes, Request};
use crate::replica::{Decline, ReplicaOwn};
use scotfree_core::{Effects, Nanos};
use scotfree_state::{State, Touches};
use std::collections::VecDeque;

/// What waits for a key.
#[derive(Debug, Clone, Hash)]
pub(crate) enum Queued {
    Read { ticket: u64, op: Box<[u8]> },
    Write(Request),
}

impl<S: State> Hermes<S> {
    pub(super) fn begin_read(
        &mut self,
        now: Nanos,
        ticket: u64,
        op: &[u8],
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let key = match self.state.facts(op).touches {
            Touches::Nothing => return self.answer_read(ticket, None, op, effects),
            Touches::Several => return self.desk.decline(ticket, Decline::SeveralKeys, effects),
            Touches::One(key) => key,
        };
        if let Err(why) = self.may_serve(now) {
            return self.desk.decline(ticket, why, effects);
        }
        if self.is_valid(&key) || self.plants(HermesFault::InvalidAnswered) {
            return self.answer_read(ticket, Some(&key), op, effects);
        }
        if self.queued_reads >= self.desk.config.limits.reads_max {
            return self.desk.decline(ticket, Decline::Busy, effects);
        }
        self.queued_reads += 1;
        self.desk.counters.reads_asked += 1;
        self.wait_for_key(now, &key, Queued::Read { ticket, op: op.into() });
    }

    pub(super) fn may_serve(&self, now: Nanos) -> Result<(), Decline> {
        self.desk.may_take_requests(now)?;
        let may = self.desk.is_full() && self.has_state() || self.plants(HermesFault::JoinerAnswers);
        may.then_some(()).ok_or(Decline::NoView)
    }

    /// Answers from the state; the answer is stable when the write that it shows is.
    pub(super) fn answer_read(
        &mut self,
        ticket: u64,
        key: Option<&[u8]>,
        op: &[u8],
        effects: &mut Effects<ReplicaOwn>,
    ) {
        self.desk.counters.reads_here += 1;
        let mut answer = Vec::new();
        let is_refused = self.state.query(op, &mut answer);
        let reply = effects.append(|out| out.extend_from_slice(&answer));
        effects.own(ReplicaOwn::Answer { ticket, reply, is_refused });
        let unsure = key.and_then(|key| Some((key, self.keys.get(key)?.version)));
        match unsure.filter(|_| !self.plants(HermesFault::InvalidAnswered)) {
            Some((key, version)) => {
                self.unstable_reads.entry(key.into()).or_default().push((version, ticket));
            }
            None => effects.own(ReplicaOwn::Stable { ticket }),
        }
    }

    /// A key is valid: what waits for it goes on, until a write of it begins.
    pub(super) fn drain(&mut self, now: Nanos, key: &[u8], effects: &mut Effects<ReplicaOwn>) {
        while self.is_valid(key) {
            let Some(next) = self.queues.get_mut(key).and_then(VecDeque::pop_front) else {
                self.queues.remove(key);
                return;
            };
            match next {
                Queued::Read { ticket, op } => {
                    self.queued_reads -= 1;
                    match self.may_serve(now) {
                        Ok(()) => self.answer_read(ticket, Some(key), &op, effects),
                        Err(why) => self.desk.decline(ticket, why, effects),
                    }
                }
                Queued::Write(request) => self.execute(now, &request, effects),
            }
        }
    }

    /// In a new view writes are held until they may begin; reads wait on.
    pub(super) fn unqueue_writes(&mut self) {
        for queue in self.queues.values_mut() {
            queue.retain(|queued| matches!(queued, Queued::Read { .. }));
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        self.ready_keys.extend(self.queues.keys().cloned());
    }
}
