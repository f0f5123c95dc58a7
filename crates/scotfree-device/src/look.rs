//! What a device looks like, for tools, metrics and tests.

use crate::pipeline::Pipeline;
use crate::sessions::SessionName;
use scotfree_core::{Durability, KeyHash, Nanos, SeqNum};
use scotfree_wire::Stamp;

/// What is acknowledged and not yet stable: what a loss of this device would endanger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnsafeNow {
    /// How many entries.
    pub entries: u64,
    /// How many bytes of payload.
    pub bytes: u64,
    /// When the oldest was logged.
    pub oldest_since: Option<Nanos>,
}

impl UnsafeNow {
    /// Adds an entry.
    pub fn add(&mut self, bytes: usize, logged_at: Nanos) {
        self.entries += 1;
        self.bytes += bytes as u64;
        self.oldest_since = Some(self.oldest_since.map_or(logged_at, |oldest| oldest.min(logged_at)));
    }
}

/// One log entry, for tools and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntryView<'a> {
    /// Its session.
    pub session: SessionName,
    /// Its place in the session.
    pub seq: SeqNum,
    /// Its stamp.
    pub stamp: Stamp,
    /// The durability that was asked for.
    pub asked: Durability,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// Whether it has been acknowledged.
    pub acknowledged: bool,
    /// When it was logged.
    pub logged_at: Nanos,
    /// The request.
    pub payload: &'a [u8],
}

impl Pipeline {
    fn each_entry<'a>(&'a self, out: &mut dyn FnMut(LogEntryView<'a>)) {
        for function in self.functions() {
            function.entries(self.base(), out);
        }
    }

    /// What is acknowledged and not yet stable.
    pub fn unsafe_now(&self) -> UnsafeNow {
        let mut gauge = UnsafeNow::default();
        self.each_entry(&mut |entry| {
            if entry.acknowledged {
                gauge.add(entry.payload.len(), entry.logged_at);
            }
        });
        gauge
    }

    /// How many entries its logs hold.
    pub fn entry_count(&self) -> usize {
        let mut count = 0;
        self.each_entry(&mut |_| count += 1);
        count
    }

    /// The entries that its logs hold, each server's in its order.
    pub fn entries(&self) -> Vec<LogEntryView<'_>> {
        let mut entries = Vec::new();
        self.each_entry(&mut |entry| entries.push(entry));
        entries.sort_by_key(|entry| (entry.session.server, entry.stamp.boot_epoch, entry.stamp.number));
        entries
    }
}
