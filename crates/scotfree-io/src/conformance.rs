//! The suites that every implementation of a trait of this crate must pass, and the faults to pass
//! them under.
//!
//! Invariant: a suite knows its subject only through the trait and a fixture; it panics with the rule
//! that was broken. These functions belong in tests.

pub mod domain;
pub mod faults;
pub mod ports;
pub mod transport;
pub mod write_back;
