//! A server that executes what reaches it: sessions in their order, logged writes in that of their numbers, reads behind
//! their barriers; and what it says.
//!
//! Invariant: what it replies to a read was the value when it executed it.

use crate::sides::{client, cluster, Sent, CONTROL, SERVER};
use scotfree_core::{BootEpoch, DeviceId, Epoch, Nanos, SeqNum, SessionId};
use scotfree_wire::{
    emit, emit_extended, AcceptTail, Direction, Extensions, Flags, Header, HeartbeatTail, Kind, LeaseTail,
    ObjectNote, Packet, ResponseTail, SessionKeys, StampKind, Tail,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub const EPOCH: Epoch = Epoch(1);
const NONCE: [u8; 16] = [9; 16];

pub fn keys(session: u64) -> SessionKeys {
    cluster().session(&[session as u8; 16], &NONCE, SessionId(session), EPOCH)
}

/// A request that has reached the server.
#[derive(Debug)]
struct Request {
    seq: u64,
    kind: Kind,
    stamp: (StampKind, u64),
    words: Vec<String>,
}

impl Request {
    /// When it is executed is not said by an order number, and others may see it before its reply.
    fn is_unlogged_write(&self) -> bool {
        self.kind != Kind::Read && self.stamp.0 != StampKind::Order
    }
}

/// What it says to a request.
#[derive(Debug, Clone)]
pub struct Reply {
    session: u64,
    seq: u64,
    payload: Vec<u8>,
    object: Option<ObjectNote>,
    failed: bool,
}

/// The server.
#[derive(Debug, Default)]
pub struct Server {
    waiting: BTreeMap<u64, VecDeque<Request>>,
    /// By session, up to where requests have come and have been executed.
    come: BTreeMap<u64, u64>,
    executed: BTreeMap<u64, u64>,
    order: u64,
    values: BTreeMap<String, String>,
    /// Keys that have a time to live.
    mortal: BTreeSet<String>,
    said: BTreeMap<(u64, u64), Reply>,
    /// Replies that have not left yet.
    pub leaving: Vec<Reply>,
    count: u64,
}

impl Server {
    /// A request comes. One that has come before has its reply said again.
    pub fn take(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("a device passes on what is whole");
        let (session, seq) = (packet.session().0, packet.seq_num().0);
        let Tail::Stamp(stamp) = packet.tail() else { return };
        let come = self.come.entry(session).or_default();
        if seq <= *come {
            self.leaving.extend(self.said.get(&(session, seq)).cloned());
            return;
        }
        if stamp.kind == StampKind::None {
            // It asks for its place, and is told it with the next.
            return;
        }
        *come = seq;
        let text = String::from_utf8_lossy(packet.payload()).into_owned();
        let mut words: Vec<String> = text.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect();
        words[0].make_ascii_uppercase();
        let request = Request { seq, kind: packet.kind(), stamp: (stamp.kind, stamp.number.0), words };
        self.waiting.entry(session).or_default().push_back(request);
    }

    /// Executes what can be; writes that have no number only if it is told to.
    pub fn run(&mut self, unlogged: bool) {
        let sessions: Vec<u64> = self.waiting.keys().copied().collect();
        let mut has_more = true;
        while std::mem::take(&mut has_more) {
            for session in &sessions {
                let order = self.order;
                let queue = self.waiting.get_mut(session).expect("it was listed");
                let is_next = queue.front().is_some_and(|request| match request.stamp {
                    (StampKind::Order, number) => number == order + 1,
                    (_, barrier) => barrier <= order && (unlogged || !request.is_unlogged_write()),
                });
                if let Some(request) = is_next.then(|| queue.pop_front()).flatten() {
                    self.execute(*session, &request);
                    has_more = true;
                }
            }
        }
    }

    fn execute(&mut self, session: u64, request: &Request) {
        if let (StampKind::Order, number) = request.stamp {
            self.order = number;
        }
        self.executed.insert(session, request.seq);
        self.count += 1;
        let words: Vec<&str> = request.words.iter().map(String::as_str).collect();
        let mut object = None;
        let payload = if let ["GET", key] = words[..] {
            let value = self.values.get(key);
            // Most live for ever, some for a while; now and then it is not said.
            let remaining_ms = if self.mortal.contains(key) { 100_000 } else { u64::MAX };
            let note = |value: &String| ObjectNote { value_bytes: value.len() as u64, remaining_ms };
            object = value.map(note).filter(|_| !self.count.is_multiple_of(7));
            let missing = || "\x01\x00$-1\r\n".to_owned();
            value.map_or_else(missing, |value| format!("\x01\x01${}\r\n{value}\r\n", value.len()))
        } else {
            self.write(&words);
            "\x01\x00+OK\r\n".to_owned()
        };
        let reply = Reply { session, seq: request.seq, payload: payload.into_bytes(), object, failed: false };
        self.said.insert((session, request.seq), reply.clone());
        self.leaving.push(reply);
    }

    fn write(&mut self, words: &[&str]) {
        match *words {
            ["SET", key, value] => {
                self.values.insert(key.to_owned(), value.to_owned());
                self.mortal.remove(key);
            }
            // Every other script gives its key a time to live.
            ["EVAL", key, value] => {
                self.values.insert(key.to_owned(), value.to_owned());
                if self.count.is_multiple_of(2) {
                    self.mortal.insert(key.to_owned());
                }
            }
            ["SET", key, value, "NX"] => {
                self.values.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            }
            ["APPEND", key, value] => self.values.entry(key.to_owned()).or_default().push_str(value),
            ["DEL", ref keys @ ..] => keys.iter().for_each(|key| {
                self.values.remove(*key);
                self.mortal.remove(*key);
            }),
            ["MSET", ref pairs @ ..] => {
                for pair in pairs.chunks(2) {
                    self.values.insert(pair[0].to_owned(), pair[1].to_owned());
                    self.mortal.remove(pair[0]);
                }
            }
            _ => panic!("{words:?} is no command"),
        }
    }

    /// Up to where a session's requests have been executed.
    pub fn executed(&self, session: u64) -> u64 {
        self.executed.get(&session).copied().unwrap_or(0)
    }
}

// ---- what it sends

fn to_client(session: u64, bytes: Vec<u8>) -> Sent {
    Sent { from: SERVER, to: client(session), bytes }
}

fn to_device(header: &Header, tail: &Tail) -> Sent {
    let mut bytes = Vec::new();
    emit(header, tail, &[], &cluster().control(Direction::ServerToDevice), &mut bytes);
    Sent { from: SERVER, to: CONTROL, bytes }
}

impl Reply {
    pub fn of(session: u64, seq: u64) -> Reply {
        Reply { session, seq, payload: b"\x01\x00+OK\r\n".to_vec(), object: None, failed: false }
    }

    /// That a write was refused.
    pub fn refusal(session: u64, seq: u64) -> Reply {
        Reply { session, seq, payload: b"\x01\x00-OOM\r\n".to_vec(), object: None, failed: true }
    }

    pub fn sent(&self) -> Sent {
        let mut header = Header::new(Kind::Response, SessionId(self.session), EPOCH);
        header.seq_num = SeqNum(self.seq);
        header.flags = if self.failed { Flags::FAILED } else { Flags::NONE };
        let tail = Tail::Response(ResponseTail::default());
        let extensions = Extensions { object: self.object, ..Extensions::NONE };
        let key = keys(self.session).server_to_client;
        let mut bytes = Vec::new();
        emit_extended(&header, &tail, &extensions, &self.payload, &key, &mut bytes);
        to_client(self.session, bytes)
    }
}

pub fn accept(session: u64, epoch: Epoch) -> Sent {
    let (client_nonce, server_nonce) = ([session as u8; 16], NONCE);
    let tail = AcceptTail { client_nonce, server_nonce, window: 32, expiry_ms: 100_000 };
    let header = Header::new(Kind::SessionAccept, SessionId(session), epoch);
    let mut bytes = Vec::new();
    emit(&header, &Tail::Accept(tail), &[], &cluster().control(Direction::Handshake), &mut bytes);
    to_client(session, bytes)
}

pub fn lease(boot_epoch: BootEpoch, epoch: Epoch, refused: bool) -> Sent {
    let duration = if refused { Nanos(0) } else { Nanos(u64::MAX / 4) };
    let tail = LeaseTail { asked_at: Nanos(1), duration, device: DeviceId(1), boot_epoch };
    to_device(&Header::new(Kind::Lease, SessionId(0), epoch), &Tail::Lease(tail))
}

pub fn poll(epoch: Epoch) -> Sent {
    to_device(&Header::new(Kind::RecoveryPoll, SessionId(0), epoch), &Tail::Empty)
}

/// That everything of a session up to here is stable, in one of the ways to say it.
pub fn stable(session: u64, seq: u64, epoch: Epoch, way: u64) -> Sent {
    let key = keys(session).server_to_client;
    let mut bytes = Vec::new();
    if way.is_multiple_of(2) {
        let mut header = Header::new(Kind::ServerAck, SessionId(session), epoch);
        header.seq_num = SeqNum(seq);
        emit(&header, &Tail::Empty, &[], &key, &mut bytes);
    } else {
        let header = Header::new(Kind::Heartbeat, SessionId(session), epoch);
        let tail = HeartbeatTail { highest: SeqNum(0), stable: SeqNum(seq) };
        emit(&header, &Tail::Heartbeat(tail), &[], &key, &mut bytes);
    }
    to_client(session, bytes)
}
