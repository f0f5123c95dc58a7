//! The items of a shard in slots of size classes; what needs more than a segment takes a run of them.
//!
//! Invariant: every slot of a segment before `fresh` is either live or on the segment's list of free ones, and
//! `used` counts the live ones. A segment without a live slot belongs to no class: any may have it next.

mod segments;
mod slots;

pub(crate) use segments::Place;

use crate::budget::Budget;
use crate::class::Class;
use crate::item::{self, Head, Kind, Layout};
use crate::memory::{Region, SEGMENT_BYTES};
use segments::{Segment, Segments};
use std::io;

/// What is written into a slot.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub kind: Kind,
    pub expire_s: u32,
    pub meta: u64,
}

/// The items of a shard.
pub(crate) struct Items {
    region: Region,
    layout: Layout,
    segments: Segments,
    /// What live slots take, whole slots.
    slot_bytes: usize,
}

impl Items {
    /// None yet, in at most `bytes_max` of addresses.
    pub fn new(layout: Layout, bytes_max: usize) -> io::Result<Items> {
        Ok(Items { region: Region::reserve(bytes_max)?, layout, segments: Segments::new(), slot_bytes: 0 })
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn region_mut(&mut self) -> &mut Region {
        &mut self.region
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What live items take, whole slots.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The first word, with all that a look-up needs.
    #[inline(always)]
    pub fn head(&self, place: Place) -> Head {
        let at = place.offset();
        Head::read(self.layout, self.region.word(at), |lengths_at| self.region.word(at + lengths_at))
    }

    /// The item's head, if it is that key's.
    #[inline(always)]
    pub fn head_of(&self, place: Place, key: &[u8]) -> Option<Head> {
        let head = self.head(place);
        let is_it = head.key_bytes == key.len() && is_equal(self.key(place, &head), key);
        is_it.then_some(head)
    }

    #[inline(always)]
    pub fn key(&self, place: Place, head: &Head) -> &[u8] {
        self.region.bytes(place.offset() + head.key_at, head.key_bytes)
    }

    #[inline(always)]
    pub fn value(&self, place: Place, head: &Head) -> &[u8] {
        self.region.bytes(place.offset() + head.value_at(), head.value_bytes)
    }

    pub fn value_mut(&mut self, place: Place, head: &Head) -> &mut [u8] {
        self.region.bytes_mut(place.offset() + head.value_at(), head.value_bytes)
    }

    /// The word for versions; 0 in a shard that keeps none.
    #[inline(always)]
    pub fn meta(&self, place: Place) -> u64 {
        if self.layout.has_meta {
            self.region.word(place.offset() + Layout::META_AT)
        } else {
            0
        }
    }

    pub fn set_meta(&mut self, place: Place, meta: u64) {
        if self.layout.has_meta {
            self.region.set_word(place.offset() + Layout::META_AT, meta);
        }
    }

    pub fn set_expiry(&mut self, place: Place, expire_s: u32) {
        let word = self.region.word(place.offset());
        self.region.set_word(place.offset(), item::with_expiry(word, expire_s));
    }

    #[inline(always)]
    pub fn set_visited(&mut self, place: Place, is_visited: bool) {
        let word = self.region.word(place.offset());
        if item::with_visited(word, is_visited) != word {
            self.region.set_word(place.offset(), item::with_visited(word, is_visited));
        }
    }

    /// The neighbours in the order of eviction: newer and older.
    pub fn links(&self, place: Place) -> (u32, u32) {
        let word = self.region.word(place.offset() + self.layout.links_at());
        (word as u32, (word >> 32) as u32)
    }

    pub fn set_links(&mut self, place: Place, newer: u32, older: u32) {
        let word = u64::from(newer) | u64::from(older) << 32;
        self.region.set_word(place.offset() + self.layout.links_at(), word);
    }

    /// Whether a live item can become one of `bytes` where it is.
    #[inline(always)]
    pub fn fits(&self, place: Place, bytes: usize) -> bool {
        if let Some(class) = self.class_of(place) {
            return Class::of(bytes) == Some(class);
        }
        let (needs, has) = (bytes.div_ceil(SEGMENT_BYTES), self.run_segments(place));
        Class::of(bytes).is_none() && needs <= has && 2 * needs >= has
    }

    /// How large an item may grow where it is.
    pub fn room(&self, place: Place) -> usize {
        self.class_of(place).map_or_else(|| self.run_segments(place) * SEGMENT_BYTES, Class::slot_bytes)
    }

    /// Writes a whole item. The links stay.
    pub fn write(&mut self, place: Place, content: &Content<'_>) {
        let Content { key, value, kind, expire_s, meta } = *content;
        let head = Head::new(self.layout, kind, expire_s, key.len(), value.len());
        self.write_head(place, &head);
        self.set_meta(place, meta);
        self.region.bytes_mut(place.offset() + head.key_at, key.len()).copy_from_slice(key);
        self.value_mut(place, &head).copy_from_slice(value);
    }

    /// Writes a value where one of the same key is. Its slot must have room for it.
    #[inline(always)]
    pub fn overwrite(&mut self, place: Place, before: &Head, content: &Content<'_>) {
        let Content { key, value, kind, expire_s, meta } = *content;
        let head = Head::new(self.layout, kind, expire_s, key.len(), value.len());
        if head.key_at != before.key_at {
            return self.write(place, content);
        }
        self.write_head(place, &head);
        self.set_meta(place, meta);
        self.value_mut(place, &head).copy_from_slice(value);
    }

    #[inline(always)]
    fn write_head(&mut self, place: Place, head: &Head) {
        self.region.set_word(place.offset(), head.word());
        if let Some((lengths_at, lengths)) = head.lengths(self.layout) {
            self.region.set_word(place.offset() + lengths_at, lengths);
        }
    }

    /// Lengthens a value where it is, by zeros; `None` if its slot or the form of its head has no room.
    pub fn lengthen(&mut self, place: Place, head: &Head, value_bytes: usize) -> Option<Head> {
        let longer = Head::new(self.layout, head.kind(), head.expire_s(), head.key_bytes, value_bytes);
        let has_room = self.layout.item_bytes(head.key_bytes, value_bytes) <= self.room(place);
        if !has_room || longer.key_at != head.key_at {
            return None;
        }
        self.write_head(place, &longer);
        self.value_mut(place, &longer)[head.value_bytes..].fill(0);
        Some(longer)
    }

    /// Has the lines of an item be fetched, as far as it is small.
    #[inline(always)]
    pub fn prefetch(&self, place: Place) {
        // What a slot takes tells how many lines it has, without a look at the item.
        self.region.prefetch_lines(place.offset(), self.segments.slot_bytes_of(place));
    }

    /// The live items of a segment.
    pub fn for_each_of(&self, segment: u32, mut visit: impl FnMut(Place, &Head)) {
        for place in self.slots_of(segment) {
            let word = self.region.word(place.offset());
            if item::is_live(word) {
                visit(place, &self.head(place));
            }
        }
    }
}

/// Whether two keys of one length are equal. Short ones without a call.
#[inline(always)]
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let ends = |bytes: &[u8]| {
        let (first, last) = (bytes.first_chunk::<8>()?, bytes.last_chunk::<8>()?);
        Some((u64::from_ne_bytes(*first), u64::from_ne_bytes(*last)))
    };
    match (ends(one), ends(other)) {
        (Some(ends), Some(others)) if one.len() <= 16 => ends == others,
        (Some(ends), Some(others)) if ends != others => false,
        _ => one == other,
    }
}
