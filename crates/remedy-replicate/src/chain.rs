//! Chain replication, and CRAQ, as one machine: the head orders writes, each member passes them to the next, the
//! tail's having one commits it, and what is committed is applied everywhere in the order of the head.
//!
//! In a chain the tail answers reads; in CRAQ every member does, and asks the tail how far it is if a write of the
//! key is on its way. A member keeps no second version of a key: what is not committed lies in its log, not in its
//! state.
//!
//! Invariant: a member's log is a beginning of the log of the member before it; what is applied at one member is or
//! will be applied at the same place at all.

mod join;
mod links;
pub(crate) mod log;
mod message;
mod reads;
mod submits;
#[cfg(test)]
mod tests;

use crate::chain::links::Successor;
use crate::chain::log::{Entry, Log};
use crate::chain::message::{
    read_entry, read_forward_head, read_pair, read_progress, read_refused, ForwardHead, Progress, Submitted,
    COMMITTED, FORWARD, PROGRESS, QUERY, QUERY_ANSWER, READ, READ_ANSWER, REFUSED, SUBMIT,
};
use crate::chain::reads::Reads;
use crate::chain::submits::Submits;
use crate::datagram::{read_number, Reader, Refusal};
use crate::desk::{Desk, Retry};
use crate::fault::Fault;
use crate::replica::{Decline, MemberConfig, Replica, ReplicaCounters, ReplicaOwn, StableWhen, Write};
use crate::transfer::{read_piece, read_want, Giving, Taking, PIECE, WANT};
use crate::view::{Member, MemberId, Standing, View};
use scotfree_core::{Effects, Nanos};
use scotfree_state::{Known, Mark, Placed, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Who answers reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadsAt {
    /// The tail: chain replication.
    Tail,
    /// Every member: CRAQ.
    Anyone,
}

/// A member of a chain.
#[derive(Clone, Hash)]
pub struct Chain<S> {
    desk: Desk,
    state: S,
    reads_at: ReadsAt,
    log: Log,
    /// The last write of which it is known that every full member has it, though it may not be here yet.
    known_committed: u64,
    committed: u64,
    /// A member of this view that is nearer to the head has spoken, or there is none: what it has said is from
    /// nobody who still believes in an earlier view.
    is_introduced: bool,
    predecessor: Option<MemberId>,
    successor: Option<Successor>,
    /// The member whose place is the tail's, if any full member is.
    tail: Option<MemberId>,
    head: Option<MemberId>,
    /// The last write that storage here has, as [`State::stable`] counts them, and as the log does.
    storing: VecDeque<(u64, u64)>,
    stored: u64,
    stable_all: u64,
    /// What was told last to the member before, and to the next.
    told_progress: Option<Progress>,
    told_forward: Option<ForwardHead>,
    hello: Retry,
    settling: Retry,
    submits: Submits,
    reads: Reads,
    /// What was answered and shows a write that is not stable.
    unstable: BTreeSet<(u64, u64)>,
    /// Members to be told that what they have submitted is committed.
    to_tell: BTreeSet<MemberId>,
    giving: Option<Giving>,
    taking: Option<Taking>,
    wanting: Retry,
    /// The history of the group that the log here is a beginning of.
    lineage: Option<u64>,
    /// The write from which on a state that was taken is stored.
    taken_at: Option<u64>,
    reply: Vec<u8>,
}

impl<S: State> Chain<S> {
    /// A member that has what its state's storage held, and belongs to no view yet.
    pub fn new(config: MemberConfig, reads_at: ReadsAt, state: S) -> Chain<S> {
        let applied = state.mark().0;
        let lineage = config.lineage;
        Chain {
            desk: Desk::new(config),
            reads_at,
            log: Log::behind(applied),
            known_committed: applied,
            committed: applied,
            is_introduced: false,
            predecessor: None,
            successor: None,
            tail: None,
            head: None,
            storing: VecDeque::new(),
            stored: applied,
            stable_all: 0,
            told_progress: None,
            told_forward: None,
            hello: Retry::default(),
            settling: Retry::default(),
            submits: Submits::default(),
            reads: Reads::default(),
            unstable: BTreeSet::new(),
            to_tell: BTreeSet::new(),
            giving: None,
            taking: None,
            wanting: Retry::default(),
            lineage,
            taken_at: None,
            reply: Vec::new(),
            state,
        }
    }

    /// The last write that is applied here.
    pub fn applied(&self) -> u64 {
        self.log.applied()
    }

    /// The last write that this member has, with all before it.
    pub fn received(&self) -> u64 {
        self.log.last()
    }

    fn is_head(&self) -> bool {
        self.head == Some(self.desk.config.id)
    }

    fn is_tail(&self) -> bool {
        self.tail == Some(self.desk.config.id)
    }

    // ---- order

    /// G9: the head gives a write its place, unless its request has one or had its answer (G6).
    fn order(&mut self, now: Nanos, origin: MemberId, submitted: &Submitted<'_>) -> Result<(), Decline> {
        if self.place_of(submitted).is_some() {
            return Ok(());
        }
        let at_ms = self.desk.real_ms(now);
        let known = self.state.results().look(&submitted.identity, at_ms);
        match known {
            _ if self.desk.plants(Fault::IdentityForgotten) => {}
            Known::New => {}
            Known::Answered(_) => return Ok(()),
            Known::Forgotten => return Err(Decline::Forgotten),
            Known::NoRoom => return Err(Decline::NoRoom),
        }
        let touches = self.state.facts(submitted.op).touches;
        self.log.push(Entry {
            identity: submitted.identity,
            at_ms,
            origin,
            op: submitted.op.into(),
            touches,
        });
        Ok(())
    }

    fn place_of(&self, submitted: &Submitted<'_>) -> Option<u64> {
        self.log.place_of(&submitted.identity).filter(|_| !self.desk.plants(Fault::OrderedNotSearched))
    }

    /// The writes that every full member has.
    fn commit(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let all_have = if self.desk.myself().is_none() {
            self.committed
        } else if self.is_tail() && self.successor.as_ref().is_none_or(|next| !next.is_counted) {
            let may_commit = self.is_introduced || self.desk.plants(Fault::TailNotIntroduced);
            if may_commit {
                self.log.last()
            } else {
                self.committed
            }
        } else if self.is_tail() {
            // A joiner that is about to be full counts already (G8).
            self.successor.as_ref().and_then(|next| next.has).unwrap_or(0)
        } else if self.desk.plants(Fault::CommittedBeforeTail) {
            self.log.last()
        } else {
            self.known_committed
        };
        let before = self.committed;
        self.committed = self.committed.max(all_have.min(self.log.last()));
        self.known_committed = self.known_committed.max(self.committed);
        if self.is_tail() {
            self.note_origins(before);
        }
        while self.log.applied() < self.committed {
            self.apply_next(effects);
        }
    }

    /// The tail tells the members whose clients wait, without the way back through the chain; the one before it hears
    /// of it by that way.
    fn note_origins(&mut self, before: u64) {
        let origins =
            (before + 1..=self.committed).filter_map(|index| self.log.get(index)).map(|entry| entry.origin);
        let is_other =
            |origin: &MemberId| *origin != self.desk.config.id && Some(*origin) != self.predecessor;
        self.to_tell.extend(origins.filter(is_other));
    }

    fn apply_next(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let index = self.log.applied() + 1;
        let entry = self.log.get(index).expect("what is committed is here");
        let waiting = self.submits.take(&entry.identity);
        let session = waiting.as_ref().and_then(|waiting| waiting.session);
        let placed = Placed {
            mark: Mark(index),
            identity: entry.identity,
            at_ms: entry.at_ms,
            session,
            op: &entry.op,
        };
        self.reply.clear();
        let applied = self.state.apply(&placed, &mut self.reply);
        self.log.note_applied();
        self.desk.counters.applied += 1;
        self.storing.push_back((applied.number, index));
        for ticket in waiting.into_iter().flat_map(|waiting| waiting.tickets) {
            let reply = effects.append(|out| out.extend_from_slice(&self.reply));
            effects.own(ReplicaOwn::Answer { ticket, reply, is_refused: applied.is_refused });
            self.unstable.insert((index, ticket));
        }
    }

    // ---- stability

    /// The last write that all full members from here to the tail have stored.
    fn stable_from_here(&self) -> u64 {
        if self.desk.config.stable_when == StableWhen::InMemory {
            return 0;
        }
        // A joiner that is about to be full counts already (G8).
        let counts = |next: &&Successor| next.standing == Standing::Full || next.is_counted;
        let behind = self.successor.as_ref().filter(counts).map(|next| next.stable);
        let behind = behind.filter(|_| !self.desk.plants(Fault::StableHereOnly));
        self.stored.min(behind.unwrap_or(u64::MAX))
    }

    fn settle(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let number = self.state.stable();
        while let Some((_, index)) = self.storing.front().copied().filter(|(stored, _)| *stored <= number) {
            self.stored = self.stored.max(index);
            self.storing.pop_front();
        }
        self.taken_at = self.taken_at.filter(|taken_at| *taken_at > number);
        if self.is_head() || self.desk.plants(Fault::StableHereOnly) {
            self.stable_all = self.stable_all.max(self.stable_from_here().min(self.committed));
        }
        let through = match self.desk.config.stable_when {
            StableWhen::InMemory => self.committed,
            StableWhen::Stored => self.stable_all,
        };
        while let Some((_, ticket)) = self.unstable.first().copied().filter(|(index, _)| *index <= through) {
            self.unstable.pop_first();
            effects.own(ReplicaOwn::Stable { ticket });
        }
        self.log.note_stable(through);
    }

    // ---- views

    fn take_place(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let me = self.desk.config.id;
        let view = self.desk.view().expect("there is one just now").clone();
        let full: Vec<&Member> = view.full().collect();
        self.head = full.first().map(|member| member.id);
        self.tail = full.last().map(|member| member.id);
        let standing = self.desk.myself().map(|member| member.standing);
        let place = standing.and_then(|_| view.members.iter().position(|member| member.id == me));
        self.predecessor = place.and_then(|place| place.checked_sub(1)).map(|before| view.members[before].id);
        let next = place.and_then(|place| view.members.get(place + 1));
        self.successor = next.map(|next| Successor::new(next.id, next.standing));
        self.is_introduced = self.is_head();
        (self.told_progress, self.told_forward) = (None, None);
        self.giving = None;
        if standing != Some(Standing::Full) {
            // What is not committed may never be: the group has gone on without this member.
            self.log.cut();
        }
        if standing == Some(Standing::Joining) {
            self.begin_to_join(now, view.founded, effects);
        } else {
            self.taking = None;
            self.wanting.stop();
            if standing.is_some() {
                // It is a full one of the first view, or the group begins anew with what it has.
                self.lineage = Some(view.founded);
            }
        }
        if self.desk.plants(Fault::HeadForgetsReceived) && self.is_head() {
            self.log.cut();
        }
        self.hello.stop();
        if self.predecessor.is_some() {
            self.hello.restart(now, Nanos(0));
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
            FORWARD => self.on_forward(from, body)?,
            PROGRESS => self.on_progress(now, from, &read_progress(body)?, effects),
            SUBMIT => self.on_submit(now, from, body, effects)?,
            REFUSED => {
                let (identity, why) = read_refused(body)?;
                self.on_refused(&identity, why, effects);
            }
            COMMITTED => self.known_committed = self.known_committed.max(read_number(body)?),
            QUERY => self.on_query(now, from, read_number(body)?, effects),
            QUERY_ANSWER => {
                let (number, committed) = read_pair(body)?;
                self.on_query_answer(number, committed);
            }
            READ => self.on_read_for(now, from, body, effects)?,
            READ_ANSWER => self.on_read_answer(body, effects)?,
            WANT => self.on_want(from, read_want(body)?, effects),
            PIECE => self.on_piece(now, from, &read_piece(body)?, effects),
            _ => return Err(Refusal::Damaged),
        }
        Ok(())
    }

    /// Writes from the member before.
    fn on_forward(&mut self, from: MemberId, mut body: Reader<'_>) -> Result<(), Refusal> {
        let (head, count) = read_forward_head(&mut body)?;
        if Some(from) != self.predecessor {
            return Ok(());
        }
        self.known_committed = self.known_committed.max(head.committed);
        self.stable_all = self.stable_all.max(head.stable_all);
        if !self.is_introduced {
            self.is_introduced = true;
        }
        if self.taking.is_some() || self.lineage.is_none() {
            return Ok(());
        }
        if count == 0 && head.committed < self.committed {
            // What was told of it is lost.
            self.told_progress = None;
        }
        for offset in 0..u64::from(count) {
            let entry = read_entry(&mut body)?;
            let index = head.first + offset;
            // G10: what has come before is passed over, and nothing is taken behind a gap.
            let is_next = index == self.log.last() + 1;
            if is_next || (index > self.log.last() && self.desk.plants(Fault::GapTaken)) {
                let touches = self.state.facts(entry.op).touches;
                let op = entry.op.into();
                self.log.push(Entry {
                    identity: entry.identity,
                    at_ms: entry.at_ms,
                    origin: entry.origin,
                    op,
                    touches,
                });
                self.submits.note_ordered(&entry.identity);
            } else if index <= self.log.last() {
                // It was sent again, so what was told of it is lost.
                self.told_progress = None;
            }
        }
        body.end()
    }
}

impl<S: State> Replica for Chain<S> {
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
        self.commit(effects);
        self.settle(effects);
        self.answer_reads(effects);
    }

    fn greet(&mut self, address: SocketAddr) {
        self.desk.greet(address);
    }

    fn on_view(&mut self, now: Nanos, view: &View, effects: &mut Effects<ReplicaOwn>) {
        if !self.desk.take_view(view) {
            return;
        }
        self.take_place(now, effects);
        self.commit(effects);
        self.settle(effects);
        self.begin_again(now, effects);
        self.answer_reads(effects);
    }

    fn on_lease(&mut self, until: Nanos) {
        self.desk.set_lease(until);
    }

    fn on_stored(&mut self, _now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.settle(effects);
    }

    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.fire(now, effects);
    }

    fn next_timer(&self) -> Option<Nanos> {
        let link = self.successor.as_ref().and_then(|next| next.retry.at());
        let timers = [
            self.hello.at(),
            self.settling.at(),
            self.wanting.at(),
            self.submits.retry.at(),
            self.reads.retry.at(),
        ];
        timers.into_iter().chain([link]).flatten().min()
    }

    fn flush(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.pass_on(now, effects);
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
        self.lineage.filter(|_| self.taken_at.is_none())
    }

    fn is_serving(&self, now: Nanos) -> Result<(), Decline> {
        self.desk.may_take_requests(now)
    }
}

/// What waits for a write.
pub(crate) type Waits<T> = BTreeMap<([u8; 16], u64), T>;
