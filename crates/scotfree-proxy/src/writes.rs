//! Which of the writes that could still be lost an answer may have seen.
//!
//! Invariant: what is said is never too early: where keys are not known, every write counts.

use crate::queue::Access;
use scotfree_core::KeyHash;
use std::collections::{HashMap, VecDeque};

/// The last writes of each key, as long as they can be lost.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    of_key: HashMap<KeyHash, u64>,
    /// In order, for forgetting.
    noted: VecDeque<(u64, KeyHash)>,
    of_any: u64,
    latest: u64,
}

impl Writes {
    /// A write can be lost as long as what is up to `seq` can be.
    pub fn note(&mut self, access: Access, seq: u64) {
        self.latest = self.latest.max(seq);
        match access {
            Access::Key(key) => {
                let of_key = self.of_key.entry(key).or_default();
                *of_key = seq.max(*of_key);
                self.noted.push_back((seq, key));
            }
            Access::Any => self.of_any = self.of_any.max(seq),
            Access::None => {}
        }
    }

    /// The last write that somebody with this access may see; 0 if there is none.
    pub fn seen_by(&self, access: Access) -> u64 {
        match access {
            Access::None => 0,
            Access::Key(key) => self.of_key.get(&key).copied().unwrap_or(0).max(self.of_any),
            Access::Any => self.latest,
        }
    }

    /// Everything up to `through` cannot be lost any more.
    pub fn settle(&mut self, through: u64) {
        while let Some((_, key)) = self.noted.front().copied().filter(|(seq, _)| *seq <= through) {
            self.noted.pop_front();
            if self.of_key.get(&key).is_some_and(|of_key| *of_key <= through) {
                self.of_key.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_of_the_same_key_or_of_unknown_keys_are_seen() {
        let (a, b) = (Access::Key(KeyHash(1)), Access::Key(KeyHash(2)));
        let mut writes = Writes::default();
        writes.note(a, 1);
        writes.note(b, 2);
        writes.note(a, 3);
        assert_eq!([a, b, Access::Any, Access::None].map(|access| writes.seen_by(access)), [3, 2, 3, 0]);
        writes.note(Access::Any, 4);
        assert_eq!([a, b].map(|access| writes.seen_by(access)), [4, 4]);
    }

    #[test]
    fn what_is_settled_takes_no_memory() {
        let mut writes = Writes::default();
        for seq in 1..=100 {
            writes.note(Access::Key(KeyHash(seq % 7)), seq);
        }
        writes.settle(97);
        assert_eq!((writes.noted.len(), writes.of_key.len()), (3, 3));
        writes.settle(100);
        assert!(writes.noted.is_empty() && writes.of_key.is_empty());
    }
}
