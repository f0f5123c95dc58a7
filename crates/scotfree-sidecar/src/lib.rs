//! RESP in front of a client, RESP behind a server.
//!
//! The machines are [`scotfree_resp::front`] and [`scotfree_resp::back`]; [`client`] and [`server`] are the
//! loops around them.
//!
//! Invariant: to a Redis client the pair of sidecars is the Redis behind them, but for what the class table
//! and the guard say.
#![forbid(unsafe_code)]

pub mod aof;
pub mod client;
pub mod dead_letters;
pub mod notices;
pub mod peer;
pub mod redis;
mod seldom;
pub mod server;
pub mod stream;
pub mod tls;
pub mod tunnel;
