//! The device's programs in the kernel: loads them, attaches them to ports, keeps them and their tables
//! under a folder of the BPF file system, and gives a safe view of what they share with the daemon.
//!
//! Invariant: what is written down in `bpf/include/scot_shared.h` is read and written only through the
//! types made from it; a table of another layout is refused, never read. What a function of the device shares
//! with its half in the daemon stands in the folder of its remedy, and is read there.

mod error;
mod events;
mod functions;
mod interface;
mod kept;
mod kernel;
mod links;
mod memory;
mod part;
mod plain;
mod prepared;
mod shared;
mod tables;
mod upcalls;

/// Types made from the compiled programs: also those that a function shares with its half in the daemon.
#[allow(warnings, clippy::all, clippy::pedantic, missing_docs)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/dispatcher.skel.rs"));
}

/// The compiled programs, aligned as their reader wants it.
#[repr(align(16))]
struct Aligned<const N: usize>([u8; N]);

static OBJECT: &[u8] = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/dispatcher.bpf.o"))).0;

pub use error::KernelError;
pub use events::Event;
pub use functions::Functions;
pub use interface::{Attached, Features, Interface};
pub use kept::Kept;
pub use kernel::{attached_program, refuse_mount_point, AttachMode, Kernel, KernelConfig, Port, TestRun};
pub use memory::Memory;
pub use part::{PartMaker, StartPart};
pub use prepared::{is_set, owner, prepare, release, remove_all, slot_count, Prepared, SetConfig};
pub use shared::{Endpoint, KeyWords, Settings, Shared, SharedServer, SERVERS_MAX, SESSIONS_MAX};
pub use skeleton::types;
pub use tables::{Counters, FunctionCounters, SessionEntry, Station, StationName, SESSION_ROOM};
pub use upcalls::{Upcall, Upcalls, UPCALLS_BURST_MAX};
