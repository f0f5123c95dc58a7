//! The decisions of a group's client about its reads, or about its writes, without I/O: to whom a request is sent, when
//! it is sent to another, and when it has come to its end.
//!
//! Invariants: a request ends once, answered or given up; a write bears the same identity wherever it is sent; a write
//! that bears none is not sent again when somebody may have executed it; at most one member has a request at a time.

use super::choice::{Candidate, Chooser, Policy};
use super::member::{GroupMember, Member, Sent, Standing, Waits};
use super::requests::{Entry, Kept, Requests, COUNT_BITS};
use super::{GivenUp, GroupCounters, GroupOptions};
use crate::client::SessionHandle;
use scotfree_core::{Epoch, Nanos, SeqNum};
use scotfree_session::{backoff, Jitter};
use scotfree_wire::Identity;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

/// A decision that is switched off, so that tests can show that they would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests plant faults"))]
pub(super) enum Fault {
    /// A request that is sent again gets another identity.
    DrawIdentityAnew,
    /// A request that has its answer is kept.
    CompleteTwice,
    /// A member that does not answer is taken for one that serves.
    ChooseTheDead,
    /// A write without an identity is sent again, although it may have been executed.
    RepeatAnonymous,
}

/// What the shell is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Open a session with this member, and say which it is.
    Open { member: u8, address: SocketAddr },
    /// Nothing of this session is wanted any more.
    Abandon(SessionHandle),
    /// Tell the caller that this request has no answer.
    GiveUp { number: u64, why: GivenUp },
}

/// A request to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) number: u64,
    pub(super) member: u8,
    pub(super) session: SessionHandle,
    /// None of a read.
    pub(super) identity: Option<Identity>,
}

/// What an answer was.
#[derive(Debug)]
pub(super) enum Landed {
    /// The request's end.
    Answer { number: u64, member: u8, entry: Entry },
    /// The member does not serve: the request goes to another.
    Refusal,
    /// Of a request that has its end already.
    Late,
}

#[derive(Debug)]
pub(super) struct Dispatch {
    client: [u8; 16],
    waits: Waits,
    give_up_after: Nanos,
    members: Vec<Member>,
    requests: Requests,
    /// Those to be sent as soon as somebody takes them.
    waiting: VecDeque<u64>,
    /// Those that were refused more than once, by when they are tried again.
    paused: BTreeSet<(Nanos, u64)>,
    chooser: Chooser,
    jitter: Jitter,
    candidates: Vec<Candidate>,
    steps: VecDeque<Step>,
    counters: GroupCounters,
    pub(super) planted: Option<Fault>,
}

impl Dispatch {
    pub(super) fn new(now: Nanos, options: &GroupOptions, policy: Policy, seed: u64) -> Dispatch {
        let waits = Waits {
            timeout_min: options.timeout_min,
            timeout_max: options.timeout_max,
            retry_first: options.retry_first,
            retry_max: options.retry_max,
        };
        Dispatch {
            client: options.client,
            waits,
            give_up_after: options.give_up_after,
            members: options.members.iter().map(|member| Member::new(now, *member, &waits)).collect(),
            requests: Requests::new(),
            waiting: VecDeque::new(),
            paused: BTreeSet::new(),
            chooser: Chooser::new(policy, seed),
            jitter: Jitter::new(seed.wrapping_add(1)),
            candidates: Vec::new(),
            steps: VecDeque::new(),
            counters: GroupCounters::default(),
            planted: None,
        }
    }

    // ---- requests

    /// Whether another request has a number.
    pub(super) fn has_number(&self) -> bool {
        self.requests.next_number().is_some()
    }

    /// Whether no other request will ever have one.
    pub(super) fn is_used_up(&self) -> bool {
        self.requests.is_used_up()
    }

    pub(super) fn unanswered(&self) -> usize {
        self.requests.len()
    }

    /// Takes a request; it is sent with the next [`Dispatch::next_sending`] that finds somebody for it.
    pub(super) fn submit(&mut self, now: Nanos, kept: Kept) -> u64 {
        let number = self.requests.push(now, kept);
        self.waiting.push_back(number);
        number
    }

    /// What is to be sent now, if anything is and somebody takes it. `room` says how many requests a session takes.
    pub(super) fn next_sending(&mut self, room: impl Fn(SessionHandle) -> u32) -> Option<Sending> {
        let number = self.next_waiting()?;
        let entry = self.requests.get(number)?;
        let writes = entry.kept.kind.writes();
        let (identity, avoided) = (entry.identity, entry.avoided);
        self.find_candidates(avoided, room);
        let id = self.chooser.choose(&self.candidates)?;
        let member = self.members.iter().find(|member| member.id == id)?;
        let anew = self.planted == Some(Fault::DrawIdentityAnew);
        let drawn = || identity_number(number, id, member.epoch);
        let identity = if anew { drawn() } else { identity.unwrap_or_else(drawn) };
        let identity = writes.then_some(Identity { client: self.client, number: identity });
        Some(Sending { number, member: id, session: member.session?, identity })
    }

    /// The first that waits, is still wanted, and nobody has.
    fn next_waiting(&mut self) -> Option<u64> {
        loop {
            let number = *self.waiting.front()?;
            if self.requests.get(number).is_some_and(|entry| entry.member.is_none()) {
                return Some(number);
            }
            self.waiting.pop_front();
        }
    }

    /// Who serves; without who had the request last, if there are others.
    fn find_candidates(&mut self, avoided: Option<u8>, room: impl Fn(SessionHandle) -> u32) {
        let serving = self.members.iter().filter(|member| member.serves());
        self.candidates.clear();
        self.candidates.extend(serving.map(|member| Candidate {
            id: member.id,
            unanswered: member.sent.len(),
            trip: member.trip.smoothed(),
            has_room: member.session.is_some_and(|session| room(session) > 0),
        }));
        if self.candidates.iter().any(|candidate| Some(candidate.id) != avoided && candidate.has_room) {
            self.candidates.retain(|candidate| Some(candidate.id) != avoided);
        }
    }

    /// The request that waited first, see [`Dispatch::next_sending`], was sent.
    pub(super) fn on_sent(&mut self, now: Nanos, sending: &Sending, seq: SeqNum, has_identity: bool) {
        self.waiting.pop_front();
        let Some(entry) = self.requests.get_mut(sending.number) else { return };
        self.counters.sent_again += u64::from(entry.avoided.is_some());
        entry.identity = entry.identity.or(sending.identity.map(|identity| identity.number));
        entry.is_anonymous = entry.kept.kind.writes() && !has_identity;
        entry.member = Some(sending.member);
        if let Some(member) = self.members.iter_mut().find(|member| member.id == sending.member) {
            member.on_sent(Sent { seq, number: sending.number, at: now });
        }
    }

    /// A session has completed a request; `refused`: the member says that it does not serve now.
    pub(super) fn on_answer(
        &mut self,
        now: Nanos,
        session: SessionHandle,
        seq: SeqNum,
        refused: bool,
    ) -> Landed {
        let Some(member) = self.members.iter_mut().find(|member| member.session == Some(session)) else {
            return self.late();
        };
        let Some(sent) = member.take_sent(now, seq) else { return self.late() };
        if refused {
            member.on_refusal(now, &self.waits, &mut self.jitter);
            self.on_refused(now, sent.number);
            return Landed::Refusal;
        }
        member.on_answer(now, sent.at);
        let member = member.id;
        let Some(entry) = self.take_answered(sent.number) else { return self.late() };
        self.counters.answered += 1;
        Landed::Answer { number: sent.number, member, entry }
    }

    fn late(&mut self) -> Landed {
        self.counters.late += 1;
        Landed::Late
    }

    fn take_answered(&mut self, number: u64) -> Option<Entry> {
        if self.planted == Some(Fault::CompleteTwice) {
            return self.requests.get(number).cloned();
        }
        self.requests.take(number)
    }

    /// The first refusal sends a request to another member at once; further ones after a while.
    fn on_refused(&mut self, now: Nanos, number: u64) {
        self.counters.refused += 1;
        let Some(entry) = self.requests.get_mut(number) else { return };
        entry.avoided = entry.member.take();
        if entry.refusals == 0 {
            self.waiting.push_front(number);
        } else {
            let wait = backoff(self.waits.retry_first, self.waits.retry_max, entry.refusals - 1);
            self.paused.insert((now.plus(self.jitter.around(wait)), number));
        }
        entry.refusals += 1;
    }

    /// What of a request is sent.
    pub(super) fn kept(&self, number: u64) -> Option<&Kept> {
        self.requests.get(number).map(|entry| &entry.kept)
    }

    // ---- members

    /// A session with this member is being opened.
    pub(super) fn on_opening(&mut self, member: u8, session: SessionHandle) {
        if let Some(member) = self.members.iter_mut().find(|known| known.id == member) {
            member.session = Some(session);
        }
    }

    pub(super) fn has_session(&self, session: SessionHandle) -> bool {
        self.members.iter().any(|member| member.session == Some(session))
    }

    /// A session is open, in this epoch of its server.
    pub(super) fn on_opened(&mut self, session: SessionHandle, epoch: Epoch) {
        if let Some(member) = self.members.iter_mut().find(|member| member.session == Some(session)) {
            member.on_opened(epoch);
        }
    }

    /// A session has ended.
    pub(super) fn on_closed(&mut self, now: Nanos, session: SessionHandle) {
        if let Some(at) = self.members.iter().position(|member| member.session == Some(session)) {
            self.lose(now, at);
        }
    }

    /// The group's members from now on. What those have that are no longer in it is sent to others.
    pub(super) fn set_members(&mut self, now: Nanos, members: &[GroupMember]) {
        for at in (0..self.members.len()).rev() {
            if !members.contains(&self.members[at].named()) {
                self.abandon(now, at);
                self.members.remove(at);
            }
        }
        for member in members {
            if self.members.iter().all(|known| known.id != member.id) {
                self.members.push(Member::new(now, *member, &self.waits));
            }
        }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member at this place is believed to be lost, and its session with it.
    fn abandon(&mut self, now: Nanos, at: usize) {
        let session = self.members[at].session;
        self.lose(now, at);
        self.steps.extend(session.map(Step::Abandon));
    }

    /// What the member at this place had is sent to others.
    fn lose(&mut self, now: Nanos, at: usize) {
        let id = self.members[at].id;
        let had = self.members[at].on_lost(now, &self.waits, &mut self.jitter);
        self.counters.lost += 1;
        // From the last to the first, since each goes before those that wait.
        for sent in had.into_iter().rev() {
            self.retry(sent.number, id);
        }
    }

    fn retry(&mut self, number: u64, member: u8) {
        let Some(entry) = self.requests.get_mut(number) else { return };
        entry.member = None;
        entry.avoided = Some(member);
        entry.may_be_executed = true;
        if entry.is_anonymous && self.planted != Some(Fault::RepeatAnonymous) {
            self.give_up(number);
        } else {
            self.waiting.push_front(number);
        }
    }

    fn give_up(&mut self, number: u64) {
        let Some(entry) = self.requests.take(number) else { return };
        let unknown = entry.may_be_executed || entry.member.is_some();
        let why = if unknown { GivenUp::UnknownOutcome } else { GivenUp::NotExecuted };
        self.counters.given_up += 1;
        self.steps.push_back(Step::GiveUp { number, why });
    }

    // ---- time

    /// What the shell is to do next.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    pub(super) fn on_timer(&mut self, now: Nanos) {
        for at in 0..self.members.len() {
            self.look_at(now, at);
        }
        while let Some((_, number)) = self.paused.first().copied().filter(|(until, _)| *until <= now) {
            self.paused.pop_first();
            self.waiting.push_back(number);
        }
        while let Some(number) = self.overdue(now) {
            self.give_up(number);
        }
    }

    fn look_at(&mut self, now: Nanos, at: usize) {
        let member = &mut self.members[at];
        match member.standing {
            Standing::Away { until } if until <= now => {
                member.standing = Standing::Opening;
                self.steps.push_back(Step::Open { member: member.id, address: member.address });
            }
            Standing::Resting { until } if until <= now => member.standing = Standing::Trial,
            Standing::Away { .. }
            | Standing::Opening
            | Standing::Trial
            | Standing::Serving
            | Standing::Resting { .. } => {}
        }
        if self.members[at].due(&self.waits).is_some_and(|due| due <= now) {
            self.on_silence(now, at);
        }
    }

    /// A member has not answered in time. If nobody else serves it is waited for: its session sends again by itself.
    fn on_silence(&mut self, now: Nanos, at: usize) {
        let others = self.members.iter().enumerate().any(|(other, member)| other != at && member.serves());
        if !others {
            return self.members[at].be_patient(now);
        }
        if self.planted == Some(Fault::ChooseTheDead) {
            let member = &mut self.members[at];
            let id = member.id;
            let had = std::mem::take(&mut member.sent);
            return had.into_iter().rev().for_each(|sent| self.retry(sent.number, id));
        }
        self.abandon(now, at);
    }

    fn overdue(&self, now: Nanos) -> Option<u64> {
        let (number, entry) = self.requests.oldest()?;
        (entry.submitted_at.plus(self.give_up_after) <= now).then_some(number)
    }

    pub(super) fn next_timer(&self) -> Option<Nanos> {
        let members = self.members.iter().map(|member| member.next_timer(&self.waits));
        let paused = self.paused.first().map(|(until, _)| *until);
        let overdue = self.requests.oldest().map(|(_, entry)| entry.submitted_at.plus(self.give_up_after));
        members.chain(paused).chain(overdue).filter(|at| *at != Nanos::MAX).min()
    }

    pub(super) fn counters(&self) -> GroupCounters {
        self.counters
    }
}

/// The number that a request's identity has for ever: what counts it, the epoch of the server that had it first, and
/// that server's name in the group.
fn identity_number(count: u64, member: u8, epoch: Epoch) -> u64 {
    count | u64::from(epoch.0 as u16) << COUNT_BITS | u64::from(member) << 56
}
