//! The bytes of an index: a file as memory, or memory.
//!
//! Invariant: the files that are mapped are written beside their place and renamed into it, never changed: whoever
//! holds an old one keeps it whole.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Where they lie.
#[derive(Debug)]
pub enum Mapped {
    /// In a file.
    File(Mmap),
    /// Here; also what an empty file has.
    Memory(Vec<u8>),
}

impl Mapped {
    /// Maps it to be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let details = file.metadata()?;
        if !details.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
        }
        if details.len() == 0 {
            return Ok(Self::Memory(Vec::new()));
        }
        // SAFETY: nobody changes such a file (see above); the mapping is private and only read.
        Ok(Self::File(unsafe { Mmap::map(&file) }?))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::File(file) => file,
            Self::Memory(bytes) => bytes,
        }
    }
}
