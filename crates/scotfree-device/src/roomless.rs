//! Sessions that there is no room for: nothing of theirs gets a place here, and their requests pass as they are.
//!
//! Invariant: what is known of them is enough to believe their server's word and no more; there are at most
//! [`ROOMLESS_MAX`], and of further ones nothing is known.

use crate::sessions::{Beginning, SessionName};
use scotfree_wire::{key_epoch, ClusterKey, Key, Nonce};
use std::collections::BTreeMap;

/// How many are known: 160 bytes each.
pub const ROOMLESS_MAX: usize = 16_384;

/// What is known of one.
#[derive(Debug)]
struct Roomless {
    server_to_client: Key,
    server_nonce: Nonce,
    window: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct RoomlessSessions(BTreeMap<SessionName, Roomless>);

impl RoomlessSessions {
    /// There was no room for it.
    pub(crate) fn note(&mut self, beginning: &Beginning, cluster: &ClusterKey) {
        let Beginning { name, epoch, client_nonce, server_nonce, window, .. } = beginning;
        if self.0.len() < ROOMLESS_MAX || self.0.contains_key(name) {
            let keys = cluster.session(client_nonce, server_nonce, name.id, *epoch);
            let (server_to_client, server_nonce, window) = (keys.server_to_client, *server_nonce, *window);
            self.0.insert(*name, Roomless { server_to_client, server_nonce, window });
        }
    }

    /// It has found room, or is over; whether it was one.
    pub(crate) fn forget(&mut self, name: SessionName) -> bool {
        self.0.remove(&name).is_some()
    }

    /// Those whose epoch was taken out of the cluster's key are not believed any more.
    pub(crate) fn keep(&mut self, cluster: &ClusterKey) {
        self.0.retain(|_, roomless| cluster.has(key_epoch(&roomless.server_nonce)));
    }

    pub(crate) fn key(&self, name: SessionName) -> Option<&Key> {
        self.0.get(&name).map(|roomless| &roomless.server_to_client)
    }

    pub(crate) fn window(&self, name: SessionName) -> Option<u32> {
        self.0.get(&name).map(|roomless| roomless.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::{Epoch, ServerIndex, SessionId};
    use scotfree_wire::{nonce_under, KeyEpoch};
    use std::net::SocketAddr;

    fn beginning(id: u64) -> Beginning {
        let client: SocketAddr = "10.0.0.1:1".parse().expect("an address");
        Beginning {
            name: SessionName { server: ServerIndex(0), id: SessionId(id) },
            epoch: Epoch(1),
            client_nonce: [1; 16],
            server_nonce: [2; 16],
            client,
            window: 16,
        }
    }

    #[test]
    fn there_are_no_more_than_there_is_room_for_and_those_that_are_over_make_some() {
        let cluster = ClusterKey::from_bytes([3; 32]);
        let mut sessions = RoomlessSessions::default();
        (0..=ROOMLESS_MAX as u64).for_each(|id| sessions.note(&beginning(id), &cluster));
        let last = beginning(ROOMLESS_MAX as u64);
        assert!(sessions.window(beginning(0).name) == Some(16) && sessions.key(last.name).is_none());
        assert!(sessions.forget(beginning(0).name) && !sessions.forget(beginning(0).name));
        sessions.note(&last, &cluster);
        assert!(sessions.key(last.name).is_some());
    }

    #[test]
    fn whose_key_was_taken_away_is_not_believed() {
        let secrets = [1, 2].map(|epoch| (KeyEpoch(epoch), [epoch as u8; 32]));
        let key =
            |secrets: &[(KeyEpoch, [u8; 32])]| ClusterKey::from_epochs(secrets.to_vec()).expect("they grow");
        let mut sessions = RoomlessSessions::default();
        for (id, epoch) in [(1, KeyEpoch(1)), (2, KeyEpoch(2))] {
            let server_nonce = nonce_under(epoch, [9; 8]);
            sessions.note(&Beginning { server_nonce, ..beginning(id) }, &key(&secrets));
        }
        sessions.keep(&key(&secrets[1..]));
        assert!(sessions.key(beginning(1).name).is_none() && sessions.key(beginning(2).name).is_some());
    }
}
