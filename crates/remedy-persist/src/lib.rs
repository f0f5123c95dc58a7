//! In-network persistence (`PMNet`, thesis chapter 3): a device on the path logs updates and
//! acknowledges them before the server has seen them.
//!
//! Invariant: [`Client`], [`Device`] and [`Server`] are machines without I/O. The rules that they
//! keep are cited by number where they are enforced; docs/design/persist-machines.md explains the
//! decisions behind them.
#![forbid(unsafe_code)]

mod client;
mod device;
mod fault;
mod packets;
mod remedy;
mod retry;
mod server;

pub use client::{
    AnsweredBy, Client, ClientConfig, ClientCounters, ClientOwn, ClosedReason, Completion, Mode, Request,
    RequestKind, SubmitError,
};
pub use device::{
    Device, DeviceConfig, DeviceCounters, DeviceOwn, FastEntry, FastSession, LogEntryView, Mishaps,
    OrderCounter, Origin, PortNumber, RestoreError, SessionView, SlotView, Touched, UnsafeNow,
    DISK_TOKEN_BIT,
};
pub use fault::{Fault, Planted};
pub use remedy::Persist;
pub use retry::{backoff, Jitter};
pub use server::{DeadLetterReason, RecoveredSession, Server, ServerConfig, ServerCounters, ServerOwn};

#[cfg(test)]
mod tests {
    mod bench;
    mod limits;
    mod server;
}
