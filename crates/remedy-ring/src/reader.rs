//! The side of a ring that reads.
//!
//! Invariant: what is taken was sealed in this lap (B2) and is copied out before its entries are given back; lengths
//! are read once and checked before they are used (B4).

use crate::fault::{is_planted, Fault};
use crate::shape::{unsealed, Shape, HEAD_WORDS};
use crate::words::{self, AtomicU64, Ordering};

/// What a peer has written that no message can be: the ring is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The length is more than half of the ring carries.
    #[error("an entry says that its message has {bytes} bytes; this ring carries up to {bytes_max}")]
    Length {
        /// As it says.
        bytes: usize,
        /// As it may be.
        bytes_max: usize,
    },
    /// A message goes on in an entry that is not of it.
    #[error("a message of {bytes} bytes ends before its last entry")]
    Torn {
        /// Of the message, as its first entry says.
        bytes: usize,
    },
}

/// A message that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// What its writer says it is about.
    pub index: u32,
    /// The position of its first entry.
    pub position: u32,
    /// Its length in bytes.
    pub bytes: usize,
}

/// How far a ring was read.
#[derive(Debug)]
pub struct Reader {
    shape: Shape,
    next: u32,
    planted: Option<Fault>,
}

impl Reader {
    /// Of a ring that nobody has read.
    pub fn new(shape: Shape) -> Reader {
        Reader { shape, next: 0, planted: None }
    }

    /// Breaks a rule, for a test that has to find it.
    #[cfg(feature = "planted-faults")]
    pub fn plant(&mut self, fault: Fault) {
        self.planted = Some(fault);
    }

    /// The position of the next message; everything before it may be written anew.
    pub fn head(&self) -> u32 {
        self.next
    }

    /// Whether a message waits. `ring` is the ring's memory.
    pub fn is_ready(&self, ring: &[AtomicU64]) -> bool {
        self.sealed(ring, self.next).is_some()
    }

    /// Takes the next message and appends its bytes, if there is one. `ring` is the ring's memory.
    pub fn read(&mut self, ring: &[AtomicU64], out: &mut Vec<u8>) -> Result<Option<Message>, Broken> {
        let Some(bytes) = self.sealed(ring, self.next) else { return Ok(None) };
        let bytes_max = self.shape.message_bytes_max();
        if bytes > bytes_max && !is_planted(self.planted, Fault::TrustLength) {
            return Err(Broken::Length { bytes, bytes_max });
        }
        let (first, count) = (self.next, self.shape.entries_of(bytes));
        let index = ring[self.shape.entry(first)][1].load(Ordering::Relaxed) as u32;
        let (start, mut left) = (out.len(), bytes);
        for nth in 0..count {
            let position = first.wrapping_add(nth);
            if nth > 0 && self.sealed(ring, position) != Some(bytes) {
                out.truncate(start);
                return Err(Broken::Torn { bytes });
            }
            let part = left.min(self.shape.payload_bytes());
            words::read(&ring[self.shape.entry(position)][HEAD_WORDS..], part, out);
            left -= part;
        }
        self.next = first.wrapping_add(count);
        Ok(Some(Message { index, position: first, bytes }))
    }

    /// The length that the entry at this position says, if it was written in this lap.
    fn sealed(&self, ring: &[AtomicU64], position: u32) -> Option<usize> {
        let word = ring[self.shape.entry(position)][0].load(Ordering::Acquire);
        let (lap, bytes) = unsealed(word);
        let is_here =
            lap == self.shape.lap(position) || (lap != 0 && is_planted(self.planted, Fault::ForgetLap));
        is_here.then_some(bytes)
    }
}
