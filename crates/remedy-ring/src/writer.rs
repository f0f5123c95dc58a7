//! The side of a ring that writes.
//!
//! Invariant: an entry is written only when its reader is done with it (B3), and sealed when all of its message is
//! there (B1).

use crate::fault::{is_planted, Fault};
use crate::shape::{seal, Shape, HEAD_WORDS};
use crate::words::{self, AtomicU64, Ordering};

/// Why a message was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It finds room when the peer has taken something.
    #[error("the ring is full")]
    Full,
    /// It will never find room.
    #[error("a message of {bytes} bytes; the ring takes up to {bytes_max}: make its entries longer, or more of them")]
    TooLong {
        /// Of the message.
        bytes: usize,
        /// What half of the ring carries.
        bytes_max: usize,
    },
}

/// Where the next message goes, and how far there is room.
#[derive(Debug)]
pub struct Writer {
    shape: Shape,
    next: u32,
    /// The first position that may not be written yet.
    limit: u32,
    planted: Option<Fault>,
}

impl Writer {
    /// Of a ring that nobody has written to.
    pub fn new(shape: Shape) -> Writer {
        Writer { shape, next: 0, limit: shape.entries(), planted: None }
    }

    /// Breaks a rule, for a test that has to find it.
    #[cfg(feature = "planted-faults")]
    pub fn plant(&mut self, fault: Fault) {
        self.planted = Some(fault);
    }

    /// The position behind all that was written.
    pub fn tail(&self) -> u32 {
        self.next
    }

    /// How many entries can be written now.
    pub fn room(&self) -> u32 {
        let more = u32::from(is_planted(self.planted, Fault::OneTooMany));
        self.limit.wrapping_sub(self.next).wrapping_add(more)
    }

    /// The reader is done with everything before this position. What lies behind the tail, or before what it was done
    /// with already, no reader can mean: nothing changes.
    pub fn free_until(&mut self, position: u32) {
        let done = self.limit.wrapping_sub(self.shape.entries());
        if position.wrapping_sub(done) <= self.next.wrapping_sub(done) {
            self.limit = position.wrapping_add(self.shape.entries());
        }
    }

    /// Writes a message, about what `index` says; its first position. `ring` is the ring's memory.
    pub fn write(&mut self, ring: &[AtomicU64], index: u32, bytes: &[u8]) -> Result<u32, Refused> {
        let bytes_max = self.shape.message_bytes_max();
        if bytes.len() > bytes_max {
            return Err(Refused::TooLong { bytes: bytes.len(), bytes_max });
        }
        let count = self.shape.entries_of(bytes.len());
        if self.room() < count {
            return Err(Refused::Full);
        }
        let first = self.next;
        // The first is sealed last: who finds it finds all of them.
        for nth in (0..count).rev() {
            let start = nth as usize * self.shape.payload_bytes();
            let part = &bytes[start..bytes.len().min(start + self.shape.payload_bytes())];
            self.write_entry(ring, first.wrapping_add(nth), index, part, bytes.len());
        }
        self.next = first.wrapping_add(count);
        Ok(first)
    }

    fn write_entry(&self, ring: &[AtomicU64], position: u32, index: u32, part: &[u8], bytes: usize) {
        let entry = &ring[self.shape.entry(position)];
        let seal = seal(self.shape.lap(position), bytes);
        if is_planted(self.planted, Fault::SealFirst) {
            entry[0].store(seal, Ordering::Release);
        }
        words::write(&entry[HEAD_WORDS..], part);
        entry[1].store(u64::from(index), Ordering::Relaxed);
        entry[0].store(seal, Ordering::Release);
    }
}
