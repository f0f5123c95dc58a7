//! What `scot log verify` says about a log, of either kind.
//!
//! Invariant: verifying changes nothing, not even on a damaged or torn log, and takes the lock, so it
//! never reads what somebody writes.

use crate::domain::DomainError;
use crate::log_file::Identity;
use crate::storage::FileStorage;
use crate::{disk, ram};
use std::path::Path;

pub use crate::log_file::LogKind;

/// A log that can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyReport {
    /// Which format it has.
    pub kind: LogKind,
    /// How many records it holds; in a disk log dead ones and erasures too.
    pub record_count: u64,
    /// How many of them would be found by a scan.
    pub live_count: u64,
    /// The content of those.
    pub live_bytes: u64,
    /// What a failure had left half written, which opening will drop. None of it was ever completed.
    pub torn_bytes: u64,
}

/// Reads the whole log at `path`. An error says what opening it would say, and where.
pub fn verify(path: &Path) -> Result<VerifyReport, DomainError> {
    let storage = FileStorage::open_to_read(path)?;
    match Identity::read(&storage, path)?.kind {
        LogKind::Disk => disk::verify(&storage, path),
        LogKind::Ram => ram::verify(&storage, path),
    }
}
