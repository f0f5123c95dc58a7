//! Client runtime, device machine and server runtime with the key-value service, in one thread and on
//! one wire in memory: what a device acknowledged survives the server, and is applied once.

mod common;

use common::{open, options_with, MemoryStorage, PATIENCE};
use remedy_persist::Persist;
use remedy_toy::Toy;
use scotfree_core::{BootEpoch, DeviceId, Epoch, KeyHash, Machine, Nanos, ServerIndex, Token};
use scotfree_device::{carry_out, Completion, DeviceConfig, Function, Pipeline, Round, Shell};
use scotfree_io::disk::DiskDomain;
use scotfree_io::{now_monotonic, now_realtime, RxBurst, Stamps, Transport, TxPacket};
use scotfree_kv::{command, IndexKind, KvService};
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, ServerOptions, ServerRuntime, SessionHandle,
    SessionOptions,
};
use scotfree_session::{CompletedBy, Mode, Planted, Request, RequestKind, ServerConfig};
use scotfree_wire::{Answerer, ClusterKey, Family};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

const CLIENT: &str = "10.0.0.1:1";
const DEVICE: &str = "10.0.0.2:1";
const SERVER: &str = "10.0.0.3:1";
const KEY: [u8; 32] = [5; 32];

#[test]
fn an_early_update_is_answered_by_the_device_and_still_reaches_the_server() {
    let mut world = World::new(IndexKind::default());
    world.start_server();
    let session = world.open_session();
    world.submit(session, RequestKind::Update, Mode::Early, &["SET", "k", "v"]);
    assert_eq!(world.reply(), (CompletedBy::Device(DeviceId(1)), None));
    world.submit(session, RequestKind::Read, Mode::Covered, &["GET", "k"]);
    assert_eq!(world.reply(), (CompletedBy::Server, Some("$1\r\nv\r\n".to_owned())));
    let record = std::iter::from_fn(|| world.client.last_record()).next().expect("calls are recorded");
    assert_eq!(record.answered_by.to_string(), "device:1");
    // Boundaries four to eight are the server's.
    assert_eq!(&record.source_letters()[3..8], b"-----");
}

#[test]
fn what_was_acknowledged_survives_a_server_that_dies_and_is_applied_once() {
    for round in 0..20 {
        let mut world = World::new(IndexKind::ALL[round % IndexKind::ALL.len()]);
        world.start_server();
        let session = world.open_session();
        let mut sent = 0;
        for _ in 0..30 {
            world.submit(session, RequestKind::Update, Mode::Covered, &["INCR", "n"]);
            sent += 1;
            world.turn();
        }
        // Power fails at some moment: what storage had is what it had, replies may be on their way.
        for _ in 0..round {
            world.turn();
        }
        // These only the device has seen.
        for _ in 0..5 {
            world.submit(session, RequestKind::Update, Mode::Covered, &["INCR", "n"]);
            sent += 1;
        }
        world.client.turn().expect("the wire does not break");
        world.device.turn();
        world.kill_server();
        for _ in 0..10 {
            world.submit(session, RequestKind::Update, Mode::Early, &["RPUSH", "l", "x"]);
        }
        // Nobody but the device can answer now; it stops when its lease has ended.
        world.turn();
        world.start_server();
        let mut counts = Vec::new();
        for _ in 0..sent + 10 {
            let (_, reply) = world.reply();
            counts.extend(reply.and_then(|reply| reply.strip_prefix(':')?.trim().parse::<u64>().ok()));
        }
        // Every increment's own reply came, each another number: none was lost, none done twice.
        assert_eq!(counts[..sent].to_vec(), (1..=sent as u64).collect::<Vec<u64>>(), "round {round}");
        world.submit(session, RequestKind::Read, Mode::Covered, &["LRANGE", "l", "0", "-1"]);
        let (_, reply) = world.reply();
        assert!(reply.is_some_and(|reply| reply.starts_with("*10\r\n")), "round {round}");
        world.submit(session, RequestKind::Read, Mode::Covered, &["GET", "n"]);
        assert_eq!(world.reply().1, Some(format!("$2\r\n{sent}\r\n")), "round {round}");
    }
}

#[test]
fn a_session_ends_when_everything_is_stable_and_the_device_is_empty() {
    let mut world = World::new(IndexKind::default());
    world.start_server();
    let session = world.open_session();
    for _ in 0..20 {
        world.submit(session, RequestKind::Update, Mode::Covered, &["INCR", "n"]);
    }
    world.client.end_session(session);
    let mut completed = 0;
    world.until("the session ends", |world| {
        while let Some(event) = world.client.next_event() {
            completed += u32::from(matches!(event, ClientEvent::Completed { .. }));
            if let ClientEvent::Closed { unknown_count, .. } = event {
                assert_eq!(unknown_count, 0);
                return true;
            }
        }
        false
    });
    assert_eq!(completed, 20);
    world.until("the device forgets the session", |world| world.device.machine.unsafe_now().entries == 0);
    world.until("the server forgets the session", |world| {
        world.server.as_ref().is_some_and(|server| server.service().sessions().is_empty())
    });
}

#[test]
fn what_a_function_answers_the_server_goes_on_over() {
    let functions: Vec<Box<dyn Function>> = vec![Box::new(Toy::new(TOLD, Planted::NONE)), persist()];
    let mut world = World::with(IndexKind::default(), functions);
    world.start_server();
    let session = world.open_session();
    world.submit(session, RequestKind::Update, Mode::Covered, &["INCR", "n"]);
    world.reply();
    let by_toy = CompletedBy::Function(Answerer::device(DeviceId(1), Family::Trial));
    // One by one: the client's own word covers what was answered.
    for _ in 0..3 {
        world.submit_to(session, remedy_toy::ANSWERED, RequestKind::Read, Mode::Covered, &["GET", "toy"]);
        assert_eq!(world.reply(), (by_toy, Some("+toy\r\n".to_owned())));
        world.submit(session, RequestKind::Update, Mode::Covered, &["INCR", "n"]);
        world.reply();
    }
    assert_eq!(world.device.machine.counters().passed_over, 0);
    // All at once: the device says what is to be passed over, since nobody else knows it yet.
    for _ in 0..3 {
        for _ in 0..2 {
            world.submit_to(session, remedy_toy::ANSWERED, RequestKind::Read, Mode::Covered, &["GET", "toy"]);
        }
        world.submit(session, RequestKind::Update, Mode::Covered, &["INCR", "n"]);
    }
    for at in 0..9 {
        let (by, _) = world.reply();
        assert_eq!(by, if at % 3 == 2 { CompletedBy::Server } else { by_toy });
    }
    world.submit(session, RequestKind::Read, Mode::Covered, &["GET", "n"]);
    assert_eq!(world.reply().1, Some("$1\r\n7\r\n".to_owned()));
    let counters = *world.device.machine.counters();
    assert_eq!((counters.answered, counters.passed_over), (9, 3));
    assert_eq!(counters.requests, counters.admitted + counters.duplicate, "{counters:?}");
    let toy = world.device.machine.function::<Toy>().expect("it is in the list");
    assert_eq!((toy.reads(remedy_toy::ANSWERED), toy.reads(KeyHash(1))), (9, 1));
    let persist = remedy_persist::counters(&world.device.machine);
    assert_eq!((persist.logged, persist.ungranted), (7, 0));
    assert!(world.device.machine.function::<Persist>().is_some());
}

/// What the toy tells: the service's own head, and a reply.
const TOLD: &[u8] = b"\0\0+toy\r\n";

fn persist() -> Box<dyn Function> {
    (remedy_persist::MAKER.make)(&scotfree_device::Settings::default())
}

/// All three roles.
struct World {
    wire: Rc<RefCell<Wire>>,
    client: ClientRuntime<Plug>,
    device: DeviceShell,
    server: Option<ServerRuntime<Plug, KvService<DiskDomain>>>,
    storage: Arc<MemoryStorage>,
    index: IndexKind,
}

impl World {
    fn new(index: IndexKind) -> World {
        World::with(index, vec![persist()])
    }

    fn with(index: IndexKind, functions: Vec<Box<dyn Function>>) -> World {
        let wire = Rc::new(RefCell::new(Wire::default()));
        let options = ClientOptions::new(address(SERVER), ClusterKey::from_bytes(KEY));
        let plug = Plug { wire: Rc::clone(&wire), address: address(CLIENT) };
        World {
            client: ClientRuntime::new(plug, options),
            device: DeviceShell::new(Rc::clone(&wire), functions),
            server: None,
            storage: MemoryStorage::of(Vec::new()),
            index,
            wire,
        }
    }

    fn start_server(&mut self) {
        let (service, recovery) =
            open(&self.storage, &options_with(self.index, 1 << 20)).expect("our own log");
        let plug = Plug { wire: Rc::clone(&self.wire), address: address(SERVER) };
        let devices = vec![(DeviceId(1), address(DEVICE))];
        let key = ClusterKey::from_bytes(KEY);
        let nonce_seed = [recovery.epoch.0 as u8; 16];
        let config = ServerConfig::new(address(SERVER), key, recovery.epoch, nonce_seed, devices);
        let server = ServerRuntime::new(plug, service, config, &recovery.sessions, ServerOptions::default());
        self.server = Some(server);
    }

    /// The server is gone; what was not on storage goes with it.
    fn kill_server(&mut self) {
        let image = self.storage.image();
        self.server = None;
        self.wire.borrow_mut().server.clear();
        self.storage = MemoryStorage::of(image);
    }

    fn open_session(&mut self) -> SessionHandle {
        let session = self.client.start_session(SessionOptions::default()).expect("room for a session");
        self.until("the session opens", |world| world.client.credit(session) > 0);
        session
    }

    fn submit(&mut self, session: SessionHandle, kind: RequestKind, mode: Mode, words: &[&str]) {
        self.submit_to(session, KeyHash(1), kind, mode, words);
    }

    fn submit_to(
        &mut self,
        session: SessionHandle,
        key_hash: KeyHash,
        kind: RequestKind,
        mode: Mode,
        words: &[&str],
    ) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let payload = command(&words);
        let fixed_reply = mode == Mode::Early;
        let request =
            Request { kind, mode, fixed_reply, relaxed: false, traced: false, key_hash, payload: &payload };
        self.client.submit(session, request, CallLabel::of_kind(kind)).expect("within the window");
    }

    fn turn(&mut self) {
        self.client.turn().expect("the wire does not break");
        self.device.turn();
        if let Some(server) = self.server.as_mut() {
            server.turn().expect("the wire does not break");
        }
        self.device.turn();
    }

    /// The next reply, without the service's own head.
    fn reply(&mut self) -> (CompletedBy, Option<String>) {
        let mut found = None;
        self.until("a reply comes", |world| {
            while found.is_none() {
                let Some(event) = world.client.next_event() else { return false };
                match event {
                    ClientEvent::Completed { reply, .. } => {
                        let text = reply.bytes.map(|bytes| String::from_utf8_lossy(&bytes[2..]).into_owned());
                        found = Some((reply.answered_by, text));
                    }
                    ClientEvent::Opened { .. } => {}
                    ClientEvent::Closed { reason, .. } => panic!("the session has ended: {reason:?}"),
                }
            }
            true
        });
        found.expect("the loop above ends with one")
    }

    fn state(&self) -> String {
        let server = self.server.as_ref().map(|server| (server.metrics(), server.machine().wants_stable()));
        let device = (self.device.machine.counters(), self.device.machine.unsafe_now());
        format!("{:?}\n{device:?}\n{server:?}", self.client.totals())
    }

    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "in vain: {what}: {}", self.state());
            self.turn();
            std::thread::yield_now();
        }
    }
}

/// Packets on their way to each of the three, in order.
#[derive(Default)]
struct Wire {
    client: VecDeque<Datagram>,
    device: VecDeque<Datagram>,
    server: VecDeque<Datagram>,
}

#[derive(Clone)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// The end of the wire at client or server; all they send passes the device.
struct Plug {
    wire: Rc<RefCell<Wire>>,
    address: SocketAddr,
}

impl Transport for Plug {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        out.clear();
        let mut wire = self.wire.borrow_mut();
        let queue = if self.address == address(CLIENT) { &mut wire.client } else { &mut wire.server };
        while out.len() < out.burst_max() {
            let Some(datagram) = queue.pop_front() else { break };
            assert!(out.push(datagram.from, Some(now_realtime()), &datagram.bytes));
        }
        Ok(out.len())
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let from = self.address;
        let datagrams =
            packets.iter().map(|packet| Datagram { from, to: packet.to, bytes: packet.bytes.to_vec() });
        self.wire.borrow_mut().device.extend(datagrams);
        Ok(packets.len())
    }

    fn tx_stamps(&mut self, _out: &mut Vec<(u32, Nanos)>) {}

    fn mtu(&self) -> usize {
        1_472
    }

    fn stamps(&self) -> Stamps {
        Stamps::None
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn poll_fd(&self) -> Option<RawFd> {
        None
    }
}

/// A device whose memory keeps everything at once.
struct DeviceShell {
    machine: Pipeline,
    round: Round,
    wire: Rc<RefCell<Wire>>,
    /// What has just come in: from whom, to whom.
    received: Option<(SocketAddr, SocketAddr)>,
}

impl DeviceShell {
    fn new(wire: Rc<RefCell<Wire>>, functions: Vec<Box<dyn Function>>) -> DeviceShell {
        let key = ClusterKey::from_bytes(KEY);
        let config = DeviceConfig::new(DeviceId(1), BootEpoch(1), address(DEVICE), address(SERVER), key);
        let machine = Pipeline::new(config, functions).expect("the list is in order");
        DeviceShell { machine, round: Round::default(), wire, received: None }
    }

    fn turn(&mut self) {
        let now = now_monotonic();
        if self.machine.next_timer().is_some_and(|at| at <= now) {
            self.act(now, None, |machine, round| machine.on_timer(now, &mut round.effects));
        }
        loop {
            let next = self.wire.borrow_mut().device.pop_front();
            let Some(Datagram { from, to, bytes }) = next else { return };
            let now = now_monotonic();
            self.act(now, Some((from, to)), |machine, round| {
                machine.on_message(now, from, to, &bytes, &mut round.effects);
            });
        }
    }

    fn act(
        &mut self,
        now: Nanos,
        received: Option<(SocketAddr, SocketAddr)>,
        act: impl FnOnce(&mut Pipeline, &mut Round),
    ) {
        let mut round = std::mem::take(&mut self.round);
        self.received = received;
        act(&mut self.machine, &mut round);
        carry_out(now, &mut round, self);
        self.round = round;
    }

    fn pass(&self, datagram: Datagram) {
        let mut wire = self.wire.borrow_mut();
        match datagram.to {
            to if to == address(CLIENT) => wire.client.push_back(datagram),
            to if to == address(SERVER) => wire.server.push_back(datagram),
            to => assert_eq!(to, address(DEVICE), "a packet for nobody"),
        }
    }
}

impl Shell for DeviceShell {
    fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.machine
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.pass(Datagram { from, to, bytes: bytes.to_vec() });
    }

    fn forward(&mut self, bytes: &[u8]) {
        let (from, to) = self.received.expect("only a received message is forwarded");
        self.pass(Datagram { from, to, bytes: bytes.to_vec() });
    }

    fn persist(&mut self, _token: Token, _record: &[u8]) -> Completion {
        Completion::Done
    }

    fn erase(&mut self, _token: Token) {}

    fn set_meta(&mut self, _boot_epoch: BootEpoch, _server: ServerIndex, _server_epoch: Epoch) {}

    fn flush_erasures(&mut self, _token: Token) -> Completion {
        Completion::Done
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
