//! Keys whose replies were not kept: a key with a time to live, one that is missing, a large value.
//!
//! Invariant: a key is doubted for its own replies alone. Two whose hashes share a place take it from each other, which
//! costs a question to the Redis.

use scotfree_core::KeyHash;

/// A power of two; four bytes each.
const PLACES: usize = 1 << 18;

#[derive(Debug, Clone, Copy, Default)]
struct Doubt {
    /// Bits of its hash by which its place is not found.
    of: u16,
    /// So many reads of it are not asked about.
    left: u8,
}

/// How many reads of each pass without a question.
#[derive(Debug)]
pub(super) struct Doubts {
    places: Box<[Doubt]>,
    /// How many that is at first.
    pub reads: u8,
}

impl Doubts {
    pub fn new(reads: u8) -> Doubts {
        Doubts { places: vec![Doubt::default(); PLACES].into_boxed_slice(), reads }
    }

    fn place(&mut self, hash: KeyHash) -> (&mut Doubt, u16) {
        (&mut self.places[hash.0 as usize & (PLACES - 1)], (hash.0 >> 48) as u16)
    }

    /// A read of this key passes; whether it does without a question.
    pub fn take(&mut self, hash: KeyHash) -> bool {
        let (doubt, of) = self.place(hash);
        let is_doubted = doubt.of == of && doubt.left > 0;
        doubt.left -= u8::from(is_doubted);
        is_doubted
    }

    /// How many more reads of it do.
    pub fn left(&self, hash: KeyHash) -> u8 {
        let doubt = self.places[hash.0 as usize & (PLACES - 1)];
        if doubt.of == (hash.0 >> 48) as u16 {
            doubt.left
        } else {
            0
        }
    }

    pub fn begin(&mut self, hash: KeyHash) {
        let left = self.reads;
        let (doubt, of) = self.place(hash);
        *doubt = Doubt { of, left };
    }

    pub fn end(&mut self, hash: KeyHash) {
        let (doubt, of) = self.place(hash);
        if doubt.of == of {
            doubt.left = 0;
        }
    }

    #[cfg(test)]
    pub fn end_all(&mut self) {
        self.places.fill(Doubt::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_doubted_for_its_own_replies_alone() {
        let mut doubts = Doubts::new(2);
        let (key, neighbour) = (KeyHash(7 | 1 << 48), KeyHash(7 | 2 << 48));
        doubts.begin(key);
        assert!(!doubts.take(neighbour) && doubts.left(neighbour) == 0);
        assert!(doubts.take(key) && doubts.left(key) == 1 && doubts.take(key) && !doubts.take(key));
        doubts.begin(key);
        doubts.end(neighbour);
        assert!(doubts.take(key), "that was another");
        doubts.end(key);
        assert!(!doubts.take(key));
        doubts.begin(key);
        doubts.begin(neighbour);
        assert!(!doubts.take(key) && doubts.take(neighbour));
    }
}
