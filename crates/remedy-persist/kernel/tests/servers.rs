//! Several servers behind one device: the programs keep their sessions, orders, leases and ports apart.

use scotfree_core::{BootEpoch, DeviceId, Durability, Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::frame::{parse, Checksums, Frame, Link, MacAddress, UdpFrame};
use scotfree_io::now_monotonic;
use scotfree_wire::{
    emit, ClusterKey, Direction, Header, Key, Kind, Packet, SessionKeys, Stamp, StampKind, Tail,
};
use scotfree_xdp::{
    Functions, Kernel, KernelConfig, KernelError, KeyWords, Port, SessionEntry, Settings, Station,
    StationName, TestRun, Upcall, SESSION_ROOM,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const WINDOW: u32 = 8;
const ID: SessionId = SessionId(5);
const CLIENT_IFINDEX: u32 = 1_000;
/// Behind which port each server lives.
const SERVER_IFINDEXES: [u32; 2] = [1_002, 1_003];
const XDP_DROP: u32 = 1;
const XDP_REDIRECT: u32 = 4;

fn address(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 51_000)
}

fn client() -> SocketAddr {
    address(11)
}

fn server(place: usize) -> SocketAddr {
    address(2 + place as u8)
}

fn cluster() -> ClusterKey {
    ClusterKey::from_bytes([3; 32])
}

/// Both servers have given the same id; their sessions have other keys.
fn keys(place: usize) -> SessionKeys {
    cluster().session(&[place as u8; 16], &[9; 16], ID, Epoch(1))
}

/// The programs with two servers, a session of each with the same client, and the ports of all three.
struct Stage {
    kernel: Kernel,
}

impl Stage {
    /// `None` where programs cannot be loaded.
    fn set_up() -> Option<Stage> {
        let functions = Functions::named(&["persist"]).expect("its programs are built in");
        let config = KernelConfig { slot_count: 2 * WINDOW, pin: None, functions };
        let kernel = match Kernel::load_for_tests(&config) {
            Ok(kernel) => kernel,
            Err(trouble @ KernelError::Load { .. }) => {
                eprintln!("SKIP: {trouble}");
                return None;
            }
            Err(trouble) => panic!("{trouble}"),
        };
        make_ports();
        let shared = kernel.shared();
        shared.set(&Settings {
            device: DeviceId(1),
            servers: vec![server(0), server(1)],
            control: address(254),
            ports: (51_000, 51_999),
            stamp_key: KeyWords(cluster().control(Direction::Stamp).words()),
            own_mac: [2, 0, 0, 0, 0, 254],
            event_every: 0,
        });
        shared.set_boot_epoch(BootEpoch(1));
        shared.set_role(true, Durability::Ram);
        let stage = Stage { kernel };
        for place in 0..2 {
            let server = stage.kernel.shared().server(place);
            server.set_epoch(Epoch(1));
            server.set_accepted(true);
            server.set_lease(Nanos::MAX);
            stage.learn(place);
            stage.add_session(place);
        }
        Some(stage)
    }

    fn ports() -> Vec<Port> {
        let names = ["p0", "s0", "s1"].into_iter();
        let ports = names.zip([CLIENT_IFINDEX, SERVER_IFINDEXES[0], SERVER_IFINDEXES[1]]);
        ports.map(|(interface, ifindex)| Port { interface: interface.to_owned(), ifindex }).collect()
    }

    /// A server's station and its port become known.
    fn learn(&self, place: usize) {
        let ifindex = SERVER_IFINDEXES[place];
        let station = Station { ifindex, last_seen: now_monotonic() };
        let name = StationName { mac: mac(server(place)).0, vlan: 0 };
        self.kernel.set_station(name, station).expect("the table can be written");
        self.kernel.set_server_port(&Stage::ports(), place, ifindex).expect("the ports are there");
    }

    fn add_session(&self, place: usize) {
        let words = |key: &Key| KeyWords(key.words());
        let keys = keys(place);
        let session = SessionEntry {
            index: place as u32,
            id: ID,
            next: SeqNum(1),
            last_write: SeqNum(0),
            heard_at: now_monotonic(),
            room: [0; SESSION_ROOM],
            client: client(),
            window: WINDOW,
            slot_first: place as u32 * WINDOW,
            server: place as u32,
            client_ifindex: CLIENT_IFINDEX,
            client_port: self.kernel.shared().port_place(CLIENT_IFINDEX).expect("it is a port"),
            epoch: Epoch(1),
            closing: false,
            confirmed: true,
            client_to_server: words(&keys.client_to_server),
            server_to_client: words(&keys.server_to_client),
            device_to_client: words(&keys.device_to_client),
            client_nonce: [place as u8; 16],
            server_nonce: [9; 16],
        };
        self.kernel.add_session(&session).expect("the table can be written");
    }

    fn request(&self, place: usize, seq: u64, key: &Key) -> TestRun {
        self.request_at(place, seq, key, Durability::Ram)
    }

    fn request_at(&self, place: usize, seq: u64, key: &Key, asked: Durability) -> TestRun {
        let mut header = Header::new(Kind::Update, ID, Epoch(1));
        (header.seq_num, header.asked, header.device_acks_asked) = (SeqNum(seq), asked, 1);
        let bytes = packet(&header, &Tail::Stamp(Stamp::default()), key);
        self.kernel.test_ingress(&frame(client(), server(place), &bytes), CLIENT_IFINDEX).expect("it runs")
    }

    fn server_ack(&self, place: usize, stable: u64) -> TestRun {
        let mut header = Header::new(Kind::ServerAck, ID, Epoch(1));
        header.seq_num = SeqNum(stable);
        let bytes = packet(&header, &Tail::Empty, &keys(place).server_to_client);
        self.kernel
            .test_ingress(&frame(server(place), client(), &bytes), SERVER_IFINDEXES[place])
            .expect("it runs")
    }

    fn counted(&self, name: &str) -> u64 {
        self.kernel.counters_of("persist").expect("the table can be read")[name]
    }
}

fn packet(header: &Header, tail: &Tail, key: &Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit(header, tail, b"", key, &mut bytes);
    bytes
}

/// A network namespace of this thread's with the ports, whose numbers are known.
fn make_ports() {
    // SAFETY: it changes what this thread alone sees.
    let entered = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
    for (name, index, peer) in [("p0", "1000", "q0"), ("s0", "1002", "t0"), ("s1", "1003", "t1")] {
        let words = ["link", "add", "name", name, "index", index, "type", "veth", "peer", "name", peer];
        let made = std::process::Command::new("ip").args(words).status().expect("there is `ip`");
        assert!(made.success(), "{made}");
    }
}

fn mac(host: SocketAddr) -> MacAddress {
    let IpAddr::V4(ip) = host.ip() else { panic!("the hosts have IPv4 addresses") };
    MacAddress([2, 0, 0, 0, 0, ip.octets()[3]])
}

fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let link = Link { destination: mac(to), source: mac(from), vlan: None };
    let frame = UdpFrame { link, source: from, destination: to, hop_limit: 64, traffic_class: 0, payload };
    let mut bytes = Vec::new();
    frame.write(&mut bytes).expect("it fits");
    bytes
}

fn payload(frame: &[u8]) -> Vec<u8> {
    let Ok(Frame::Udp(udp)) = parse(frame, Checksums::Ready) else { panic!("no datagram: {frame:?}") };
    udp.payload.to_vec()
}

fn stamp_of(run: &TestRun) -> Stamp {
    let bytes = payload(&run.frame);
    let packet = Packet::parse(&bytes).expect("it is whole");
    let Tail::Stamp(stamp) = *packet.tail() else { panic!("a request has a stamp: {packet:?}") };
    stamp
}

#[test]
fn each_server_has_its_sessions_and_its_order() {
    let Some(stage) = Stage::set_up() else { return };
    for (place, seq, number) in [(0, 1, 1), (1, 1, 1), (1, 2, 2), (0, 2, 2), (1, 3, 3)] {
        let run = stage.request(place, seq, &keys(place).client_to_server);
        assert_eq!(run.verdict, XDP_REDIRECT, "both of its ports are known");
        let stamp = stamp_of(&run);
        assert_eq!((stamp.kind, stamp.number.0), (StampKind::Order, number), "server {place}, request {seq}");
        let acknowledged = stage.kernel.test_egress(&run.frame, CLIENT_IFINDEX).expect("it runs");
        let bytes = payload(&acknowledged.frame);
        let ack = Packet::parse(&bytes).expect("it is whole");
        assert_eq!((ack.kind(), ack.seq_num().0), (Kind::PersistAck, seq));
        assert!(ack.verify(&keys(place).device_to_client).is_ok(), "it is of the other server's session");
    }
    let orders: Vec<u64> = stage.kernel.shared().servers().map(|server| server.order_current().0).collect();
    assert_eq!(orders, [2, 3]);
    assert_eq!((stage.counted("logged"), stage.counted("persist_acks")), (5, 5));
}

#[test]
fn a_request_to_one_server_is_not_the_others() {
    let Some(stage) = Stage::set_up() else { return };
    assert_eq!(stage.request(1, 1, &keys(0).client_to_server).verdict, XDP_DROP);
    assert_eq!(stage.kernel.counters().expect("they can be read").bad, 1);
    assert_eq!(stage.counted("logged"), 0);
}

#[test]
fn what_one_server_says_is_stable_frees_only_its_own() {
    let Some(stage) = Stage::set_up() else { return };
    for place in 0..2 {
        for seq in 1..=3 {
            stage.request(place, seq, &keys(place).client_to_server);
        }
    }
    stage.server_ack(1, 2);
    assert_eq!(stage.counted("freed"), 2);
    stage.server_ack(0, 3);
    assert_eq!(stage.counted("freed"), 5);
}

#[test]
fn an_entry_for_the_disk_is_told_of_with_its_server() {
    let Some(stage) = Stage::set_up() else { return };
    stage.kernel.shared().set_role(true, Durability::RamAndDisk);
    let mut upcalls = stage.kernel.upcalls().expect("the ring opens");
    for (place, seq) in [(1, 1), (0, 1), (1, 2)] {
        stage.request_at(place, seq, &keys(place).client_to_server, Durability::Disk);
    }
    let mut told = Vec::new();
    upcalls.take(|upcall| told.push(upcall_in_numbers(&upcall)));
    assert_eq!(told, [Some((1, ID, 1)), Some((0, ID, 1)), Some((1, ID, 2))]);
}

fn upcall_in_numbers(upcall: &Upcall<'_>) -> Option<(u8, SessionId, u64)> {
    match upcall {
        Upcall::Entry { server, session, seq } => Some((server.0, *session, seq.0)),
        _ => None,
    }
}

#[test]
fn a_lease_is_of_one_server_and_a_port_too() {
    let Some(stage) = Stage::set_up() else { return };
    stage.kernel.shared().server(1).set_lease(Nanos(0));
    for place in 0..2 {
        stage.request(place, 1, &keys(place).client_to_server);
    }
    assert_eq!((stage.counted("persist_acks"), stage.counted("without_lease")), (1, 1));
    stage.kernel.shared().server(0).set_ifindex(0);
    let before = stage.kernel.counters().expect("they can be read").passed_up;
    stage.request(0, 2, &keys(0).client_to_server);
    stage.request(1, 2, &keys(1).client_to_server);
    let after = stage.kernel.counters().expect("they can be read").passed_up;
    assert_eq!(after - before, 1, "only the first server's port is not known any more");
    assert_eq!(stage.counted("logged"), 3);
}
