//! The hash of a trace's id, by which a partition's traces are dealt into buckets.
//!
//! Invariant: it is spread evenly whatever made the ids. No result depends on it.

/// The id of a trace, as the store has it.
pub type TraceId = [u8; 16];

/// Also where ids are counters, or half of each is zero.
pub fn hash(trace: &TraceId) -> u64 {
    let (first, last) = trace.split_at(8);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("half of sixteen bytes are eight"));
    let mut mixed = word(first).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ word(last);
    for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)] {
        mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}
