//! The engine of a key-value store in memory: shards, each with one owner, that execute batches of operations.
//!
//! No sockets, clocks or threads of its own making (but one that prepares memory, if it is asked for): time is an
//! argument, and answers are values. docs/design/store.md says why it is built as it is.
//!
//! Invariant: a batch does what its operations do one after the other. What was written and answered `Done` is there
//! until it expires, is removed, or is evicted by a shard that was told to evict.
//!
//! ```
//! use scotfree_store::{Op, Options, Outcome, Replies, Seed, Shard};
//!
//! let mut shard = Shard::new(&Options { memory_max: 64 << 20, ..Options::with_seed(Seed::fixed(1)) })?;
//! let mut replies = Replies::new();
//! shard.run_batch(0, &[Op::set(b"key", b"value"), Op::get(b"key"), Op::get(b"other")], &mut replies);
//! assert_eq!(replies.value(1), Some(&b"value"[..]));
//! assert_eq!(replies.get(2).outcome, Outcome::Absent);
//! # Ok::<(), scotfree_store::StoreError>(())
//! ```
#![deny(unsafe_code)]
// What each look-up runs through is one loop's body, in many small functions: none of them may become a call.
#![allow(clippy::inline_always)]

mod budget;
mod class;
mod fault;
pub mod fields;
mod hash;
mod index;
mod item;
mod items;
mod memory;
mod op;
mod reply;
mod shard;
mod sieve;

pub use fault::{Planted, StoreFault};
pub use hash::{Owners, Seed};
pub use item::Kind;
pub use memory::SEGMENT_BYTES;
pub use op::{Change, Condition, ExpireIf, Expiry, Field, Old, Op, Set, Update, Verb};
pub use reply::{Outcome, Replies, Reply};
pub use shard::{
    Eviction, Options, Shard, Stats, StoreError, Stored, GROUPS, GROUP_MAX, KEY_BYTES_MAX, MEMORY_MIN,
    VALUE_BYTES_MAX,
};
