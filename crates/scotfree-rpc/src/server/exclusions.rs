//! The operator's word on devices that will not come back, given while a server runs (rule 13).
//!
//! Invariant: the list only grows, so a server that has obeyed its first entries has only later ones to obey.
//! What was said before a server started, it obeys in its first turn.

use scotfree_core::DeviceId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Devices to go on without; clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Exclusions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    devices: Mutex<Vec<DeviceId>>,
    // Spares a server the lock in every turn.
    count: AtomicUsize,
}

impl Exclusions {
    /// A list that begins with these.
    pub fn of(devices: impl IntoIterator<Item = DeviceId>) -> Exclusions {
        let exclusions = Exclusions::default();
        for device in devices {
            exclusions.add(device);
        }
        exclusions
    }

    /// Excludes a device; false if it is already. A server obeys in its next turn.
    pub fn add(&self, device: DeviceId) -> bool {
        let mut devices = self.0.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !devices.contains(&device);
        if is_new {
            devices.push(device);
            // Relaxed: the list itself is read under its lock.
            self.0.count.store(devices.len(), Ordering::Relaxed);
        }
        is_new
    }

    /// The device that comes behind the first `obeyed`, if there is one.
    pub(super) fn next(&self, obeyed: usize) -> Option<DeviceId> {
        if self.0.count.load(Ordering::Relaxed) <= obeyed {
            return None;
        }
        self.0.devices.lock().unwrap_or_else(PoisonError::into_inner).get(obeyed).copied()
    }
}

/// What an operator is told of an exclusion.
pub fn exclusion_notice(device: DeviceId) -> String {
    format!(
        "device {device} is excluded once its lease has run out: what only it held is lost; when it is back, \
         start without --exclude"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_obeyed_once_and_in_turn() {
        let exclusions = Exclusions::of([DeviceId(3)]);
        let other = exclusions.clone();
        assert!(other.add(DeviceId(1)) && !other.add(DeviceId(3)));
        assert_eq!(
            [0, 1, 2].map(|obeyed| exclusions.next(obeyed)),
            [Some(DeviceId(3)), Some(DeviceId(1)), None]
        );
    }
}
