//! The world: its roles, and how the engine's calls reach them.
//!
//! Invariant: nothing happens but through the engine's queue, in its order, and everything that chance
//! decides is drawn from its streams: one seed, one run.

mod answered;
mod capture;
mod client;
mod device;
mod mishap;
mod rest;
mod rotation;
mod server;
mod spy;

use crate::model::{Invariant, Promise, Violation};
use crate::place::{next_place, Place};
use crate::report::{Failure, Report};
use crate::scenario::{Detours, Drop, Judge, Scenario, Trouble};
use crate::strict::{self, Judgement};
use crate::trace::{Deed, Depth, Happening, Sight};
use answered::AnsweredReads;
use capture::Tap;
pub use capture::{capture, Seen};
use client::ClientNode;
use device::DeviceNode;
use rest::Phase;
use rotation::{KeyRange, Keys, Part};
use scotfree_core::{Effects, Nanos, SeqNum, SessionId};
use scotfree_device::Round;
use scotfree_session::{ClientOwn, Planted, ServerOwn};
use scotfree_sim::clock::Clock;
use scotfree_sim::rng::Rng;
use scotfree_sim::{Alarm, Course, Engine, Incarnation, Protocol};
use scotfree_wire::{ControlKeys, Direction};
use server::ServerNode;
use std::net::{Ipv4Addr, SocketAddr};

/// A packet under way.
type Packet = scotfree_sim::Packet<Sight>;

/// Runs a scenario with a seed.
pub fn run(seed: u64, scenario: Scenario, depth: Depth) -> Result<Report, Box<Failure>> {
    scotfree_sim::run::<World>(seed, scenario, depth)
}

/// What is going to happen here beside packets, timers and mishaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A client wants to make requests.
    Work(usize, Incarnation),
    /// A server's application has finished a request.
    Executed(usize, Incarnation),
    /// A server's storage is to be synced if something was written.
    SyncDue(usize, Incarnation),
    /// It is synced.
    Synced(usize, Incarnation),
    /// A device's disk has completed a commit.
    Committed(usize, Incarnation),
    /// Everybody of this part takes the cluster's key anew, with these epochs.
    Rekey(Part, KeyRange),
    /// The operator has noticed that a device is gone.
    Excluded(usize),
    /// A device that lives and is excluded leaves the path.
    TakenOut(usize),
    /// A device that was gone is put back into service.
    Reinstated(usize),
    /// What should have been done by now must be done.
    Deadline(Phase),
}

/// The world of one run: clients, devices, and servers, each with the model that judges it.
pub struct World {
    engine: Engine<World>,
    scenario: Scenario,
    clients: Vec<ClientNode>,
    devices: Vec<DeviceNode>,
    servers: Vec<ServerNode>,
    phase: Phase,
    phase_began: Nanos,
    answered: AnsweredReads,
    /// How many sessions the application has ended.
    failed_sessions: Vec<(usize, Incarnation, SessionId)>,
    /// Some clock was set: a lease may end early or late by it.
    clocks_were_set: bool,
    stamp_keys: ControlKeys,
    keys: Keys,
    buffers: Buffers,
    tap: Option<Tap>,
}

/// Effects on their way from a machine to the world; kept so that their memory is reused.
#[derive(Default)]
struct Buffers {
    client: Effects<ClientOwn>,
    device: Round,
    server: Effects<ServerOwn>,
}

fn server_address(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, index as u8 + 1), 51_000))
}

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
        [10, 0, 0, number] => Some(Place::Server(usize::from(number).checked_sub(1)?)),
        [10, 0, 1, index] => Some(Place::Device(usize::from(index))),
        [10, 0, 2, index] => Some(Place::Client(usize::from(index))),
        _ => None,
    }
}

impl Protocol for World {
    type Scenario = Scenario;
    type Place = Place;
    type Sight = Sight;
    type Deed = Deed;
    type Event = Event;
    type Trouble = Trouble;
    type Invariant = Invariant;
    type Report = Report;

    const PROGRESS: Invariant = Invariant::Progress;

    fn draw(seed: u64) -> Scenario {
        Scenario::random(seed)
    }

    fn new(seed: u64, scenario: Scenario, depth: Depth) -> World {
        let course = Course {
            quality: scenario.network,
            mishaps: scenario.mishaps.clone(),
            calm_at: scenario.calm_at,
        };
        let mut engine = Engine::new(seed, depth, course);
        let chance = &mut engine.chance;
        // The last clients are the auditors, one a server, who read everything when the world has come to rest.
        let clients = (0..scenario.client_count + scenario.server_count)
            .map(|index| ClientNode::new(index, &scenario, &mut chance.work));
        World {
            clients: clients.collect(),
            devices: (0..scenario.device_count)
                .map(|_| DeviceNode::new(&scenario, &mut chance.media))
                .collect(),
            servers: (0..scenario.server_count)
                .map(|server| ServerNode::new(server, &scenario, &mut chance.service))
                .collect(),
            keys: Keys::new(scenario.server_count),
            engine,
            scenario,
            phase: Phase::Faulty,
            phase_began: Nanos(0),
            answered: AnsweredReads::default(),
            failed_sessions: Vec::new(),
            clocks_were_set: false,
            stamp_keys: KeyRange::ALL.key().controls(Direction::Stamp),
            buffers: Buffers::default(),
            tap: None,
        }
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
        Sight::of(bytes)
    }

    fn place_of(address: SocketAddr) -> Option<Place> {
        place_of(address)
    }

    fn next_place(&self, at: Place, target: Place) -> Place {
        next_place(at, target, self.devices.len())
    }

    /// Between clients and server there may be a way around the devices.
    fn has_detour(&self, at: Place, target: Place) -> bool {
        let between_ends = matches!(
            (at, target),
            (Place::Client(_), Place::Server(_)) | (Place::Server(_), Place::Client(_))
        );
        let is_open = match self.scenario.detours {
            Detours::Always => !self.devices.is_empty(),
            Detours::AroundExcluded => self.all_go_on_without_one(),
        };
        between_ends && is_open
    }

    fn vanishes(&mut self, at: Place, sight: &Sight) -> bool {
        self.is_swallowed(at, sight)
    }

    fn vanishes_between(&mut self, at: Place, next: Place, sight: &Sight) -> bool {
        let wanted = |drop: &&mut Drop| {
            let place = drop.seq == SeqNum(0) || drop.seq == sight.seq;
            drop.count > 0 && drop.from == at && drop.to == next && Some(drop.kind) == sight.kind && place
        };
        let found = self.scenario.drops.iter_mut().find(wanted);
        found.map(|drop| drop.count -= 1).is_some()
    }

    fn begin(&mut self) {
        (0..self.servers.len()).for_each(|server| self.start_server(server));
        (0..self.devices.len()).for_each(|device| self.start_device(device));
        // Clients come when the server serves: where nothing is sent again, an opening is not either.
        for client in 0..self.scenario.client_count {
            self.engine.comes_back(Nanos::from_millis(1), Place::Client(client));
        }
    }

    fn start(&mut self, place: Place) {
        match place {
            // Whoever comes back when all is being closed, or to a server that does not, has nothing to do any more.
            Place::Client(client) if self.phase <= Phase::Settle && !self.is_given_up(client) => {
                self.open_client(client);
            }
            Place::Client(_) => {}
            Place::Device(device) => self.start_device(device),
            Place::Server(server) => self.start_server(server),
        }
    }

    fn arrive(&mut self, place: Place, packet: Packet) {
        match place {
            Place::Client(client) => self.arrive_at_client(client, packet),
            Place::Device(device) => self.arrive_at_device(device, packet),
            Place::Server(server) => self.arrive_at_server(server, packet),
        }
    }

    fn wake(&mut self, place: Place) {
        match place {
            Place::Client(client) => self.wake_client(client),
            Place::Device(device) => self.wake_device(device),
            Place::Server(server) => self.wake_server(server),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Work(client, incarnation) => self.work(client, incarnation),
            Event::Executed(server, incarnation) => self.executed(server, incarnation),
            Event::SyncDue(server, incarnation) => self.sync_due(server, incarnation),
            Event::Synced(server, incarnation) => self.synced(server, incarnation),
            Event::Committed(device, incarnation) => self.committed(device, incarnation),
            Event::Rekey(part, range) => self.rekey(part, range),
            Event::Excluded(device) => self.exclude_device(device),
            Event::TakenOut(device) => self.take_out(device),
            Event::Reinstated(device) => self.reinstate_device(device),
            Event::Deadline(phase) => self.deadline(phase),
        }
    }

    fn befall(&mut self, trouble: Trouble) {
        self.go_wrong(trouble);
    }

    /// Packets that are under way may still be late.
    fn calmed(&mut self) {
        self.note(Place::Server(0), Happening::Note("all faults stop", 0));
        self.give_up_lost_servers();
        self.enter(Phase::Settle);
    }

    fn saw(&mut self, at: Place, to: SocketAddr, sight: &Sight, bytes: &[u8]) {
        self.spy(at, to, sight, bytes);
    }

    fn stepped(&mut self) {
        self.advance_phase();
    }

    fn is_at_rest(&self) -> bool {
        self.phase == Phase::Rest
    }

    fn conclude(&mut self) {
        if !self.engine.is_broken() && !self.scenario.servers_write() {
            for server in 0..self.servers.len() {
                let node = &self.servers[server];
                let verdict = node.model.check_history(&node.storage, self.scenario.work.cell_count);
                self.must(verdict);
            }
        }
        (0..self.servers.len()).for_each(|server| self.judge_clients(server));
        self.collect_counters();
    }

    /// Where clients judge, only that nothing goes on any more ends a run early.
    fn must(&mut self, verdict: Result<(), Violation>) {
        let Err(violation) = verdict else { return };
        let stands_still = matches!(violation.invariant, Invariant::Progress | Invariant::LogsEmpty);
        match self.scenario.judge {
            Judge::Everyone => self.engine.break_with(violation),
            Judge::Clients | Judge::ClientsAsIfStrict if stands_still => self.phase = Phase::Rest,
            Judge::Clients | Judge::ClientsAsIfStrict => {}
        }
    }
}

impl World {
    fn note(&mut self, place: Place, what: Happening) {
        self.engine.note(place, what);
    }

    /// What a server's clients saw must be explained by some order, if everything was promised. Servers share
    /// nothing, so that orders of each explain all.
    fn judge_clients(&mut self, server: usize) {
        let model = &self.servers[server].model;
        if model.promise() < Promise::Full || self.engine.is_broken() {
            return;
        }
        let relaxed_too = self.scenario.judge == Judge::ClientsAsIfStrict;
        self.engine.report.histories_judged += 1;
        match strict::judge(self.servers[server].model.calls(), self.scenario.work.cell_count, relaxed_too) {
            Judgement::Explained => {}
            Judgement::Undecided => self.engine.report.histories_undecided += 1,
            Judgement::Unexplained(how) => self.engine.break_with(Violation::new(Invariant::Strict, how)),
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
