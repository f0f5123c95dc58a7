//! The embedded key-value service: a map in memory, of one of five structures, behind a write-ahead log of
//! requests.
//!
//! Invariant: the state is a function of the requests in the log; each record holds a request and its
//! session's position, so after a crash each request was applied once or not at all, and the position
//! says which.
#![forbid(unsafe_code)]

mod executor;
mod index;
mod journal;
mod kept;
mod letters;
mod member;
mod op;
mod request;
mod room;
mod service;
mod snapshot;
mod store;
mod value;

pub use index::IndexKind;
pub use journal::{is_meta, JournalError, JournalLimits};
pub use service::{command, KvOptions, KvRecovery, KvService};
pub use store::Store;
pub use value::Value;
