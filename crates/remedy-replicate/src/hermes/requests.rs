//! Writes of clients, from the member that got them to the one that coordinates them, and their answers back.
//!
//! Invariant: in one view one member coordinates a request, and it begins only when all members of the view have
//! told what they had from before: so what was executed anywhere is known to it (G6).

use crate::fault::HermesFault;
use crate::hermes::message::{write_forward, write_refused, Content, Made, FORWARD, REFUSED};
use crate::hermes::place::Place;
use crate::hermes::reads::Queued;
use crate::hermes::{Hermes, Request};
use crate::replica::{Decline, ReplicaOwn, StableWhen, Write};
use crate::view::MemberId;
use scotfree_core::{Effects, Fnv1a, Nanos, SeqNum, SessionId};
use scotfree_state::{request_of, Known, State, Touches, Version};
use scotfree_wire::Identity;

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// The view is too new.
    Held,
    /// Its key is not valid.
    Queued,
    /// It is on its way to all members.
    InRound,
    /// Another member coordinates it.
    Forwarded,
}

/// A write that has no answer yet.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Waiting {
    pub identity: Identity,
    pub op: Box<[u8]>,
    /// The key that it touches, and whether it sets that whatever it holds.
    pub key: Box<[u8]>,
    pub is_blind: bool,
    pub session: Option<(SessionId, SeqNum)>,
    pub tickets: Vec<u64>,
    /// Members whose clients wait.
    pub members: Vec<MemberId>,
    pub stage: Stage,
    /// When it was forwarded last.
    told_at: Nanos,
}

impl<S: State> Hermes<S> {
    pub(super) fn begin_write(&mut self, now: Nanos, write: &Write<'_>, effects: &mut Effects<ReplicaOwn>) {
        self.desk.counters.writes += 1;
        let facts = self.state.facts(write.op);
        let key = match facts.touches {
            Touches::Nothing => return self.answer_read(write.ticket, None, write.op, effects),
            Touches::Several => return self.desk.decline(write.ticket, Decline::SeveralKeys, effects),
            Touches::One(key) => key,
        };
        if let Err(why) = self.may_serve(now) {
            return self.desk.decline(write.ticket, why, effects);
        }
        match self.wait_for(&write.identity, write.op, key, facts.is_blind) {
            Some(waiting) => {
                waiting.tickets.push(write.ticket);
                waiting.session = write.session.or(waiting.session);
            }
            None => self.desk.decline(write.ticket, Decline::Busy, effects),
        }
    }

    /// The entry of a request that waits; a new one if there is room.
    fn wait_for(
        &mut self,
        identity: &Identity,
        op: &[u8],
        key: Vec<u8>,
        is_blind: bool,
    ) -> Option<&mut Waiting> {
        let request = request_of(identity);
        let is_new = !self.requests.contains_key(&request);
        if is_new {
            if self.requests.len() >= self.desk.config.limits.writes_max || !self.state.has_room() {
                return None;
            }
            let waiting = Waiting {
                identity: *identity,
                op: op.into(),
                key: key.into(),
                is_blind,
                session: None,
                tickets: Vec::new(),
                members: Vec::new(),
                stage: Stage::Held,
                told_at: Nanos(0),
            };
            self.requests.insert(request, waiting);
            self.held.push_back(request);
        } else {
            self.desk.counters.writes_known += 1;
        }
        self.requests.get_mut(&request)
    }

    pub(super) fn on_forward(&mut self, from: MemberId, identity: &Identity, op: &[u8]) {
        if !self.desk.is_full() || !self.has_state() {
            return;
        }
        let facts = self.state.facts(op);
        let Touches::One(key) = facts.touches else { return };
        match self.wait_for(identity, op, key, facts.is_blind) {
            Some(waiting) if waiting.members.contains(&from) => {}
            Some(waiting) => waiting.members.push(from),
            // It may be executed already, from an earlier telling. It comes again when there is room.
            None => {}
        }
    }

    // ---- who coordinates

    /// Blind writes are coordinated by the member that got them first, if it is full, else by the next; those that
    /// read their key by one member for each key, so that no two stand behind the same version.
    fn coordinator(&self, waiting: &Waiting) -> MemberId {
        let me = self.desk.config.id;
        if self.plants(HermesFault::AnyoneCoordinates) {
            return me;
        }
        let place = if waiting.is_blind {
            let home = MemberId((waiting.identity.number >> 56) as u8);
            self.full.iter().position(|id| *id >= home).unwrap_or(0)
        } else {
            (Fnv1a::EMPTY.and(&waiting.key).value() % self.full.len().max(1) as u64) as usize
        };
        self.full.get(place).copied().unwrap_or(me)
    }

    /// Goes on with a request that was held.
    pub(super) fn route(&mut self, now: Nanos, request: &Request, effects: &mut Effects<ReplicaOwn>) {
        let Some(waiting) = self.requests.get(request).filter(|waiting| waiting.stage == Stage::Held) else {
            return;
        };
        let identity = waiting.identity;
        let to = self.coordinator(waiting);
        if to != self.desk.config.id {
            self.set_stage(request, Stage::Forwarded);
            self.forwarding.start(now, self.desk.config.limits.retry_min);
            return self.forward(now, to, request, effects);
        }
        if let Some(number) = self.rounds.by_request.get(request).copied() {
            self.desk.counters.writes_known += 1;
            self.set_stage(request, Stage::InRound);
            if self.rounds.all.get(&number).is_some_and(|round| round.is_committed) {
                self.answer_request(number, request, effects);
            }
            return;
        }
        let at_ms = self.desk.real_ms(now);
        let known = self.state.results().look(&identity, at_ms);
        match known {
            _ if self.plants(HermesFault::IdentityForgotten) => self.execute(now, request, effects),
            Known::New => self.execute(now, request, effects),
            Known::Answered(reply) => {
                let made = Made { identity, at_ms, is_refused: false, reply: reply.into() };
                self.answer_known(request, made, effects);
            }
            Known::Forgotten => self.refuse(request, Decline::Forgotten, effects),
            Known::NoRoom => self.refuse(request, Decline::NoRoom, effects),
        }
    }

    fn set_stage(&mut self, request: &Request, stage: Stage) {
        if let Some(waiting) = self.requests.get_mut(request) {
            waiting.stage = stage;
        }
    }

    /// All members have it in memory. That all storages have it is asked for in a round of its own.
    fn answer_known(&mut self, request: &Request, made: Made, effects: &mut Effects<ReplicaOwn>) {
        self.desk.counters.writes_known += 1;
        let Some(waiting) = self.requests.get_mut(request) else { return };
        if self.desk.config.stable_when == StableWhen::Stored {
            waiting.stage = Stage::InRound;
            let key = waiting.key.clone();
            self.begin_round(key, Version::default(), Content::Note, made);
            return;
        }
        self.give_answer(request, &made, effects);
    }

    /// Whoever waits for a request gets its answer, which is stable.
    fn give_answer(&mut self, request: &Request, made: &Made, effects: &mut Effects<ReplicaOwn>) {
        let Some(waiting) = self.requests.remove(request) else { return };
        answer(&waiting.tickets, made, effects);
        for ticket in &waiting.tickets {
            effects.own(ReplicaOwn::Stable { ticket: *ticket });
        }
        for member in &waiting.members {
            self.reply_to(*member, made, effects);
        }
    }

    /// A round is committed: whoever waits for its request here has the answer, and waits for it to be stable.
    pub(super) fn answer_request(
        &mut self,
        number: u64,
        request: &Request,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        if !self.requests.get(request).is_some_and(|waiting| waiting.stage == Stage::InRound) {
            return;
        }
        let Some(waiting) = self.requests.remove(request) else { return };
        let Some(round) = self.rounds.all.get_mut(&number) else { return };
        round.tickets.extend(&waiting.tickets);
        round.members.extend(&waiting.members);
        answer(&waiting.tickets, &round.made, effects);
    }

    fn refuse(&mut self, request: &Request, why: Decline, effects: &mut Effects<ReplicaOwn>) {
        let Some(waiting) = self.requests.remove(request) else { return };
        for ticket in &waiting.tickets {
            self.desk.decline(*ticket, why, effects);
        }
        for member in waiting.members {
            self.tell_refused(member, &waiting.identity, why, effects);
        }
    }

    fn tell_refused(
        &mut self,
        to: MemberId,
        identity: &Identity,
        why: Decline,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        self.desk.tell(to, REFUSED, 25, effects, |out| write_refused(identity, why, out));
    }

    // ---- execution

    /// Executes a write of a valid key and begins to tell it; of another key later.
    pub(super) fn execute(&mut self, now: Nanos, request: &Request, effects: &mut Effects<ReplicaOwn>) {
        let Some(waiting) = self.requests.get(request) else { return };
        let (key, is_blind) = (waiting.key.clone(), waiting.is_blind);
        if !self.is_valid(&key) {
            self.set_stage(request, Stage::Queued);
            return self.wait_for_key(now, &key, Queued::Write(*request));
        }
        let Some(place) = self.place_behind(&key, is_blind) else {
            return self.refuse(request, Decline::Contended, effects);
        };
        let (mut reply, mut value) = (Vec::new(), Vec::new());
        let (is_there, is_refused) = self.state.try_write(&waiting.op, &mut reply, &mut value);
        let content = if is_there { Content::Value(value.into()) } else { Content::Gone };
        let at_ms = self.desk.real_ms(now);
        let made = Made { identity: waiting.identity, at_ms, is_refused, reply: reply.into() };
        if is_refused && !self.plants(HermesFault::RefusedTold) {
            return self.note_refused(request, key, made, effects);
        }
        let version = place.version();
        self.set_stage(request, Stage::InRound);
        self.install(&key, version, &content, &made);
        let round = self.begin_round(key.clone(), version, content, made.clone());
        self.mark_unsure(now, &key, version, made, (self.desk.config.id, round), Some(round));
    }

    /// G6, G12: a refused write changes nothing, so it takes no place among the writes of its key: with what the key
    /// holds it could stand before one that it has not seen. But all must know its answer before its client does,
    /// or it could be executed if it came again. As all members of the view have to say so in this view, nothing was
    /// written in a later one before, and it needs no lease.
    fn note_refused(
        &mut self,
        request: &Request,
        key: Box<[u8]>,
        made: Made,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        if self.plants(HermesFault::RefusedForgotten) {
            return self.give_answer(request, &made, effects);
        }
        self.set_stage(request, Stage::InRound);
        self.install(&key, Version::default(), &Content::Note, &made);
        self.begin_round(key, Version::default(), Content::Note, made);
    }

    fn place_behind(&self, key: &[u8], is_blind: bool) -> Option<Place> {
        let here = Place::of(self.state.version(key));
        if is_blind || self.plants(HermesFault::StepTooFar) {
            here.next(self.desk.config.id)
        } else {
            here.step()
        }
    }

    // ---- forwarding

    fn forward(&mut self, now: Nanos, to: MemberId, request: &Request, effects: &mut Effects<ReplicaOwn>) {
        let Some(waiting) = self.requests.get_mut(request) else { return };
        waiting.told_at = now;
        self.desk.tell(to, FORWARD, waiting.op.len() + 28, effects, |out| {
            write_forward(&waiting.identity, &waiting.op, out);
        });
    }

    /// Sends again what has no answer.
    pub(super) fn forward_again(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        if !self.forwarding.is_due(now, self.desk.config.limits.retry_max) {
            return;
        }
        let is_forwarded = |(_, waiting): &(&Request, &Waiting)| waiting.stage == Stage::Forwarded;
        if !self.requests.iter().any(|entry| is_forwarded(&entry)) {
            return self.forwarding.stop();
        }
        let patience = self.patience(self.desk.config.limits.retry_min);
        let is_late =
            |entry: &(&Request, &Waiting)| is_forwarded(entry) && entry.1.told_at.plus(patience) <= now;
        let late: Vec<Request> = self.requests.iter().filter(is_late).map(|(request, _)| *request).collect();
        self.desk.counters.resent += late.len() as u64;
        for request in late {
            let Some(to) = self.requests.get(&request).map(|waiting| self.coordinator(waiting)) else {
                continue;
            };
            self.forward(now, to, &request, effects);
        }
    }

    fn take_forwarded(&mut self, identity: &Identity) -> Option<Waiting> {
        let request = request_of(identity);
        let is_forwarded =
            self.requests.get(&request).is_some_and(|waiting| waiting.stage == Stage::Forwarded);
        if is_forwarded {
            self.requests.remove(&request)
        } else {
            None
        }
    }

    /// The coordinator answers when the write is stable.
    pub(super) fn on_reply(&mut self, made: &Made, effects: &mut Effects<ReplicaOwn>) {
        let Some(waiting) = self.take_forwarded(&made.identity) else { return };
        answer(&waiting.tickets, made, effects);
        for ticket in &waiting.tickets {
            effects.own(ReplicaOwn::Stable { ticket: *ticket });
        }
    }

    pub(super) fn on_refused(
        &mut self,
        identity: &Identity,
        why: Decline,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let Some(waiting) = self.take_forwarded(identity) else { return };
        for ticket in &waiting.tickets {
            self.desk.decline(*ticket, why, effects);
        }
    }

    // ---- views

    /// In a new view requests go another way; members ask again for their clients.
    pub(super) fn hold_requests(&mut self) {
        self.unqueue_writes();
        self.held.clear();
        for waiting in self.requests.values_mut() {
            waiting.members.clear();
            if waiting.stage != Stage::InRound {
                waiting.stage = Stage::Held;
            }
        }
        self.requests.retain(|_, waiting| waiting.stage == Stage::InRound || !waiting.tickets.is_empty());
        let held = self.requests.iter().filter(|(_, waiting)| waiting.stage == Stage::Held);
        self.held.extend(held.map(|(request, _)| *request));
        self.forwarding.stop();
    }
}

fn answer(tickets: &[u64], made: &Made, effects: &mut Effects<ReplicaOwn>) {
    let reply = effects.append(|out| out.extend_from_slice(&made.reply));
    for ticket in tickets {
        effects.own(ReplicaOwn::Answer { ticket: *ticket, reply, is_refused: made.is_refused });
    }
}
