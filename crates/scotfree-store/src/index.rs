//! Linear hashing over buckets of one cache line: seven entries, and a word for the chain.
//!
//! ```text
//! entry: | tag 16 | next hash bits 8 | offset of the item 39, in eights | 1 if used |
//! word:  | not later than this something expires 32 | next line of the chain 32, from 1 |
//! ```
//!
//! The next hash bits are those by which the bucket will be split, so that only one split in eight doublings looks at
//! items.
//!
//! Invariant: an entry is in the chain of its home bucket, once, with the marks of that bucket's level. All lines of a
//! chain but the last are full.

mod chain;
mod entry;
mod split;

pub(crate) use entry::{Guess, Line, Probe, Spot, Wanted, OFFSET_MAX};

use crate::budget::Budget;
use crate::fault::{Planted, StoreFault};
use crate::items::Place;
use crate::memory::{Region, LINE_BYTES, SEGMENT_BYTES};
use entry::{LINK, SLOTS};
use std::io;

/// How many entries a bucket has on average before one is split. Buckets that are next to be split have up to twice as
/// many as those that were: with five, one look-up in twelve goes on to a second line.
const ENTRIES_PER_BUCKET: u64 = 5;
/// By how many bits of the hash the first buckets differ.
const FIRST_LEVEL: u32 = 6;

/// The home of a hash.
#[derive(Debug, Clone, Copy)]
struct Home {
    bucket: u64,
    /// How many bits of the hash tell its bucket.
    bits: u32,
}

/// The buckets.
pub(crate) struct Index {
    main: Region,
    overflow: Region,
    level: u32,
    /// How many buckets of this level have been split.
    split: u64,
    len: u64,
    /// The first free line among those of chains, from 1; 0 for none.
    line_free: u32,
    /// How many lines of chains were ever used.
    line_fresh: u32,
    line_used: u32,
    /// Entries of a bucket that is split.
    moving: Vec<u64>,
    planted: Planted,
}

impl Index {
    /// An empty one, which may grow to `bytes_max`.
    pub fn new(bytes_max: usize, budget: &mut Budget) -> io::Result<Index> {
        let mut main = Region::reserve(bytes_max)?;
        if !budget.take(SEGMENT_BYTES) || !main.commit() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Index {
            main,
            overflow: Region::reserve(bytes_max)?,
            level: FIRST_LEVEL,
            split: 0,
            len: 0,
            line_free: 0,
            line_fresh: 0,
            line_used: 0,
            moving: Vec::with_capacity(64),
            planted: Planted::NONE,
        })
    }

    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// What it consists of.
    pub fn regions(&self) -> [&Region; 2] {
        [&self.main, &self.overflow]
    }

    pub fn regions_mut(&mut self) -> [&mut Region; 2] {
        [&mut self.main, &mut self.overflow]
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> u64 {
        (1 << self.level) + self.split
    }

    /// How many further lines chains have.
    pub fn overflow_lines(&self) -> u32 {
        self.line_used
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> Home {
        let mask = (1u64 << self.level) - 1;
        let is_split = (hash & mask) < self.split;
        let bits = self.level + u32::from(is_split);
        Home { bucket: hash & (mask << u32::from(is_split) | u64::from(is_split)), bits }
    }

    #[inline(always)]
    fn line(&self, line: Line) -> &[u64; 8] {
        match line.of_chain() {
            None => self.main.line(line.number()),
            Some(number) => self.overflow.line(number),
        }
    }

    #[inline(always)]
    fn line_mut(&mut self, line: Line) -> &mut [u64; 8] {
        match line.of_chain() {
            None => self.main.line_mut(line.number()),
            Some(number) => self.overflow.line_mut(number),
        }
    }

    /// Has the bucket of a hash be fetched; what to look for in it.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) -> Wanted {
        let home = self.home(hash);
        self.main.prefetch(home.bucket as usize * LINE_BYTES);
        Wanted { line: Line::main(home.bucket), mark: entry::mark(hash, home.bits) }
    }

    /// Has a bucket be fetched, if there is one of that number.
    pub fn prefetch_bucket(&self, bucket: u64) {
        self.main.prefetch(bucket as usize * LINE_BYTES);
    }

    /// What a line tells of what is wanted. Guesses all: the bucket may have been split since.
    #[inline(always)]
    pub fn probe(&self, wanted: Wanted) -> Probe {
        let probe = self.probe_line(wanted.line, wanted.mark);
        if let Probe::GoesOn(next) = probe {
            self.overflow.prefetch(next.number() * LINE_BYTES);
        }
        probe
    }

    #[inline(always)]
    fn probe_line(&self, at: Line, mark: u64) -> Probe {
        let line = self.line(at);
        let matching = entry::matching(line, mark);
        if matching == 0 {
            return entry::next_of(line).map_or(Probe::Nothing, Probe::GoesOn);
        }
        let slot = matching.trailing_zeros() as usize;
        Probe::Seen(Guess { spot: Spot { line: at, slot: slot as u8 }, word: line[slot] })
    }

    /// The place that was guessed, if the entry is still as it was.
    #[inline(always)]
    pub fn place_of(&self, guess: &Guess) -> Option<Place> {
        let word = self.line(guess.spot.line)[usize::from(guess.spot.slot & 7)];
        (word == guess.word && entry::is_used(word)).then(|| entry::place(word))
    }

    /// Looks for the entry of a hash that `is_it` takes.
    #[inline(always)]
    pub fn find<T>(&self, hash: u64, mut is_it: impl FnMut(Place) -> Option<T>) -> Option<(Spot, Place, T)> {
        let home = self.home(hash);
        let mark = entry::mark(hash, home.bits);
        let mut at = Line::main(home.bucket);
        loop {
            let line = self.line(at);
            let mut matching = entry::matching(line, mark);
            while matching != 0 {
                let slot = matching.trailing_zeros() as usize;
                let place = entry::place(line[slot]);
                if let Some(found) = entry::is_used(line[slot]).then(|| is_it(place)).flatten() {
                    return Some((Spot { line: at, slot: slot as u8 }, place, found));
                }
                matching &= matching - 1;
            }
            at = entry::next_of(line)?;
        }
    }

    /// Adds an entry. `false` if there is no memory for the line that it would need: then nothing has changed (E3).
    #[must_use]
    pub fn insert(&mut self, hash: u64, place: Place, budget: &mut Budget) -> bool {
        let home = self.home(hash);
        let word = entry::mark(hash, home.bits) | entry::offset(place);
        let is_in = self.push(Line::main(home.bucket), word, budget);
        self.len += u64::from(is_in);
        is_in
    }

    /// Has an entry lead to another place.
    pub fn redirect(&mut self, spot: Spot, place: Place) {
        let word = &mut self.line_mut(spot.line)[usize::from(spot.slot)];
        *word = entry::mark_of(*word) | entry::offset(place);
    }

    /// Removes an entry.
    pub fn remove(&mut self, hash: u64, spot: Spot) {
        let home = Line::main(self.home(hash).bucket);
        self.line_mut(spot.line)[usize::from(spot.slot)] = 0;
        self.len -= 1;
        self.close_up(home, spot);
    }

    /// The places in a bucket, the whole chain.
    pub fn for_each_of(&self, bucket: u64, mut visit: impl FnMut(Place)) {
        let mut at = Some(Line::main(bucket));
        while let Some(line) = at.map(|at| self.line(at)) {
            line[..SLOTS]
                .iter()
                .filter(|word| entry::is_used(**word))
                .for_each(|word| visit(entry::place(*word)));
            at = entry::next_of(line);
        }
    }

    /// Not later than when something in the bucket expires; 0 if nothing does.
    pub fn earliest(&self, bucket: u64) -> u32 {
        (self.main.line(bucket as usize)[LINK] >> 32) as u32
    }

    pub fn set_earliest(&mut self, bucket: u64, expire_s: u32) {
        let link = &mut self.main.line_mut(bucket as usize)[LINK];
        *link = *link & u64::from(u32::MAX) | u64::from(expire_s) << 32;
    }

    /// Notes that something with that hash expires then.
    pub fn note_expiry(&mut self, hash: u64, expire_s: u32) {
        let bucket = self.home(hash).bucket;
        let earliest = self.earliest(bucket);
        let is_sooner = earliest == 0 || expire_s < earliest;
        let is_kept = earliest != 0 && self.planted.is(StoreFault::KeepFirstExpiry);
        if expire_s != 0 && is_sooner && !is_kept {
            self.set_earliest(bucket, expire_s);
        }
    }
}
