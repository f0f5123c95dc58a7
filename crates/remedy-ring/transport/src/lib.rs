//! Rings between processes of one machine and one user: the memory, how it is handed over, and a transport that takes
//! the place of UDP's in any of the runtimes.
//!
//! Invariant: a client gets a ring only of a server under the same user, over a socket that tells both of the other's
//! end; from then on neither makes a system call but to sleep, to wake
//! one that sleeps, and now and then to see whether the other is there. docs/design/rings.md.
#![forbid(unsafe_code)]

mod bell;
mod client;
pub mod cost;
mod handover;
mod region;
mod server;

pub use client::RingTransport;
pub use handover::{HandoverError, RingConfig};
pub use region::Region;
pub use remedy_ring::Notify;
use scotfree_io::TransportMaker;
pub use server::{server_address, RingListener};

/// Makes transports of rings: `ring:FILE`, where FILE is the server's socket.
pub const MAKER: TransportMaker = TransportMaker {
    kind: "ring",
    listen: |path| {
        let listener = RingListener::bind(path, &RingConfig::default()).map_err(|error| error.to_string())?;
        Ok(Box::new(listener))
    },
    connect: |path| {
        let transport = RingTransport::connect(path).map_err(|error| error.to_string())?;
        Ok(Box::new(transport))
    },
    costs: cost::costs,
};

/// What has happened at a side of rings since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Datagrams handed to the caller.
    pub rx_packets: u64,
    /// Datagrams dropped because they were longer than the caller's room.
    pub rx_truncated: u64,
    /// Datagrams written.
    pub tx_packets: u64,
    /// Datagrams dropped because their ring was full.
    pub tx_full: u64,
    /// Datagrams dropped because they were longer than half of the ring.
    pub tx_too_long: u64,
    /// Datagrams dropped because nobody has their address, or has it any more.
    pub tx_unroutable: u64,
    /// Times that the other side was woken.
    pub wakes: u64,
    /// Clients that got a ring.
    pub granted: u64,
    /// Clients that were refused one.
    pub refused: u64,
    /// Rings closed because their client wrote what no client writes.
    pub broken: u64,
}

impl RingCounters {
    fn events(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("rx_packets", self.rx_packets),
            ("rx_truncated", self.rx_truncated),
            ("tx_packets", self.tx_packets),
            ("tx_full", self.tx_full),
            ("tx_too_long", self.tx_too_long),
            ("tx_unroutable", self.tx_unroutable),
            ("wakes", self.wakes),
            ("granted", self.granted),
            ("refused", self.refused),
            ("broken", self.broken),
        ]
    }
}
