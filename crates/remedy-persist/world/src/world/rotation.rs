//! The rotation of the cluster's key.
//!
//! Invariant: everybody has at each moment what the operator's file on his host says, also after a restart.

use super::{Event, World};
use scotfree_core::{Nanos, SessionId};
use scotfree_wire::{key_epoch, ClusterKey, KeyEpoch};

/// Whose file the operator changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Server,
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
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub(super) server: KeyRange,
    pub(super) devices: KeyRange,
    pub(super) clients: KeyRange,
}

impl Default for Keys {
    fn default() -> Keys {
        let first = KeyRange { first: 0, last: 0 };
        Keys { server: first, devices: first, clients: first }
    }
}

impl World {
    /// Who accepts comes before who uses, and whoever may still be asked for the old one gives it up late.
    pub(super) fn rotate_key(&mut self, step: Nanos) {
        let KeyRange { last, .. } = self.keys.server;
        let both = KeyRange { first: last, last: last + 1 };
        let new = KeyRange { first: last + 1, last: last + 1 };
        let turns = [
            (Part::Server, both),
            (Part::Devices, both),
            (Part::Clients, both),
            (Part::Devices, new),
            (Part::Server, new),
            (Part::Clients, new),
        ];
        for (turn, (part, range)) in turns.into_iter().enumerate() {
            self.engine.after(Nanos(turn as u64 * step.0), Event::Rekey(part, range));
        }
    }

    pub(super) fn rekey(&mut self, part: Part, range: KeyRange) {
        self.engine.report.rekeyed += 1;
        match part {
            Part::Server => {
                self.keys.server = range;
                self.with_server(|machine, now, effects| machine.set_cluster_key(now, range.key(), effects));
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
    pub(super) fn device_may_speak(&self, device: usize, session: SessionId) -> bool {
        let machine = self.devices[device].machine();
        let view = machine.and_then(|machine| machine.session_view(session));
        view.is_none_or(|view| self.keys.devices.has(key_epoch(&view.server_nonce)))
    }

    /// Whether a session may have ended because its epoch was taken away.
    pub(super) fn some_key_was_removed(&self) -> bool {
        self.keys.server.first > 0 || self.keys.clients.first > 0 || self.keys.devices.first > 0
    }
}
