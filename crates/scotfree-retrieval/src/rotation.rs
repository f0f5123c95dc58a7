//! One random rotation of all embeddings of an index: after it no dimension says more than another.
//!
//! A dense matrix would take dimensions³ steps to draw and dimensions² to apply. This one takes as many additions as
//! a sort: a few rounds of signs, an order, and Hadamard's transform of blocks (Ailon and Chazelle, STOC 2006).
//!
//! Invariant: it keeps inner products, so that centroids, residuals and questions may be rotated once and for all.

use crate::random::Random;

/// After so many every dimension is a sum of all, whatever the blocks.
const ROUNDS: usize = 3;

/// A rotation that follows from a seed.
#[derive(Debug, Clone)]
pub struct Rotation {
    dimensions: usize,
    /// The greatest power of two that divides the dimensions.
    block: usize,
    rounds: Vec<Round>,
}

#[derive(Debug, Clone)]
struct Round {
    /// With the sign of each dimension, what makes a block's transform keep lengths.
    scales: Vec<f32>,
    /// Of each dimension the one that comes to it.
    order: Vec<u32>,
}

impl Rotation {
    /// The rotation of that seed.
    pub fn new(dimensions: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let block = 1 << dimensions.trailing_zeros();
        let rounds = (0..ROUNDS).map(|_| Round::drawn(dimensions, block, &mut random)).collect();
        Self { dimensions, block, rounds }
    }

    /// Vectors behind each other, each rotated.
    pub fn apply(&self, vectors: &[f32]) -> Vec<f32> {
        vectors.chunks_exact(self.dimensions).flat_map(|vector| self.rotated(vector)).collect()
    }

    fn rotated(&self, vector: &[f32]) -> Vec<f32> {
        self.rounds.iter().fold(vector.to_vec(), |vector, round| {
            let ordered =
                round.order.iter().zip(&round.scales).map(|(from, scale)| vector[*from as usize] * scale);
            let mut next: Vec<f32> = ordered.collect();
            next.chunks_exact_mut(self.block).for_each(transform);
            next
        })
    }
}

impl Round {
    fn drawn(dimensions: usize, block: usize, random: &mut Random) -> Self {
        let scale = 1.0 / (block as f32).sqrt();
        let scales = (0..dimensions).map(|_| if random.uniform() > 0.5 { scale } else { -scale }).collect();
        let mut order: Vec<u32> = (0..dimensions as u32).collect();
        // Fisher and Yates.
        for last in (1..dimensions).rev() {
            order.swap(last, (random.uniform() * (last + 1) as f64).ceil() as usize - 1);
        }
        Self { scales, order }
    }
}

/// Hadamard's, in place; the length is a power of two.
fn transform(values: &mut [f32]) {
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (left, right) = pair.split_at_mut(half);
            for (left, right) in left.iter_mut().zip(right) {
                (*left, *right) = (*left + *right, *left - *right);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dot;

    fn drawn(dimensions: usize) -> Vec<f32> {
        let mut random = Random::new(1);
        (0..2 * dimensions).map(|_| random.normal() as f32).collect()
    }

    #[test]
    fn inner_products_are_kept_and_a_seed_is_a_rotation() {
        for dimensions in [64, 192, 384, 1024] {
            let vectors = drawn(dimensions);
            let rotated = Rotation::new(dimensions, 7).apply(&vectors);
            let products = |of: &[f32]| {
                let (left, right) = of.split_at(dimensions);
                [dot(left, right), dot(left, left), dot(right, right)]
            };
            for (after, before) in products(&rotated).into_iter().zip(products(&vectors)) {
                assert!((after - before).abs() < 1e-2, "{dimensions}: {after} {before}");
            }
            assert_eq!(Rotation::new(dimensions, 7).apply(&vectors), rotated);
            assert_ne!(Rotation::new(dimensions, 8).apply(&vectors), rotated);
        }
    }

    #[test]
    fn what_lies_in_one_dimension_is_spread_over_all() {
        for dimensions in [64, 192, 384, 1024] {
            for place in [0, dimensions / 2, dimensions - 1] {
                let mut vector = vec![0.0; dimensions];
                vector[place] = 1.0;
                let rotated = Rotation::new(dimensions, 3).apply(&vector);
                let most = rotated.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
                assert!(most * (dimensions as f32).sqrt() < 5.0, "{dimensions}: {most}");
            }
        }
    }
}
