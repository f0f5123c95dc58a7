//! The writes of a chain in their order: those that are not applied yet, and of the others as many as there is room
//! for (the sent list, from which a successor is given what it lacks; G10).
//!
//! Invariant: the entries are contiguous; what is not applied is never dropped but by [`Log::cut`].

use crate::view::MemberId;
use scotfree_core::Fnv1a;
use scotfree_state::{request_of, Facts, Touches};
use scotfree_wire::Identity;
use std::collections::{BTreeMap, VecDeque};

/// A write in its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub identity: Identity,
    pub at_ms: u64,
    /// The member whose client made it.
    pub origin: MemberId,
    pub op: Box<[u8]>,
    pub touches: Touches,
}

#[derive(Debug, Clone, Hash, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    /// The index of the first entry, were there one.
    first: u64,
    bytes: usize,
    applied: u64,
    /// Where writes stand that are not applied.
    ordered: BTreeMap<([u8; 16], u64), u64>,
    /// How many writes of each key are not applied, and how many that touch several.
    dirty: BTreeMap<Vec<u8>, u32>,
    dirty_several: u32,
    /// The last write of each key, by the key's hash, that is applied and not known to be stable; and in their order.
    unsettled: BTreeMap<u64, u64>,
    unsettled_order: VecDeque<(u64, u64)>,
    /// The same of several keys, or of a state whose writes are not known one by one.
    unsettled_several: u64,
}

impl Log {
    /// An empty log behind a state that has applied this many.
    pub(crate) fn behind(applied: u64) -> Log {
        Log { first: applied + 1, applied, unsettled_several: applied, ..Log::default() }
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn last(&self) -> u64 {
        self.first + self.entries.len() as u64 - 1
    }

    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index.checked_sub(self.first)? as usize)
    }

    /// Where a request stands that is not applied.
    pub(crate) fn place_of(&self, identity: &Identity) -> Option<u64> {
        self.ordered.get(&request_of(identity)).copied()
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.bytes += entry.op.len();
        self.ordered.insert(request_of(&entry.identity), self.last() + 1);
        match &entry.touches {
            Touches::Nothing => {}
            Touches::One(key) => *self.dirty.entry(key.clone()).or_default() += 1,
            Touches::Several => self.dirty_several += 1,
        }
        self.entries.push_back(entry);
    }

    /// Whether a read might see a write that is not applied.
    pub(crate) fn is_dirty(&self, facts: &Facts) -> bool {
        match &facts.touches {
            Touches::Nothing => false,
            Touches::One(key) => self.dirty_several > 0 || self.dirty.contains_key(key),
            Touches::Several => self.applied < self.last(),
        }
    }

    /// The next entry was applied.
    pub(crate) fn note_applied(&mut self) {
        self.applied += 1;
        let entry = &self.entries[(self.applied - self.first) as usize];
        self.ordered.remove(&request_of(&entry.identity));
        clean(&mut self.dirty, &mut self.dirty_several, &entry.touches);
        match &entry.touches {
            Touches::Nothing => {}
            Touches::One(key) => {
                let hash = hash_of(key);
                self.unsettled.insert(hash, self.applied);
                self.unsettled_order.push_back((self.applied, hash));
            }
            Touches::Several => self.unsettled_several = self.applied,
        }
    }

    /// The last write that a read might show and that may be lost still.
    pub(crate) fn shown_by(&self, touches: &Touches) -> u64 {
        match touches {
            Touches::Nothing => 0,
            Touches::One(key) => {
                self.unsettled.get(&hash_of(key)).copied().unwrap_or(0).max(self.unsettled_several)
            }
            Touches::Several => self.applied,
        }
    }

    /// What is applied is stable up to here.
    pub(crate) fn note_stable(&mut self, through: u64) {
        while let Some((index, hash)) = self.unsettled_order.front().copied().filter(|(at, _)| *at <= through)
        {
            self.unsettled_order.pop_front();
            if self.unsettled.get(&hash) == Some(&index) {
                self.unsettled.remove(&hash);
            }
        }
    }

    /// Drops what is applied, not wanted any more (before `needed`) and beyond the room for it.
    pub(crate) fn trim(&mut self, needed: u64, kept_bytes_max: usize) {
        while self.bytes > kept_bytes_max && self.first <= self.applied && self.first < needed {
            let Some(entry) = self.entries.pop_front() else { return };
            self.bytes -= entry.op.len();
            self.first += 1;
        }
    }

    /// Forgets what is not applied: the group may have gone on without it.
    pub(crate) fn cut(&mut self) {
        while self.last() > self.applied {
            let Some(entry) = self.entries.pop_back() else { return };
            self.bytes -= entry.op.len();
        }
        self.ordered.clear();
        self.dirty.clear();
        self.dirty_several = 0;
    }
}

/// Keys that share a hash only wait for each other.
fn hash_of(key: &[u8]) -> u64 {
    Fnv1a::EMPTY.and(key).value()
}

fn clean(dirty: &mut BTreeMap<Vec<u8>, u32>, dirty_several: &mut u32, touches: &Touches) {
    match touches {
        Touches::Nothing => {}
        Touches::One(key) => {
            let Some(count) = dirty.get_mut(key) else { return };
            *count -= 1;
            if *count == 0 {
                dirty.remove(key);
            }
        }
        Touches::Several => *dirty_several -= 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, touches: Touches) -> Entry {
        let identity = Identity { client: [1; 16], number };
        Entry { identity, at_ms: 0, origin: MemberId(1), op: [0; 10].into(), touches }
    }

    fn one(key: &[u8]) -> Facts {
        Facts { touches: Touches::One(key.to_vec()), is_blind: false }
    }

    #[test]
    fn a_key_is_dirty_until_its_writes_are_applied() {
        let mut log = Log::behind(7);
        assert_eq!((log.first(), log.last()), (8, 7));
        log.push(entry(1, Touches::One(b"a".to_vec())));
        log.push(entry(2, Touches::Several));
        assert!(log.is_dirty(&one(b"a")) && log.is_dirty(&one(b"b")), "several may be any");
        assert_eq!(log.place_of(&Identity { client: [1; 16], number: 2 }), Some(9));
        log.note_applied();
        assert!(log.is_dirty(&one(b"a")));
        log.note_applied();
        assert!(!log.is_dirty(&one(b"a")));
        assert_eq!(log.place_of(&Identity { client: [1; 16], number: 2 }), None);
        assert_eq!((log.first(), log.last(), log.applied()), (8, 9, 9));
    }

    #[test]
    fn a_read_shows_what_may_be_lost_until_the_last_write_of_its_key_is_stable() {
        let mut log = Log::behind(7);
        for (number, key) in [(1, b"a"), (2, b"b"), (3, b"a")] {
            log.push(entry(number, Touches::One(key.to_vec())));
            log.note_applied();
        }
        let shown = |log: &Log, key: &[u8]| log.shown_by(&Touches::One(key.to_vec()));
        assert_eq!((shown(&log, b"a"), shown(&log, b"b")), (10, 9));
        assert_eq!(shown(&log, b"c"), 7, "of the state that it began with nothing is known");
        assert_eq!((log.shown_by(&Touches::Several), log.shown_by(&Touches::Nothing)), (10, 0));
        log.note_stable(9);
        assert_eq!((shown(&log, b"a"), shown(&log, b"b")), (10, 7), "an older write of it is stable");
        log.note_stable(10);
        assert!(log.unsettled.is_empty() && log.unsettled_order.is_empty());
        log.push(entry(4, Touches::Several));
        log.note_applied();
        assert_eq!(shown(&log, b"c"), 11, "several may be any");
    }

    #[test]
    fn what_is_applied_makes_room_and_what_is_not_stays() {
        let mut log = Log::behind(0);
        (1..=4).for_each(|number| log.push(entry(number, Touches::Nothing)));
        log.note_applied();
        log.note_applied();
        log.trim(4, 0);
        assert_eq!((log.first(), log.last()), (3, 4));
        log.cut();
        assert_eq!((log.first(), log.last()), (3, 2));
        assert_eq!(log.place_of(&Identity { client: [1; 16], number: 3 }), None, "it may be ordered anew");
    }
}
