//! Room is made by eviction, where that is wanted.
//!
//! Invariant: an item that is evicted leaves index, order and slot together. A shard that never evicts changes nothing
//! here.

use super::{Found, Place, Shard};
use crate::class::{Class, CLASS_COUNT};
use crate::memory::SEGMENT_BYTES;

/// How often a write evicts before it gives up: what goes may leave its room to another class.
const TRIES_MAX: usize = 16;
/// How many slots of a segment that another class is to have are emptied per new key.
const SLOTS_PER_KEY: u32 = 32;

/// Segments that move from one class to another.
#[derive(Default)]
pub(super) struct Drain {
    /// The segment that is being emptied, and the next slot.
    under_way: Option<(u32, u32)>,
    /// How many items each class has evicted since the last segment moved.
    evicted: Vec<u32>,
}

impl Shard {
    /// A slot for `bytes`, and whether something had to go for it.
    pub(super) fn take(&mut self, bytes: usize) -> Option<(Place, bool)> {
        if let Some(place) = self.items.take(bytes, &mut self.budget) {
            return Some((place, false));
        }
        let place = if self.sieve.is_some() { self.take_by_evicting(bytes) } else { None };
        self.full_count += u64::from(place.is_none());
        place.map(|place| (place, true))
    }

    #[cold]
    fn take_by_evicting(&mut self, bytes: usize) -> Option<Place> {
        // A run of segments may need several to go; more than twice its length are not worth it.
        for _ in 0..TRIES_MAX + 2 * bytes.div_ceil(SEGMENT_BYTES) {
            if !self.evict_for(bytes) {
                break;
            }
            if let Some(place) = self.items.take(bytes, &mut self.budget) {
                return Some(place);
            }
        }
        // All that is left of the class may be in the segment that is to move.
        let (segment, slot) = self.drain.under_way.take()?;
        self.drain_slots(segment, slot, u32::MAX);
        self.items.take(bytes, &mut self.budget)
    }

    /// Evicts something that may leave room for `bytes`; whether there was anything.
    fn evict_for(&mut self, bytes: usize) -> bool {
        let class = Class::of(bytes);
        if self.evict_oldest(class) {
            self.note_eviction(class);
            return true;
        }
        self.clear_segment(class, None) || self.evict_oldest(None)
    }

    /// Evicts what a class can best do without; of none, what has segments of its own.
    fn evict_oldest(&mut self, class: Option<Class>) -> bool {
        let sieve = self.sieve.as_mut().expect("this shard evicts");
        let victim = sieve.victim(&mut self.items, class);
        victim.is_some_and(|victim| self.evict(victim))
    }

    /// Removes the item there, if the index has it.
    fn evict(&mut self, place: Place) -> bool {
        let head = self.items.head(place);
        let hash = self.hash.of(self.items.key(place, &head));
        let is_it = |at: Place| (at == place).then_some(());
        let Some((spot, place, ())) = self.index.find(hash, is_it) else { return false };
        self.remove(hash, &Found { spot, place, head });
        self.evicted_count += 1;
        true
    }

    /// Evicts all of one segment of the class with the most, at once: when a class begins while memory is full. Not of
    /// `class`, and not the segment that is spared.
    fn clear_segment(&mut self, class: Option<Class>, spared: Option<u32>) -> bool {
        let donors = (0..CLASS_COUNT as u8).map(Class).filter(|donor| Some(*donor) != class);
        let segments = donors.filter_map(|donor| {
            Some((self.items.segments_of(donor), self.items.emptiest_of(donor, spared)?))
        });
        let Some((_, segment)) = segments.max_by_key(|(count, _)| *count) else { return false };
        self.items.drain(segment);
        self.drain_slots(segment, 0, u32::MAX);
        true
    }

    /// An entry for a new item; in a shard that evicts not without one for want of a line.
    pub(super) fn index_entry(&mut self, hash: u64, place: Place) -> bool {
        if self.index.insert(hash, place, &mut self.budget) {
            return true;
        }
        // The new line takes a whole segment: any but that of the item, which nothing leads to yet.
        let spared = Some(place.segment());
        let has_room = self.sieve.is_some() && (self.clear_segment(None, spared) || self.evict_oldest(None));
        has_room && self.index.insert(hash, place, &mut self.budget)
    }

    /// A class that has evicted a segment's worth, while another with more memory evicted far less, gets one of that.
    fn note_eviction(&mut self, class: Option<Class>) {
        let Some(class) = class else { return };
        self.drain.evicted.resize(CLASS_COUNT, 0);
        let count = &mut self.drain.evicted[usize::from(class.0)];
        *count += 1;
        if *count < class.slots() || self.drain.under_way.is_some() {
            return;
        }
        if let Some(segment) = self.idlest_segment(class) {
            self.items.drain(segment);
            self.drain.under_way = Some((segment, 0));
        }
        self.drain.evicted.fill(0);
    }

    /// Of the class with the most memory among those that evicted hardly anything.
    fn idlest_segment(&self, than: Class) -> Option<u32> {
        let share = |class: Class| self.drain.evicted[usize::from(class.0)] as usize * class.slot_bytes();
        let is_idle = |class: &Class| {
            *class != than && self.items.segments_of(*class) > 1 && share(*class) * 4 < share(than)
        };
        let idle = (0..CLASS_COUNT as u8).map(Class).filter(is_idle);
        let donor = idle.max_by_key(|class| self.items.segments_of(*class))?;
        self.items.emptiest_of(donor, None)
    }

    /// Goes on emptying the segment that is to move, a bounded number of slots.
    pub(super) fn drain_some(&mut self) {
        if let Some((segment, slot)) = self.drain.under_way {
            let next = self.drain_slots(segment, slot, SLOTS_PER_KEY);
            self.drain.under_way = next.map(|slot| (segment, slot));
        }
    }

    /// Evicts from `count` slots; the next slot, if there is one.
    fn drain_slots(&mut self, segment: u32, first: u32, count: u32) -> Option<u32> {
        for slot in first..first.saturating_add(count) {
            // A segment whose last item went belongs to nobody, or to another class already.
            let place = self.items.slot(segment, slot).filter(|_| self.items.is_draining(segment))?;
            if self.items.is_live(place) {
                self.evict(place);
            }
        }
        Some(first.saturating_add(count))
    }
}
