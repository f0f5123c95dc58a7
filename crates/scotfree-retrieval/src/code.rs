//! Codes of residuals: a sign or one of sixteen steps per dimension, and what makes an inner product of them.
//!
//! Invariant: with the numbers that a code is stored with, its inner product is an unbiased estimate of the
//! residual's, and the bound is the one of that estimate (`RaBitQ`, Gao and Long, SIGMOD 2024, theorem 3.2).

use half::f16;

use crate::scan::Kernel;

/// How many bits a dimension has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// Its sign.
    One,
    /// One of sixteen steps.
    Four,
}

impl Bits {
    /// The number.
    pub fn count(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Four => 4,
        }
    }

    /// The bits of that number.
    pub fn of(count: u32) -> Option<Self> {
        [Self::One, Self::Four].into_iter().find(|bits| bits.count() == count)
    }
}

/// Dimensions are a multiple of it, so that every kernel reads whole words.
pub const DIMENSIONS_STEP: usize = 64;
/// The sixteen steps lie around zero.
pub const STEP_MIDDLE: f32 = 7.5;
const STEP_LAST: f32 = 15.0;
/// Steps that are tried for the length of one: shares of that at which the greatest value is the last step.
const LENGTHS: [f32; 12] = [0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.92, 1.0];
/// Numbers of two bytes beside each code: the residual's norm, scale, the estimate's standard error.
const FACTORS: usize = 3;

/// How an index codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coder {
    /// Of an embedding.
    pub dimensions: usize,
    /// Of a code's dimension.
    pub bits: Bits,
}

/// What makes an estimate of a code's inner product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// The residual's length.
    pub norm: f32,
    /// The residual's inner product is this times the code's.
    pub scale: f32,
    /// The standard error of that for a direction of length one.
    pub error: f32,
}

impl Coder {
    /// Bytes of a code without its factors.
    pub fn code_bytes(self) -> usize {
        self.dimensions * self.bits.count() as usize / 8
    }

    /// Bytes of a code's factors.
    pub fn factor_bytes(self) -> usize {
        match self.bits {
            // The error of a sign's code follows from norm and scale.
            Bits::One => 2 * (FACTORS - 1),
            Bits::Four => 2 * FACTORS,
        }
    }

    /// Bytes of a passage in the index.
    pub fn row_bytes(self) -> usize {
        self.code_bytes() + self.factor_bytes()
    }

    /// Appends the code and the factors of a rotated residual.
    pub fn encode(self, residual: &[f32], codes: &mut Vec<u8>, factors: &mut Vec<u8>) {
        let norm = crate::dot(residual, residual).sqrt();
        let (values, along, length) = match self.bits {
            Bits::One => signs(residual),
            Bits::Four => best_steps(residual),
        };
        match self.bits {
            Bits::One => codes.extend(values.chunks_exact(8).map(packed_signs)),
            Bits::Four => values.chunks_exact(32).for_each(|group| codes.extend(packed_steps(group))),
        }
        // A residual of nothing has no direction; its estimate is exactly nothing.
        let scale = if along > 0.0 { norm * norm / along } else { 0.0 };
        let cosine = if norm > 0.0 { along / (length * norm) } else { 1.0 };
        let all = [norm, scale, self.error(norm, cosine)];
        let kept = self.factor_bytes() / 2;
        factors.extend(all[..kept].iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()));
    }

    /// The factors as they were stored.
    pub fn factors(self, stored: &[u8]) -> Factors {
        let value = |at: usize| f16::from_le_bytes([stored[2 * at], stored[2 * at + 1]]).to_f32();
        let (norm, scale) = (value(0), value(1));
        let error = match self.bits {
            Bits::One if scale > 0.0 => {
                self.error(norm, (norm / (scale * (self.dimensions as f32).sqrt())).min(1.0))
            }
            Bits::One => 0.0,
            Bits::Four => value(2),
        };
        Factors { norm, scale, error }
    }

    /// Of a direction of length one: its part across the residual, spread over all dimensions but one.
    fn error(self, norm: f32, cosine: f32) -> f32 {
        norm * ((1.0 - cosine * cosine).max(0.0) / (cosine * cosine) / (self.dimensions - 1) as f32).sqrt()
    }

    /// Inner products of codes with a rotated direction, by a kernel; `found` is as long as there are codes.
    pub fn products(self, kernel: Kernel, codes: &[u8], direction: &[f32], found: &mut Vec<f32>) {
        let sum: f32 = direction.iter().sum();
        found.clear();
        match self.bits {
            Bits::One => {
                kernel.signs(codes, direction, found);
                for product in found.iter_mut() {
                    *product = 2.0 * *product - sum;
                }
            }
            Bits::Four => {
                kernel.steps(codes, direction, found);
                for product in found.iter_mut() {
                    *product -= STEP_MIDDLE * sum;
                }
            }
        }
    }
}

/// 1 where a value is not negative; the code's inner product with the residual, and the code's length.
fn signs(residual: &[f32]) -> (Vec<u8>, f32, f32) {
    let values = residual.iter().map(|value| u8::from(*value >= 0.0)).collect();
    let along = residual.iter().map(|value| value.abs()).sum();
    (values, along, (residual.len() as f32).sqrt())
}

/// The steps whose direction is nearest to the residual's, of those with the lengths that are tried.
fn best_steps(residual: &[f32]) -> (Vec<u8>, f32, f32) {
    let greatest = residual.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let tried = LENGTHS.iter().map(|share| steps(residual, share * greatest / STEP_MIDDLE));
    let cosine = |(_, along, length): &(Vec<u8>, f32, f32)| along / length;
    tried.max_by(|left, right| cosine(left).total_cmp(&cosine(right))).expect("lengths are tried")
}

fn steps(residual: &[f32], length: f32) -> (Vec<u8>, f32, f32) {
    let step = |value: &f32| {
        let place = if length > 0.0 { value / length + STEP_MIDDLE } else { STEP_MIDDLE };
        place.round().clamp(0.0, STEP_LAST)
    };
    let places: Vec<f32> = residual.iter().map(step).collect();
    let around = || places.iter().map(|place| place - STEP_MIDDLE);
    let along = around().zip(residual).map(|(step, value)| step * value).sum();
    let length = around().map(|step| step * step).sum::<f32>().sqrt();
    (places.into_iter().map(|place| place as u8).collect(), along, length)
}

/// The first of eight is the lowest bit.
fn packed_signs(values: &[u8]) -> u8 {
    values.iter().rev().fold(0, |byte, value| byte << 1 | value)
}

/// Of 32 dimensions the first 16 are the low halves of 16 bytes, the others their high halves.
fn packed_steps(group: &[u8]) -> impl Iterator<Item = u8> + '_ {
    (0..16).map(|at| group[at] | group[at + 16] << 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::scan::KERNELS;
    use crate::{dot, Rotation};

    const DIMENSIONS: usize = 384;

    fn drawn(random: &mut Random, length: f32) -> Vec<f32> {
        let vector: Vec<f32> = (0..DIMENSIONS).map(|_| random.normal() as f32).collect();
        let scale = length / dot(&vector, &vector).sqrt();
        vector.into_iter().map(|value| value * scale).collect()
    }

    /// Of many pairs: error of the estimate over its standard error as stored.
    fn errors(bits: Bits) -> Vec<f32> {
        let (coder, mut random) = (Coder { dimensions: DIMENSIONS, bits }, Random::new(3));
        let rotation = Rotation::new(DIMENSIONS, 5);
        let mut errors = Vec::new();
        for _ in 0..300 {
            let (mut codes, mut factors, mut products) = (Vec::new(), Vec::new(), Vec::new());
            let residual = rotation.apply(&drawn(&mut random, 0.7));
            coder.encode(&residual, &mut codes, &mut factors);
            assert_eq!((codes.len(), factors.len()), (coder.code_bytes(), coder.factor_bytes()));
            let stored = coder.factors(&factors);
            let direction = rotation.apply(&drawn(&mut random, 1.0));
            coder.products(KERNELS[0], &codes, &direction, &mut products);
            let estimate = stored.scale * products[0];
            errors.push((estimate - dot(&residual, &direction)) / stored.error);
        }
        errors
    }

    #[test]
    fn estimates_are_unbiased_and_their_errors_are_as_said() {
        for bits in [Bits::One, Bits::Four] {
            let errors = errors(bits);
            let count = errors.len() as f32;
            let mean = errors.iter().sum::<f32>() / count;
            let spread = (errors.iter().map(|error| error * error).sum::<f32>() / count).sqrt();
            assert!(mean.abs() < 0.25, "{bits:?}: {mean}");
            assert!((0.8..1.2).contains(&spread), "{bits:?}: {spread}");
        }
    }

    #[test]
    fn four_bits_err_by_far_less_than_one() {
        let mut random = Random::new(9);
        let residual = drawn(&mut random, 1.0);
        let error = |bits| {
            let (coder, mut factors) = (Coder { dimensions: DIMENSIONS, bits }, Vec::new());
            coder.encode(&residual, &mut Vec::new(), &mut factors);
            coder.factors(&factors).error
        };
        assert!(error(Bits::Four) * 6.0 < error(Bits::One), "{} {}", error(Bits::Four), error(Bits::One));
    }

    #[test]
    fn a_residual_of_nothing_is_estimated_as_nothing() {
        for bits in [Bits::One, Bits::Four] {
            let coder = Coder { dimensions: DIMENSIONS, bits };
            let (mut codes, mut factors) = (Vec::new(), Vec::new());
            coder.encode(&[0.0; DIMENSIONS], &mut codes, &mut factors);
            assert_eq!(coder.factors(&factors), Factors { norm: 0.0, scale: 0.0, error: 0.0 });
        }
    }
}
