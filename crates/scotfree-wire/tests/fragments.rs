//! Fragments come in any order, any number of times and in company; what is handed out is one
//! payload that was split, once per complete set, within the limits.

mod common;

use common::KEY;
use proptest::prelude::*;
use scotfree_core::{BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_wire::{
    emit, emit_fragments, fragments, Flags, Header, Kind, ManifestTail, Packet, Reassembly, ResponseTail,
    Stamp, StampKind, Tail, Whole, WireError, PACKET_BYTES_MAX, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX,
};
use std::borrow::Cow;

const SESSION: SessionId = SessionId(5);
const NO_STAMP: Tail = Tail::Stamp(Stamp {
    kind: StampKind::None,
    device: DeviceId(0),
    boot_epoch: BootEpoch(0),
    number: OrderNumber(0),
    previous_write: SeqNum(0),
});

fn update(seq: u64) -> Header {
    Header { seq_num: SeqNum(seq), ..Header::new(Kind::Update, SESSION, Epoch(1)) }
}

fn response(seq: u64) -> Header {
    Header { seq_num: SeqNum(seq), ..Header::new(Kind::Response, SESSION, Epoch(1)) }
}

fn ended_at(at: u64) -> Tail {
    Tail::Response(ResponseTail { ended: Nanos(at), ..ResponseTail::default() })
}

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn split(header: &Header, tail: &Tail, payload: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    emit_fragments(header, tail, payload, &KEY, |packet| packets.push(packet.to_vec()))
        .expect("the payload is not too large");
    packets
}

fn offer<'p>(reassembly: &mut Reassembly, packet: &'p [u8]) -> Result<Option<Whole<'p>>, WireError> {
    let packet = Packet::parse(packet).expect("what was split are packets");
    packet.verify(&KEY).expect("each packet is authentic");
    reassembly.offer(&packet)
}

/// Offers all and returns the wholes.
fn offer_all(reassembly: &mut Reassembly, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let wholes = packets.iter().filter_map(|packet| offer(reassembly, packet).expect("no contradiction"));
    wholes.map(|whole| whole.payload.into_owned()).collect()
}

fn roomy() -> Reassembly {
    Reassembly::new(8, 8 * RESPONSE_BYTES_MAX)
}

/// A payload of two full parts and a short third.
fn three_parts(kind: Kind) -> Vec<u8> {
    payload(2 * kind.payload_bytes_max() + 100)
}

proptest! {
    #[test]
    fn any_order_with_any_duplicates_gives_the_payload_once(
        bytes in 0..=REQUEST_BYTES_MAX, seed in any::<u64>(), is_request in any::<bool>(),
    ) {
        let (header, tail) = if is_request { (update(1), NO_STAMP) } else { (response(1), ended_at(9)) };
        let sent = payload(bytes);
        let mut packets = split(&header, &tail, &sent);
        let count = packets.len();
        packets.extend_from_within(..count / 2);
        let mut order: Vec<usize> = (0..packets.len()).collect();
        order.sort_by_key(|at| (*at as u64).wrapping_mul(seed | 1));
        let mut reassembly = roomy();
        let mut seen = vec![false; count];
        let mut wholes = Vec::new();
        for at in order {
            let index = Packet::parse(&packets[at]).expect("a packet").header().fragment_index;
            // Duplicates that come after completion begin a new set, so stop there.
            if seen.iter().all(|seen| *seen) { break; }
            seen[usize::from(index)] = true;
            wholes.extend(offer(&mut reassembly, &packets[at]).expect("no contradiction"));
        }
        prop_assert_eq!(wholes.len(), 1);
        prop_assert_eq!(&wholes[0].payload[..], &sent[..]);
        prop_assert_eq!(wholes[0].header, header);
        prop_assert_eq!(wholes[0].tail, tail);
        prop_assert_eq!(reassembly.set_count(), 0);
        prop_assert_eq!(reassembly.bytes_reserved(), 0);
    }

    /// Whatever is offered, the limits hold and nothing panics.
    #[test]
    fn the_limits_hold_whatever_comes(
        offers in proptest::collection::vec((1..6_u64, 0..5_u16, 1..5_u16, 0..3_usize, 0..2_u16), 1..200),
    ) {
        let part = Kind::Update.payload_bytes_max();
        let mut reassembly = Reassembly::new(3, 7 * part);
        for (seq, fragment_index, fragment_count, size, flags) in offers {
            let fragment_index = fragment_index % fragment_count;
            let header = Header { fragment_index, fragment_count, flags: Flags(flags), ..update(seq) };
            let mut bytes = Vec::new();
            emit(&header, &NO_STAMP, &payload([0, 7, part][size]), &KEY, &mut bytes);
            let _ = offer(&mut reassembly, &bytes);
            prop_assert!(reassembly.set_count() <= 3);
            prop_assert!(reassembly.bytes_reserved() <= 7 * part);
        }
    }
}

#[test]
fn the_largest_request_fits_a_log_record_with_all_its_packets() {
    let packets = split(&update(1), &NO_STAMP, &payload(REQUEST_BYTES_MAX));
    assert!(packets.iter().map(Vec::len).sum::<usize>() <= 64 * 1024 - 4096, "room for the record's own");
    assert!(packets.iter().all(|packet| packet.len() <= PACKET_BYTES_MAX));
    let wholes = offer_all(&mut roomy(), &packets);
    assert_eq!(wholes, [payload(REQUEST_BYTES_MAX)]);
}

#[test]
fn the_largest_response_and_manifest_pass() {
    let manifest = ManifestTail {
        device: DeviceId(1),
        boot_epoch: BootEpoch(1),
        order_current: OrderNumber(0),
        session_count: 0,
    };
    let manifest_header = Header::new(Kind::Manifest, SessionId(0), Epoch(1));
    for (header, tail) in [(response(1), ended_at(1)), (manifest_header, Tail::Manifest(manifest))] {
        let sent = payload(RESPONSE_BYTES_MAX);
        assert_eq!(offer_all(&mut roomy(), &split(&header, &tail, &sent)), [sent]);
    }
}

#[test]
fn a_payload_that_is_too_large_is_oversized() {
    let too_large = payload(REQUEST_BYTES_MAX + 1);
    assert_eq!(fragments(&update(1), &too_large).map(|_| ()), Err(WireError::Oversized));
    let emitted = emit_fragments(&update(1), &NO_STAMP, &too_large, &KEY, |_| panic!("nothing is sent"));
    assert_eq!(emitted, Err(WireError::Oversized));
    // A kind that is never split.
    let header = Header::new(Kind::Drain, SESSION, Epoch(1));
    let one = payload(Kind::Drain.payload_bytes_max());
    assert_eq!(fragments(&header, &one).map(|parts| parts.len()), Ok(1));
    let two = payload(Kind::Drain.payload_bytes_max() + 1);
    assert_eq!(fragments(&header, &two).map(|_| ()), Err(WireError::Oversized));
}

#[test]
fn an_exact_multiple_has_no_empty_fragment_and_nothing_is_one_fragment() {
    let part = Kind::Read.payload_bytes_max();
    for (bytes, count) in [(0, 1), (1, 1), (part, 1), (part + 1, 2), (2 * part, 2), (2 * part + 1, 3)] {
        let header = Header { kind: Kind::Read, ..update(1) };
        assert_eq!(split(&header, &NO_STAMP, &payload(bytes)).len(), count, "{bytes} bytes");
    }
}

#[test]
fn a_single_packet_passes_without_a_copy_and_without_a_set() {
    let packets = split(&update(1), &NO_STAMP, b"SET colour blue");
    let mut reassembly = Reassembly::new(1, 0);
    let parsed = Packet::parse(&packets[0]).expect("a packet");
    let whole = reassembly.offer(&parsed).expect("no contradiction").expect("it is complete");
    assert!(matches!(whole.payload, Cow::Borrowed(bytes) if bytes.as_ptr() == parsed.payload().as_ptr()));
    assert_eq!(whole.header, *parsed.header());
    assert_eq!(reassembly.set_count(), 0);
}

#[test]
fn an_assembled_payload_is_moved_out_and_was_never_reallocated() {
    let sent = three_parts(Kind::Update);
    let mut reassembly = roomy();
    let mut packets = split(&update(1), &NO_STAMP, &sent);
    packets.reverse();
    let mut whole = None;
    for packet in &packets {
        whole = offer(&mut reassembly, packet).expect("no contradiction");
    }
    let Some(Whole { payload: Cow::Owned(assembled), .. }) = whole else { panic!("assembled and owned") };
    assert_eq!(assembled.capacity(), 3 * Kind::Update.payload_bytes_max());
    assert_eq!(assembled, sent);
}

#[test]
fn a_set_completes_once_and_again_only_if_all_of_it_comes_again() {
    let packets = split(&update(1), &NO_STAMP, &three_parts(Kind::Update));
    let mut reassembly = roomy();
    assert_eq!(offer_all(&mut reassembly, &packets).len(), 1);
    assert_eq!(offer_all(&mut reassembly, &packets[1..]).len(), 0);
    assert_eq!(offer_all(&mut reassembly, &packets[1..]).len(), 0, "duplicates change nothing");
    assert_eq!(offer_all(&mut reassembly, &packets[..1]).len(), 1);
}

#[test]
fn requests_of_sessions_and_kinds_do_not_mix() {
    let sent = three_parts(Kind::Update);
    let other = Header { session: SessionId(6), ..update(1) };
    let replay = Header { kind: Kind::Replay, ..update(1) };
    let mut packets = Vec::new();
    for header in [update(1), update(2), other, replay] {
        packets.push(split(&header, &NO_STAMP, &sent));
    }
    let mut reassembly = roomy();
    for part in 0..3 {
        for set in &packets {
            let whole = offer(&mut reassembly, &set[part]).expect("no contradiction");
            assert_eq!(whole.is_some(), part == 2);
        }
    }
}

/// Emits one fragment with a changed header or payload.
fn fragment(header: Header, tail: &Tail, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&header, tail, payload, &KEY, &mut out);
    out
}

#[test]
fn bad_fragment_of_another_request_leaves_the_set_unharmed() {
    let sent = three_parts(Kind::Update);
    let part = Kind::Update.payload_bytes_max();
    let packets = split(&update(1), &NO_STAMP, &sent);
    let second = Header { fragment_index: 1, fragment_count: 3, ..update(1) };
    let last = Header { fragment_index: 2, ..second };
    let contradictions = [
        ("count", fragment(Header { fragment_count: 4, ..second }, &NO_STAMP, &sent[part..2 * part])),
        ("key hash", fragment(Header { key_hash: KeyHash(1), ..second }, &NO_STAMP, &sent[part..2 * part])),
        ("flags", fragment(Header { flags: Flags::EARLY, ..second }, &NO_STAMP, &sent[part..2 * part])),
        ("asked", fragment(Header { asked: Durability::Disk, ..second }, &NO_STAMP, &sent[part..2 * part])),
        ("older epoch", fragment(Header { epoch: Epoch(0), ..second }, &NO_STAMP, &sent[part..2 * part])),
        ("short middle", fragment(second, &NO_STAMP, &sent[part..2 * part - 1])),
        ("empty middle", fragment(second, &NO_STAMP, b"")),
        ("empty last", fragment(last, &NO_STAMP, b"")),
        ("shorter last", fragment(last, &NO_STAMP, &sent[2 * part..sent.len() - 1])),
        ("longer last", fragment(last, &NO_STAMP, &payload(101))),
        ("other bytes", fragment(last, &NO_STAMP, &payload(100))),
    ];
    let mut reassembly = roomy();
    assert!(offer_all(&mut reassembly, &[packets[0].clone(), packets[2].clone()]).is_empty());
    for (name, packet) in contradictions {
        assert_eq!(offer(&mut reassembly, &packet), Err(WireError::BadFragment), "{name}");
        assert_eq!(reassembly.set_count(), 1, "{name}");
    }
    assert_eq!(offer_all(&mut reassembly, &packets[1..2]), [sent]);
}

#[test]
fn bad_fragment_without_bytes() {
    let last = Header { fragment_index: 2, fragment_count: 3, ..update(1) };
    assert_eq!(offer(&mut roomy(), &fragment(last, &NO_STAMP, b"")), Err(WireError::BadFragment));
}

#[test]
fn bad_fragment_of_a_set_that_is_too_large() {
    let part = Kind::Update.payload_bytes_max();
    let count = REQUEST_BYTES_MAX.div_ceil(part) as u16;
    let header = |fragment_index, fragment_count| Header { fragment_index, fragment_count, ..update(1) };
    let mut reassembly = roomy();
    let mut refused = |header, payload: &[u8]| {
        let packet = fragment(header, &NO_STAMP, payload);
        assert_eq!(offer(&mut reassembly, &packet), Err(WireError::BadFragment), "{header:?}");
    };
    refused(header(0, count + 1), &payload(part));
    refused(header(u16::MAX - 1, u16::MAX), b"x");
    // The count fits, the last fragment does not.
    let room = REQUEST_BYTES_MAX - (usize::from(count) - 1) * part;
    refused(header(count - 1, count), &payload(room + 1));
    refused(
        Header { kind: Kind::PersistAck, ..header(0, 2) },
        &payload(Kind::PersistAck.payload_bytes_max()),
    );
}

#[test]
fn bad_fragment_of_a_set_that_exceeds_bytes_max_alone() {
    let packets = split(&update(1), &NO_STAMP, &three_parts(Kind::Update));
    let part = Kind::Update.payload_bytes_max();
    let mut reassembly = Reassembly::new(4, 3 * part - 1);
    assert_eq!(offer(&mut reassembly, &packets[0]), Err(WireError::BadFragment));
    let mut reassembly = Reassembly::new(4, 3 * part);
    assert_eq!(offer(&mut reassembly, &packets[0]), Ok(None));
}

#[test]
fn a_set_of_the_largest_request_reserves_no_more_than_that() {
    let packets = split(&update(1), &NO_STAMP, &payload(REQUEST_BYTES_MAX));
    let mut reassembly = Reassembly::new(1, REQUEST_BYTES_MAX);
    assert_eq!(offer(&mut reassembly, &packets[0]), Ok(None));
    assert_eq!(reassembly.bytes_reserved(), REQUEST_BYTES_MAX);
}

#[test]
fn at_sets_max_the_oldest_set_gives_way() {
    let sent = three_parts(Kind::Update);
    let sets: Vec<_> = (1..=3).map(|seq| split(&update(seq), &NO_STAMP, &sent)).collect();
    let mut reassembly = Reassembly::new(2, 8 * REQUEST_BYTES_MAX);
    for set in &sets {
        assert!(offer_all(&mut reassembly, &set[..2]).is_empty());
    }
    assert_eq!((reassembly.set_count(), reassembly.evicted_count()), (2, 1));
    assert_eq!(offer_all(&mut reassembly, &sets[1][2..]).len(), 1, "the second is still there");
    assert_eq!(offer_all(&mut reassembly, &sets[2][2..]).len(), 1, "the third is still there");
    assert_eq!(offer_all(&mut reassembly, &sets[0][2..]).len(), 0, "the first has given way");
    assert_eq!(offer_all(&mut reassembly, &sets[0]).len(), 1, "and is whole when it is sent again");
}

#[test]
fn at_bytes_max_the_oldest_sets_give_way() {
    let part = Kind::Update.payload_bytes_max();
    let small = payload(part + 1);
    let large = payload(4 * part);
    let mut reassembly = Reassembly::new(8, 6 * part);
    for seq in 1..=3 {
        assert!(offer_all(&mut reassembly, &split(&update(seq), &NO_STAMP, &small)[..1]).is_empty());
    }
    assert_eq!(reassembly.bytes_reserved(), 6 * part);
    assert!(offer_all(&mut reassembly, &split(&update(4), &NO_STAMP, &large)[..1]).is_empty());
    assert_eq!((reassembly.set_count(), reassembly.evicted_count()), (2, 2));
    assert_eq!(reassembly.bytes_reserved(), 6 * part);
    assert_eq!(offer_all(&mut reassembly, &split(&update(3), &NO_STAMP, &small)[1..]).len(), 1);
}

#[test]
fn what_is_no_longer_waited_for_is_forgotten() {
    let sent = three_parts(Kind::Update);
    let begin = |reassembly: &mut Reassembly| {
        for header in [update(1), update(2), update(3), Header { session: SessionId(6), ..update(1) }] {
            offer_all(reassembly, &split(&header, &NO_STAMP, &sent)[..1]);
        }
        assert_eq!(reassembly.set_count(), 4);
    };
    let mut reassembly = roomy();
    begin(&mut reassembly);
    reassembly.forget(SESSION, SeqNum(2));
    assert_eq!(reassembly.set_count(), 3);
    reassembly.forget_through(SESSION, SeqNum(2));
    assert_eq!(reassembly.set_count(), 2);
    begin(&mut reassembly);
    reassembly.forget_session(SESSION);
    assert_eq!(reassembly.set_count(), 1, "the other session's stays");
    reassembly.forget_session(SessionId(6));
    assert_eq!((reassembly.set_count(), reassembly.bytes_reserved()), (0, 0));
    assert_eq!(reassembly.evicted_count(), 0, "forgotten is not evicted");
}

/// What is forgotten or completed leaves nothing behind that would count as the oldest set.
#[test]
fn only_what_is_held_can_be_evicted() {
    let sent = three_parts(Kind::Update);
    let mut reassembly = Reassembly::new(1, REQUEST_BYTES_MAX);
    offer_all(&mut reassembly, &split(&update(1), &NO_STAMP, &sent)[..1]);
    reassembly.forget_session(SESSION);
    assert_eq!(offer_all(&mut reassembly, &split(&update(2), &NO_STAMP, &sent)).len(), 1);
    offer_all(&mut reassembly, &split(&update(3), &NO_STAMP, &sent)[..1]);
    assert_eq!((reassembly.set_count(), reassembly.evicted_count()), (1, 0));
    offer_all(&mut reassembly, &split(&update(4), &NO_STAMP, &sent)[..1]);
    assert_eq!((reassembly.set_count(), reassembly.evicted_count()), (1, 1));
}

/// A restarted server answers anew: its fragments must neither mix with the old ones nor be refused
/// because of them.
#[test]
fn a_newer_epoch_begins_the_set_anew_and_an_older_one_is_refused() {
    let old = split(&response(1), &ended_at(9), &payload(3_000));
    let header = Header { epoch: Epoch(2), ..response(1) };
    let new_payload = vec![7; 3_000];
    let new = split(&header, &ended_at(1), &new_payload);
    let mut reassembly = roomy();
    assert!(offer_all(&mut reassembly, &old[..2]).is_empty());
    assert!(offer_all(&mut reassembly, &new[..1]).is_empty());
    assert_eq!(offer(&mut reassembly, &old[2]), Err(WireError::BadFragment));
    assert_eq!(offer_all(&mut reassembly, &new[1..]), [new_payload]);
}

/// A read that was executed again has another answer under the same numbers.
#[test]
fn a_response_made_later_begins_the_set_anew() {
    let old = split(&response(1), &ended_at(9), &payload(3_000));
    let new_payload = vec![7; 3_000];
    let new = split(&response(1), &ended_at(10), &new_payload);
    let mut reassembly = roomy();
    assert!(offer_all(&mut reassembly, &old[..2]).is_empty());
    assert!(offer_all(&mut reassembly, &new[2..]).is_empty());
    assert_eq!(offer(&mut reassembly, &old[0]), Err(WireError::BadFragment));
    assert_eq!(offer_all(&mut reassembly, &new[..2]), [new_payload]);
}

/// A response that is sent again from the server's cache is dequeued at another time.
#[test]
fn a_response_sent_again_fills_the_gaps_of_the_first_sending() {
    let sent = payload(3_000);
    let dequeued =
        |at| Tail::Response(ResponseTail { ended: Nanos(9), dequeued: Nanos(at), ..ResponseTail::default() });
    let first = split(&response(1), &dequeued(10), &sent);
    let again = split(&response(1), &dequeued(20), &sent);
    let mut reassembly = roomy();
    assert!(offer_all(&mut reassembly, &first[..2]).is_empty());
    assert_eq!(offer_all(&mut reassembly, &again[2..]), [sent]);
}

#[test]
fn what_may_differ_when_sent_again_is_joined() {
    let sent = three_parts(Kind::Update);
    let stamp = Tail::Stamp(Stamp { kind: StampKind::Order, number: OrderNumber(4), ..Stamp::default() });
    let first = split(&Header { completed: SeqNum(7), ..update(9) }, &stamp, &sent);
    let again = Header { flags: Flags::AGAIN, completed: SeqNum(6), ..update(9) };
    let again = split(&again, &NO_STAMP, &sent);
    let mut reassembly = roomy();
    assert_eq!(offer(&mut reassembly, &first[0]), Ok(None));
    assert_eq!(offer(&mut reassembly, &again[1]), Ok(None));
    let whole = offer(&mut reassembly, &again[2]).expect("no contradiction").expect("complete");
    assert_eq!(whole.header, Header { flags: Flags::AGAIN, completed: SeqNum(7), ..update(9) });
    assert_eq!(whole.tail, stamp, "a stamp is not displaced by an empty one");
}
