//! A file mapped into memory, shared with the page cache or, where the file system offers it, with the
//! persistent memory that the file lies in.
//!
//! Invariant: the file is locked exclusively by its owner and never shortened while it is mapped, so
//! no access faults and no other process writes to it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{compiler_fence, AtomicU32, Ordering};

/// A mapped file.
pub struct SharedMap {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it, and has one owner.
unsafe impl Send for SharedMap {}

impl SharedMap {
    /// Maps the first `length` bytes of `file`, which the caller has locked and which is that long.
    pub fn new(file: &File, length: usize) -> io::Result<SharedMap> {
        SharedMap::map(file, length, libc::MAP_SHARED)
    }

    /// The same where stores, once flushed out of the processor, survive a loss of power: the file
    /// system then has the file's blocks on the medium before a store to them can happen. An error of
    /// the system where it does not offer that.
    pub fn new_synchronous(file: &File, length: usize) -> io::Result<SharedMap> {
        SharedMap::map(file, length, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC)
    }

    fn map(file: &File, length: usize, flags: i32) -> io::Result<SharedMap> {
        assert!(length > 0 && file.metadata()?.len() >= length as u64, "the mapped range lies in the file");
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a place that nothing else has; the file is at least `length` bytes
        // long, see the module's invariant.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, rights, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(SharedMap { start, length })
    }

    /// Reads a range.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long and lives as long as the borrow of `self`.
        let all = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) };
        &all[range]
    }

    /// Writes a range.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: as in `bytes`; the borrow of `self` is the only one.
        let all = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) };
        &mut all[range]
    }

    /// Stores the word at `offset`, a multiple of 4, so that in program order, which is what the death
    /// of this process preserves, it lies after every earlier store and before every later one.
    pub fn store_fenced(&mut self, offset: usize, value: u32) {
        #[allow(clippy::cast_ptr_alignment)] // Checked in the next line.
        let place = self.bytes_mut(offset..offset + 4).as_mut_ptr().cast::<u32>();
        assert!(place.is_aligned(), "state words are aligned");
        // SAFETY: `place` is aligned, lies in the map and is borrowed mutably here.
        let word = unsafe { AtomicU32::from_ptr(place) };
        // Release keeps earlier stores before it; the fence keeps later ones from moving up.
        word.store(value, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `map`, and nothing borrows from it any more.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert_eq!(result, 0, "our own mapping can be undone");
    }
}
