//! A bucket that is full goes on in further lines of the same form.
//!
//! Invariant: no entry is lost for want of a line: either there is one, or the caller is told before anything has
//! changed (E3). A line without entries is in no chain.

use super::entry::{self, Line, Spot, LINK, SLOTS};
use super::{Budget, Index, StoreFault, LINE_BYTES, SEGMENT_BYTES};

impl Index {
    /// Adds an entry to a chain; `false` if there is no memory for a further line.
    pub(super) fn push(&mut self, home: Line, word: u64, budget: &mut Budget) -> bool {
        let mut at = home;
        loop {
            let line = self.line_mut(at);
            if let Some(slot) = line[..SLOTS].iter().position(|word| !entry::is_used(*word)) {
                line[slot] = word;
                return true;
            }
            match entry::next_of(line) {
                Some(next) => at = next,
                None => break,
            }
        }
        if self.planted.is(StoreFault::OverwriteWhenFull) {
            self.line_mut(at)[0] = word;
            return true;
        }
        let Some(number) = self.take_line(budget) else { return false };
        entry::set_next(self.line_mut(at), number);
        self.line_mut(Line::chain(number))[0] = word;
        true
    }

    /// An empty line, by its number from 1.
    fn take_line(&mut self, budget: &mut Budget) -> Option<u32> {
        let number = if self.line_free == 0 { self.fresh_line(budget)? } else { self.line_free };
        let line = self.line_mut(Line::chain(number));
        let next = std::mem::take(&mut line[LINK]) as u32;
        if self.line_free != 0 {
            self.line_free = next;
        }
        self.line_used += 1;
        Some(number)
    }

    fn fresh_line(&mut self, budget: &mut Budget) -> Option<u32> {
        let number = self.line_fresh.checked_add(1)?;
        if number as usize * LINE_BYTES > self.overflow.committed() {
            if !budget.take(SEGMENT_BYTES) {
                return None;
            }
            if !self.overflow.commit() {
                budget.give(SEGMENT_BYTES);
                return None;
            }
        }
        self.line_fresh = number;
        Some(number)
    }

    /// Gives back a line that no chain has any more.
    fn give_line(&mut self, line: Line) {
        let number = line.of_chain().expect("buckets are not given back") as u32 + 1;
        let free = std::mem::replace(&mut self.line_free, number);
        *self.line_mut(line) = [0; 8];
        self.line_mut(line)[LINK] = u64::from(free);
        self.line_used -= 1;
    }

    /// Fills the hole at `hole` from the end of the chain, and gives the last line back if it is empty.
    pub(super) fn close_up(&mut self, home: Line, hole: Spot) {
        let (mut before, mut last) = (home, home);
        while let Some(next) = entry::next_of(self.line(last)) {
            (before, last) = (last, next);
        }
        if last == home {
            return; // one line: holes are found by whoever adds an entry
        }
        let used = |line: &[u64; 8]| line[..SLOTS].iter().rposition(|word| entry::is_used(*word));
        if last != hole.line {
            let slot = used(self.line(last)).expect("a line without entries is in no chain");
            let word = std::mem::take(&mut self.line_mut(last)[slot]);
            self.line_mut(hole.line)[usize::from(hole.slot)] = word;
        }
        if used(self.line(last)).is_none() {
            entry::set_next(self.line_mut(before), 0);
            self.give_line(last);
        }
    }

    /// Empties a chain; its entries are in `moving`.
    pub(super) fn empty(&mut self, home: Line) {
        self.moving.clear();
        let mut at = Some(home);
        while let Some(line) = at {
            let words = *self.line(line);
            self.moving.extend(words[..SLOTS].iter().filter(|word| entry::is_used(**word)));
            at = entry::next_of(&words);
            if line == home {
                self.line_mut(line)[..SLOTS].fill(0);
                entry::set_next(self.line_mut(line), 0);
            } else {
                self.give_line(line);
            }
        }
    }
}
