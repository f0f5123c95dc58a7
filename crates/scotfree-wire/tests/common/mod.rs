//! Packets for the tests, of every kind and with every field drawn at random.
//!
//! Invariant: whatever comes from here is a packet that `emit` may be asked for.
#![allow(dead_code, clippy::missing_docs_in_private_items)] // Each test file uses a part of it.

use proptest::prelude::*;
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, OrderNumber, SeqNum, SessionId, StampSource,
};
use scotfree_wire::{
    emit_extended, emit_stamp, AcceptTail, Answerer, BusyTail, CloseReason, CloseTail, Extensions, Family,
    Flags, Header, HeartbeatTail, Identity, Key, KeyEpoch, Kind, Kinds, LeaseTail, ManifestRecord,
    ManifestTail, ObjectNote, OpenTail, RangeTail, ResponseTail, Stamp, StampKind, Tail, EXTENSION_BYTES_MAX,
    FURTHER_KEYS_MAX, HEADER_BYTES, PACKET_BYTES_MAX,
};

/// The key of the packets.
pub const KEY: Key = Key::from_bytes([1; 16]);
/// The key of the stamps.
pub const STAMP_KEY: Key = Key::from_bytes([2; 16]);

/// A packet before it is written.
#[derive(Debug, Clone)]
pub struct Sample {
    pub header: Header,
    pub tail: Tail,
    pub further: Further,
    pub payload: Vec<u8>,
}

/// Extensions that own what they name.
#[derive(Debug, Clone, Default)]
pub struct Further {
    pub keys: Vec<KeyHash>,
    pub identity: Option<Identity>,
    pub object: Option<ObjectNote>,
}

impl Further {
    pub fn extensions(&self) -> Extensions<'_> {
        Extensions { further_keys: &self.keys, identity: self.identity, object: self.object }
    }
}

impl Sample {
    /// Its bytes; a request's stamp has its own code too.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        emit_extended(&self.header, &self.tail, &self.further.extensions(), &self.payload, &KEY, &mut out);
        if let (true, Tail::Stamp(stamp)) = (self.header.kind.is_request(), self.tail) {
            if stamp.kind != StampKind::None {
                emit_stamp(&mut out, &stamp, &STAMP_KEY).expect("a request takes a stamp");
            }
        }
        out
    }
}

pub fn any_kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(&Kind::ALL[..])
}

pub fn any_sample() -> impl Strategy<Value = Sample> {
    any_kind().prop_flat_map(|kind| {
        let room = PACKET_BYTES_MAX - HEADER_BYTES - kind.tail_bytes() - EXTENSION_BYTES_MAX;
        let payload = proptest::collection::vec(any::<u8>(), 0..=room);
        (any_header(kind), any_tail(kind), any_further(), payload).prop_map(
            |(header, tail, further, payload)| {
                let bears = header.kind.takes_extensions() && header.fragment_count == 1;
                let further = if bears { further } else { Further::default() };
                Sample { header, tail, further, payload }
            },
        )
    })
}

pub fn any_further() -> impl Strategy<Value = Further> {
    let keys = proptest::collection::vec(any::<u64>().prop_map(KeyHash), 0..=FURTHER_KEYS_MAX);
    let identity = any::<([u8; 16], u64)>().prop_map(|(client, number)| Identity { client, number });
    let object =
        any::<(u64, u64)>().prop_map(|(value_bytes, remaining_ms)| ObjectNote { value_bytes, remaining_ms });
    let some = (keys, proptest::option::of(identity), proptest::option::of(object))
        .prop_map(|(keys, identity, object)| Further { keys, identity, object });
    prop_oneof![1 => Just(Further::default()), 1 => some]
}

/// A place in an order; the two largest values are no places.
pub fn any_place() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, 0..=u64::MAX - 2, Just(u64::MAX - 2)]
}

fn any_durability() -> impl Strategy<Value = Durability> {
    (0..4_u8).prop_map(|code| Durability::from_code(code).expect("0 to 3 are codes"))
}

pub fn any_header(kind: Kind) -> impl Strategy<Value = Header> {
    let numbers = (any::<u64>(), any_place(), any::<u64>(), any_place(), any::<u32>());
    let fragments = (1..=u16::MAX).prop_flat_map(|count| (0..count, Just(count)));
    let fragments = prop_oneof![Just((0, 1)), fragments];
    let small = (0..256_u16, any_durability(), any_durability(), any::<u8>());
    (numbers, fragments, small).prop_map(move |(numbers, fragments, small)| Header {
        kind,
        flags: Flags(small.0),
        asked: small.1,
        granted: small.2,
        device_acks_asked: small.3,
        epoch: Epoch(numbers.4),
        session: SessionId(numbers.0),
        seq_num: SeqNum(if kind.is_request() { numbers.1.max(1) } else { numbers.1 }),
        key_hash: KeyHash(numbers.2),
        fragment_index: fragments.0,
        fragment_count: fragments.1,
        completed: SeqNum(numbers.3),
    })
}

pub fn any_stamp() -> impl Strategy<Value = Stamp> {
    let kind = prop_oneof![Just(StampKind::Order), Just(StampKind::Barrier)];
    let stamp = (kind, any::<u16>(), any::<u32>(), any_place(), any_place()).prop_map(
        |(kind, device, boot_epoch, number, previous_write)| Stamp {
            kind,
            device: DeviceId(device),
            boot_epoch: BootEpoch(boot_epoch),
            number: OrderNumber(number),
            previous_write: SeqNum(previous_write),
        },
    );
    prop_oneof![1 => Just(Stamp::default()), 3 => stamp]
}

fn any_reason() -> impl Strategy<Value = CloseReason> {
    proptest::sample::select(&CloseReason::ALL[..])
}

fn any_nanos() -> impl Strategy<Value = Nanos> {
    any::<u64>().prop_map(Nanos)
}

fn any_answerer() -> impl Strategy<Value = Answerer> {
    let function = proptest::sample::select(&Family::ALL[1..]);
    let device =
        (1..=u16::MAX, function).prop_map(|(device, function)| Answerer::device(DeviceId(device), function));
    prop_oneof![Just(Answerer::SERVER), device]
}

fn any_stamp_source() -> impl Strategy<Value = StampSource> {
    proptest::sample::select(&StampSource::ALL[..])
}

fn any_response_tail() -> impl Strategy<Value = ResponseTail> {
    (any_nanos(), any_nanos(), any_nanos(), any_nanos(), any_stamp_source(), any_answerer()).prop_map(
        |(received, started, ended, dequeued, received_by, answered_by)| ResponseTail {
            received,
            started,
            ended,
            dequeued,
            received_by,
            answered_by,
        },
    )
}

fn any_manifest_tail() -> impl Strategy<Value = ManifestTail> {
    (any::<u16>(), any::<u32>(), any_place(), any::<u32>()).prop_map(
        |(device, boot_epoch, order_current, session_count)| ManifestTail {
            device: DeviceId(device),
            boot_epoch: BootEpoch(boot_epoch),
            order_current: OrderNumber(order_current),
            session_count,
        },
    )
}

fn any_heartbeat_tail() -> impl Strategy<Value = HeartbeatTail> {
    (any_place(), any_place())
        .prop_map(|(highest, stable)| HeartbeatTail { highest: SeqNum(highest), stable: SeqNum(stable) })
}

fn any_lease_tail() -> impl Strategy<Value = LeaseTail> {
    (any_nanos(), any_nanos(), any::<u16>(), any::<u32>()).prop_map(
        |(asked_at, duration, device, boot_epoch)| LeaseTail {
            asked_at,
            duration,
            device: DeviceId(device),
            boot_epoch: BootEpoch(boot_epoch),
        },
    )
}

pub fn any_tail(kind: Kind) -> BoxedStrategy<Tail> {
    match kind {
        Kind::ServerAck | Kind::RecoveryPoll => Just(Tail::Empty).boxed(),
        Kind::SessionOpen => any::<([u8; 16], u32, u32)>()
            .prop_map(|(client_nonce, window_asked, key_epoch)| {
                Tail::Open(OpenTail { client_nonce, window_asked, key_epoch: KeyEpoch(key_epoch) })
            })
            .boxed(),
        Kind::SessionAccept => any::<([u8; 16], [u8; 16], u32, u32)>()
            .prop_map(|(client_nonce, server_nonce, window, expiry_ms)| {
                Tail::Accept(AcceptTail { client_nonce, server_nonce, window, expiry_ms })
            })
            .boxed(),
        Kind::SessionClose => any_reason().prop_map(|reason| Tail::Close(CloseTail { reason })).boxed(),
        Kind::Update | Kind::Read | Kind::Bypass | Kind::PersistAck | Kind::Replay | Kind::Drain => {
            any_stamp().prop_map(Tail::Stamp).boxed()
        }
        Kind::Response => any_response_tail().prop_map(Tail::Response).boxed(),
        Kind::Retransmit => (any_place(), any_place(), any::<u32>())
            .prop_map(|(first, last, boot)| {
                Tail::Range(RangeTail { first, last, boot_epoch: BootEpoch(boot) })
            })
            .boxed(),
        Kind::Manifest => any_manifest_tail().prop_map(Tail::Manifest).boxed(),
        Kind::Heartbeat => any_heartbeat_tail().prop_map(Tail::Heartbeat).boxed(),
        Kind::Lease => any_lease_tail().prop_map(Tail::Lease).boxed(),
        Kind::Busy => any_nanos().prop_map(|backoff| Tail::Busy(BusyTail { backoff })).boxed(),
    }
}

pub fn any_record() -> impl Strategy<Value = ManifestRecord> {
    let keys = any::<(u64, u32, u32, [u8; 16], [u8; 16])>();
    (keys, any_place(), any_place(), any::<u32>()).prop_map(|(keys, first, last, entry_count)| {
        ManifestRecord {
            session: SessionId(keys.0),
            epoch: Epoch(keys.1),
            window: keys.2,
            client_nonce: keys.3,
            server_nonce: keys.4,
            first: SeqNum(first),
            last: SeqNum(last),
            entry_count,
        }
    })
}
