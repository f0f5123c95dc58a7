//! A file mapped into memory, shared with the page cache.
//!
//! Invariant: the file is locked exclusively by its owner and never shortened while it is mapped, so
//! no access faults and no other process writes to it.

use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{compiler_fence, AtomicU32, Ordering};

/// A mapped file.
pub struct SharedMap {
    map: MmapMut,
}

impl SharedMap {
    /// Maps the first `length` bytes of `file`, which the caller has locked and which is that long.
    pub fn new(file: &File, length: usize) -> io::Result<SharedMap> {
        assert!(file.metadata()?.len() >= length as u64, "the mapped range lies in the file");
        // SAFETY: the caller holds the exclusive lock that every user of this format takes, and the
        // file is at least `length` bytes long; see the module's invariant.
        let map = unsafe { MmapOptions::new().len(length).map_mut(file) }?;
        Ok(SharedMap { map })
    }

    /// Reads a range.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.map[range]
    }

    /// Writes a range.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.map[range]
    }

    /// Stores the word at `offset`, a multiple of 4, so that in program order, which is what the death
    /// of this process preserves, it lies after every earlier store and before every later one.
    pub fn store_fenced(&mut self, offset: usize, value: u32) {
        #[allow(clippy::cast_ptr_alignment)] // Checked in the next line.
        let place = self.map[offset..offset + 4].as_mut_ptr().cast::<u32>();
        assert!(place.is_aligned(), "state words are aligned");
        // SAFETY: `place` is aligned, lies in the map and is borrowed mutably here.
        let word = unsafe { AtomicU32::from_ptr(place) };
        // Release keeps earlier stores before it; the fence keeps later ones from moving up.
        word.store(value, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}
