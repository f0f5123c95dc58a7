//! In-network persistence (`PMNet`, thesis chapter 3): a device on the path logs updates and
//! acknowledges them before the server has seen them.
//!
//! Invariant: [`Device`] is a machine without I/O. The rules that it keeps are cited by number where they are
//! enforced; docs/design/persist-machines.md explains the decisions behind them.
#![forbid(unsafe_code)]

mod device;
mod remedy;

pub use device::{
    Device, DeviceConfig, DeviceCounters, DeviceOwn, FastEntry, FastSession, LogEntryView, Mishaps,
    OrderCounter, Origin, PortNumber, RestoreError, SessionView, SlotView, Touched, UnsafeNow,
    DISK_TOKEN_BIT,
};
pub use remedy::ENTRY;

#[cfg(test)]
mod tests {
    mod limits;
}
