//! Groups in simulated time: the real machines and their datagrams, each member on a core of its own, wires that take as
//! long as they are said to; nothing fails.
//!
//! What a core spends is stated ([`Costs`]) and spent one thing after the other, as a server's loop does it; so members
//! that share processors in a trial do not share them here, and a wire is as long as it is between hosts. What clients
//! spend themselves is not counted.
//!
//! Invariant: the same setup gives the same numbers on every machine; a latency runs from a request's leaving its client
//! until its answer is there.

mod figures;
mod server;
mod values;

pub use figures::GroupTiming;

use crate::scenario::Protocol;
use crate::timed::server::{Leaves, Request, Server};
use crate::timed::values::Values;
use remedy_replicate::{
    group_name_hash, Chain, Hermes, Limits, Member, MemberConfig, MemberId, Planted, ReadsAt, Replica,
    StableWhen, Standing, View,
};
use scotfree_core::Nanos;
use scotfree_sim::queue::Queue;
use scotfree_sim::rng::Rng;
use scotfree_wire::{ClusterKey, Direction, Identity};
use std::net::{Ipv4Addr, SocketAddr};

/// How many requests of clients a turn takes at most, and how many datagrams of members: as a server's loop does.
pub const REQUESTS_BURST_MAX: usize = 256;
/// See [`REQUESTS_BURST_MAX`].
pub const MEMBERS_BURST_MAX: usize = 128;

/// What a core spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A turn of the loop in which something is there, but for what follows.
    pub turn: Nanos,
    /// Taking a datagram from a socket, of a client or a member.
    pub receive: Nanos,
    /// A system call that sends, whatever it sends.
    pub call: Nanos,
    /// Each datagram that it sends.
    pub send: Nanos,
    /// What a client's request takes beside that: its session, its execution, its answer.
    pub request: Nanos,
    /// What a member's datagram takes beside that: authenticity, the machine's step, and what is written because of it.
    pub step: Nanos,
    /// Each write that is applied.
    pub apply: Nanos,
    /// What a turn takes beside that in which writes were applied: they are handed to storage, which is not waited for.
    pub store: Nanos,
    /// Each byte that is taken or sent, in picoseconds.
    pub byte_ps: u64,
}

impl Costs {
    /// Nothing costs anything.
    pub const NONE: Costs = Costs {
        turn: Nanos(0),
        receive: Nanos(0),
        call: Nanos(0),
        send: Nanos(0),
        request: Nanos(0),
        step: Nanos(0),
        apply: Nanos(0),
        store: Nanos(0),
        byte_ps: 0,
    };

    /// What this repository's machine spends: two processors at 2.1 GHz under a hypervisor, the kernel's UDP over
    /// loopback, so who sends also delivers. Processor time of one thread, medians:
    ///
    /// - `receive`, `call` and `send`: `recvmmsg` and `sendmmsg` of 1 to 64 datagrams of 250 bytes. `turn`: two sockets
    ///   and an epoll that have nothing.
    /// - `request`: a GET at a member with 64 under way is 7.6 us (lab/results/group-reads.json), less what the datagram
    ///   that comes, the one that leaves, and a 64th of a turn take.
    /// - `apply` and `store`: a SET at a member that is alone, with 64 under way, takes 3.9 us more than a GET. Of these
    ///   2.9 are the machine's and its results', as this simulation's own time says; the rest is handing over.
    /// - `step`: this simulation's own time for writes of three members, less what is applied, by their datagrams.
    /// - `byte_ps`: SipHash-2-4 and a copy.
    pub const MEASURED: Costs = Costs {
        turn: Nanos(1_000),
        receive: Nanos(350),
        call: Nanos(200),
        send: Nanos(1_400),
        request: Nanos(5_800),
        step: Nanos(1_300),
        apply: Nanos(2_900),
        store: Nanos(1_000),
        byte_ps: 1_000,
    };

    /// So many hundredths of it.
    #[must_use]
    pub fn percent(self, percent: u64) -> Costs {
        let part = |cost: Nanos| Nanos(cost.0 * percent / 100);
        Costs {
            turn: part(self.turn),
            receive: part(self.receive),
            call: part(self.call),
            send: part(self.send),
            request: part(self.request),
            step: part(self.step),
            apply: part(self.apply),
            store: part(self.store),
            byte_ps: self.byte_ps * percent / 100,
        }
    }

    fn taking(&self, bytes: usize) -> Nanos {
        self.receive.plus(self.bytes(bytes))
    }

    fn sending(&self, bytes: usize, is_called: &mut bool) -> Nanos {
        let call = if *is_called { Nanos(0) } else { self.call };
        *is_called = true;
        call.plus(self.send).plus(self.bytes(bytes))
    }

    fn bytes(&self, bytes: usize) -> Nanos {
        Nanos(bytes as u64 * self.byte_ps / 1_000)
    }
}

/// A group, its clients, and what there is between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// How the members agree.
    pub protocol: Protocol,
    /// How many there are.
    pub member_count: usize,
    /// How many clients, each with one request under way.
    pub client_count: usize,
    /// How many of a hundred requests are writes.
    pub write_percent: u64,
    /// The place of the member to which reads go; any if none is said.
    pub reads_to: Option<usize>,
    /// The place of the member to which writes go; any if none is said.
    pub writes_to: Option<usize>,
    /// How many keys there are, of which all are as popular.
    pub key_count: u64,
    /// The size of a value.
    pub value_bytes: usize,
    /// How long a datagram is on its way from a member to another.
    pub one_way: Nanos,
    /// How long between a client and a member.
    pub client_one_way: Nanos,
    /// What cores spend.
    pub costs: Costs,
    /// How many requests are measured.
    pub request_count: u64,
    /// How many are answered before.
    pub warmup_count: u64,
    /// Where choices begin.
    pub seed: u64,
}

/// What requests measured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// How long each read took, ascending.
    pub reads: Vec<Nanos>,
    /// How long each write took, ascending.
    pub writes: Vec<Nanos>,
    /// How long all of it took.
    pub elapsed: Nanos,
    /// How long each member's core was busy meanwhile.
    pub busy: Vec<Nanos>,
    /// Datagrams that members took from each other meanwhile.
    pub datagrams: u64,
    /// How many messages were sent again, from the beginning on, because they were taken for lost.
    pub resent: u64,
}

impl Outcome {
    /// How many requests were answered in a second.
    pub fn per_second(&self) -> f64 {
        (self.reads.len() + self.writes.len()) as f64 * 1e9 / self.elapsed.0 as f64
    }

    /// All requests, ascending.
    pub fn all(&self) -> Vec<Nanos> {
        let mut all = [&self.reads[..], &self.writes[..]].concat();
        all.sort_unstable();
        all
    }
}

/// What so many of a thousand did not exceed; none of none.
pub fn quantile(ascending: &[Nanos], per_mille: usize) -> Option<Nanos> {
    let place = (ascending.len() * per_mille).div_ceil(1_000).max(1) - 1;
    ascending.get(place).copied()
}

/// Lets clients ask until so many requests are measured.
pub fn measure(setup: &Setup) -> Outcome {
    let mut world = Timed::new(setup);
    world.begin();
    world.run()
}

/// When clients begin: all members have greeted each other by then.
const BEGIN: Nanos = Nanos::from_millis(20);

#[derive(Debug)]
enum Event {
    Asked(usize, Request),
    Said(usize, Vec<u8>),
    Turn(usize),
    Alarm(usize),
    Ask(usize),
    Answered(usize),
    /// From here on all is measured, unless something is to be answered before.
    Begin,
}

/// A client, which has one request under way.
struct Client {
    rng: Rng,
    asked_at: Nanos,
    writes: bool,
    write_count: u64,
}

struct Timed<'a> {
    setup: &'a Setup,
    queue: Queue<Event>,
    now: Nanos,
    servers: Vec<Server>,
    clients: Vec<Client>,
    answered: u64,
    measured_from: Nanos,
    outcome: Outcome,
}

impl<'a> Timed<'a> {
    fn new(setup: &'a Setup) -> Timed<'a> {
        let servers = (0..setup.member_count).map(|place| Server::new(machine(setup, place), setup.costs));
        let client = |place: usize| Client {
            rng: Rng::new(setup.seed, place as u64 + 1),
            asked_at: Nanos(0),
            writes: false,
            write_count: 0,
        };
        Timed {
            setup,
            queue: Queue::new(),
            now: Nanos(0),
            servers: servers.collect(),
            clients: (0..setup.client_count).map(client).collect(),
            answered: 0,
            measured_from: Nanos(0),
            outcome: Outcome::default(),
        }
    }

    fn begin(&mut self) {
        let view = view(self.setup);
        for place in 0..self.servers.len() {
            self.servers[place].machine.on_lease(Nanos::MAX);
            let (queue, one_way) = (&mut self.queue, self.setup.one_way);
            let mut leave = |at: Nanos, leaves| send(queue, at, one_way, leaves);
            self.servers[place]
                .act(&mut Nanos(0), &mut leave, |machine, now, effects| machine.on_view(now, &view, effects));
            self.wake(place);
        }
        self.queue.push(BEGIN, Event::Begin);
        // They begin one after the other, so that they do not go in step.
        for client in 0..self.clients.len() {
            self.queue.push(BEGIN.plus(Nanos(client as u64 * 997)), Event::Ask(client));
        }
    }

    fn run(mut self) -> Outcome {
        let end = self.setup.warmup_count + self.setup.request_count;
        while self.answered < end {
            let Some((at, event)) = self.queue.pop() else {
                panic!("a request is left without an answer");
            };
            self.now = at;
            self.happen(event);
        }
        self.outcome.elapsed = self.now.since(self.measured_from);
        self.outcome.reads.sort_unstable();
        self.outcome.writes.sort_unstable();
        self.outcome.busy = self.servers.iter().map(|server| server.busy).collect();
        self.outcome.datagrams = self.servers.iter().map(|server| server.taken).sum();
        self.outcome.resent = self.servers.iter().map(|server| server.machine.counters().resent).sum();
        self.outcome
    }

    fn begin_measuring(&mut self) {
        self.measured_from = self.now;
        for server in &mut self.servers {
            (server.busy, server.taken) = (Nanos(0), 0);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Asked(place, request) => {
                self.servers[place].requests.push_back(request);
                self.wake(place);
            }
            Event::Said(place, bytes) => {
                self.servers[place].datagrams.push_back(bytes);
                self.wake(place);
            }
            Event::Turn(place) => self.turn(place),
            Event::Alarm(place) => {
                self.servers[place].alarm.take_if(|at| *at == self.now);
                self.wake(place);
            }
            Event::Ask(client) => self.ask(client),
            Event::Answered(client) => self.answered(client),
            Event::Begin => self.begin_measuring(),
        }
    }

    // ---- members

    /// The core goes on as soon as all that comes at this instant has come.
    fn wake(&mut self, place: usize) {
        if !std::mem::replace(&mut self.servers[place].is_awake, true) {
            self.queue.push(self.now, Event::Turn(place));
        }
    }

    fn turn(&mut self, place: usize) {
        let Timed { servers, queue, setup, now, .. } = self;
        let server = &mut servers[place];
        if server.has_work(*now) {
            let mut leave = |at: Nanos, leaves: Leaves| {
                let is_answer = matches!(leaves, Leaves::Answer { .. });
                let one_way = if is_answer { setup.client_one_way } else { setup.one_way };
                send(queue, at, one_way, leaves);
            };
            let end = server.turn(*now, &mut leave);
            queue.push(end, Event::Turn(place));
            return;
        }
        server.is_awake = false;
        let timer = server.machine.next_timer();
        if let Some(at) = timer.filter(|at| server.alarm.is_none_or(|alarm| *at < alarm)) {
            server.alarm = Some(at);
            queue.push(at, Event::Alarm(place));
        }
    }

    // ---- clients

    fn ask(&mut self, place: usize) {
        let setup = self.setup;
        let client = &mut self.clients[place];
        let key = client.rng.below(setup.key_count);
        client.writes = client.rng.below(100) < setup.write_percent;
        client.asked_at = self.now;
        let wanted = if client.writes { setup.writes_to } else { setup.reads_to };
        let member = wanted.unwrap_or_else(|| client.rng.index(setup.member_count));
        let op = if client.writes { values::set(key, setup.value_bytes) } else { values::get(key) };
        client.write_count += u64::from(client.writes);
        // Whom it asks first is part of a request's identity, as a group's client says it.
        let number = (member as u64 + 1) << 56 | 1 << 40 | client.write_count;
        let mut name = [0; 16];
        name[..8].copy_from_slice(&(place as u64 + 1).to_le_bytes());
        let identity = Identity { client: name, number };
        let request = Request { client: place, identity, writes: client.writes, op };
        self.queue.push(self.now.plus(setup.client_one_way), Event::Asked(member, request));
    }

    fn answered(&mut self, place: usize) {
        let client = &self.clients[place];
        let latency = self.now.since(client.asked_at);
        self.answered += 1;
        if self.answered == self.setup.warmup_count {
            self.begin_measuring();
        } else if self.answered > self.setup.warmup_count {
            let of_kind = if client.writes { &mut self.outcome.writes } else { &mut self.outcome.reads };
            of_kind.push(latency);
        }
        self.queue.push(self.now, Event::Ask(place));
    }
}

fn send(queue: &mut Queue<Event>, at: Nanos, one_way: Nanos, leaves: Leaves) {
    let event = match leaves {
        Leaves::Datagram { to, bytes } => Event::Said(place_of(to), bytes),
        Leaves::Answer { client } => Event::Answered(client),
    };
    queue.push(at.plus(one_way), event);
}

fn address(place: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, 1), place as u16 + 1))
}

fn place_of(address: SocketAddr) -> usize {
    usize::from(address.port()) - 1
}

fn member(place: usize) -> Member {
    let peers = address(place);
    Member { id: MemberId(place as u8 + 1), boot: 1, peers, clients: peers, standing: Standing::Full }
}

fn view(setup: &Setup) -> View {
    View { epoch: 1, founded: 1, members: (0..setup.member_count).map(member).collect() }
}

fn machine(setup: &Setup, place: usize) -> Box<dyn Replica<State = Values>> {
    let config = MemberConfig {
        group: group_name_hash("timed", setup.protocol.name()),
        id: MemberId(place as u8 + 1),
        boot: 1,
        address: address(place),
        keys: ClusterKey::from_bytes([7; 32]).controls(Direction::MemberToMember),
        real_ms_at_zero: 0,
        stable_when: StableWhen::InMemory,
        lineage: None,
        limits: Limits::default(),
        planted: Planted::default(),
    };
    let values = Values::new(setup.value_bytes);
    match setup.protocol {
        Protocol::Chain => Box::new(Chain::new(config, ReadsAt::Tail, values)),
        Protocol::Craq => Box::new(Chain::new(config, ReadsAt::Anyone, values)),
        Protocol::Hermes => Box::new(Hermes::new(config, values)),
    }
}
