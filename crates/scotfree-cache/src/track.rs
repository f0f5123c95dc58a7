//! What writes have done to the keys of a bucket.
//!
//! Invariant: it is never forgotten. Keys of one bucket share it: that costs them answers, and never makes one wrong.

use crate::shelf::Slot;
use scotfree_core::OrderKey;

/// As many writes as a read is worth: what a write costs a key that is kept, a copy of its value at most, is a small part
/// of what an answer saves.
const WRITES_OF_A_READ: u16 = 4;

/// What writes have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Track {
    /// The newest place in the order that a write has (K1).
    pub(crate) version: OrderKey,
    /// Only what passes after this fills (K3).
    pub(crate) floor: u64,
    /// How many writes are under way (K2).
    pub(crate) under_way: u32,
    /// How much is read and written, of late.
    reads: u8,
    writes: u8,
}

impl Track {
    /// How much is read and written, of late.
    pub(crate) fn counts(&self) -> (u8, u8) {
        (self.reads, self.writes)
    }

    pub(crate) fn raise(&mut self, order: OrderKey) {
        self.version = self.version.max(order);
    }

    pub(crate) fn count_read(&mut self) {
        self.age();
        self.reads += 1;
    }

    pub(crate) fn count_write(&mut self) {
        self.age();
        self.writes += 1;
    }

    fn age(&mut self) {
        if self.reads.max(self.writes) == u8::MAX {
            self.reads /= 2;
            self.writes /= 2;
        }
    }

    /// Whether it was read this often, and is not written far more than it is read.
    pub(crate) fn is_worth_it(&self, reads_min: u8) -> bool {
        let is_read = u16::from(self.reads) * WRITES_OF_A_READ >= u16::from(self.writes);
        self.reads >= reads_min && (is_read || reads_min == 0)
    }
}

/// A bucket of key hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Bucket {
    pub(crate) track: Track,
    /// The first of its entries.
    pub(crate) first: Option<Slot>,
}

/// What a write touches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// These, each once, that of its first key at the front.
    Buckets(Vec<usize>),
    /// It cannot be told.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_far_more_than_read_is_not_worth_it_until_that_changes() {
        let mut track = Track::default();
        assert!(track.is_worth_it(0) && !track.is_worth_it(1));
        track.count_read();
        assert!(track.is_worth_it(1) && !track.is_worth_it(2));
        (0..4).for_each(|_| track.count_write());
        assert!(track.is_worth_it(1), "a read is worth some writes");
        track.count_write();
        assert!(!track.is_worth_it(1));
        (0..2_000).for_each(|_| track.count_write());
        assert!(!track.is_worth_it(1) && track.is_worth_it(0));
        (0..300).for_each(|_| track.count_read());
        assert!(track.is_worth_it(2));
    }
}
