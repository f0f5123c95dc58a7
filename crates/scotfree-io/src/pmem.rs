//! Persistent memory: a file on a DAX file system, mapped so that what is flushed out of the processor
//! survives a loss of power.
//!
//! Invariant: a [`PmemMemory`] exists only where the file system has granted `MAP_SYNC` and the processor
//! has announced a flush instruction; what lacks is said before a file is made. A bad block of the medium
//! ends the process that reads it (SIGBUS): what it held is not taken for something else.

use crate::domain::DomainError;
use crate::log_file::{folder_of, PAGE_BYTES};
use crate::slot_memory::{SlotMemory, LINE_BYTES};
use crate::sys::flush::{available, store_fence, stream, write_back, Available};
use crate::sys::map::SharedMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub use crate::sys::flush::FlushInstruction;

/// From how many bytes on content is streamed past the caches unless told otherwise. Below it a line or
/// two more or less do not show. `flush_bench`, on ordinary memory behind two cores of an AMD EPYC with
/// clwb, two runs, median nanoseconds of a copy and its fence:
///
/// ```text
///  bytes     clwb  streamed        bytes     clwb  streamed
///    128  153 167  169 168         1,024  228 248  174 192
///    256  155 175  162 180         4,000  550 605  296 408
///    384  173 215  166 190        65,536  9.5k 10k 4.1k 6.1k
/// ```
///
/// Persistent memory was not at hand: its writes are slower, so measure there and set what comes out.
pub const STREAMING_BYTES_MIN: usize = 384;

/// How bytes get out of the processor: with which instruction, and from which size on by streaming
/// stores instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flush {
    with: Available,
    streaming_bytes_min: usize,
}

impl Flush {
    /// With the best instruction that this processor has; none where none is known.
    pub fn detect() -> Option<Flush> {
        Flush::all().into_iter().next()
    }

    /// One for each instruction that this processor has, best first.
    pub fn all() -> Vec<Flush> {
        let flush = |with| Flush { with, streaming_bytes_min: STREAMING_BYTES_MIN };
        available().into_iter().map(flush).collect()
    }

    /// The same with another size from which on content is streamed.
    #[must_use]
    pub fn streaming_from(self, bytes: usize) -> Flush {
        Flush { streaming_bytes_min: bytes, ..self }
    }

    /// Which instruction it flushes with.
    pub fn instruction(&self) -> FlushInstruction {
        self.with.instruction()
    }

    /// Copies `from` to `to` and starts to write it back, the cheaper way for its size.
    pub fn copy(&self, to: &mut [u8], from: &[u8]) {
        if from.len() < self.streaming_bytes_min {
            return self.copy_cached(to, from);
        }
        // Lines that are only partly ours are written through the cache, as their other part is.
        let head = to.as_ptr().align_offset(LINE_BYTES).min(from.len());
        let lines = (from.len() - head) / LINE_BYTES * LINE_BYTES;
        let (to_head, to) = to.split_at_mut(head);
        let (to_lines, to_tail) = to.split_at_mut(lines);
        self.copy_cached(to_head, &from[..head]);
        self.copy_cached(to_tail, &from[head + lines..]);
        if lines > 0 {
            stream(to_lines, &from[head..head + lines]);
        }
    }

    /// The plain version, against which the other is tested and measured.
    pub fn copy_cached(&self, to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
        self.write_back(to);
    }

    /// Starts to write back every line that `bytes` touches.
    pub fn write_back(&self, bytes: &[u8]) {
        write_back(bytes, self.with);
    }

    /// Waits until the memory has accepted what was written back or streamed.
    pub fn fence(&self) {
        store_fence();
    }
}

/// A mapped file in persistent memory: by [`PmemMemory::map`], the one way outside of tests.
pub struct PmemMemory {
    map: SharedMap,
    flush: Flush,
}

impl PmemMemory {
    /// Maps the first `length` bytes of the file at `path`, which the caller has locked and which is that
    /// long.
    pub fn map(
        file: &File,
        length: usize,
        path: &Path,
        streaming_bytes_min: usize,
    ) -> Result<PmemMemory, DomainError> {
        let flush = Flush::detect().ok_or_else(|| without_flush(path))?.streaming_from(streaming_bytes_min);
        let map = SharedMap::new_synchronous(file, length).map_err(|error| refused(path, error))?;
        Ok(PmemMemory { map, flush })
    }
}

#[cfg(feature = "conformance")]
impl PmemMemory {
    /// For tests of the instructions: a mapping of any file, flushed although nothing makes it persistent.
    pub fn map_unpersistent(file: &File, length: usize, flush: Flush) -> io::Result<PmemMemory> {
        Ok(PmemMemory { map: SharedMap::new(file, length)?, flush })
    }
}

impl SlotMemory for PmemMemory {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.map.bytes(range)
    }

    fn write(&mut self, offset: usize, content: &[u8]) {
        self.flush.copy(self.map.bytes_mut(offset..offset + content.len()), content);
    }

    fn store(&mut self, offset: usize, word: u32) {
        self.map.store_fenced(offset, word);
    }

    fn write_back(&mut self, range: Range<usize>) {
        self.flush.write_back(self.map.bytes(range));
    }

    fn fence(&mut self) {
        self.flush.fence();
    }
}

/// Tries whether a log at `path` could be in persistent memory; the flush instruction, or what is
/// missing. The file that is there is mapped and not written to; if there is none, one without a name is
/// mapped in its folder.
pub fn probe(path: &Path) -> Result<FlushInstruction, DomainError> {
    let opening = |error| DomainError::io(format!("opening {}", path.display()), error);
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = if path.exists() {
        crate::log_file::require_file(path)?;
        options.open(path).map_err(opening)?
    } else {
        let file = options.custom_flags(libc::O_TMPFILE).open(folder_of(path)).map_err(|error| {
            match error.raw_os_error() {
                // Those that cannot make such a file are none of those with DAX.
                Some(libc::EOPNOTSUPP | libc::EISDIR) => without_tmpfile(path),
                _ => opening(error),
            }
        })?;
        file.set_len(PAGE_BYTES).map_err(opening)?;
        file
    };
    let length = file.metadata().map_err(opening)?.len();
    if length == 0 {
        return Err(DomainError::Foreign {
            path: path.to_owned(),
            found: "it is empty".to_owned(),
            advice: "remove it or choose another file".to_owned(),
        });
    }
    let memory = PmemMemory::map(&file, length.min(PAGE_BYTES) as usize, path, STREAMING_BYTES_MIN)?;
    Ok(memory.flush.instruction())
}

fn refused(path: &Path, error: io::Error) -> DomainError {
    let missing = match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "its file system does not offer MAP_SYNC".to_owned(),
        Some(libc::EINVAL) => "its file system, or this kernel, does not know MAP_SYNC".to_owned(),
        _ => return DomainError::io(format!("mapping {} with MAP_SYNC", path.display()), error),
    };
    DomainError::NotPersistent { path: path.to_owned(), missing }
}

fn without_tmpfile(path: &Path) -> DomainError {
    let missing = "its file system does not offer O_TMPFILE, as those with MAP_SYNC do".to_owned();
    DomainError::NotPersistent { path: path.to_owned(), missing }
}

fn without_flush(path: &Path) -> DomainError {
    let missing = "this processor announces no instruction that writes a cache line back".to_owned();
    DomainError::NotPersistent { path: path.to_owned(), missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in which a copy that is one too short, too long or elsewhere shows.
    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 7 % 251) as u8 + 1).collect()
    }

    #[test]
    fn every_way_of_copying_copies_the_same_and_nothing_beside_it() {
        for flush in Flush::all() {
            for streaming_bytes_min in [0, 256, usize::MAX] {
                let flush = flush.streaming_from(streaming_bytes_min);
                for start in [0, 1, 32, 63, 64] {
                    for length in [0, 1, 31, 32, 33, 64, 100, 255, 256, 1_000, 4_096] {
                        copies(flush, start, length);
                    }
                }
            }
        }
    }

    fn copies(flush: Flush, start: usize, length: usize) {
        let content = pattern(length);
        let mut copied = vec![0_u8; start + length + 64];
        let mut plain = copied.clone();
        flush.copy(&mut copied[start..start + length], &content);
        flush.fence();
        plain[start..start + length].copy_from_slice(&content);
        assert_eq!(copied, plain, "{flush:?}, {length} bytes at {start}");
    }

    #[test]
    fn what_the_processor_announces_is_what_linux_has_found() {
        let Ok(told) = std::fs::read_to_string("/proc/cpuinfo") else { return };
        let flags = told.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let found: Vec<String> = Flush::all().iter().map(|flush| flush.instruction().to_string()).collect();
        for name in ["clwb", "clflushopt", "clflush"] {
            let is_told = flags.split_whitespace().any(|flag| flag == name);
            assert_eq!(found.contains(&name.to_owned()), is_told, "{name}");
        }
    }

    #[test]
    fn each_refusal_says_what_is_missing_and_what_else_there_is() {
        let path = Path::new("/somewhere/log");
        for code in [libc::EOPNOTSUPP, libc::EINVAL] {
            let text = refused(path, io::Error::from_raw_os_error(code)).to_string();
            assert!(text.contains("MAP_SYNC") && text.contains("-o dax") && text.contains("ram:"), "{text}");
        }
        let text = refused(path, io::Error::from_raw_os_error(libc::ENOMEM)).to_string();
        assert!(text.contains("mapping /somewhere/log") && !text.contains("dax"), "{text}");
        assert!(without_flush(path).to_string().contains("processor"));
    }
}
