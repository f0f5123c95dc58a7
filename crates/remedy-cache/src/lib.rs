//! Reads answered by the device: a cache over the order of updates.
//!
//! Invariant: whatever it answers, the server could have answered then. docs/design/cache.md has the rules, which are in
//! scotfree-cache, and what they hold against.
#![forbid(unsafe_code)]

mod elders;
mod function;
mod remedy;
mod seen;
mod told;

pub use function::ReadCache;
pub use remedy::{ENTRY, MAKER};
pub use scotfree_cache::{
    Cache, CacheCounters, CacheFault, Cause, Kept, Language, Limits, Logged, Look, Missed, Names, Planted,
    Read, Redis, Refused, Reply, ReplyTo, RequestName, Scope, Slot,
};
pub use told::Told;
