//! A durable log before one server, in the process that clients connect to: who may be told what, and what a log's
//! records mean after a crash.
//!
//! Invariant: nothing here reads a clock, a socket or a file; docs/design/proxy.md has the rules by number.
#![forbid(unsafe_code)]

mod fault;
pub mod peers;
mod queue;
mod record;
mod writes;

pub use fault::Fault;
pub use queue::{
    Access, Answered, CommitQueue, Completion, Found, Lacking, Lost, Outcome, QueueConfig, QueueCounters,
    Run, Submission, Torn, Unsubmitted,
};
pub use record::{LoggedUpdate, RecordError, RecordReader, RecordWriter};
