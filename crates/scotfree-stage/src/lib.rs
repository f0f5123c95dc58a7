//! What trials stand on: hosts in namespaces, processes that end with who started them, services on these hosts, load
//! and the history of what was written.
//!
//! Invariant: whatever is made here is removed with its value, and nothing else is.
#![forbid(unsafe_code)]

pub mod config;
pub mod confined;
pub mod environment;
#[cfg(any(test, feature = "fakes"))]
pub mod fake_redis;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
pub mod history;
pub mod interrupt;
pub mod kernel_plane;
pub mod load;
pub mod netns;
pub mod places;
pub mod power_cut;
pub mod priority;
pub mod process;
pub mod resp;
pub mod scratch;
pub mod site;
pub mod stats;
pub mod sweep;
pub mod topology;
pub mod trouble;
pub mod worker;
pub mod workload;
