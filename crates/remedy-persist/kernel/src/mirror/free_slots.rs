//! Which slots of the log are nobody's.
//!
//! Invariant: a slot is in one range at most, and ranges that touch are one.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of slots that are nobody's, by their first.
#[derive(Debug)]
pub(super) struct FreeSlots(BTreeMap<u32, u32>);

impl FreeSlots {
    pub(super) fn new(count: u32) -> FreeSlots {
        FreeSlots(BTreeMap::from([(0, count)]))
    }

    /// The first range that is long enough.
    pub(super) fn take(&mut self, count: u32) -> Option<Range<u32>> {
        let (first, length) = self.0.iter().find(|(_, length)| **length >= count).map(|(a, b)| (*a, *b))?;
        self.take_at(first, count);
        debug_assert!(length >= count);
        Some(first..first + count)
    }

    pub(super) fn take_at(&mut self, first: u32, count: u32) {
        let Some((start, length)) = self.0.range(..=first).next_back().map(|(a, b)| (*a, *b)) else { return };
        if first + count > start + length || count == 0 {
            return;
        }
        self.0.remove(&start);
        if first > start {
            self.0.insert(start, first - start);
        }
        if start + length > first + count {
            self.0.insert(first + count, start + length - first - count);
        }
    }

    pub(super) fn give_back(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        let (mut first, mut count) = (first, count);
        if let Some(length) = self.0.remove(&(first + count)) {
            count += length;
        }
        if let Some((start, length)) = self.0.range(..first).next_back().map(|(a, b)| (*a, *b)) {
            if start + length == first {
                (first, count) = (start, count + length);
            }
        }
        self.0.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_nobodys_twice_and_come_back_whole() {
        let mut free = FreeSlots::new(100);
        assert_eq!(free.take(40), Some(0..40));
        assert_eq!(free.take(40), Some(40..80));
        assert_eq!(free.take(40), None);
        free.give_back(0, 40);
        assert_eq!(free.take(10), Some(0..10));
        free.give_back(40, 40);
        free.give_back(0, 10);
        assert_eq!(free.0, BTreeMap::from([(0, 100)]));
        free.take_at(20, 30);
        assert_eq!(free.0, BTreeMap::from([(0, 20), (50, 50)]));
    }
}
