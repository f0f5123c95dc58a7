//! RESP in front of a client, RESP behind a server.
//!
//! [`front`] and [`back`] are machines without I/O; [`client`] and [`server`] are the loops around them.
//!
//! Invariant: to a Redis client the pair of sidecars is the Redis behind them, but for what the class table
//! and the guard say.
#![forbid(unsafe_code)]

pub mod aof;
pub mod back;
pub mod classes;
pub mod client;
pub mod dead_letters;
pub mod description;
pub mod expiry;
pub mod front;
pub mod guard;
pub mod notices;
pub mod payload;
pub mod redis;
pub mod resp;
mod seldom;
pub mod server;
pub mod tunnel;
