//! A storage in memory that tears, fails and holds writes on command.
//!
//! Invariant: after a torn or failed write nothing more is written until [`FaultyStorage::repair`]; what
//! is read then is what a medium would hold after a loss of power at that moment.

use crate::storage::Storage;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The unit that a medium writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The write has this error and no effect.
    Fail {
        /// The error number, for instance `ENOSPC`.
        errno: i32,
    },
    /// The power is lost during the write: each sector that it touches is written or not, as the bits
    /// of a sequence drawn from `seed` say.
    Tear {
        /// Chooses the sectors.
        seed: u64,
    },
    /// The power is lost during the write, after so many of its bytes.
    Cut {
        /// What is still written.
        bytes: usize,
    },
}

/// A storage whose writes go wrong on command.
#[derive(Default)]
pub struct FaultyStorage {
    inner: Mutex<Inner>,
    released: Condvar,
}

#[derive(Default)]
struct Inner {
    bytes: Vec<u8>,
    write_count: u64,
    /// The write, counted from now, that goes wrong.
    planned: Option<(u64, Fault)>,
    broken: Option<i32>,
    held: bool,
    waiting_count: u64,
}

impl FaultyStorage {
    /// An empty storage on which nothing goes wrong.
    pub fn new() -> FaultyStorage {
        FaultyStorage::default()
    }

    /// Lets the write after the next `writes` ones go wrong.
    pub fn plan(&self, writes: u64, fault: Fault) {
        self.lock().planned = Some((writes, fault));
    }

    /// Whether a planned fault has struck.
    pub fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// Gives the power back: reading and writing work again, the content stays as it is.
    pub fn repair(&self) {
        let mut inner = self.lock();
        inner.broken = None;
        inner.planned = None;
    }

    /// How many writes have been done.
    pub fn write_count(&self) -> u64 {
        self.lock().write_count
    }

    /// Makes writes wait until [`FaultyStorage::release`].
    pub fn hold(&self) {
        self.lock().held = true;
    }

    /// Lets waiting writes go on.
    pub fn release(&self) {
        self.lock().held = false;
        self.released.notify_all();
    }

    /// Whether a write waits for [`FaultyStorage::release`].
    pub fn is_waiting(&self) -> bool {
        self.lock().waiting_count > 0
    }

    /// Inverts one bit of the byte at `offset`.
    pub fn flip(&self, offset: u64) {
        self.lock().bytes[offset as usize] ^= 1;
    }

    /// All that the medium holds.
    pub fn content(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for FaultyStorage {
    fn length(&self) -> io::Result<u64> {
        Ok(self.lock().bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let inner = self.lock();
        let start = offset as usize;
        let bytes = inner.bytes.get(start..start + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.lock();
        inner.waiting_count += 1;
        while inner.held {
            inner = self.released.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.waiting_count -= 1;
        inner.write(offset as usize, bytes)
    }
}

impl Inner {
    fn write(&mut self, start: usize, bytes: &[u8]) -> io::Result<()> {
        if let Some(errno) = self.broken {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let end = start + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        match self.due() {
            None => {
                self.bytes[start..end].copy_from_slice(bytes);
                self.write_count += 1;
                Ok(())
            }
            Some(Fault::Fail { errno }) => {
                self.broken = Some(errno);
                Err(io::Error::from_raw_os_error(errno))
            }
            Some(Fault::Tear { seed }) => {
                self.tear(start, bytes, seed);
                Err(self.lose_power())
            }
            Some(Fault::Cut { bytes: kept }) => {
                let kept = kept.min(bytes.len());
                self.bytes[start..start + kept].copy_from_slice(&bytes[..kept]);
                Err(self.lose_power())
            }
        }
    }

    fn lose_power(&mut self) -> io::Error {
        self.broken = Some(libc::EIO);
        io::Error::from_raw_os_error(libc::EIO)
    }

    fn due(&mut self) -> Option<Fault> {
        let (writes, fault) = self.planned?;
        if writes > 0 {
            self.planned = Some((writes - 1, fault));
            return None;
        }
        self.planned = None;
        Some(fault)
    }

    fn tear(&mut self, start: usize, bytes: &[u8], seed: u64) {
        let mut random = Random::new(seed);
        let mut at = start;
        while at < start + bytes.len() {
            let sector_end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
            let end = sector_end.min(start + bytes.len());
            if random.next() & 1 == 0 {
                self.bytes[at..end].copy_from_slice(&bytes[at - start..end - start]);
            }
            at = end;
        }
    }
}

/// A small reproducible source of numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // It never ends, so it is no iterator.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
