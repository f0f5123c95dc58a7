//! The world of one group: its members and clients, what goes wrong, and what must hold.
//!
//! Invariant: an answer leaves a member when the machine has said that it is stable, as a server's runtime does it.

use crate::client::{Client, Parcel};
use crate::device::{self, Device};
use crate::membership::Membership;
use crate::model::{Numbers, Op, Reply};
use crate::scenario::{Place, Protocol as Kind, Scenario, Trouble};
use crate::state::{read_reply, Kept, SimState};
use remedy_replicate::{
    group_name_hash, read_head, Chain, Decline, Head, Hermes, Limits, Member, MemberConfig, MemberId,
    ReadsAt, Replica, ReplicaOwn, StableWhen, Standing, View, Write,
};
use scotfree_check::{check, Answer, Limits as CheckLimits, Operation, Verdict};
use scotfree_core::{Effect, Effects, Nanos, SeqNum, SessionId};
use scotfree_sim::clock::Clock;
use scotfree_sim::{
    Alarm, Course, Depth, Engine, Happening, Incarnation, Loss, Packet, Protocol, Travel, Violation,
};
use scotfree_state::{request_of, State};
use scotfree_wire::{ClusterKey, Direction, Identity};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// Some order of all requests, each executed once, explains what clients saw.
    Linearizable,
    /// What is stable is with every full member, in memory or in storage.
    StableEverywhere,
    /// At rest all full members hold the same.
    Alike,
    /// All that a device has acknowledged is executed once, in the order of its session.
    InOrder,
    /// Once faults have stopped, all requests are answered within a bound.
    Progress,
}

scotfree_sim::report! {
    /// How often what happened.
    pub struct Report {
        /// Requests answered.
        answered,
        /// Of these, refused by the application.
        refused,
        /// Requests sent to another member under the same identity.
        sent_elsewhere,
        /// Requests declined by a member.
        declined,
        /// Crashes of members.
        crashes,
        /// Pauses.
        pauses,
        /// Views.
        views,
        /// Members that joined and became full.
        promoted,
        /// All full members were gone, and the group began anew.
        begun_anew,
        /// Runs in which that lost what was only in memory; they are not judged.
        memory_lost,
        /// Writes that a member knew by their identity.
        known,
        /// Reads answered by the member that got them.
        reads_here,
        /// Reads that asked another member.
        reads_asked,
        /// Messages that members sent again.
        resent,
        /// States given to joiners.
        snapshots,
        /// Datagrams of another epoch.
        other_epoch,
        /// Writes that devices have acknowledged.
        owed,
        /// Times that one of these was turned away, and was submitted again.
        turned_away,
    }
}

/// What the trace shows of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Between members.
    Peers(Head, usize),
    /// Between a client and a member: the client, its request's number, and which of the three.
    Clients(u8, u64, u8),
    /// Damaged.
    Unknown,
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sight::Peers(head, bytes) => {
                write!(f, "{} -> {} in epoch {}, {bytes} bytes", head.from, head.to, head.epoch)
            }
            Sight::Clients(client, number, kind) => {
                write!(
                    f,
                    "request {number} of client {client} ({})",
                    ["asked", "answered", "declined"][usize::from(*kind).min(2)]
                )
            }
            Sight::Unknown => f.write_str("damaged"),
        }
    }
}

/// What members do beside sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deed(&'static str, u64);

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

#[derive(Debug)]
pub enum Event {
    /// A member sends its keep-alive.
    KeepAlive(usize, Incarnation),
    /// It has come to the membership, sent at this time of the member's clock.
    Heard(usize, Incarnation, Nanos),
    /// The membership looks after its view.
    Look,
    /// A view reaches a member.
    View(usize, Incarnation, View),
    /// Storage has gone on.
    Stored(usize, Incarnation, u64),
    /// A client writes, by way of the device before a member.
    Owe(usize),
    /// What came to a member that pauses.
    Resume(usize, Incarnation),
    Deadline,
}

/// How long all may take once the faults have stopped.
const RECOVERY_MAX: Nanos = Nanos::from_secs(4);
const CLIENTS_PORT: u16 = 2;

type Machine = Box<dyn Replica<State = SimState>>;

/// A ticket at a member: whose request it is, and its answer if it waits to be stable.
struct Ticket {
    identity: Identity,
    client: SocketAddr,
    answer: Option<Vec<u8>>,
    is_stable: bool,
}

struct Node {
    machine: Option<Machine>,
    stored: Kept,
    boot: u32,
    incarnation: Incarnation,
    clock: Clock,
    alarm: Alarm,
    paused_until: Nanos,
    silent_until: Nanos,
    held: Vec<Packet<Sight>>,
    tickets: BTreeMap<u64, Ticket>,
    ticket: u64,
    stores: bool,
    view: Option<View>,
    /// The epoch of the last view in which it was in any of its lives.
    epoch: u64,
    /// What was stored of [`Replica::lineage`].
    lineage: Option<u64>,
    device: Device,
}

/// The world of one run.
pub struct World {
    engine: Engine<World>,
    scenario: Scenario,
    nodes: Vec<Node>,
    alarms: Vec<Alarm>,
    clients: Vec<Client>,
    members: Vec<Member>,
    membership: Membership,
    history: Vec<Operation<Op, Reply>>,
    is_memory_lost: bool,
    key: ClusterKey,
}

fn member_address(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, index as u8), 1))
}

fn client_address(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 2, index as u8), CLIENTS_PORT))
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
        Scenario::craq(seed)
    }

    fn new(seed: u64, scenario: Scenario, depth: Depth) -> World {
        let (quality, mishaps) = (scenario.network, scenario.mishaps.clone());
        let mut engine = Engine::new(seed, depth, Course { quality, mishaps, calm_at: scenario.calm_at });
        let boot = u32::from(!scenario.is_static);
        let members: Vec<Member> =
            (0..scenario.member_count).map(|index| Member { boot, ..member_of(index) }).collect();
        let view = View { epoch: 1, founded: 1, members: members.clone() };
        let nodes = (0..scenario.member_count).map(|_| {
            let drift = engine.chance.work.below(2 * scenario.drift_ppm_max + 1) as i32;
            let shown = Nanos(engine.chance.work.below(1 << 40));
            let clock = Clock::new(shown, drift - scenario.drift_ppm_max as i32);
            Node::new(clock, Device::new(scenario.owed_count))
        });
        let nodes = nodes.collect();
        World {
            nodes,
            alarms: vec![Alarm::NONE; scenario.client_count],
            clients: (0..scenario.client_count)
                .map(|index| Client::new(index, scenario.request_count))
                .collect(),
            membership: Membership::new(view, scenario.lease),
            members,
            history: Vec::new(),
            is_memory_lost: false,
            key: ClusterKey::from_bytes([7; 32]),
            engine,
            scenario,
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
        if let Some(head) = read_head(bytes) {
            return Sight::Peers(head, bytes.len());
        }
        Parcel::read(bytes).map_or(Sight::Unknown, |parcel| {
            Sight::Clients(parcel.identity.client[0], request_of(&parcel.identity).1, parcel.kind)
        })
    }

    fn place_of(address: SocketAddr) -> Option<Place> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        match ip.octets() {
            [10, 0, 1, index] => Some(Place::Member(usize::from(index))),
            [10, 0, 2, index] => Some(Place::Client(usize::from(index))),
            _ => None,
        }
    }

    fn next_place(&self, _at: Place, target: Place) -> Place {
        target
    }

    fn begin(&mut self) {
        (0..self.nodes.len()).for_each(|index| self.start(Place::Member(index)));
        let view = self.membership.view.clone();
        (0..self.nodes.len()).for_each(|index| self.give_view(index, &view));
        (0..self.clients.len()).for_each(|index| self.ask_next(index));
        if self.scenario.owed_count > 0 {
            (0..self.nodes.len()).for_each(|index| self.engine.after(Nanos(0), Event::Owe(index)));
        }
        self.engine.after(self.scenario.lease, Event::Look);
    }

    fn start(&mut self, place: Place) {
        let Place::Member(index) = place else { return };
        let node = &mut self.nodes[index];
        node.boot += 1;
        node.device.begin_life();
        node.incarnation = node.incarnation.next();
        let machine = self.machine(index);
        self.nodes[index].machine = Some(machine);
        if self.scenario.is_static {
            self.act(index, |machine, _, _| machine.on_lease(Nanos::MAX));
        }
        let incarnation = self.nodes[index].incarnation;
        self.engine.after(Nanos(0), Event::KeepAlive(index, incarnation));
    }

    fn arrive(&mut self, place: Place, packet: Packet<Sight>) {
        match place {
            Place::Client(index) => self.arrive_at_client(index, packet),
            Place::Member(index) => self.arrive_at_member(index, packet),
        }
    }

    fn wake(&mut self, place: Place) {
        match place {
            Place::Client(index) => {
                if self.alarms[index].rings(self.engine.now) {
                    self.try_elsewhere(index);
                }
            }
            Place::Member(index) => {
                if self.nodes[index].paused_until > self.engine.now {
                    return;
                }
                if self.nodes[index].alarm.rings(self.engine.now) {
                    self.act(index, |machine, now, effects| machine.on_timer(now, effects));
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::KeepAlive(index, incarnation) => self.keep_alive(index, incarnation),
            Event::Heard(index, incarnation, sent) => self.heard(index, incarnation, sent),
            Event::Look => self.look(),
            Event::View(index, incarnation, view) => {
                if self.lives(index, incarnation) {
                    self.take_view(index, &view);
                }
            }
            Event::Stored(index, incarnation, through) => self.stored(index, incarnation, through),
            Event::Owe(index) => self.owe(index),
            Event::Resume(index, incarnation) => self.resume(index, incarnation),
            Event::Deadline => self.must(Err(self.unfinished())),
        }
    }

    fn befall(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Crash { member, down } => self.crash(member, down),
            Trouble::Pause { member, span } => self.pause(member, span),
            Trouble::Cut { from, to, span } if from != to => self.engine.cut(from, to, span),
            Trouble::Cut { .. } => {}
            Trouble::Silence { member, span } => {
                self.engine
                    .note(Place::Member(member), Happening::Note("does not reach the membership", span.0));
                self.nodes[member].silent_until = self.engine.now.plus(span);
            }
        }
    }

    fn calmed(&mut self) {
        self.engine.note(Place::Client(0), Happening::Note("is calm", 0));
        self.nodes.iter_mut().for_each(|node| node.silent_until = Nanos(0));
        if self.scenario.goes_on {
            self.must(self.judge_progress());
        }
        self.engine.after(RECOVERY_MAX, Event::Deadline);
    }

    fn is_at_rest(&self) -> bool {
        let is_done = self.has_answered_all();
        let is_whole = self.membership.view.full().count() == self.nodes.len();
        is_done && is_whole && self.nodes.iter().all(|node| node.machine.is_some()) && self.are_alike()
    }

    fn conclude(&mut self) {
        self.count();
        if self.is_memory_lost {
            self.engine.report.memory_lost += 1;
            return;
        }
        self.must(self.judge_owed());
        let limits = CheckLimits { steps_max: 3_000_000, ..CheckLimits::default() };
        if let Verdict::Violation(violation) = check(&Numbers, &self.history, limits) {
            let detail = violation.describe(&Numbers, &self.history);
            self.must(Err(Violation::new(Invariant::Linearizable, detail)));
        }
    }
}

/// The owed write that something is of, if it is of one.
fn owed_place(own: ReplicaOwn) -> Option<u64> {
    match own {
        ReplicaOwn::Answer { ticket, .. }
        | ReplicaOwn::Decline { ticket, .. }
        | ReplicaOwn::Stable { ticket }
        | ReplicaOwn::Lost { ticket } => device::place_of(ticket),
        ReplicaOwn::Promote { .. } => None,
    }
}

fn member_of(index: usize) -> Member {
    let peers = member_address(index);
    Member { id: MemberId(index as u8 + 1), boot: 1, peers, clients: peers, standing: Standing::Full }
}

impl Node {
    fn new(clock: Clock, device: Device) -> Node {
        Node {
            machine: None,
            stored: Kept::new(),
            boot: 0,
            incarnation: Incarnation::default(),
            clock,
            alarm: Alarm::NONE,
            paused_until: Nanos(0),
            silent_until: Nanos(0),
            held: Vec::new(),
            tickets: BTreeMap::new(),
            ticket: 0,
            stores: false,
            view: None,
            epoch: 0,
            lineage: None,
            device,
        }
    }
}

impl World {
    fn machine(&mut self, index: usize) -> Machine {
        let node = &self.nodes[index];
        let config = MemberConfig {
            group: group_name_hash("world", self.scenario.protocol.name()),
            id: MemberId(index as u8 + 1),
            boot: node.boot,
            address: member_address(index),
            keys: self.key.controls(Direction::MemberToMember),
            real_ms_at_zero: 0,
            stable_when: self.scenario.stable_when,
            lineage: node.lineage,
            limits: Limits {
                kept_bytes_max: 200,
                window_bytes_max: self.scenario.window_bytes_max,
                retry_max: Nanos::from_millis(20),
                ..Limits::default()
            },
            planted: self.scenario.planted,
        };
        let state = SimState::open(node.stored.clone());
        match self.scenario.protocol {
            Kind::Chain => Box::new(Chain::new(config, ReadsAt::Tail, state)),
            Kind::Craq => Box::new(Chain::new(config, ReadsAt::Anyone, state)),
            Kind::Hermes => Box::new(Hermes::new(config, state)),
        }
    }

    fn lives(&self, index: usize, incarnation: Incarnation) -> bool {
        self.nodes[index].incarnation == incarnation && self.nodes[index].machine.is_some()
    }

    // ---- members

    fn act(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut dyn Replica<State = SimState>, Nanos, &mut Effects<ReplicaOwn>),
    ) {
        self.act_once(index, act);
        self.tend_device(index);
        self.must(self.judge_order(index));
    }

    fn act_once(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut dyn Replica<State = SimState>, Nanos, &mut Effects<ReplicaOwn>),
    ) {
        let now = self.nodes[index].clock.read(self.engine.now);
        let mut effects = Effects::new();
        let Some(machine) = self.nodes[index].machine.as_mut() else { return };
        act(machine.as_mut(), now, &mut effects);
        machine.flush(now, &mut effects);
        let lineage = machine.lineage();
        self.nodes[index].lineage = lineage;
        for effect in effects.iter() {
            match effect {
                Effect::Send { from, to, bytes } => {
                    self.send(Place::Member(index), *from, *to, effects.bytes(*bytes));
                }
                Effect::Own(own) => self.on_own(index, *own, &effects),
                Effect::Persist { .. } | Effect::Erase { .. } => unreachable!("the state stores"),
            }
        }
        self.store_and_sleep(index);
    }

    fn store_and_sleep(&mut self, index: usize) {
        let Node { machine, stores, incarnation, alarm, clock, .. } = &mut self.nodes[index];
        let Some(machine) = machine else { return };
        if let Some(number) = machine.state().wants_storing().filter(|_| !*stores) {
            *stores = true;
            let span = self.engine.chance.media.span(Nanos(0), self.scenario.storing_max);
            self.engine.after(span, Event::Stored(index, *incarnation, number));
        }
        if let Some(at) = machine.next_timer() {
            alarm.set(Place::Member(index), clock.when(at).max(self.engine.now), &mut self.engine.queue);
        }
    }

    fn stored(&mut self, index: usize, incarnation: Incarnation, through: u64) {
        if !self.lives(index, incarnation) {
            return;
        }
        self.nodes[index].stores = false;
        if let Some(machine) = self.nodes[index].machine.as_mut() {
            machine.state_mut().note_stored(through);
            self.nodes[index].stored = machine.state().stored.clone();
        }
        self.act(index, |machine, now, effects| machine.on_stored(now, effects));
    }

    fn on_own(&mut self, index: usize, own: ReplicaOwn, effects: &Effects<ReplicaOwn>) {
        if let Some(place) = owed_place(own) {
            return self.on_owed(index, place, own);
        }
        match own {
            ReplicaOwn::Answer { ticket, reply, .. } => {
                if let Some(ticket) = self.nodes[index].tickets.get_mut(&ticket) {
                    assert!(ticket.answer.is_none(), "a request is answered once per ticket");
                    ticket.answer = Some(effects.bytes(reply).to_vec());
                }
            }
            ReplicaOwn::Stable { ticket } => {
                self.judge_stable(index, ticket);
                if let Some(ticket) = self.nodes[index].tickets.get_mut(&ticket) {
                    ticket.is_stable = true;
                }
                self.reply(index, ticket);
            }
            ReplicaOwn::Decline { ticket, why } => {
                self.decline(index, ticket, Deed("declines a request", why as u64));
            }
            ReplicaOwn::Lost { ticket } => self.decline(index, ticket, Deed("loses the answer of", ticket)),
            ReplicaOwn::Promote { member, epoch } => self.promote(member, epoch),
        }
    }

    fn decline(&mut self, index: usize, ticket: u64, deed: Deed) {
        self.engine.note(Place::Member(index), Happening::Did(deed));
        if let Some(Ticket { identity, client, .. }) = self.nodes[index].tickets.remove(&ticket) {
            let parcel = Parcel { identity, kind: 2, body: Vec::new() };
            self.send(Place::Member(index), member_address(index), client, &parcel.bytes());
        }
    }

    fn reply(&mut self, index: usize, ticket: u64) {
        let is_due = |ticket: &Ticket| ticket.is_stable && ticket.answer.is_some();
        if !self.nodes[index].tickets.get(&ticket).is_some_and(is_due) {
            return;
        }
        let Some(Ticket { identity, client, answer, .. }) = self.nodes[index].tickets.remove(&ticket) else {
            return;
        };
        let parcel = Parcel { identity, kind: 1, body: answer.unwrap_or_default() };
        self.send(Place::Member(index), member_address(index), client, &parcel.bytes());
    }

    /// What is stable is with every full member of the view of whoever says so.
    fn judge_stable(&mut self, index: usize, ticket: u64) {
        let Some(Ticket { identity, .. }) = self.nodes[index].tickets.get(&ticket) else { return };
        let (Some(view), StableWhen::Stored) = (&self.nodes[index].view, self.scenario.stable_when) else {
            return;
        };
        let is_write = self.clients[usize::from(identity.client[0]) - 1].op.is_some_and(|op| !op.is_read());
        let is_current = self.clients[usize::from(identity.client[0]) - 1].identity == *identity;
        if !is_write || !is_current {
            return;
        }
        let lacks = |member: &&Member| {
            let holder = &self.nodes[usize::from(member.id.0) - 1];
            let known = holder.stored.results.look(identity, 0);
            let is_meant = member.boot == 0 || holder.boot == member.boot;
            known == scotfree_state::Known::New && is_meant
        };
        let lacking = view.full().find(lacks).map(|member| {
            let marks = |index: usize| {
                let node = &self.nodes[index];
                (node.stored.mark.0, node.machine.as_ref().map(|machine| machine.state().kept.mark.0))
            };
            let (here, there) = (marks(index), marks(usize::from(member.id.0) - 1));
            format!(
                "{identity:?} is stable, says member {}, and {} has not stored it; they have stored and applied \
                 {here:?} and {there:?}",
                index + 1,
                member.id
            )
        });
        self.must(lacking.map_or(Ok(()), |detail| Err(Violation::new(Invariant::StableEverywhere, detail))));
    }

    fn arrive_at_member(&mut self, index: usize, packet: Packet<Sight>) {
        let place = Place::Member(index);
        if self.nodes[index].machine.is_none() {
            return self.end(place, packet, Loss::Down);
        }
        if self.nodes[index].paused_until > self.engine.now {
            self.nodes[index].held.push(packet);
            return;
        }
        self.engine.note(place, Happening::Arrived { sight: packet.sight });
        if read_head(&packet.bytes).is_some() {
            self.act(index, |machine, now, effects| machine.on_message(now, &packet.bytes, effects));
        } else if let Some(parcel) = Parcel::read(&packet.bytes) {
            self.take_request(index, packet.from, &parcel);
        }
        self.engine.packets.recycle(packet.bytes);
    }

    fn take_request(&mut self, index: usize, client: SocketAddr, parcel: &Parcel) {
        let Some(op) = Op::read(&parcel.body).filter(|_| parcel.kind == 0) else { return };
        let node = &mut self.nodes[index];
        node.ticket += 1;
        let (ticket, identity) = (node.ticket, parcel.identity);
        node.tickets.insert(ticket, Ticket { identity, client, answer: None, is_stable: false });
        self.act(index, |machine, now, effects| {
            if op.is_read() {
                machine.read(now, ticket, &parcel.body, effects);
            } else {
                machine.write(now, &Write { ticket, identity, session: None, op: &parcel.body }, effects);
            }
        });
    }

    fn crash(&mut self, index: usize, down: Nanos) {
        let node = &mut self.nodes[index];
        if node.machine.take().is_none() {
            return;
        }
        node.incarnation = node.incarnation.next();
        (node.alarm, node.stores, node.view) = (Alarm::NONE, false, None);
        node.tickets.clear();
        node.held.clear();
        node.paused_until = Nanos(0);
        self.engine.report.crashes += 1;
        self.engine.note(Place::Member(index), Happening::Note("crashes", down.0));
        self.engine.comes_back(down, Place::Member(index));
    }

    fn pause(&mut self, index: usize, span: Nanos) {
        let node = &mut self.nodes[index];
        if node.machine.is_none() || node.paused_until > self.engine.now {
            return;
        }
        node.paused_until = self.engine.now.plus(span);
        let incarnation = node.incarnation;
        self.engine.report.pauses += 1;
        self.engine.note(Place::Member(index), Happening::Note("pauses", span.0));
        self.engine.after(span, Event::Resume(index, incarnation));
    }

    fn resume(&mut self, index: usize, incarnation: Incarnation) {
        if !self.lives(index, incarnation) {
            return;
        }
        self.engine.note(Place::Member(index), Happening::Note("goes on", 0));
        for packet in std::mem::take(&mut self.nodes[index].held) {
            self.arrive_at_member(index, packet);
        }
        self.nodes[index].alarm = Alarm::NONE;
        self.act(index, |machine, now, effects| machine.on_timer(now, effects));
    }

    // ---- devices

    /// A client writes, and the device gives its member what that was not given.
    fn owe(&mut self, index: usize) {
        let now = self.engine.now;
        let node = &mut self.nodes[index];
        self.engine.report.owed += u64::from(node.device.acknowledge());
        if node.paused_until <= now && node.machine.is_some() {
            node.device.give();
            self.act(index, |_, _, _| {});
        }
        if !self.nodes[index].device.is_done() {
            let span = self.engine.chance.work.between(500_000, 10_000_000);
            self.engine.after(Nanos(span), Event::Owe(index));
        }
    }

    fn on_owed(&mut self, index: usize, place: u64, own: ReplicaOwn) {
        let device = &mut self.nodes[index].device;
        match own {
            ReplicaOwn::Answer { .. } => device.answer(place),
            ReplicaOwn::Stable { .. } => device.settle(place),
            ReplicaOwn::Decline {
                why: Decline::Forgotten | Decline::SeveralKeys | Decline::TooLarge,
                ..
            } => {
                let detail =
                    format!("write {place} of the device of member {} is declined for good", index + 1);
                self.must(Err(Violation::new(Invariant::InOrder, detail)));
            }
            ReplicaOwn::Decline { .. } | ReplicaOwn::Lost { .. } => {
                device.turn_away(place);
                self.engine.report.turned_away += 1;
                self.engine
                    .note(Place::Member(index), Happening::Did(Deed("turns away the owed write", place)));
            }
            ReplicaOwn::Promote { .. } => {}
        }
    }

    /// As a member's service does it behind all else: what is settled goes into storage, and what waits is submitted.
    fn tend_device(&mut self, index: usize) {
        let Node { machine, device, .. } = &mut self.nodes[index];
        let Some(machine) = machine else { return };
        if let Some(through) = device.news() {
            let number = machine.state_mut().take_place(SessionId(1), SeqNum(through)).number;
            device.store(number, through);
        }
        device.note_stored(machine.state().stable());
        self.store_and_sleep(index);
        self.submit_owed(index);
    }

    fn submit_owed(&mut self, index: usize) {
        while let Some(place) = self.nodes[index].device.next().filter(|_| self.is_serving(index)) {
            let node = &mut self.nodes[index];
            node.device.note_submitted(place);
            let (ticket, identity) = (device::ticket_of(place), device::identity(index, node.boot, place));
            let op = &device::op(index, place).bytes();
            self.act_once(index, |machine, now, effects| {
                machine.write(now, &Write { ticket, identity, session: None, op }, effects);
            });
            if self.nodes[index].device.next() == Some(place) {
                return;
            }
        }
    }

    fn is_serving(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let now = node.clock.read(self.engine.now);
        node.machine.as_ref().is_some_and(|machine| machine.is_serving(now).is_ok())
    }

    // ---- the membership

    fn keep_alive(&mut self, index: usize, incarnation: Incarnation) {
        if !self.lives(index, incarnation) {
            return;
        }
        let again = Nanos(self.scenario.lease.0 / 3);
        self.engine.after(again, Event::KeepAlive(index, incarnation));
        let (now, node) = (self.engine.now, &self.nodes[index]);
        if node.paused_until > now || node.silent_until > now {
            return;
        }
        let sent = node.clock.read(now);
        let under_way = self.engine.chance.network.span(Nanos::from_micros(50), Nanos::from_millis(2));
        self.engine.after(under_way, Event::Heard(index, incarnation, sent));
    }

    fn heard(&mut self, index: usize, incarnation: Incarnation, sent: Nanos) {
        if !self.lives(index, incarnation) {
            return;
        }
        let progress = self.nodes[index].stored.progress();
        if !self.membership.hear(self.engine.now, index, self.nodes[index].boot, progress) {
            return;
        }
        // A lease is of the newest view only: one that has gone on without a member says nothing for its older one.
        if self.nodes[index].view.as_ref().is_none_or(|view| view.epoch < self.membership.view.epoch) {
            let view = self.membership.view.clone();
            return self.give_view(index, &view);
        }
        if self.scenario.is_static {
            return;
        }
        // The lease counts from when the keep-alive was sent, less what clocks may be wrong (G1).
        let lease = self.scenario.lease.0;
        let until = sent.plus(Nanos(lease - lease * 2 * self.scenario.drift_ppm_max / 1_000_000));
        if self.nodes[index].paused_until <= self.engine.now {
            self.act(index, |machine, _, _| machine.on_lease(until));
        }
    }

    fn look(&mut self) {
        let lives = |view: &View| view.full().map(|member| (member.id, member.boot)).collect::<Vec<_>>();
        let before = lives(&self.membership.view);
        let is_new = if self.scenario.is_static {
            self.membership.look_stated()
        } else {
            self.membership.look(self.engine.now, &self.members)
        };
        if is_new {
            // Nobody is left who has what was only in memory.
            if !lives(&self.membership.view).iter().any(|life| before.contains(life)) {
                self.engine.report.begun_anew += 1;
                self.is_memory_lost |= self.scenario.stable_when == StableWhen::InMemory;
            }
            self.spread_view();
        }
        self.engine.after(Nanos::from_millis(2), Event::Look);
    }

    fn spread_view(&mut self) {
        self.engine.report.views += 1;
        let view = self.membership.view.clone();
        self.engine.note(Place::Client(0), Happening::Note("there is a new view", view.epoch));
        // In their order, a digit each.
        let digits = |standing| {
            let such = view.members.iter().filter(move |member| member.standing == standing);
            such.fold(0, |digits, member| digits * 10 + u64::from(member.id.0))
        };
        self.engine.note(Place::Client(0), Happening::Note("its full members", digits(Standing::Full)));
        self.engine.note(Place::Client(0), Happening::Note("those who join", digits(Standing::Joining)));
        for index in 0..self.nodes.len() {
            let span = self.engine.chance.network.span(Nanos(0), Nanos::from_millis(5));
            let incarnation = self.nodes[index].incarnation;
            self.engine.after(span, Event::View(index, incarnation, view.clone()));
        }
    }

    fn give_view(&mut self, index: usize, view: &View) {
        let incarnation = self.nodes[index].incarnation;
        self.engine.after(Nanos(0), Event::View(index, incarnation, view.clone()));
    }

    fn take_view(&mut self, index: usize, view: &View) {
        let node = &mut self.nodes[index];
        if node.paused_until > self.engine.now || node.silent_until > self.engine.now {
            return;
        }
        // A life that an operator's view cannot mean takes part from the next one on, as its service does it.
        let is_stale = self.scenario.is_static && node.view.is_none() && view.epoch <= node.epoch;
        if !is_stale && node.view.as_ref().is_none_or(|old| old.epoch < view.epoch) {
            node.epoch = view.epoch;
            node.view = Some(view.clone());
            self.engine
                .note(Place::Member(index), Happening::Did(Deed("takes the view of epoch", view.epoch)));
            self.act(index, |machine, now, effects| machine.on_view(now, view, effects));
        }
    }

    fn promote(&mut self, member: MemberId, epoch: u64) {
        if self.membership.promote(member, epoch) {
            self.engine.report.promoted += 1;
            self.spread_view();
        }
    }

    // ---- clients

    fn ask_next(&mut self, index: usize) {
        let now = self.engine.now;
        if self.clients[index].begin(now, &self.scenario, &mut self.engine.chance.work) {
            self.ask(index);
        }
    }

    fn ask(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some(op) = client.op else { return };
        let parcel = Parcel { identity: client.identity, kind: 0, body: op.bytes().to_vec() };
        let to = member_address(client.member);
        client.retry_at = self.engine.now.plus(self.scenario.patience);
        let at = client.retry_at;
        self.alarms[index].set(Place::Client(index), at, &mut self.engine.queue);
        self.send(Place::Client(index), client_address(index), to, &parcel.bytes());
    }

    fn try_elsewhere(&mut self, index: usize) {
        let (now, client) = (self.engine.now, &mut self.clients[index]);
        if client.op.is_none() {
            return;
        }
        if client.retry_at > now {
            let at = client.retry_at;
            return self.alarms[index].set(Place::Client(index), at, &mut self.engine.queue);
        }
        client.member = self.engine.chance.work.index(self.scenario.member_count);
        self.engine.report.sent_elsewhere += 1;
        self.ask(index);
    }

    fn arrive_at_client(&mut self, index: usize, packet: Packet<Sight>) {
        self.engine.note(Place::Client(index), Happening::Arrived { sight: packet.sight });
        let parcel = Parcel::read(&packet.bytes);
        self.engine.packets.recycle(packet.bytes);
        let client = &mut self.clients[index];
        let Some(parcel) = parcel.filter(|parcel| parcel.identity == client.identity) else { return };
        let Some(op) = client.op else { return };
        if parcel.kind == 2 {
            self.engine.report.declined += 1;
            // It goes elsewhere after a moment.
            client.retry_at = client.retry_at.min(self.engine.now.plus(Nanos::from_millis(1)));
            let at = client.retry_at;
            return self.alarms[index].set(Place::Client(index), at, &mut self.engine.queue);
        }
        let reply = read_reply(&parcel.body);
        let op = op.answered(&reply);
        self.engine.report.refused += u64::from(matches!(op, Op::Refused(_)));
        let answer = Some(Answer { at: self.engine.now.0, reply });
        self.history.push(Operation { client: index as u64, called: client.called.0, op, answer });
        client.op = None;
        self.engine.report.answered += 1;
        let recovery = self.engine.now.since(self.scenario.calm_at);
        let longest = &mut self.engine.report.tally.recovery_max;
        *longest = recovery.max(*longest);
        self.ask_next(index);
    }

    // ---- judgement

    fn has_answered_all(&self) -> bool {
        let is_settled = self.nodes.iter().all(|node| node.device.is_done());
        is_settled && self.clients.iter().all(|client| client.left == 0 && client.op.is_none())
    }

    /// What a member has executed of sessions behind devices begins with their first writes, without a gap.
    fn judge_order(&self, index: usize) -> Result<(), Violation<Invariant>> {
        let Some(machine) = &self.nodes[index].machine else { return Ok(()) };
        let is_off = |(_, places): &(&u8, &Vec<u64>)| places.last() != Some(&(places.len() as u64));
        let off = machine.state().kept.sessions.iter().find(is_off);
        off.map_or(Ok(()), |(name, places)| {
            let detail = format!("member {} has executed of session {name:#x} {places:?}", index + 1);
            Err(Violation::new(Invariant::InOrder, detail))
        })
    }

    /// At rest all members are alike, and each has executed all.
    fn judge_owed(&self) -> Result<(), Violation<Invariant>> {
        let Some(machine) = &self.nodes[0].machine else { return Ok(()) };
        let executed = |index: usize| {
            let places = machine.state().kept.sessions.get(&device::identity(index, 0, 0).client[0]);
            places.map_or(0, |places| places.len() as u64)
        };
        let lacking =
            (0..self.nodes.len()).find(|index| executed(*index) < self.nodes[*index].device.settled);
        lacking.map_or(Ok(()), |index| {
            let detail = format!("writes of the device of member {} are lost", index + 1);
            Err(Violation::new(Invariant::InOrder, detail))
        })
    }

    fn unfinished(&self) -> Violation<Invariant> {
        let left: Vec<_> = self.clients.iter().map(|client| (client.left, client.op)).collect();
        let owed: Vec<_> = self.nodes.iter().map(|node| &node.device).collect();
        let detail = format!("requests are left: {left:?} and {owed:?}, in {:?}", self.membership.view);
        Violation::new(Invariant::Progress, detail)
    }

    fn judge_progress(&self) -> Result<(), Violation<Invariant>> {
        self.has_answered_all().then_some(()).ok_or_else(|| self.unfinished())
    }

    fn are_alike(&self) -> bool {
        let mut kept =
            self.nodes.iter().filter_map(|node| node.machine.as_ref()).map(|machine| &machine.state().kept);
        let Some(first) = kept.next() else { return true };
        kept.all(|other| {
            other.numbers == first.numbers && other.mark == first.mark && other.versions == first.versions
        })
    }

    fn count(&mut self) {
        for (index, client) in self.clients.iter().enumerate() {
            if let Some(op) = client.op {
                self.history.push(Operation {
                    client: index as u64,
                    called: client.called.0,
                    op,
                    answer: None,
                });
            }
        }
        for machine in self.nodes.iter().filter_map(|node| node.machine.as_ref()) {
            let (counters, report) = (machine.counters(), &mut self.engine.report);
            report.known += counters.writes_known;
            report.reads_here += counters.reads_here;
            report.reads_asked += counters.reads_asked;
            report.resent += counters.resent;
            report.snapshots += counters.snapshots_taken;
            report.other_epoch += counters.other_epoch;
        }
    }
}
