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
