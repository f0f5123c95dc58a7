//! What persist is told at its start, and what it counts.

use scotfree_core::{Durability, Nanos};
use scotfree_device::Count;
use scotfree_session::Planted;

/// What persist is told at its start.
#[derive(Debug, Clone, Copy)]
pub struct PersistConfig {
    /// What the persistence domains can give.
    pub media: Durability,
    /// How long an entry may stay without `ServerAck` before it is sent to the server again.
    pub reforward_after: Nanos,
    /// The longest wait between two such sendings.
    pub reforward_wait_max: Nanos,
    /// How many replays one message or one timer tick sends at most.
    pub replay_burst_max: u32,
    /// A safety rule switched off, for tests.
    pub planted: Planted,
}

impl Default for PersistConfig {
    /// For a device with memory only.
    fn default() -> PersistConfig {
        PersistConfig {
            media: Durability::Ram,
            reforward_after: Nanos::from_millis(400),
            reforward_wait_max: Nanos::from_secs(10),
            replay_burst_max: 64,
            planted: Planted::NONE,
        }
    }
}

/// What persist has counted. Rule 15: `admitted_updates = logged + ungranted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PersistCounters {
    /// Updates that the device has admitted.
    pub admitted_updates: u64,
    /// Of these, logged.
    pub logged: u64,
    /// Of these, not logged: no slot free, a durability that is not there, a closing session, or a server whose
    /// updates are not logged.
    pub ungranted: u64,
    /// `PersistAck`s sent.
    pub persist_acks: u64,
    /// Entries freed by a `ServerAck`.
    pub freed: u64,
    /// Replays sent, on request or because of age.
    pub replays: u64,
    /// Of these, because of age.
    pub reforwarded: u64,
    /// Acknowledgements withheld for want of a lease.
    pub without_lease: u64,
}

impl PersistCounters {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &PersistCounters) -> PersistCounters {
        PersistCounters {
            admitted_updates: self.admitted_updates + other.admitted_updates,
            logged: self.logged + other.logged,
            ungranted: self.ungranted + other.ungranted,
            persist_acks: self.persist_acks + other.persist_acks,
            freed: self.freed + other.freed,
            replays: self.replays + other.replays,
            reforwarded: self.reforwarded + other.reforwarded,
            without_lease: self.without_lease + other.without_lease,
        }
    }

    /// Each of them, as the metrics name it.
    pub fn each(&self, out: &mut dyn FnMut(Count)) {
        let PersistCounters {
            admitted_updates,
            logged,
            ungranted,
            persist_acks,
            freed,
            replays,
            reforwarded,
            without_lease,
        } = *self;
        for (name, help, value) in [
            ("scotfree_device_admitted_updates_total", "Admitted updates.", admitted_updates),
            ("scotfree_device_logged_total", "Admitted updates that were logged.", logged),
            ("scotfree_device_ungranted_total", "Admitted updates that were not logged.", ungranted),
            ("scotfree_device_persist_acks_total", "PersistAcks sent.", persist_acks),
            ("scotfree_device_freed_total", "Log entries freed by a ServerAck.", freed),
            ("scotfree_device_replays_total", "Replays sent.", replays),
            ("scotfree_device_reforwarded_total", "Replays sent because of age.", reforwarded),
            (
                "scotfree_device_without_lease_total",
                "PersistAcks withheld for want of a lease.",
                without_lease,
            ),
        ] {
            out(Count { name, help, labels: "", value });
        }
    }
}
