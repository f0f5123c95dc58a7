//! Memory that grows in place: the one part of this crate with unsafe code.
//!
//! Invariant: whatever a caller asks for lies within what has been committed, or the call panics; no number that an
//! index holds can lead elsewhere.

mod compare;
mod keeper;
mod mapping;
mod prefetch;
mod region;

pub(crate) use compare::equal_upper_halves;
pub(crate) use keeper::Keeper;
pub(crate) use region::Region;

/// How much memory is committed at once, and a huge page. Smaller where an interpreter has to walk it.
pub const SEGMENT_BYTES: usize = if cfg!(miri) { 128 << 10 } else { 2 << 20 };
/// A page of the system.
pub(crate) const PAGE_BYTES: usize = 4096;
/// A line of the processor's cache.
pub(crate) const LINE_BYTES: usize = 64;
