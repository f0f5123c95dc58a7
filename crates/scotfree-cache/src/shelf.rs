//! Where entries lie: bounded in bytes and number, evicted by SIEVE.
//!
//! Invariant: `bytes` is the sum over all entries and at most `bytes_max`; every entry is in the queue once. The queue
//! keeps the order in which entries came; a hand goes from the oldest to the newest and round again, takes the mark of
//! a hit from each that has one, and stops at the first that has none.

use crate::cache::Entry;

/// An entry's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

/// What an entry costs beside its key and its value.
pub(crate) const ENTRY_BYTES: usize = 128;

#[derive(Debug, Clone, Hash)]
struct Place {
    entry: Option<Entry>,
    /// Set by a hit, taken by the hand.
    hit: bool,
    newer: Option<Slot>,
    older: Option<Slot>,
}

/// The entries.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Shelf {
    places: Vec<Place>,
    free: Vec<Slot>,
    newest: Option<Slot>,
    oldest: Option<Slot>,
    hand: Option<Slot>,
    bytes: usize,
    bytes_max: usize,
    entries_max: usize,
}

impl Shelf {
    pub(crate) fn new(bytes_max: usize, entries_max: usize) -> Shelf {
        Shelf {
            places: Vec::new(),
            free: Vec::new(),
            newest: None,
            oldest: None,
            hand: None,
            bytes: 0,
            bytes_max,
            entries_max,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn get(&self, slot: Slot) -> &Entry {
        self.places[slot.0 as usize].entry.as_ref().expect("a slot that is handed out holds an entry")
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Entry {
        self.places[slot.0 as usize].entry.as_mut().expect("a slot that is handed out holds an entry")
    }

    /// All of them, dead ones too.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        let older = |slot: &Slot| self.places[slot.0 as usize].older;
        std::iter::successors(self.newest, older).map(|slot| self.get(slot))
    }

    /// Somebody wanted it.
    pub(crate) fn mark(&mut self, slot: Slot) {
        self.places[slot.0 as usize].hit = true;
    }

    /// Whether an entry of this size could ever lie here.
    pub(crate) fn could_hold(&self, bytes: usize) -> bool {
        bytes + ENTRY_BYTES <= self.bytes_max && self.entries_max > 0
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes + ENTRY_BYTES <= self.bytes_max && self.len() < self.entries_max
    }

    /// Which entry has to go before one of this size comes.
    pub(crate) fn victim(&mut self, bytes: usize) -> Option<Slot> {
        if self.has_room(bytes) {
            return None;
        }
        loop {
            let at = self.hand.or(self.oldest)?;
            let place = &mut self.places[at.0 as usize];
            self.hand = place.newer;
            if !std::mem::take(&mut place.hit) {
                return Some(at);
            }
        }
    }

    /// Takes an entry for which there is room.
    pub(crate) fn insert(&mut self, entry: Entry) -> Slot {
        assert!(self.has_room(entry.bytes()), "room is made before an entry comes");
        self.bytes += entry.bytes() + ENTRY_BYTES;
        let place = Place { entry: Some(entry), hit: false, newer: None, older: self.newest };
        let slot = if let Some(slot) = self.free.pop() {
            self.places[slot.0 as usize] = place;
            slot
        } else {
            self.places.push(place);
            Slot(self.places.len() as u32 - 1)
        };
        match self.newest.replace(slot) {
            Some(second) => self.places[second.0 as usize].newer = Some(slot),
            None => self.oldest = Some(slot),
        }
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Entry {
        let Place { newer, older, .. } = self.places[slot.0 as usize];
        match newer {
            Some(newer) => self.places[newer.0 as usize].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.places[older.0 as usize].newer = newer,
            None => self.oldest = newer,
        }
        if self.hand == Some(slot) {
            self.hand = newer;
        }
        self.free.push(slot);
        let entry = self.places[slot.0 as usize].entry.take().expect("what is removed is there");
        self.bytes -= entry.bytes() + ENTRY_BYTES;
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::KeyHash;

    fn shelf(entries: usize) -> Shelf {
        Shelf::new(entries * (ENTRY_BYTES + 1), 1_000)
    }

    fn put(shelf: &mut Shelf, key: u8) -> Slot {
        while let Some(victim) = shelf.victim(1) {
            shelf.remove(victim);
        }
        shelf.insert(Entry::for_tests(KeyHash(u64::from(key)), &[key], b""))
    }

    fn keys(shelf: &Shelf) -> Vec<u8> {
        let mut keys: Vec<u8> =
            shelf.places.iter().filter_map(|place| Some(place.entry.as_ref()?.key()[0])).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn what_was_wanted_stays_and_what_was_not_goes_first() {
        let mut shelf = shelf(3);
        let slots: Vec<Slot> = (1..=3).map(|key| put(&mut shelf, key)).collect();
        shelf.mark(slots[0]);
        put(&mut shelf, 4);
        assert_eq!(keys(&shelf), [1, 3, 4], "1 was wanted, 2 is the oldest that was not");
        put(&mut shelf, 5);
        assert_eq!(keys(&shelf), [1, 4, 5], "the hand goes on from where it stood");
        shelf.mark(slots[0]);
        put(&mut shelf, 6);
        put(&mut shelf, 7);
        assert_eq!(keys(&shelf), [1, 6, 7]);
    }

    #[test]
    fn where_all_were_wanted_the_hand_comes_round() {
        let mut shelf = shelf(2);
        for slot in [put(&mut shelf, 1), put(&mut shelf, 2)] {
            shelf.mark(slot);
        }
        put(&mut shelf, 3);
        assert_eq!(keys(&shelf), [2, 3]);
    }

    #[test]
    fn bytes_are_those_of_what_is_there_whatever_comes_and_goes() {
        let mut shelf = Shelf::new(2_000, 7);
        let mut slots = Vec::new();
        for round in 0..400_u64 {
            let value = vec![0; (round * 37 % 300) as usize];
            while let Some(victim) = shelf.victim(1 + value.len()) {
                shelf.remove(victim);
                slots.retain(|slot| *slot != victim);
            }
            slots.push(shelf.insert(Entry::for_tests(KeyHash(round), &[round as u8], &value)));
            if round % 3 == 0 {
                shelf.mark(slots[round as usize % slots.len()]);
            }
            if round % 5 == 0 {
                let slot = slots.remove(round as usize % slots.len());
                shelf.remove(slot);
            }
            let sum: usize = slots.iter().map(|slot| shelf.get(*slot).bytes() + ENTRY_BYTES).sum();
            assert_eq!((shelf.bytes(), shelf.len()), (sum, slots.len()));
            assert!(shelf.bytes() <= 2_000 && shelf.len() <= 7);
        }
    }
}
