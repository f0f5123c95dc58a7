//! Frames played into the device's programs on one processor: requests of many sessions, each the next of its
//! session, and then what frees their entries.
//!
//! Invariant: every frame is another, with a MAC of its own; what is counted at both ends of the way, by programs
//! that take what the device sends, is what the device's programs say.

use crate::gauge::{interface_number, Gauge, GaugeCounters, Part};
use scotfree_core::{BootEpoch, DeviceId, Durability, Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::frame::{Link, MacAddress, UdpFrame};
use scotfree_io::now_monotonic;
use scotfree_stage::trouble::Trouble;
use scotfree_wire::{emit, ClusterKey, Direction, Flags, Header, Key, Kind, SessionKeys, Stamp, Tail};
use scotfree_xdp::{
    AttachMode, Functions, Kernel, KernelConfig, KernelError, KeyWords, Port, SessionEntry, Settings,
    Station, StationName, SESSION_ROOM,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What to play.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaybackSpec {
    /// The device's port to the clients, and the other end of its cable.
    pub client_ports: [String; 2],
    /// The same to the server.
    pub server_ports: [String; 2],
    /// How many sessions take turns.
    pub sessions: u32,
    /// How many requests of a session are played before they are said to be stable.
    pub window: u32,
    /// The size of an update.
    pub payload_bytes: usize,
    /// How often all windows are filled.
    pub rounds: u32,
    /// Whether the device's program gets the frames; otherwise they are written and dropped.
    pub to_device: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaybackReport {
    /// Requests per second of the time in which they were played.
    pub requests_per_s: f64,
    /// The same in the median round.
    pub requests_per_s_p50: f64,
    /// What was counted.
    pub counters: BTreeMap<String, u64>,
}

/// How long frames may be on their way to the end once the last was played.
const PATIENCE: Duration = Duration::from_secs(5);

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 51_001);
const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 254)), 51_000);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 254];

fn cluster() -> ClusterKey {
    ClusterKey::from_bytes([3; 32])
}
const EPOCH: Epoch = Epoch(1);
const CLIENT_PORT_FIRST: u16 = 40_000;

pub(super) fn measure(spec: &PlaybackSpec) -> Result<PlaybackReport, Trouble> {
    let mut stage = Stage::set_up(spec)?;
    // What is played at first fills caches and pools.
    stage.round(spec)?;
    let before = stage.counts()?;
    let rounds = (0..spec.rounds).map(|_| stage.round(spec)).collect::<Result<Vec<_>, _>>()?;
    let expected = u64::from(spec.rounds) * u64::from(spec.sessions) * u64::from(spec.window);
    let counts = stage.await_counts(&before, if spec.to_device { expected } else { 0 })?;
    let of_round = |span: &Duration| f64::from(spec.sessions * spec.window) / span.as_secs_f64();
    let rates: Vec<f64> = rounds.iter().map(of_round).collect();
    Ok(PlaybackReport {
        requests_per_s: expected as f64 / rounds.iter().sum::<Duration>().as_secs_f64(),
        requests_per_s_p50: scotfree_stage::stats::median(&rates).unwrap_or(0.0),
        counters: counts,
    })
}

fn failed<E: std::fmt::Display>(tried: &'static str) -> impl FnOnce(E) -> Trouble {
    move |error| Trouble::new(tried, error, "see: scot doctor")
}

/// The device's programs with sessions, between two ends.
struct Stage {
    kernel: Kernel,
    player: Gauge,
    // Of the clients, then of the server.
    ends: [Gauge; 2],
    ports: [Port; 2],
    keys: Vec<SessionKeys>,
    next: u64,
    played: [u64; 2],
    // What is attached stays so as long as these.
    _attached: Vec<std::os::fd::OwnedFd>,
    _ends_attached: Vec<libbpf_rs::Link>,
}

impl Stage {
    fn set_up(spec: &PlaybackSpec) -> Result<Stage, Trouble> {
        let load = |part| Gauge::load(part).map_err(failed("load the lab's programs"));
        let slot_count = spec.sessions * spec.window;
        let functions = Functions::named(&["persist"]).map_err(failed("find the device's function"))?;
        let kernel = Kernel::load(&KernelConfig { slot_count, pin: None, functions })
            .map_err(failed("load the device's programs"))?;
        let ports = [port(&spec.client_ports[0])?, port(&spec.server_ports[0])?];
        let attached = prepare(&kernel, &ports).map_err(failed("make the device's programs ready"))?;
        let keys: Vec<SessionKeys> = (0..spec.sessions).map(keys_of).collect();
        add_sessions(&kernel, &ports[0], spec, &keys).map_err(failed("give the device sessions"))?;
        let player = load(Part::Play { frames_max: slot_count })?;
        if spec.to_device {
            player
                .play_into(kernel.ingress_program())
                .map_err(failed("point the player at the device's program"))?;
        }
        let ends = [load(Part::End)?, load(Part::End)?];
        let attach = |end: &Gauge, name: &str| {
            end.attach(port(name)?.ifindex).map_err(failed("attach the end of the way"))
        };
        let ends_attached =
            vec![attach(&ends[0], &spec.client_ports[1])?, attach(&ends[1], &spec.server_ports[1])?];
        Ok(Stage {
            kernel,
            player,
            ends,
            ports,
            keys,
            next: 1,
            played: [0; 2],
            _attached: attached,
            _ends_attached: ends_attached,
        })
    }

    /// Fills all windows, a request of each session in turn, and empties them: how long both took.
    fn round(&mut self, spec: &PlaybackSpec) -> Result<Duration, Trouble> {
        let window = u64::from(spec.window);
        let payload = vec![b'x'; spec.payload_bytes];
        let sessions = || (0_u32..).zip(&self.keys);
        let requests: Vec<Vec<u8>> = (self.next..self.next + window)
            .flat_map(|seq| sessions().map(move |(index, keys)| (index, keys, seq)))
            .map(|(index, keys, seq)| request(index, &keys.client_to_server, seq, &payload))
            .collect();
        let stable = self.next + window - 1;
        let acks: Vec<Vec<u8>> =
            sessions().map(|(index, keys)| server_ack(index, &keys.server_to_client, stable)).collect();
        self.next += window;
        let mut span = Duration::ZERO;
        for (at, frames) in [requests, acks].iter().enumerate() {
            let played = self.player.play(frames, self.ports[at].ifindex);
            span += played.map_err(failed("play frames"))?;
            self.played[at] += frames.len() as u64;
        }
        Ok(span)
    }

    fn counts(&self) -> Result<BTreeMap<String, u64>, Trouble> {
        let told = failed::<libbpf_rs::Error>;
        let kernel = self.kernel.counters().map_err(failed("read the device's counters"))?;
        let own = self.kernel.counters_of("persist").map_err(failed("read the device's counters"))?;
        let own = |name: &str| own.get(name).copied().unwrap_or(0);
        let player = self.player.counters().map_err(told("read the player's counters"))?;
        let [clients, server] = &self.ends;
        let clients = clients.counters().map_err(told("read the counters at the end"))?;
        let server = server.counters().map_err(told("read the counters at the end"))?;
        let ended = |end: &GaugeCounters, kind: Kind| end.ended[kind as usize];
        let counts = [
            ("sent", self.played[0]),
            ("freeings", self.played[1]),
            ("played", player.played),
            ("logged", own("logged")),
            ("acknowledged", own("persist_acks")),
            ("freed", own("freed")),
            ("passed_up", kernel.passed_up + kernel.passed_up_full),
            ("refused", kernel.refused.iter().sum::<u64>() + kernel.malformed + kernel.unwritable),
            ("not_admitted", kernel.duplicate + kernel.unadmitted + own("ungranted") + kernel.bad),
            ("acks_at_client", ended(&clients, Kind::PersistAck)),
            ("freeings_at_client", ended(&clients, Kind::ServerAck)),
            ("stamped_at_server", server.stamped),
            ("else_at_the_ends", clients.ended[0] + server.ended[0] + ended(&clients, Kind::Update)),
        ];
        Ok(counts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// What has been counted since `before`, once the last frames have come to an end.
    fn await_counts(
        &self,
        before: &BTreeMap<String, u64>,
        expected: u64,
    ) -> Result<BTreeMap<String, u64>, Trouble> {
        let since = |now: BTreeMap<String, u64>| -> BTreeMap<String, u64> {
            now.into_iter().map(|(name, value)| (name.clone(), value - before[&name])).collect()
        };
        let have_ended = |counts: &BTreeMap<String, u64>| {
            counts["acks_at_client"] >= expected && counts["stamped_at_server"] >= expected
        };
        // Those that never come are the counters' to tell.
        scotfree_stage::process::wait_until(PATIENCE, || {
            self.counts().is_ok_and(|now| have_ended(&since(now)))
        });
        self.counts().map(since)
    }
}

fn port(name: &str) -> Result<Port, Trouble> {
    Ok(Port { interface: name.to_owned(), ifindex: interface_number(name)? })
}

/// What a daemon does before frames come.
fn prepare(kernel: &Kernel, ports: &[Port; 2]) -> Result<Vec<std::os::fd::OwnedFd>, KernelError> {
    let shared = kernel.shared();
    shared.set(&Settings {
        device: DeviceId(1),
        servers: vec![SERVER],
        control: CONTROL,
        ports: (51_000, 51_999),
        stamp_key: KeyWords(cluster().control(Direction::Stamp).words()),
        own_mac: OWN_MAC,
        event_every: 0,
    });
    shared.set_boot_epoch(BootEpoch(1));
    shared.set_role(true, Durability::Ram);
    let server = shared.server(0);
    server.set_epoch(EPOCH);
    server.set_accepted(true);
    server.set_lease(Nanos::MAX);
    for (mac, port) in [CLIENT_MAC, SERVER_MAC].into_iter().zip(ports) {
        let station = Station { ifindex: port.ifindex, last_seen: now_monotonic() };
        kernel.set_station(StationName { mac, vlan: 0 }, station)?;
    }
    let links = kernel.attach(ports, AttachMode::Native)?;
    kernel.set_server_port(ports, 0, ports[1].ifindex)?;
    Ok(links)
}

fn keys_of(index: u32) -> SessionKeys {
    cluster().session(&[index as u8; 16], &[9; 16], id_of(index), EPOCH)
}

fn id_of(index: u32) -> SessionId {
    SessionId(u64::from(index) + 1)
}

fn client_of(index: u32) -> SocketAddr {
    SocketAddr::new(CLIENT, CLIENT_PORT_FIRST + index as u16)
}

fn add_sessions(
    kernel: &Kernel,
    port: &Port,
    spec: &PlaybackSpec,
    keys: &[SessionKeys],
) -> Result<(), KernelError> {
    for (index, keys) in (0_u32..).zip(keys) {
        let words = |key: &Key| KeyWords(key.words());
        kernel.add_session(&SessionEntry {
            index,
            id: id_of(index),
            next: SeqNum(1),
            last_write: SeqNum(0),
            heard_at: now_monotonic(),
            room: [0; SESSION_ROOM],
            client: client_of(index),
            client_ifindex: port.ifindex,
            window: spec.window,
            slot_first: index * spec.window,
            server: 0,
            client_port: kernel.shared().port_place(port.ifindex).expect("it is attached"),
            epoch: EPOCH,
            closing: false,
            confirmed: true,
            client_to_server: words(&keys.client_to_server),
            server_to_client: words(&keys.server_to_client),
            device_to_client: words(&keys.device_to_client),
            client_nonce: [index as u8; 16],
            server_nonce: [9; 16],
        })?;
    }
    Ok(())
}

fn request(index: u32, key: &Key, seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut header = Header::new(Kind::Update, id_of(index), EPOCH);
    (header.seq_num, header.completed) = (SeqNum(seq), SeqNum(seq - 1));
    (header.flags, header.asked, header.device_acks_asked) = (Flags::EARLY, Durability::Ram, 1);
    let mut packet = Vec::new();
    emit(&header, &Tail::Stamp(Stamp::default()), payload, key, &mut packet);
    frame([CLIENT_MAC, SERVER_MAC], [client_of(index), SERVER], &packet)
}

fn server_ack(index: u32, key: &Key, stable: u64) -> Vec<u8> {
    let mut header = Header::new(Kind::ServerAck, id_of(index), EPOCH);
    header.seq_num = SeqNum(stable);
    let mut packet = Vec::new();
    emit(&header, &Tail::Empty, &[], key, &mut packet);
    frame([SERVER_MAC, CLIENT_MAC], [SERVER, client_of(index)], &packet)
}

fn frame([from_mac, to_mac]: [[u8; 6]; 2], [from, to]: [SocketAddr; 2], payload: &[u8]) -> Vec<u8> {
    let link = Link { destination: MacAddress(to_mac), source: MacAddress(from_mac), vlan: None };
    let frame = UdpFrame { link, source: from, destination: to, hop_limit: 64, traffic_class: 0, payload };
    let mut bytes = Vec::new();
    frame.write(&mut bytes).expect("a packet fits a frame");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_wire::Packet;
    use std::collections::BTreeSet;

    #[test]
    fn frames_are_different_and_authentic() {
        let keys: Vec<SessionKeys> = (0..3).map(keys_of).collect();
        let mut seen = BTreeSet::new();
        for seq in 1..=4 {
            for (index, keys) in (0_u32..).zip(&keys) {
                let frame = request(index, &keys.client_to_server, seq, &[b'x'; 64]);
                let packet = Packet::parse(&frame[42..]).expect("a packet behind the headers");
                assert_eq!((packet.seq_num(), packet.session()), (SeqNum(seq), id_of(index)));
                assert!(packet.verify(&keys.client_to_server).is_ok());
                assert!(seen.insert(frame), "each is another");
            }
        }
        let ack = server_ack(1, &keys[1].server_to_client, 4);
        let packet = Packet::parse(&ack[42..]).expect("a packet");
        assert!(packet.verify(&keys[1].server_to_client).is_ok() && packet.kind() == Kind::ServerAck);
    }
}
