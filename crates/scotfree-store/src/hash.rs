//! Hashes of keys under a secret, and which shard owns a key.
//!
//! Invariant: who does not know the seed cannot choose keys that fall into one bucket; one seed gives a key one owner
//! (E1).

use crate::fault::{Planted, StoreFault};
use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};

/// The secret under which keys are hashed.
#[derive(Clone, Copy)]
pub struct Seed([u64; 4]);

impl Seed {
    /// One that nobody knows.
    pub fn random() -> Result<Seed, getrandom::Error> {
        let mut words = [0; 4];
        for word in &mut words {
            *word = getrandom::u64()?;
        }
        Ok(Seed(words))
    }

    /// A known one, for tests and for shards that must agree.
    pub fn fixed(number: u64) -> Seed {
        Seed([number, !number, number.rotate_left(17), number.rotate_left(41)])
    }
}

/// Hashes keys.
///
/// Folded multiplications under four secret words, by `ahash`. `SipHash` would be the stronger choice and costs 8 ns
/// more per key, a quarter of what an operation takes in the cache. What an attacker would need to do better than guess, the
/// hash itself or the time of a single look-up, never leaves the shard: cursors of a scan name buckets, by a few low
/// bits of the hash.
#[derive(Clone)]
pub(crate) struct KeyHash(RandomState);

impl KeyHash {
    pub fn new(Seed([a, b, c, d]): Seed) -> KeyHash {
        KeyHash(RandomState::with_seeds(a, b, c, d))
    }

    #[inline(always)]
    pub fn of(&self, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// Says which of several shards owns a key.
#[derive(Clone)]
pub struct Owners {
    hash: KeyHash,
    count: u32,
    planted: Planted,
}

impl Owners {
    /// Of `count` shards. All who ask must have one seed and one count.
    pub fn new(seed: Seed, count: u32) -> Owners {
        assert!(count > 0, "there is a shard");
        Owners { hash: KeyHash::new(seed), count, planted: Planted::NONE }
    }

    /// The same with a fault.
    #[must_use]
    pub fn with(self, planted: Planted) -> Owners {
        Owners { planted, ..self }
    }

    /// The shard of a key, from 0.
    pub fn of(&self, key: &[u8]) -> u32 {
        let hash = self.hash.of(key);
        let asker = if self.planted.is(StoreFault::TwoOwners) { self.asker() } else { 0 };
        // From the middle, so that the buckets of one shard, which go by the low bits, are filled evenly.
        let middle = (hash >> 24) as u32;
        ((u64::from(middle) * u64::from(self.count)) >> 32) as u32 ^ asker
    }

    /// Something that differs from one copy to the other.
    fn asker(&self) -> u32 {
        (std::ptr::from_ref(self) as usize / size_of::<Owners>()) as u32 & 1
    }
}
