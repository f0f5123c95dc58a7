//! Which requests have no answer: how far a client may write.
//!
//! Invariant: the room of a request is free when it and every one before it have been answered (B7), so a request that
//! takes long holds back at most a ring's worth of younger ones, and overwrites none.

use crate::fault::{is_planted, Fault};

/// An answer to what was not asked: the server, or whoever writes in its place, is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an answer to request {index}, which waits for none")]
pub struct Foreign {
    /// As the answer says.
    pub index: u32,
}

/// The requests of one ring that wait for their answers. A request is known by the position of its first entry.
#[derive(Debug)]
pub struct Credit {
    /// The lowest position whose request has no answer.
    lowest: u32,
    /// Behind the last request.
    next: u32,
    /// Of each entry, whether a request that begins there waits.
    waits: Box<[u64]>,
    mask: u32,
    answered: u32,
    planted: Option<Fault>,
}

impl Credit {
    /// Nothing waits in a ring of so many entries, a power of two.
    pub fn new(entries: u32) -> Credit {
        let waits = vec![0; (entries as usize).div_ceil(64)].into();
        Credit { lowest: 0, next: 0, waits, mask: entries - 1, answered: 0, planted: None }
    }

    /// Breaks a rule, for a test that has to find it.
    #[cfg(feature = "planted-faults")]
    pub fn plant(&mut self, fault: Fault) {
        self.planted = Some(fault);
    }

    /// How many entries are taken by requests that wait, and by those between them.
    pub fn taken(&self) -> u32 {
        self.next.wrapping_sub(self.lowest)
    }

    /// Everything before this position may be written anew.
    pub fn free_until(&self) -> u32 {
        if is_planted(self.planted, Fault::CountAnswers) {
            return self.answered;
        }
        self.lowest
    }

    /// A request was written from the position behind the last on, over so many entries.
    pub fn sent(&mut self, index: u32, entries: u32) {
        debug_assert_eq!(index, self.next, "requests are written one behind the other");
        self.set(index, true);
        self.next = index.wrapping_add(entries);
    }

    /// It was answered.
    pub fn answered(&mut self, index: u32) -> Result<(), Foreign> {
        let is_sent = index.wrapping_sub(self.lowest) < self.taken();
        if !is_sent || !self.is_waiting(index) {
            return Err(Foreign { index });
        }
        self.set(index, false);
        self.answered = self.answered.wrapping_add(1);
        while self.lowest != self.next && !self.is_waiting(self.lowest) {
            self.lowest = self.lowest.wrapping_add(1);
        }
        Ok(())
    }

    /// The requests that wait, the oldest first: what a client that gives up has lost sight of.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.taken()).map(|nth| self.lowest.wrapping_add(nth)).filter(|index| self.is_waiting(*index))
    }

    fn is_waiting(&self, index: u32) -> bool {
        let place = index & self.mask;
        self.waits[place as usize / 64] >> (place % 64) & 1 == 1
    }

    fn set(&mut self, index: u32, waits: bool) {
        let place = index & self.mask;
        let bit = 1 << (place % 64);
        let word = &mut self.waits[place as usize / 64];
        *word = if waits { *word | bit } else { *word & !bit };
    }
}
