//! The cluster's key, which the operator rotates while those run that use it.
//!
//! Invariant: whoever looks in every turn has the key of the last `set` in its next turn.

use scotfree_wire::ClusterKey;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A key that can be replaced; clones share it.
#[derive(Debug, Clone)]
pub struct SharedKey(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: Mutex<ClusterKey>,
    // Spares who looks the lock in every turn.
    version: AtomicU64,
}

impl From<ClusterKey> for SharedKey {
    fn from(key: ClusterKey) -> SharedKey {
        SharedKey(Arc::new(Inner { key: Mutex::new(key), version: AtomicU64::new(0) }))
    }
}

impl SharedKey {
    /// The key of this moment.
    pub fn get(&self) -> ClusterKey {
        self.0.key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the key; whether it is another one.
    pub fn set(&self, key: ClusterKey) -> bool {
        let mut current = self.0.key.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = *current != key;
        if differs {
            *current = key;
            // Relaxed: the key itself is read under its lock.
            self.0.version.fetch_add(1, Ordering::Relaxed);
        }
        differs
    }
}

/// Looks at a shared key from turn to turn.
#[derive(Debug)]
pub(crate) struct KeyWatch {
    key: SharedKey,
    seen: u64,
}

impl KeyWatch {
    /// Whatever was set before is taken in the first turn.
    pub(crate) fn new(key: SharedKey) -> KeyWatch {
        KeyWatch { key, seen: 0 }
    }

    /// The key, if it has been replaced since the last look.
    pub(crate) fn look(&mut self) -> Option<ClusterKey> {
        let version = self.key.0.version.load(Ordering::Relaxed);
        if version == self.seen {
            return None;
        }
        self.seen = version;
        Some(self.key.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_seen_once_and_only_if_it_is_another() {
        let first = ClusterKey::from_bytes([1; 32]);
        let shared = SharedKey::from(first.clone());
        let mut watch = KeyWatch::new(shared.clone());
        assert!(watch.look().is_none() && !shared.set(first));
        assert!(watch.look().is_none());
        let second = ClusterKey::from_bytes([2; 32]);
        assert!(shared.set(second.clone()));
        assert_eq!(watch.look(), Some(second));
        assert!(watch.look().is_none());
    }
}
