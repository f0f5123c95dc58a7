//! Reads a disk log without writing to it: the domain itself opens it, over a storage that keeps what
//! the domain would write in memory.
//!
//! Invariant: the file is opened for reading only.

use super::RawLog;
use scotfree_io::disk::{DiskConfig, DiskDomain};
use scotfree_io::storage::{FileStorage, Storage};
use scotfree_io::{DomainError, PersistenceDomain};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) fn read(path: &Path) -> Result<RawLog, DomainError> {
    let storage = Arc::new(Overlay { below: FileStorage::open_to_read(path)?, written: Mutex::default() });
    let file = Arc::clone(&storage);
    let domain = DiskDomain::open_on(storage, path, &DiskConfig::default())?;
    let mut records = Vec::new();
    let report = domain.scan(&mut |token, record| records.push((token, record.to_vec())))?;
    Ok(RawLog { meta: domain.meta().to_vec(), records, torn_count: report.torn_count, file })
}

/// A storage whose writes stay in memory.
struct Overlay {
    below: FileStorage,
    /// Offset and bytes, in order. There are few: opening cuts a torn end and notes a start.
    written: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Storage for Overlay {
    fn length(&self) -> io::Result<u64> {
        self.below.length()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buffer)?;
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, bytes) in written.iter() {
            overlay(buffer, offset, bytes, *at);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.push((offset, bytes.to_vec()));
        Ok(())
    }
}

/// Copies the part of `bytes`, which lie at `at`, that falls into `buffer`, which begins at `offset`.
fn overlay(buffer: &mut [u8], offset: u64, bytes: &[u8], at: u64) {
    let start = offset.max(at);
    let end = (offset + buffer.len() as u64).min(at + bytes.len() as u64);
    if start < end {
        let part = &bytes[(start - at) as usize..(end - at) as usize];
        buffer[(start - offset) as usize..(end - offset) as usize].copy_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_overlaps_is_copied() {
        for (at, expected) in [
            (0, *b"......"),
            (9, *b"bcd..."),
            (10, *b"abcd.."),
            (11, *b".abcd."),
            (14, *b"....ab"),
            (16, *b"......"),
        ] {
            let mut buffer = *b"......";
            overlay(&mut buffer, 10, b"abcd", at);
            assert_eq!(buffer, expected, "{at}");
        }
    }
}
