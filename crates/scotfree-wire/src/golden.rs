//! One packet of every kind, fixed forever: the golden vectors that other implementations and later
//! versions are held against. Their files are in tests/golden.
//!
//! Invariant: the same code gives the same bytes and the same text on every machine.

use crate::layout::{self, Layout};
use crate::{
    emit_extended, emit_stamp, AcceptTail, Answerer, BusyTail, CloseReason, CloseTail, ExtensionSet,
    Extensions, Family, Flags, Header, HeartbeatTail, Identity, Key, KeyEpoch, Kind, LateStamp, LeaseTail,
    ManifestRecord, ManifestTail, ObjectNote, OpenTail, RangeTail, ResponseTail, Stamp, StampKind, Tail,
    HEADER_BYTES,
};
use core::fmt::Write;
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, OrderNumber, SeqNum, SessionId, StampSource,
};

const PACKET_KEY_BYTES: [u8; 16] = *b"scotfree packets";
const STAMP_KEY_BYTES: [u8; 16] = *b"scotfree stamps.";
/// The key of the vectors' packets.
pub const PACKET_KEY: Key = Key::from_bytes(PACKET_KEY_BYTES);
/// The key of the vectors' stamps.
pub const STAMP_KEY: Key = Key::from_bytes(STAMP_KEY_BYTES);

const SESSION: SessionId = SessionId(0x1122_3344_5566_7788);
const EPOCH: Epoch = Epoch(3);
const KEY_HASH: KeyHash = KeyHash(0x0102_0304_0506_0708);
const DEVICE: DeviceId = DeviceId(9);
const BOOT_EPOCH: BootEpoch = BootEpoch(5);
const CLIENT_NONCE: [u8; 16] = [0xc1; 16];
const SERVER_NONCE: [u8; 16] = [0x5e; 16];
/// How many bytes of an array stand on one line of a vector's text.
const LINE_BYTES: usize = 16;

/// A packet of known bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// The name of its file.
    pub name: &'static str,
    /// What the packet says.
    pub about: &'static str,
    /// Its header.
    pub header: Header,
    /// Its tail.
    pub tail: Tail,
    /// Its extensions.
    pub extensions: Extensions<'static>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Vector {
    /// The packet; the stamp of a request carries its own code.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        emit_extended(&self.header, &self.tail, &self.extensions, &self.payload, &PACKET_KEY, &mut out);
        if let (true, Tail::Stamp(stamp)) = (self.header.kind.is_request(), &self.tail) {
            emit_stamp(&mut out, stamp, &STAMP_KEY).expect("a request that emit wrote takes a stamp");
        }
        out
    }

    /// The vector as text: a line per field with its offset, its name, its bytes and, of integers,
    /// its value.
    pub fn render(&self) -> String {
        let bytes = self.bytes();
        let mut text = format!(
            "# {}: {}\n# packet key {}, stamp key {}\n\
             # offset, field, bytes, value; made by `cargo run -p xtask -- golden`\n",
            self.name,
            self.about,
            hex(&PACKET_KEY_BYTES),
            hex(&STAMP_KEY_BYTES)
        );
        render_fields(&layout::HEADER, &bytes, 0, &mut text);
        if let Some(tail) = self.header.kind.tail_layout() {
            render_fields(tail, &bytes, HEADER_BYTES, &mut text);
        }
        let extensions_start = HEADER_BYTES + self.header.kind.tail_bytes();
        let payload_start = extensions_start + self.extensions.bytes();
        render_array("extensions", &bytes[extensions_start..payload_start], extensions_start, &mut text);
        render_array("payload", &bytes[payload_start..], payload_start, &mut text);
        text
    }
}

fn render_fields(layout: &Layout, packet: &[u8], start: usize, text: &mut String) {
    for field in layout.fields {
        let at = start + field.offset;
        let bytes = &packet[at..at + field.bytes];
        let name = format!("{}.{}", layout.name, field.name);
        if field.is_integer() {
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            let value = u64::from_le_bytes(wide);
            push_line(text, format_args!("{at:>4} {name:<27} {:<16} # {value}", hex(bytes)));
        } else {
            render_array(&name, bytes, at, text);
        }
    }
}

fn render_array(name: &str, bytes: &[u8], start: usize, text: &mut String) {
    for (index, line) in bytes.chunks(LINE_BYTES).enumerate() {
        let at = start + index * LINE_BYTES;
        push_line(text, format_args!("{at:>4} {name:<27} {}", hex(line)));
    }
}

fn push_line(text: &mut String, line: core::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes all text");
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of a vector's text; the error names the line that is wrong.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let stated = line.split('#').next().unwrap_or_default();
        let mut words = stated.split_whitespace();
        if let (Some(offset), Some(_name), Some(digits)) = (words.next(), words.next(), words.next()) {
            if offset.parse() != Ok(out.len()) {
                return Err(format!("line {}: the offset is {} and not {offset}", index + 1, out.len()));
            }
            decode_hex(digits, &mut out)
                .ok_or_else(|| format!("line {}: `{digits}` is not hex", index + 1))?;
        }
    }
    Ok(out)
}

fn decode_hex(digits: &str, out: &mut Vec<u8>) -> Option<()> {
    let nibbles: Option<Vec<u8>> =
        digits.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let nibbles = nibbles.filter(|nibbles| nibbles.len() % 2 == 0)?;
    out.extend(nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
    Some(())
}

fn vector(name: &'static str, about: &'static str, header: Header, tail: Tail, payload: &[u8]) -> Vector {
    Vector { name, about, header, tail, extensions: Extensions::NONE, payload: payload.to_vec() }
}

fn request(kind: Kind) -> Header {
    Header {
        seq_num: SeqNum(42),
        key_hash: KEY_HASH,
        completed: SeqNum(40),
        ..Header::new(kind, SESSION, EPOCH)
    }
}

fn order(number: u64) -> Stamp {
    Stamp {
        kind: StampKind::Order,
        device: DEVICE,
        boot_epoch: BOOT_EPOCH,
        number: OrderNumber(number),
        previous_write: SeqNum(41),
    }
}

fn barrier(number: u64) -> Stamp {
    Stamp { kind: StampKind::Barrier, ..order(number) }
}

/// All vectors, at least one per kind, in the order of the kinds' codes.
pub fn vectors() -> Vec<Vector> {
    let mut vectors = session_vectors();
    vectors.extend(request_vectors());
    vectors.extend(recovery_vectors());
    vectors.extend(upkeep_vectors());
    vectors.extend(extended_vectors());
    vectors.sort_by_key(|vector| (vector.header.kind, vector.name));
    vectors
}

fn session_vectors() -> Vec<Vector> {
    let mut accepted = Header::new(Kind::SessionAccept, SESSION, EPOCH);
    accepted.set_offered(ExtensionSet::ALL);
    let mut confirmed = Header { flags: Flags::CONFIRMED, ..Header::new(Kind::SessionClose, SESSION, EPOCH) };
    confirmed.set_confirming_device(DEVICE);
    vec![
        vector(
            "session_open",
            "a client would like 64 requests outstanding",
            Header::new(Kind::SessionOpen, SessionId(0), Epoch(0)),
            Tail::Open(OpenTail { client_nonce: CLIENT_NONCE, window_asked: 64, key_epoch: KeyEpoch(0) }),
            b"",
        ),
        vector(
            "session_accept",
            "the server grants 32, takes all extensions and expires the session after 30 seconds of silence",
            accepted,
            Tail::Accept(AcceptTail {
                client_nonce: CLIENT_NONCE,
                server_nonce: SERVER_NONCE,
                window: 32,
                expiry_ms: 30_000,
            }),
            b"",
        ),
        vector(
            "session_close",
            "the device holds nothing of an expired session any more",
            confirmed,
            Tail::Close(CloseTail { reason: CloseReason::Expire }),
            b"",
        ),
    ]
}

fn request_vectors() -> Vec<Vector> {
    let response = ResponseTail {
        received: Nanos(1_000),
        started: Nanos(2_500),
        ended: Nanos(9_000),
        dequeued: Nanos(9_250),
        received_by: StampSource::Kernel,
        answered_by: Answerer::SERVER,
    };
    let update = Header { asked: Durability::Ram, device_acks_asked: 1, ..request(Kind::Update) };
    let ack = Header { kind: Kind::PersistAck, granted: Durability::RamAndDisk, ..update };
    vec![
        vector(
            "update",
            "an early write, the last of three fragments, logged under order number 17",
            Header { flags: Flags::EARLY, fragment_index: 2, fragment_count: 3, ..update },
            Tail::Stamp(order(17)),
            b"SET colour blue",
        ),
        vector(
            "read",
            "a read to be answered after order number 17",
            request(Kind::Read),
            Tail::Stamp(barrier(17)),
            b"GET colour",
        ),
        vector(
            "bypass",
            "a write that no device has seen, sent again, of a call that is traced",
            Header { flags: Flags::AGAIN.with(Flags::TRACED), ..request(Kind::Bypass) },
            Tail::Stamp(Stamp::default()),
            b"INCR visits",
        ),
        vector(
            "persist_ack",
            "the update is in memory and on disk of a device",
            ack,
            Tail::Stamp(order(17)),
            b"",
        ),
        vector(
            "server_ack",
            "every request up to 42 is stable",
            Header { seq_num: SeqNum(42), ..Header::new(Kind::ServerAck, SESSION, EPOCH) },
            Tail::Empty,
            b"",
        ),
        vector(
            "response",
            "the server's answer with its stamps",
            Header { seq_num: SeqNum(42), key_hash: KEY_HASH, ..Header::new(Kind::Response, SESSION, EPOCH) },
            Tail::Response(response),
            b"+OK",
        ),
    ]
}

/// With extensions, and from a device.
fn extended_vectors() -> Vec<Vector> {
    let by_cache =
        ResponseTail { answered_by: Answerer::device(DEVICE, Family::Cache), ..ResponseTail::default() };
    let object = ObjectNote { value_bytes: 1_000_000, remaining_ms: 60_000 };
    let further_keys = &[KeyHash(0x1111_1111_1111_1111), KeyHash(0x2222_2222_2222_2222)];
    let identity = Identity { client: CLIENT_NONCE, number: 7 };
    vec![
        Vector {
            extensions: Extensions { further_keys, identity: Some(identity), object: None },
            ..vector(
                "read_extended",
                "a read of three keys by a named client",
                request(Kind::Read),
                Tail::Stamp(barrier(17)),
                b"MGET a b c",
            )
        },
        Vector {
            extensions: Extensions { object: Some(object), ..Extensions::NONE },
            ..vector(
                "response_from_device",
                "a device's cache answers, and says what it knows of the object",
                Header {
                    seq_num: SeqNum(43),
                    key_hash: KEY_HASH,
                    ..Header::new(Kind::Response, SESSION, EPOCH)
                },
                Tail::Response(by_cache),
                b"$4\r\nblue\r\n",
            )
        },
    ]
}

fn recovery_vectors() -> Vec<Vector> {
    let record = ManifestRecord {
        session: SESSION,
        epoch: EPOCH,
        window: 32,
        client_nonce: CLIENT_NONCE,
        server_nonce: SERVER_NONCE,
        first: SeqNum(41),
        last: SeqNum(42),
        entry_count: 2,
    };
    let mut records = Vec::new();
    record.write(&mut records);
    let poll = Header { seq_num: SeqNum(6), ..Header::new(Kind::RecoveryPoll, SessionId(0), Epoch(4)) };
    let manifest = ManifestTail {
        device: DEVICE,
        boot_epoch: BOOT_EPOCH,
        order_current: OrderNumber(17),
        session_count: 1,
    };
    vec![
        vector(
            "retransmit",
            "the server asks a device for order numbers 15 to 17",
            Header::new(Kind::Retransmit, SessionId(0), EPOCH),
            Tail::Range(RangeTail { first: 15, last: 17, boot_epoch: BOOT_EPOCH }),
            b"",
        ),
        vector("recovery_poll", "a restarted server asks for the sixth time", poll, Tail::Empty, b""),
        vector(
            "manifest",
            "the device holds two entries of one session",
            Header { kind: Kind::Manifest, ..poll },
            Tail::Manifest(manifest),
            &records,
        ),
        vector(
            "replay",
            "an update from the log",
            Header { asked: Durability::Ram, device_acks_asked: 1, ..request(Kind::Replay) },
            Tail::Stamp(order(17)),
            b"SET colour blue",
        ),
    ]
}

fn upkeep_vectors() -> Vec<Vector> {
    let heartbeat = HeartbeatTail { highest: SeqNum(0), stable: SeqNum(42) };
    let mut late = Vec::new();
    LateStamp { seq: SeqNum(41), sent: Nanos(9_500) }.write(&mut late);
    let lease = LeaseTail {
        asked_at: Nanos(7_000_000),
        duration: Nanos::from_secs(2),
        device: DEVICE,
        boot_epoch: BOOT_EPOCH,
    };
    vec![
        vector(
            "heartbeat",
            "the server says what is stable and when a response left",
            Header::new(Kind::Heartbeat, SESSION, EPOCH),
            Tail::Heartbeat(heartbeat),
            &late,
        ),
        vector(
            "lease",
            "a device may acknowledge for two seconds",
            Header::new(Kind::Lease, SessionId(0), EPOCH),
            Tail::Lease(lease),
            b"",
        ),
        vector(
            "busy",
            "the server wants silence for five milliseconds",
            Header::new(Kind::Busy, SESSION, EPOCH),
            Tail::Busy(BusyTail { backoff: Nanos::from_millis(5) }),
            b"",
        ),
        vector(
            "drain",
            "the server asks a device to stamp a write that reached it unstamped",
            Header { flags: Flags::WRITES, ..request(Kind::Drain) },
            Tail::Stamp(Stamp::default()),
            b"",
        ),
    ]
}
