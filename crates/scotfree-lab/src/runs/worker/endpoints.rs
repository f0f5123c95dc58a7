//! A client and a server whose way to the wire is chosen: their hosts' network stacks, or `AF_XDP` sockets past
//! them; and how they wait.
//!
//! Invariant: client and server are those of the runtime and the same code on either way; how often each slept, and
//! by which way its datagrams came and went, is in its report.

pub mod client;
pub mod server;

use crate::af_xdp::{AfXdpTransport, RingCounters};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::Transport;
use scotfree_stage::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// How an endpoint gets at its datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where it is reached; a client may leave its port to the system.
    pub address: SocketAddr,
    /// Which way they take.
    pub access: Access,
    /// How it waits for them.
    pub waits: Waits,
}

/// The way to the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// UDP sockets.
    Stack,
    /// `AF_XDP` sockets at this interface, past the stack.
    Bypass(String),
}

/// What an endpoint does while nothing comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waits {
    /// It sleeps in the kernel.
    Asleep,
    /// It keeps its processor and looks.
    Spinning,
}

/// What an endpoint says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndpointReport {
    /// How often it slept while it was measured.
    pub sleeps: u64,
    /// What passed its rings; nothing on the way through the stack.
    pub rings: RingCounters,
}

/// A transport that may have rings.
trait HasRings: Transport {
    fn rings(&self) -> RingCounters;
}

impl HasRings for UdpTransport {
    fn rings(&self) -> RingCounters {
        RingCounters::default()
    }
}

impl HasRings for AfXdpTransport {
    fn rings(&self) -> RingCounters {
        self.counters()
    }
}

fn open_stack(address: SocketAddr) -> Result<UdpTransport, Trouble> {
    let udp = UdpConfig { stamps: false, ..UdpConfig::default() };
    UdpTransport::bind(address, &udp).map_err(|error| {
        let next = "see whether the address is this host's and free (ss -ulpn)";
        Trouble::new(format!("open {address}"), error, next)
    })
}

/// How often this thread's process has slept so far.
fn sleeps() -> u64 {
    scotfree_stage::process::sleeps_of(std::process::id()).unwrap_or_default()
}
