//! The three operations that a log asks of what is below it.
//!
//! Invariant: when `write_at` returns without error, the bytes survive what the storage promises: a loss
//! of power for a file opened to sync. Tests put a storage here that tears and fails writes on command.

use crate::domain::DomainError;
use crate::log_file;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A flat range of bytes that survives.
pub trait Storage: Send + Sync {
    /// How many bytes there are.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset`; reading past the end is an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, growing the storage if needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A file, locked exclusively.
pub struct FileStorage {
    file: File,
}

/// What a write to a [`FileStorage`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteWaits {
    /// Nothing: it survives the process.
    No,
    /// The medium (`O_DSYNC`): it survives a loss of power.
    ForMedium,
}

impl FileStorage {
    /// Opens the log at `path`, or makes it with `format`.
    pub fn open_or_create(
        path: &Path,
        waits: WriteWaits,
        format: &dyn Fn(&FileStorage) -> io::Result<()>,
    ) -> Result<FileStorage, DomainError> {
        let flags = match waits {
            WriteWaits::No => 0,
            WriteWaits::ForMedium => libc::O_DSYNC,
        };
        let fill = |file: &File| format(&FileStorage { file: file.try_clone()? });
        Ok(FileStorage { file: log_file::open_or_create(path, flags, &fill)? })
    }

    /// Opens a log only to read it.
    pub fn open_to_read(path: &Path) -> Result<FileStorage, DomainError> {
        Ok(FileStorage { file: log_file::open_to_read(path)? })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes down who owns the file.
    pub fn note_owner(&self) {
        log_file::note_owner(&self.file);
    }
}

impl Storage for FileStorage {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }
}
