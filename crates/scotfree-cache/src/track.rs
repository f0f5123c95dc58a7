//! What writes have done to the keys of a bucket.
//!
//! Invariant: it is never forgotten. Keys of one bucket share it: that costs them answers, and never makes one wrong.

use crate::shelf::Slot;
use scotfree_core::{KeyHash, OrderKey};

/// As many writes as a read is worth: what a write costs a key that is kept, a copy of its value at most, is a small part
/// of what an answer saves.
const WRITES_OF_A_READ: u16 = 4;

/// How many keys of a bucket that were read of late are told from each other.
const READERS: usize = 4;

/// Which keys of a bucket were read of late, and which of them again: of all that is read once nothing is to be kept
/// (the doorkeeper of `TinyLFU`, with a few bits of each key's hash). Keys that are read again and again take one place each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Doorkeeper {
    /// 0: nobody's.
    marks: [u8; READERS],
    /// By their bits, those that came again.
    again: u8,
    /// Whose place the next takes.
    next: u8,
}

impl Doorkeeper {
    fn mark(key_hash: KeyHash) -> u8 {
        // Not the bits by which its bucket is found.
        ((key_hash.0 >> 56) as u8).max(1)
    }

    fn note(&mut self, key_hash: KeyHash) {
        let mark = Doorkeeper::mark(key_hash);
        if let Some(place) = self.marks.iter().position(|known| *known == mark) {
            self.again |= 1 << place;
            return;
        }
        let place = usize::from(self.next) % READERS;
        self.marks[place] = mark;
        self.again &= !(1 << place);
        self.next = self.next.wrapping_add(1);
    }

    fn has_come_again(self, key_hash: KeyHash) -> bool {
        let mark = Doorkeeper::mark(key_hash);
        (0..READERS).any(|place| self.marks[place] == mark && self.again & 1 << place != 0)
    }
}

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
    door: Doorkeeper,
}

impl Track {
    /// How much is read and written, of late.
    pub(crate) fn counts(&self) -> (u8, u8) {
        (self.reads, self.writes)
    }

    pub(crate) fn raise(&mut self, order: OrderKey) {
        self.version = self.version.max(order);
    }

    /// Of this key; `reads_min` is how often it has to be read to be kept.
    pub(crate) fn count_read(&mut self, key_hash: KeyHash, reads_min: u8) {
        self.age();
        self.reads += 1;
        if reads_min > 1 {
            self.door.note(key_hash);
        }
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

    /// Whether its keys were read this often, this one more than once of late, and are not written far more than read.
    pub(crate) fn is_worth_it(&self, key_hash: KeyHash, reads_min: u8) -> bool {
        let is_read = u16::from(self.reads) * WRITES_OF_A_READ >= u16::from(self.writes);
        let is_let_in = reads_min < 2 || self.door.has_come_again(key_hash);
        self.reads >= reads_min && (is_read || reads_min == 0) && is_let_in
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

    const KEY: KeyHash = KeyHash(7 << 56);

    #[test]
    fn what_is_written_far_more_than_read_is_not_worth_it_until_that_changes() {
        let mut track = Track::default();
        assert!(track.is_worth_it(KEY, 0) && !track.is_worth_it(KEY, 1));
        track.count_read(KEY, 2);
        assert!(track.is_worth_it(KEY, 1) && !track.is_worth_it(KEY, 2));
        (0..4).for_each(|_| track.count_write());
        assert!(track.is_worth_it(KEY, 1), "a read is worth some writes");
        track.count_write();
        assert!(!track.is_worth_it(KEY, 1));
        (0..2_000).for_each(|_| track.count_write());
        assert!(!track.is_worth_it(KEY, 1) && track.is_worth_it(KEY, 0));
        (0..300).for_each(|_| track.count_read(KEY, 2));
        assert!(track.is_worth_it(KEY, 2));
    }

    #[test]
    fn what_is_read_once_is_not_let_in_however_much_else_is_read() {
        let mut track = Track::default();
        let key = |number: u64| KeyHash(number << 56);
        for number in 1..=200 {
            track.count_read(key(number), 2);
            assert!(!track.is_worth_it(key(number), 2), "{number}");
        }
        track.count_read(key(199), 2);
        assert!(track.is_worth_it(key(199), 2) && !track.is_worth_it(key(200), 2));
        // One that is read all the time leaves room to others.
        (0..50).for_each(|_| track.count_read(key(199), 2));
        track.count_read(key(9), 2);
        track.count_read(key(9), 2);
        assert!(track.is_worth_it(key(9), 2) && track.is_worth_it(key(199), 2));
        (20..30).for_each(|number| track.count_read(key(number), 2));
        assert!(!track.is_worth_it(key(199), 2), "it is read no more");
    }
}
