//! What every persistence domain offers: records under tokens that survive what the domain says.
//!
//! Invariant: a token is reported as completed only when its record would be found again after the
//! failure that [`PersistenceDomain::survives`] names; what is found again is what was submitted, whole.

use scotfree_core::{Durability, Survives, Token};
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The largest blob of [`PersistenceDomain::set_meta`].
pub const META_BYTES_MAX: usize = 256;

/// Keeps records beyond failures. One owner, no interior sharing; only
/// [`PersistenceDomain::write_waiting`], [`PersistenceDomain::set_meta`], [`PersistenceDomain::scan`] and the making
/// of a domain may block.
///
/// A record is in one of three states for its caller: submitted (may or may not be found after a
/// failure), completed (will be found), erased (may be found until a
/// [`PersistenceDomain::flush_erasures`] made afterwards has completed).
pub trait PersistenceDomain {
    /// The strongest failure that a completed record survives.
    fn survives(&self) -> Survives;

    /// What a completed record counts as.
    fn durability(&self) -> Durability;

    /// Starts to make `record` durable under `token`, replacing an earlier record of this token: after
    /// a failure one of the two is found. Every accepted submission is completed once, in order.
    /// After an error nothing has changed; after [`DomainError::Full`] the caller goes on unlogged.
    fn submit(&mut self, token: Token, record: &[u8]) -> Result<(), DomainError>;

    /// Writes what waits, where a domain leaves that to its owner; then it may block as long as a write takes. To be
    /// called after submitting, as late as possible: what comes together is written together. Whether something
    /// was written.
    fn write_waiting(&mut self) -> bool {
        false
    }

    /// Appends the tokens completed since the last call. When nothing is left to report and the domain
    /// has failed, says so: what was not reported by then never will be.
    fn completions(&mut self, out: &mut Vec<Token>) -> Result<(), DomainError>;

    /// Forgets the record of `token`, if there is one.
    fn erase(&mut self, token: Token) -> Result<(), DomainError>;

    /// Completes `token` once every erasure made so far is durable.
    fn flush_erasures(&mut self, token: Token);

    /// Calls `each` with every record that is not erased, after waiting until all that was submitted
    /// is written; also says what opening found damaged.
    fn scan(&self, each: &mut dyn FnMut(Token, &[u8])) -> Result<ScanReport, DomainError>;

    /// The blob of the last [`PersistenceDomain::set_meta`]; empty at first.
    fn meta(&self) -> &[u8];

    /// Keeps a small blob, at most [`META_BYTES_MAX`], beside the records. It is durable when this
    /// returns; after a failure in between, the old or the new one is found.
    fn set_meta(&mut self, meta: &[u8]) -> Result<(), DomainError>;

    /// A descriptor that is readable while completions wait, or a failure. None where completions are
    /// ready when `submit` returns.
    fn completion_fd(&self) -> Option<RawFd>;
}

/// What a scan found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanReport {
    /// Whole records reported.
    pub record_count: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Records that a failure had left half written; none of them was ever completed.
    pub torn_count: u64,
    /// The bytes that were cut off with them, as far as they are known.
    pub torn_bytes: u64,
    /// Where in the file the first of them began.
    pub torn_at: Option<u64>,
}

/// Why a domain cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// No room for the record now: erase others, then try again.
    #[error("the log is full ({what}); erase records or make the log larger")]
    Full {
        /// Which bound was reached, with its value.
        what: String,
    },
    /// The record is longer than this domain ever takes.
    #[error("a record of {bytes} bytes is larger than the {bytes_max} bytes that this log takes")]
    TooLarge {
        /// The size of the record.
        bytes: usize,
        /// The largest size.
        bytes_max: usize,
    },
    /// The storage failed. A domain whose write failed accepts nothing from then on.
    #[error("{doing} failed: {source}{}", next_after(source))]
    Io {
        /// What was tried, on which file.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a log that this program reads. It was left untouched.
    #[error("{} is not usable as a log: {found}; it was left untouched, look into it by `scot log verify {}`; {advice}", path.display(), path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        found: String,
        /// What to do next.
        advice: String,
    },
    /// Completed records are damaged. The file was left untouched.
    #[error("{} is damaged at byte {offset}: {found}; it was left untouched, run `scot log verify {}`", path.display(), path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        found: String,
    },
    /// The file cannot be mapped as persistent memory. It was left untouched; if it was not there, it was
    /// not made.
    #[error("{} cannot be kept as a pmem log: {missing}; give a file on a file system that is mounted with -o dax \
         on persistent memory (findmnt -O dax), or keep the log with ram:{} or disk:{}", path.display(), path.display(), path.display())]
    NotPersistent {
        /// The file.
        path: PathBuf,
        /// What the system or the processor does not have.
        missing: String,
    },
    /// Another process, or another part of this one, uses the file.
    #[error("{} is in use by {}; stop it or choose another file", path.display(), owner(*pid))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that says it has the file, if it wrote that down.
        pid: Option<u32>,
    },
}

impl DomainError {
    /// A failure of the storage while `doing` something.
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> DomainError {
        DomainError::Io { doing: doing.into(), source }
    }
}

/// What to do about a failure of the storage, where that is known.
fn next_after(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there, or choose a smaller log or another file system"
        }
        io::ErrorKind::FileTooLarge => {
            "; raise the limit on the size of files (ulimit -f), or choose a smaller log"
        }
        io::ErrorKind::NotFound => "; name an existing file, or make its folder first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; run as its owner, or choose a file that is yours"
        }
        _ => "",
    }
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Refuses a blob that [`PersistenceDomain::set_meta`] cannot keep.
pub(crate) fn check_meta(meta: &[u8]) -> Result<(), DomainError> {
    if meta.len() > META_BYTES_MAX {
        return Err(DomainError::TooLarge { bytes: meta.len(), bytes_max: META_BYTES_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_and_the_next_step() {
        let damaged =
            DomainError::Damaged { path: "/var/a.log".into(), offset: 4_096, found: "a bad record".into() };
        assert!(damaged.to_string().contains("run `scot log verify /var/a.log`"));
        let full = DomainError::io("making /var/a.log", io::ErrorKind::StorageFull.into());
        assert!(full.to_string().contains("make room there"));
        let foreign = DomainError::Foreign {
            path: "/var/a.log".into(),
            found: "it has version 9".into(),
            advice: "move it away".into(),
        };
        let foreign = foreign.to_string();
        assert!(
            foreign.contains("`scot log verify /var/a.log`") && foreign.ends_with("move it away"),
            "{foreign}"
        );
        let in_use = DomainError::InUse { path: "/var/a.log".into(), pid: Some(17) };
        assert!(in_use.to_string().contains("process 17"));
    }
}
