//! A table's memory, mapped for reading and writing.
//!
//! Invariant: the mapping lives as long as its value, whose place and length never change.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A table's memory, which the kernel's programs read and write at the same time.
pub struct Memory {
    place: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the mapping, not to a thread; who reads or writes it says how.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map` with this length and nothing borrows from it any more.
        unsafe { libc::munmap(self.place.as_ptr().cast(), self.length()) };
    }
}

impl Memory {
    /// Maps so many bytes of a table.
    pub(crate) fn map(table: BorrowedFd<'_>, bytes: usize) -> io::Result<Memory> {
        let length = bytes.next_multiple_of(4096);
        // SAFETY: a new shared mapping of a descriptor that is open; the kernel checks the length.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                table.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let place = NonNull::new(memory).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Memory { place: place.cast(), bytes })
    }

    /// Where it begins: at a page.
    pub fn place(&self) -> NonNull<u8> {
        self.place
    }

    /// How many bytes of it are the table's.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn length(&self) -> usize {
        self.bytes.next_multiple_of(4096)
    }

    /// Fills it with zeros. No program and nobody else may use it now.
    pub(crate) fn clear(&self) {
        // SAFETY: the bytes lie in the mapping; by this function's rule nobody reads or writes them meanwhile.
        unsafe { self.place.as_ptr().write_bytes(0, self.bytes) };
    }
}
