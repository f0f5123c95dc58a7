//! Packet layouts, parsed as borrowed views and emitted from plain structs.
//!
//! Invariant: this crate is the one truth about bytes on the wire; the C header for kernel programs
//! is generated from its constants. No input makes it panic: a bad packet is a [`WireError`].
#![forbid(unsafe_code)]

pub mod c_header;
mod error;
mod extension;
mod family;
mod fragment;
pub mod golden;
mod header;
mod keys;
pub mod layout;
mod packet;
pub mod questions;
mod tail;

pub use error::{WireError, WIRE_ERROR_COUNT};
pub use extension::{
    ExtensionSet, ExtensionView, Extensions, Identity, ObjectNote, EXTENSION_BYTES_MAX, EXTENSION_OBJECT,
    EXTENSION_OBJECT_WORDS, EXTENSION_WORD_BYTES, FURTHER_KEYS_MAX,
};
pub use family::{Family, Kinds};
pub use fragment::{emit_fragments, fragments, Reassembly, Whole, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
pub use header::{Flags, Header, Kind, HEADER_BYTES, MAGIC, VERSION};
pub use keys::{
    key_epoch, nonce_under, ClusterKey, ControlKeys, Direction, Key, KeyEpoch, Nonce, SessionKeys,
    KEY_EPOCHS_MAX,
};
pub use packet::{emit, emit_extended, emit_stamp, Packet, PACKET_BYTES_MAX, PAYLOAD_BYTES_MAX};
pub use tail::{
    AcceptTail, Answerer, BusyTail, CloseReason, CloseTail, HeartbeatTail, LateStamp, LeaseTail,
    ManifestRecord, ManifestTail, OpenTail, RangeTail, ResponseTail, Stamp, StampKind, Tail,
    LATE_STAMP_BYTES, MANIFEST_RECORD_BYTES, STAMP_BYTES,
};
