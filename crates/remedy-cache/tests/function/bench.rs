//! A device with the cache and a log that is durable when it is told to be, packet by packet.

use remedy_cache::{Cache, Limits, Planted, ReadCache, Redis};
use scotfree_core::{BootEpoch, DeviceId, Effect, Epoch, KeyHash, Machine, Nanos, SeqNum, ServerIndex};
use scotfree_device::{
    Base, Count, DeviceConfig, DeviceEffects, DeviceOwn, Function, Passing, Pipeline, Place, Region,
    SessionChange, Verdict, Way,
};
use scotfree_session::by_hand::{
    accept, address, client_address, cluster, device_address, header, packet, session_keys, NOW,
};
use scotfree_wire::{
    emit_extended, Answerer, Direction, Extensions, Family, Flags, Kind, LeaseTail, ObjectNote, Packet,
    ResponseTail, Stamp, StampKind, Tail,
};
use std::any::Any;

pub const SERVER: u8 = 2;
pub const LEASE: Nanos = Nanos::from_secs(100);

/// A log that is durable when it is told to be.
#[derive(Debug, Default)]
pub struct Log;

impl Function for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn family(&self) -> Family {
        Family::Session
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn asks_order(&self, _base: &Base, _passing: &Passing<'_>) -> bool {
        true
    }

    fn on_packet(
        &mut self,
        _now: Nanos,
        base: &mut Base,
        passing: &mut Passing<'_>,
        _effects: &mut DeviceEffects,
    ) -> Verdict {
        let is_logged = passing.stamp.is_some_and(|stamp| stamp.kind == StampKind::Order);
        if let (Way::ToServer(_), Place::Next, Some(region), Some(stamp), true) =
            (passing.way, passing.place, passing.session, passing.stamp, is_logged)
        {
            base.hold(region, passing.seq(), stamp);
        }
        Verdict::Next
    }

    fn on_session(
        &mut self,
        _now: Nanos,
        base: &mut Base,
        region: Region,
        change: SessionChange,
        _effects: &mut DeviceEffects,
    ) {
        let SessionChange::Stable(stable) = change else { return };
        for seq in (1..=stable.0).map(SeqNum) {
            base.let_go(region, seq);
        }
    }
}

/// What a request came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(Vec<u8>),
    PassedOn,
}

pub struct Bench {
    pub device: Pipeline,
    pub now: Nanos,
    /// What it passed on last.
    pub passed_on: Vec<u8>,
    effects: DeviceEffects,
}

pub fn key_hash(key: &str) -> KeyHash {
    KeyHash::of(0, key.as_bytes())
}

pub fn command(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    // With the flag by which a client takes what was answered before.
    let mut payload = vec![1, 0, 0, 32, 0, 0, 9, 0, 0, 0];
    payload.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        payload.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    payload
}

pub fn value(text: &str) -> Vec<u8> {
    format!("\x01\x01${}\r\n{text}\r\n", text.len()).into_bytes()
}

pub fn answered(text: &str) -> Outcome {
    // What was said of early answers is not said again.
    Outcome::Answered(format!("\x01\x20${}\r\n{text}\r\n", text.len()).into_bytes())
}

pub const FOR_EVER: Option<ObjectNote> = Some(ObjectNote { value_bytes: 1, remaining_ms: u64::MAX });

/// What the server answers.
pub fn response((session, seq): (u64, u64), payload: &[u8], object: Option<ObjectNote>) -> Vec<u8> {
    let (header, tail) = (header(Kind::Response, session, seq), Tail::Response(ResponseTail::default()));
    let mut bytes = Vec::new();
    let key = session_keys(session).server_to_client;
    emit_extended(&header, &tail, &Extensions { object, ..Extensions::NONE }, payload, &key, &mut bytes);
    bytes
}

impl Bench {
    pub fn new(limits: Limits, change: impl FnOnce(&mut DeviceConfig)) -> Bench {
        Bench::with(limits, Planted::NONE, change)
    }

    /// One with a rule switched off.
    pub fn with(limits: Limits, planted: Planted, change: impl FnOnce(&mut DeviceConfig)) -> Bench {
        let mut config =
            DeviceConfig::new(DeviceId(9), BootEpoch(1), device_address(), address(SERVER), cluster());
        change(&mut config);
        let cache = ReadCache::new(limits, Box::new(Redis), planted);
        let device =
            Pipeline::new(config, vec![Box::new(cache), Box::new(Log)]).expect("the list is in order");
        let (effects, passed_on) = (DeviceEffects::new(), Vec::new());
        let mut bench = Bench { device, now: NOW, passed_on, effects };
        bench.lease(SERVER, LEASE);
        bench.receive(SERVER, client_address(), &accept(1, 16));
        bench.receive(SERVER, client_address(), &accept(2, 16));
        bench
    }

    pub fn eager() -> Bench {
        let limits = Limits { admit_reads: 0, bucket_count: 1 << 8, needs_word: false, ..Limits::default() };
        Bench::new(limits, |_| {})
    }

    pub fn lease(&mut self, host: u8, duration: Nanos) {
        let boot_epoch = self.device.boot_epoch();
        let lease = LeaseTail { asked_at: self.now, duration, device: DeviceId(9), boot_epoch };
        let key = cluster().control(Direction::ServerToDevice);
        let lease = packet(&header(Kind::Lease, 0, 0), &Tail::Lease(lease), &[], &key);
        self.receive(host, device_address(), &lease);
    }

    /// What it answers; nothing if it passed it on or kept it.
    pub fn receive(&mut self, host: u8, to: std::net::SocketAddr, bytes: &[u8]) -> Option<Outcome> {
        self.device.on_message(self.now, address(host), to, bytes, &mut self.effects);
        let effects = std::mem::take(&mut self.effects);
        let mut outcome = None;
        for effect in effects.iter() {
            match effect {
                Effect::Send { bytes, .. } => {
                    let packet = Packet::parse(effects.bytes(*bytes)).expect("ours");
                    if let (Kind::Response, Tail::Response(tail)) = (packet.kind(), packet.tail()) {
                        assert_eq!(tail.answered_by, Answerer::device(DeviceId(9), Family::Cache));
                        outcome = Some(Outcome::Answered(packet.payload().to_vec()));
                    }
                }
                Effect::Own(DeviceOwn::Forward { bytes }) => {
                    self.passed_on = effects.bytes(*bytes).to_vec();
                    outcome = Some(Outcome::PassedOn);
                }
                _ => {}
            }
        }
        outcome
    }

    pub fn request(
        &mut self,
        kind: Kind,
        (session, seq): (u64, u64),
        flags: Flags,
        line: &str,
    ) -> Option<Outcome> {
        let mut header = header(kind, session, seq);
        header.flags = flags;
        header.completed = SeqNum(seq - 1);
        header.asked = scotfree_core::Durability::Ram;
        header.key_hash = key_hash(line.split(' ').nth(1).unwrap_or_default());
        let key = session_keys(session).client_to_server;
        let bytes = packet(&header, &Tail::Stamp(Stamp::default()), &command(line), &key);
        self.receive(1, address(SERVER), &bytes)
    }

    pub fn get(&mut self, of: (u64, u64), key: &str) -> Outcome {
        self.request(Kind::Read, of, Flags::NONE, &format!("GET {key}")).expect("a read goes somewhere")
    }

    pub fn set(&mut self, of: (u64, u64), line: &str) {
        assert_eq!(self.request(Kind::Update, of, Flags::EARLY, line), Some(Outcome::PassedOn));
    }

    pub fn bypass(&mut self, of: (u64, u64), line: &str) {
        assert_eq!(self.request(Kind::Bypass, of, Flags::NONE, line), Some(Outcome::PassedOn));
    }

    pub fn reply(&mut self, of: (u64, u64), payload: &[u8], object: Option<ObjectNote>) {
        self.receive(SERVER, client_address(), &response(of, payload, object));
    }

    /// The server is in its second incarnation, with a lease for the device.
    pub fn serve_anew(&mut self) {
        let mut poll = header(Kind::RecoveryPoll, 0, 1);
        poll.epoch = Epoch(2);
        let key = cluster().control(Direction::ServerToDevice);
        self.receive(SERVER, device_address(), &packet(&poll, &Tail::Empty, &[], &key));
        let lease =
            LeaseTail { asked_at: NOW, duration: LEASE, device: DeviceId(9), boot_epoch: BootEpoch(1) };
        let mut granted = header(Kind::Lease, 0, 0);
        granted.epoch = Epoch(2);
        self.receive(SERVER, device_address(), &packet(&granted, &Tail::Lease(lease), &[], &key));
    }

    pub fn stable(&mut self, session: u64, through: u64) {
        let ack = header(Kind::ServerAck, session, through);
        let bytes = packet(&ack, &Tail::Empty, &[], &session_keys(session).server_to_client);
        self.receive(SERVER, client_address(), &bytes);
    }

    pub fn durable(&mut self, session: u64, seq: u64) {
        let (base, _) = self.device.with_base::<Log>().expect("it is in the list");
        let region = base.find(ServerIndex(0), scotfree_core::SessionId(session)).expect("it is known");
        base.note_durable(region, SeqNum(seq));
    }

    /// Reads a key and lets the server answer it; it is the first of its session.
    pub fn fill(&mut self, of: (u64, u64), key: &str, text: &str) {
        assert_eq!(self.get(of, key), Outcome::PassedOn);
        self.reply(of, &value(text), FOR_EVER);
    }

    /// How often something was counted; `labels` is empty where there are none.
    pub fn count_of(&self, name: &str, labels: &str) -> u64 {
        let counted = self.counted();
        counted.iter().find(|(is, with, _)| (*is, *with) == (name, labels)).map_or(0, |(.., count)| *count)
    }

    /// The rules, and what they know.
    pub fn cache(&self) -> &Cache {
        self.device.function::<ReadCache>().expect("it is in the list").cache(ServerIndex(0))
    }

    pub fn counted(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut counts = Vec::new();
        self.device.function_counters(&mut |of, Count { name, labels, value, .. }| {
            if of == "cache" && value > 0 && name.ends_with("_total") {
                counts.push((name, labels, value));
            }
        });
        counts
    }
}
