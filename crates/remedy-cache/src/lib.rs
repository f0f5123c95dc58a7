//! Reads answered by the device: a cache over the order of updates.
//!
//! Invariant: whatever it answers, the server could have answered then. docs/design/cache.md has the rules, K1 to K12,
//! and what they hold against.
#![forbid(unsafe_code)]

mod cache;
mod counters;
mod elders;
mod fault;
mod function;
mod language;
mod remedy;
mod seen;
mod shelf;
mod track;

pub use cache::{Cache, Cause, Kept, Limits, Logged, Look, Read, Reply, ReplyTo, RequestName, Scope};
pub use counters::{CacheCounters, Missed, Refused};
pub use fault::{CacheFault, Planted};
pub use function::ReadCache;
pub use language::{Language, Names, Redis};
pub use remedy::{ENTRY, MAKER};
pub use shelf::Slot;
