//! The table of fields against the reader and the writer: each field, written alone, changes its
//! own bytes and no others, and is read back from them.

use scotfree_core::{
    BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, OrderNumber, SeqNum, SessionId, StampSource,
};
use scotfree_wire::layout::{self, Layout};
use scotfree_wire::{
    emit, emit_extended, emit_stamp, AcceptTail, Answerer, BusyTail, CloseReason, CloseTail, Extensions,
    Family, Flags, Header, HeartbeatTail, Key, KeyEpoch, Kind, LeaseTail, ManifestRecord, ManifestTail,
    OpenTail, Packet, RangeTail, ResponseTail, Stamp, StampKind, Tail, HEADER_BYTES, MAGIC, VERSION,
};

const KEY: Key = Key::from_bytes([7; 16]);
/// Eight different bytes, so that a shifted or swapped field shows.
const WIDE: u64 = 0x1817_1615_1413_1211;

fn layout_named(name: &str) -> &'static Layout {
    layout::ALL.into_iter().find(|layout| layout.name == name).expect("a layout of that name")
}

/// The number that the table finds in a field.
fn value_at(layout: &Layout, start: usize, bytes: &[u8], name: &str) -> u64 {
    let field = layout.fields.iter().find(|field| field.name == name).expect("a field of that name");
    let mut wide = [0; 8];
    wide[..field.bytes].copy_from_slice(&bytes[start + field.offset..][..field.bytes]);
    u64::from_le_bytes(wide)
}

/// `base` and `changed` differ in the named field, apart from the packet's code, and nowhere else.
fn assert_only(layout: &Layout, start: usize, name: &str, base: &[u8], changed: &[u8]) {
    let field = layout.fields.iter().find(|field| field.name == name).expect("a field of that name");
    let own = start + field.offset..start + field.offset + field.bytes;
    assert_eq!(base.len(), changed.len());
    for at in (0..base.len()).filter(|at| !(56..64).contains(at) || field.name == "mac") {
        let differs = base[at] != changed[at];
        assert!(!differs || own.contains(&at), "{}.{name} writes byte {at}", layout.name);
        assert!(differs || !own.contains(&at), "{}.{name} leaves byte {at}", layout.name);
    }
}

fn packet(header: &Header, tail: &Tail, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    emit(header, tail, payload, &KEY, &mut out);
    out
}

#[test]
fn the_tables_have_no_gaps() {
    for layout in layout::ALL {
        let mut end = 0;
        for field in layout.fields {
            assert_eq!(field.offset, end, "{}.{}", layout.name, field.name);
            assert!(!field.is_integer() || field.offset % field.bytes == 0, "{} is aligned", field.name);
            end += field.bytes;
        }
        assert_eq!(end, layout.bytes, "{}", layout.name);
    }
}

#[test]
fn every_tail_is_as_long_as_its_table() {
    for kind in Kind::ALL {
        assert_eq!(kind.tail_bytes(), kind.tail_layout().map_or(0, |layout| layout.bytes), "{kind:?}");
    }
}

/// Every header field that the struct has, with a value that fills all its bytes.
fn headers_with_one_field() -> Vec<(&'static str, u64, Header)> {
    let base = Header::new(Kind::ServerAck, SessionId(0), Epoch(0));
    vec![
        ("kind", 2, Header { kind: Kind::RecoveryPoll, ..base }),
        ("durability_asked", 3, Header { asked: Durability::RamAndDisk, ..base }),
        ("durability_granted", 2, Header { granted: Durability::Disk, ..base }),
        ("device_acks_asked", 0x11, Header { device_acks_asked: 0x11, ..base }),
        ("epoch", 0x1413_1211, Header { epoch: Epoch(0x1413_1211), ..base }),
        ("session", WIDE, Header { session: SessionId(WIDE), ..base }),
        ("seq_num", WIDE, Header { seq_num: SeqNum(WIDE), ..base }),
        ("key_hash", WIDE, Header { key_hash: KeyHash(WIDE), ..base }),
        ("completed", WIDE, Header { completed: SeqNum(WIDE), ..base }),
    ]
}

#[test]
fn header_fields_lie_where_the_table_says() {
    let base = packet(&Header::new(Kind::ServerAck, SessionId(0), Epoch(0)), &Tail::Empty, b"");
    for (name, value, header) in headers_with_one_field() {
        let bytes = packet(&header, &Tail::Empty, b"");
        assert_only(&layout::HEADER, 0, name, &base, &bytes);
        let value = if name == "kind" { u64::from(Kind::RecoveryPoll as u8) } else { value };
        assert_eq!(value_at(&layout::HEADER, 0, &bytes, name), value, "{name}");
        assert_eq!(Packet::parse(&bytes).map(|packet| *packet.header()), Ok(header), "{name}");
    }
}

/// Fields whose high bytes are zero in every valid packet, or that depend on each other.
#[test]
fn the_remaining_header_fields_lie_where_the_table_says() {
    let header = Header {
        flags: Flags(0x00a5),
        fragment_index: 0x0102,
        fragment_count: 0x0304,
        ..Header::new(Kind::Response, SessionId(0), Epoch(0))
    };
    let bytes = packet(&header, &Tail::Response(ResponseTail::default()), &[9; 0x0141]);
    let at = |name| value_at(&layout::HEADER, 0, &bytes, name);
    assert_eq!(at("magic"), u64::from(MAGIC));
    assert_eq!(at("version"), u64::from(VERSION));
    assert_eq!(at("flags"), 0x00a5);
    assert_eq!(at("extension_words"), 0);
    assert_eq!(at("fragment_index"), 0x0102);
    assert_eq!(at("fragment_count"), 0x0304);
    assert_eq!(at("payload_bytes"), 0x0141);
    assert_eq!(at("mac"), KEY.mac(&[&bytes[..56], &bytes[64..]]));
    assert_eq!(layout::HEADER.fields.len(), headers_with_one_field().len() + 8, "no field is left out");
}

type Case = (&'static str, &'static str, Kind, Tail);

/// One tail per field, with all bytes of that field set and all others zero or as in the base.
fn tail_cases() -> Vec<Case> {
    let mut cases = stamp_cases();
    cases.extend(session_cases());
    cases.extend(server_cases());
    cases.extend(device_cases());
    cases
}

fn stamp_cases() -> Vec<Case> {
    let base = Stamp { kind: StampKind::Order, ..Stamp::default() };
    let case = |name, stamp| ("stamp", name, Kind::Replay, Tail::Stamp(stamp));
    vec![
        case("kind", Stamp { kind: StampKind::Barrier, ..base }),
        case("device", Stamp { device: DeviceId(0x1211), ..base }),
        case("boot_epoch", Stamp { boot_epoch: BootEpoch(0x1413_1211), ..base }),
        case("number", Stamp { number: OrderNumber(WIDE), ..base }),
        case("previous_write", Stamp { previous_write: SeqNum(WIDE), ..base }),
    ]
}

fn session_cases() -> Vec<Case> {
    let open = OpenTail { client_nonce: [0; 16], window_asked: 0, key_epoch: KeyEpoch(0) };
    let accept = AcceptTail { client_nonce: [0; 16], server_nonce: [0; 16], window: 0, expiry_ms: 0 };
    let nonce = *b"sixteen bytes. .";
    let case_open = |name, tail| ("open", name, Kind::SessionOpen, Tail::Open(tail));
    let case_accept = |name, tail| ("accept", name, Kind::SessionAccept, Tail::Accept(tail));
    vec![
        case_open("client_nonce", OpenTail { client_nonce: nonce, ..open }),
        case_open("window_asked", OpenTail { window_asked: 0x1413_1211, ..open }),
        case_open("key_epoch", OpenTail { key_epoch: KeyEpoch(0x1817_1615), ..open }),
        case_accept("client_nonce", AcceptTail { client_nonce: nonce, ..accept }),
        case_accept("server_nonce", AcceptTail { server_nonce: nonce, ..accept }),
        case_accept("window", AcceptTail { window: 0x1413_1211, ..accept }),
        case_accept("expiry_ms", AcceptTail { expiry_ms: 0x1413_1211, ..accept }),
    ]
}

fn server_cases() -> Vec<Case> {
    let wide = Nanos(WIDE);
    let response = ResponseTail::default();
    let heartbeat = HeartbeatTail::default();
    let case_response = |name, tail| ("response", name, Kind::Response, Tail::Response(tail));
    let case_heartbeat = |name, tail| ("heartbeat", name, Kind::Heartbeat, Tail::Heartbeat(tail));
    vec![
        case_response("received_ns", ResponseTail { received: wide, ..response }),
        case_response("started_ns", ResponseTail { started: wide, ..response }),
        case_response("ended_ns", ResponseTail { ended: wide, ..response }),
        case_response("dequeued_ns", ResponseTail { dequeued: wide, ..response }),
        case_heartbeat("highest", HeartbeatTail { highest: SeqNum(WIDE), ..heartbeat }),
        case_heartbeat("stable", HeartbeatTail { stable: SeqNum(WIDE), ..heartbeat }),
        ("busy", "backoff_ns", Kind::Busy, Tail::Busy(BusyTail { backoff: wide })),
    ]
}

fn device_cases() -> Vec<Case> {
    let boot_epoch = BootEpoch(0x1413_1211);
    let device = DeviceId(0x1211);
    let range = RangeTail { first: 0, last: 0, boot_epoch: BootEpoch(0) };
    let manifest = ManifestTail {
        device: DeviceId(0),
        boot_epoch: BootEpoch(0),
        order_current: OrderNumber(0),
        session_count: 0,
    };
    let lease =
        LeaseTail { asked_at: Nanos(0), duration: Nanos(0), device: DeviceId(0), boot_epoch: BootEpoch(0) };
    let case_range = |name, tail| ("range", name, Kind::Retransmit, Tail::Range(tail));
    let case_manifest = |name, tail| ("manifest", name, Kind::Manifest, Tail::Manifest(tail));
    let case_lease = |name, tail| ("lease", name, Kind::Lease, Tail::Lease(tail));
    vec![
        case_range("first", RangeTail { first: WIDE, ..range }),
        case_range("last", RangeTail { last: WIDE, ..range }),
        case_range("boot_epoch", RangeTail { boot_epoch, ..range }),
        case_manifest("order_current", ManifestTail { order_current: OrderNumber(WIDE), ..manifest }),
        case_manifest("boot_epoch", ManifestTail { boot_epoch, ..manifest }),
        case_manifest("session_count", ManifestTail { session_count: 0x1413_1211, ..manifest }),
        case_manifest("device", ManifestTail { device, ..manifest }),
        case_lease("asked_at_ns", LeaseTail { asked_at: Nanos(WIDE), ..lease }),
        case_lease("duration_ns", LeaseTail { duration: Nanos(WIDE), ..lease }),
        case_lease("boot_epoch", LeaseTail { boot_epoch, ..lease }),
        case_lease("device", LeaseTail { device, ..lease }),
    ]
}

/// A packet of `kind` whose tail is zero, but for a stamp's kind.
fn packet_with_empty_tail(kind: Kind) -> Vec<u8> {
    let mut bytes = packet(&Header::new(Kind::ServerAck, SessionId(0), Epoch(0)), &Tail::Empty, b"");
    bytes[5] = kind as u8;
    bytes.resize(HEADER_BYTES + kind.tail_bytes(), 0);
    if kind == Kind::Replay {
        bytes[HEADER_BYTES] = 1;
    }
    bytes
}

#[test]
fn tail_fields_lie_where_the_table_says() {
    for (layout, name, kind, tail) in tail_cases() {
        let bytes = packet(&Header::new(kind, SessionId(0), Epoch(0)), &tail, b"");
        let base = packet_with_empty_tail(kind);
        assert_only(layout_named(layout), HEADER_BYTES, name, &base, &bytes);
        assert_eq!(Packet::parse(&bytes).map(|packet| *packet.tail()), Ok(tail), "{layout}.{name}");
    }
}

/// Fields whose high bytes are zero in every valid packet, and the stamp's code.
#[test]
fn the_remaining_tail_fields_lie_where_the_table_says() {
    let close = CloseTail { reason: CloseReason::NoRoom };
    let bytes = packet(&Header::new(Kind::SessionClose, SessionId(0), Epoch(0)), &Tail::Close(close), b"");
    assert_eq!(value_at(&layout::CLOSE, HEADER_BYTES, &bytes, "reason"), CloseReason::NoRoom as u64);

    let response = ResponseTail { received_by: StampSource::Derived, ..ResponseTail::default() };
    let bytes = packet(&Header::new(Kind::Response, SessionId(0), Epoch(0)), &Tail::Response(response), b"");
    assert_eq!(value_at(&layout::RESPONSE, HEADER_BYTES, &bytes, "received_by"), 2);

    let answered_by = Answerer::device(DeviceId(0x1211), Family::Objects);
    let response = ResponseTail { answered_by, ..ResponseTail::default() };
    let bytes = packet(&Header::new(Kind::Response, SessionId(0), Epoch(0)), &Tail::Response(response), b"");
    let at = |name| value_at(&layout::RESPONSE, HEADER_BYTES, &bytes, name);
    assert_eq!((at("answered_by"), at("device")), (48, 0x1211));

    let mut bytes = Vec::new();
    let extensions = Extensions { further_keys: &[KeyHash(5)], ..Extensions::NONE };
    let header = Header::new(Kind::Response, SessionId(0), Epoch(0));
    let tail = Tail::Response(ResponseTail::default());
    emit_extended(&header, &tail, &extensions, b"", &KEY, &mut bytes);
    assert_eq!(value_at(&layout::HEADER, 0, &bytes, "extension_words"), 2);

    let header = Header { seq_num: SeqNum(1), ..Header::new(Kind::Update, SessionId(2), Epoch(0)) };
    let mut bytes = packet(&header, &Tail::Stamp(Stamp::default()), b"");
    let stamp = Stamp { kind: StampKind::Order, ..Stamp::default() };
    emit_stamp(&mut bytes, &stamp, &KEY).expect("a request takes a stamp");
    let mac = KEY.mac(&[&bytes[64..88], &2_u64.to_le_bytes(), &1_u64.to_le_bytes()]);
    assert_eq!(value_at(&layout::STAMP, HEADER_BYTES, &bytes, "mac"), mac);
}

fn records_with_one_field() -> Vec<(&'static str, ManifestRecord)> {
    let base = empty_record();
    let nonce = *b"sixteen bytes. .";
    vec![
        ("session", ManifestRecord { session: SessionId(WIDE), ..base }),
        ("epoch", ManifestRecord { epoch: Epoch(0x1413_1211), ..base }),
        ("window", ManifestRecord { window: 0x1413_1211, ..base }),
        ("client_nonce", ManifestRecord { client_nonce: nonce, ..base }),
        ("server_nonce", ManifestRecord { server_nonce: nonce, ..base }),
        ("first", ManifestRecord { first: SeqNum(WIDE), ..base }),
        ("last", ManifestRecord { last: SeqNum(WIDE), ..base }),
        ("entry_count", ManifestRecord { entry_count: 0x1413_1211, ..base }),
    ]
}

fn empty_record() -> ManifestRecord {
    ManifestRecord {
        session: SessionId(0),
        epoch: Epoch(0),
        window: 0,
        client_nonce: [0; 16],
        server_nonce: [0; 16],
        first: SeqNum(0),
        last: SeqNum(0),
        entry_count: 0,
    }
}

#[test]
fn record_fields_lie_where_the_table_says() {
    let written = |record: &ManifestRecord| {
        let mut out = Vec::new();
        record.write(&mut out);
        out
    };
    for (name, record) in records_with_one_field() {
        let bytes = written(&record);
        // A record has no packet's code: assert_only's exception falls into bytes 56 to 63, which
        // are the field `last`, so that one is compared here.
        if name == "last" {
            assert_eq!(value_at(&layout::RECORD, 0, &bytes, name), WIDE);
        } else {
            assert_only(&layout::RECORD, 0, name, &written(&empty_record()), &bytes);
        }
        assert_eq!(ManifestRecord::read(&bytes), Ok(record), "{name}");
    }
}

/// Every field of every table is covered by a test above, or must be zero.
#[test]
fn no_tail_field_is_left_out() {
    let apart = [
        ("close", "reason"),
        ("response", "received_by"),
        ("response", "answered_by"),
        ("response", "device"),
        ("stamp", "mac"),
    ];
    let mut covered: Vec<(&str, &str)> =
        tail_cases().into_iter().map(|(layout, name, ..)| (layout, name)).collect();
    covered.extend(apart);
    covered.extend(records_with_one_field().into_iter().map(|(name, _)| ("manifest_record", name)));
    for layout in layout::ALL.into_iter().filter(|layout| layout.name != "header") {
        for field in layout.fields.iter().filter(|field| !field.is_reserved()) {
            assert!(covered.contains(&(layout.name, field.name)), "{}.{}", layout.name, field.name);
        }
    }
}
