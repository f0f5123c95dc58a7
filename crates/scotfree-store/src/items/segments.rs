//! Which class each segment of the items belongs to, and which segments of a class have free slots.
//!
//! Invariant: a class's list of open segments holds exactly those of its segments that have a free slot and are not
//! being drained.

use crate::class::{Class, CLASS_COUNT};
use crate::memory::SEGMENT_BYTES;
use std::collections::BTreeSet;

/// Where an item lies: the distance of its slot from the beginning of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

impl Place {
    #[inline(always)]
    pub fn new(offset: usize) -> Place {
        Place(offset as u64)
    }

    #[inline(always)]
    pub fn offset(self) -> usize {
        self.0 as usize
    }

    #[inline(always)]
    pub fn segment(self) -> u32 {
        (self.offset() / SEGMENT_BYTES) as u32
    }
}

/// No segment.
pub(super) const NONE: u32 = u32::MAX;
/// In place of a class: nothing of the segment is used.
const FREE: u8 = 255;
/// In place of a class: the first segment of a run.
const RUN: u8 = 254;
/// In place of a class: another segment of a run.
const RUN_REST: u8 = 253;

/// One segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// How many slots are live.
    pub used: u32,
    /// From which slot on none was used.
    pub fresh: u32,
    /// The first free slot: its distance in the segment by eights, from 1; 0 for none.
    pub free: u32,
    /// Neighbours in the list of open segments of its class.
    newer: u32,
    older: u32,
    is_open: bool,
    /// Its items are being evicted, so that another class can have it.
    is_draining: bool,
    /// How many segments the run has that begins here.
    pub run: u32,
}

impl Segment {
    const EMPTY: Segment = Segment {
        used: 0,
        fresh: 0,
        free: 0,
        newer: NONE,
        older: NONE,
        is_open: false,
        is_draining: false,
        run: 0,
    };
}

/// All segments.
pub(super) struct Segments {
    all: Vec<Segment>,
    /// Apart from the rest, since each look-up asks for it.
    slot_bytes: Vec<u32>,
    classes: Vec<u8>,
    open: [u32; CLASS_COUNT],
    counts: [u32; CLASS_COUNT],
    free: BTreeSet<u32>,
}

impl Segments {
    pub fn new() -> Segments {
        Segments {
            all: Vec::new(),
            slot_bytes: Vec::new(),
            classes: Vec::new(),
            open: [NONE; CLASS_COUNT],
            counts: [0; CLASS_COUNT],
            free: BTreeSet::new(),
        }
    }

    pub fn len(&self) -> u32 {
        self.all.len() as u32
    }

    pub fn get(&self, segment: u32) -> &Segment {
        &self.all[segment as usize]
    }

    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.all[segment as usize]
    }

    /// Its class, if it is one of slots.
    #[inline(always)]
    pub fn class(&self, segment: u32) -> Option<Class> {
        let class = self.classes[segment as usize];
        (usize::from(class) < CLASS_COUNT).then_some(Class(class))
    }

    pub fn is_run(&self, segment: u32) -> bool {
        self.classes[segment as usize] == RUN
    }

    #[inline(always)]
    pub fn slot_bytes_of(&self, place: Place) -> usize {
        self.slot_bytes.get(place.segment() as usize).map_or(0, |bytes| *bytes as usize)
    }

    pub fn open(&self, class: Class) -> Option<u32> {
        let open = self.open[usize::from(class.0)];
        (open != NONE).then_some(open)
    }

    pub fn count(&self, class: Class) -> u32 {
        self.counts[usize::from(class.0)]
    }

    /// Adds one that the region has grown by.
    pub fn push_free(&mut self) {
        self.free.insert(self.len());
        self.all.push(Segment::EMPTY);
        self.classes.push(FREE);
        self.slot_bytes.push(0);
    }

    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Those that nothing uses.
    pub fn free(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.iter().copied()
    }

    /// The first of `count` free segments in a row, and how many of them, at the end, are there.
    pub fn find_free(&self, count: u32) -> (u32, u32) {
        let (mut first, mut found) = (self.len(), 0);
        for segment in &self.free {
            if found == 0 || first + found != *segment {
                (first, found) = (*segment, 0);
            }
            found += 1;
            if found == count {
                return (first, found);
            }
        }
        // What lies at the end can be continued by growing.
        if first + found == self.len() {
            (first, found)
        } else {
            (self.len(), 0)
        }
    }

    /// Gives a free segment to a class.
    pub fn assign(&mut self, segment: u32, class: Class) {
        assert!(self.free.remove(&segment), "a segment that is given to a class is free");
        self.classes[segment as usize] = class.0;
        self.slot_bytes[segment as usize] = class.slot_bytes() as u32;
        self.counts[usize::from(class.0)] += 1;
        *self.get_mut(segment) = Segment::EMPTY;
        self.link(segment);
    }

    /// Gives `count` free segments from `first` on to one item.
    pub fn assign_run(&mut self, first: u32, count: u32) {
        for segment in first..first + count {
            assert!(self.free.remove(&segment), "a segment that is given to an item is free");
            self.classes[segment as usize] = if segment == first { RUN } else { RUN_REST };
            self.slot_bytes[segment as usize] = SEGMENT_BYTES as u32;
            *self.get_mut(segment) = Segment::EMPTY;
        }
        let head = self.get_mut(first);
        (head.used, head.fresh, head.run) = (1, 1, count);
    }

    /// Takes a segment, or a run, from whoever had it. How many there are.
    pub fn release(&mut self, segment: u32) -> u32 {
        let count = if self.is_run(segment) { self.get(segment).run } else { 1 };
        self.unlink(segment);
        if let Some(class) = self.class(segment) {
            self.counts[usize::from(class.0)] -= 1;
        }
        for segment in segment..segment + count {
            self.classes[segment as usize] = FREE;
            *self.get_mut(segment) = Segment::EMPTY;
            self.free.insert(segment);
        }
        count
    }

    /// Opens or closes a segment, by whether it has a free slot.
    pub fn settle(&mut self, segment: u32, has_free: bool) {
        let Segment { is_open, is_draining, .. } = *self.get(segment);
        match (is_open, has_free && !is_draining) {
            (false, true) => self.link(segment),
            (true, false) => self.unlink(segment),
            (true, true) | (false, false) => (),
        }
    }

    /// No slot of it is given away any more.
    pub fn drain(&mut self, segment: u32) {
        self.get_mut(segment).is_draining = true;
        self.unlink(segment);
    }

    pub fn is_draining(&self, segment: u32) -> bool {
        self.get(segment).is_draining
    }

    fn link(&mut self, segment: u32) {
        let Some(class) = self.class(segment) else { return };
        let older = std::mem::replace(&mut self.open[usize::from(class.0)], segment);
        if older != NONE {
            self.get_mut(older).newer = segment;
        }
        let linked = self.get_mut(segment);
        (linked.newer, linked.older, linked.is_open) = (NONE, older, true);
    }

    fn unlink(&mut self, segment: u32) {
        let Segment { newer, older, is_open, .. } = *self.get(segment);
        let Some(class) = self.class(segment).filter(|_| is_open) else { return };
        if newer == NONE {
            self.open[usize::from(class.0)] = older;
        } else {
            self.get_mut(newer).older = older;
        }
        if older != NONE {
            self.get_mut(older).newer = newer;
        }
        self.get_mut(segment).is_open = false;
    }
}
