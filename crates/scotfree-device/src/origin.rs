//! Where a message came from.
//!
//! Invariant: a session's requests are taken from its client's address alone, and, once one was the next,
//! by the port that it came in by.

use crate::sessions::SessionBase;
use std::net::SocketAddr;

/// A port of the device, counted by its shell from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNumber(pub u32);

/// Where a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Its sender.
    pub address: SocketAddr,
    /// The port that it came in by, if the shell tells ports apart.
    pub port: Option<PortNumber>,
}

impl SessionBase {
    /// Whether its client's requests come from there.
    pub(crate) fn may_come_from(&self, origin: &Origin) -> bool {
        let other_port = |(bound, port)| bound != port;
        self.client == origin.address && !self.port.zip(origin.port).is_some_and(other_port)
    }
}
