//! The two sides of the comparison: the rules alone, and the programs with the rules behind them.

use remedy_cache::{Limits, Planted, ReadCache, Redis};
use remedy_persist::{Persist, PersistConfig};
use scotfree_core::{BootEpoch, DeviceId, Epoch, KeyHash, Machine, ServerIndex, SessionId, Token};
use scotfree_device::{
    carry_out, Before, Completion, DeviceConfig, Function, Origin, Pipeline, PortNumber, Round, Shell,
};
use scotfree_io::frame::{parse, Checksums, Frame, Link, MacAddress, UdpFrame};
use scotfree_io::now_monotonic;
use scotfree_wire::{ClusterKey, Direction};
use scotfree_xdp::types::{cache_bucket, cache_cell, cache_head};
use scotfree_xdp::{Kernel, KeyWords, Memory, Settings, Station, StationName, Upcall, Upcalls};
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const fn address(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 51_000)
}

pub const SERVER: SocketAddr = address(2);
pub const CONTROL: SocketAddr = address(254);
pub const SLOTS: u32 = 4_096;
/// The loopback interface stands for the clients' port; nothing is really sent.
const CLIENT_PORT: u32 = 1;
const SERVER_PORT: u32 = 77;
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 254];
const XDP_DROP: u32 = 1;

pub fn client(session: u64) -> SocketAddr {
    address(10 + session as u8)
}

pub fn cluster() -> ClusterKey {
    ClusterKey::from_bytes([3; 32])
}

/// A packet on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

/// What happens to both sides.
#[derive(Debug, Clone)]
pub enum Step {
    Packet(Sent),
    /// The daemon's timer.
    Tick,
}

/// A packet that leaves the device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaving {
    /// The packet that came in, on along its way.
    Forwarded(Vec<u8>),
    /// One of the device's own.
    Originated { to: SocketAddr, bytes: Vec<u8> },
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

fn device(admit_reads: u8) -> Pipeline {
    let limits = Limits { admit_reads, ..Limits::default() };
    let functions: Vec<Box<dyn Function>> = vec![
        Box::new(ReadCache::new(limits, Box::new(Redis), Planted::NONE)),
        Box::new(Persist::new(PersistConfig::default())),
    ];
    // As it is behind programs, which have no room for answers.
    let config = DeviceConfig {
        window_max: 64,
        sessions_max: 4,
        head: true,
        answers_bytes_max: 0,
        ..DeviceConfig::new(DeviceId(1), BootEpoch(1), CONTROL, SERVER, cluster())
    };
    Pipeline::new(config, functions).expect("the list is in order")
}

/// A device, and what it wishes for.
pub struct Rules {
    device: Pipeline,
    round: Round,
}

impl Rules {
    pub fn new(admit_reads: u8) -> Rules {
        Rules { device: device(admit_reads), round: Round::default() }
    }

    pub fn step(&mut self, step: &Step) -> Vec<Leaving> {
        let (now, effects) = (now_monotonic(), &mut self.round.effects);
        match step {
            Step::Packet(sent) => {
                let origin = Origin { address: sent.from, port: Some(PortNumber(0)) };
                self.device.before(now, &Before::Look, effects);
                self.device.on_arrival(now, origin, sent.to, &sent.bytes, effects);
            }
            Step::Tick => self.device.on_timer(now, effects),
        }
        let mut shell = Surroundings { device: &mut self.device, leaving: Vec::new() };
        carry_out(now, &mut self.round, &mut shell);
        let mut leaving = shell.leaving;
        leaving.sort();
        assert_eq!(self.device.take_troubles(), [""; 0], "the tables can be read and written");
        leaving
    }

    /// How far a session has come.
    pub fn next(&self, session: u64) -> u64 {
        let base = self.device.base();
        let region = base.find(ServerIndex(0), SessionId(session));
        region.and_then(|region| base.session(region)).map_or(1, |session| session.next.0)
    }

    /// Why reads were passed on: how often for each reason.
    pub fn misses(&self) -> Vec<(String, u64)> {
        let mut misses = Vec::new();
        self.device.function_counters(&mut |_, count| {
            if count.name == "scotfree_cache_misses_total" {
                misses.push((count.labels.to_owned(), count.value));
            }
        });
        misses
    }

    pub fn server_epoch(&self) -> Epoch {
        self.device.server_epoch(ServerIndex(0))
    }

    pub fn boot_epoch(&self) -> BootEpoch {
        self.device.boot_epoch()
    }
}

/// The programs, with the rules for what they pass up.
pub struct Programs {
    kernel: Arc<Kernel>,
    upcalls: Upcalls,
    rules: Rules,
}

/// What became of a packet.
pub struct Outcome {
    pub leaving: Vec<Leaving>,
    /// The programs answered it by themselves.
    pub answered: bool,
}

impl Programs {
    pub fn new(kernel: &Arc<Kernel>, planted: u32, admit_reads: u8) -> Programs {
        kernel.clear_for_tests().expect("the tables can be written");
        let settings = Settings {
            device: DeviceId(1),
            servers: vec![SERVER],
            control: CONTROL,
            ports: (51_000, 52_000),
            stamp_key: KeyWords(cluster().control(Direction::Stamp).words()),
            own_mac: OWN_MAC,
            event_every: 0,
        };
        kernel.shared().set(&settings);
        let server = StationName { mac: mac(SERVER).0, vlan: 0 };
        let station = Station { ifindex: SERVER_PORT, last_seen: now_monotonic() };
        kernel.set_station(server, station).expect("the tables can be written");
        kernel.shared().server(0).set_ifindex(SERVER_PORT);
        let mut rules = Rules::new(admit_reads);
        for part in [remedy_cache_kernel::PART, remedy_persist_kernel::PART] {
            let Rules { device, round } = &mut rules;
            let effects = &mut round.effects;
            device
                .put_in_kernel(part.function, |base, function| {
                    (part.start)(kernel, &[CLIENT_PORT], base, function, effects)
                })
                .expect("the tables can be read");
        }
        Head::of(kernel).plant(planted);
        let upcalls = kernel.upcalls().expect("the ring opens");
        let mut programs = Programs { kernel: Arc::clone(kernel), upcalls, rules };
        programs.rules.step(&Step::Tick);
        programs
    }

    pub fn step(&mut self, step: &Step) -> Outcome {
        let Step::Packet(sent) = step else {
            return Outcome { leaving: self.rules.step(step), answered: false };
        };
        let frame = frame_of(sent);
        let kernel = Arc::clone(&self.kernel);
        let counters = || kernel.counters().expect("the tables can be read");
        let acks = || remedy_persist_kernel::counters(&kernel).expect("the tables can be read").persist_acks;
        let (before, acks_before) = (counters(), acks());
        let run = self.kernel.test_ingress(&frame, CLIENT_PORT).expect("the program runs");
        let after = counters();
        assert_eq!(after.unwritable, before.unwritable, "every answer can be made");
        if self.take_upcalls() > 0 {
            return Outcome { leaving: self.rules.step(step), answered: false };
        }
        if after.answered > before.answered {
            return Outcome { leaving: vec![originated(&run.frame)], answered: true };
        }
        let mut leaving = Vec::new();
        if run.verdict != XDP_DROP {
            leaving.push(Leaving::Forwarded(payload_of(&run.frame)));
        }
        if acks() > acks_before {
            let clone = self.kernel.test_egress(&run.frame, CLIENT_PORT).expect("the program runs");
            leaving.push(originated(&clone.frame));
        }
        leaving.sort();
        Outcome { leaving, answered: false }
    }

    /// How many frames were passed up.
    fn take_upcalls(&mut self) -> usize {
        let mut frames = 0;
        while self.upcalls.take(|upcall| frames += usize::from(matches!(upcall, Upcall::Frame { .. }))) > 0 {}
        frames
    }
}

// ---- the programs' tables

fn word(memory: &Memory, at: usize) -> &AtomicU64 {
    assert!(at.is_multiple_of(8) && at + 8 <= memory.bytes());
    // SAFETY: the word is aligned and lies in the mapping, which lives as long as the borrow.
    unsafe { AtomicU64::from_ptr(memory.place().as_ptr().add(at).cast()) }
}

/// What holds for all keys.
pub struct Head(Memory);

impl Head {
    pub fn of(kernel: &Kernel) -> Head {
        Head(kernel.map_table("cache_heads", size_of::<cache_head>()).expect("it is there"))
    }

    /// Switches rules off.
    fn plant(&self, planted: u32) {
        let at = offset_of!(cache_head, planted);
        // The half before it, in the same word, says that the programs are on.
        let shift = at % 8 * 8;
        let on = word(&self.0, at - at % 8);
        on.store(
            on.load(Ordering::SeqCst) & !(u64::from(u32::MAX) << shift) | u64::from(planted) << shift,
            Ordering::SeqCst,
        );
    }

    /// As if programs had told more than there is room for.
    pub fn lose_notes(&self) {
        word(&self.0, offset_of!(cache_head, notes)).fetch_add(1 << 20, Ordering::SeqCst);
    }
}

/// What has made the keys of a bucket doubtful.
pub struct Bucket {
    memory: Memory,
    at: usize,
}

pub fn bucket(kernel: &Kernel, key: &str) -> Bucket {
    const BUCKETS: usize = 262_144;
    let memory = kernel.map_table("cache_buckets", BUCKETS * size_of::<cache_bucket>()).expect("it is there");
    Bucket { memory, at: (key_hash(key).0 as usize % BUCKETS) * size_of::<cache_bucket>() }
}

impl Bucket {
    pub fn begin(&self) {
        word(&self.memory, self.at + offset_of!(cache_bucket, begun)).fetch_add(1, Ordering::SeqCst);
    }

    pub fn tell(&self) {
        word(&self.memory, self.at + offset_of!(cache_bucket, told)).fetch_add(1, Ordering::SeqCst);
    }
}

/// The cell of a key that is shown.
pub struct Cell {
    memory: Memory,
    at: usize,
}

pub fn cell(kernel: &Kernel, key: &str) -> Cell {
    const CELLS: usize = 16_384;
    let memory = kernel.map_table("cache_cells", CELLS * size_of::<cache_cell>()).expect("it is there");
    let is_it = |at: &usize| {
        word(&memory, at + offset_of!(cache_cell, key_hash)).load(Ordering::SeqCst) == key_hash(key).0
    };
    let at = (0..CELLS).map(|cell| cell * size_of::<cache_cell>()).find(is_it).expect("it is shown");
    Cell { memory, at }
}

impl Cell {
    /// As if it showed a write at this place in the order.
    pub fn set_order(&self, order: u64) {
        word(&self.memory, self.at + offset_of!(cache_cell, order)).store(order, Ordering::SeqCst);
    }
}

/// Two keys have one hash.
pub fn key_hash(key: &str) -> KeyHash {
    KeyHash::of(0, if key == "twin" { b"k" } else { key.as_bytes() })
}

// ---- frames

fn frame_of(sent: &Sent) -> Vec<u8> {
    let to_device = sent.to == CONTROL;
    let destination = if to_device { MacAddress(OWN_MAC) } else { mac(sent.to) };
    let link = Link { destination, source: mac(sent.from), vlan: None };
    // Frames of the server's come in by the same port here: their stations are others, so that the bridge neither moves
    // the server nor finds a client behind the port that the frame came in by.
    let (there, here) = (MacAddress([2, 0, 0, 0, 9, 9]), MacAddress([2, 0, 0, 0, 8, 8]));
    let link = match sent.from == SERVER {
        true if to_device => Link { source: there, ..link },
        true => Link { source: there, destination: here, ..link },
        false => link,
    };
    let (source, destination) = (sent.from, sent.to);
    let frame = UdpFrame { link, source, destination, hop_limit: 64, traffic_class: 0, payload: &sent.bytes };
    let mut bytes = Vec::new();
    frame.write(&mut bytes).expect("it fits");
    bytes
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
