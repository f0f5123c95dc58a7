//! What the standard library does not offer for files: locks, reserving and punching, finding data.
//!
//! Invariant: no function here changes the content of a byte that holds data, except the one that
//! punches, within the range it is given.

use super::check;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Takes the exclusive lock of a file; false if another process, or another open of this one, has it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: takes integers only.
    match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a file without a name its first one; an error if the name is taken.
pub fn give_name(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let here = libc::AT_FDCWD;
    // SAFETY: both strings end with a zero and live through the call.
    check(unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) }).map(drop)
}

/// Reserves the blocks of a range, so that writing there, also through a mapping, cannot run out of
/// space.
pub fn reserve(file: &File, range: &Range<u64>) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_KEEP_SIZE, range)
}

/// Gives the blocks of a range back; it reads as zeros afterwards.
pub fn punch(file: &File, range: &Range<u64>) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE, range)
}

fn fallocate(file: &File, mode: i32, range: &Range<u64>) -> io::Result<()> {
    let length = (range.end - range.start) as libc::off_t;
    // SAFETY: takes integers only.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, range.start as libc::off_t, length) }).map(drop)
}

/// The next range at or after `offset` that may hold data; none up to the end of the file. A file
/// system that cannot tell reports all as data.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    let Some(start) = seek(file, offset, libc::SEEK_DATA)? else { return Ok(None) };
    let end = seek(file, start, libc::SEEK_HOLE)?.unwrap_or(u64::MAX);
    Ok(Some(start..end))
}

fn seek(file: &File, offset: u64, whence: i32) -> io::Result<Option<u64>> {
    // SAFETY: takes integers only.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, whence) };
    if found >= 0 {
        return Ok(Some(found as u64));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) {
        return Ok(None);
    }
    Err(error)
}

/// Eight bytes from the kernel's random source, for salts that no peer can guess.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: pointer and length describe `bytes`; requests of up to 256 bytes are never cut short.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if count != 8 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from_ne_bytes(bytes))
}
