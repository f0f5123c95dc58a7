//! Members' machines around an etcd that is a table: what they do when requests are lost, processes die or stop for
//! a while, and clocks go differently.
//!
//! Invariants, after every event: whoever may answer reads has its full standing, in this life, in the view at etcd.
//! A view that is written has the next epoch, leaves out nobody whose sign of life is there (G7), and has one that
//! had the state.
#![allow(clippy::unwrap_used)]

mod table;

use super::*;
use crate::etcd::Endpoint;
use crate::form::Listed;
use remedy_replicate::View;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use table::Table;

const DRIFT_PPM: u64 = 50_000;
const MEMBERS: u8 = 3;
const TROUBLED: Nanos = Nanos::from_secs(60);
const END: Nanos = Nanos::from_secs(90);

#[test]
fn whoever_may_answer_is_in_the_view_whatever_goes_wrong() {
    let mut changes = 0;
    for seed in 0..200 {
        let mut world = World::new(seed, None);
        if let Some(wrong) = world.run() {
            panic!("seed {seed}: {wrong}");
        }
        changes += world.table.view().unwrap().epoch;
    }
    assert!(changes > 200 * 20, "only {changes} views were written: too little goes wrong");
}

#[test]
fn rules_that_are_switched_off_are_missed() {
    for fault in [
        Fault::LeaseFromAnswer,
        Fault::NoDrift,
        Fault::RemovesTheLiving,
        Fault::LeaseUnlooked,
        Fault::RenewalUnlooked,
        Fault::AbsentAreGone,
    ] {
        let found = (0..2_000).find_map(|seed| World::new(seed, Some(fault)).run());
        let found = found.unwrap_or_else(|| panic!("nobody notices {fault:?}"));
        assert!(found.contains("invariant"), "{fault:?} is found by what it breaks: {found}");
    }
}

/// The first member serves and has just asked, at this moment, that its lease goes on.
fn asked_to_keep_alive() -> (World, Nanos) {
    let mut world = World::new(0, None);
    world.troubled_until = Nanos(0);
    while world.serving(MemberId(1)).is_none() {
        world.step();
    }
    let machine = &mut world.members.get_mut(&MemberId(1)).unwrap().machine;
    let due = machine.held.unwrap().keep_alive_due();
    machine.open = None;
    assert!(matches!(machine.next(due), Some(Request::KeepAlive { .. })));
    machine.take_events();
    (world, due)
}

#[test]
fn a_lease_is_counted_from_when_it_was_asked_for() {
    let (mut world, due) = asked_to_keep_alive();
    let machine = &mut world.members.get_mut(&MemberId(1)).unwrap().machine;
    let answered = due.plus(Nanos::from_millis(300));
    machine.on_answer(answered, Answer::KeptAlive { ttl_seconds: 3 });
    assert_eq!(machine.take_events(), [], "whoever said so may lead no more");
    let Some(look @ Request::Look) = machine.next(answered) else { panic!("it looks at its key") };
    let looked = world.table.answer(world.now, &look, Nanos(0));
    let machine = &mut world.members.get_mut(&MemberId(1)).unwrap().machine;
    machine.on_answer(answered, looked);
    let until = due.plus(Nanos::from_millis(3_000 - 300));
    assert_eq!(machine.take_events(), [MembershipEvent::Lease { until }]);
}

#[test]
fn a_lease_that_etcd_ends_before_its_time_is_told_of() {
    let (mut world, due) = asked_to_keep_alive();
    let machine = &mut world.members.get_mut(&MemberId(1)).unwrap().machine;
    machine.on_answer(due, Answer::KeptAlive { ttl_seconds: 0 });
    let events = machine.take_events();
    assert!(events.contains(&MembershipEvent::Lease { until: due }), "{events:?}");
    let said = texts(&events);
    assert!(
        said.len() == 1 && said[0].contains("before its time") && said[0].contains("50000 ppm"),
        "{said:?}"
    );
}

#[test]
fn without_answers_the_lease_ends_and_it_is_said_once() {
    let mut world = World::new(0, None);
    world.troubled_until = Nanos(0);
    while world.serving(MemberId(1)).is_none() {
        world.step();
    }
    let machine = &mut world.members.get_mut(&MemberId(1)).unwrap().machine;
    machine.open = None;
    let (mut now, until) = (machine.told_until.since(Nanos::from_secs(1)), machine.told_until);
    while now < until.plus(Nanos::from_secs(5)) {
        if machine.next(now).is_some() {
            machine.on_failure(now, "connection refused");
        }
        now = now.plus(Nanos::from_millis(5));
    }
    let said = texts(&machine.take_events());
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("etcd has not answered") && said[0].contains("connection refused"), "{said:?}");
    assert!(said[1].contains("the lease is over"), "{said:?}");
}

#[test]
fn another_group_is_refused_with_both_values() {
    for (change, here, there) in [
        (change_name as fn(&mut Group), "g1", "g2"),
        (|group| group.protocol = "craq".to_owned(), "hermes", "craq"),
        (|group| group.fingerprint = Some(255), "0000000000000007", "00000000000000ff"),
    ] {
        let mut group = group();
        change(&mut group);
        let mut machine = machine(MemberId(1), 1, Nanos(0));
        machine.next(Nanos(0));
        machine.on_answer(
            Nanos(1),
            Answer::Looked { entries: vec![table::entry("group", &json(&group))], term: 1 },
        );
        let events = machine.take_events();
        let [MembershipEvent::Refused(reason)] = &events[..] else { panic!("{events:?}") };
        assert!(reason.contains(here) && reason.contains(there), "{reason}");
        assert_eq!(machine.next_timer(), None);
    }
}

#[test]
fn a_promotion_that_is_said_often_asks_once() {
    let mut machine = machine(MemberId(1), 1, Nanos(0));
    machine.told_epoch = 5;
    for (member, epoch, asks) in [(2, 5, true), (2, 5, false), (2, 4, false), (3, 5, true), (3, 6, true)] {
        machine.look_due = Nanos::MAX;
        machine.promote(MemberId(member), epoch);
        assert_eq!(machine.look_due == Nanos(0), asks, "{member} in {epoch}");
    }
}

#[test]
fn a_view_that_goes_backward_is_told_to_nobody_and_ends_the_lease() {
    let mut world = World::new(0, None);
    world.troubled_until = Nanos(0);
    while world.serving(MemberId(1)).is_none() {
        world.step();
    }
    let process = world.members.get_mut(&MemberId(1)).unwrap();
    let now = process.clock.local(world.now);
    process.machine.open = Some((Step::Look, now));
    let Answer::Looked { mut entries, term } = world.table.answer(world.now, &Request::Look, Nanos(0)) else {
        panic!("it looks")
    };
    entries.retain(|entry| entry.key != "view");
    process.machine.on_answer(now, Answer::Looked { entries, term });
    let events = process.machine.take_events();
    let [MembershipEvent::Lease { until }, MembershipEvent::Trouble(reason)] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(*until <= now && reason.contains("epoch 0, and epoch 1 was seen"), "{events:?}");
    assert!(!matches!(process.machine.step, Some(Step::WriteView(_))));
}

fn change_name(group: &mut Group) {
    group.name = "g2".to_owned();
}

fn texts(events: &[MembershipEvent]) -> Vec<String> {
    let text = |event: &MembershipEvent| match event {
        MembershipEvent::Trouble(text) | MembershipEvent::Well(text) | MembershipEvent::Refused(text) => {
            Some(text.clone())
        }
        MembershipEvent::View(_) | MembershipEvent::Lease { .. } => None,
    };
    events.iter().filter_map(text).collect()
}

fn address(id: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, id], 7_000))
}

fn group() -> Group {
    let listed = |id: u8| Listed { id, peers: address(id), clients: address(id) };
    let members = (1..=MEMBERS).map(listed).collect();
    let (name, protocol) = ("g1".to_owned(), "hermes".to_owned());
    Group { name, protocol, lease_ms: 2_000, fingerprint: None, members }
}

fn machine(id: MemberId, boot: u32, now: Nanos) -> Machine {
    let (peers, clients) = (address(id.0), address(id.0));
    let myself = Myself { group: "g1".to_owned(), id, boot, peers, clients, fingerprint: 7 };
    let settings = EtcdSettings {
        endpoint: Endpoint::parse("http://127.0.0.1:2379/g1").unwrap(),
        protocol: "hermes".to_owned(),
        drift_ppm_max: DRIFT_PPM as u32,
        applied: 0,
        founded: None,
        progress_every: Nanos::from_secs(1),
    };
    Machine::new(myself, &settings, now)
}

// ---- the world

struct World {
    now: Nanos,
    random: u64,
    table: Table,
    members: BTreeMap<MemberId, Process>,
    /// In which history each member's storage stands.
    founded: BTreeMap<MemberId, u64>,
    fault: Option<Fault>,
    troubled_until: Nanos,
    etcd_away_until: Nanos,
    /// When a leader that had been stuck ends the leases that it knows.
    stuck_until: Nanos,
    next_trouble: Nanos,
    wrong: Option<String>,
}

/// A member's process; its clock goes as it likes within the drift.
struct Process {
    machine: Machine,
    boot: u32,
    clock: Clock,
    flight: Option<Flight>,
    stopped_until: Nanos,
    is_down: bool,
    view: Option<View>,
    until: Nanos,
}

enum Flight {
    /// A question on its way, and whether its answer will come.
    Question { at: Nanos, request: Request, is_heard: bool, is_answered: bool },
    /// An answer on its way; nothing is a time that ran out.
    Answer { at: Nanos, answer: Option<Answer> },
}

#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) offset: u64,
    /// Parts of a million that it makes of one.
    pub(super) rate: u64,
}

impl Clock {
    fn local(self, now: Nanos) -> Nanos {
        Nanos(self.offset + (u128::from(now.0) * u128::from(self.rate) / 1_000_000) as u64)
    }

    /// The first moment at which the clock shows `local` or later.
    pub(super) fn world(self, local: Nanos) -> Nanos {
        let span = u128::from(local.0.saturating_sub(self.offset));
        Nanos((span * 1_000_000).div_ceil(u128::from(self.rate)).min(u128::from(u64::MAX)) as u64)
    }
}

impl Process {
    fn serves(&self, id: MemberId, now: Nanos) -> bool {
        let named = self.view.as_ref().and_then(|view| view.member(id));
        let is_full = named.is_some_and(|n| n.boot == self.boot && n.standing == Standing::Full);
        !self.is_down && is_full && self.clock.local(now) < self.until
    }

    fn due(&self) -> Nanos {
        let due = match &self.flight {
            Some(Flight::Question { at, .. }) => return *at,
            Some(Flight::Answer { at, .. }) => *at,
            None => self.machine.next_timer().map_or(Nanos::MAX, |timer| self.clock.world(timer)),
        };
        if self.is_down {
            Nanos::MAX
        } else {
            due.max(self.stopped_until)
        }
    }
}

impl World {
    fn new(seed: u64, fault: Option<Fault>) -> World {
        let mut world = World {
            now: Nanos::from_secs(1),
            random: seed,
            table: Table::new(&json(&group())),
            members: BTreeMap::new(),
            founded: BTreeMap::new(),
            fault,
            troubled_until: TROUBLED,
            etcd_away_until: Nanos(0),
            stuck_until: Nanos::MAX,
            next_trouble: Nanos::from_secs(5),
            wrong: None,
        };
        world.table.rate = world.rate();
        for id in (1..=MEMBERS).map(MemberId) {
            world.start(id, 1);
        }
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.draw(one_in) == 0
    }

    fn rate(&mut self) -> u64 {
        match self.draw(3) {
            0 => 1_000_000 - DRIFT_PPM,
            1 => 1_000_000 + DRIFT_PPM,
            _ => 1_000_000 - DRIFT_PPM + self.draw(2 * DRIFT_PPM),
        }
    }

    fn start(&mut self, id: MemberId, boot: u32) {
        let clock = Clock { offset: self.draw(1 << 40), rate: self.rate() };
        let mut machine = machine(id, boot, clock.local(self.now));
        machine.fault = self.fault;
        machine.founded = self.founded.get(&id).copied();
        let process = Process {
            machine,
            boot,
            clock,
            flight: None,
            stopped_until: self.now,
            is_down: false,
            view: None,
            until: Nanos(0),
        };
        self.members.insert(id, process);
    }

    /// In a life that is any other than the one before.
    fn start_again(&mut self, id: MemberId) {
        let boot = self.members[&id].boot ^ (1 + self.draw(u64::from(u32::MAX - 1)) as u32);
        self.start(id, boot.max(1));
    }

    fn run(&mut self) -> Option<String> {
        while self.now < END && self.wrong.is_none() {
            self.step();
        }
        self.wrong.take().or_else(|| self.not_well())
    }

    /// What is missing when nothing has gone wrong for long.
    fn not_well(&self) -> Option<String> {
        let ids = (1..=MEMBERS).map(MemberId);
        let idle: Vec<MemberId> = ids.filter(|id| self.serving(*id).is_none()).collect();
        (!idle.is_empty()).then(|| format!("at the end {idle:?} do not serve, in {:?}", self.table.view()))
    }

    fn serving(&self, id: MemberId) -> Option<&Process> {
        self.members.get(&id).filter(|process| process.serves(id, self.now))
    }

    /// Goes on to what happens next.
    fn step(&mut self) {
        let (id, due) =
            self.members.iter().map(|(id, process)| (*id, process.due())).min_by_key(|due| due.1).unwrap();
        let end_of_lease = self.table.next_end().unwrap_or(Nanos::MAX);
        let next = due.min(self.next_trouble).min(end_of_lease).min(self.stuck_until);
        self.now = self.now.max(next);
        if next == end_of_lease {
            self.table.expire(self.now);
        } else if next == self.stuck_until {
            self.stuck_until = Nanos::MAX;
            self.table.revoke_of_earlier_terms();
        } else if next == self.next_trouble {
            self.make_trouble();
        } else {
            self.advance(id);
        }
        self.check();
    }

    fn make_trouble(&mut self) {
        self.next_trouble = self.now.plus(Nanos::from_millis(200 + self.draw(4_000)));
        if self.now >= self.troubled_until {
            self.next_trouble = Nanos::MAX;
            return self.end_trouble();
        }
        let id = MemberId(1 + self.draw(MEMBERS.into()) as u8);
        let span = Nanos::from_millis(self.draw(6_000));
        let process = &self.members[&id];
        if process.is_down {
            return self.start_again(id);
        }
        match self.draw(5) {
            0 => self.members.get_mut(&id).unwrap().is_down = true,
            4 => self.leave(id),
            1 => {
                self.table.begin_term(self.now);
                self.stuck_until = self.now.plus(Nanos::from_millis(self.draw(3_000)));
            }
            2 => self.etcd_away_until = self.now.plus(span),
            _ => self.members.get_mut(&id).unwrap().stopped_until = self.now.plus(span),
        }
    }

    fn leave(&mut self, id: MemberId) {
        let process = self.members.get_mut(&id).unwrap();
        let request = process.machine.leave(process.clock.local(self.now));
        self.take_events(id);
        self.members.get_mut(&id).unwrap().is_down = true;
        if let Some(request) = request {
            self.write(&request);
        }
    }

    fn end_trouble(&mut self) {
        for id in (1..=MEMBERS).map(MemberId) {
            if self.members[&id].is_down {
                self.start_again(id);
            }
        }
    }

    fn advance(&mut self, id: MemberId) {
        match self.members.get_mut(&id).unwrap().flight.take() {
            None => self.ask(id),
            Some(Flight::Question { request, is_heard, is_answered, .. }) => {
                self.hear(id, &request, is_heard, is_answered);
            }
            Some(Flight::Answer { answer, .. }) => self.answer(id, answer),
        }
    }

    fn ask(&mut self, id: MemberId) {
        let is_troubled = self.now < self.troubled_until;
        let is_heard = !(is_troubled && self.chance(20));
        let is_answered = is_heard && !(is_troubled && self.chance(20));
        let at = self.now.plus(self.delay());
        let now = self.now;
        let process = self.members.get_mut(&id).unwrap();
        // A joiner has the whole state as soon as it joins.
        process.machine.tell_progress(now.0 / 1_000_000_000);
        if let Some(view) = &process.view {
            process.machine.promote(id, view.epoch);
        }
        if let Some(request) = process.machine.next(process.clock.local(now)) {
            process.flight = Some(Flight::Question { at, request, is_heard, is_answered });
        }
        self.take_events(id);
    }

    fn delay(&mut self) -> Nanos {
        let delay_max = if self.now < self.troubled_until && self.chance(4) { 330_000 } else { 2_000 };
        Nanos::from_micros(1 + self.draw(delay_max))
    }

    fn hear(&mut self, id: MemberId, request: &Request, is_heard: bool, is_answered: bool) {
        let is_heard = is_heard && self.now >= self.etcd_away_until;
        let answer = is_heard.then(|| self.write(request)).filter(|_| is_answered);
        let wait = if answer.is_some() { self.delay() } else { Nanos::from_millis(300) };
        let at = self.now.plus(wait);
        self.members.get_mut(&id).unwrap().flight = Some(Flight::Answer { at, answer });
    }

    fn write(&mut self, request: &Request) -> Answer {
        let delay = Nanos::from_micros(self.draw(3).saturating_sub(1) * self.draw(500_000));
        if let Some(answer) = self.table.keep_alive_by_stuck(request).filter(|_| self.is_asked_stuck()) {
            return answer;
        }
        let before = self.table.view();
        let answer = self.table.answer(self.now, request, delay);
        let after = self.table.view();
        if before != after {
            self.check_change(before.as_ref(), after.as_ref().unwrap());
        }
        answer
    }

    /// Whether a question goes to a leader that was stuck and does not know that it leads no more.
    fn is_asked_stuck(&mut self) -> bool {
        self.now < self.troubled_until && self.chance(3)
    }

    fn answer(&mut self, id: MemberId, answer: Option<Answer>) {
        let process = self.members.get_mut(&id).unwrap();
        let local = process.clock.local(self.now);
        match answer {
            Some(answer) => process.machine.on_answer(local, answer),
            None => process.machine.on_failure(local, "timeout"),
        }
        self.take_events(id);
    }

    fn take_events(&mut self, id: MemberId) {
        let process = self.members.get_mut(&id).unwrap();
        for event in process.machine.take_events() {
            match event {
                MembershipEvent::View(view) => {
                    let known = process.view.as_ref().map_or(0, |view| view.epoch);
                    if view.epoch <= known {
                        self.wrong =
                            Some(format!("invariant: {id} is told epoch {} after {known}", view.epoch));
                    }
                    if view.member(id).is_some_and(|named| named.boot == process.boot) {
                        self.founded.insert(id, view.founded);
                    }
                    process.view = Some(view);
                }
                MembershipEvent::Lease { until } => process.until = until,
                MembershipEvent::Refused(reason) => self.wrong = Some(format!("{id} is refused: {reason}")),
                MembershipEvent::Trouble(_) | MembershipEvent::Well(_) => {}
            }
        }
    }

    // ---- the invariants

    fn check(&mut self) {
        let view = self.table.view();
        for (id, process) in &self.members {
            let named = view.as_ref().and_then(|view| view.member(*id));
            let is_full = named.is_some_and(|n| n.boot == process.boot && n.standing == Standing::Full);
            if process.serves(*id, self.now) && !is_full {
                let left = process.until.since(process.clock.local(self.now)).0 / 1_000;
                self.wrong =
                    Some(format!("invariant: {id} may answer for {left} us, and the view is {view:?}"));
            }
        }
    }

    fn check_change(&mut self, before: Option<&View>, after: &View) {
        let mut wrong = after.check().err();
        let Some(before) = before else { return };
        if after.epoch != before.epoch + 1 {
            wrong = Some(format!("epoch {} follows {}", after.epoch, before.epoch));
        }
        for member in &before.members {
            let stays = after.member(member.id).is_some_and(|m| m.boot == member.boot);
            if !stays && self.table.boot(member.id) == Some(member.boot) {
                wrong = Some(format!("{} lives and is left out", member.id));
            }
        }
        let had_state = |member: &remedy_replicate::Member| before.full().any(|old| old.id == member.id);
        if !after.full().any(had_state) {
            wrong = Some(format!("nobody of {after:?} has the state of {before:?}"));
        }
        if let Some(wrong) = wrong {
            self.wrong = Some(format!("invariant: {wrong}"));
        }
    }
}
