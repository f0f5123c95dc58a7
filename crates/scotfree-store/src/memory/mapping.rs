//! A range of addresses that is reserved at once and given memory segment by segment.
//!
//! Invariant: the range belongs to this mapping until it is dropped; what has been prepared can be read and written
//! and was zero before its first use.
#![allow(unsafe_code)]

use super::SEGMENT_BYTES;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of what size pages are, and when they are zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// A huge page, at once: 100 to 500 us.
    HugeNow,
    /// Small ones, as they are touched: a few us each.
    SmallLater,
}

/// Reserved addresses.
pub(super) struct Mapping {
    /// Of the first segment.
    base: NonNull<u8>,
    /// What the system gave, which begins earlier since it aligns to pages only.
    #[cfg(not(miri))]
    given: (NonNull<u8>, usize),
    /// Whether all of it may be read and written from the beginning.
    #[cfg(not(miri))]
    has_rights: bool,
    bytes: usize,
    /// How many segments, from the first on, have memory behind them.
    prepared: AtomicUsize,
    /// How many of them their owner has begun to use.
    wanted: AtomicUsize,
}

// SAFETY: the range belongs to the process, not to a thread. Through a shared reference nothing of its content is read
// or written: `prepare` asks the system for memory, which is the same whoever asks and how often.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Where the first segment begins.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many segments there can be.
    pub fn segments_max(&self) -> usize {
        self.bytes / SEGMENT_BYTES
    }

    /// Notes that the owner uses so many segments, for a keeper who prepares further ones.
    pub fn want(&self, segments: usize) {
        self.wanted.store(segments, Ordering::Relaxed); // a hint: nothing is read by virtue of it
    }

    /// How many more segments a keeper should prepare, so that `ahead` are ready.
    pub fn lacking(&self, ahead: usize) -> usize {
        let goal = (self.wanted.load(Ordering::Relaxed) + ahead).min(self.segments_max());
        goal.saturating_sub(self.prepared())
    }

    /// How many segments have memory.
    pub fn prepared(&self) -> usize {
        self.prepared.load(Ordering::Acquire) // pairs with the release in `prepare`
    }

    /// Has the segments before `segments` be memory that can be used: huge pages, zeroed now, or small ones, each
    /// zeroed at its first touch.
    pub fn prepare(&self, segments: usize, pages: Pages) -> io::Result<()> {
        assert!(segments <= self.segments_max(), "what is prepared lies in the range");
        for segment in self.prepared()..segments {
            self.give_memory(segment, pages)?;
            self.prepared.fetch_max(segment + 1, Ordering::Release); // what came before is done: see `prepared`
        }
        Ok(())
    }
}

#[cfg(not(miri))]
impl Mapping {
    /// Reserves at least `bytes_max`, without memory behind them.
    pub fn reserve(bytes_max: usize) -> io::Result<Mapping> {
        let bytes = bytes_max.next_multiple_of(SEGMENT_BYTES);
        let length = bytes + SEGMENT_BYTES;
        // Where the system lets nobody reserve what he may never use, rights are given segment by segment.
        let (given, has_rights) = match map(length, libc::PROT_READ | libc::PROT_WRITE) {
            Ok(given) => (given, true),
            Err(_) => (map(length, libc::PROT_NONE)?, false),
        };
        let skipped = given.as_ptr().align_offset(SEGMENT_BYTES);
        // SAFETY: at most a segment less one byte is skipped, and the range is a segment longer than asked for.
        let base = unsafe { given.add(skipped) };
        let (prepared, wanted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Mapping { base, given: (given, length), has_rights, bytes, prepared, wanted })
    }

    fn give_memory(&self, segment: usize, pages: Pages) -> io::Result<()> {
        // SAFETY: the segment lies in the range, as `prepare` has asserted.
        let start = unsafe { self.base.add(segment * SEGMENT_BYTES) }.as_ptr().cast();
        if !self.has_rights {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the segment lies in the range, and nobody loses a right that he had.
            if unsafe { libc::mprotect(start, SEGMENT_BYTES, rights) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        if pages == Pages::SmallLater {
            return Ok(());
        }
        // A huge page costs one entry of the TLB instead of 512. Refused where the system has none: then without.
        // SAFETY: advice about a range of ours, which changes no content.
        unsafe { libc::madvise(start, SEGMENT_BYTES, libc::MADV_HUGEPAGE) };
        // Faults now, where a keeper pays them; systems that do not know this do it at the first touch.
        // SAFETY: gives memory to pages that have none and changes no content of others.
        unsafe { libc::madvise(start, SEGMENT_BYTES, libc::MADV_POPULATE_WRITE) };
        Ok(())
    }

    /// Gives the memory of `segment` back; it is zero when it is used again.
    pub fn discard(&self, segment: usize) {
        assert!(segment < self.prepared(), "what is discarded has been prepared");
        // SAFETY: the segment lies in the range, as asserted.
        let start = unsafe { self.base.add(segment * SEGMENT_BYTES) }.as_ptr().cast();
        // SAFETY: the caller is the owner, by whose `&mut` nothing of the segment is borrowed.
        unsafe { libc::madvise(start, SEGMENT_BYTES, libc::MADV_DONTNEED) };
    }
}

/// Maps `length` bytes without memory behind them.
#[cfg(not(miri))]
fn map(length: usize, rights: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses a place that nothing else has.
    let given = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, -1, 0) };
    if given == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(given.cast::<u8>()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(not(miri))]
impl Drop for Mapping {
    fn drop(&mut self) {
        let (start, length) = self.given;
        // SAFETY: what the system gave, once; nothing borrows from it any more.
        let result = unsafe { libc::munmap(start.as_ptr().cast(), length) };
        assert_eq!(result, 0, "the range was mapped by `reserve`");
    }
}

/// An interpreter does not know all of these calls: there the whole range is allocated at once.
#[cfg(miri)]
impl Mapping {
    fn layout(bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes, SEGMENT_BYTES).expect("a few MiB")
    }

    /// Reserves at least `bytes_max`.
    pub fn reserve(bytes_max: usize) -> io::Result<Mapping> {
        let bytes = bytes_max.next_multiple_of(SEGMENT_BYTES).max(SEGMENT_BYTES);
        // SAFETY: the layout has a size.
        let base = unsafe { std::alloc::alloc_zeroed(Mapping::layout(bytes)) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes, prepared: AtomicUsize::new(0), wanted: AtomicUsize::new(0) })
    }

    #[allow(clippy::unnecessary_wraps, clippy::unused_self)]
    fn give_memory(&self, _segment: usize, _pages: Pages) -> io::Result<()> {
        Ok(())
    }

    /// Zeroes `segment`.
    pub fn discard(&self, segment: usize) {
        assert!(segment < self.prepared(), "what is discarded has been prepared");
        // SAFETY: the segment lies in the range, and the caller is the owner, by whose `&mut` nothing is borrowed.
        unsafe { self.base.add(segment * SEGMENT_BYTES).write_bytes(0, SEGMENT_BYTES) };
    }
}

#[cfg(miri)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, once.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Mapping::layout(self.bytes)) };
    }
}
