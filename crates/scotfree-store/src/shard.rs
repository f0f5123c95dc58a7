//! A shard: keys, values and all that is needed to find, change and forget them, of one owner (E1).
//!
//! Invariant: the index has one entry for each live item and no other; what is written is either whole or not there.

mod batch;
mod evict;
mod execute;
mod expiry;
mod hashes;
mod numbers;
mod scan;
mod strings;
mod update;

pub use batch::{GROUPS, GROUP_MAX};
pub use scan::Stored;

use crate::budget::Budget;
use crate::fault::{Planted, StoreFault};
use crate::hash::{KeyHash, Seed};
use crate::index::{Index, Spot};
use crate::item::{is_expired, Head, Kind, Layout};
use crate::items::{Content, Items, Place};
use crate::memory::{Keeper, Region, SEGMENT_BYTES};
use crate::reply::Outcome;
use crate::sieve::Sieve;
use evict::Drain;
use std::io;

/// How long a key may be.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// How long a value may be.
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// With less memory a shard cannot begin: buckets, lines of chains, and items of one size.
pub const MEMORY_MIN: usize = 3 * SEGMENT_BYTES;

/// What a shard does when its memory is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Refuses what needs more: nothing that is there is lost.
    Never,
    /// Evicts what was not read for long.
    Sieve,
}

/// How a shard is to be.
#[derive(Clone, Copy)]
pub struct Options {
    /// How much memory it may take, in all: buckets, chains and items. At least [`MEMORY_MIN`]. Each size class in use
    /// takes whole segments, so a shard of less than 64 MiB fills early if its values differ much in size.
    pub memory_max: usize,
    /// The secret under which it hashes keys.
    pub seed: Seed,
    /// What it does when that is full. Evicting costs 8 bytes more per item.
    pub eviction: Eviction,
    /// Whether each item has a version: 8 bytes more. A group's members need them (E7), and memcached's `cas`.
    pub has_versions: bool,
    /// How many segments a thread keeps ready, so that growth does not wait for the system. 0 for no thread.
    pub segments_ahead: usize,
    /// The fault that it carries.
    pub planted: Planted,
}

impl Options {
    /// Of 1 GiB, without versions and eviction.
    pub fn with_seed(seed: Seed) -> Options {
        Options {
            memory_max: 1 << 30,
            seed,
            eviction: Eviction::Never,
            has_versions: false,
            segments_ahead: 0,
            planted: Planted::NONE,
        }
    }
}

/// Why there is no shard.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Too little memory was allowed, or more than places can name.
    #[error("a shard takes from {MEMORY_MIN} to {max} bytes of memory, not {asked}: use more shards")]
    Memory {
        /// What was asked for.
        asked: usize,
        /// What is possible.
        max: usize,
    },
    /// The system gave none.
    #[error("memory for a shard: {0}; see ulimit -v and vm.overcommit_memory")]
    System(#[from] io::Error),
}

/// What a shard has done and has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many keys there are, expired ones that nobody has noticed among them.
    pub keys: u64,
    /// What it has taken of its memory.
    pub memory_used: usize,
    /// What it may take.
    pub memory_max: usize,
    /// What live items take of it, whole slots.
    pub slot_bytes: usize,
    /// How many buckets there are.
    pub buckets: u64,
    /// How many further lines buckets that are full have.
    pub overflow_lines: u32,
    /// How many segments nobody had prepared when they were needed: with `segments_ahead`, beyond the first three, a
    /// sign that it should be more.
    pub late_segment_count: u64,
    /// How many keys have expired and were removed.
    pub expired_count: u64,
    /// How many keys were evicted.
    pub evicted_count: u64,
    /// How many writes were refused since there was no memory.
    pub full_count: u64,
}

/// A shard.
pub struct Shard {
    hash: KeyHash,
    index: Index,
    items: Items,
    budget: Budget,
    sieve: Option<Sieve>,
    drain: Drain,
    /// Of the latest write.
    version: u64,
    /// The bucket that is swept next.
    swept: u64,
    /// What lies in it.
    sweeping: Vec<Place>,
    /// How many operations of a batch are prepared together.
    group: usize,
    ahead: batch::Ring,
    /// Where values are put together.
    scratch: Vec<u8>,
    expired_count: u64,
    evicted_count: u64,
    full_count: u64,
    options: Options,
    keeper: Option<Keeper>,
    /// How much memory was taken when the keeper looked.
    told: usize,
    planted: Planted,
}

/// A key that was found.
#[derive(Clone, Copy)]
struct Found {
    spot: Spot,
    place: Place,
    head: Head,
}

/// A key that an operation is about.
#[derive(Clone, Copy)]
struct Target<'a> {
    hash: u64,
    key: &'a [u8],
    found: Option<Found>,
}

/// A value to be written.
#[derive(Clone, Copy)]
struct New<'a> {
    value: &'a [u8],
    kind: Kind,
    expire_s: u32,
    /// How much longer it is likely to become.
    slack: usize,
}

impl Shard {
    /// An empty one.
    pub fn new(options: &Options) -> Result<Shard, StoreError> {
        let Options { memory_max, seed, eviction, has_versions, segments_ahead, planted } = *options;
        let has_links = eviction == Eviction::Sieve;
        // Twice the memory, since values with segments of their own want them in a row.
        let offset_max = if has_links { crate::sieve::OFFSET_MAX } else { crate::index::OFFSET_MAX };
        if memory_max < MEMORY_MIN || memory_max > offset_max / 2 {
            return Err(StoreError::Memory { asked: memory_max, max: offset_max / 2 });
        }
        let mut budget = Budget::new(memory_max);
        let mut index = Index::new(memory_max, &mut budget)?;
        index.plant(planted);
        let mut items = Items::new(Layout { has_meta: has_versions, has_links }, memory_max * 2)?;
        let [main, overflow] = index.regions_mut();
        let keeper = match segments_ahead {
            0 => None,
            ahead => Some(Keeper::start([main, overflow, items.region_mut()], ahead)?),
        };
        Ok(Shard {
            hash: KeyHash::new(seed),
            index,
            items,
            budget,
            sieve: has_links.then(Sieve::new),
            drain: Drain::default(),
            version: 0,
            swept: 0,
            sweeping: Vec::new(),
            group: batch::GROUP,
            ahead: batch::empty_ring(),
            scratch: Vec::new(),
            expired_count: 0,
            evicted_count: 0,
            full_count: 0,
            options: *options,
            keeper,
            told: 0,
            planted,
        })
    }

    /// How many keys there are. Those that have expired count until somebody notices.
    pub fn len(&self) -> u64 {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has taken of its memory: whole segments of buckets, chains and items.
    pub fn memory_used(&self) -> usize {
        self.budget.used()
    }

    /// What it has done and has.
    pub fn stats(&self) -> Stats {
        Stats {
            keys: self.index.len(),
            memory_used: self.budget.used(),
            memory_max: self.budget.memory_max(),
            slot_bytes: self.items.slot_bytes(),
            buckets: self.index.buckets(),
            overflow_lines: self.index.overflow_lines(),
            late_segment_count: self.late_segment_count(),
            expired_count: self.expired_count,
            evicted_count: self.evicted_count,
            full_count: self.full_count,
        }
    }

    fn late_segment_count(&self) -> u64 {
        let [main, overflow] = self.index.regions();
        [main, overflow, self.items.region()].into_iter().map(Region::late_count).sum()
    }

    /// Removes all keys at once (FLUSHALL), and gives their memory back. What was counted, and versions, go on.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        let empty = Shard::new(&self.options)?;
        let before = std::mem::replace(self, empty);
        self.version = before.version;
        self.group = before.group;
        (self.expired_count, self.evicted_count) = (before.expired_count, before.evicted_count);
        self.full_count = before.full_count;
        Ok(())
    }

    /// Gives memory that is not used back to the system. How much.
    pub fn trim(&mut self) -> usize {
        self.items.trim() * SEGMENT_BYTES
    }

    #[inline(always)]
    fn find(&self, hash: u64, key: &[u8]) -> Option<Found> {
        let is_it = |place| self.head_of(place, key);
        let (spot, place, head) = self.index.find(hash, is_it)?;
        Some(Found { spot, place, head })
    }

    #[inline(always)]
    fn head_of(&self, place: Place, key: &[u8]) -> Option<Head> {
        let is_planted = || self.planted.is(StoreFault::CompareTagOnly);
        self.items.head_of(place, key).or_else(|| is_planted().then(|| self.items.head(place)))
    }

    /// The key, unless it has expired: then it is gone (E4).
    #[inline(always)]
    fn unless_expired(&mut self, now_s: u32, hash: u64, found: Option<Found>) -> Option<Found> {
        let found = found?;
        if is_expired(found.head.expire_s(), now_s) && !self.planted.is(StoreFault::IgnoreExpiry) {
            self.remove_expired(hash, &found);
            return None;
        }
        Some(found)
    }

    #[cold]
    fn remove_expired(&mut self, hash: u64, found: &Found) {
        self.remove(hash, found);
        self.expired_count += 1;
    }

    fn target<'a>(&mut self, now_s: u32, key: &'a [u8]) -> Target<'a> {
        let hash = self.hash.of(key);
        let found = self.find(hash, key);
        Target { hash, key, found: self.unless_expired(now_s, hash, found) }
    }

    /// Removes a key.
    fn remove(&mut self, hash: u64, found: &Found) {
        self.index.remove(hash, found.spot);
        self.release(found.place);
    }

    /// Gives back the slot of an item that the index does not know any more.
    fn release(&mut self, place: Place) {
        if let Some(sieve) = &mut self.sieve {
            sieve.remove(&mut self.items, place);
        }
        self.items.give(place, &mut self.budget);
    }

    /// Writes a value; the version that it has now, or why nothing was changed.
    #[inline]
    fn write(&mut self, target: &Target<'_>, new: &New<'_>) -> Result<u64, Outcome> {
        let Target { hash, key, found } = *target;
        if key.len() > KEY_BYTES_MAX || new.value.len() > VALUE_BYTES_MAX {
            return Err(Outcome::TooLong);
        }
        let version = self.version + u64::from(self.items.layout().has_meta);
        let content =
            Content { key, value: new.value, kind: new.kind, expire_s: new.expire_s, meta: version };
        let bytes = self.items.layout().item_bytes(key.len(), new.value.len());
        match found {
            Some(found) if self.items.fits(found.place, bytes) => {
                self.items.overwrite(found.place, &found.head, &content);
                self.touch(found.place);
            }
            _ => self.write_elsewhere(target, bytes + new.slack, &content).ok_or(Outcome::Full)?,
        }
        if new.expire_s != 0 {
            self.index.note_expiry(hash, new.expire_s);
        }
        self.version = version;
        Ok(version)
    }

    /// Writes to a new slot, and gives an old one back only then (E3).
    fn write_elsewhere(&mut self, target: &Target<'_>, bytes: usize, content: &Content<'_>) -> Option<()> {
        let Target { hash, key, mut found } = *target;
        if let Some(forgotten) = found.take_if(|_| self.planted.is(StoreFault::ForgetWhenFull)) {
            self.remove(hash, &forgotten);
        }
        let (place, has_evicted) = self.take(bytes)?;
        self.items.write(place, content);
        if has_evicted && found.is_some() {
            found = self.find(hash, key); // what was evicted may have been it, or have had it moved in its chain
        }
        if let Some(found) = found {
            self.index.redirect(found.spot, place);
            self.add_to_order(place);
            self.release(found.place);
        } else {
            if !self.index_entry(hash, place) {
                self.items.give(place, &mut self.budget);
                self.full_count += 1;
                return None;
            }
            self.add_to_order(place);
            self.grow();
        }
        Some(())
    }

    fn add_to_order(&mut self, place: Place) {
        if let Some(sieve) = &mut self.sieve {
            sieve.add(&mut self.items, place);
        }
    }

    /// Marks an item as read or written again, for whoever evicts.
    #[inline(always)]
    fn touch(&mut self, place: Place) {
        if self.sieve.is_some() {
            self.items.set_visited(place, true);
        }
    }

    /// Has the table keep pace with its entries.
    #[inline]
    fn grow(&mut self) {
        self.index.grow(&self.items, &self.hash, &mut self.budget);
        if self.sieve.is_some() {
            self.drain_some();
        }
        if let Some(keeper) = self.keeper.as_mut().filter(|_| self.told != self.budget.used()) {
            self.told = self.budget.used();
            keeper.look();
        }
    }
}
