//! Pseudo-random numbers for the simulator (xoshiro256**, seeded by splitmix64).
//!
//! Invariant: equal seeds and labels give equal sequences on every machine.

use scotfree_core::Nanos;

/// A probability in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PerMillion(pub u32);

impl PerMillion {
    /// Never.
    pub const NEVER: PerMillion = PerMillion(0);
    /// Always.
    pub const ALWAYS: PerMillion = PerMillion(1_000_000);

    /// `count` in a hundred.
    pub const fn percent(count: u32) -> PerMillion {
        PerMillion(count * 10_000)
    }
}

/// A stream of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream of a seed. Different labels give independent streams, so that drawing more of one
    /// (faults) does not change another (the workload).
    pub fn new(seed: u64, label: u64) -> Rng {
        let mut state = seed ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Rng([0; 4].map(|_| splitmix(&mut state)))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high word of the product: unbiased enough for limits far below 2^64, and no division.
        ((u128::from(self.draw()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// An index below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// A span from `low` to `high`, both included.
    pub fn span(&mut self, low: Nanos, high: Nanos) -> Nanos {
        Nanos(self.between(low.0, high.0))
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, probability: PerMillion) -> bool {
        // No draw for what never happens: switching a fault off leaves the rest of the stream alone.
        probability.0 > 0 && self.below(1_000_000) < u64::from(probability.0)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Sixteen or more bytes at once.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_and_labels_part_them() {
        let draw = |seed, label| {
            let mut rng = Rng::new(seed, label);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn the_first_numbers_stay_what_they_are() {
        // A changed generator would silently give every recorded seed another meaning.
        let mut rng = Rng::new(0, 0);
        assert_eq!(rng.draw(), 11_091_344_671_253_066_420);
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(7, 0);
        let draws: Vec<u64> = (0..1_000).map(|_| rng.between(3, 6)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&3), Some(&6)));
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(5, 5), 5);
    }

    #[test]
    fn chances_come_about_as_often_as_they_say() {
        let mut rng = Rng::new(9, 0);
        let hits = (0..100_000).filter(|_| rng.chance(PerMillion::percent(10))).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        assert!((0..100).all(|_| !rng.chance(PerMillion::NEVER)));
        assert!((0..100).all(|_| rng.chance(PerMillion::ALWAYS)));
    }
}
