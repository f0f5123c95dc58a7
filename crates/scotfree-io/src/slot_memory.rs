//! What a log with slots asks of the memory that the slots lie in.
//!
//! Invariant: whatever was written, or stored and written back, before a [`SlotMemory::fence`] is on the
//! medium when that returns; what came after it may have reached the medium in any order, or not at
//! all, cache line by cache line.

use crate::sys::map::SharedMap;
use std::ops::Range;

/// The unit in which processors write back to memory.
pub const LINE_BYTES: usize = 64;

/// Memory with a word on when it survives. What the medium is, and so what it survives, is the maker's
/// affair; a medium that only has to outlast this process has nothing to do for the last two.
pub trait SlotMemory: Send {
    /// Reads a range, as this process sees it.
    fn bytes(&self, range: Range<usize>) -> &[u8];

    /// Writes `content` at `offset` and starts to bring it to the medium.
    fn write(&mut self, offset: usize, content: &[u8]);

    /// Stores the word at `offset`, a multiple of 4, in one piece: in program order it lies after every
    /// earlier store and before every later one.
    fn store(&mut self, offset: usize, word: u32);

    /// Starts to bring the lines of a range to the medium.
    fn write_back(&mut self, range: Range<usize>);

    /// Waits until what was started is done.
    fn fence(&mut self);
}

/// Memory that has to outlast the process, which a mapping of a file does without further ado.
impl SlotMemory for SharedMap {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        SharedMap::bytes(self, range)
    }

    fn write(&mut self, offset: usize, content: &[u8]) {
        self.bytes_mut(offset..offset + content.len()).copy_from_slice(content);
    }

    fn store(&mut self, offset: usize, word: u32) {
        self.store_fenced(offset, word);
    }

    fn write_back(&mut self, _range: Range<usize>) {}

    fn fence(&mut self) {}
}
