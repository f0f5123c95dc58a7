//! A device on the path, as a machine: packets pass an ordered list of functions over one directory of sessions
//! and one order.
//!
//! Invariant: no I/O, no clock, no chance. The base decides once whose a packet is, whether it is authentic and
//! what its place is; functions see the packet with that, and no function knows another.
//! docs/design/many-remedies.md explains the decisions behind it.
#![forbid(unsafe_code)]

mod admit;
mod answers;
mod authority;
mod base;
mod config;
mod effects;
mod function;
mod kernel_part;
mod list;
mod look;
mod maker;
mod origin;
mod pipeline;
mod place;
mod restore;
mod roomless;
mod sequencer;
mod sessions;
mod shell;
mod touched;

pub use authority::PAGE_RECORDS_MAX;
pub use base::{Base, DeviceCounters, Restored, ENDED_MAX, FRAGMENT_BYTES_MAX, FRAGMENT_SETS_MAX};
pub use config::{check_servers, ConfigError, DeviceConfig, Served};
pub use effects::{DeviceEffects, DeviceOwn};
pub use function::{Before, Count, Function, Passing, Place, SessionChange, Verdict, Way, Word};
pub use kernel_part::KernelPart;
pub use list::{arrange, ListError};
pub use look::{LogEntryView, UnsafeNow};
pub use maker::{check_settings, FunctionOption, Maker, OptionValue, Settings};
pub use origin::{Origin, PortNumber};
pub use pipeline::Pipeline;
pub use restore::RestoreError;
pub use sequencer::{OrderCounter, Sequencer};
pub use sessions::{Noted, Region, SessionBase, SessionName, Sessions};
pub use shell::{carry_out, report, Completion, Round, Shell};
pub use touched::Touched;

/// Set in tokens of the disk domain; tokens without it are of the ram domain.
pub const DISK_TOKEN_BIT: u64 = 1 << 63;
