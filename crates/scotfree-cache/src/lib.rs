//! What a cache of reads may answer: rules over the order of updates, without packets.
//!
//! Invariant: whatever it answers, the server could have answered then. docs/design/cache.md has the rules, K1 to K12.
//! A device runs them as the function of remedy-cache, and a proxy beside its queue.
#![forbid(unsafe_code)]

mod cache;
mod counters;
mod fault;
mod language;
mod question;
mod shelf;
mod track;

pub use cache::{
    Cache, Cause, Kept, Limits, Listed, Logged, Look, Read, Reply, ReplyTo, RequestName, Scope, Why,
};
pub use counters::{reason_in_words, CacheCounters, Missed, Refused};
pub use fault::{CacheFault, Planted};
pub use language::{Language, Names, ReadCommand, Redis, WholeRead, READS};
pub use question::Asked;
pub use shelf::Slot;
