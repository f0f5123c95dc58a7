//! Topologies, load, experiments, evidence.
//!
//! Invariant: the lab removes what it made and nothing else, and no result is anything but measured. The only unsafe
//! code is in `af_xdp/rings.rs`.
#![deny(unsafe_code)]

#[cfg(feature = "xdp")]
mod af_xdp;
pub mod config;
pub mod doctor;
pub mod edge;
pub mod environment;
pub mod experiment;
#[cfg(test)]
mod fake_redis;
pub mod formula;
#[cfg(feature = "xdp")]
mod gauge;
pub mod history;
pub mod kernel_plane;
pub mod keys;
pub mod load;
pub mod netns;
pub mod plot;
pub mod priority;
pub mod process;
pub mod resp;
pub mod results;
pub mod runs;
pub mod scratch;
pub mod stats;
pub mod sweep;
mod tier_text;
pub mod topology;
pub mod tpcc;
pub mod transactions;
pub mod trouble;
pub mod twitter;
pub mod workload;
