//! Which of many rings have something, without a look at each.
//!
//! Invariant: what a peer says here is a hint; whether a message is there its entry says. A ring that was found stays
//! ready until a look at it has found nothing, and each is visited once before any is visited again (B6).

use crate::fault::{is_planted, Fault};
use crate::words::{fence, AtomicU32, AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// Says in the buffer of pointers that this ring was written up to `tail`: free-running, never modulo, so that a lap
/// is not taken for nothing.
pub fn announce(pointers: &[AtomicU32], ring: usize, tail: u32) {
    pointers[ring].store(tail, Ordering::Release);
}

/// How many words of marks or of the summary are looked at as one.
const AT_ONCE: usize = 16;

/// How many rings have one mark.
pub const MARKED: usize = BITS;

/// Says so, and marks the rings of which this is one: whoever writes to any of them stores the same. A full fence lies
/// between the two, and so before whatever is looked at next.
pub fn announce_marked(pointers: &[AtomicU32], marks: &[AtomicU32], ring: usize, tail: u32) {
    announce(pointers, ring, tail);
    fence(Ordering::SeqCst);
    marks[ring / MARKED].store(1, Ordering::Relaxed);
}

/// Says in the summary that this ring has something: for writers on the same machine, who can set a bit in one step.
pub fn flag(summary: &[AtomicU64], ring: usize) {
    summary[ring / BITS].fetch_or(1 << (ring % BITS), Ordering::AcqRel);
}

/// What of the buffer of pointers was seen already. How much is new is the difference: any number of messages of a ring
/// are one notification.
#[derive(Debug)]
pub struct Seen {
    tails: Box<[u32]>,
}

impl Seen {
    /// Of so many rings that nobody has written to.
    pub fn new(rings: usize) -> Seen {
        Seen { tails: vec![0; rings].into() }
    }

    /// The tail of a ring as it was seen last.
    pub fn tail(&self, ring: usize) -> u32 {
        self.tails[ring]
    }

    /// The ring belongs to somebody else from now on, who begins at 0.
    pub fn forget(&mut self, ring: usize) {
        self.tails[ring] = 0;
    }

    /// Adds to `ready` the rings whose pointer has moved; how many.
    pub fn look(&mut self, pointers: &[AtomicU32], ready: &mut Ready) -> usize {
        (0..pointers.len().div_ceil(BITS)).map(|group| self.look_at(group, pointers, ready)).sum()
    }

    /// The same, where writers mark what they have written: a look at one word for each 64 rings.
    pub fn look_where_marked(
        &mut self,
        marks: &[AtomicU32],
        pointers: &[AtomicU32],
        ready: &mut Ready,
        planted: Option<Fault>,
    ) -> usize {
        let mut moved = 0;
        for (nth, marks) in marks.chunks(AT_ONCE).enumerate() {
            // One branch for several words: most of the time none is marked.
            if marks.iter().fold(0, |any, mark| any | mark.load(Ordering::Relaxed)) == 0 {
                continue;
            }
            for (place, mark) in marks.iter().enumerate() {
                if mark.load(Ordering::Relaxed) != 0 {
                    moved += self.look_at_marked(nth * AT_ONCE + place, mark, pointers, ready, planted);
                }
            }
        }
        moved
    }

    fn look_at_marked(
        &mut self,
        group: usize,
        mark: &AtomicU32,
        pointers: &[AtomicU32],
        ready: &mut Ready,
        planted: Option<Fault>,
    ) -> usize {
        if is_planted(planted, Fault::ClearLate) {
            let moved = self.look_at(group, pointers, ready);
            mark.store(0, Ordering::Relaxed);
            return moved;
        }
        // First the mark: whose pointer is missed then marks it anew, behind its own fence.
        mark.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.look_at(group, pointers, ready)
    }

    fn look_at(&mut self, group: usize, pointers: &[AtomicU32], ready: &mut Ready) -> usize {
        let (start, mut bits) = (group * BITS, 0);
        let end = pointers.len().min(start + BITS);
        for (place, (seen, pointer)) in
            self.tails[start..end].iter_mut().zip(&pointers[start..end]).enumerate()
        {
            let tail = pointer.load(Ordering::Acquire);
            bits |= u64::from(tail != *seen) << place;
            *seen = tail;
        }
        ready.add(group, bits);
        bits.count_ones() as usize
    }
}

/// The rings that have something, and whose turn it is.
#[derive(Debug)]
pub struct Ready {
    bits: Box<[u64]>,
    /// Of these, the ones whose rings are in use: what others flag is nobody's.
    used: Box<[u64]>,
    /// The next to be visited.
    cursor: usize,
    rings: usize,
}

impl Ready {
    /// None of so many rings, of which none is in use.
    pub fn new(rings: usize) -> Ready {
        let words = rings.div_ceil(BITS);
        Ready { bits: vec![0; words].into(), used: vec![0; words].into(), cursor: 0, rings }
    }

    /// The ring is in use from now on, or no longer.
    pub fn use_ring(&mut self, ring: usize, is_used: bool) {
        let (word, bit) = (ring / BITS, 1 << (ring % BITS));
        if is_used {
            self.used[word] |= bit;
        } else {
            self.used[word] &= !bit;
            self.bits[word] &= !bit;
        }
    }

    /// Takes over what is flagged in the summary; how many rings.
    pub fn take(&mut self, summary: &[AtomicU64]) -> usize {
        let mut taken = 0;
        for (nth, words) in summary.chunks(AT_ONCE).enumerate() {
            // A look costs nothing that a writer would feel; the exchange does.
            if words.iter().fold(0, |any, word| any | word.load(Ordering::Relaxed)) == 0 {
                continue;
            }
            for (place, word) in words.iter().enumerate() {
                if word.load(Ordering::Relaxed) != 0 {
                    let bits = word.swap(0, Ordering::AcqRel);
                    taken += bits.count_ones() as usize;
                    self.add(nth * AT_ONCE + place, bits);
                }
            }
        }
        taken
    }

    pub(crate) fn add(&mut self, word: usize, bits: u64) {
        self.bits[word] |= bits & self.used[word];
    }

    /// Whether none has anything.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// The ring whose turn it is, and it is the next one's. It stays ready.
    pub fn turn(&mut self) -> Option<usize> {
        let ring = self.from(self.cursor, self.rings).or_else(|| self.from(0, self.cursor))?;
        self.cursor = if ring + 1 == self.rings { 0 } else { ring + 1 };
        Some(ring)
    }

    /// It was not visited: it is its turn still.
    pub fn put_back(&mut self, ring: usize) {
        self.cursor = ring;
    }

    /// A look at this ring has found nothing.
    pub fn is_empty_now(&mut self, ring: usize) {
        self.bits[ring / BITS] &= !(1 << (ring % BITS));
    }

    /// The first ready one from `start` on and before `end`.
    fn from(&self, start: usize, end: usize) -> Option<usize> {
        let mut word = start / BITS;
        let mut bits = self.bits.get(word)? & (u64::MAX << (start % BITS));
        loop {
            if bits != 0 {
                let ring = word * BITS + bits.trailing_zeros() as usize;
                return (ring < end).then_some(ring);
            }
            word += 1;
            if word * BITS >= end {
                return None;
            }
            bits = self.bits[word];
        }
    }
}
