//! Memory of one owner that grows segment by segment and never moves.
//!
//! Invariant: what is read and written lies within the committed prefix of the range, or the call panics. What was
//! never written is zero.
#![allow(unsafe_code)]

use super::mapping::{Mapping, Pages};
use super::prefetch::prefetch;
use super::{LINE_BYTES, SEGMENT_BYTES};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A growing piece of memory.
pub(crate) struct Region {
    base: NonNull<u8>,
    committed: usize,
    /// Of segments that nobody has prepared.
    pages: Pages,
    /// How many segments nobody had prepared when they were needed.
    late_count: u64,
    mapping: Arc<Mapping>,
}

// SAFETY: the memory has one owner, this value; who else holds the mapping touches no content.
unsafe impl Send for Region {}

impl Region {
    /// One that may grow to `bytes_max`.
    pub fn reserve(bytes_max: usize) -> io::Result<Region> {
        let mapping = Arc::new(Mapping::reserve(bytes_max)?);
        Ok(Region { base: mapping.base(), committed: 0, pages: Pages::HugeNow, late_count: 0, mapping })
    }

    /// Somebody prepares segments. Where he is late, nobody waits for a huge page.
    pub fn is_kept(&mut self) {
        self.pages = Pages::SmallLater;
    }

    pub(super) fn mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.mapping)
    }

    /// How many segments nobody had prepared when they were needed.
    pub fn late_count(&self) -> u64 {
        self.late_count
    }

    /// How much of it can be used.
    pub fn committed(&self) -> usize {
        self.committed
    }

    /// Grows by a segment; `false` if the system has none or the range ends.
    pub fn commit(&mut self) -> bool {
        let segments = self.committed / SEGMENT_BYTES + 1;
        self.late_count += u64::from(segments > self.mapping.prepared());
        if segments > self.mapping.segments_max() || self.mapping.prepare(segments, self.pages).is_err() {
            return false;
        }
        self.committed = segments * SEGMENT_BYTES;
        self.mapping.want(segments);
        true
    }

    /// Gives back the memory of a segment that stays committed: it is zero again.
    pub fn discard(&mut self, segment: usize) {
        assert!((segment + 1) * SEGMENT_BYTES <= self.committed, "the segment is committed");
        self.mapping.discard(segment);
    }

    /// Where `length` bytes at `at` begin, if they lie in what is committed.
    #[inline(always)]
    fn place(&self, at: usize, length: usize) -> NonNull<u8> {
        let end = at.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.committed), "memory that is not committed");
        // SAFETY: `at` lies within the range, as asserted.
        unsafe { self.base.add(at) }
    }

    /// Where the word at `at` is.
    #[inline(always)]
    fn word_place(&self, at: usize) -> NonNull<u64> {
        // Whole segments are committed, so a word that begins within is within.
        assert!(at.is_multiple_of(8) && at < self.committed, "a word that is not committed");
        // SAFETY: `at` lies within the range, as asserted.
        unsafe { self.base.add(at) }.cast()
    }

    /// Where the line of that number is.
    #[inline(always)]
    fn line_place(&self, number: usize) -> NonNull<[u64; 8]> {
        assert!(number < self.committed / LINE_BYTES, "a line that is not committed");
        // SAFETY: the line lies within the range, as asserted.
        unsafe { self.base.add(number * LINE_BYTES) }.cast()
    }

    /// The bytes there.
    #[inline(always)]
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        let start = self.place(at, length);
        // SAFETY: committed memory is initialised, and the borrow of `self` keeps its one owner from writing it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// The bytes there, to be written.
    #[inline(always)]
    pub fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        let start = self.place(at, length);
        // SAFETY: committed memory is initialised, and the borrow of `self` keeps everybody else away.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// The eight bytes at `at`, a multiple of eight.
    #[inline(always)]
    pub fn word(&self, at: usize) -> u64 {
        let start = self.word_place(at);
        // SAFETY: committed, initialised, and aligned since the range is aligned to a segment.
        unsafe { start.read() }
    }

    /// Writes the eight bytes at `at`, a multiple of eight.
    #[inline(always)]
    pub fn set_word(&mut self, at: usize, word: u64) {
        let start = self.word_place(at);
        // SAFETY: committed, ours alone, and aligned since the range is aligned to a segment.
        unsafe { start.write(word) };
    }

    /// The line of that number.
    #[inline(always)]
    pub fn line(&self, number: usize) -> &[u64; 8] {
        let start = self.line_place(number);
        // SAFETY: committed, initialised, aligned; the borrow of `self` keeps its one owner from writing it.
        unsafe { start.as_ref() }
    }

    /// The line of that number, to be written.
    #[inline(always)]
    pub fn line_mut(&mut self, number: usize) -> &mut [u64; 8] {
        let mut start = self.line_place(number);
        // SAFETY: committed, initialised, aligned; the borrow of `self` keeps everybody else away.
        unsafe { start.as_mut() }
    }

    /// Has the lines of `length` bytes at `at` be fetched: at most three, which the processor takes for a stream.
    #[inline(always)]
    pub fn prefetch_lines(&self, at: usize, length: usize) {
        if length == 0 || length > self.committed || at > self.committed - length {
            return;
        }
        let beyond = (at % LINE_BYTES + length - 1) / LINE_BYTES;
        // SAFETY: each of these lines has a byte of the range that was asked for.
        let line =
            |number: usize| unsafe { self.base.add(at / LINE_BYTES * LINE_BYTES + number * LINE_BYTES) };
        prefetch(line(0));
        if beyond > 0 {
            prefetch(line(1));
        }
        if beyond > 1 {
            prefetch(line(2));
        }
    }

    /// Has the line around `at` be fetched, if there is one.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        if at < self.committed {
            // SAFETY: `at` lies within the range.
            prefetch(unsafe { self.base.add(at) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_committed_cannot_be_reached() {
        let mut region = Region::reserve(2 * SEGMENT_BYTES).expect("addresses");
        let outside = |region: &Region, at, length| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| region.bytes(at, length).len())).is_err()
        };
        assert!(outside(&region, 0, 1));
        assert!(region.commit());
        assert!(!outside(&region, 0, SEGMENT_BYTES) && outside(&region, 1, SEGMENT_BYTES));
        assert!(outside(&region, usize::MAX, 2) && outside(&region, 8, usize::MAX - 4));
        assert!(region.commit() && !region.commit(), "it ends where it was said to");
        region.bytes_mut(SEGMENT_BYTES, 3).copy_from_slice(b"abc");
        assert_eq!(region.bytes(SEGMENT_BYTES, 5), b"abc\0\0");
        region.set_word(SEGMENT_BYTES, 7);
        assert_eq!((region.word(SEGMENT_BYTES), region.line(SEGMENT_BYTES / LINE_BYTES)[0]), (7, 7));
        region.discard(1);
        assert_eq!(region.word(SEGMENT_BYTES), 0);
    }
}
