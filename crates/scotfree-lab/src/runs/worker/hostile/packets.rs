//! Packets that nobody may accept, made of those that an honest client has sent.
//!
//! Invariant: no packet here carries a code that was made with a key of the cluster, but for those that repeat an
//! honest one byte for byte, or all of it that is authenticated.

use super::{broke, HostileSpec};
use scotfree_core::{BootEpoch, DeviceId, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::{
    emit, emit_stamp, CloseReason, CloseTail, Flags, Header, HeartbeatTail, Key, KeyEpoch, Kind, LeaseTail,
    ManifestTail, OpenTail, Packet, RangeTail, ResponseTail, Stamp, StampKind, Tail,
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What kind of hostility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hostility {
    /// Requests of the session, the next ones too, with a code of chance.
    RandomMac,
    /// Requests of the client with one bit turned over.
    BitFlipped,
    /// Requests of the client as they were: duplicates, which are passed on and executed no more.
    Replayed,
    /// Requests of the client cut off, at every length.
    Truncated,
    /// Requests of the session under another session's key, and the client's own under other sessions' names.
    CrossSession,
    /// What only servers and devices say, said by the client's host.
    WrongDirection,
    /// Requests of the client under a stamp that no device has made.
    ForgedStamp,
    /// The server's word that everything is stable.
    ForgedServerAck,
    /// A new server's question what the device holds, and its other commands.
    ForgedControl,
    /// Openings by who has not the cluster's key.
    ForgedOpening,
}

impl Hostility {
    /// All kinds.
    pub const ALL: [Hostility; 10] = [
        Hostility::RandomMac,
        Hostility::BitFlipped,
        Hostility::Replayed,
        Hostility::Truncated,
        Hostility::CrossSession,
        Hostility::WrongDirection,
        Hostility::ForgedStamp,
        Hostility::ForgedServerAck,
        Hostility::ForgedControl,
        Hostility::ForgedOpening,
    ];

    /// Its name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Hostility::RandomMac => "random_mac",
            Hostility::BitFlipped => "bit_flipped",
            Hostility::Replayed => "replayed",
            Hostility::Truncated => "truncated",
            Hostility::CrossSession => "cross_session",
            Hostility::WrongDirection => "wrong_direction",
            Hostility::ForgedStamp => "forged_stamp",
            Hostility::ForgedServerAck => "forged_server_ack",
            Hostility::ForgedControl => "forged_control",
            Hostility::ForgedOpening => "forged_opening",
        }
    }
}

/// A packet on its way.
pub(super) struct Frame<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub bytes: &'a [u8],
}

/// Makes hostile packets.
pub(super) struct Forger {
    hostility: Hostility,
    client: SocketAddr,
    server: SocketAddr,
    control: SocketAddr,
    /// Requests of the honest client.
    taken: Vec<Vec<u8>>,
    first: Header,
    chance: Chance,
    packet: Vec<u8>,
}

impl Forger {
    pub(super) fn new(spec: &HostileSpec, client: SocketAddr, taken: &[Vec<u8>]) -> Result<Forger, Trouble> {
        let is_update = |bytes: &&Vec<u8>| Packet::parse(bytes).is_ok_and(|it| it.kind() == Kind::Update);
        let taken: Vec<Vec<u8>> = taken.iter().filter(is_update).cloned().collect();
        let first = taken.first().and_then(|bytes| Packet::parse(bytes).ok()).map(|packet| *packet.header());
        let first = first.ok_or_else(|| broke("take packets", &"the honest client has sent no update"))?;
        Ok(Forger {
            hostility: spec.hostility,
            client,
            server: spec.server,
            control: spec.control,
            taken,
            first,
            chance: Chance(spec.seed),
            packet: Vec::new(),
        })
    }

    /// The hostile packet of a number.
    pub(super) fn make(&mut self, number: u64) -> Frame<'_> {
        self.packet.clear();
        let (mut source, mut destination) = (self.client, self.server);
        match self.hostility {
            Hostility::RandomMac => self.request_under_no_key(number),
            Hostility::BitFlipped => self.flipped(number),
            Hostility::Replayed => self.taken(number),
            Hostility::Truncated => self.truncated(number),
            Hostility::CrossSession => self.cross_session(number),
            Hostility::WrongDirection => self.wrong_direction(number),
            Hostility::ForgedStamp => self.forged_stamp(number),
            Hostility::ForgedServerAck => {
                (source, destination) = (self.server, self.client);
                self.server_ack(number);
            }
            Hostility::ForgedControl => {
                (source, destination) = (self.server, self.control);
                self.control(number);
            }
            Hostility::ForgedOpening => self.opening(),
        }
        Frame { source, destination, bytes: &self.packet }
    }

    fn taken(&mut self, number: u64) {
        let place = (number % self.taken.len() as u64) as usize;
        self.packet.extend_from_slice(&self.taken[place]);
    }

    /// A key that nobody has.
    fn key(&mut self) -> Key {
        Key::from_words([self.chance.draw(), self.chance.draw()])
    }

    /// Past, present and future requests alike.
    fn request_under_no_key(&mut self, number: u64) {
        let kinds = [Kind::Update, Kind::Read, Kind::Bypass];
        let mut header = Header { kind: kinds[(number % 3) as usize], ..self.first };
        header.seq_num = SeqNum(1 + self.chance.draw() % 40_000);
        let (key, payload) = (self.key(), [b'f'; 64]);
        emit(&header, &Tail::Stamp(Stamp::default()), &payload, &key, &mut self.packet);
    }

    fn flipped(&mut self, number: u64) {
        self.taken(number);
        let bit = self.chance.draw() as usize % (self.packet.len() * 8);
        self.packet[bit / 8] ^= 1 << (bit % 8);
    }

    fn truncated(&mut self, number: u64) {
        self.taken(number / 61);
        let length = (number % self.packet.len() as u64) as usize;
        self.packet.truncate(length);
    }

    fn cross_session(&mut self, number: u64) {
        if number.is_multiple_of(2) {
            return self.request_under_no_key(number);
        }
        self.taken(number);
        let other = SessionId(self.first.session.0 ^ (1 + self.chance.draw() % 7));
        self.packet[16..24].copy_from_slice(&other.0.to_le_bytes());
    }

    fn wrong_direction(&mut self, number: u64) {
        let (kind, tail) = match number % 8 {
            0 => (Kind::Response, Tail::Response(ResponseTail::default())),
            1 => (Kind::PersistAck, Tail::Stamp(stamp(number))),
            2 => (Kind::ServerAck, Tail::Empty),
            3 => (Kind::Replay, Tail::Stamp(stamp(number))),
            4 => (Kind::Manifest, Tail::Manifest(manifest(number))),
            5 => (Kind::Lease, Tail::Lease(lease(number))),
            6 => (Kind::Drain, Tail::Stamp(stamp(number))),
            _ => {
                let tail = HeartbeatTail { highest: SeqNum(number), stable: SeqNum(number) };
                (Kind::Heartbeat, Tail::Heartbeat(tail))
            }
        };
        let header = Header { kind, ..self.first };
        let key = self.key();
        emit(&header, &tail, &[], &key, &mut self.packet);
    }

    fn forged_stamp(&mut self, number: u64) {
        self.taken(number);
        let (stamp, key) = (stamp(number), self.key());
        emit_stamp(&mut self.packet, &stamp, &key).expect("an update has room for a stamp");
    }

    fn server_ack(&mut self, number: u64) {
        let mut header = Header::new(Kind::ServerAck, self.first.session, self.first.epoch);
        header.seq_num = SeqNum(1 + self.chance.draw() % 100_000);
        let tail = if number.is_multiple_of(2) {
            Tail::Empty
        } else {
            header.kind = Kind::Heartbeat;
            Tail::Heartbeat(HeartbeatTail { highest: SeqNum(0), stable: header.seq_num })
        };
        let key = self.key();
        emit(&header, &tail, &[], &key, &mut self.packet);
    }

    fn control(&mut self, number: u64) {
        let session = self.first.session;
        let (kind, session, tail) = match number % 5 {
            0 => (Kind::RecoveryPoll, SessionId(0), Tail::Empty),
            1 => (Kind::ServerAck, session, Tail::Empty),
            2 => (Kind::Lease, SessionId(0), Tail::Lease(lease(number))),
            3 => (Kind::SessionClose, session, Tail::Close(CloseTail { reason: CloseReason::Expire })),
            _ => {
                let range = RangeTail { first: 1, last: number, boot_epoch: BootEpoch(1) };
                (Kind::Retransmit, SessionId(0), Tail::Range(range))
            }
        };
        let mut header = Header::new(kind, session, scotfree_core::Epoch(self.first.epoch.0 + 1));
        header.seq_num = SeqNum(number);
        header.flags = Flags::NONE;
        let key = self.key();
        emit(&header, &tail, &[], &key, &mut self.packet);
    }

    fn opening(&mut self) {
        let mut client_nonce = [0; 16];
        client_nonce[..8].copy_from_slice(&self.chance.draw().to_le_bytes());
        let key_epoch = KeyEpoch((self.chance.draw() % 3) as u32);
        let tail = Tail::Open(OpenTail { client_nonce, window_asked: 64, key_epoch });
        let header = Header::new(Kind::SessionOpen, SessionId(0), scotfree_core::Epoch(0));
        let key = self.key();
        emit(&header, &tail, &[], &key, &mut self.packet);
    }
}

fn stamp(number: u64) -> Stamp {
    Stamp {
        kind: StampKind::Order,
        device: DeviceId(1),
        boot_epoch: BootEpoch(1 + number as u32 % 3),
        number: OrderNumber(number),
        previous_write: SeqNum(0),
    }
}

fn manifest(number: u64) -> ManifestTail {
    ManifestTail {
        device: DeviceId(1),
        boot_epoch: BootEpoch(2),
        order_current: OrderNumber(number),
        session_count: 0,
    }
}

fn lease(number: u64) -> LeaseTail {
    LeaseTail { asked_at: Nanos(number), duration: Nanos(0), device: DeviceId(1), boot_epoch: BootEpoch(9) }
}

/// Chance that repeats itself from the same beginning (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }
}
