//! What one device was sent in a run, for tests of other implementations of the device.
//!
//! Invariant: what is captured is what arrived, in its order; capturing changes nothing.

use super::World;
use crate::scenario::Scenario;
use crate::trace::Depth;
use remedy_persist::DeviceConfig;
use scotfree_sim::{come_to_rest, Protocol};
use std::net::SocketAddr;

/// What happened to the device.
#[derive(Debug, Clone)]
pub enum Seen {
    /// It started, with what its domains held.
    Start(Box<DeviceConfig>),
    /// A packet arrived.
    Packet {
        /// Its sender.
        from: SocketAddr,
        /// Its receiver, not always the device.
        to: SocketAddr,
        /// The packet.
        bytes: Vec<u8>,
    },
}

/// The device that is listened to, and what was heard.
#[derive(Debug)]
pub(super) struct Tap {
    device: usize,
    seen: Vec<Seen>,
}

impl World {
    pub(super) fn tap(&mut self, device: usize, seen: impl FnOnce() -> Seen) {
        if let Some(tap) = self.tap.as_mut().filter(|tap| tap.device == device) {
            tap.seen.push(seen());
        }
    }
}

/// Runs a scenario with a seed, and gives what the device with this number, counted from the clients, was sent.
pub fn capture(seed: u64, scenario: Scenario, device: usize) -> Vec<Seen> {
    let mut world = World::new(seed, scenario, Depth::Last);
    world.tap = Some(Tap { device, seen: Vec::new() });
    come_to_rest(&mut world);
    world.tap.map(|tap| tap.seen).unwrap_or_default()
}
