//! The session protocol: requests in the order of their session, executed exactly once, retried until they are
//! stable, whatever stands on the path.
//!
//! Invariant: [`Client`] and [`Server`] are machines without I/O, and know of devices only what they say on the
//! wire. The rules that they keep are cited by number where they are enforced; docs/design/persist-machines.md
//! explains the decisions behind them.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "by-hand"))]
pub mod by_hand;
mod client;
mod fault;
mod packets;
mod retry;
mod server;

pub use client::{
    Client, ClientConfig, ClientCounters, ClientOwn, ClosedReason, CompletedBy, Completion, ExtendedError,
    Mode, Request, RequestKind, SubmitError,
};
pub use fault::{Fault, Planted};
pub use packets::{send_whole, Route};
pub use retry::{backoff, Jitter, RoundTrip};
pub use server::{DeadLetterReason, RecoveredSession, Server, ServerConfig, ServerCounters, ServerOwn};

#[cfg(test)]
mod tests {
    mod bench;
    mod client;
    mod limits;
    mod questions;
    mod recovery;
    mod server;
    mod waits;
}
