//! The world: one queue of events, the roles, and what lies between them.
//!
//! Invariant: nothing happens but through the queue, in its order, and everything that chance
//! decides is drawn from streams that the seed names: one seed, one run.

mod capture;
mod client;
mod device;
mod mishap;
mod rest;
mod rotation;
mod server;
mod spy;
mod travel;

use crate::clock::Clock;
use crate::model::{Invariant, Model, Promise, Violation};
use crate::network::{Cuts, Place, Quality};
use crate::queue::Queue;
use crate::report::{Failure, Report};
use crate::rng::Rng;
use crate::scenario::{Judge, Mishap, Scenario, When};
use crate::strict::{self, Judgement};
use crate::trace::{Depth, Entry, Happening, Trace};
use capture::Tap;
pub use capture::{capture, Seen};
use client::ClientNode;
use device::DeviceNode;
use rest::Phase;
use rotation::{KeyRange, Keys, Part};
use scotfree_core::{Effects, Nanos, SessionId};
use scotfree_device::Round;
use scotfree_session::{ClientOwn, Planted, ServerOwn};
use scotfree_wire::{ControlKeys, Direction};
use server::ServerNode;
use std::net::{Ipv4Addr, SocketAddr};
use travel::{PacketId, Packets};

/// Runs a scenario with a seed.
pub fn run(seed: u64, scenario: Scenario, depth: Depth) -> Result<Report, Box<Failure>> {
    World::new(seed, scenario, depth).run()
}

/// Something that is going to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A packet arrives.
    Arrive(Place, PacketId),
    /// A role asked to be woken.
    Wake(Place),
    /// A client wants to make requests.
    Work(usize, Incarnation),
    /// The application has finished a request.
    Executed(Incarnation),
    /// The server's storage is to be synced if something was written.
    SyncDue(Incarnation),
    /// It is synced.
    Synced(Incarnation),
    /// A device's disk has completed a commit.
    Committed(usize, Incarnation),
    /// Something goes wrong.
    Mishap(usize),
    /// Everybody of this part takes the cluster's key anew, with these epochs.
    Rekey(Part, KeyRange),
    /// A role comes back.
    Return(Place),
    /// A cut link is whole again.
    Heal(Place, Place),
    /// The operator has noticed that a device is gone.
    Excluded(usize),
    /// A device that lives and is excluded leaves the path.
    TakenOut(usize),
    /// A device that was gone is put back into service.
    Reinstated(usize),
    /// All faults stop.
    Calm,
    /// What should have been done by now must be done.
    Deadline(Phase),
}

/// Tells the events of a role's earlier lives from those of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Incarnation(u32);

impl Incarnation {
    fn next(self) -> Incarnation {
        Incarnation(self.0 + 1)
    }
}

/// More steps than any run should take.
const STEPS_MAX: u64 = 400_000;

struct World {
    seed: u64,
    scenario: Scenario,
    now: Nanos,
    step: u64,
    queue: Queue<Event>,
    chance: Chance,
    clients: Vec<ClientNode>,
    devices: Vec<DeviceNode>,
    server: ServerNode,
    quality: Quality,
    cuts: Cuts,
    packets: Packets,
    phase: Phase,
    phase_began: Nanos,
    /// How many sessions the application has ended.
    failed_sessions: Vec<(Incarnation, SessionId)>,
    /// Some clock was set: a lease may end early or late by it.
    clocks_were_set: bool,
    /// Mishaps that wait for their step, the next one last.
    at_steps: Vec<(u64, usize)>,
    model: Model,
    report: Report,
    trace: Trace,
    violation: Option<Violation>,
    stamp_keys: ControlKeys,
    keys: Keys,
    buffers: Buffers,
    tap: Option<Tap>,
}

/// Streams of chance, one per concern.
struct Chance {
    network: Rng,
    media: Rng,
    service: Rng,
    work: Rng,
}

impl Chance {
    fn new(seed: u64) -> Chance {
        let stream = |label| Rng::new(seed, label);
        Chance { network: stream(2), media: stream(3), service: stream(4), work: stream(5) }
    }
}

/// Effects on their way from a machine to the world; kept so that their memory is reused.
#[derive(Default)]
struct Buffers {
    client: Effects<ClientOwn>,
    device: Round,
    server: Effects<ServerOwn>,
}

const SERVER_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 51_000);

fn device_address(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, index as u8), 51_001))
}

fn client_address(index: usize, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 2, index as u8), port))
}

/// Whose address it is.
fn place_of(address: SocketAddr) -> Option<Place> {
    let std::net::IpAddr::V4(ip) = address.ip() else { return None };
    match ip.octets() {
        [10, 0, 0, 1] => Some(Place::Server),
        [10, 0, 1, index] => Some(Place::Device(usize::from(index))),
        [10, 0, 2, index] => Some(Place::Client(usize::from(index))),
        _ => None,
    }
}

impl World {
    fn new(seed: u64, scenario: Scenario, depth: Depth) -> World {
        let mut chance = Chance::new(seed);
        // The last client is the auditor, who reads everything when the world has come to rest.
        let clients =
            (0..=scenario.client_count).map(|index| ClientNode::new(index, &scenario, &mut chance.work));
        World {
            clients: clients.collect(),
            devices: (0..scenario.device_count)
                .map(|_| DeviceNode::new(&scenario, &mut chance.media))
                .collect(),
            server: ServerNode::new(&scenario, &mut chance.service),
            quality: scenario.network,
            model: Model::new(scenario.device_count, scenario.device_acks),
            report: Report { runs: 1, ..Report::default() },
            trace: Trace::new(depth),
            seed,
            scenario,
            now: Nanos(0),
            step: 0,
            queue: Queue::new(),
            chance,
            cuts: Cuts::default(),
            packets: Packets::default(),
            phase: Phase::Faulty,
            phase_began: Nanos(0),
            failed_sessions: Vec::new(),
            clocks_were_set: false,
            at_steps: Vec::new(),
            violation: None,
            stamp_keys: KeyRange::ALL.key().controls(Direction::Stamp),
            keys: Keys::default(),
            buffers: Buffers::default(),
            tap: None,
        }
    }

    fn run(mut self) -> Result<Report, Box<Failure>> {
        self.come_to_rest();
        self.finish()
    }

    fn come_to_rest(&mut self) {
        self.begin();
        while self.violation.is_none() && self.phase != Phase::Rest {
            let Some((at, event)) = self.queue.pop() else {
                self.must(Err(Violation::new(Invariant::Progress, "nothing is going to happen any more")));
                break;
            };
            self.now = at;
            self.step += 1;
            if self.step == STEPS_MAX {
                self.must(Err(Violation::new(Invariant::Progress, "the world does not come to rest")));
            }
            self.mishaps_of_this_step();
            self.happen(event);
            self.advance_phase();
        }
    }

    fn begin(&mut self) {
        self.start_server();
        (0..self.devices.len()).for_each(|device| self.start_device(device));
        // Clients come when the server serves: where nothing is sent again, an opening is not either.
        for client in 0..self.scenario.client_count {
            self.queue.push(Nanos::from_millis(1), Event::Return(Place::Client(client)));
        }
        for (index, Mishap { when, .. }) in self.scenario.mishaps.iter().enumerate() {
            match when {
                When::Time(at) => self.queue.push(*at, Event::Mishap(index)),
                When::Step(step) => self.at_steps.push((*step, index)),
            }
        }
        self.at_steps.sort_unstable_by(|one, other| other.cmp(one));
        self.queue.push(self.scenario.calm_at, Event::Calm);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(place, packet) => self.arrive(place, packet),
            Event::Wake(place) => self.wake(place),
            Event::Work(client, incarnation) => self.work(client, incarnation),
            Event::Executed(incarnation) => self.executed(incarnation),
            Event::SyncDue(incarnation) => self.sync_due(incarnation),
            Event::Synced(incarnation) => self.synced(incarnation),
            Event::Committed(device, incarnation) => self.committed(device, incarnation),
            Event::Mishap(index) => self.befall(self.scenario.mishaps[index].what),
            Event::Rekey(part, range) => self.rekey(part, range),
            Event::Return(place) => self.come_back(place),
            Event::Heal(from, to) => self.cuts.heal(from, to),
            Event::Excluded(device) => self.exclude_device(device),
            Event::TakenOut(device) => self.take_out(device),
            Event::Reinstated(device) => self.reinstate_device(device),
            Event::Calm => self.become_calm(),
            Event::Deadline(phase) => self.deadline(phase),
        }
    }

    fn mishaps_of_this_step(&mut self) {
        while let Some((_, index)) = self.at_steps.last().copied().filter(|(step, _)| *step <= self.step) {
            self.at_steps.pop();
            self.befall(self.scenario.mishaps[index].what);
        }
    }

    fn wake(&mut self, place: Place) {
        match place {
            Place::Client(client) => self.wake_client(client),
            Place::Device(device) => self.wake_device(device),
            Place::Server => self.wake_server(),
        }
    }

    fn come_back(&mut self, place: Place) {
        self.note(place, Happening::Note("comes back", 0));
        match place {
            // Whoever comes back when all is being closed has nothing to do any more.
            Place::Client(client) if self.phase <= Phase::Settle => self.open_client(client),
            Place::Client(_) => {}
            Place::Device(device) => self.start_device(device),
            Place::Server => self.start_server(),
        }
    }

    fn note(&mut self, place: Place, what: Happening) {
        self.trace.note(Entry { at: self.now, step: self.step, place, what });
    }

    /// Records the first broken invariant, which ends the run; where clients judge, only that nothing
    /// goes on any more ends it early.
    fn must(&mut self, verdict: Result<(), Violation>) {
        let Err(violation) = verdict else { return };
        let stands_still = matches!(violation.invariant, Invariant::Progress | Invariant::LogsEmpty);
        match self.scenario.judge {
            Judge::Everyone => {
                self.violation.get_or_insert(violation);
            }
            Judge::Clients | Judge::ClientsAsIfStrict if stands_still => self.phase = Phase::Rest,
            Judge::Clients | Judge::ClientsAsIfStrict => {}
        }
    }

    /// What clients saw must be explained by some order, if everything was promised.
    fn judge_clients(&mut self) {
        if self.model.promise() < Promise::Full || self.violation.is_some() {
            return;
        }
        let relaxed_too = self.scenario.judge == Judge::ClientsAsIfStrict;
        self.report.histories_judged += 1;
        match strict::judge(self.model.calls(), self.scenario.work.cell_count, relaxed_too) {
            Judgement::Explained => {}
            Judgement::Undecided => self.report.histories_undecided += 1,
            Judgement::Unexplained(how) => self.violation = Some(Violation::new(Invariant::Strict, how)),
        }
    }

    fn finish(mut self) -> Result<Report, Box<Failure>> {
        if self.violation.is_none() {
            let verdict = self.model.check_history(&self.server.storage, self.scenario.work.cell_count);
            self.must(verdict);
        }
        self.judge_clients();
        self.collect_counters();
        self.report.steps = self.step;
        self.report.virtual_ns = self.now.0;
        self.report.trace_hash = self.trace.hash();
        match self.violation {
            None => Ok(self.report),
            Some(violation) => Err(Box::new(Failure {
                seed: self.seed,
                step: self.step,
                at: self.now,
                violation,
                scenario: format!("{:?}", self.scenario),
                trace: self.trace.take(),
            })),
        }
    }

    #[cfg_attr(not(feature = "planted-faults"), expect(clippy::unused_self, reason = "nothing is planted"))]
    fn planted(&self) -> Planted {
        #[cfg(feature = "planted-faults")]
        if let Some(fault) = self.scenario.planted {
            return Planted::some(fault);
        }
        Planted::NONE
    }
}

/// A clock that shows any time of the first months, as clocks do.
fn draw_clock(rng: &mut Rng, drift_ppm_max: u32) -> Clock {
    let shown = Nanos(rng.between(1, 10_000_000) * 1_000_000_000);
    let drift = rng.below(2 * u64::from(drift_ppm_max) + 1) as i32 - drift_ppm_max as i32;
    Clock::new(shown, drift)
}

/// When a role wants to be woken, and for when that stands in the queue.
#[derive(Debug, Clone, Copy)]
struct Alarm {
    set_for: Nanos,
}

impl Alarm {
    const NONE: Alarm = Alarm { set_for: Nanos::MAX };

    /// Puts a wake-up into the queue unless one stands there that is as early.
    fn set(&mut self, place: Place, at: Nanos, queue: &mut Queue<Event>) {
        if at < self.set_for {
            self.set_for = at;
            queue.push(at, Event::Wake(place));
        }
    }

    /// Whether this wake-up is the one that was set.
    fn rings(&mut self, now: Nanos) -> bool {
        let rings = self.set_for == now;
        if rings {
            *self = Alarm::NONE;
        }
        rings
    }
}
