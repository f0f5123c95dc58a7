//! How large a ring and its entries are.

use crate::words::WORD_BYTES;
use std::ops::Range;

/// What an entry has before its payload: the seal (lap, and the message's length) and what the message belongs to.
pub const HEAD_BYTES: usize = 2 * WORD_BYTES;
pub(crate) const HEAD_WORDS: usize = HEAD_BYTES / WORD_BYTES;

const LINE_BYTES: u32 = 64;
const ENTRIES_MAX: u32 = 1 << 16;
const ENTRY_BYTES_MAX: u32 = 1 << 16;

/// The measures of a ring; they never change while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    entries: u32,
    entry_bytes: u32,
}

/// Measures that no ring has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Positions are counted modulo a power of two.
    #[error("a ring of {0} entries: give a power of two from 2 to 65536")]
    Entries(u32),
    /// Entries lie in whole lines of the cache.
    #[error("entries of {0} bytes: give a multiple of 64, up to 65536")]
    EntryBytes(u32),
}

impl Shape {
    /// A ring of so many entries of so many bytes.
    pub fn new(entries: u32, entry_bytes: u32) -> Result<Shape, ShapeError> {
        if !entries.is_power_of_two() || !(2..=ENTRIES_MAX).contains(&entries) {
            return Err(ShapeError::Entries(entries));
        }
        if entry_bytes == 0 || !entry_bytes.is_multiple_of(LINE_BYTES) || entry_bytes > ENTRY_BYTES_MAX {
            return Err(ShapeError::EntryBytes(entry_bytes));
        }
        Ok(Shape { entries, entry_bytes })
    }

    /// How many entries there are.
    pub fn entries(self) -> u32 {
        self.entries
    }

    /// The bytes of an entry, its head among them.
    pub fn entry_bytes(self) -> u32 {
        self.entry_bytes
    }

    /// The bytes of the ring in memory.
    pub fn bytes(self) -> usize {
        self.entries as usize * self.entry_bytes as usize
    }

    /// The words of the ring in memory.
    pub fn words(self) -> usize {
        self.bytes() / WORD_BYTES
    }

    /// What one entry carries.
    pub fn payload_bytes(self) -> usize {
        self.entry_bytes as usize - HEAD_BYTES
    }

    /// The longest message: what half of the ring carries, so that one that waits for room finds it.
    pub fn message_bytes_max(self) -> usize {
        (self.entries as usize / 2) * self.payload_bytes()
    }

    /// How many entries a message takes; one without bytes takes one.
    pub fn entries_of(self, bytes: usize) -> u32 {
        bytes.div_ceil(self.payload_bytes()).max(1) as u32
    }

    /// Where the entry at this position lies, in words.
    pub(crate) fn entry(self, position: u32) -> Range<usize> {
        let words = self.entry_bytes as usize / WORD_BYTES;
        let start = (position & (self.entries - 1)) as usize * words;
        start..start + words
    }

    /// Which time the ring is gone round at this position: never 0, which is what memory holds before it is written.
    pub(crate) fn lap(self, position: u32) -> u32 {
        (position >> self.entries.trailing_zeros()) + 1
    }
}

/// The first word of an entry: its lap below, the length of the message above. One word, so that the length that was
/// checked is the length that is used (B4).
pub(crate) fn seal(lap: u32, bytes: usize) -> u64 {
    u64::from(lap) | (bytes as u64) << 32
}

/// (lap, length) of a seal.
pub(crate) fn unsealed(word: u64) -> (u32, usize) {
    (word as u32, (word >> 32) as usize)
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_ring_can_be_is_refused_with_what_it_may_be() {
        for entries in [0, 1, 3, 2 * ENTRIES_MAX] {
            assert_eq!(Shape::new(entries, 128), Err(ShapeError::Entries(entries)));
        }
        for bytes in [0, 63, 100, ENTRY_BYTES_MAX + 64] {
            assert_eq!(Shape::new(8, bytes), Err(ShapeError::EntryBytes(bytes)));
        }
        assert!(Shape::new(7, 64).is_err_and(|error| error.to_string().contains("a power of two from 2")));
    }

    #[test]
    fn no_two_laps_of_an_entry_are_alike_even_where_positions_begin_anew() {
        let shape = Shape::new(4, 64).expect("a ring");
        assert_eq!((shape.lap(0), shape.lap(3), shape.lap(4)), (1, 1, 2));
        assert_ne!(shape.lap(u32::MAX), shape.lap(0));
        assert_eq!(unsealed(seal(7, 300)), (7, 300));
        assert_eq!((shape.entries_of(0), shape.entries_of(48), shape.entries_of(49)), (1, 1, 2));
    }
}
