//! Where in the shared memory what lies.
//!
//! Invariant: both sides compute it from the same four numbers, and neither reads it out of the memory.

use remedy_ring::{AtomicU32, AtomicU64, Memory, Shape, MARKED};
use scotfree_io::SharedWords;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

const PAGE: usize = 4_096;
const LINE: usize = 64;
/// Where the word lies by which the server says that it sleeps.
const SERVER_SLEEPS: usize = LINE;
/// What each ring has beside its entries: three words on lines of their own.
const RING_LINES: usize = 3;

/// As many rings as addresses can name, and more than a process has descriptors for.
const RINGS_MAX: usize = 1 << 20;

fn too_many() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("no address space has room for so many rings; at most {RINGS_MAX}"),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    pointers: usize,
    marks: usize,
    summary: usize,
    words: usize,
    entries: usize,
    end: usize,
}

impl Layout {
    /// None where there is no room for that in an address space.
    fn of(rings: usize, shape: Shape) -> Option<Layout> {
        if rings > RINGS_MAX {
            return None;
        }
        let pointers = PAGE;
        let marks = (pointers + rings * size_of::<u32>()).next_multiple_of(LINE);
        let summary = (marks + rings.div_ceil(MARKED) * size_of::<u32>()).next_multiple_of(LINE);
        let words = (summary + rings.div_ceil(64) * size_of::<u64>()).next_multiple_of(LINE);
        let entries = (words + rings * RING_LINES * LINE).next_multiple_of(PAGE);
        let end = rings.checked_mul(2 * shape.bytes())?.checked_add(entries)?;
        isize::try_from(end).is_ok().then_some(Layout { pointers, marks, summary, words, entries, end })
    }
}

/// Shared memory with rings in it. What no client has used takes no room.
#[derive(Debug)]
pub struct Region {
    words: SharedWords,
    rings: usize,
    shape: Shape,
    layout: Layout,
}

impl Region {
    /// Makes one for so many rings of this shape.
    pub fn create(rings: usize, shape: Shape) -> io::Result<Region> {
        let layout = Layout::of(rings, shape).ok_or_else(too_many)?;
        let words = SharedWords::create(c"scot-rings", layout.end)?;
        Ok(Region { words, rings, shape, layout })
    }

    /// One that a server has made and handed over.
    pub fn open(memory: OwnedFd, rings: usize, shape: Shape) -> io::Result<Region> {
        let layout = Layout::of(rings, shape).ok_or_else(too_many)?;
        let words = SharedWords::open(memory, layout.end)?;
        Ok(Region { words, rings, shape, layout })
    }

    /// How many rings there are.
    pub fn rings(&self) -> usize {
        self.rings
    }

    /// Of each ring.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The bytes of all of it, used or not.
    pub fn bytes(&self) -> usize {
        self.words.length()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.words.descriptor()
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        &self.words.halves(at..at + size_of::<u32>())[0]
    }

    fn of_ring(&self, ring: usize, line: usize) -> &AtomicU32 {
        assert!(ring < self.rings, "there are {} rings", self.rings);
        self.word(self.layout.words + (ring * RING_LINES + line) * LINE)
    }

    fn entries(&self, nth: usize) -> Range<usize> {
        assert!(nth < 2 * self.rings, "there are {} rings", self.rings);
        let start = self.layout.entries + nth * self.shape.bytes();
        start..start + self.shape.bytes()
    }
}

impl Memory for Region {
    fn pointers(&self) -> &[AtomicU32] {
        let start = self.layout.pointers;
        self.words.halves(start..start + self.rings * size_of::<u32>())
    }

    fn marks(&self) -> &[AtomicU32] {
        let start = self.layout.marks;
        self.words.halves(start..start + self.rings.div_ceil(MARKED) * size_of::<u32>())
    }

    fn summary(&self) -> &[AtomicU64] {
        let start = self.layout.summary;
        self.words.words(start..start + self.rings.div_ceil(64) * size_of::<u64>())
    }

    fn server_sleeps(&self) -> &AtomicU32 {
        self.word(SERVER_SLEEPS)
    }

    fn client_sleeps(&self, ring: usize) -> &AtomicU32 {
        self.of_ring(ring, 0)
    }

    fn responses_read(&self, ring: usize) -> &AtomicU32 {
        self.of_ring(ring, 1)
    }

    fn requests_read(&self, ring: usize) -> &AtomicU32 {
        self.of_ring(ring, 2)
    }

    fn forget(&self, ring: usize) {
        let range = self.entries(2 * ring).start..self.entries(2 * ring + 1).end;
        let is_of_pages = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
        if !is_of_pages || self.words.forget(range).is_err() {
            // Nobody may write here now, so that this is the same, and takes room.
            for word in self.requests(ring).iter().chain(self.responses(ring)) {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    fn requests(&self, ring: usize) -> &[AtomicU64] {
        self.words.words(self.entries(2 * ring))
    }

    fn responses(&self, ring: usize) -> &[AtomicU64] {
        self.words.words(self.entries(2 * ring + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_more_rings_are_asked_for_than_there_can_be() {
        let largest = Shape::new(1 << 16, 1 << 16).expect("a ring");
        for (rings, shape) in
            [(RINGS_MAX + 1, Shape::new(2, 64).expect("a ring")), (u32::MAX as usize, largest)]
        {
            let refused = Region::create(rings, shape).expect_err("it is too large");
            assert!(refused.to_string().contains("no address space"));
        }
    }

    #[test]
    fn what_was_forgotten_is_zero_and_takes_no_room() {
        let shape = Shape::new(256, 2_048).expect("a ring");
        let region = Region::create(2, shape).expect("memory");
        for ring in 0..2 {
            region
                .requests(ring)
                .iter()
                .chain(region.responses(ring))
                .for_each(|word| word.store(7, Ordering::Relaxed));
        }
        region.forget(0);
        assert!(region
            .requests(0)
            .iter()
            .chain(region.responses(0))
            .all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(region
            .requests(1)
            .iter()
            .chain(region.responses(1))
            .all(|word| word.load(Ordering::Relaxed) == 7));
    }

    #[test]
    fn no_two_words_lie_at_one_place() {
        let shape = Shape::new(4, 64).expect("a ring");
        let region = Region::create(65, shape).expect("memory");
        let mut seen = BTreeSet::new();
        let mut note = |start: usize, bytes: usize| {
            (start..start + bytes).for_each(|byte| assert!(seen.insert(byte), "{byte}"));
        };
        note(std::ptr::from_ref(region.server_sleeps()) as usize, 4);
        note(region.pointers().as_ptr() as usize, 65 * 4);
        note(region.marks().as_ptr() as usize, 8);
        note(region.summary().as_ptr() as usize, 16);
        for ring in 0..65 {
            let words = [region.client_sleeps(ring), region.responses_read(ring), region.requests_read(ring)];
            for word in words {
                note(std::ptr::from_ref(word) as usize, 4);
            }
            note(region.requests(ring).as_ptr() as usize, shape.bytes());
            note(region.responses(ring).as_ptr() as usize, shape.bytes());
        }
        let (least, last) = (seen.first().expect("some"), seen.last().expect("some"));
        assert!(last - least < region.bytes());
    }
}
