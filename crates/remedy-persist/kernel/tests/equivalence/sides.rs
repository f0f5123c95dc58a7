//! The two sides of the comparison: the machine alone, and the programs with the machine behind them.

use crate::packets::{cluster, Sent};
use remedy_persist::{Persist, PersistConfig, PersistCounters};
use remedy_persist_kernel::{counters, PART};
use remedy_toy::Toy;
use scotfree_core::{BootEpoch, DeviceId, Epoch, Nanos, SeqNum, ServerIndex, SessionId, Token};
use scotfree_device::{
    carry_out, Before, Completion, DeviceConfig, DeviceCounters, Function, Origin, Pipeline, Round, Shell,
};
use scotfree_io::frame::{parse, Checksums, Frame, Link, MacAddress, UdpFrame};
use scotfree_io::now_monotonic;
use scotfree_wire::{ClusterKey, Direction, WIRE_ERROR_COUNT};
use scotfree_xdp::{Event, Kernel, KeyWords, Settings, Station, StationName, Upcall, Upcalls};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

const fn address(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 51_000)
}

pub const SERVER: SocketAddr = address(2);
pub const CONTROL: SocketAddr = address(254);
pub const CLIENTS: [SocketAddr; 3] = [address(11), address(12), address(13)];
pub const SLOTS: u32 = 4_096;
const WINDOW_MAX: u32 = 64;
/// The loopback interface stands for the clients' port, the other of the namespace for one where nobody lives;
/// nothing is really sent.
const CLIENT_PORT: u32 = 1;
const PORTS: [u32; 2] = [CLIENT_PORT, 1_000];
const SERVER_PORT: u32 = 77;
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 254];
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// A packet that leaves the device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaving {
    /// The packet that came in, on along its way.
    Forwarded(Vec<u8>),
    /// One of the device's own.
    Originated { to: SocketAddr, bytes: Vec<u8> },
}

/// The device's counters as numbers: those of the struct in its order, then refusals by reason.
pub type Counts = [u64; 12 + WIRE_ERROR_COUNT];

fn counts(counters: &DeviceCounters, persist: &PersistCounters) -> Counts {
    let named = [
        counters.requests,
        counters.admitted,
        counters.unadmitted,
        counters.duplicate,
        counters.bad,
        persist.admitted_updates,
        persist.logged,
        persist.ungranted,
        persist.persist_acks,
        persist.freed,
        counters.past_epoch,
        persist.without_lease,
    ];
    core::array::from_fn(|at| named.get(at).copied().unwrap_or_else(|| counters.refused[at - named.len()]))
}

/// The device of the generated scripts.
pub fn config(head: bool) -> DeviceConfig {
    DeviceConfig {
        window_max: WINDOW_MAX,
        sessions_max: 3,
        head,
        ..DeviceConfig::new(DeviceId(1), BootEpoch(1), CONTROL, SERVER, cluster())
    }
}

/// What leaves a device whose memory completes at once.
struct Surroundings<'a> {
    device: &'a mut Pipeline,
    leaving: Vec<Leaving>,
}

impl Shell for Surroundings<'_> {
    fn pipeline(&mut self) -> &mut Pipeline {
        self.device
    }

    fn send(&mut self, _from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.leaving.push(Leaving::Originated { to, bytes: bytes.to_vec() });
    }

    fn forward(&mut self, bytes: &[u8]) {
        self.leaving.push(Leaving::Forwarded(bytes.to_vec()));
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

/// Carries out what a device wishes for.
fn leaving(now: Nanos, device: &mut Pipeline, round: &mut Round) -> Vec<Leaving> {
    let mut shell = Surroundings { device, leaving: Vec::new() };
    carry_out(now, round, &mut shell);
    let mut leaving = shell.leaving;
    leaving.sort();
    leaving
}

/// The machine alone.
pub struct MachineSide {
    device: Pipeline,
    round: Round,
}

/// A device with persist, and with the toy before it if that is wanted.
fn device_of(config: &DeviceConfig, with_toy: bool) -> Pipeline {
    let toy =
        || -> Box<dyn Function> { Box::new(Toy::new(&remedy_toy::ANSWERED.0.to_le_bytes(), config.planted)) };
    let mut functions: Vec<Box<dyn Function>> = with_toy.then(toy).into_iter().collect();
    functions.push(Box::new(Persist::new(PersistConfig::default())));
    // As it is behind programs, which have no room for answers.
    let config = DeviceConfig { answers_bytes_max: 0, ..config.clone() };
    Pipeline::new(config, functions).expect("the list is in order")
}

/// How many reads of its key a machine's toy has seen.
fn toy_reads_of(device: &Pipeline) -> u64 {
    device.function::<Toy>().map_or(0, |toy| toy.reads(remedy_toy::ANSWERED))
}

/// Has a machine handle a packet.
fn handle(device: &mut Pipeline, packet: &Sent, round: &mut Round) -> Vec<Leaving> {
    let now = now_monotonic();
    // What the programs have done meanwhile is known first.
    device.before(now, &Before::Look, &mut round.effects);
    device.on_arrival(now, origin(packet), packet.to, &packet.bytes, &mut round.effects);
    leaving(now, device, round)
}

impl MachineSide {
    pub fn new(config: &DeviceConfig, with_toy: bool) -> MachineSide {
        MachineSide { device: device_of(config, with_toy), round: Round::default() }
    }

    /// How many reads the toy has seen of its key.
    pub fn toy_reads(&self) -> u64 {
        toy_reads_of(&self.device)
    }

    pub fn receive(&mut self, packet: &Sent) -> Vec<Leaving> {
        handle(&mut self.device, packet, &mut self.round)
    }

    pub fn counters(&self) -> Counts {
        counts(self.device.counters(), &remedy_persist::counters(&self.device))
    }

    pub fn take_key(&mut self, key: ClusterKey) {
        self.device.set_cluster_key(now_monotonic(), key, &mut self.round.effects);
    }

    pub fn next(&self, id: SessionId) -> SeqNum {
        next_of(&self.device, id).unwrap_or(SeqNum(1))
    }

    pub fn boot_epoch(&self) -> BootEpoch {
        self.device.boot_epoch()
    }

    pub fn server_epoch(&self) -> Epoch {
        self.device.server_epoch(ServerIndex(0))
    }
}

/// The programs, with a machine for what they pass up.
pub struct KernelSide {
    kernel: Arc<Kernel>,
    upcalls: Upcalls,
    device: Pipeline,
    round: Round,
    before: (DeviceCounters, PersistCounters),
    control: SocketAddr,
    server: SocketAddr,
    kept: u32,
    answered: u32,
    told: Vec<Event>,
    settings: Settings,
    with_toy: bool,
    toy_reads_before: u64,
    /// There are fewer slots than the sessions ask for.
    lacks_slots: bool,
}

/// How many reads the programs' toy has seen of its key.
fn toy_reads_in(kernel: &Kernel) -> u64 {
    let found =
        kernel.test_value("toy_reads", &remedy_toy::ANSWERED.0.to_ne_bytes()).expect("the table can be read");
    found.map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().expect("a count has eight bytes")))
}

impl KernelSide {
    pub fn new(kernel: &Arc<Kernel>, config: &DeviceConfig, with_toy: bool) -> KernelSide {
        kernel.clear_for_tests().expect("the tables can be written");
        let settings = Settings {
            device: config.device,
            servers: vec![config.servers[0].address],
            control: config.address,
            ports: (51_000, 52_000),
            stamp_key: KeyWords(config.cluster_key.control(Direction::Stamp).words()),
            own_mac: OWN_MAC,
            event_every: 0,
        };
        kernel.shared().set(&settings);
        let server = StationName { mac: mac(config.servers[0].address).0, vlan: 0 };
        let station = Station { ifindex: SERVER_PORT, last_seen: now_monotonic() };
        kernel.set_station(server, station).expect("the tables can be written");
        kernel.shared().server(0).set_ifindex(SERVER_PORT);
        let mut device = device_of(config, with_toy);
        let mut round = Round::default();
        device
            .put_in_kernel(PART.function, |base, function| {
                (PART.start)(kernel, &PORTS, base, function, &mut round.effects)
            })
            .expect("the tables can be read");
        let upcalls = kernel.upcalls().expect("the ring opens");
        let before = programs_counters(kernel);
        KernelSide {
            kernel: Arc::clone(kernel),
            upcalls,
            device,
            round,
            before,
            control: config.address,
            server: config.servers[0].address,
            kept: 0,
            answered: 0,
            with_toy,
            lacks_slots: kernel.slot_count() < SLOTS,
            toy_reads_before: if with_toy { toy_reads_in(kernel) } else { 0 },
            told: Vec::new(),
            settings,
        }
    }

    /// What leaves, and whether the packet was passed up.
    pub fn receive(&mut self, packet: &Sent) -> (Vec<Leaving>, bool) {
        let frame = self.frame_of(packet);
        let before = self.kernel.counters().expect("the tables can be read");
        let acks = counters(&self.kernel).expect("the tables can be read").persist_acks;
        let ingress = PORTS[packet.port.0 as usize];
        let run = self.kernel.test_ingress(&frame, ingress).expect("the program runs");
        let after = self.kernel.counters().expect("the tables can be read");
        if after.passed_up > before.passed_up {
            return (self.passed_up(packet), true);
        }
        self.kept += 1;
        if after.answered > before.answered {
            self.answered += 1;
            return (vec![originated(&run.frame)], false);
        }
        let mut leaving = Vec::new();
        if run.verdict != XDP_DROP {
            leaving.push(Leaving::Forwarded(payload_of(&run.frame)));
        }
        if counters(&self.kernel).expect("the tables can be read").persist_acks > acks {
            leaving.push(self.acknowledgement(&run.frame));
        }
        leaving.sort();
        (leaving, false)
    }

    fn acknowledgement(&self, clone: &[u8]) -> Leaving {
        let run = self.kernel.test_egress(clone, CLIENT_PORT).expect("the program runs");
        assert_eq!(run.verdict, XDP_PASS, "an acknowledgement can be made of every clone");
        originated(&run.frame)
    }

    /// How many reads of its key the toy has seen, in the kernel and behind it.
    pub fn toy_reads(&self) -> u64 {
        if !self.with_toy {
            return 0;
        }
        toy_reads_of(&self.device) + toy_reads_in(&self.kernel) - self.toy_reads_before
    }

    /// How many requests the programs answered instead of the server.
    pub fn answered(&self) -> u32 {
        self.answered
    }

    fn passed_up(&mut self, packet: &Sent) -> Vec<Leaving> {
        let mut frames = Vec::new();
        self.upcalls.take(|upcall| match upcall {
            Upcall::Frame { frame, .. } => frames.push(frame.to_vec()),
            Upcall::Event(event) => self.told.push(event),
            Upcall::Notice { .. } | Upcall::Entry { .. } => {}
        });
        assert_eq!(frames.len(), 1, "what was passed up has come");
        assert_eq!(payload_of(&frames[0]), packet.bytes);
        let leaving = handle(&mut self.device, packet, &mut self.round);
        assert_eq!(self.device.take_troubles(), [""; 0], "the tables can be read and written");
        self.device.function_counters(&mut |_, count| {
            let lacks_slots = self.lacks_slots && count.labels.contains("without_slots");
            assert!(count.value == 0 || lacks_slots || !count.name.contains("mishaps"), "{count:?}");
        });
        leaving
    }

    fn frame_of(&self, packet: &Sent) -> Vec<u8> {
        let to_device = packet.to == self.control;
        let destination = if to_device { MacAddress(OWN_MAC) } else { mac(packet.to) };
        let link = Link { destination, source: mac(packet.from), vlan: None };
        // Frames of the server's come in by the same port here: their stations are others, so that the bridge
        // neither moves the server nor finds a client behind the port that the frame came in by.
        let (there, here) = (MacAddress([2, 0, 0, 0, 9, 9]), MacAddress([2, 0, 0, 0, 8, 8]));
        let link = match packet.from == self.server {
            true if to_device => Link { source: there, ..link },
            true => Link { source: there, destination: here, ..link },
            false => link,
        };
        let frame = UdpFrame {
            link,
            source: packet.from,
            destination: packet.to,
            hop_limit: 64,
            traffic_class: 0,
            payload: &packet.bytes,
        };
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("it fits");
        bytes
    }

    pub fn counters(&self) -> Counts {
        let (base, persist) = programs_counters(&self.kernel);
        let (programs, before) = (counts(&base, &persist), counts(&self.before.0, &self.before.1));
        // What persist has counted is counted with its programs' already.
        let mut own = PersistCounters::default();
        if let Some(persist) = self.device.function::<Persist>() {
            own = *persist.counters();
        }
        let machine = counts(self.device.counters(), &own);
        core::array::from_fn(|at| programs[at] - before[at] + machine[at])
    }

    /// Has every packet told of.
    pub fn sample_all(&mut self) {
        self.kernel.shared().set(&Settings { event_every: 1, ..self.settings.clone() });
    }

    /// What was told so far.
    pub fn told(&mut self) -> &[Event] {
        self.upcalls.take(|upcall| {
            if let Upcall::Event(event) = upcall {
                self.told.push(event);
            }
        });
        &self.told
    }

    pub fn take_key(&mut self, key: ClusterKey) {
        let now = now_monotonic();
        self.device.set_cluster_key(now, key, &mut self.round.effects);
        leaving(now, &mut self.device, &mut self.round);
        assert_eq!(self.device.take_troubles(), [""; 0], "the tables can be read and written");
    }

    /// How many packets the programs dealt with by themselves.
    pub fn kept(&self) -> u32 {
        self.kept
    }
}

/// What the programs have counted, of the base's and of persist's.
fn programs_counters(kernel: &Kernel) -> (DeviceCounters, PersistCounters) {
    let counted = kernel.counters().expect("the tables can be read");
    let base = DeviceCounters {
        requests: counted.requests,
        admitted: counted.admitted,
        unadmitted: counted.unadmitted,
        duplicate: counted.duplicate,
        bad: counted.bad,
        past_epoch: counted.past_epoch,
        refused: counted.refused,
        ..DeviceCounters::default()
    };
    (base, counters(kernel).expect("the tables can be read"))
}

/// How far a session has come.
pub fn next_of(device: &Pipeline, id: SessionId) -> Option<SeqNum> {
    let base = device.base();
    Some(base.session(base.find(ServerIndex(0), id)?)?.next)
}

fn origin(packet: &Sent) -> Origin {
    Origin { address: packet.from, port: Some(packet.port) }
}

fn mac(host: SocketAddr) -> MacAddress {
    let IpAddr::V4(ip) = host.ip() else { panic!("the hosts have IPv4 addresses") };
    let [_, _, net, host] = ip.octets();
    MacAddress([2, 0, 0, 0, net, host])
}

fn originated(frame: &[u8]) -> Leaving {
    let Ok(Frame::Udp(udp)) = parse(frame, Checksums::Ready) else { panic!("no datagram: {frame:?}") };
    Leaving::Originated { to: udp.destination, bytes: udp.payload.to_vec() }
}

fn payload_of(frame: &[u8]) -> Vec<u8> {
    let Ok(Frame::Udp(udp)) = parse(frame, Checksums::Ready) else {
        panic!("no datagram, or checksums wrong: {frame:?}")
    };
    udp.payload.to_vec()
}
