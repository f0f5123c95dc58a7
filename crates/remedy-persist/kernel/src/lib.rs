//! Persist's part of the plane in the kernel: the log's slots that its programs fill, and the mirror that keeps the
//! device machine and the programs' tables of one mind.
//!
//! Invariant: what is written down in `crates/remedy-persist/bpf/persist.h` is read and written only through the types
//! made from it.

mod counters;
mod mirror;
mod part;
mod room;
mod slots;

pub use counters::counters;
pub use mirror::Mirror;
pub use part::PART;
pub use slots::{SlotHead, SlotState, Slots};

/// Persist's name in the list of functions.
pub const FUNCTION: &str = "persist";
