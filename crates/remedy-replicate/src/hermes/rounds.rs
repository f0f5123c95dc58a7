//! Writes that this member tells all others, until all have said that they have them.
//!
//! A round is a write of this member's own, a stuck write of anybody's that is told again with its own version and
//! value (G5), or the note of a write that was overtaken.
//!
//! Invariant: acknowledgements count in the view in which they were given only (G2); a round is committed when all
//! full members of the view have it, and all joiners that count: so whoever becomes full has all that is committed
//! (G3, G8).

use crate::fault::HermesFault;
use crate::hermes::message::{
    write_ack, write_made, write_validate, Content, Made, Telling, Validate, ACK, INVALIDATE, PROBE, REPLY,
    VALIDATE,
};
use crate::hermes::{Hermes, Request};
use crate::replica::{ReplicaOwn, StableWhen};
use crate::view::{Member, MemberId, Standing};
use scotfree_core::{Effects, Nanos};
use scotfree_state::{request_of, State, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub key: Box<[u8]>,
    pub version: Version,
    pub content: Content,
    pub made: Made,
    /// Who has not said that it has the write.
    missing: Vec<MemberId>,
    /// Whose storage has not, this member's among them.
    unstored: Vec<MemberId>,
    pub is_committed: bool,
    /// Requests that were answered and are not stable.
    pub tickets: Vec<u64>,
    /// Members that wait for the answer.
    pub members: Vec<MemberId>,
    /// When it was sent first in this view.
    sent_at: Option<Nanos>,
    /// When it is sent again, and how long after the time before.
    due: Nanos,
    span: Nanos,
}

impl Round {
    /// How much room it takes under way, about.
    fn bytes(&self) -> usize {
        self.key.len() + self.made.reply.len() + self.content.bytes()
    }
}

/// All but when it was sent.
impl Hash for Round {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.key, self.version, &self.content, &self.made).hash(state);
        (&self.missing, &self.unstored, self.is_committed).hash(state);
        (&self.tickets, &self.members, self.sent_at.is_some()).hash(state);
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Rounds {
    pub all: BTreeMap<u64, Round>,
    pub by_request: BTreeMap<Request, u64>,
    /// Those that are not committed.
    pub open: BTreeSet<u64>,
    unsent: BTreeSet<u64>,
    next: u64,
    /// When which is to be sent again: each by itself, so that those that go on put off no other.
    due: BTreeSet<(Nanos, u64)>,
    /// What those that are not committed take.
    open_bytes: usize,
    /// How long a round took of late until it was committed.
    usual_span: Nanos,
}

/// All but times: of what is sent again, its order.
impl Hash for Rounds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.all, &self.by_request, &self.open, &self.unsent, self.next, self.open_bytes).hash(state);
        self.due.iter().for_each(|(_, number)| number.hash(state));
    }
}

impl Rounds {
    /// Ends all of them; what comes later has other numbers.
    pub(crate) fn take(&mut self) -> BTreeMap<u64, Round> {
        let Rounds { all, next, usual_span, .. } = std::mem::take(self);
        (self.next, self.usual_span) = (next, usual_span);
        all
    }

    /// When something is to be sent again.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A round that is to be sent again now.
    fn pop_due(&mut self, now: Nanos) -> Option<u64> {
        self.next_due().filter(|due| *due <= now)?;
        self.due.pop_first().map(|(_, number)| number)
    }

    /// A round was sent: it is sent again after `span` at first, then less and less often.
    fn note_sent(&mut self, now: Nanos, number: u64, span: Nanos, span_max: Nanos) {
        let Some(round) = self.all.get_mut(&number) else { return };
        round.span = match round.sent_at {
            None => span,
            Some(_) => Nanos(round.span.0 * 2).max(span).min(span_max),
        };
        round.sent_at.get_or_insert(now);
        self.due.remove(&(round.due, number));
        round.due = now.plus(round.span);
        self.due.insert((round.due, number));
    }

    fn note_committed(&mut self, now: Nanos, number: u64) {
        if !self.open.remove(&number) {
            return;
        }
        let Some(round) = self.all.get_mut(&number) else { return };
        round.is_committed = true;
        self.open_bytes -= round.bytes();
        let Some(sent_at) = round.sent_at else { return };
        self.usual_span = Nanos((self.usual_span.0 * 7 + now.since(sent_at).0) / 8);
        // Storage comes to it by itself: it is asked only if its word is lost.
        self.due.remove(&(round.due, number));
        round.due = now.plus(Nanos(round.span.0 * 4));
        self.due.insert((round.due, number));
    }

    fn remove(&mut self, number: u64) -> Option<Round> {
        let round = self.all.remove(&number)?;
        self.due.remove(&(round.due, number));
        let request = request_of(&round.made.identity);
        if self.by_request.get(&request) == Some(&number) {
            self.by_request.remove(&request);
        }
        Some(round)
    }
}

impl<S: State> Hermes<S> {
    fn waits_for_storage(&self) -> bool {
        self.desk.config.stable_when == StableWhen::Stored
    }

    /// The members whose storage is waited for: full ones, and those that have joined but for the promotion.
    fn storages(&self) -> Vec<MemberId> {
        let (me, members) = (self.desk.config.id, self.desk.view().map_or(&[][..], |view| &view.members));
        let counts = |member: &&Member| {
            let is_other = !self.plants(HermesFault::StoredHereOnly);
            let has_state = member.standing == Standing::Full || self.counted.contains(&member.id);
            member.id == me || (has_state && is_other)
        };
        let storages = members.iter().filter(counts).map(|member| member.id);
        storages.filter(|_| self.waits_for_storage()).collect()
    }

    /// G8: from here on this member commits nothing without a joiner that has greeted it, what is under way included.
    /// What it has committed before all full members have installed before: so a state that one of them gives once all
    /// of them count the joiner, together with what the joiner is told since, has all that is committed.
    pub(super) fn count_joiner(&mut self, joiner: MemberId) {
        if self.others.contains(&joiner) || self.plants(HermesFault::JoinerNotCounted) {
            return;
        }
        self.others.push(joiner);
        if self.plants(HermesFault::OpenNotTold) {
            return;
        }
        let Rounds { all, open, unsent, .. } = &mut self.rounds;
        for number in open.iter() {
            all.get_mut(number).into_iter().for_each(|round| round.missing.push(joiner));
            unsent.insert(*number);
        }
    }

    /// G8: from here on nothing is stable without a joiner that has the state.
    pub(super) fn count_storage(&mut self, joiner: MemberId) {
        let is_new = self.counted.insert(joiner) && self.waits_for_storage();
        if is_new && !self.plants(HermesFault::StoredHereOnly) {
            self.rounds.all.values_mut().for_each(|round| round.unstored.push(joiner));
        }
    }

    /// Begins to tell a write that is installed here.
    pub(super) fn begin_round(
        &mut self,
        key: Box<[u8]>,
        version: Version,
        content: Content,
        made: Made,
    ) -> u64 {
        let (missing, unstored) = (self.others.clone(), self.storages());
        let number = self.rounds.next;
        self.rounds.next += 1;
        self.rounds.by_request.insert(request_of(&made.identity), number);
        let round = Round {
            key,
            version,
            content,
            made,
            missing,
            unstored,
            is_committed: false,
            tickets: Vec::new(),
            members: Vec::new(),
            sent_at: None,
            due: Nanos(0),
            span: Nanos(0),
        };
        self.rounds.open_bytes += round.bytes();
        self.rounds.all.insert(number, round);
        self.rounds.open.insert(number);
        self.await_own_storage(number);
        number
    }

    fn await_own_storage(&mut self, number: u64) {
        self.rounds.unsent.insert(number);
        self.ready_rounds.push_back(number);
        self.storing.push_back((self.last_number, self.desk.config.id, number));
    }

    /// In a new view all is told again, and all acknowledgements are gathered anew.
    pub(super) fn restart_rounds(&mut self) {
        let (missing, unstored) = (self.others.clone(), self.storages());
        let keeps = self.plants(HermesFault::AcksKept);
        for round in self.rounds.all.values_mut() {
            if keeps {
                round.missing.retain(|member| missing.contains(member));
            } else {
                round.missing.clone_from(&missing);
            }
            round.unstored.clone_from(&unstored);
            round.is_committed = false;
            round.members.clear();
            round.sent_at = None;
        }
        let numbers: Vec<u64> = self.rounds.all.keys().copied().collect();
        self.rounds.open.extend(numbers.iter().copied());
        self.rounds.due.clear();
        self.rounds.open_bytes = self.rounds.all.values().map(Round::bytes).sum();
        for number in numbers {
            self.await_own_storage(number);
        }
    }

    pub(super) fn done_below(&self) -> u64 {
        self.rounds.open.first().copied().unwrap_or(self.rounds.next)
    }

    // ---- sending

    /// What was overtaken is noted elsewhere only after what overtook it is there: else it could be taken for done
    /// and its successor be lost.
    fn may_send(&self, round: &Round) -> bool {
        let is_late = self.settling.is_done || self.only_notes_are_open();
        round.content != Content::Note || is_late
    }

    fn only_notes_are_open(&self) -> bool {
        self.rounds.open.iter().all(|number| self.rounds.all[number].content == Content::Note)
    }

    /// Sends the rounds that have not been sent.
    pub(super) fn send_rounds(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let unsent: Vec<u64> = self.rounds.unsent.iter().copied().collect();
        for number in unsent {
            if self.rounds.all.get(&number).is_none_or(|round| self.may_send(round)) {
                self.rounds.unsent.remove(&number);
                self.send_round(now, number, effects);
            }
        }
    }

    /// Whether there is room for one more round under way.
    pub(super) fn has_window(&self) -> bool {
        self.rounds.open.is_empty() || self.rounds.open_bytes < self.desk.config.limits.window_bytes_max
    }

    /// How long others may take before something is said to be lost: more than they took of late.
    pub(super) fn patience(&self, min: Nanos) -> Nanos {
        Nanos(min.0 + 2 * self.rounds.usual_span.0).min(self.desk.config.limits.retry_max.max(min))
    }

    fn send_round(&mut self, now: Nanos, number: u64, effects: &mut Effects<ReplicaOwn>) {
        let (done_below, limits) = (self.done_below(), self.desk.config.limits);
        self.rounds.note_sent(now, number, self.patience(limits.retry_min), limits.retry_max);
        let Some(round) = self.rounds.all.get(&number) else { return };
        if round.is_committed {
            let me = self.desk.config.id;
            for to in round.unstored.iter().filter(|to| **to != me) {
                self.desk.tell(*to, PROBE, 8, effects, |out| out.extend_from_slice(&number.to_le_bytes()));
            }
            return;
        }
        let Round { key, version, content, made, .. } = round;
        let telling = Telling { round: number, done_below, key, version: *version, content, made };
        for to in &round.missing {
            self.desk.tell(*to, INVALIDATE, telling.bytes(), effects, |out| telling.write(out));
        }
    }

    /// Sends again what was not acknowledged for a while.
    pub(super) fn resend_rounds(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        while let Some(number) = self.rounds.pop_due(now) {
            self.desk.counters.resent += 1;
            self.send_round(now, number, effects);
        }
    }

    // ---- acknowledgements

    pub(super) fn on_ack(&mut self, from: MemberId, number: u64, is_stored: bool) {
        let Some(round) = self.rounds.all.get_mut(&number) else { return };
        round.missing.retain(|member| *member != from);
        if is_stored {
            round.unstored.retain(|member| *member != from);
        }
        self.ready_rounds.push_back(number);
    }

    /// Storage has gone on: this member's own rounds, and those whose senders wait to hear of it.
    pub(super) fn tell_stored(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let stable = self.state.stable();
        while let Some((_, from, number)) =
            self.storing.front().copied().filter(|(stored, ..)| *stored <= stable)
        {
            self.storing.pop_front();
            if from != self.desk.config.id {
                self.desk.tell(from, ACK, 9, effects, |out| write_ack(number, true, out));
            } else if let Some(round) = self.rounds.all.get_mut(&number) {
                round.unstored.retain(|member| *member != from);
                self.ready_rounds.push_back(number);
            }
        }
    }

    /// Commits a round, or ends it, if it is time.
    pub(super) fn check_round(&mut self, now: Nanos, number: u64, effects: &mut Effects<ReplicaOwn>) {
        let short = usize::from(self.plants(HermesFault::AckShort));
        let Some(round) = self.rounds.all.get(&number) else { return };
        if !round.is_committed && round.missing.len() <= short {
            self.commit_round(now, number, effects);
        }
        if self.rounds.all.get(&number).is_some_and(|round| round.is_committed && round.unstored.is_empty()) {
            self.end_round(now, number, effects);
        }
    }

    fn commit_round(&mut self, now: Nanos, number: u64, effects: &mut Effects<ReplicaOwn>) {
        self.rounds.note_committed(now, number);
        let Some(round) = self.rounds.all.get(&number) else { return };
        let (key, version, request) = (round.key.clone(), round.version, request_of(&round.made.identity));
        self.answer_request(number, &request, effects);
        self.validate(number, &key, version, !self.waits_for_storage(), effects);
        self.key_committed(now, &key, version);
    }

    fn end_round(&mut self, now: Nanos, number: u64, effects: &mut Effects<ReplicaOwn>) {
        let Some(round) = self.rounds.remove(number) else { return };
        for ticket in &round.tickets {
            effects.own(ReplicaOwn::Stable { ticket: *ticket });
        }
        for member in &round.members {
            self.reply_to(*member, &round.made, effects);
        }
        if self.waits_for_storage() {
            self.validate(number, &round.key, round.version, true, effects);
            self.key_stable(now, &round.key, round.version, effects);
        }
        if let Some(unsure) = self.keys.get_mut(&round.key).filter(|unsure| unsure.round == Some(number)) {
            unsure.round = None;
        }
    }

    fn validate(
        &mut self,
        round: u64,
        key: &[u8],
        version: Version,
        is_stable: bool,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let validate = Validate { round, done_below: self.done_below(), key, version, is_stable };
        for to in &self.others {
            self.desk.tell(*to, VALIDATE, key.len() + 31, effects, |out| write_validate(&validate, out));
        }
    }

    pub(super) fn reply_to(&mut self, member: MemberId, made: &Made, effects: &mut Effects<ReplicaOwn>) {
        self.desk.tell(member, REPLY, made.reply.len() + 37, effects, |out| write_made(made, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_wire::Identity;

    const MAX: Nanos = Nanos(50);

    fn rounds(count: u64) -> Rounds {
        let mut rounds = Rounds::default();
        for number in 0..count {
            let identity = Identity { client: [1; 16], number };
            let made = Made { identity, at_ms: 0, is_refused: false, reply: b"OK"[..].into() };
            let round = Round {
                key: b"k"[..].into(),
                version: Version::default(),
                content: Content::Value(b"value"[..].into()),
                made,
                missing: vec![MemberId(2)],
                unstored: Vec::new(),
                is_committed: false,
                tickets: Vec::new(),
                members: Vec::new(),
                sent_at: None,
                due: Nanos(0),
                span: Nanos(0),
            };
            rounds.open_bytes += round.bytes();
            rounds.all.insert(number, round);
            rounds.open.insert(number);
        }
        rounds
    }

    #[test]
    fn a_round_is_sent_again_less_and_less_often_whatever_others_do() {
        let mut rounds = rounds(2);
        (0..2).for_each(|number| rounds.note_sent(Nanos(0), number, Nanos(10), MAX));
        rounds.note_committed(Nanos(8), 1);
        assert_eq!(rounds.next_due(), Some(Nanos(10)), "that one went on puts off no other");
        let mut sent = Vec::new();
        for now in 0..200 {
            while let Some(number) = rounds.pop_due(Nanos(now)) {
                rounds.note_sent(Nanos(now), number, Nanos(10), MAX);
                sent.push((number, now));
            }
            if now == 48 {
                assert!(rounds.remove(1).is_some());
            }
        }
        assert_eq!(sent, [(0, 10), (0, 30), (1, 48), (0, 70), (0, 120), (0, 170)]);
    }

    #[test]
    fn what_is_committed_is_not_under_way() {
        let mut rounds = rounds(2);
        assert_eq!(rounds.open_bytes, 2 * (1 + 2 + 5));
        rounds.note_sent(Nanos(0), 0, Nanos(10), MAX);
        rounds.note_committed(Nanos(16), 0);
        rounds.note_committed(Nanos(99), 0);
        assert_eq!((rounds.open_bytes, rounds.usual_span), (8, Nanos(2)));
        rounds.remove(0);
        rounds.note_committed(Nanos(16), 1);
        assert_eq!((rounds.open_bytes, rounds.next_due()), (0, None));
    }
}
