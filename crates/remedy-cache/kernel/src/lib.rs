//! The cache's part of the plane in the kernel: shows its programs what they may answer, and takes over what they tell.
//!
//! Invariant: what is written down in `crates/remedy-cache/bpf/cache.h` is read and written only through the types made
//! from it; what may be answered the rules decide (docs/design/cache.md).

mod notes;
mod part;
mod table;

pub use part::PART;

/// The cache's name in the list of functions.
pub const FUNCTION: &str = "cache";
