//! Hermes as one machine: any member coordinates a write, tells all others of it with its value, and commits it when
//! all have it; every member answers reads of keys that are valid at it.
//!
//! A write that reads its key first stands directly behind the version that it has read (see `place`), and one member
//! coordinates those of a key; so none is ever given up because another write came between. When the view changes,
//! each member first tells anew all that may not be with all members; only then new writes begin. So what a
//! lost member had begun is either known to all that are left, or to none.
//!
//! Invariant: a key is valid at a member only if all members of the view have its version or a later one; a write is
//! answered when all members of the view have it.

mod confirm;
mod join;
mod keys;
mod message;
mod place;
mod reads;
mod requests;
mod rounds;
#[cfg(test)]
mod tests;

use crate::datagram::{read_number, Reader, Refusal};
use crate::desk::{Desk, Retry};
use crate::fault::{Fault, HermesFault};
use crate::hermes::join::Joining;
use crate::hermes::keys::{Overtaken, Unsure};
use crate::hermes::message::{
    read_ack, read_claim, read_forward, read_invalidate, read_refused, read_reply, read_validate, write_ack,
    Content, Source, ACK, CLAIM, CONFIRMED, COUNTED, FORWARD, GREETING, HEARD, INVALIDATE, JOINED, POLL,
    PROBE, READY, REFUSED, REPLY, SETTLED, VALIDATE,
};
use crate::hermes::reads::Queued;
use crate::hermes::requests::Waiting;
use crate::hermes::rounds::Rounds;
use crate::replica::{Decline, MemberConfig, Replica, ReplicaCounters, ReplicaOwn, Write};
use crate::transfer::{read_piece, read_want, Giving, PIECE, WANT};
use crate::view::{Member, MemberId, Standing, View};
use scotfree_core::{Effects, Nanos};
use scotfree_state::{State, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// A request, wherever it was sent first: see [`scotfree_state::request_of`].
pub(crate) type Request = ([u8; 16], u64);

/// What members tell each other at the beginning of a view.
#[derive(Debug, Clone, Hash, Default)]
struct Settling {
    /// All that this member had from before is with all.
    is_done: bool,
    /// The others that have said so.
    others: BTreeSet<MemberId>,
    retry: Retry,
}

/// A member of a Hermes group.
#[derive(Clone)]
pub struct Hermes<S> {
    desk: Desk,
    state: S,
    /// Keys that are not plainly valid.
    keys: BTreeMap<Box<[u8]>, Unsure>,
    /// When to look whether a key is still not valid.
    stuck: BTreeSet<(Nanos, Box<[u8]>)>,
    /// Writes that were overtaken here before it was known that all members have them.
    overtaken: BTreeMap<Source, Overtaken>,
    rounds: Rounds,
    requests: BTreeMap<Request, Waiting>,
    /// Requests that wait until the view is settled, in their order.
    held: VecDeque<Request>,
    /// What waits for a key to be valid.
    queues: BTreeMap<Box<[u8]>, VecDeque<Queued>>,
    queued_reads: usize,
    /// Reads that were answered, and the version that they show.
    unstable_reads: BTreeMap<Box<[u8]>, Vec<(Version, u64)>>,
    forwarding: Retry,
    settling: Settling,
    /// What storage is to have before it is told: the state's number, to whom, and the round.
    storing: VecDeque<(u64, MemberId, u64)>,
    /// The state's number of the last write that it was given.
    last_number: u64,
    ready_rounds: VecDeque<u64>,
    ready_keys: VecDeque<Box<[u8]>>,
    joining: Option<Joining>,
    /// The members that a write is told: the other full ones, and the joiners that have greeted this one.
    others: Vec<MemberId>,
    /// The full members by their numbers.
    full: Vec<MemberId>,
    /// What is here is the group's: it was taken from one whose is, or agreed on (see `confirm`).
    is_confirmed: bool,
    /// Joiners whose storage is waited for.
    counted: BTreeSet<MemberId>,
    /// To whom which state is being given.
    giving: BTreeMap<MemberId, Giving>,
    lineage: Option<u64>,
    /// The write from which on a state that was taken is stored.
    taken_at: Option<u64>,
}

/// All that what it will do depends on, but times: of keys that are looked at again, their order.
impl<S: Hash> Hash for Hermes<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.desk, &self.state, &self.keys, &self.overtaken, &self.rounds).hash(state);
        self.stuck.iter().for_each(|(_, key)| key.hash(state));
        (&self.requests, &self.held, &self.queues, self.queued_reads, &self.unstable_reads).hash(state);
        (self.forwarding, &self.settling, &self.storing, self.last_number).hash(state);
        (&self.ready_rounds, &self.ready_keys, &self.joining, &self.counted, &self.giving).hash(state);
        (&self.others, self.lineage, self.taken_at, self.is_confirmed).hash(state);
    }
}

impl<S: State> Hermes<S> {
    /// A member that has what its state's storage held, and belongs to no view yet.
    pub fn new(config: MemberConfig, state: S) -> Hermes<S> {
        Hermes {
            lineage: config.lineage,
            desk: Desk::new(config),
            state,
            keys: BTreeMap::new(),
            stuck: BTreeSet::new(),
            overtaken: BTreeMap::new(),
            rounds: Rounds::default(),
            requests: BTreeMap::new(),
            held: VecDeque::new(),
            queues: BTreeMap::new(),
            queued_reads: 0,
            unstable_reads: BTreeMap::new(),
            forwarding: Retry::default(),
            settling: Settling::default(),
            storing: VecDeque::new(),
            last_number: 0,
            ready_rounds: VecDeque::new(),
            ready_keys: VecDeque::new(),
            joining: None,
            others: Vec::new(),
            full: Vec::new(),
            is_confirmed: false,
            counted: BTreeSet::new(),
            giving: BTreeMap::new(),
            taken_at: None,
        }
    }

    /// How many keys are not plainly valid here.
    pub fn unsure_count(&self) -> usize {
        self.keys.len()
    }

    fn plants(&self, fault: HermesFault) -> bool {
        self.desk.plants(Fault::Hermes(fault))
    }

    // ---- views

    fn take_place(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.storing.clear();
        self.giving.clear();
        self.counted.clear();
        self.settling = Settling::default();
        self.note_members();
        match self.desk.myself().map(|member| member.standing) {
            None => {
                self.forget_all(effects);
                self.is_confirmed = false;
            }
            // What it had from before may be of nobody's any more: it takes the whole state.
            Some(Standing::Joining) => {
                self.forget_all(effects);
                self.begin_to_join(now);
            }
            Some(Standing::Full) if self.must_confirm() => {
                self.forget_all(effects);
                self.begin_to_confirm(now);
            }
            Some(Standing::Full) => self.begin_to_settle(),
        }
        if self.desk.is_full() {
            self.settling.retry.restart(now, Nanos(0));
        }
    }

    fn note_members(&mut self) {
        let me = self.desk.config.id;
        let members = self.desk.view().map_or(&[][..], |view| &view.members);
        let full = |member: &&Member| member.standing == Standing::Full;
        let counts = |member: &&Member| full(member) || self.plants(HermesFault::CountedUnheard);
        self.others = members.iter().filter(counts).map(|member| member.id).filter(|id| *id != me).collect();
        self.full = members.iter().filter(full).map(|member| member.id).collect();
        self.full.sort_unstable();
    }

    fn forget_all(&mut self, effects: &mut Effects<ReplicaOwn>) {
        self.keys.clear();
        self.stuck.clear();
        self.overtaken.clear();
        self.ready_rounds.clear();
        self.held.clear();
        self.forwarding.stop();
        self.joining = None;
        let rounds = self.rounds.take();
        let reads = std::mem::take(&mut self.unstable_reads).into_values().flatten();
        let answered = rounds.into_values().flat_map(|round| round.tickets);
        for ticket in answered.chain(reads.map(|(_, ticket)| ticket)) {
            effects.own(ReplicaOwn::Lost { ticket });
        }
        self.decline_all(effects);
    }

    fn decline_all(&mut self, effects: &mut Effects<ReplicaOwn>) {
        self.queued_reads = 0;
        let queued = std::mem::take(&mut self.queues).into_values().flatten();
        let reads = queued.filter_map(|queued| match queued {
            Queued::Read { ticket, .. } => Some(ticket),
            Queued::Write(_) => None,
        });
        let requests = std::mem::take(&mut self.requests).into_values();
        let tickets: Vec<u64> = reads.chain(requests.flat_map(|waiting| waiting.tickets)).collect();
        for ticket in tickets {
            self.desk.decline(ticket, Decline::NoView, effects);
        }
    }

    /// A full member tells anew all that may not be with all, and holds what is new.
    fn begin_to_settle(&mut self) {
        // It has joined, or what it has is the group's.
        (self.joining, self.is_confirmed) = (None, true);
        self.lineage = self.desk.view().map(|view| view.founded);
        let forgets = self.plants(HermesFault::OvertakenForgotten);
        self.restart_rounds();
        let unsure: Vec<Box<[u8]>> = self
            .keys
            .iter()
            .filter(|(_, unsure)| unsure.round.is_none())
            .map(|(key, _)| key.clone())
            .collect();
        for key in &unsure {
            self.replay(key);
        }
        let overtaken = std::mem::take(&mut self.overtaken).into_values();
        for Overtaken { key, made } in overtaken.filter(|_| !forgets) {
            self.begin_round(key, Version::default(), Content::Note, made);
        }
        self.hold_requests();
    }

    /// Whether all members have told what they had from before this view.
    fn is_settled(&self) -> bool {
        let is_done = self.settling.is_done && self.unheard().is_empty();
        is_done || self.plants(HermesFault::NotSettled)
    }

    /// The other full members that have not said so. Joiners have nothing from before.
    fn unheard(&self) -> Vec<MemberId> {
        let is_unheard = |id: &MemberId| *id != self.desk.config.id && !self.settling.others.contains(id);
        self.full.iter().copied().filter(is_unheard).collect()
    }

    fn look_whether_done(&mut self, effects: &mut Effects<ReplicaOwn>) {
        if self.settling.is_done || !self.desk.is_full() || !self.rounds.open.is_empty() {
            return;
        }
        self.settling.is_done = true;
        for to in &self.others {
            self.desk.tell(*to, SETTLED, 0, effects, |_| {});
        }
    }

    fn poll_others(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        if !self.settling.retry.is_due(now, self.desk.config.limits.retry_max) {
            return;
        }
        let unheard = self.unheard();
        if unheard.is_empty() {
            self.settling.retry.stop();
        }
        for to in unheard {
            self.desk.tell(to, POLL, 0, effects, |_| {});
        }
    }

    // ---- messages

    fn take(
        &mut self,
        now: Nanos,
        from: MemberId,
        tag: u8,
        body: Reader<'_>,
        effects: &mut Effects<ReplicaOwn>,
    ) -> Result<(), Refusal> {
        match tag {
            INVALIDATE => self.on_invalidate(now, from, read_invalidate(body)?, effects),
            ACK => {
                let (round, is_stored) = read_ack(body)?;
                self.on_ack(from, round, is_stored);
            }
            VALIDATE => self.on_validate(now, from, &read_validate(body)?, effects),
            PROBE => self.on_probe(from, read_number(body)?, effects),
            POLL if self.settling.is_done => self.desk.tell(from, SETTLED, 0, effects, |_| {}),
            POLL => {}
            SETTLED => drop(self.settling.others.insert(from)),
            FORWARD => {
                let (identity, op) = read_forward(body)?;
                self.on_forward(from, &identity, op);
            }
            REPLY => self.on_reply(&read_reply(body)?, effects),
            REFUSED => {
                let (identity, why) = read_refused(body)?;
                self.on_refused(&identity, why, effects);
            }
            CLAIM => self.on_claim(from, read_claim(body)?, effects),
            CONFIRMED => self.on_confirmed(now, from, effects),
            GREETING => self.on_greeting(from, effects),
            HEARD => self.on_heard(now, from, effects),
            READY => self.on_ready(from, effects),
            JOINED => self.on_joined(from, effects),
            COUNTED => self.on_counted(now, from, effects),
            WANT => self.on_want(from, read_want(body)?, effects),
            PIECE => self.on_piece(now, from, &read_piece(body)?, effects),
            _ => return Err(Refusal::Damaged),
        }
        Ok(())
    }

    /// Is a write that this member has acknowledged in its storage?
    fn on_probe(&mut self, from: MemberId, round: u64, effects: &mut Effects<ReplicaOwn>) {
        if !self.has_state() {
            return;
        }
        if self.state.stable() >= self.last_number {
            self.desk.tell(from, ACK, 9, effects, |out| write_ack(round, true, out));
        } else {
            self.storing.push_back((self.last_number, from, round));
        }
    }

    /// Goes on with whatever can go on.
    fn go_on(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        loop {
            if let Some(number) = self.ready_rounds.pop_front() {
                self.check_round(now, number, effects);
            } else if let Some(key) = self.ready_keys.pop_front() {
                self.drain(now, &key, effects);
            } else {
                self.look_whether_done(effects);
                if self.held.is_empty() || !self.is_settled() || !self.has_window() {
                    return;
                }
                let Some(request) = self.held.pop_front() else { return };
                self.route(now, &request, effects);
            }
        }
    }
}

impl<S: State> Replica for Hermes<S> {
    type State = S;

    fn state(&self) -> &S {
        &self.state
    }

    fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    fn read(&mut self, now: Nanos, ticket: u64, op: &[u8], effects: &mut Effects<ReplicaOwn>) {
        self.begin_read(now, ticket, op, effects);
    }

    fn write(&mut self, now: Nanos, write: &Write<'_>, effects: &mut Effects<ReplicaOwn>) {
        self.begin_write(now, write, effects);
        self.go_on(now, effects);
    }

    fn on_message(&mut self, now: Nanos, message: &[u8], effects: &mut Effects<ReplicaOwn>) {
        let Some((from, messages)) = self.desk.open(message) else { return };
        for message in messages {
            let taken = message.and_then(|(tag, body)| self.take(now, from, tag, body, effects));
            if taken.is_err() {
                self.desk.damaged();
                break;
            }
        }
        self.go_on(now, effects);
    }

    fn greet(&mut self, address: SocketAddr) {
        self.desk.greet(address);
    }

    fn on_view(&mut self, now: Nanos, view: &View, effects: &mut Effects<ReplicaOwn>) {
        if !self.desk.take_view(view) {
            return;
        }
        self.take_place(now, effects);
        self.tell_stored(effects);
        self.go_on(now, effects);
    }

    fn on_lease(&mut self, until: Nanos) {
        self.desk.set_lease(until);
    }

    fn on_stored(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let stable = self.state.stable();
        if self.joining.is_none() {
            self.taken_at = self.taken_at.filter(|taken_at| *taken_at > stable);
        }
        self.tell_stored(effects);
        self.go_on(now, effects);
    }

    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.resend_rounds(now, effects);
        self.replay_stuck(now);
        self.forward_again(now, effects);
        self.poll_others(now, effects);
        self.go_on_joining(now, effects);
        self.go_on(now, effects);
    }

    fn next_timer(&self) -> Option<Nanos> {
        let joining = self.joining.as_ref().and_then(|joining| joining.retry.at());
        let stuck = self.stuck.first().map(|(due, _)| *due);
        let timers = [self.rounds.next_due(), self.forwarding.at(), self.settling.retry.at(), joining, stuck];
        timers.into_iter().flatten().min()
    }

    fn flush(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.tell_stored(effects);
        self.go_on(now, effects);
        self.send_rounds(now, effects);
        self.desk.flush(effects);
    }

    fn counters(&self) -> &ReplicaCounters {
        &self.desk.counters
    }

    fn epoch(&self) -> u64 {
        self.desk.epoch()
    }

    fn lineage(&self) -> Option<u64> {
        // A state that was taken is the one in storage only when it lies there.
        let is_stored = self.taken_at.is_none_or(|number| number <= self.state.stable());
        self.lineage.filter(|_| is_stored)
    }

    fn is_serving(&self, now: Nanos) -> Result<(), Decline> {
        self.may_serve(now)
    }
}
