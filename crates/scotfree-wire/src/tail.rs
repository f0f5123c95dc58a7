//! The small fixed part that follows the core header, one layout per kind.

use crate::error::WireError;
use crate::family::{Family, Kinds};
use crate::header::{array_at, u16_at, u32_at, u64_at, Kind};
use crate::keys::{KeyEpoch, Nonce};
use core::cmp::Ordering;
use scotfree_core::{BootEpoch, DeviceId, Epoch, Nanos, OrderNumber, SeqNum, SessionId, StampSource};

/// The size of a [`Stamp`].
pub const STAMP_BYTES: usize = 32;
/// The size of a [`ManifestRecord`].
pub const MANIFEST_RECORD_BYTES: usize = 88;

/// What a device's stamp says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StampKind {
    /// Nothing: no device has admitted the request.
    #[default]
    None,
    /// It is logged and has this order number.
    Order,
    /// It comes after everything up to this order number.
    Barrier,
}

impl StampKind {
    /// All kinds.
    pub const ALL: [StampKind; 3] = [StampKind::None, StampKind::Order, StampKind::Barrier];

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            StampKind::None => 0,
            StampKind::Order => 1,
            StampKind::Barrier => 2,
        }
    }

    /// The kind's name in the C header.
    pub const fn name(self) -> &'static str {
        match self {
            StampKind::None => "none",
            StampKind::Order => "order",
            StampKind::Barrier => "barrier",
        }
    }
}

/// A device's stamp on a request (rule 1). Written by the device into room that the client left;
/// it has its own MAC, since the client's cannot cover it.
///
/// Layout: kind 1, zero 1, device 2, boot epoch 4, number 8, previous write 8, MAC 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// What the number means.
    pub kind: StampKind,
    /// The device that stamped.
    pub device: DeviceId,
    /// Its incarnation.
    pub boot_epoch: BootEpoch,
    /// The order number or the barrier.
    pub number: OrderNumber,
    /// The session's last write before this request, 0 if none: what lies between are reads.
    pub previous_write: SeqNum,
}

impl Stamp {
    /// The stamp's bytes without its MAC.
    pub(crate) fn body(&self) -> [u8; 24] {
        let mut body = [0; 24];
        body[0] = self.kind.code();
        body[2..4].copy_from_slice(&self.device.0.to_le_bytes());
        body[4..8].copy_from_slice(&self.boot_epoch.0.to_le_bytes());
        body[8..16].copy_from_slice(&self.number.0.to_le_bytes());
        body[16..24].copy_from_slice(&self.previous_write.0.to_le_bytes());
        body
    }

    fn read(bytes: &[u8]) -> Result<Stamp, WireError> {
        let kind = StampKind::ALL.into_iter().find(|kind| kind.code() == bytes[0]);
        let kind = kind.ok_or(WireError::InvalidField)?;
        if bytes[1] != 0 || (kind == StampKind::None && bytes[2..STAMP_BYTES].iter().any(|byte| *byte != 0)) {
            return Err(WireError::InvalidField);
        }
        Ok(Stamp {
            kind,
            device: DeviceId(u16_at(bytes, 2)),
            boot_epoch: BootEpoch(u32_at(bytes, 4)),
            number: OrderNumber(place_at(bytes, 8)?),
            previous_write: SeqNum(place_at(bytes, 16)?),
        })
    }
}

/// Why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CloseReason {
    /// The client is done. The server answers with the same once everything is stable.
    ByClient = 1,
    /// The server knows no such session.
    UnknownSession = 2,
    /// A request was retried whose reply is gone; it was applied and is not executed again.
    ReplyGone = 3,
    /// The server's application broke for this session.
    ServerFailed = 4,
    /// Server to device: stop acknowledging, drain, confirm. Device to server: it is empty.
    Expire = 5,
    /// The server has no room for another session.
    NoRoom = 6,
    /// The server's application has no memory for another session.
    NoMemory = 7,
}

impl CloseReason {
    /// All reasons, in the order of their codes from 1.
    pub const ALL: [CloseReason; 7] = [
        CloseReason::ByClient,
        CloseReason::UnknownSession,
        CloseReason::ReplyGone,
        CloseReason::ServerFailed,
        CloseReason::Expire,
        CloseReason::NoRoom,
        CloseReason::NoMemory,
    ];

    /// The reason's name in metrics and the C header.
    pub const fn name(self) -> &'static str {
        match self {
            CloseReason::ByClient => "by_client",
            CloseReason::UnknownSession => "unknown_session",
            CloseReason::ReplyGone => "reply_gone",
            CloseReason::ServerFailed => "server_failed",
            CloseReason::Expire => "expire",
            CloseReason::NoRoom => "no_room",
            CloseReason::NoMemory => "no_memory",
        }
    }

    fn from_code(code: u32) -> Option<CloseReason> {
        CloseReason::ALL.into_iter().find(|reason| *reason as u32 == code)
    }
}

/// Tail of `SessionOpen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTail {
    /// The client's part of the keys; also tells retries of one opening from another opening.
    pub client_nonce: Nonce,
    /// How many requests the client would like to have outstanding.
    pub window_asked: u32,
    /// The epoch of the cluster's key that the session is to have; the packet is made under it.
    pub key_epoch: KeyEpoch,
}

/// Tail of `SessionAccept`; session and epoch stand in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptTail {
    /// The client's nonce again.
    pub client_nonce: Nonce,
    /// The server's part of the keys.
    pub server_nonce: Nonce,
    /// The credit: how many requests may be outstanding (sent and not stable).
    pub window: u32,
    /// After this long without a sign of the client the session expires, in milliseconds.
    pub expiry_ms: u32,
}

/// Tail of `SessionClose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseTail {
    /// Why.
    pub reason: CloseReason,
}

/// Tail of `Response`: the server's boundaries of this call, in its clock, 0 if not stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseTail {
    /// The request reached the server host.
    pub received: Nanos,
    /// The handler started.
    pub started: Nanos,
    /// The handler ended.
    pub ended: Nanos,
    /// The sender took the response.
    pub dequeued: Nanos,
    /// Who made `received`.
    pub received_by: StampSource,
    /// Who answered.
    pub answered_by: Answerer,
}

/// Who answered: the server, or a function of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Answerer {
    /// The function, by the family of its packets; [`Family::Session`] is the server.
    pub function: Family,
    /// The device, never 0; 0 for the server.
    pub device: DeviceId,
}

impl Answerer {
    /// The server.
    pub const SERVER: Answerer = Answerer { function: Family::Session, device: DeviceId(0) };

    /// A function of a device.
    pub const fn device(device: DeviceId, function: Family) -> Answerer {
        Answerer { function, device }
    }

    fn read(bytes: &[u8]) -> Result<Answerer, WireError> {
        let function = Family::from_code(bytes[0]).ok_or(WireError::InvalidField)?;
        let device = DeviceId(u16_at(bytes, 1));
        let is_server = function == Family::Session;
        (is_server == (device == DeviceId(0)))
            .then_some(Answerer { function, device })
            .ok_or(WireError::InvalidField)
    }
}

/// Tail of `Retransmit`: a closed range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeTail {
    /// The first number wanted.
    pub first: u64,
    /// The last number wanted.
    pub last: u64,
    /// To a device and about order numbers: the boot epoch that they belong to; else 0.
    pub boot_epoch: BootEpoch,
}

/// Tail of `Manifest`; the payload is a sequence of [`ManifestRecord`]s. Pages are fragments;
/// `seq_num` repeats the poll's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestTail {
    /// Who holds it.
    pub device: DeviceId,
    /// Its incarnation.
    pub boot_epoch: BootEpoch,
    /// The last order number given.
    pub order_current: OrderNumber,
    /// How many sessions the whole manifest names.
    pub session_count: u32,
}

/// What a device holds of one session.
///
/// Layout: session 8, epoch 4, window 4, client nonce 16, server nonce 16, first 8, last 8, entry
/// count 4, zero 20.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestRecord {
    /// The session.
    pub session: SessionId,
    /// The epoch in which it was opened.
    pub epoch: Epoch,
    /// Its credit.
    pub window: u32,
    /// The client's nonce.
    pub client_nonce: Nonce,
    /// The server's nonce.
    pub server_nonce: Nonce,
    /// The first `seq_num` held, 0 if none.
    pub first: SeqNum,
    /// The last `seq_num` held, 0 if none.
    pub last: SeqNum,
    /// How many log entries lie between them, both included.
    pub entry_count: u32,
}

impl ManifestRecord {
    /// Appends the record's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.session.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.window.to_le_bytes());
        out.extend_from_slice(&self.client_nonce);
        out.extend_from_slice(&self.server_nonce);
        out.extend_from_slice(&self.first.0.to_le_bytes());
        out.extend_from_slice(&self.last.0.to_le_bytes());
        out.extend_from_slice(&self.entry_count.to_le_bytes());
        out.resize(start + MANIFEST_RECORD_BYTES, 0);
    }

    /// Reads one record of exactly [`MANIFEST_RECORD_BYTES`].
    pub fn read(bytes: &[u8]) -> Result<ManifestRecord, WireError> {
        match bytes.len().cmp(&MANIFEST_RECORD_BYTES) {
            Ordering::Less => return Err(WireError::Truncated),
            Ordering::Greater => return Err(WireError::Oversized),
            Ordering::Equal => zero_from(bytes, 68)?,
        }
        Ok(ManifestRecord {
            session: SessionId(u64_at(bytes, 0)),
            epoch: Epoch(u32_at(bytes, 8)),
            window: u32_at(bytes, 12),
            client_nonce: array_at(bytes, 16),
            server_nonce: array_at(bytes, 32),
            first: SeqNum(place_at(bytes, 48)?),
            last: SeqNum(place_at(bytes, 56)?),
            entry_count: u32_at(bytes, 64),
        })
    }
}

/// Tail of `Heartbeat`; the payload, from the server, is a sequence of [`LateStamp`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeartbeatTail {
    /// From the client: its highest `seq_num`.
    pub highest: SeqNum,
    /// From the server: every request up to this one is stable.
    pub stable: SeqNum,
}

/// The size of a [`LateStamp`].
pub const LATE_STAMP_BYTES: usize = 16;

/// When a response left the server host, told behind it.
///
/// Layout: `seq_num` 8, time 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateStamp {
    /// The request.
    pub seq: SeqNum,
    /// The kernel's stamp, in the server's clock.
    pub sent: Nanos,
}

impl LateStamp {
    /// Appends the record's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seq.0.to_le_bytes());
        out.extend_from_slice(&self.sent.0.to_le_bytes());
    }

    /// Reads one record of exactly [`LATE_STAMP_BYTES`].
    pub fn read(bytes: &[u8]) -> Result<LateStamp, WireError> {
        match bytes.len().cmp(&LATE_STAMP_BYTES) {
            Ordering::Less => Err(WireError::Truncated),
            Ordering::Greater => Err(WireError::Oversized),
            Ordering::Equal => {
                Ok(LateStamp { seq: SeqNum(place_at(bytes, 0)?), sent: Nanos(u64_at(bytes, 8)) })
            }
        }
    }
}

/// Tail of `Lease`, from a device as a question and from the server as the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTail {
    /// The device's clock when it asked; the answer repeats it, and the lease runs from then.
    pub asked_at: Nanos,
    /// How long the lease runs; 0 in a question, and in an answer that refuses.
    pub duration: Nanos,
    /// Who asks.
    pub device: DeviceId,
    /// Its incarnation.
    pub boot_epoch: BootEpoch,
}

/// Tail of `Busy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyTail {
    /// Send nothing for so long.
    pub backoff: Nanos,
}

/// The tail of a packet, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// `ServerAck` and `RecoveryPoll` have none.
    Empty,
    /// Of `SessionOpen`.
    Open(OpenTail),
    /// Of `SessionAccept`.
    Accept(AcceptTail),
    /// Of `SessionClose`.
    Close(CloseTail),
    /// Of `Update`, `Read`, `Bypass`, `PersistAck`, `Replay` and `Drain`.
    Stamp(Stamp),
    /// Of `Response`.
    Response(ResponseTail),
    /// Of `Retransmit`.
    Range(RangeTail),
    /// Of `Manifest`.
    Manifest(ManifestTail),
    /// Of `Heartbeat`.
    Heartbeat(HeartbeatTail),
    /// Of `Lease`.
    Lease(LeaseTail),
    /// Of `Busy`.
    Busy(BusyTail),
}

impl Kind {
    /// The size of this kind's tail.
    pub const fn tail_bytes(self) -> usize {
        match self {
            Kind::SessionAccept | Kind::Response => 40,
            Kind::SessionClose | Kind::Busy => 8,
            Kind::Update | Kind::Read | Kind::Bypass | Kind::PersistAck | Kind::Replay | Kind::Drain => {
                STAMP_BYTES
            }
            Kind::ServerAck | Kind::RecoveryPoll => 0,
            Kind::SessionOpen | Kind::Retransmit | Kind::Manifest | Kind::Lease => 24,
            Kind::Heartbeat => 16,
        }
    }
}

impl Kinds for Kind {
    type Tail = Tail;

    const FAMILY: Family = Family::Session;

    fn from_code(code: u8) -> Option<Kind> {
        Kind::from_code(code)
    }

    fn code(self) -> u8 {
        self as u8
    }

    fn tail_bytes(self) -> usize {
        Kind::tail_bytes(self)
    }

    fn is_request(self) -> bool {
        Kind::is_request(self)
    }

    fn takes_extensions(self) -> bool {
        self.is_request() || self == Kind::Response
    }

    fn write_tail(tail: &Tail, out: &mut Vec<u8>) {
        tail.write(out);
    }

    fn read_tail(self, bytes: &[u8]) -> Result<Tail, WireError> {
        Tail::read(self, bytes)
    }
}

impl Tail {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Tail::Empty => {}
            Tail::Open(tail) => {
                out.extend_from_slice(&tail.client_nonce);
                out.extend_from_slice(&tail.window_asked.to_le_bytes());
                out.extend_from_slice(&tail.key_epoch.0.to_le_bytes());
            }
            Tail::Accept(tail) => {
                out.extend_from_slice(&tail.client_nonce);
                out.extend_from_slice(&tail.server_nonce);
                out.extend_from_slice(&tail.window.to_le_bytes());
                out.extend_from_slice(&tail.expiry_ms.to_le_bytes());
            }
            Tail::Close(tail) => {
                out.extend_from_slice(&(tail.reason as u32).to_le_bytes());
                out.extend_from_slice(&[0; 4]);
            }
            // A stamp's own MAC is written by `emit_stamp`, into requests only.
            Tail::Stamp(stamp) => {
                out.extend_from_slice(&stamp.body());
                out.extend_from_slice(&[0; 8]);
            }
            Tail::Response(tail) => {
                for time in [tail.received, tail.started, tail.ended, tail.dequeued] {
                    out.extend_from_slice(&time.0.to_le_bytes());
                }
                let Answerer { function, device } = tail.answered_by;
                out.extend_from_slice(&[tail.received_by.code(), function.code()]);
                out.extend_from_slice(&device.0.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
            }
            Tail::Range(tail) => {
                out.extend_from_slice(&tail.first.to_le_bytes());
                out.extend_from_slice(&tail.last.to_le_bytes());
                out.extend_from_slice(&tail.boot_epoch.0.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
            }
            Tail::Manifest(tail) => {
                out.extend_from_slice(&tail.order_current.0.to_le_bytes());
                out.extend_from_slice(&tail.boot_epoch.0.to_le_bytes());
                out.extend_from_slice(&tail.session_count.to_le_bytes());
                out.extend_from_slice(&tail.device.0.to_le_bytes());
                out.extend_from_slice(&[0; 6]);
            }
            Tail::Heartbeat(tail) => {
                out.extend_from_slice(&tail.highest.0.to_le_bytes());
                out.extend_from_slice(&tail.stable.0.to_le_bytes());
            }
            Tail::Lease(tail) => {
                out.extend_from_slice(&tail.asked_at.0.to_le_bytes());
                out.extend_from_slice(&tail.duration.0.to_le_bytes());
                out.extend_from_slice(&tail.boot_epoch.0.to_le_bytes());
                out.extend_from_slice(&tail.device.0.to_le_bytes());
                out.extend_from_slice(&[0; 2]);
            }
            Tail::Busy(tail) => out.extend_from_slice(&tail.backoff.0.to_le_bytes()),
        }
    }

    /// Reads the tail of `kind` from exactly its bytes. There is one way to write each tail: what
    /// [`Tail::write`] would not have written is refused.
    pub(crate) fn read(kind: Kind, bytes: &[u8]) -> Result<Tail, WireError> {
        debug_assert_eq!(bytes.len(), kind.tail_bytes());
        Ok(match kind {
            Kind::ServerAck | Kind::RecoveryPoll => Tail::Empty,
            Kind::SessionOpen => {
                let key_epoch = KeyEpoch(u32_at(bytes, 20));
                Tail::Open(OpenTail {
                    client_nonce: array_at(bytes, 0),
                    window_asked: u32_at(bytes, 16),
                    key_epoch,
                })
            }
            Kind::SessionAccept => Tail::Accept(AcceptTail {
                client_nonce: array_at(bytes, 0),
                server_nonce: array_at(bytes, 16),
                window: u32_at(bytes, 32),
                expiry_ms: u32_at(bytes, 36),
            }),
            Kind::SessionClose => {
                zero_from(bytes, 4)?;
                Tail::Close(CloseTail {
                    reason: CloseReason::from_code(u32_at(bytes, 0)).ok_or(WireError::InvalidField)?,
                })
            }
            Kind::Update | Kind::Read | Kind::Bypass => Tail::Stamp(Stamp::read(bytes)?),
            Kind::PersistAck | Kind::Replay | Kind::Drain => {
                // The packet's own MAC covers these stamps: the room for theirs stays empty.
                zero_from(bytes, STAMP_BYTES - 8)?;
                Tail::Stamp(Stamp::read(bytes)?)
            }
            Kind::Response => {
                zero_from(bytes, 36)?;
                Tail::Response(ResponseTail {
                    received: Nanos(u64_at(bytes, 0)),
                    started: Nanos(u64_at(bytes, 8)),
                    ended: Nanos(u64_at(bytes, 16)),
                    dequeued: Nanos(u64_at(bytes, 24)),
                    received_by: StampSource::from_code(u64::from(bytes[32]))
                        .ok_or(WireError::InvalidField)?,
                    answered_by: Answerer::read(&bytes[33..36])?,
                })
            }
            Kind::Retransmit => {
                zero_from(bytes, 20)?;
                Tail::Range(RangeTail {
                    first: place_at(bytes, 0)?,
                    last: place_at(bytes, 8)?,
                    boot_epoch: BootEpoch(u32_at(bytes, 16)),
                })
            }
            Kind::Manifest => {
                zero_from(bytes, 18)?;
                Tail::Manifest(ManifestTail {
                    order_current: OrderNumber(place_at(bytes, 0)?),
                    boot_epoch: BootEpoch(u32_at(bytes, 8)),
                    session_count: u32_at(bytes, 12),
                    device: DeviceId(u16_at(bytes, 16)),
                })
            }
            Kind::Heartbeat => Tail::Heartbeat(HeartbeatTail {
                highest: SeqNum(place_at(bytes, 0)?),
                stable: SeqNum(place_at(bytes, 8)?),
            }),
            Kind::Lease => {
                zero_from(bytes, 22)?;
                Tail::Lease(LeaseTail {
                    asked_at: Nanos(u64_at(bytes, 0)),
                    duration: Nanos(u64_at(bytes, 8)),
                    boot_epoch: BootEpoch(u32_at(bytes, 16)),
                    device: DeviceId(u16_at(bytes, 20)),
                })
            }
            Kind::Busy => Tail::Busy(BusyTail { backoff: Nanos(u64_at(bytes, 0)) }),
        })
    }
}

/// Refuses bytes that a later version may give a meaning, so that no two packets mean the same.
fn zero_from(bytes: &[u8], start: usize) -> Result<(), WireError> {
    bytes[start..].iter().all(|byte| *byte == 0).then_some(()).ok_or(WireError::InvalidField)
}

/// A place in an order; the two largest values are kept free so that arithmetic cannot overflow.
fn place_at(bytes: &[u8], at: usize) -> Result<u64, WireError> {
    let place = u64_at(bytes, at);
    (place < u64::MAX - 1).then_some(place).ok_or(WireError::InvalidField)
}
