//! Slots are taken and given back.

use super::{Budget, Class, Items, Place, Segment, SEGMENT_BYTES};

impl Items {
    /// A slot for `bytes`, if there is one or memory for one. It must be written before anything else happens.
    pub fn take(&mut self, bytes: usize, budget: &mut Budget) -> Option<Place> {
        let place = match Class::of(bytes) {
            Some(class) => self.take_slot(class, budget)?,
            None => self.take_run(bytes.div_ceil(SEGMENT_BYTES), budget)?,
        };
        self.slot_bytes += self.room(place);
        Some(place)
    }

    fn take_slot(&mut self, class: Class, budget: &mut Budget) -> Option<Place> {
        let segment = match self.segments.open(class) {
            Some(segment) => segment,
            None => self.open_segment(class, budget)?,
        };
        let begin = segment as usize * SEGMENT_BYTES;
        let Segment { free, fresh, .. } = *self.segments.get(segment);
        let offset = if free == 0 {
            begin + fresh as usize * class.slot_bytes()
        } else {
            begin + (free as usize - 1) * 8
        };
        let next = if free == 0 { 0 } else { self.region.word(offset) as u32 };
        let taken = self.segments.get_mut(segment);
        taken.used += 1;
        taken.fresh += u32::from(free == 0);
        taken.free = next;
        let has_free = next != 0 || taken.fresh < class.slots();
        if !has_free {
            self.segments.settle(segment, false);
        }
        Some(Place::new(offset))
    }

    fn open_segment(&mut self, class: Class, budget: &mut Budget) -> Option<u32> {
        let segment = self.free_segments(1, budget)?;
        self.segments.assign(segment, class);
        Some(segment)
    }

    fn take_run(&mut self, count: usize, budget: &mut Budget) -> Option<Place> {
        let first = self.free_segments(count as u32, budget)?;
        self.segments.assign_run(first, count as u32);
        Some(Place::new(first as usize * SEGMENT_BYTES))
    }

    /// The first of so many free segments in a row, within the budget.
    fn free_segments(&mut self, count: u32, budget: &mut Budget) -> Option<u32> {
        let bytes = count as usize * SEGMENT_BYTES;
        if !budget.has(bytes) {
            return None;
        }
        let (first, found) = self.segments.find_free(count);
        if found < count && self.segments.free_count() > found as usize {
            self.trim(); // those that are free are not in a row: their memory is not to be had twice
        }
        for _ in found..count {
            if !self.region.commit() {
                return None;
            }
            self.segments.push_free();
        }
        budget.take(bytes).then_some(first)
    }

    /// Gives a slot back, and its segment if nothing else of it is used.
    pub fn give(&mut self, place: Place, budget: &mut Budget) {
        self.slot_bytes -= self.room(place);
        let segment = place.segment();
        let freed = self.segments.get_mut(segment);
        assert!(freed.used > 0, "a slot that is given back was taken");
        freed.used -= 1;
        if freed.used == 0 {
            let count = self.segments.release(segment);
            return budget.give(count as usize * SEGMENT_BYTES);
        }
        let next = std::mem::replace(&mut freed.free, ((place.offset() % SEGMENT_BYTES) / 8) as u32 + 1);
        self.region.set_word(place.offset(), u64::from(next)); // which is not live
        self.segments.settle(segment, true);
    }

    /// The class of an item; none if it has segments of its own.
    pub fn class_of(&self, place: Place) -> Option<Class> {
        self.segments.class(place.segment())
    }

    /// How many segments an item has for itself.
    pub(super) fn run_segments(&self, place: Place) -> usize {
        self.segments.get(place.segment()).run as usize
    }

    /// How many segments there are, used or not.
    pub fn segment_count(&self) -> u32 {
        self.segments.len()
    }

    /// Every slot of a segment that was ever used.
    pub(super) fn slots_of(&self, segment: u32) -> impl Iterator<Item = Place> {
        let begin = segment as usize * SEGMENT_BYTES;
        let slot_bytes = self.segments.class(segment).map_or(SEGMENT_BYTES, Class::slot_bytes);
        let is_head = self.segments.class(segment).is_some() || self.segments.is_run(segment);
        let count = if is_head { self.segments.get(segment).fresh as usize } else { 0 };
        (0..count).map(move |slot| Place::new(begin + slot * slot_bytes))
    }

    /// The place of a slot of a segment, if that was ever used.
    pub fn slot(&self, segment: u32, index: u32) -> Option<Place> {
        let class = self.segments.class(segment)?;
        let is_used = index < self.segments.get(segment).fresh;
        is_used.then(|| Place::new(segment as usize * SEGMENT_BYTES + index as usize * class.slot_bytes()))
    }

    /// Whether an item is there.
    pub fn is_live(&self, place: Place) -> bool {
        crate::item::is_live(self.region.word(place.offset()))
    }

    /// Gives the memory of segments that nobody uses back to the system. How many.
    pub fn trim(&mut self) -> usize {
        let free: Vec<u32> = self.segments.free().collect();
        for segment in &free {
            self.region.discard(*segment as usize);
        }
        free.len()
    }

    /// How many segments a class has.
    pub fn segments_of(&self, class: Class) -> u32 {
        self.segments.count(class)
    }

    /// The segment with the fewest items of a class, but for one that is spared.
    pub fn emptiest_of(&self, class: Class, spared: Option<u32>) -> Option<u32> {
        let is_its = |segment: &u32| {
            let is_idle = !self.segments.is_draining(*segment) && Some(*segment) != spared;
            self.segments.class(*segment) == Some(class) && is_idle
        };
        (0..self.segments.len()).filter(is_its).min_by_key(|segment| self.segments.get(*segment).used)
    }

    /// Whether it is being emptied.
    pub fn is_draining(&self, segment: u32) -> bool {
        self.segments.is_draining(segment)
    }

    /// No slot of the segment is given away any more; it is free when its last item is gone.
    pub fn drain(&mut self, segment: u32) {
        self.segments.drain(segment);
    }
}
