//! The targets of scotfree-wire.
//!
//! Invariant: a packet that parses has one meaning and one form; a reassembly keeps its limits and
//! never mixes two payloads.

use scotfree_core::{Epoch, KeyHash, SeqNum, SessionId};
use scotfree_wire::golden::{self, vectors, PACKET_KEY, STAMP_KEY};
use scotfree_wire::{
    emit, emit_extended, emit_stamp, fragments, Extensions, Flags, Header, Kind, ManifestRecord, Packet,
    Reassembly, ResponseTail, Stamp, Tail, Whole, WireError, HEADER_BYTES, MANIFEST_RECORD_BYTES,
    PACKET_BYTES_MAX, STAMP_BYTES,
};

/// The golden packets and one that is not ours.
pub fn packet_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = vectors().iter().map(golden::Vector::bytes).collect();
    seeds.extend(vectors().iter().map(|vector| vector.render().into_bytes()));
    seeds.push(b"not a packet".to_vec());
    seeds
}

/// Parses the input as each thing that scotfree-wire parses.
pub fn packet(data: &[u8]) {
    if let Ok(packet) = Packet::parse(data) {
        check_form(&packet);
        check_stamp(&packet);
    }
    for record in data.chunks(MANIFEST_RECORD_BYTES) {
        check_record(record);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = golden::decode(text);
    }
}

/// What parses is of a possible size and, written again, has the same bytes but for the codes.
fn check_form(packet: &Packet<'_>) {
    assert!(packet.bytes().len() <= PACKET_BYTES_MAX, "a packet is too large");
    let _ = packet.verify(&PACKET_KEY);
    let mut again = Vec::new();
    let view = packet.extensions();
    let further_keys: Vec<_> = view.further_keys().collect();
    let extensions =
        Extensions { further_keys: &further_keys, identity: view.identity(), object: view.object() };
    assert_eq!(view.set(), extensions.set());
    emit_extended(packet.header(), packet.tail(), &extensions, packet.payload(), &PACKET_KEY, &mut again);
    let code = HEADER_BYTES - 8..HEADER_BYTES;
    let stamp_code = HEADER_BYTES + STAMP_BYTES - 8..HEADER_BYTES + STAMP_BYTES;
    let is_code = |at| code.contains(&at) || (packet.kind().is_request() && stamp_code.contains(&at));
    let stray = (0..again.len()).find(|at| packet.bytes()[*at] != again[*at] && !is_code(*at));
    assert_eq!(stray, None, "a second form of the same packet");
    let again = Packet::parse(&again).expect("what parsed parses when written again");
    assert!(again.verify(&PACKET_KEY).is_ok());
}

fn check_stamp(packet: &Packet<'_>) {
    let _ = packet.verified_stamp(&STAMP_KEY);
    let mut bytes = packet.bytes().to_vec();
    let stamped = emit_stamp(&mut bytes, &packet.stamp(), &STAMP_KEY);
    assert_eq!(stamped.is_ok(), packet.kind().is_request(), "only requests take a stamp");
    if stamped.is_ok() {
        let again = Packet::parse(&bytes).expect("a stamped packet is a packet");
        assert_eq!(again.verified_stamp(&STAMP_KEY), Ok(packet.stamp()));
    }
}

fn check_record(bytes: &[u8]) {
    if let Ok(record) = ManifestRecord::read(bytes) {
        let mut again = Vec::new();
        record.write(&mut again);
        assert_eq!(again, bytes, "a second form of the same record");
    }
}

const SETS_MAX: usize = 4;
const BYTES_MAX: usize = 40_000;
/// How many bytes of input make one step.
const STEP_BYTES: usize = 4;
/// How many different payloads and headers one request may have.
const VARIANTS: u8 = 4;

/// One honest sending of a fragmented request and one of a response, and both mixed.
pub fn reassembly_seeds() -> Vec<Vec<u8>> {
    let step = |what: u8, index: u8| [what, 0, index, 2];
    let request: Vec<u8> = (0..4).flat_map(|index| step(0, index)).collect();
    let response: Vec<u8> = (0..4).rev().flat_map(|index| step(1, index)).collect();
    let mixed = request.chunks(STEP_BYTES).zip(response.chunks(STEP_BYTES)).flat_map(|(one, two)| [one, two]);
    let mixed = mixed.flatten().copied().collect();
    vec![request, response, mixed]
}

/// Reads the input as a script of fragments offered and sets forgotten.
pub fn reassembly(data: &[u8]) {
    let mut reassembly = Reassembly::new(SETS_MAX, BYTES_MAX);
    for step in data.chunks_exact(STEP_BYTES) {
        let session = SessionId(u64::from(step[1] % 2));
        let seq_num = SeqNum(u64::from(step[1] / 2 % 4) + 1);
        match step[0] % 16 {
            13 => reassembly.forget(session, seq_num),
            14 => reassembly.forget_through(session, seq_num),
            15 => reassembly.forget_session(session),
            what => offer(&mut reassembly, what, session, seq_num, step),
        }
        assert!(reassembly.set_count() <= SETS_MAX, "more sets than allowed");
        assert!(reassembly.bytes_reserved() <= BYTES_MAX, "more bytes than allowed");
    }
    reassembly.forget_session(SessionId(0));
    reassembly.forget_session(SessionId(1));
    assert_eq!((reassembly.set_count(), reassembly.bytes_reserved()), (0, 0), "something leaks");
}

fn offer(reassembly: &mut Reassembly, what: u8, session: SessionId, seq_num: SeqNum, step: &[u8]) {
    let kind = [Kind::Update, Kind::Response, Kind::Replay, Kind::Read][usize::from(what % 4)];
    let variant = step[3] % VARIANTS;
    let header = header(kind, session, seq_num, variant, step[3] / VARIANTS);
    let tail = tail(kind, step[3]);
    let payload = payload(kind, variant, &tail);
    let mut parts: Vec<(Header, &[u8])> = fragments(&header, &payload).expect("a small payload").collect();
    let (mut header, mut part) = parts.swap_remove(usize::from(step[2]) % parts.len());
    damage(what, step[2], &mut header, &mut part);
    let mut bytes = Vec::new();
    emit(&header, &tail, part, &PACKET_KEY, &mut bytes);
    let packet = Packet::parse(&bytes).expect("what emit writes is a packet");
    match reassembly.offer(&packet) {
        Ok(whole) => whole.iter().for_each(check_whole),
        Err(error) => assert_eq!(error, WireError::BadFragment),
    }
}

/// The key hash, and of a response when it was made, name the payload, so that two payloads never
/// have the same identity.
fn header(kind: Kind, session: SessionId, seq_num: SeqNum, variant: u8, more: u8) -> Header {
    Header {
        seq_num,
        key_hash: KeyHash(u64::from(variant)),
        flags: if more & 1 == 0 { Flags::NONE } else { Flags::AGAIN },
        ..Header::new(kind, session, Epoch(u32::from(more >> 1 & 1)))
    }
}

fn tail(kind: Kind, more: u8) -> Tail {
    let ended = scotfree_core::Nanos(u64::from(more >> 6));
    match kind {
        Kind::Response => Tail::Response(ResponseTail { ended, ..ResponseTail::default() }),
        _ => Tail::Stamp(Stamp::default()),
    }
}

fn payload(kind: Kind, variant: u8, tail: &Tail) -> Vec<u8> {
    let mask = match tail {
        Tail::Response(tail) => variant ^ (tail.ended.0 as u8) << 4,
        _ => variant,
    };
    let parts = [0, 1, 3, 7][usize::from(variant)];
    let bytes = parts * kind.payload_bytes_max() + usize::from(variant) * 11;
    (0..bytes).map(|at| (at * 7 + at / 253) as u8 ^ mask).collect()
}

/// Some steps lie about sizes and counts, in ways that can be told.
fn damage(what: u8, more: u8, header: &mut Header, part: &mut &[u8]) {
    let is_last = header.fragment_index + 1 == header.fragment_count;
    match what {
        // How long the last one is, only its sender knows.
        8 if !is_last => *part = &part[..part.len() / 2],
        9 => header.fragment_count = header.fragment_count.saturating_add(u16::from(more)),
        10 => header.fragment_count = u16::MAX,
        _ => {}
    }
}

fn check_whole(whole: &Whole<'_>) {
    let header = &whole.header;
    assert_eq!((header.fragment_index, header.fragment_count), (0, 1), "a whole is not a fragment");
    let variant = header.key_hash.0 as u8;
    let sent = payload(header.kind, variant, &whole.tail);
    // A lie about a single packet cannot be told: only its code says that it is whole.
    let is_single = sent.len() <= header.kind.payload_bytes_max();
    assert!(is_single || *whole.payload == sent[..], "two payloads were mixed");
}
