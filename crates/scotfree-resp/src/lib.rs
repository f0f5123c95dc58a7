//! RESP, the protocol of Redis: the codec, what commands are, what travels in a payload, and the two
//! machines that speak it, in [`front`] of a client and at the [`back`], before a server.
//!
//! Invariant: nothing here reads a clock, a socket or a file. Who needs RESP finds it here, and nowhere else
//! in the workspace.
#![forbid(unsafe_code)]

pub mod back;
pub mod classes;
pub mod codec;
pub mod description;
pub mod expiry;
pub mod front;
pub mod guard;
mod names;
pub mod payload;
