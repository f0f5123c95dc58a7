//! A client's decisions and servers that answer, refuse, are silent or dead, as chance has it.

use super::super::choice::Policy;
use super::super::dispatch::{Dispatch, Fault, Landed, Step};
use super::super::member::GroupMember;
use super::super::requests::Kept;
use super::super::{GivenUp, GroupOptions};
use crate::client::SessionHandle;
use crate::probes::CallLabel;
use scotfree_core::{Epoch, KeyHash, Nanos, SeqNum};
use scotfree_session::{Jitter, RequestKind};
use std::collections::{BTreeMap, VecDeque};

/// How long one step of the world takes.
pub(super) const STEP: Nanos = Nanos::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Serves,
    /// Answers that it does not serve.
    Refuses,
    /// Gets everything, and says nothing until its mood changes.
    Silent,
}

#[derive(Debug)]
struct Arrival {
    at: Nanos,
    session: SessionHandle,
    seq: SeqNum,
    number: u64,
    may_repeat: bool,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) mood: Mood,
    pub(super) trip: Nanos,
    queue: VecDeque<Arrival>,
    /// How many requests were sent to it.
    pub(super) sent: u64,
    /// The last of them.
    pub(super) last_number: u64,
}

impl Server {
    fn take_arrived(&mut self, now: Nanos) -> Option<Arrival> {
        let has_arrived = self.queue.front().is_some_and(|arrival| arrival.at <= now);
        if has_arrived {
            self.queue.pop_front()
        } else {
            None
        }
    }
}

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Answered(u8),
    GivenUp(GivenUp),
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) group: Dispatch,
    pub(super) now: Nanos,
    pub(super) servers: Vec<Server>,
    pub(super) ends: BTreeMap<u64, End>,
    /// How many requests a session takes at once.
    pub(super) window: u32,
    /// Of so many requests one has no identity; none if 0.
    pub(super) anonymous_every: u64,
    opening: VecDeque<(Nanos, SessionHandle, usize)>,
    /// The next `seq_num` of each session, and how many of its requests have no answer.
    sessions: BTreeMap<SessionHandle, (u64, u32)>,
    /// Under which identity a write was received first.
    identities: BTreeMap<u64, u64>,
    executed: BTreeMap<u64, u64>,
    /// The rules that were broken.
    pub(super) broken: Vec<String>,
}

pub(super) fn member(id: u8) -> GroupMember {
    GroupMember { id, address: ([127, 0, 0, 1], 1_000 + u16::from(id)).into() }
}

fn mood(number: u64) -> Mood {
    [Mood::Serves, Mood::Serves, Mood::Refuses, Mood::Silent][number as usize]
}

impl World {
    /// With three servers, all of which serve.
    pub(super) fn new(seed: u64, policy: Policy, adjust: impl FnOnce(&mut GroupOptions)) -> World {
        let mut options = GroupOptions::new((0..3).map(member).collect(), [7; 16], seed);
        adjust(&mut options);
        let now = Nanos::from_secs(1);
        let server = |id: u64| Server {
            mood: Mood::Serves,
            trip: Nanos::from_millis(1 + id),
            queue: VecDeque::new(),
            sent: 0,
            last_number: 0,
        };
        World {
            group: Dispatch::new(now, &options, policy, seed),
            now,
            servers: (0..3).map(server).collect(),
            ends: BTreeMap::new(),
            window: 64,
            anonymous_every: 0,
            opening: VecDeque::new(),
            sessions: BTreeMap::new(),
            identities: BTreeMap::new(),
            executed: BTreeMap::new(),
            broken: Vec::new(),
        }
    }

    /// Seconds of requests and changing moods, then ten in which all serve.
    pub(super) fn of_chance(seed: u64, planted: Option<Fault>) -> World {
        let policies =
            [Policy::Random, Policy::TwoChoices, Policy::Nearest, Policy::Sticky, Policy::Member(1)];
        let mut chance = Jitter::new(seed);
        let policy = policies[chance.below(policies.len() as u64) as usize];
        let mut world = World::new(seed, policy, |_| {});
        world.group.planted = planted;
        world.anonymous_every = 7;
        for _ in 0..40 {
            let server = chance.below(3) as usize;
            world.servers[server].mood = mood(chance.below(4));
            for _ in 0..chance.below(400) {
                if chance.below(2) == 0 {
                    let kind = [RequestKind::Read, RequestKind::Update][chance.below(2) as usize];
                    world.submit(kind);
                }
                world.step();
            }
        }
        world.servers.iter_mut().for_each(|server| server.mood = Mood::Serves);
        world.pass(Nanos::from_secs(11));
        world.check_ends();
        world
    }

    /// If there is room for one.
    pub(super) fn submit(&mut self, kind: RequestKind) -> Option<u64> {
        if self.group.unanswered() >= 256 || !self.group.has_number() {
            return None;
        }
        let (key_hash, label) = (KeyHash(0), CallLabel::of_kind(kind));
        let number = self.group.submit(self.now, Kept { kind, key_hash, label, payload: Vec::new() });
        self.send();
        Some(number)
    }

    pub(super) fn pass(&mut self, span: Nanos) {
        let end = self.now.plus(span);
        while self.now < end {
            self.step();
        }
    }

    pub(super) fn step(&mut self) {
        self.now = self.now.plus(STEP);
        self.open();
        for id in 0..self.servers.len() {
            self.answer(id);
        }
        let is_due = self.group.next_timer().is_some_and(|at| at <= self.now);
        if is_due {
            self.group.on_timer(self.now);
        }
        self.carry_out();
        self.send();
        if is_due && self.group.next_timer().is_some_and(|at| at <= self.now) {
            self.broken.push("a timer that has rung rings on".to_owned());
        }
    }

    fn open(&mut self) {
        while let Some((_, session, id)) = self.opening.front().copied().filter(|(at, ..)| *at <= self.now) {
            self.opening.pop_front();
            if self.servers[id].mood == Mood::Silent {
                self.group.on_closed(self.now, session);
            } else {
                self.group.on_opened(session, Epoch(0x0003_0005));
            }
        }
    }

    /// The server with this id answers what has reached it, also what nobody waits for any more.
    fn answer(&mut self, id: usize) {
        let refuses = match self.servers[id].mood {
            Mood::Silent => return,
            Mood::Refuses => true,
            Mood::Serves => false,
        };
        while let Some(arrival) = self.servers[id].take_arrived(self.now) {
            if !refuses {
                self.execute(arrival.number, arrival.may_repeat);
            }
            if let Some((_, outstanding)) = self.sessions.get_mut(&arrival.session) {
                *outstanding -= 1;
            }
            let landed = self.group.on_answer(self.now, arrival.session, arrival.seq, refuses);
            if let Landed::Answer { number, member, .. } = landed {
                self.end(number, End::Answered(member));
            }
        }
    }

    fn execute(&mut self, number: u64, may_repeat: bool) {
        let times = self.executed.entry(number).or_default();
        *times += 1;
        if *times > 1 && !may_repeat {
            self.broken.push(format!("{number} is executed twice and bears no identity"));
        }
    }

    fn end(&mut self, number: u64, end: End) {
        if let Some(before) = self.ends.insert(number, end) {
            self.broken.push(format!("{number} ends twice: {before:?}, {end:?}"));
        }
    }

    fn carry_out(&mut self) {
        while let Some(step) = self.group.next_step() {
            match step {
                Step::Open { member, .. } => {
                    let session = SessionHandle::numbered(self.sessions.len() as u64);
                    self.sessions.insert(session, (0, 0));
                    let trip = self.servers[usize::from(member)].trip;
                    self.opening.push_back((self.now.plus(trip), session, usize::from(member)));
                    self.group.on_opening(member, session);
                }
                Step::Abandon(session) => self.opening.retain(|(_, opening, _)| *opening != session),
                Step::GiveUp { number, why } => self.end(number, End::GivenUp(why)),
            }
        }
    }

    fn send(&mut self) {
        let World { group, sessions, window, .. } = self;
        let window = *window;
        while let Some(sending) = group.next_sending(|session| window - sessions[&session].1) {
            let (last, outstanding) = sessions.get_mut(&sending.session).expect("it was opened");
            (*last, *outstanding) = (*last + 1, *outstanding + 1);
            let (seq, number) = (SeqNum(*last), sending.number);
            let is_anonymous = self.anonymous_every > 0 && number % self.anonymous_every == 0;
            let may_repeat = sending.identity.is_none() || !is_anonymous;
            group.on_sent(self.now, &sending, seq, !is_anonymous);
            if let Some(identity) = sending.identity.filter(|_| !is_anonymous) {
                let expected = number | 5 << 40 | u64::from(sending.member) << 56;
                let first = *self.identities.entry(number).or_insert(expected);
                if first != identity.number {
                    self.broken.push(format!("{number} is {first:x} and {:x}", identity.number));
                }
            }
            let server = &mut self.servers[usize::from(sending.member)];
            let at = self.now.plus(server.trip);
            (server.sent, server.last_number) = (server.sent + 1, number);
            server.queue.push_back(Arrival { at, session: sending.session, seq, number, may_repeat });
        }
    }

    fn check_ends(&mut self) {
        if self.group.unanswered() > 0 {
            self.broken.push(format!("{} never end", self.group.unanswered()));
        }
        for (number, end) in &self.ends {
            if *end == End::GivenUp(GivenUp::NotExecuted) && self.executed.contains_key(number) {
                self.broken.push(format!("{number} is executed and said not to be"));
            }
        }
    }
}
