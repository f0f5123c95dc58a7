//! Entries of a line, and where a line is.
//!
//! Invariant: an entry that is used is not zero, and its mark says as much of the hash as its bits above the offset.

use crate::items::Place;
use crate::memory::equal_upper_halves;

/// How many entries a line has.
pub(super) const SLOTS: usize = 7;
/// The word of a line that is no entry.
pub(super) const LINK: usize = 7;
/// Below the mark.
const MARK_SHIFT: u32 = 40;
const OFFSET_MASK: u64 = (1 << MARK_SHIFT) - 8;
const USED: u64 = 1;
/// How far an item may lie from the first.
pub(crate) const OFFSET_MAX: usize = 1 << MARK_SHIFT;

/// A line: of the buckets, or one further down a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line(u64);

impl Line {
    const OF_CHAIN: u64 = 1 << 63;

    #[inline(always)]
    pub fn main(bucket: u64) -> Line {
        Line(bucket)
    }

    /// By its number from 1.
    #[inline(always)]
    pub fn chain(number: u32) -> Line {
        Line(Line::OF_CHAIN | u64::from(number - 1))
    }

    /// Its number among the lines of chains.
    #[inline(always)]
    pub fn of_chain(self) -> Option<usize> {
        (self.0 & Line::OF_CHAIN != 0).then(|| self.number())
    }

    #[inline(always)]
    pub fn number(self) -> usize {
        (self.0 & !Line::OF_CHAIN) as usize
    }
}

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub line: Line,
    pub slot: u8,
}

/// An entry that was seen, and may be gone when it is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guess {
    pub spot: Spot,
    pub word: u64,
}

/// What to look for, and in which line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub line: Line,
    pub mark: u64,
}

/// What a line tells of a hash.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Probe {
    /// There is no such entry.
    Nothing,
    /// There is one with that mark.
    Seen(Guess),
    /// The chain goes on.
    GoesOn(Line),
}

impl Guess {
    /// Where it leads.
    #[inline(always)]
    pub fn place(&self) -> Place {
        place(self.word)
    }
}

/// What an entry tells of its hash, in a bucket of so many bits: the tag, and the eight bits of which the next split
/// takes one.
#[inline(always)]
pub(super) fn mark(hash: u64, bits: u32) -> u64 {
    let tag = hash >> 48;
    let next = hash >> (bits & !7) & 0xff;
    (tag << 8 | next) << MARK_SHIFT
}

/// The hash's bit by which a bucket of so many bits is split.
pub(super) fn splits_to_new(word: u64, bits: u32) -> bool {
    word >> (MARK_SHIFT + (bits & 7)) & 1 != 0
}

/// Whether a bucket with one bit more has other bits in its marks.
pub(super) fn is_mark_used_up(bits: u32) -> bool {
    (bits + 1).is_multiple_of(8)
}

#[inline(always)]
pub(super) fn mark_of(word: u64) -> u64 {
    word & !((1 << MARK_SHIFT) - 1)
}

#[inline(always)]
pub(super) fn offset(place: Place) -> u64 {
    place.offset() as u64 | USED
}

#[inline(always)]
pub(super) fn place(word: u64) -> Place {
    Place::new((word & OFFSET_MASK) as usize)
}

#[inline(always)]
pub(super) fn is_used(word: u64) -> bool {
    word & USED != 0
}

/// A bit for each entry that has that mark; of one that is not used, only if the mark is 0.
#[inline(always)]
pub(super) fn matching(line: &[u64; 8], mark: u64) -> u32 {
    equal_upper_halves(line, u32::MAX << (MARK_SHIFT - 32), (mark >> 32) as u32) & ((1 << SLOTS) - 1)
}

/// The next line of the chain.
#[inline(always)]
pub(super) fn next_of(line: &[u64; 8]) -> Option<Line> {
    let next = line[LINK] as u32;
    (next != 0).then(|| Line::chain(next))
}

/// Has another line follow.
pub(super) fn set_next(line: &mut [u64; 8], next: u32) {
    line[LINK] = line[LINK] & !u64::from(u32::MAX) | u64::from(next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_all_that_a_split_needs_until_its_bits_are_used_up() {
        let hash = 0xabcd_1234_5678_9abc;
        for bits in 0..32 {
            let word = mark(hash, bits) | offset(Place::new(0xf8));
            assert_eq!(splits_to_new(word, bits), hash >> bits & 1 == 1);
            assert_eq!((place(word), is_used(word)), (Place::new(0xf8), true));
            assert_eq!(mark_of(word), mark(hash, bits));
            assert_eq!(
                is_mark_used_up(bits),
                mark(hash, bits) >> MARK_SHIFT & 0xff != hash >> ((bits + 1) & !7) & 0xff
            );
            let line = [word, 0, word ^ 1 << 50, word, 0, 0, 0, word];
            assert_eq!(matching(&line, mark(hash, bits)), 0b1001);
        }
    }
}
