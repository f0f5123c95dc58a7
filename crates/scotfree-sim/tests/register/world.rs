//! The world of the registers: writers, replicas, what goes wrong and what must hold.
//!
//! Invariant: a machine is believed nothing: what it says is compared with what disks hold.

use crate::machines::{number_of, token_of, writer_of, Completed, Message, Replica, Writer};
use crate::scenario::{Place, Scenario, Trouble};
use scotfree_core::{Effect, Effects, Machine, Nanos, Token};
use scotfree_sim::clock::Clock;
use scotfree_sim::media::{Crash, DiskTimes, Domain, Media};
use scotfree_sim::rng::PerMillion;
use scotfree_sim::{
    Alarm, Course, Depth, Engine, Happening, Incarnation, Loss, Packet, Protocol, Travel, Violation,
};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// A complete write is durable at a majority, from then on.
    HeldByMajority,
    /// No replica writes a lower number over a higher one.
    OnlyForward,
    /// No replica keeps what no writer has sent.
    Authentic,
    /// Once faults have stopped, all writes complete within a bound.
    Progress,
}

scotfree_sim::report! {
    /// How often what happened.
    pub struct Report {
        /// Writes completed.
        completed,
        /// Crashes of replicas.
        crashes,
        /// Records found after a crash.
        records_found,
        /// When the last write was complete, added up.
        completed_at_ns,
    }
}

impl Report {
    pub fn completed_at(&self) -> Nanos {
        Nanos(self.completed_at_ns)
    }
}

/// What the trace shows of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight(Option<Message>);

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A write is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done(u64);

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "has completed {}", self.0)
    }
}

pub enum Event {
    Committed(usize, Incarnation),
    Deadline,
}

const DISK: DiskTimes = DiskTimes {
    commit_min: Nanos::from_micros(50),
    commit_max: Nanos::from_micros(200),
    slow: PerMillion::percent(2),
};
/// How long all may take once the faults have stopped.
const RECOVERY_MAX: Nanos = Nanos::from_millis(500);

/// Whoever is at a place.
struct Node {
    place: Place,
    machine: Option<Box<dyn Machine<Own = Completed>>>,
    incarnation: Incarnation,
    clock: Clock,
    alarm: Alarm,
    media: Media,
}

pub struct World {
    engine: Engine<World>,
    scenario: Scenario,
    /// The writers, then the replicas.
    nodes: Vec<Node>,
    /// The highest number that each writer has sent, and was told is complete.
    sent: Vec<u64>,
    completed: Vec<u64>,
}

impl Protocol for World {
    type Scenario = Scenario;
    type Place = Place;
    type Sight = Sight;
    type Deed = Done;
    type Event = Event;
    type Trouble = Trouble;
    type Invariant = Invariant;
    type Report = Report;

    const PROGRESS: Invariant = Invariant::Progress;

    fn draw(seed: u64) -> Scenario {
        Scenario::random(seed)
    }

    fn new(seed: u64, scenario: Scenario, depth: Depth) -> World {
        let (quality, mishaps) = (scenario.network, scenario.mishaps.clone());
        let mut engine = Engine::new(seed, depth, Course { quality, mishaps, calm_at: scenario.calm_at });
        let places = (0..scenario.writer_count).map(Place::Writer);
        let places = places.chain((0..scenario.replica_count).map(Place::Replica));
        let nodes = places.map(|place| {
            let drift = engine.chance.work.below(2 * scenario.drift_ppm_max + 1) as i32;
            let shown = Nanos(engine.chance.work.below(1 << 40));
            Node {
                place,
                machine: None,
                incarnation: Incarnation::default(),
                clock: Clock::new(shown, drift - scenario.drift_ppm_max as i32),
                alarm: Alarm::NONE,
                media: Media::new(false),
            }
        });
        let (sent, completed) = (vec![0; scenario.writer_count], vec![0; scenario.writer_count]);
        World { nodes: nodes.collect(), engine, scenario, sent, completed }
    }

    fn engine(&self) -> &Engine<World> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<World> {
        &mut self.engine
    }

    fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    fn sight(bytes: &[u8]) -> Sight {
        Sight(Message::decode(bytes, false))
    }

    fn place_of(address: SocketAddr) -> Option<Place> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        match ip.octets() {
            [10, 0, 1, index] => Some(Place::Replica(usize::from(index))),
            [10, 0, 2, index] => Some(Place::Writer(usize::from(index))),
            _ => None,
        }
    }

    fn next_place(&self, _at: Place, target: Place) -> Place {
        target
    }

    fn begin(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.start(self.nodes[node].place));
    }

    fn start(&mut self, place: Place) {
        let planted = self.scenario.planted;
        let node = self.index_of(place);
        self.nodes[node].machine = Some(match place {
            Place::Writer(index) => {
                let Scenario { replica_count, write_count, .. } = self.scenario;
                Box::new(Writer::new(index, replica_count, write_count, planted))
            }
            Place::Replica(index) => {
                let records = self.nodes[node].media.scan(&mut self.engine.chance.media);
                self.engine.report.records_found += records.len() as u64;
                Box::new(Replica::new(index, self.scenario.writer_count, &records, planted))
            }
        });
        self.nodes[node].incarnation = self.nodes[node].incarnation.next();
        self.act(node, |_, _, _| {});
    }

    fn arrive(&mut self, place: Place, packet: Packet<Sight>) {
        let node = self.index_of(place);
        if self.nodes[node].machine.is_none() {
            return self.end(place, packet, Loss::Down);
        }
        self.engine.note(place, Happening::Arrived { sight: packet.sight });
        self.act(node, |machine, now, effects| {
            machine.on_message(now, packet.from, packet.to, &packet.bytes, effects);
        });
        self.engine.packets.recycle(packet.bytes);
    }

    fn wake(&mut self, place: Place) {
        let node = self.index_of(place);
        if self.nodes[node].alarm.rings(self.engine.now) {
            self.act(node, |machine, now, effects| machine.on_timer(now, effects));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Committed(node, incarnation) if self.nodes[node].incarnation == incarnation => {
                for token in self.nodes[node].media.end_commit() {
                    self.act(node, |machine, now, effects| machine.on_persisted(now, token, effects));
                }
            }
            Event::Committed(..) => {}
            Event::Deadline => {
                let detail = format!("{:?} are complete, of {}", self.completed, self.scenario.write_count);
                self.must(Err(Violation::new(Invariant::Progress, detail)));
            }
        }
    }

    fn befall(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Crash { replica, kind, down } => self.crash(Place::Replica(replica), kind, down),
            Trouble::Cut { from, to, span } => self.engine.cut(from, to, span),
            Trouble::JumpClock { place, jump_ns } => {
                let node = self.index_of(place);
                self.engine.note(place, Happening::Note("has its clock set", jump_ns.unsigned_abs()));
                self.nodes[node].clock.jump(self.engine.now, jump_ns);
                self.act(node, |_, _, _| {});
            }
        }
    }

    fn calmed(&mut self) {
        self.engine.note(Place::Writer(0), Happening::Note("is calm", 0));
        self.engine.after(RECOVERY_MAX, Event::Deadline);
    }

    fn saw(&mut self, at: Place, _to: SocketAddr, sight: &Sight, _bytes: &[u8]) {
        if let (Place::Writer(writer), Some(message)) = (at, sight.0) {
            self.sent[writer] = self.sent[writer].max(message.number);
        }
    }

    fn is_at_rest(&self) -> bool {
        let all_up = self.nodes.iter().all(|node| node.machine.is_some());
        all_up && self.completed.iter().all(|number| *number == self.scenario.write_count)
    }

    fn conclude(&mut self) {
        for writer in 0..self.completed.len() {
            self.must(self.held_by_majority(writer, self.completed[writer]));
        }
        self.engine.report.completed = self.completed.iter().sum();
    }
}

impl World {
    fn index_of(&self, place: Place) -> usize {
        match place {
            Place::Writer(index) => index,
            Place::Replica(index) => self.scenario.writer_count + index,
        }
    }

    /// Lets a role do something and carries out what it wishes for.
    fn act(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut dyn Machine<Own = Completed>, Nanos, &mut Effects<Completed>),
    ) {
        let mut effects = Effects::new();
        let now = self.nodes[node].clock.read(self.engine.now);
        let Some(machine) = self.nodes[node].machine.as_mut() else { return };
        act(machine.as_mut(), now, &mut effects);
        for effect in effects.iter() {
            match effect {
                Effect::Send { from, to, bytes } => {
                    self.send(self.nodes[node].place, *from, *to, effects.bytes(*bytes));
                }
                Effect::Persist { token, bytes } => self.persist(node, *token, effects.bytes(*bytes)),
                Effect::Erase { .. } => unreachable!("a replica forgets nothing"),
                Effect::Own(Completed(number)) => self.complete(node, *number),
            }
        }
        let Node { media, machine, clock, alarm, place, incarnation } = &mut self.nodes[node];
        if media.wants_commit() {
            media.begin_commit();
            let span = DISK.draw(&mut self.engine.chance.media);
            self.engine.after(span, Event::Committed(node, *incarnation));
        }
        if let Some(at) = machine.as_ref().and_then(|machine| machine.next_timer()) {
            alarm.set(*place, clock.when(at).max(self.engine.now), &mut self.engine.queue);
        }
    }

    fn persist(&mut self, node: usize, token: Token, record: &[u8]) {
        let (number, writer) = (number_of(record), writer_of(token));
        let media = &mut self.nodes[node].media;
        let before = media.latest(Domain::Disk, token).map_or(0, number_of);
        media.persist(Domain::Disk, token, record);
        if number > self.sent[writer] {
            let detail = format!("writer {writer} has sent {}, and {number} is kept", self.sent[writer]);
            self.must(Err(Violation::new(Invariant::Authentic, detail)));
        }
        if number < before {
            let detail = format!("{number} is written over {before}");
            self.must(Err(Violation::new(Invariant::OnlyForward, detail)));
        }
    }

    fn complete(&mut self, writer: usize, number: u64) {
        self.engine.note(Place::Writer(writer), Happening::Did(Done(number)));
        self.completed[writer] = number;
        self.engine.report.completed_at_ns = self.engine.now.0;
        self.must(self.held_by_majority(writer, number));
        let recovery = self.engine.now.since(self.scenario.calm_at);
        self.engine.report.tally.recovery_max = recovery.max(self.engine.report.tally.recovery_max);
    }

    fn held_by_majority(&self, writer: usize, number: u64) -> Result<(), Violation<Invariant>> {
        let slots = [token_of(writer as u16, 0), token_of(writer as u16, 1)];
        let holds = |node: &&Node| {
            let mut held = node.media.records(Domain::Disk).filter(|(token, _)| slots.contains(token));
            held.any(|(_, record)| number_of(record) >= number)
        };
        let holders = self.nodes[self.scenario.writer_count..].iter().filter(holds).count();
        if number == 0 || 2 * holders > self.scenario.replica_count {
            return Ok(());
        }
        let detail = format!("writer {writer}'s {number} is complete and held by {holders}");
        Err(Violation::new(Invariant::HeldByMajority, detail))
    }

    fn crash(&mut self, place: Place, kind: Crash, down: Nanos) {
        let node = self.index_of(place);
        let Node { machine, media, alarm, incarnation, .. } = &mut self.nodes[node];
        if machine.take().is_none() {
            return;
        }
        media.crash(kind, &mut self.engine.chance.media);
        *alarm = Alarm::NONE;
        *incarnation = incarnation.next();
        self.engine.report.crashes += 1;
        self.engine.note(place, Happening::Note("crashes", kind as u64));
        self.engine.comes_back(down, place);
    }
}
