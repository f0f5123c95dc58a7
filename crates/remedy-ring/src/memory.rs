//! What lies in the memory that a server shares with its clients.
//!
//! Invariant: each word has one side that writes it, but for the summary and the words of sleepers, which are changed
//! in one step; and each side's words lie on lines of their own.

use crate::shape::Shape;
use crate::tracker::MARKED;
use crate::words::{AtomicU32, AtomicU64, Ordering};

/// 32-bit words between two words of different writers: a line of the cache.
pub(crate) const LINE: usize = 16;

/// The memory, wherever it lies.
pub trait Memory {
    /// How far each ring of requests was written, ring by ring.
    fn pointers(&self) -> &[AtomicU32];

    /// A word for each 64 rings, in which one of them is marked.
    fn marks(&self) -> &[AtomicU32];

    /// A bit for each ring that has something.
    fn summary(&self) -> &[AtomicU64];

    /// Whether the server sleeps.
    fn server_sleeps(&self) -> &AtomicU32;

    /// Whether the client of a ring sleeps.
    fn client_sleeps(&self, ring: usize) -> &AtomicU32;

    /// How far the client of a ring has read its responses.
    fn responses_read(&self, ring: usize) -> &AtomicU32;

    /// How far the server has read the requests of a ring, where no answers say it.
    fn requests_read(&self, ring: usize) -> &AtomicU32;

    /// Makes all words of the ring's entries zero, as they are before anybody has used them.
    fn forget(&self, ring: usize);

    /// The ring's requests.
    fn requests(&self, ring: usize) -> &[AtomicU64];

    /// The ring's responses.
    fn responses(&self, ring: usize) -> &[AtomicU64];
}

/// Memory of one process: for tests, and for threads of a process.
#[derive(Debug)]
pub struct HeapMemory {
    shape: Shape,
    pointers: Box<[AtomicU32]>,
    marks: Box<[AtomicU32]>,
    summary: Box<[AtomicU64]>,
    sleepers: Box<[AtomicU32]>,
    read: Box<[AtomicU32]>,
    entries: Box<[AtomicU64]>,
}

impl HeapMemory {
    /// For so many rings of this shape, all of it zero.
    pub fn new(rings: usize, shape: Shape) -> HeapMemory {
        let halves = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        HeapMemory {
            shape,
            pointers: halves(rings),
            marks: halves(rings.div_ceil(MARKED)),
            summary: words(rings.div_ceil(64)),
            sleepers: halves((1 + rings) * LINE),
            read: halves(2 * rings * LINE),
            entries: words(2 * rings * shape.words()),
        }
    }

    fn ring(&self, nth: usize) -> &[AtomicU64] {
        let words = self.shape.words();
        &self.entries[nth * words..(nth + 1) * words]
    }
}

impl Memory for HeapMemory {
    fn pointers(&self) -> &[AtomicU32] {
        &self.pointers
    }

    fn marks(&self) -> &[AtomicU32] {
        &self.marks
    }

    fn summary(&self) -> &[AtomicU64] {
        &self.summary
    }

    fn server_sleeps(&self) -> &AtomicU32 {
        &self.sleepers[0]
    }

    fn client_sleeps(&self, ring: usize) -> &AtomicU32 {
        &self.sleepers[(1 + ring) * LINE]
    }

    fn responses_read(&self, ring: usize) -> &AtomicU32 {
        &self.read[2 * ring * LINE]
    }

    fn requests_read(&self, ring: usize) -> &AtomicU32 {
        &self.read[(2 * ring + 1) * LINE]
    }

    fn forget(&self, ring: usize) {
        for word in self.requests(ring).iter().chain(self.responses(ring)) {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn requests(&self, ring: usize) -> &[AtomicU64] {
        self.ring(2 * ring)
    }

    fn responses(&self, ring: usize) -> &[AtomicU64] {
        self.ring(2 * ring + 1)
    }
}
