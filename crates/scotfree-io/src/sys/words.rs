//! Memory of no file that processes share by handing over its descriptor, touched by atomic words alone.
//!
//! Invariant: the memory is sealed: it has the length that it was mapped with for as long as it lives, so no access
//! faults for its length, whatever another process does. (Where the system has no memory left, a first touch ends the
//! process, as with any memory.)

use super::check;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The memory, mapped.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<u8>,
    length: usize,
    file: File,
}

// SAFETY: the mapping belongs to the process, and what lies in it is touched by atomic accesses alone.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Makes memory of so many bytes, all zero, which nobody can make longer or shorter. `name` shows in
    /// /proc/PID/maps.
    pub fn create(name: &CStr, length: usize) -> io::Result<SharedWords> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero and lives through the call.
        let fd = check(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
        // SAFETY: the kernel has just made `fd` for us; nobody else owns it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(length as u64)?;
        // SAFETY: takes integers only.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        SharedWords::map(file, length)
    }

    /// Maps memory that another process made. Refused unless it is sealed and that long.
    pub fn open(fd: OwnedFd, length: usize) -> io::Result<SharedWords> {
        let file = File::from(fd);
        // SAFETY: takes integers only.
        let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & libc::F_SEAL_SHRINK == 0 {
            let why = "the memory is not sealed: whoever made it could make it shorter under us";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if file.metadata()?.len() < length as u64 {
            let why = format!("the memory is shorter than the {length} bytes that were promised");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        SharedWords::map(file, length)
    }

    fn map(file: File, length: usize) -> io::Result<SharedWords> {
        assert!(length > 0, "there is something to map");
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a place that nothing else has; the memory is sealed and at least `length` long.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(SharedWords { start, length, file })
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The descriptor, to be handed to another process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A range of bytes as words; it begins and ends at multiples of 8.
    pub fn words(&self, range: Range<usize>) -> &[AtomicU64] {
        self.check(&range, size_of::<AtomicU64>());
        // SAFETY: the range lies in the mapping, which lives as long as the borrow and begins at a page; atomic words
        // may be changed by others at any time.
        unsafe {
            std::slice::from_raw_parts(
                self.start.as_ptr().add(range.start).cast(),
                range.len() / size_of::<AtomicU64>(),
            )
        }
    }

    /// A range of bytes as words of 32 bits; it begins and ends at multiples of 4.
    pub fn halves(&self, range: Range<usize>) -> &[AtomicU32] {
        self.check(&range, size_of::<AtomicU32>());
        // SAFETY: as in `words`.
        unsafe {
            std::slice::from_raw_parts(
                self.start.as_ptr().add(range.start).cast(),
                range.len() / size_of::<AtomicU32>(),
            )
        }
    }

    /// Gives the memory of a range back to the system: it reads as zero from then on, for all who share it. It begins and
    /// ends at multiples of a page.
    pub fn forget(&self, range: Range<usize>) -> io::Result<()> {
        self.check(&range, size_of::<AtomicU64>());
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (start, length) = (range.start as libc::off_t, range.len() as libc::off_t);
        // SAFETY: takes integers only; what lies there are atomic words, which may become zero at any time.
        check(unsafe { libc::fallocate(self.file.as_raw_fd(), how, start, length) }).map(drop)
    }

    fn check(&self, range: &Range<usize>, unit: usize) {
        let is_aligned = range.start.is_multiple_of(unit) && range.end.is_multiple_of(unit);
        assert!(
            range.start <= range.end && range.end <= self.length && is_aligned,
            "{range:?} are words of it"
        );
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `map`, and nothing borrows from it any more.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert_eq!(result, 0, "our own mapping can be undone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_are_one_memory_that_nobody_can_shorten() {
        let made = SharedWords::create(c"scot-test", 8_192).expect("memory");
        let fd = made.descriptor().try_clone_to_owned().expect("a descriptor");
        let same = File::from(fd.try_clone().expect("a descriptor"));
        assert!(same.set_len(0).is_err() && same.set_len(1 << 20).is_err());
        let other = SharedWords::open(fd, 8_192).expect("the same");
        made.words(4_096..8_192)[511].store(7, Ordering::Relaxed);
        assert_eq!(other.halves(8_184..8_192)[0].load(Ordering::Relaxed), 7);
        made.words(0..8)[0].store(7, Ordering::Relaxed);
        made.forget(4_096..8_192).expect("a hole");
        assert_eq!(other.words(4_096..8_192)[511].load(Ordering::Relaxed), 0);
        assert_eq!(other.words(0..8)[0].load(Ordering::Relaxed), 7);
        let longer = SharedWords::open(same.into(), 8_193).expect_err("it is not so long");
        assert!(longer.to_string().contains("shorter than the 8193 bytes"));
    }

    #[test]
    fn memory_that_its_maker_could_shorten_is_refused() {
        // SAFETY: the name ends with a zero and lives through the call.
        let fd =
            unsafe { libc::memfd_create(c"scot-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        // SAFETY: the kernel has just made `fd` for us.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(check(fd).expect("memory")) });
        file.set_len(4_096).expect("room");
        let refused = SharedWords::open(file.into(), 4_096).expect_err("it is not sealed");
        assert!(refused.to_string().contains("not sealed"));
    }
}
