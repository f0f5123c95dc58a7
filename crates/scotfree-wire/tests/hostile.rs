//! Damaged, forged and foreign packets: each is refused with its own reason, and nothing panics.

mod common;

use common::{any_sample, KEY, STAMP_KEY};
use proptest::prelude::*;
use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use scotfree_wire::golden::{self, vectors, Vector};
use scotfree_wire::{
    emit, emit_stamp, CloseReason, ClusterKey, Direction, Header, Key, Kind, LateStamp, ManifestRecord,
    Packet, Stamp, StampKind, Tail, WireError, HEADER_BYTES, PACKET_BYTES_MAX, STAMP_BYTES, VERSION,
    WIRE_ERROR_COUNT,
};

/// All that a receiver does with a packet before it acts on it.
fn receive(bytes: &[u8]) -> Result<(), WireError> {
    let packet = Packet::parse(bytes)?;
    packet.verify(&KEY)?;
    packet.verified_stamp(&STAMP_KEY).map(|_| ())
}

fn vector_of(kind: Kind) -> Vector {
    vectors().into_iter().find(|vector| vector.header.kind == kind).expect("a vector per kind")
}

/// What parsing says of `kind`'s vector after `damage`.
fn parsed(kind: Kind, damage: impl FnOnce(&mut Vec<u8>)) -> Result<(), WireError> {
    let mut bytes = vector_of(kind).bytes();
    damage(&mut bytes);
    Packet::parse(&bytes).map(|_| ())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        prop_assert!(receive(&bytes).is_err());
        let _ = ManifestRecord::read(&bytes);
    }

    /// Past the magic, the version and the kind, where the checks of fields and sizes are.
    #[test]
    fn plausible_bytes_never_panic(
        kind in common::any_kind(), bytes in proptest::collection::vec(any::<u8>(), 6..2_000),
    ) {
        let mut bytes = bytes;
        bytes[..5].copy_from_slice(&[b'S', b'C', b'O', b'T', VERSION]);
        bytes[5] = kind as u8;
        prop_assert!(receive(&bytes).is_err());
    }

    #[test]
    fn mutated_packets_are_refused(
        sample in any_sample(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..8),
    ) {
        let original = sample.bytes();
        let mut bytes = original.clone();
        for (at, mask) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
        }
        // Two changes of one byte may cancel out.
        prop_assert_eq!(receive(&bytes).is_ok(), bytes == original);
    }

    #[test]
    fn every_cut_is_truncated(sample in any_sample(), at in any::<prop::sample::Index>()) {
        let bytes = sample.bytes();
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert_eq!(receive(cut), Err(WireError::Truncated));
    }

    #[test]
    fn every_addition_is_oversized(
        sample in any_sample(), more in proptest::collection::vec(any::<u8>(), 1..100),
    ) {
        let mut bytes = sample.bytes();
        bytes.extend(more);
        prop_assert_eq!(receive(&bytes), Err(WireError::Oversized));
    }
}

#[test]
fn truncated() {
    assert_eq!(Packet::parse(&[]).map(|_| ()), Err(WireError::Truncated));
    assert_eq!(parsed(Kind::Update, |bytes| bytes.truncate(HEADER_BYTES - 1)), Err(WireError::Truncated));
    assert_eq!(parsed(Kind::Update, |bytes| bytes.truncate(HEADER_BYTES + 1)), Err(WireError::Truncated));
    assert_eq!(parsed(Kind::Update, |bytes| bytes.truncate(bytes.len() - 1)), Err(WireError::Truncated));
    assert_eq!(ManifestRecord::read(&[0; 87]), Err(WireError::Truncated));
}

#[test]
fn oversized() {
    assert_eq!(parsed(Kind::Update, |bytes| bytes.push(0)), Err(WireError::Oversized));
    // A stated size that no packet has, whatever arrived.
    let stated = |size: u32| move |bytes: &mut Vec<u8>| bytes[44..48].copy_from_slice(&size.to_le_bytes());
    assert_eq!(parsed(Kind::Update, stated(u32::MAX)), Err(WireError::Oversized));
    let room = (PACKET_BYTES_MAX - HEADER_BYTES - STAMP_BYTES) as u32;
    assert_eq!(parsed(Kind::Update, stated(room)), Err(WireError::Truncated));
    assert_eq!(parsed(Kind::Update, stated(room + 1)), Err(WireError::Oversized));
    assert_eq!(ManifestRecord::read(&[0; 89]), Err(WireError::Oversized));
}

#[test]
fn wrong_magic() {
    assert_eq!(parsed(Kind::Read, |bytes| bytes[0] = b's'), Err(WireError::WrongMagic));
}

#[test]
fn wrong_version() {
    assert_eq!(parsed(Kind::Read, |bytes| bytes[4] = 1), Err(WireError::WrongVersion), "the first");
    assert_eq!(parsed(Kind::Read, |bytes| bytes[4] = 3), Err(WireError::WrongVersion));
    assert_eq!(parsed(Kind::Read, |bytes| bytes[4] = 0), Err(WireError::WrongVersion));
}

#[test]
fn unknown_kind() {
    assert_eq!(parsed(Kind::Read, |bytes| bytes[5] = 0), Err(WireError::UnknownKind));
    assert_eq!(parsed(Kind::Read, |bytes| bytes[5] = 18), Err(WireError::UnknownKind));
    assert_eq!(parsed(Kind::Read, |bytes| bytes[5] = 255), Err(WireError::UnknownKind));
}

fn set(at: usize, value: &'static [u8]) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[at..at + value.len()].copy_from_slice(value)
}

#[test]
fn invalid_field_in_the_header() {
    let refused = |at, value| assert_eq!(parsed(Kind::Update, set(at, value)), Err(WireError::InvalidField));
    refused(7, &[2]); // a flag that does not exist
    refused(8, &[4]); // a durability that does not exist
    refused(9, &[4]);
    refused(24, &[0; 8]); // a request without a place
    refused(24, &[0xff; 8]); // a place after which there is none
    refused(40, &[3, 0]); // the fourth of three fragments
    refused(40, &[0; 4]); // of no fragments
    refused(48, &[0xff; 8]);
    // Of a kind that bears no extensions.
    assert_eq!(parsed(Kind::Lease, set(11, &[1])), Err(WireError::InvalidField));
}

/// Where the extensions of `read_extended` begin: two keys (3 words), then an identity (4).
const EXTENSIONS_AT: usize = HEADER_BYTES + STAMP_BYTES;

#[test]
fn extensions_that_nobody_writes() {
    let extended =
        || vectors().into_iter().find(|vector| vector.name == "read_extended").expect("it is there");
    let refused = |at: usize, value: u8| {
        let mut bytes = extended().bytes();
        bytes[at] = value;
        Packet::parse(&bytes).map(|_| ()).expect_err("nobody writes this")
    };
    assert_eq!(refused(EXTENSIONS_AT, 9), WireError::UnknownExtension);
    assert_eq!(refused(EXTENSIONS_AT + 24, 9), WireError::UnknownExtension, "of a type to come");
    assert_eq!(refused(EXTENSIONS_AT + 24, 1), WireError::BadExtension, "twice");
    assert_eq!(refused(EXTENSIONS_AT + 25, 4), WireError::BadExtension, "past what is said to be extensions");
    assert_eq!(refused(EXTENSIONS_AT + 25, 2), WireError::BadExtension, "of a size that its type has not");
    assert_eq!(refused(EXTENSIONS_AT + 2, 1), WireError::BadExtension, "a reserved byte");
    assert_eq!(refused(11, 20), WireError::Truncated, "past the packet");
    assert_eq!(refused(11, 255), WireError::Oversized, "past any packet");
    assert_eq!(refused(42, 2), WireError::BadExtension, "on one of two fragments");
    // A word of the payload taken for an extension.
    assert_eq!(
        parsed(Kind::Update, |bytes| {
            bytes[11] = 1;
            bytes[40..44].copy_from_slice(&[0, 0, 1, 0]);
            bytes[44] -= 8;
        }),
        Err(WireError::BadExtension)
    );
}

/// The first number behind the last reason.
const NO_CLOSE_REASON: [u8; 1] = [CloseReason::ALL.len() as u8 + 1];

#[test]
fn invalid_field_in_the_tail() {
    let tail = HEADER_BYTES;
    let cases: [(Kind, usize, &'static [u8]); 24] = [
        (Kind::Update, 0, &[3]),
        (Kind::Update, 0, &[0]), // no stamp, yet a number
        (Kind::Update, 1, &[1]),
        (Kind::Update, 8, &[0xff; 8]),
        (Kind::Update, 16, &[0xff; 8]),
        (Kind::Replay, 24, &[1]), // a code where the packet's own covers the stamp
        (Kind::Drain, 2, &[1]),   // no stamp, yet a device
        (Kind::SessionClose, 0, &[0]),
        (Kind::SessionClose, 0, &NO_CLOSE_REASON),
        (Kind::SessionClose, 4, &[1]),
        (Kind::Response, 32, &[3]),
        (Kind::Response, 33, &[33]), // no function's name
        (Kind::Response, 33, &[32]), // a function of no device
        (Kind::Response, 34, &[9]),  // the server of a device
        (Kind::Response, 36, &[1]),
        (Kind::Retransmit, 0, &[0xff; 8]),
        (Kind::Retransmit, 8, &[0xff; 8]),
        (Kind::Retransmit, 20, &[1]),
        (Kind::Manifest, 0, &[0xff; 8]),
        (Kind::Manifest, 18, &[1]),
        (Kind::Heartbeat, 0, &[0xff; 8]),
        (Kind::Heartbeat, 8, &[0xff; 8]),
        (Kind::Lease, 22, &[1]),
        (Kind::PersistAck, 31, &[1]),
    ];
    for (kind, at, value) in cases {
        assert_eq!(parsed(kind, set(tail + at, value)), Err(WireError::InvalidField), "{kind:?} at {at}");
    }
}

#[test]
fn invalid_field_in_a_record() {
    for (at, value) in [(48, [0xff; 8]), (56, [0xff; 8]), (80, [1; 8])] {
        let mut record = vector_of(Kind::Manifest).payload;
        record[at..at + 8].copy_from_slice(&value);
        assert_eq!(ManifestRecord::read(&record), Err(WireError::InvalidField), "at {at}");
    }
    let record = vector_of(Kind::Heartbeat).payload;
    assert_eq!(LateStamp::read(&record), Ok(LateStamp { seq: SeqNum(41), sent: Nanos(9_500) }));
    assert_eq!(LateStamp::read(&record[1..]), Err(WireError::Truncated));
    assert_eq!(LateStamp::read(&[&record[..], &[0]].concat()), Err(WireError::Oversized));
    assert_eq!(LateStamp::read(&[0xff; 16]), Err(WireError::InvalidField));
}

#[test]
fn bad_mac() {
    let bytes = vector_of(Kind::Response).bytes();
    let packet = Packet::parse(&bytes).expect("a vector is a packet");
    assert_eq!(packet.verify(&golden::PACKET_KEY), Ok(()));
    assert_eq!(packet.verify(&KEY), Err(WireError::BadMac));
}

#[test]
fn bad_stamp_mac() {
    let bytes = vector_of(Kind::Update).bytes();
    let packet = Packet::parse(&bytes).expect("a vector is a packet");
    assert!(packet.verified_stamp(&golden::STAMP_KEY).is_ok_and(|stamp| stamp.kind == StampKind::Order));
    assert_eq!(packet.verified_stamp(&golden::PACKET_KEY), Err(WireError::BadStampMac));
}

/// A stamp lifted from one request does not fit another, of the same session or of another.
#[test]
fn bad_stamp_mac_of_another_request() {
    let update = vector_of(Kind::Update);
    let stamp = update.bytes()[HEADER_BYTES..HEADER_BYTES + STAMP_BYTES].to_vec();
    for (session, seq) in [(0, 1), (1, 0)] {
        let mut header = update.header;
        header.session.0 += session;
        header.seq_num.0 += seq;
        let mut bytes = Vec::new();
        emit(&header, &update.tail, &update.payload, &golden::PACKET_KEY, &mut bytes);
        bytes[HEADER_BYTES..HEADER_BYTES + STAMP_BYTES].copy_from_slice(&stamp);
        let packet = Packet::parse(&bytes).expect("a packet with a stamp is a packet");
        assert_eq!(packet.verify(&golden::PACKET_KEY), Ok(()));
        assert_eq!(packet.verified_stamp(&golden::STAMP_KEY), Err(WireError::BadStampMac));
    }
}

#[test]
fn only_requests_take_a_stamp() {
    for vector in vectors().into_iter().filter(|vector| !vector.header.kind.is_request()) {
        let mut bytes = vector.bytes();
        assert_eq!(emit_stamp(&mut bytes, &Stamp::default(), &STAMP_KEY), Err(WireError::InvalidField));
        assert_eq!(bytes, vector.bytes());
    }
}

/// Every bit of every kind of packet is covered by a check or by a code: outside a request's stamp
/// by the packet's, inside by the stamp's own.
#[test]
fn no_single_bit_can_be_flipped() {
    for vector in vectors() {
        let original = vector.bytes();
        for bit in 0..original.len() * 8 {
            let mut bytes = original.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_flip_refused(&vector, &bytes, bit / 8);
        }
    }
}

fn assert_flip_refused(vector: &Vector, bytes: &[u8], at: usize) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let stamp = HEADER_BYTES..HEADER_BYTES + STAMP_BYTES;
    let name = vector.name;
    if vector.header.kind.is_request() && stamp.contains(&at) {
        assert_eq!(
            packet.verify(&golden::PACKET_KEY),
            Ok(()),
            "{name}: a stamp is not the client's, byte {at}"
        );
        let stamp = packet.verified_stamp(&golden::STAMP_KEY);
        assert_eq!(stamp, Err(WireError::BadStampMac), "{name}, byte {at}");
    } else {
        assert_eq!(packet.verify(&golden::PACKET_KEY), Err(WireError::BadMac), "{name}, byte {at}");
    }
}

/// All keys that one cluster and one session know.
fn all_keys() -> Vec<(&'static str, Key)> {
    let cluster = ClusterKey::from_bytes([3; 32]);
    let session = cluster.session(&[4; 16], &[5; 16], SessionId(6), Epoch(7));
    vec![
        ("client to server", session.client_to_server),
        ("server to client", session.server_to_client),
        ("device to client", session.device_to_client),
        ("server to device", cluster.control(Direction::ServerToDevice)),
        ("device to server", cluster.control(Direction::DeviceToServer)),
        ("stamp", cluster.control(Direction::Stamp)),
        ("handshake", cluster.control(Direction::Handshake)),
        ("sessionless client to server", cluster.control(Direction::ClientToServer)),
        ("sessionless server to client", cluster.control(Direction::ServerToClient)),
        ("sessionless device to client", cluster.control(Direction::DeviceToClient)),
    ]
}

#[test]
fn a_packet_of_one_direction_is_refused_in_every_other() {
    let keys = all_keys();
    for (made_for, own) in &keys {
        let mut bytes = Vec::new();
        emit(&Header::new(Kind::ServerAck, SessionId(6), Epoch(7)), &Tail::Empty, b"", own, &mut bytes);
        let packet = Packet::parse(&bytes).expect("what emit writes is a packet");
        for (tried_as, key) in &keys {
            assert_eq!(packet.verify(key).is_ok(), made_for == tried_as, "{made_for} as {tried_as}");
        }
    }
}

#[test]
fn a_packet_of_one_session_is_refused_in_every_other() {
    let cluster = ClusterKey::from_bytes([3; 32]);
    let own = cluster.session(&[4; 16], &[5; 16], SessionId(6), Epoch(7));
    let others = [
        cluster.session(&[0; 16], &[5; 16], SessionId(6), Epoch(7)),
        cluster.session(&[4; 16], &[0; 16], SessionId(6), Epoch(7)),
        cluster.session(&[5; 16], &[4; 16], SessionId(6), Epoch(7)),
        cluster.session(&[4; 16], &[5; 16], SessionId(0), Epoch(7)),
        cluster.session(&[4; 16], &[5; 16], SessionId(6), Epoch(0)),
        ClusterKey::from_bytes([0; 32]).session(&[4; 16], &[5; 16], SessionId(6), Epoch(7)),
    ];
    for other in others {
        assert_ne!(own.client_to_server, other.client_to_server);
        assert_ne!(own.server_to_client, other.server_to_client);
        assert_ne!(own.device_to_client, other.device_to_client);
    }
}

#[test]
fn reasons_have_their_own_names_and_places() {
    let names: std::collections::BTreeSet<&str> = WireError::ALL.iter().map(|error| error.name()).collect();
    assert_eq!(names.len(), WIRE_ERROR_COUNT);
    for (index, error) in WireError::ALL.into_iter().enumerate() {
        assert_eq!(error as usize, index);
        assert!(!error.to_string().is_empty());
    }
}
