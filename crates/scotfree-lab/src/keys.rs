//! Which of a service's keys a client asks for.
//!
//! Invariant: the same sequence of random numbers gives the same sequence of keys.

use scotfree_stage::workload::Random;
use serde::{Deserialize, Serialize};

/// The skew of YCSB's Zipfian distribution.
const ZIPF_EXPONENT: f64 = 0.99;
/// Scatters neighbours in popularity over the keys; a prime larger than any number of keys.
const SCATTER: u64 = 18_446_744_073_709_551_557;

/// How often each key is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// All as often.
    Uniform,
    /// The n-th most popular one as often as 1 / n^0.99 says, as YCSB does it.
    Zipf,
}

/// Draws keys, by their numbers.
#[derive(Debug, Clone)]
pub struct KeyDraw {
    count: u64,
    /// How many of all draws are of a rank or a more popular one; empty where all are as popular.
    sums: Vec<f64>,
}

impl KeyDraw {
    /// Of `count` keys; there is one at least.
    pub fn new(count: u64, popularity: Popularity) -> KeyDraw {
        KeyDraw::skewed(
            count,
            match popularity {
                Popularity::Uniform => 0.0,
                Popularity::Zipf => ZIPF_EXPONENT,
            },
        )
    }

    /// Of `count` keys, the n-th most popular one asked for as often as 1 / n^`exponent` says.
    pub fn skewed(count: u64, exponent: f64) -> KeyDraw {
        let count = count.max(1);
        let sums = if exponent == 0.0 { Vec::new() } else { zipf_sums(count, exponent) };
        KeyDraw { count, sums }
    }

    /// How many of all draws are of the most popular keys, so many.
    pub fn share_of_top(&self, keys: u64) -> f64 {
        match keys.min(self.count) {
            0 => 0.0,
            keys if self.sums.is_empty() => keys as f64 / self.count as f64,
            keys => self.sums[keys as usize - 1],
        }
    }

    /// The next key, from 0.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        if self.sums.is_empty() {
            return random.below(self.count);
        }
        let at = random.unit();
        let rank = self.sums.partition_point(|sum| *sum < at) as u64;
        // The last sum may be a hair below 1.
        self.key_of(rank.min(self.count - 1))
    }

    fn key_of(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(SCATTER) % u128::from(self.count)) as u64
    }
}

fn zipf_sums(count: u64, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (1..=count)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    for at in &mut sums {
        *at /= sum;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    fn counts(count: u64, popularity: Popularity) -> Vec<u32> {
        let (keys, mut random) = (KeyDraw::new(count, popularity), Random::new(1, 2));
        let mut counts = vec![0; count as usize];
        for _ in 0..DRAWS {
            counts[keys.draw(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_keys_come_as_often() {
        assert!(counts(100, Popularity::Uniform).iter().all(|count| (1_800..2_200).contains(count)));
    }

    #[test]
    fn zipf_keys_come_as_often_as_their_rank_says() {
        let keys = KeyDraw::new(1_000, Popularity::Zipf);
        let counts = counts(1_000, Popularity::Zipf);
        let share = |rank: u64| f64::from(counts[keys.key_of(rank) as usize]) / f64::from(DRAWS);
        // The sum of 1 / n^0.99 up to 1,000.
        let sum: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [0, 1, 9, 99] {
            let expected = ((rank + 1) as f64).powf(-0.99) / sum;
            assert!((share(rank) / expected - 1.0).abs() < 0.15, "{rank}: {} for {expected}", share(rank));
        }
    }

    #[test]
    fn the_most_popular_keys_have_the_share_that_their_skew_says() {
        let even = KeyDraw::skewed(100, 0.0);
        let shares = [0, 1, 50, 100, 200].map(|keys| even.share_of_top(keys));
        assert_eq!(format!("{shares:?}"), "[0.0, 0.01, 0.5, 1.0, 1.0]");
        let skewed = KeyDraw::skewed(3, 1.0);
        let shares = [0, 1, 2, 3].map(|keys| skewed.share_of_top(keys));
        // 1, 1/2 and 1/3 of 11/6.
        for (share, expected) in shares.into_iter().zip([0.0, 6.0 / 11.0, 9.0 / 11.0, 1.0]) {
            assert!((share - expected).abs() < 1e-9, "{shares:?}");
        }
    }

    #[test]
    fn every_rank_has_a_key_of_its_own_and_popular_ones_are_no_neighbours() {
        let keys = KeyDraw::new(1_000, Popularity::Zipf);
        let mut of_ranks: Vec<u64> = (0..1_000).map(|rank| keys.key_of(rank)).collect();
        assert!(of_ranks[..10].windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{:?}", &of_ranks[..10]);
        of_ranks.sort_unstable();
        assert!(of_ranks.into_iter().eq(0..1_000));
    }
}
