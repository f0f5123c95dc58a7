//! How much of a stranger's message is taken.

/// What a message that is decoded may cost at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes on the wire; no more than 2^31 - 1 in any case, since places in it are told in 31 bits.
    pub message_bytes_max: u32,
    /// How deep messages lie within each other: the root is at depth 1. Each level takes stack, with optimisation 0.3 to
    /// 1.3 kB (a plain struct of 64 fields up to 10), without it up to 60: whoever raises this gives the thread more.
    pub depth_max: u16,
    /// Bytes of slots in the arena, which an empty message within another takes as much as a full one.
    pub slots_bytes_max: u32,
    /// Runs of fields that the schema does not know, all messages within taken together.
    pub unknown_fields_max: u32,
}

/// As deep as Protobuf's own libraries take messages within each other.
pub(crate) const DEPTH_MAX: u16 = 100;

impl Default for Limits {
    /// 64 MiB on the wire, 100 deep as Protobuf's own libraries, 256 MiB of slots, a million runs of unknown fields.
    fn default() -> Self {
        Limits {
            message_bytes_max: 64 << 20,
            depth_max: DEPTH_MAX,
            slots_bytes_max: 256 << 20,
            unknown_fields_max: 1 << 20,
        }
    }
}
