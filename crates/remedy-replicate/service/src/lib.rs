//! A service around a service: what a server executes goes through a member of a group, so that every member executes
//! it.
//!
//! Invariant: the machine decides; here are only its sockets, its clock, its membership and its file.
#![forbid(unsafe_code)]

mod any_life;
mod commands;
mod kept;
mod maker;
mod owed;
mod peers;
mod refused;
mod service;
#[cfg(test)]
mod tests;
mod tickets;

pub use maker::MAKER;
pub use service::ReplicatedService;
