//! The 64-byte core header that every packet begins with. All integers are little-endian and lie at
//! multiples of their size.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic |
//! | 4 | 1 | version |
//! | 5 | 1 | kind |
//! | 6 | 2 | flags |
//! | 8 | 1 | durability asked |
//! | 9 | 1 | durability granted |
//! | 10 | 1 | device acks asked |
//! | 11 | 1 | extension words: of eight bytes, between tail and payload |
//! | 12 | 4 | epoch |
//! | 16 | 8 | session |
//! | 24 | 8 | `seq_num` |
//! | 32 | 8 | key hash; what else a kind says there has a name of its own below |
//! | 40 | 2 | fragment index |
//! | 42 | 2 | fragment count |
//! | 44 | 4 | payload bytes of this packet |
//! | 48 | 8 | completed: every request up to it is complete at the client |
//! | 56 | 8 | MAC over the packet, without the stamp and this field |

use crate::error::WireError;
use crate::extension::ExtensionSet;
use crate::family::Kinds;
use scotfree_core::{DeviceId, Durability, Epoch, KeyHash, SeqNum, SessionId};

/// The bytes `SCOT`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SCOT");
/// The version of this layout.
pub const VERSION: u8 = 2;
/// The size of the core header.
pub const HEADER_BYTES: usize = 64;
/// Where the MAC lies.
pub(crate) const MAC_OFFSET: usize = 56;

/// What a packet of sessions and devices is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Client to server: a session is wanted.
    SessionOpen = 1,
    /// Server to client: here it is. The device learns the session from it.
    SessionAccept = 2,
    /// Either way: a session ends, with a reason.
    SessionClose = 3,
    /// Client to server: a write that a device may log.
    Update = 4,
    /// Client to server: changes nothing.
    Read = 5,
    /// Client to server: a write that must not be logged.
    Bypass = 6,
    /// Device to client: the update is persisted.
    PersistAck = 7,
    /// Server to client and devices: every request up to `seq_num` is stable.
    ServerAck = 8,
    /// Server to client.
    Response = 9,
    /// Server to client (a range of `seq_num`) or to a device (a range of order numbers, or of a
    /// session's `seq_num`): send these again.
    Retransmit = 10,
    /// Server to device: what do you hold?
    RecoveryPoll = 11,
    /// Device to server: what it holds.
    Manifest = 12,
    /// Device to server: an update from the log.
    Replay = 13,
    /// Client to server: my highest `seq_num`; server to client: what is stable.
    Heartbeat = 14,
    /// Device to server: may I acknowledge? Server to device: yes, for so long.
    Lease = 15,
    /// Server to client: slow down.
    Busy = 16,
    /// Server to device: stamp this request, which reached me unstamped. Device to server: its stamp.
    Drain = 17,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 17] = [
        Kind::SessionOpen,
        Kind::SessionAccept,
        Kind::SessionClose,
        Kind::Update,
        Kind::Read,
        Kind::Bypass,
        Kind::PersistAck,
        Kind::ServerAck,
        Kind::Response,
        Kind::Retransmit,
        Kind::RecoveryPoll,
        Kind::Manifest,
        Kind::Replay,
        Kind::Heartbeat,
        Kind::Lease,
        Kind::Busy,
        Kind::Drain,
    ];

    /// The kind of a wire code.
    pub const fn from_code(code: u8) -> Option<Kind> {
        if code == 0 || code as usize > Kind::ALL.len() {
            return None;
        }
        Some(Kind::ALL[code as usize - 1])
    }

    /// The kind's name in metrics, golden vectors and the C header.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SessionOpen => "session_open",
            Kind::SessionAccept => "session_accept",
            Kind::SessionClose => "session_close",
            Kind::Update => "update",
            Kind::Read => "read",
            Kind::Bypass => "bypass",
            Kind::PersistAck => "persist_ack",
            Kind::ServerAck => "server_ack",
            Kind::Response => "response",
            Kind::Retransmit => "retransmit",
            Kind::RecoveryPoll => "recovery_poll",
            Kind::Manifest => "manifest",
            Kind::Replay => "replay",
            Kind::Heartbeat => "heartbeat",
            Kind::Lease => "lease",
            Kind::Busy => "busy",
            Kind::Drain => "drain",
        }
    }

    /// Whether the packet is a request of a session, with a `seq_num` and room for a stamp.
    pub const fn is_request(self) -> bool {
        matches!(self, Kind::Update | Kind::Read | Kind::Bypass)
    }

    /// Whether the packet has a [`crate::Stamp`] tail.
    pub const fn has_stamp(self) -> bool {
        matches!(
            self,
            Kind::Update | Kind::Read | Kind::Bypass | Kind::PersistAck | Kind::Replay | Kind::Drain
        )
    }
}

/// A set of properties of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Update: the device's acknowledgement completes it.
    pub const EARLY: Flags = Flags(1);
    /// Read: filler for requests that the client has forgotten, reads that are complete or stable
    /// writes; nothing is to be executed ([`Header::skip_first`]).
    pub const SKIP: Flags = Flags(2);
    /// Replay: the log holds nothing under this order number, and never will.
    pub const VOID: Flags = Flags(4);
    /// Read: may be answered without regard to other sessions' updates.
    pub const RELAXED: Flags = Flags(8);
    /// Drain: the request writes.
    pub const WRITES: Flags = Flags(16);
    /// Session close, device to server: the device holds nothing of the session and will not.
    pub const CONFIRMED: Flags = Flags(32);
    /// Response: the application refused the request.
    pub const FAILED: Flags = Flags(64);
    /// Request: sent before. Only counted, nothing depends on it.
    pub const AGAIN: Flags = Flags(128);
    /// Request: its client records the call and asks the server for stamps.
    pub const TRACED: Flags = Flags(256);
    /// All flags with their names in the C header.
    pub const ALL: [(&'static str, Flags); 9] = [
        ("early", Flags::EARLY),
        ("skip", Flags::SKIP),
        ("void", Flags::VOID),
        ("relaxed", Flags::RELAXED),
        ("writes", Flags::WRITES),
        ("confirmed", Flags::CONFIRMED),
        ("failed", Flags::FAILED),
        ("again", Flags::AGAIN),
        ("traced", Flags::TRACED),
    ];
    const ALL_BITS: u16 = 511;

    /// Whether all of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// The core header as a plain struct, without magic, version, payload length and MAC, which
/// [`crate::emit`] fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<K = Kind> {
    /// What the packet is.
    pub kind: K,
    /// Its properties.
    pub flags: Flags,
    /// The durability that the client asks for.
    pub asked: Durability,
    /// The durability that the sender of an acknowledgement grants.
    pub granted: Durability,
    /// How many distinct devices must acknowledge.
    pub device_acks_asked: u8,
    /// Of a server's message: its epoch. Of a client's: the epoch in which the session was opened.
    pub epoch: Epoch,
    /// The session; 0 between server and device, and in `SessionOpen`.
    pub session: SessionId,
    /// The request's place in its session, or what the kind says.
    pub seq_num: SeqNum,
    /// The hash over database and key.
    pub key_hash: KeyHash,
    /// Which fragment of the request this is, from 0.
    pub fragment_index: u16,
    /// How many fragments the request has, at least 1.
    pub fragment_count: u16,
    /// Of a client's packet: every request up to this one is complete there.
    pub completed: SeqNum,
}

impl<K: Kinds> Header<K> {
    /// A header of `kind` for `session` with all else empty.
    pub const fn new(kind: K, session: SessionId, epoch: Epoch) -> Header<K> {
        Header {
            kind,
            flags: Flags::NONE,
            asked: Durability::None,
            granted: Durability::None,
            device_acks_asked: 0,
            epoch,
            session,
            seq_num: SeqNum(0),
            key_hash: KeyHash(0),
            fragment_index: 0,
            fragment_count: 1,
            completed: SeqNum(0),
        }
    }

    pub(crate) fn write(&self, sizes: Sizes, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[VERSION, self.kind.code()]);
        out.extend_from_slice(&self.flags.0.to_le_bytes());
        let asked = [self.asked.code(), self.granted.code(), self.device_acks_asked, sizes.extension_words];
        out.extend_from_slice(&asked);
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.session.0.to_le_bytes());
        out.extend_from_slice(&self.seq_num.0.to_le_bytes());
        out.extend_from_slice(&self.key_hash.0.to_le_bytes());
        out.extend_from_slice(&self.fragment_index.to_le_bytes());
        out.extend_from_slice(&self.fragment_count.to_le_bytes());
        out.extend_from_slice(&(sizes.payload_bytes as u32).to_le_bytes());
        out.extend_from_slice(&self.completed.0.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
    }

    /// Reads the first [`HEADER_BYTES`] bytes, and how much follows the tail.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Header<K>, Sizes), WireError> {
        if bytes.len() < HEADER_BYTES {
            return Err(WireError::Truncated);
        }
        if u32_at(bytes, 0) != MAGIC {
            return Err(WireError::WrongMagic);
        }
        if bytes[4] != VERSION {
            return Err(WireError::WrongVersion);
        }
        let kind = K::from_code(bytes[5]).ok_or(WireError::UnknownKind)?;
        let flags = Flags(u16_at(bytes, 6));
        let header = Header {
            kind,
            flags,
            asked: Durability::from_code(bytes[8]).ok_or(WireError::InvalidField)?,
            granted: Durability::from_code(bytes[9]).ok_or(WireError::InvalidField)?,
            device_acks_asked: bytes[10],
            epoch: Epoch(u32_at(bytes, 12)),
            session: SessionId(u64_at(bytes, 16)),
            seq_num: SeqNum(u64_at(bytes, 24)),
            key_hash: KeyHash(u64_at(bytes, 32)),
            fragment_index: u16_at(bytes, 40),
            fragment_count: u16_at(bytes, 42),
            completed: SeqNum(u64_at(bytes, 48)),
        };
        let sizes = Sizes { extension_words: bytes[11], payload_bytes: u32_at(bytes, 44) as usize };
        header.check(sizes.extension_words)?;
        Ok((header, sizes))
    }

    fn check(&self, extension_words: u8) -> Result<(), WireError> {
        let fragments_fit = self.fragment_count >= 1 && self.fragment_index < self.fragment_count;
        // The two largest values are kept free so that arithmetic on a place cannot overflow.
        let seq_fits = self.seq_num.0 < u64::MAX - 1 && self.completed.0 < u64::MAX - 1;
        let numbered = !self.kind.is_request() || self.seq_num.0 > 0;
        let extends = extension_words == 0 || self.kind.takes_extensions();
        let valid = extends && self.flags.0 & !Flags::ALL_BITS == 0 && fragments_fit && seq_fits && numbered;
        valid.then_some(()).ok_or(WireError::InvalidField)
    }
}

/// How much follows a packet's tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) extension_words: u8,
    pub(crate) payload_bytes: usize,
}

/// What the words of a key hash and of `completed` say where a packet has no key and completes nothing.
impl Header {
    /// In `SessionOpen` and `SessionAccept`: the extensions that whoever says this takes.
    pub fn offered(&self) -> ExtensionSet {
        ExtensionSet(self.key_hash.0)
    }

    /// Says which extensions are taken.
    pub fn set_offered(&mut self, offered: ExtensionSet) {
        self.key_hash = KeyHash(offered.0);
    }

    /// In a read that is a filler ([`Flags::SKIP`]): the first request in whose place it stands; `seq_num` is the last.
    pub fn skip_first(&self) -> SeqNum {
        SeqNum(self.key_hash.0)
    }

    /// Says where a filler begins.
    pub fn set_skip_first(&mut self, first: SeqNum) {
        self.key_hash = KeyHash(first.0);
    }

    /// In `Drain`: the last request of the run that is asked about; `seq_num` is the first.
    pub fn run_last(&self) -> SeqNum {
        self.completed
    }

    /// Says how far a run goes.
    pub fn set_run_last(&mut self, last: SeqNum) {
        self.completed = last;
    }

    /// In `Drain` to a device: the session's last write up to the end of the run.
    pub fn run_last_write(&self) -> SeqNum {
        SeqNum(self.key_hash.0)
    }

    /// Says which write of a run is the last.
    pub fn set_run_last_write(&mut self, last_write: SeqNum) {
        self.key_hash = KeyHash(last_write.0);
    }

    /// In a device's `Lease`: the largest window of a session that it has slots for; 0 if it does not say.
    pub fn window_max(&self) -> u32 {
        u32::try_from(self.key_hash.0).unwrap_or(u32::MAX)
    }

    /// Says the largest window.
    pub fn set_window_max(&mut self, window_max: u32) {
        self.key_hash = KeyHash(u64::from(window_max));
    }

    /// In a confirmed `SessionClose`: the device that holds nothing of the session any more.
    pub fn confirming_device(&self) -> DeviceId {
        DeviceId(self.key_hash.0 as u16)
    }

    /// Says which device confirms.
    pub fn set_confirming_device(&mut self, device: DeviceId) {
        self.key_hash = KeyHash(u64::from(device.0));
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// `N` bytes at `at`; the caller has checked the length.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N bytes")
}
