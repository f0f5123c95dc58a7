//! The rotation of the cluster's key.
//!
//! Invariant: everybody has at each moment what the operator's file on his host says, also after a restart.

use super::{Event, World};
use scotfree_core::{Nanos, ServerIndex, SessionId};
use scotfree_wire::{key_epoch, ClusterKey, KeyEpoch};

/// Whose file the operator changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Server(usize),
    Devices,
    Clients,
}

/// The epochs in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRange {
    first: u32,
    last: u32,
}

impl KeyRange {
    /// All that any scenario comes to.
    pub(super) const ALL: KeyRange = KeyRange { first: 0, last: 7 };

    pub(super) fn key(self) -> ClusterKey {
        let secret = |epoch| (KeyEpoch(epoch), [7 + epoch as u8; 32]);
        ClusterKey::from_epochs((self.first..=self.last).map(secret).collect()).expect("they grow")
    }

    fn has(self, epoch: KeyEpoch) -> bool {
        (self.first..=self.last).contains(&epoch.0)
    }
}

/// Everybody's files.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    pub(super) servers: Vec<KeyRange>,
    pub(super) devices: KeyRange,
    pub(super) clients: KeyRange,
}

impl Keys {
    pub(super) fn new(server_count: usize) -> Keys {
        let first = KeyRange { first: 0, last: 0 };
        Keys { servers: vec![first; server_count], devices: first, clients: first }
    }
}

impl World {
    /// Who accepts comes before who uses, and whoever may still be asked for the old one gives it up late.
    pub(super) fn rotate_key(&mut self, step: Nanos) {
        let KeyRange { last, .. } = self.keys.servers[0];
        let both = KeyRange { first: last, last: last + 1 };
        let new = KeyRange { first: last + 1, last: last + 1 };
        let servers = |range| (0..self.servers.len()).map(move |server| (Part::Server(server), range));
        let mut turns: Vec<(Part, KeyRange)> = servers(both).collect();
        turns.extend([(Part::Devices, both), (Part::Clients, both), (Part::Devices, new)]);
        turns.extend(servers(new));
        turns.push((Part::Clients, new));
        for (turn, (part, range)) in turns.into_iter().enumerate() {
            self.engine.after(Nanos(turn as u64 * step.0), Event::Rekey(part, range));
        }
    }

    pub(super) fn rekey(&mut self, part: Part, range: KeyRange) {
        self.engine.report.rekeyed += 1;
        match part {
            Part::Server(server) => {
                self.keys.servers[server] = range;
                self.with_server(server, |machine, now, effects| {
                    machine.set_cluster_key(now, range.key(), effects);
                });
            }
            Part::Devices => {
                self.keys.devices = range;
                for device in 0..self.devices.len() {
                    self.rekey_device(device, range.key());
                }
            }
            Part::Clients => {
                self.keys.clients = range;
                for client in 0..self.clients.len() {
                    self.with_client(client, |machine, _, effects| {
                        machine.set_cluster_key(range.key(), effects);
                    });
                }
            }
        }
    }

    /// Whether the device's file has the epoch of a session that the device knows.
    pub(super) fn device_may_speak(&self, device: usize, server: usize, session: SessionId) -> bool {
        let machine = self.devices[device].machine();
        let base = machine.map(scotfree_device::Pipeline::base);
        let known = base.and_then(|base| base.session(base.find(ServerIndex(server as u8), session)?));
        known.is_none_or(|known| self.keys.devices.has(key_epoch(&known.server_nonce)))
    }

    /// Whether a session may have ended because its epoch was taken away.
    pub(super) fn some_key_was_removed(&self) -> bool {
        let removed = |range: &KeyRange| range.first > 0;
        self.keys.servers.iter().any(removed) || removed(&self.keys.clients) || removed(&self.keys.devices)
    }
}
