//! The table grows by one bucket at a time: no pause, whatever its size (E2).
//!
//! Invariant: a split needs no more lines than the chain had, so it never fails half-way; without memory for the new
//! bucket it does not begin, and chains get longer.

use super::entry::{self, Line};
use super::{Budget, Index, StoreFault, ENTRIES_PER_BUCKET, LINE_BYTES, SEGMENT_BYTES};
use crate::hash::KeyHash;
use crate::items::Items;

impl Index {
    /// Splits a bucket if there are too many entries for the buckets there are.
    #[inline]
    pub fn grow(&mut self, items: &Items, hash: &KeyHash, budget: &mut Budget) {
        if self.len > self.buckets() * ENTRIES_PER_BUCKET && self.has_room_for_bucket(budget) {
            self.split_next(items, hash, budget);
        }
    }

    fn has_room_for_bucket(&mut self, budget: &mut Budget) -> bool {
        if (self.buckets() as usize + 1) * LINE_BYTES <= self.main.committed() {
            return true;
        }
        if !budget.take(SEGMENT_BYTES) {
            return false;
        }
        let has_grown = self.main.commit();
        if !has_grown {
            budget.give(SEGMENT_BYTES);
        }
        has_grown
    }

    fn split_next(&mut self, items: &Items, hash: &KeyHash, budget: &mut Budget) {
        let (bits, old) = (self.level, Line::main(self.split));
        let new = Line::main(self.split + (1 << self.level));
        self.empty(old);
        // Once in eight levels the marks are of no more use, and the items have to be looked at.
        let is_used_up = entry::is_mark_used_up(bits) && !self.planted.is(StoreFault::KeepUsedBits);
        if is_used_up {
            self.moving.iter().for_each(|word| items.prefetch(entry::place(*word)));
        }
        for index in 0..self.moving.len() {
            let word = self.moving[index];
            let goes_to_new =
                entry::splits_to_new(word, bits) && !self.planted.is(StoreFault::SplitWithoutMoving);
            let word = if is_used_up { marked_anew(word, bits + 1, items, hash) } else { word };
            let is_in = self.push(if goes_to_new { new } else { old }, word, budget);
            assert!(is_in, "two chains need no more lines than one");
        }
        self.set_earliest(new.number() as u64, self.earliest(self.split));
        self.split += 1;
        if self.split == 1 << self.level {
            (self.level, self.split) = (self.level + 1, 0);
        }
    }
}

/// The entry as a bucket of so many bits has it.
fn marked_anew(word: u64, bits: u32, items: &Items, hash: &KeyHash) -> u64 {
    let place = entry::place(word);
    let hash = hash.of(items.key(place, &items.head(place)));
    entry::mark(hash, bits) | entry::offset(place)
}
