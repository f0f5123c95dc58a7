//! Keys are visited without being asked for: a scan in steps, and a walk over the memory of items.
//!
//! Invariant: what is there from the beginning of a scan to its end is returned at least once, also while the table
//! grows. A split moves entries to a bucket of a higher number only, and a scan goes from low to high.

use super::Shard;
use crate::item::{is_expired, Head, Kind};
use crate::items::Place;

/// A key with what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value; fields packed as [`crate::fields`] reads them.
    pub value: &'a [u8],
    /// What the value is.
    pub kind: Kind,
    /// When it expires, since 1970; 0 for never.
    pub expire_s: u32,
    /// Its version; 0 in a shard that keeps none.
    pub version: u64,
}

impl Shard {
    fn stored(&self, place: Place, head: &Head) -> Stored<'_> {
        Stored {
            key: self.items.key(place, head),
            value: self.items.value(place, head),
            kind: head.kind(),
            expire_s: head.expire_s(),
            version: self.items.meta(place),
        }
    }

    /// Visits the keys of the buckets from `cursor` on, until there were `count`; where to go on, 0 at the end.
    ///
    /// A key may be visited more than once if the table grows meanwhile. A bucket is visited whole, so there may be a
    /// few more than `count`, and a call visits at most ten times as many buckets as it wants keys.
    pub fn scan(&self, now_s: u32, cursor: u64, count: usize, mut visit: impl FnMut(Stored<'_>)) -> u64 {
        let mut visited = 0;
        let buckets = self.index.buckets();
        let end = cursor.saturating_add(10 * count.max(1) as u64).min(buckets);
        for bucket in cursor..end {
            self.index.for_each_of(bucket, |place| {
                let head = self.items.head(place);
                if !is_expired(head.expire_s(), now_s) {
                    visit(self.stored(place, &head));
                    visited += 1;
                }
            });
            if visited >= count && bucket + 1 < buckets {
                return bucket + 1;
            }
        }
        if end < buckets {
            end
        } else {
            0
        }
    }

    /// A key (RANDOMKEY): the first from a bucket on that `number` names. Keys behind empty buckets are more likely.
    pub fn any(&self, now_s: u32, number: u64) -> Option<Stored<'_>> {
        let buckets = self.index.buckets();
        (0..buckets).find_map(|beyond| {
            let mut found = None;
            self.index.for_each_of((number % buckets + beyond) % buckets, |place| {
                let head = self.items.head(place);
                if !is_expired(head.expire_s(), now_s) {
                    found = Some((place, head));
                }
            });
            found.map(|(place, head)| self.stored(place, &head))
        })
    }

    /// How many segments [`Shard::for_each_of`] can be asked for.
    pub fn segments(&self) -> u32 {
        self.items.segment_count()
    }

    /// Visits the keys whose items lie in a segment; those of a value that takes several segments, in the first.
    pub fn for_each_of(&self, now_s: u32, segment: u32, mut visit: impl FnMut(Stored<'_>)) {
        self.items.for_each_of(segment, |place, head| {
            if !is_expired(head.expire_s(), now_s) {
                visit(self.stored(place, head));
            }
        });
    }

    /// Visits all keys, in the order of memory.
    pub fn for_each(&self, now_s: u32, mut visit: impl FnMut(Stored<'_>)) {
        (0..self.segments()).for_each(|segment| self.for_each_of(now_s, segment, &mut visit));
    }
}
