//! Services of tonic over Scotfree's codec, beside the same over prost's.
//!
//! Invariant: the code of a service is the same over either codec: it is one macro, which is filled in twice.

pub mod collector;
pub mod greeter;
pub mod ours;
pub mod prosts;
pub mod route;
pub mod serving;
pub mod views;
