//! Requests and responses through rings in memory that client and server share, without the kernel (Orca, III).
//!
//! Invariant: a message is taken once, whole, in the order of its ring, or the ring is broken and says by whom; nothing
//! that a peer writes makes this side read or write outside the ring, wait for ever, or use more memory than the ring
//! has. docs/design/rings.md has the rules B1 to B9.
#![forbid(unsafe_code)]

mod client;
mod credit;
mod doorbell;
mod fault;
mod memory;
mod reader;
mod server;
mod shape;
mod tracker;
mod words;
mod writer;

pub use client::{ClientBroken, RingClient};
pub use credit::{Credit, Foreign};
pub use doorbell::Doorbell;
pub use fault::Fault;
pub use memory::{HeapMemory, Memory};
pub use reader::{Broken, Message, Reader};
pub use server::{Burst, Notify, Request, RingServer, Room};
pub use shape::{Shape, ShapeError, HEAD_BYTES};
pub use tracker::{announce, announce_marked, flag, Ready, Seen, MARKED};
pub use words::{AtomicU32, AtomicU64, WORD_BYTES};
pub use writer::{Refused, Writer};
