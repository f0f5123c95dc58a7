//! A device in this process: its functions over one server and some sessions, given packets by hand.
//!
//! Invariant: what it is given are whole packets under the sessions' keys, as those of hosts would be; it has a lease
//! for as long as it lives.

use super::RunOptions;
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Effect, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId,
};
use scotfree_device::{arrange, DeviceConfig, DeviceEffects, DeviceOwn, Pipeline, Settings};
use scotfree_resp::codec::write_bulk;
use scotfree_resp::payload::{write_request, write_response, RequestFlags, ResponseFlags};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::{
    emit, emit_extended, AcceptTail, ClusterKey, Direction, Extensions, Header, Kind, LeaseTail, ObjectNote,
    Packet, ResponseTail, SessionKeys, Stamp, StampKind, Tail,
};
use std::net::SocketAddr;

const NOW: Nanos = Nanos::from_secs(1);
const FOR_EVER: Nanos = Nanos::from_secs(1 << 30);
const CLUSTER: [u8; 32] = [3; 32];
const SERVER_NONCE: [u8; 16] = [9; 16];
const NUMBER: DeviceId = DeviceId(1);
const EPOCH: Epoch = Epoch(1);

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Became {
    /// It was answered.
    Answered,
    /// It was passed on and will be kept: it has a place in the order of what is logged.
    Logged,
    /// It was passed on.
    Passed,
    /// Nothing.
    Nothing,
}

/// A device.
pub(super) struct Device {
    pipeline: Pipeline,
    effects: DeviceEffects,
    tokens: Vec<scotfree_core::Token>,
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 51_000))
}

fn client() -> SocketAddr {
    address(1)
}

fn server() -> SocketAddr {
    address(2)
}

fn control() -> SocketAddr {
    address(254)
}

fn cluster() -> ClusterKey {
    ClusterKey::from_bytes(CLUSTER)
}

/// The client's nonce of a session.
fn nonce(session: u64) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&session.to_le_bytes());
    nonce
}

/// The keys of a session.
pub(super) fn keys_of(session: u64) -> SessionKeys {
    cluster().session(&nonce(session), &SERVER_NONCE, SessionId(session), EPOCH)
}

fn header(kind: Kind, session: u64, seq: u64) -> Header {
    let mut header = Header::new(kind, SessionId(session), EPOCH);
    header.seq_num = SeqNum(seq);
    header
}

/// A GET whose client has the answers to all before it, and takes a note of the value.
pub(super) fn get(keys: &SessionKeys, session: u64, seq: u64, key: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    write_request(&mut payload, RequestFlags::NOTED, &[&["GET", key]]);
    request(keys, Kind::Read, (session, seq), key, &payload)
}

/// An update of 100 bytes, which is to be logged.
pub(super) fn update(keys: &SessionKeys, session: u64, seq: u64, key: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    write_request(&mut payload, RequestFlags::NONE, &[&["SET", key, &"v".repeat(100)]]);
    request(keys, Kind::Update, (session, seq), key, &payload)
}

fn request(keys: &SessionKeys, kind: Kind, (session, seq): (u64, u64), key: &str, payload: &[u8]) -> Vec<u8> {
    let mut header = header(kind, session, seq);
    header.completed = SeqNum(seq - 1);
    header.asked = Durability::Ram;
    header.key_hash = KeyHash::of(0, key.as_bytes());
    let mut bytes = Vec::new();
    emit(&header, &Tail::Stamp(Stamp::default()), payload, &keys.client_to_server, &mut bytes);
    bytes
}

impl Device {
    /// One with these functions, by name, that grants windows of so many requests.
    pub fn new(options: &RunOptions, names: &[&str], window: u32) -> Result<Device, Trouble> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let refused = |problem: String| {
            let next = "build scot with the remedies that have these functions";
            Trouble::new(format!("make a device of {}", names.join(", ")), problem, next)
        };
        let makers = arrange(&names, &options.functions).map_err(|error| refused(error.to_string()))?;
        let functions = makers.iter().map(|maker| (maker.make)(&Settings::default())).collect();
        let mut config = DeviceConfig::new(NUMBER, BootEpoch(1), control(), server(), cluster());
        config.window_max = window;
        let pipeline = Pipeline::new(config, functions).map_err(|error| refused(error.to_string()))?;
        let mut device = Device { pipeline, effects: DeviceEffects::new(), tokens: Vec::new() };
        device.lease();
        Ok(device)
    }

    fn lease(&mut self) {
        let lease = LeaseTail { asked_at: NOW, duration: FOR_EVER, device: NUMBER, boot_epoch: BootEpoch(1) };
        let mut bytes = Vec::new();
        let key = cluster().control(Direction::ServerToDevice);
        emit(&header(Kind::Lease, 0, 0), &Tail::Lease(lease), &[], &key, &mut bytes);
        self.receive(server(), control(), &bytes);
    }

    /// A server accepts a session.
    pub fn open(&mut self, session: u64, window: u32) {
        let tail = AcceptTail {
            client_nonce: nonce(session),
            server_nonce: SERVER_NONCE,
            window,
            expiry_ms: u32::MAX,
        };
        let mut bytes = Vec::new();
        let key = cluster().control(Direction::Handshake);
        emit(&header(Kind::SessionAccept, session, 0), &Tail::Accept(tail), &[], &key, &mut bytes);
        self.receive(server(), client(), &bytes);
    }

    /// A client sends a request.
    pub fn request(&mut self, bytes: &[u8]) -> Became {
        self.receive(client(), server(), bytes)
    }

    /// The server answers a read with 100 bytes, and vouches for them.
    pub fn answer(&mut self, keys: &SessionKeys, session: u64, seq: u64) {
        let (mut bulk, mut payload, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        write_bulk(&mut bulk, &[b'v'; 100]);
        write_response(&mut payload, ResponseFlags::NONE, &bulk);
        let object = Some(ObjectNote { value_bytes: 100, remaining_ms: u64::MAX });
        let extensions = Extensions { object, ..Extensions::NONE };
        let tail = Tail::Response(ResponseTail::default());
        let header = header(Kind::Response, session, seq);
        emit_extended(&header, &tail, &extensions, &payload, &keys.server_to_client, &mut bytes);
        self.receive(server(), client(), &bytes);
    }

    /// The server has all of a session up to here on its storage.
    pub fn stable(&mut self, keys: &SessionKeys, session: u64, through: u64) {
        let mut bytes = Vec::new();
        let header = header(Kind::ServerAck, session, through);
        emit(&header, &Tail::Empty, &[], &keys.server_to_client, &mut bytes);
        self.receive(server(), client(), &bytes);
    }

    /// A packet comes; what it logs is kept at once.
    fn receive(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Became {
        self.pipeline.on_message(NOW, from, to, bytes, &mut self.effects);
        let mut became = Became::Nothing;
        for effect in self.effects.iter() {
            match effect {
                Effect::Send { to, .. } if *to == client() && became == Became::Nothing => {
                    became = Became::Answered;
                }
                Effect::Own(DeviceOwn::Forward { bytes }) => became = passed(self.effects.bytes(*bytes)),
                Effect::Persist { token, .. } => self.tokens.push(*token),
                _ => {}
            }
        }
        self.effects.clear();
        for token in std::mem::take(&mut self.tokens) {
            self.pipeline.on_persisted(NOW, token, &mut self.effects);
            self.effects.clear();
        }
        became
    }
}

/// What a request became that goes on with these bytes.
fn passed(bytes: &[u8]) -> Became {
    let stamp = Packet::parse(bytes).map(|packet| packet.stamp());
    match stamp.map(|stamp| stamp.kind) {
        Ok(StampKind::Order) => Became::Logged,
        _ => Became::Passed,
    }
}
