//! A group at one moment: its members, what is on its way between them, its clients, and what may still go wrong.
//!
//! A member's time passes only when its timers fire, and then by more than any of them waits. So a timer either is due
//! as soon as it is set, or fires when everything else has waited for it; times are no part of what a group is.
//!
//! Invariant: a step is a function of the group before it: members share memory between groups until one of them
//! takes a step.

use crate::client::{identity, ticket, Client, History};
use crate::number::Ask;
use crate::setup::{Budget, Protocol, Setup, MEMBERS};
use crate::tiny::{Request, Tiny};
use remedy_replicate::{
    group_name_hash, Chain, Hermes, Limits, Member, MemberConfig, MemberId, ReadsAt, Replica, ReplicaOwn,
    StableWhen, Standing, View, Write,
};
use scotfree_core::{Effect, Effects, Nanos};
use scotfree_state::request_of;
use scotfree_wire::{ClusterKey, Direction};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

/// What timers wait: nothing, nearly, so that no message carries another time of day.
const TICK: Nanos = Nanos(1);
/// What passes when timers fire.
const LONG: Nanos = Nanos(100);
/// More messages on their way than any of these few requests needs.
const TOO_MANY_PACKETS: usize = 256;

#[derive(Clone, Hash)]
enum Machine {
    Chain(Box<Chain<Tiny>>),
    Hermes(Box<Hermes<Tiny>>),
}

impl Machine {
    fn new(setup: &Setup, index: usize) -> Machine {
        let config = config(setup, index);
        let chain =
            |reads_at| Machine::Chain(Box::new(Chain::new(config.clone(), reads_at, Tiny::default())));
        match setup.protocol {
            Protocol::Chain => chain(ReadsAt::Tail),
            Protocol::Craq => chain(ReadsAt::Anyone),
            Protocol::Hermes => Machine::Hermes(Box::new(Hermes::new(config, Tiny::default()))),
        }
    }

    fn replica(&self) -> &dyn Replica<State = Tiny> {
        match self {
            Machine::Chain(chain) => &**chain,
            Machine::Hermes(hermes) => &**hermes,
        }
    }

    fn replica_mut(&mut self) -> &mut dyn Replica<State = Tiny> {
        match self {
            Machine::Chain(chain) => &mut **chain,
            Machine::Hermes(hermes) => &mut **hermes,
        }
    }
}

fn config(setup: &Setup, index: usize) -> MemberConfig {
    MemberConfig {
        group: group_name_hash("model", "model"),
        id: MemberId(index as u8 + 1),
        boot: 1,
        address: address(index),
        keys: ClusterKey::from_bytes([3; 32]).controls(Direction::MemberToMember),
        real_ms_at_zero: 0,
        stable_when: StableWhen::InMemory,
        lineage: None,
        limits: Limits { retry_min: TICK, retry_max: TICK, replay_after: TICK, ..Limits::default() },
        planted: setup.planted,
    }
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, index as u8], 1))
}

fn member(index: usize, standing: Standing) -> Member {
    let (id, peers) = (MemberId(index as u8 + 1), address(index));
    Member { id, boot: 1, peers, clients: peers, standing }
}

/// A member, and the fingerprint of its machine.
#[derive(Clone)]
struct Node {
    machine: Machine,
    fingerprint: u64,
}

/// A datagram on its way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Packet {
    pub to: usize,
    pub bytes: Vec<u8>,
}

/// A group at one moment.
#[derive(Clone)]
pub struct Group {
    nodes: Vec<Arc<Node>>,
    is_alive: [bool; MEMBERS],
    has_lease: [bool; MEMBERS],
    /// The newest view that the membership has written.
    view: View,
    /// What is on its way. The same once more is the same.
    network: BTreeSet<Arc<Packet>>,
    clients: Vec<Client>,
    history: History,
    /// Answers that wait to be stable, by member and ticket.
    held: BTreeMap<(usize, u64), u8>,
    /// Writes that were answered, and how many were applied where the answer came from.
    answered: BTreeMap<Request, u64>,
    left: Budget,
    /// How often all timers have fired since nothing else could happen.
    rounds: u8,
    /// Each member's time.
    now: [Nanos; MEMBERS],
}

impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nodes.iter().for_each(|node| node.fingerprint.hash(state));
        (self.is_alive, self.has_lease, &self.view, &self.network).hash(state);
        (&self.clients, &self.history, &self.held, &self.answered).hash(state);
        (self.left, self.rounds).hash(state);
        (0..MEMBERS).for_each(|index| self.is_due(index).hash(state));
    }
}

/// The checker asks whether a path leads where it should.
impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        fingerprint(self) == fingerprint(other)
    }
}

fn fingerprint(whole: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    whole.hash(&mut hasher);
    hasher.finish()
}

impl Group {
    /// A group at rest, or one into whose view a joiner has just been written.
    pub(crate) fn new(setup: &Setup) -> Group {
        let full = if setup.joins { MEMBERS - 1 } else { MEMBERS };
        let members = (0..full).map(|index| member(index, Standing::Full)).collect();
        let node = |index| {
            let machine = Machine::new(setup, index);
            Arc::new(Node { fingerprint: fingerprint(&machine), machine })
        };
        let mut group = Group {
            nodes: (0..MEMBERS).map(node).collect(),
            is_alive: [true; MEMBERS],
            has_lease: [true; MEMBERS],
            view: View { epoch: 1, founded: 1, members },
            network: BTreeSet::new(),
            clients: setup.clients.iter().map(Client::new).collect(),
            history: History::default(),
            held: BTreeMap::new(),
            answered: BTreeMap::new(),
            left: setup.budget,
            rounds: 0,
            now: [Nanos(1); MEMBERS],
        };
        for index in 0..MEMBERS {
            group.act(setup, index, |machine, _, _| machine.on_lease(Nanos(u64::MAX)));
        }
        group.come_to_rest(setup);
        if setup.joins {
            group.view.members.push(member(MEMBERS - 1, Standing::Joining));
            group.view.epoch += 1;
        }
        group
    }

    /// What the members say to each other before anybody asks them anything.
    fn come_to_rest(&mut self, setup: &Setup) {
        (0..MEMBERS).for_each(|index| self.take_view(setup, index));
        for _ in 0..4 {
            while !self.network.is_empty() {
                self.deliver(setup, 0, false);
            }
            self.fire_all(setup);
        }
        self.network.clear();
    }

    // ---- what is seen

    pub(crate) fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MEMBERS).filter(|index| self.is_alive[*index])
    }

    pub(crate) fn network(&self) -> impl Iterator<Item = &Packet> {
        self.network.iter().map(|packet| &**packet)
    }

    pub(crate) fn clients(&self) -> &[Client] {
        &self.clients
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn left(&self) -> Budget {
        self.left
    }

    pub(crate) fn rounds(&self) -> u8 {
        self.rounds
    }

    pub(crate) fn state(&self, index: usize) -> &Tiny {
        self.nodes[index].machine.replica().state()
    }

    pub(crate) fn has_timer(&self, index: usize) -> bool {
        self.nodes[index].machine.replica().next_timer().is_some()
    }

    /// Whether a member's timer was set to fire at once.
    pub(crate) fn is_due(&self, index: usize) -> bool {
        let timer = self.nodes[index].machine.replica().next_timer();
        self.is_alive[index] && timer.is_some_and(|at| at <= self.now[index])
    }

    /// Whether a member has not heard of the newest view.
    pub(crate) fn is_behind(&self, index: usize) -> bool {
        self.is_alive[index] && self.nodes[index].machine.replica().epoch() < self.view.epoch
    }

    /// Whether the membership may write a view without a member: its lease is over (G7).
    pub(crate) fn may_exclude(&self, index: usize) -> bool {
        let is_in = self.view.member(MemberId(index as u8 + 1)).is_some();
        is_in && (!self.is_alive[index] || !self.has_lease[index])
    }

    /// The members that are alive and full in the newest view.
    pub(crate) fn full(&self) -> impl Iterator<Item = usize> + '_ {
        self.view.full().map(|member| usize::from(member.id.0) - 1).filter(|index| self.is_alive[*index])
    }

    /// Whether a member has every write that was answered.
    pub(crate) fn has_all_answered(&self, index: usize) -> bool {
        let has = |(request, place): (&Request, &u64)| match &self.nodes[index].machine {
            Machine::Chain(chain) => chain.received() >= *place,
            Machine::Hermes(_) => self.state(index).has_answer(*request),
        };
        self.answered.iter().all(has)
    }

    /// Whether a client that waits cannot be answered where it waits.
    pub(crate) fn is_forsaken(&self, client: usize) -> bool {
        let client = &self.clients[client];
        client.waits_for.is_some_and(|member| client.is_declined || !self.is_alive[member])
    }

    /// Whether a client still waits for the first thing that it asked.
    pub(crate) fn is_waiting_first(&self, client: usize) -> bool {
        let client = &self.clients[client];
        client.begun == 1 && client.waits_for.is_some()
    }

    // ---- steps

    fn act(
        &mut self,
        setup: &Setup,
        index: usize,
        act: impl FnOnce(&mut dyn Replica<State = Tiny>, Nanos, &mut Effects<ReplicaOwn>),
    ) {
        let (now, mut effects) = (self.now[index], Effects::new());
        let node = Arc::make_mut(&mut self.nodes[index]);
        let machine = node.machine.replica_mut();
        act(machine, now, &mut effects);
        machine.flush(now, &mut effects);
        node.fingerprint = fingerprint(&node.machine);
        for effect in effects.iter() {
            match effect {
                Effect::Send { to, bytes, .. } => self.send(*to, effects.bytes(*bytes)),
                Effect::Own(own) => self.on_own(setup, index, *own, &effects),
                Effect::Persist { .. } | Effect::Erase { .. } => unreachable!("the state stores"),
            }
        }
    }

    fn send(&mut self, to: SocketAddr, bytes: &[u8]) {
        let Some(to) = self.alive().find(|index| address(*index) == to) else { return };
        self.network.insert(Arc::new(Packet { to, bytes: bytes.to_vec() }));
        assert!(self.network.len() < TOO_MANY_PACKETS, "members never stop talking");
    }

    fn on_own(&mut self, setup: &Setup, index: usize, own: ReplicaOwn, effects: &Effects<ReplicaOwn>) {
        match own {
            ReplicaOwn::Answer { ticket, reply, .. } => {
                self.held.insert((index, ticket), effects.bytes(reply)[0]);
            }
            ReplicaOwn::Stable { ticket } => {
                if let Some(reply) = self.held.remove(&(index, ticket)) {
                    self.answer(setup, index, ticket, reply);
                }
            }
            ReplicaOwn::Lost { ticket } | ReplicaOwn::Decline { ticket, .. } => {
                self.held.remove(&(index, ticket));
                self.decline(index, ticket);
            }
            ReplicaOwn::Promote { member, epoch } => self.promote(member, epoch),
        }
    }

    fn answer(&mut self, setup: &Setup, index: usize, of: u64, reply: u8) {
        let Some(at) = self.waiting(of) else { return };
        let (client, script) = (&mut self.clients[at], &setup.clients[at]);
        let ask = client.ask(script);
        client.waits_for = None;
        client.is_declined = false;
        let request = request_of(&identity(at, client.begun, script));
        self.history.answered(at, ask, reply);
        if !ask.is_read() {
            let place = self.state(index).applied().iter().position(|applied| *applied == request);
            self.answered.insert(request, place.map_or(0, |place| place as u64 + 1));
        }
    }

    /// The client that waits for a ticket.
    fn waiting(&self, of: u64) -> Option<usize> {
        let waits =
            |(at, client): &(usize, &Client)| client.waits_for.is_some() && ticket(*at, client.begun) == of;
        self.clients.iter().enumerate().find(waits).map(|(at, _)| at)
    }

    fn decline(&mut self, index: usize, of: u64) {
        if let Some(client) = self.waiting(of).map(|at| &mut self.clients[at]) {
            client.is_declined |= client.waits_for == Some(index);
        }
    }

    /// A joiner has the state (G8).
    fn promote(&mut self, id: MemberId, epoch: u64) {
        let is_joining = |member: &&mut Member| member.id == id && member.standing == Standing::Joining;
        let joiner = self.view.members.iter_mut().find(is_joining);
        if let Some(joiner) = joiner.filter(|_| epoch == self.view.epoch) {
            joiner.standing = Standing::Full;
            self.view.epoch += 1;
        }
    }

    /// A client asks the next thing, of the member that it knows.
    pub(crate) fn begin(&mut self, setup: &Setup, at: usize) {
        let (client, script) = (&mut self.clients[at], &setup.clients[at]);
        client.begun += 1;
        let (member, begun, ask) = (client.member, client.begun, client.ask(script));
        client.waits_for = Some(member);
        self.history.asked(at, ask);
        self.ask(setup, at, begun, member);
    }

    fn ask(&mut self, setup: &Setup, at: usize, begun: usize, member: usize) {
        let script = &setup.clients[at];
        let (ask, ticket, identity) =
            (script.asks[begun - 1], ticket(at, begun), identity(at, begun, script));
        if !self.is_alive[member] {
            return;
        }
        self.act(setup, member, |machine, now, effects| {
            let op = &ask.bytes();
            if ask.is_read() {
                machine.read(now, ticket, op, effects);
            } else {
                machine.write(now, &Write { ticket, identity, session: None, op }, effects);
            }
        });
    }

    /// A client goes to the next member with what it waits for.
    pub(crate) fn go_elsewhere(&mut self, setup: &Setup, at: usize) {
        let is_free = self.is_forsaken(at);
        let client = &mut self.clients[at];
        let (begun, next) = (client.begun, (client.member + 1) % MEMBERS);
        (client.member, client.waits_for, client.is_declined) = (next, Some(next), false);
        self.left.moves -= u8::from(!is_free);
        self.ask(setup, at, begun, next);
    }

    /// What a client asked first comes again, by way of a member.
    pub(crate) fn come_late(&mut self, setup: &Setup, at: usize, member: usize) {
        self.left.late -= 1;
        self.ask(setup, at, 1, member);
    }

    /// A message arrives, and is still on its way if it comes again.
    pub(crate) fn deliver(&mut self, setup: &Setup, index: usize, stays: bool) {
        let Some(packet) = self.network.iter().nth(index).cloned() else { return };
        if stays {
            self.left.copies -= 1;
        } else {
            self.network.remove(&packet);
        }
        self.act(setup, packet.to, |machine, now, effects| machine.on_message(now, &packet.bytes, effects));
    }

    pub(crate) fn lose(&mut self, index: usize) {
        let Some(packet) = self.network.iter().nth(index).cloned() else { return };
        self.network.remove(&packet);
        self.left.losses -= 1;
    }

    /// A member's timers fire: they are due, or come before what they wait for.
    pub(crate) fn fire_one(&mut self, setup: &Setup, index: usize) {
        self.left.timers -= u8::from(!self.is_due(index));
        self.fire(setup, index);
    }

    /// Nothing else can happen: all timers come, and from now on nothing goes wrong any more.
    pub(crate) fn fire_all(&mut self, setup: &Setup) {
        for index in self.alive().collect::<Vec<_>>() {
            self.fire(setup, index);
        }
    }

    /// See [`Group::fire_all`].
    pub(crate) fn rest(&mut self, setup: &Setup) {
        (self.left, self.rounds) = (Budget::default(), self.rounds + 1);
        self.fire_all(setup);
    }

    fn fire(&mut self, setup: &Setup, index: usize) {
        self.now[index] = self.now[index].plus(LONG);
        if self.has_timer(index) {
            self.act(setup, index, |machine, now, effects| machine.on_timer(now, effects));
        }
    }

    pub(crate) fn crash(&mut self, index: usize) {
        self.left.crashes -= 1;
        self.is_alive[index] = false;
        self.network.retain(|packet| packet.to != index);
        self.held.retain(|(member, _), _| *member != index);
    }

    pub(crate) fn expire(&mut self, setup: &Setup, index: usize) {
        self.left.expiries -= 1;
        self.has_lease[index] = false;
        self.act(setup, index, |machine, _, _| machine.on_lease(Nanos(0)));
    }

    /// The membership writes a view without a member.
    pub(crate) fn exclude(&mut self, index: usize) {
        self.view.members.retain(|member| usize::from(member.id.0) != index + 1);
        self.view.epoch += 1;
    }

    pub(crate) fn take_view(&mut self, setup: &Setup, index: usize) {
        let view = self.view.clone();
        self.act(setup, index, |machine, now, effects| machine.on_view(now, &view, effects));
    }

    /// What a client is asked for next.
    pub(crate) fn next_ask(&self, setup: &Setup, at: usize) -> Option<Ask> {
        let client = &self.clients[at];
        setup.clients[at].asks.get(client.begun).copied().filter(|_| client.waits_for.is_none())
    }
}
