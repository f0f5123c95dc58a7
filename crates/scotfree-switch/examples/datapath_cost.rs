//! What one update costs the device between receiving its frame and handing frame and acknowledgement
//! to the ports, without any system call: the processor's part of the path. Prints one JSON object.
//!
//! Envelope for 64 bytes: parsing and checksum 60 ns, two MACs in and one stamp 180 ns, tables 150 ns,
//! the log's copy with its CRC 150 ns, the acknowledgement's MAC and frame 150 ns: about 700 ns.

use remedy_persist::PersistConfig;
use scotfree_core::{BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, SeqNum, SessionId};
use scotfree_device::DeviceConfig;
use scotfree_io::frame::{Checksums, Link, MacAddress, UdpFrame};
use scotfree_io::now_monotonic;
use scotfree_io::ram::{RamConfig, RamDomain};
use scotfree_switch::bridge::PortIndex;
use scotfree_switch::datapath::{Arrival, Datapath};
use scotfree_switch::logs::{Log, LogMeta, Logs};
use scotfree_switch::outbox::{FrameSource, Outbox};
use scotfree_switch::{Notices, SwitchConfig, RECORD_BYTES_MAX};
use scotfree_wire::{emit, AcceptTail, ClusterKey, Direction, Header, Kind, LeaseTail, Stamp, Tail};
use std::net::SocketAddr;
use std::path::PathBuf;

const WINDOW_MAX: u32 = 4_096;
const SESSION: SessionId = SessionId(11);
const CLIENT: PortIndex = PortIndex(0);
const SERVER: PortIndex = PortIndex(1);

struct Bench {
    path: Datapath,
    out: Outbox,
    notices: Notices,
    file: PathBuf,
    key: ClusterKey,
    now: Nanos,
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let parts: Vec<String> = [64, 512, 1_280]
        .into_iter()
        .map(|payload_bytes| {
            let mut bench = Bench::new();
            let (update_ns, stable_ns) = bench.run(count, payload_bytes);
            assert_eq!(
                remedy_persist::counters(bench.path.device()).persist_acks,
                count,
                "every update was acknowledged"
            );
            let _ = std::fs::remove_file(&bench.file);
            format!(
                "{{\"payload_bytes\": {payload_bytes}, \"update_ns\": {update_ns:.0}, \
                 \"freeing_ns\": {stable_ns:.0}}}"
            )
        })
        .collect();
    println!("{{\"count\": {count}, \"costs\": [{}]}}", parts.join(", "));
}

impl Bench {
    fn new() -> Bench {
        let file = PathBuf::from(format!("/dev/shm/scot-sw-cost-{}", std::process::id()));
        let slots = RamConfig {
            slot_count: u64::from(WINDOW_MAX) + 1,
            record_bytes_max: RECORD_BYTES_MAX,
            ..RamConfig::default()
        };
        let domain = RamDomain::open(&file, &slots).expect("a log in memory");
        let logs = Logs::new(Some(Log::new(Box::new(domain), &file)), None);
        let key = ClusterKey::from_bytes([1; 32]);
        let (control, server) = (address("10.0.0.9:51000"), address("10.0.0.2:51000"));
        let config = SwitchConfig::new(DeviceId(1), &["p0", "p1"], control, server, key.clone());
        let meta = LogMeta::new(DeviceId(1), (WINDOW_MAX, 1), &[server]);
        let device = DeviceConfig {
            sessions_max: 1,
            ..DeviceConfig::new(DeviceId(1), BootEpoch(1), control, server, key.clone())
        };
        let device = remedy_persist::device(device, PersistConfig::default());
        let path = Datapath::new(&config, device, logs, meta);
        let mut bench = Bench {
            path,
            out: Outbox::default(),
            notices: Notices::to_stderr(),
            file,
            key,
            now: now_monotonic(),
        };
        bench.open_session();
        bench
    }

    fn open_session(&mut self) {
        let lease = LeaseTail {
            asked_at: self.now,
            duration: Nanos::from_secs(3_600),
            device: DeviceId(1),
            boot_epoch: BootEpoch(1),
        };
        let header = Header::new(Kind::Lease, SessionId(0), Epoch(1));
        let key = self.key.control(Direction::ServerToDevice);
        self.arrive(SERVER, "10.0.0.2:51000", "10.0.0.9:51000", |out| {
            emit(&header, &Tail::Lease(lease), &[], &key, out);
        });
        let accept = AcceptTail {
            client_nonce: [1; 16],
            server_nonce: [2; 16],
            window: WINDOW_MAX,
            expiry_ms: 60_000,
        };
        let header = Header::new(Kind::SessionAccept, SESSION, Epoch(1));
        let key = self.key.control(Direction::Handshake);
        self.arrive(SERVER, "10.0.0.2:51000", "10.0.0.1:51001", |out| {
            emit(&header, &Tail::Accept(accept), &[], &key, out);
        });
    }

    /// Nanoseconds per update and per freed update.
    fn run(&mut self, count: u64, payload_bytes: usize) -> (f64, f64) {
        let keys = self.key.session(&[1; 16], &[2; 16], SESSION, Epoch(1));
        let payload = vec![7; payload_bytes];
        let (mut updating, mut freeing) = (0, 0);
        let mut frames = Vec::new();
        let mut seq = 0;
        while seq < count {
            frames.clear();
            let burst = u64::from(WINDOW_MAX / 4).min(count - seq);
            for offset in 1..=burst {
                let mut header = Header::new(Kind::Update, SESSION, Epoch(1));
                header.seq_num = SeqNum(seq + offset);
                header.asked = Durability::Ram;
                header.device_acks_asked = 1;
                header.key_hash = KeyHash(offset);
                frames.push(frame(CLIENT, "10.0.0.1:51001", "10.0.0.2:51000", |out| {
                    emit(&header, &Tail::Stamp(Stamp::default()), &payload, &keys.client_to_server, out);
                }));
            }
            seq += burst;
            let before = now_monotonic();
            for bytes in &frames {
                self.pass(CLIENT, bytes);
            }
            updating += now_monotonic().since(before).0;
            let mut header = Header::new(Kind::ServerAck, SESSION, Epoch(1));
            header.seq_num = SeqNum(seq);
            let bytes = frame(SERVER, "10.0.0.2:51000", "10.0.0.1:51001", |out| {
                emit(&header, &Tail::Empty, &[], &keys.server_to_client, out);
            });
            let before = now_monotonic();
            self.pass(SERVER, &bytes);
            freeing += now_monotonic().since(before).0;
        }
        (updating as f64 / count as f64, freeing as f64 / count as f64)
    }

    fn arrive(&mut self, ingress: PortIndex, from: &str, to: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let bytes = frame(ingress, from, to, write);
        self.pass(ingress, &bytes);
    }

    fn pass(&mut self, ingress: PortIndex, bytes: &[u8]) {
        let source = FrameSource::Received { port: ingress, index: 0 };
        let arrival = Arrival { ingress, bytes, checksums: Checksums::Ready, source };
        self.path.on_frame(self.now, &arrival, &mut self.out, &mut self.notices);
        self.out.clear();
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn frame(ingress: PortIndex, from: &str, to: &str, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
    let (source, destination) = if ingress == CLIENT { (mac(1), mac(2)) } else { (mac(2), mac(1)) };
    let mut payload = Vec::new();
    write(&mut payload);
    let frame = UdpFrame {
        link: Link { destination, source, vlan: None },
        source: address(from),
        destination: address(to),
        hop_limit: 64,
        traffic_class: 0,
        payload: &payload,
    };
    let mut bytes = Vec::new();
    frame.write(&mut bytes).expect("it fits");
    bytes
}
