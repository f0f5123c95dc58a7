//! Experiments, applications to try, evidence.
//!
//! Invariant: no result is anything but measured. The only unsafe code is in `af_xdp/rings.rs`.
#![deny(unsafe_code)]

#[cfg(feature = "xdp")]
mod af_xdp;
pub mod codec;
pub mod experiment;
pub mod formula;
#[cfg(feature = "xdp")]
mod gauge;
pub mod keys;
pub mod plot;
mod priority;
pub mod results;
pub mod runs;
mod tier_text;
pub mod tpcc;
pub mod transactions;
pub mod twitter;
