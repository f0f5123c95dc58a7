//! The shells around the machines: sockets, packet ports, clocks, polling and persistence domains.
//!
//! Invariant: `unsafe` lives in the private module `sys` alone, whose functions are safe to call; nothing that
//! arrives from a network or a file can make this crate panic; nothing here blocks except where a
//! function says that it does.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("scotfree-io speaks to the kernel in the layouts of 64-bit Linux");

pub mod advice;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod disk;
pub mod domain;
pub mod exposition;
pub mod frame;
pub mod lifetime;
mod log_file;
pub mod memory;
pub mod offloads;
pub mod packet_port;
pub mod pmem;
pub mod poll;
pub mod priority;
pub mod ram;
pub mod slot_memory;
mod stamp_table;
mod stamp_turns;
pub mod stderr;
pub mod storage;
mod sys;
pub mod transport;
pub mod udp;
pub mod verify;

pub use clock::{monotonic_at, now_boottime, now_monotonic, now_realtime};
pub use domain::{DomainError, PersistenceDomain, ScanReport};
pub use poll::{Crowd, Event, Interest, Poller, Signal, Signals, Spin, Waker};
pub use sys::processor;
pub use sys::words::SharedWords;
pub use transport::{Cost, RxBurst, RxPacket, Stamps, Transport, TransportMaker, TxPacket};
