//! An etcd of one test, and members whose events are kept.
//!
//! Invariant: the etcd ends with its test, however that ends.

mod server;
mod slow;
mod watched;

pub use server::Etcd;
pub use slow::Slow;
pub use watched::Watched;

use remedy_replicate_membership::{Group, Listed};
use scotfree_core::Nanos;
use scotfree_io::Poller;
use std::net::SocketAddr;
use std::time::Duration;

/// The shortest that etcd counts.
pub const LEASE: Nanos = Nanos::from_secs(1);
/// What takes longer does not come.
pub const LIMIT: Nanos = Nanos::from_secs(30);

pub fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub fn group() -> Group {
    let listed = |id: u8| Listed { id, peers: peers(id), clients: clients(id) };
    let members = [1, 2, 3].map(listed).to_vec();
    let (name, protocol) = ("g1".to_owned(), "hermes".to_owned());
    Group { name, protocol, lease_ms: LEASE.0 / 1_000_000, fingerprint: None, members }
}

pub fn peers(id: u8) -> SocketAddr {
    address(7_000 + u16::from(id))
}

pub fn clients(id: u8) -> SocketAddr {
    address(6_000 + u16::from(id))
}

/// Between two looks at something that wakes nobody.
pub fn pause() {
    Poller::new(1).unwrap().wait(Some(Duration::from_millis(10))).unwrap();
}
