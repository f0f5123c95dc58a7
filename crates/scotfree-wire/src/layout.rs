//! Where each field lies: the table from which the C header and the golden vectors are made.
//!
//! Invariant: the fields of a layout leave no gap, and the reader and the writer agree with the
//! table (tests/layout.rs writes every field alone and looks at its bytes).

use crate::header::{Kind, HEADER_BYTES};
use crate::tail::{MANIFEST_RECORD_BYTES, STAMP_BYTES};

/// A field of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name in the C header and in golden vectors.
    pub name: &'static str,
    /// Where it begins.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
    /// What it holds.
    pub about: &'static str,
}

impl Field {
    /// Whether the field is an integer, and not an array of bytes.
    pub const fn is_integer(&self) -> bool {
        matches!(self.bytes, 1 | 2 | 4 | 8) && !self.is_reserved()
    }

    /// Whether the field must be zero.
    pub const fn is_reserved(&self) -> bool {
        matches!(self.name.as_bytes(), b"zero")
    }
}

/// A run of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The name of its struct in the C header, without the prefix.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its size.
    pub bytes: usize,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

const fn field(name: &'static str, offset: usize, bytes: usize, about: &'static str) -> Field {
    Field { name, offset, bytes, about }
}

const fn layout(name: &'static str, about: &'static str, bytes: usize, fields: &'static [Field]) -> Layout {
    Layout { name, about, bytes, fields }
}

/// The core header of every packet.
pub const HEADER: Layout = layout(
    "header",
    "the core header of every packet",
    HEADER_BYTES,
    &[
        field("magic", 0, 4, "the bytes SCOT"),
        field("version", 4, 1, "of the protocol"),
        field("kind", 5, 1, "what the packet is"),
        field("flags", 6, 2, "its properties"),
        field("durability_asked", 8, 1, "by the client"),
        field("durability_granted", 9, 1, "by the sender of an acknowledgement"),
        field("device_acks_asked", 10, 1, "how many distinct devices must acknowledge"),
        field("extension_words", 11, 1, "of eight bytes, between tail and payload"),
        field("epoch", 12, 4, "the server's incarnation"),
        field("session", 16, 8, "0 between server and device"),
        field("seq_num", 24, 8, "the request's place in its session"),
        field("key_hash", 32, 8, "over database and key, or what the kind says there"),
        field("fragment_index", 40, 2, "from 0"),
        field("fragment_count", 42, 2, "at least 1"),
        field("payload_bytes", 44, 4, "of this packet"),
        field("completed", 48, 8, "every request up to it is complete at the client"),
        field("mac", 56, 8, "over the packet without a request's stamp and this field"),
    ],
);

/// The tail of requests, `PersistAck`, `Replay` and `Drain`.
pub const STAMP: Layout = layout(
    "stamp",
    "a device's stamp",
    STAMP_BYTES,
    &[
        field("kind", 0, 1, "0 none, 1 order number, 2 barrier"),
        field("zero", 1, 1, "reserved"),
        field("device", 2, 2, "who stamped"),
        field("boot_epoch", 4, 4, "its incarnation"),
        field("number", 8, 8, "the order number or the barrier"),
        field("previous_write", 16, 8, "the session's last write before this request, 0 if none"),
        field("mac", 24, 8, "over the stamp, session and seq_num; in requests only"),
    ],
);

/// The tail of `SessionOpen`.
pub const OPEN: Layout = layout(
    "open",
    "the tail of SessionOpen",
    24,
    &[
        field("client_nonce", 0, 16, "the client's part of the keys"),
        field("window_asked", 16, 4, "requests wanted outstanding"),
        field("key_epoch", 20, 4, "of the cluster's key that the packet is made under"),
    ],
);

/// The tail of `SessionAccept`.
pub const ACCEPT: Layout = layout(
    "accept",
    "the tail of SessionAccept",
    40,
    &[
        field("client_nonce", 0, 16, "repeated"),
        field("server_nonce", 16, 16, "the server's part of the keys"),
        field("window", 32, 4, "the credit: requests sent and not stable"),
        field("expiry_ms", 36, 4, "the session expires after so long without a sign of the client"),
    ],
);

/// The tail of `SessionClose`.
pub const CLOSE: Layout = layout(
    "close",
    "the tail of SessionClose",
    8,
    &[field("reason", 0, 4, "why"), field("zero", 4, 4, "reserved")],
);

/// The tail of `Response`.
pub const RESPONSE: Layout = layout(
    "response",
    "the tail of Response: the server's boundaries, in nanoseconds of its clock, 0 if not stamped",
    40,
    &[
        field("received_ns", 0, 8, "the request reached the server host"),
        field("started_ns", 8, 8, "the handler started"),
        field("ended_ns", 16, 8, "the handler ended"),
        field("dequeued_ns", 24, 8, "the sender took the response"),
        field("received_by", 32, 1, "who made received_ns: 0 the library, 1 the kernel, 2 derived"),
        field("answered_by", 33, 1, "0 the server, else the first code of the function's family"),
        field("device", 34, 2, "the device of that function, 0 for the server"),
        field("zero", 36, 4, "reserved"),
    ],
);

/// The tail of `Retransmit`.
pub const RANGE: Layout = layout(
    "range",
    "the tail of Retransmit: a closed range",
    24,
    &[
        field("first", 0, 8, "the first number wanted"),
        field("last", 8, 8, "the last number wanted"),
        field("boot_epoch", 16, 4, "of order numbers: their device's incarnation; else 0"),
        field("zero", 20, 4, "reserved"),
    ],
);

/// The tail of `Manifest`.
pub const MANIFEST: Layout = layout(
    "manifest",
    "the tail of Manifest",
    24,
    &[
        field("order_current", 0, 8, "the last order number given"),
        field("boot_epoch", 8, 4, "the device's incarnation"),
        field("session_count", 12, 4, "in the whole manifest"),
        field("device", 16, 2, "who holds it"),
        field("zero", 18, 6, "reserved"),
    ],
);

/// The tail of `Heartbeat`.
pub const HEARTBEAT: Layout = layout(
    "heartbeat",
    "the tail of Heartbeat",
    16,
    &[
        field("highest", 0, 8, "from the client: its highest seq_num"),
        field("stable", 8, 8, "from the server: every request up to it is stable"),
    ],
);

/// The tail of `Lease`.
pub const LEASE: Layout = layout(
    "lease",
    "the tail of Lease",
    24,
    &[
        field("asked_at_ns", 0, 8, "the device's clock when it asked"),
        field("duration_ns", 8, 8, "how long the lease runs; 0 in a question and in a refusal"),
        field("boot_epoch", 16, 4, "the device's incarnation"),
        field("device", 20, 2, "who asks"),
        field("zero", 22, 2, "reserved"),
    ],
);

/// The tail of `Busy`.
pub const BUSY: Layout =
    layout("busy", "the tail of Busy", 8, &[field("backoff_ns", 0, 8, "send nothing for so long")]);

/// A record in the payload of `Manifest`.
pub const RECORD: Layout = layout(
    "manifest_record",
    "what a device holds of one session; the payload of Manifest is a sequence of these",
    MANIFEST_RECORD_BYTES,
    &[
        field("session", 0, 8, "the session"),
        field("epoch", 8, 4, "in which it was opened"),
        field("window", 12, 4, "its credit"),
        field("client_nonce", 16, 16, "the client's part of the keys"),
        field("server_nonce", 32, 16, "the server's part of the keys"),
        field("first", 48, 8, "the first seq_num held, 0 if none"),
        field("last", 56, 8, "the last seq_num held, 0 if none"),
        field("entry_count", 64, 4, "log entries between them, both included"),
        field("zero", 68, 20, "reserved"),
    ],
);

/// Every layout.
pub const ALL: [&Layout; 12] = [
    &HEADER, &STAMP, &OPEN, &ACCEPT, &CLOSE, &RESPONSE, &RANGE, &MANIFEST, &HEARTBEAT, &LEASE, &BUSY, &RECORD,
];

impl Kind {
    /// The layout of this kind's tail, if it has one.
    pub const fn tail_layout(self) -> Option<&'static Layout> {
        match self {
            Kind::SessionOpen => Some(&OPEN),
            Kind::SessionAccept => Some(&ACCEPT),
            Kind::SessionClose => Some(&CLOSE),
            Kind::Update | Kind::Read | Kind::Bypass | Kind::PersistAck | Kind::Replay | Kind::Drain => {
                Some(&STAMP)
            }
            Kind::Response => Some(&RESPONSE),
            Kind::Retransmit => Some(&RANGE),
            Kind::Manifest => Some(&MANIFEST),
            Kind::Heartbeat => Some(&HEARTBEAT),
            Kind::Lease => Some(&LEASE),
            Kind::Busy => Some(&BUSY),
            Kind::ServerAck | Kind::RecoveryPoll => None,
        }
    }
}
