//! Codes of residuals: along each axis of a basis as many bits as residuals vary there, and what makes an inner
//! product of them.
//!
//! Transform coding with its bits dealt by greatest gain (Gersho and Gray, Vector Quantization and Signal Compression,
//! 1992, chapters 8.3 and 8.5); the reconstruction is as long as makes its error lie across the residual, and that
//! error's length is stored with it, as `RaBitQ` does (Gao and Long, SIGMOD 2024). So what is nearest is estimated as
//! near as it is, in small indexes and in large ones, where the nearest are nearer.
//!
//! Invariant: an estimate errs by the stored error times the question's length across, but for its direction; how the
//! error lies among directions is what the basis says.

use half::f16;

use crate::dot;
use crate::scan::{Kernel, Precision, Weights};

/// Codes are filled up to a multiple of so many bits, so that every kernel reads whole words.
pub const WORD_BITS: usize = 64;
/// Codes of so many bits a dimension err by less than what questions' weights of eight bits lose.
const FINE_BITS: usize = 2;
/// Along an axis.
pub const DEPTH_MAX: u32 = 8;
/// How many factors a code has.
pub const FACTORS: usize = 3;
/// Their bytes.
pub const FACTOR_BYTES: usize = 2 * FACTORS;
/// The least cosine of a residual and its code that is believed: of one across all axes a code says nothing, and what
/// made it as long as wanted would have no bound.
const ALIGNED_MIN: f32 = 0.1;
/// How far from one the length of an axis' direction may be.
const LENGTH_SLACK: f32 = 0.01;

/// One axis: residuals of length one are coded along it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    /// The length of a step.
    pub step: f32,
    /// The mean square of the error that is left.
    pub error: f32,
    /// How many bits say which step it is.
    pub depth: u32,
}

impl Axis {
    /// The step in the middle, which lies at zero.
    fn middle(self) -> f32 {
        ((1_u32 << self.depth) - 1) as f32 / 2.0
    }

    fn place(self, value: f32) -> u32 {
        (value / self.step + self.middle()).round().clamp(0.0, 2.0 * self.middle()) as u32
    }

    fn value(self, place: u32) -> f32 {
        (place as f32 - self.middle()) * self.step
    }
}

/// The axes along which an index codes.
#[derive(Debug, Clone, PartialEq)]
pub struct Basis {
    /// Of an embedding.
    pub dimensions: usize,
    /// Of each axis the direction, of length one and across the others; one behind the other.
    pub directions: Vec<f32>,
    /// One for each direction.
    pub axes: Vec<Axis>,
    /// The mean square of residuals of length one along each direction across all axes.
    pub rest: f32,
}

/// A cluster's centroid, and its values along the axes.
#[derive(Debug, Clone)]
pub struct Centre {
    values: Vec<f32>,
    along: Vec<f32>,
}

/// What makes an estimate of a code's inner product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// The residual's inner product is this times the code's.
    pub gain: f32,
    /// What the estimate lacks of the residual's inner product with its centroid.
    pub offset: f32,
    /// The length of the error.
    pub error: f32,
}

impl Factors {
    /// Of the numbers in their order.
    pub fn of(values: &[f32]) -> Self {
        Self { gain: values[0], offset: values[1], error: values[2] }
    }

    fn write(self, factors: &mut Vec<u8>) {
        let values: [f32; FACTORS] = [self.gain, self.offset, self.error];
        factors.extend(values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()));
    }
}

impl Basis {
    /// The reason, if it is none.
    pub fn check(&self) -> Result<(), String> {
        let (dimensions, count) = (self.dimensions, self.axes.len());
        if count == 0 || count > dimensions || self.directions.len() != count * dimensions {
            return Err(format!(
                "{count} axes of {dimensions} dimensions and {} values of directions",
                self.directions.len()
            ));
        }
        let is_unit = |direction: &[f32]| (dot(direction, direction).sqrt() - 1.0).abs() <= LENGTH_SLACK;
        if let Some(at) = self.directions.chunks_exact(dimensions).position(|of| !is_unit(of)) {
            return Err(format!("axis {at} has not the length 1"));
        }
        let is_axis = |axis: &Axis| {
            (1..=DEPTH_MAX).contains(&axis.depth)
                && axis.step.is_normal()
                && axis.step > 0.0
                && is_square(axis.error)
        };
        if let Some(at) = self.axes.iter().position(|axis| !is_axis(axis)) {
            return Err(format!("axis {at} is none: {:?}", self.axes[at]));
        }
        if !is_square(self.rest) {
            return Err(format!("across its axes there is {}", self.rest));
        }
        Ok(())
    }

    /// Of a code, but for what fills it up.
    pub fn bits(&self) -> usize {
        self.axes.iter().map(|axis| axis.depth as usize).sum()
    }

    /// Of a code without its factors.
    pub fn code_bytes(&self) -> usize {
        code_bytes(self.bits())
    }

    /// Of a code with its factors.
    pub fn coded_bytes(&self) -> usize {
        self.code_bytes() + FACTOR_BYTES
    }

    /// A cluster's centroid, ready for what lies in it to be coded.
    pub fn centre(&self, values: Vec<f32>) -> Centre {
        let along = self.along(&values);
        Centre { values, along }
    }

    fn along(&self, vector: &[f32]) -> Vec<f32> {
        let kernel = Kernel::best();
        self.directions.chunks_exact(self.dimensions).map(|direction| kernel.dot(direction, vector)).collect()
    }

    /// Appends the code and the factors of a vector that lies in a centre's cluster.
    pub fn encode(&self, vector: &[f32], centre: &Centre, codes: &mut Vec<u8>, factors: &mut Vec<u8>) {
        let residual: Vec<f32> = vector.iter().zip(&centre.values).map(|(value, of)| value - of).collect();
        let norm = dot(&residual, &residual).sqrt();
        let along = self.along(&residual);
        let unit = if norm > 0.0 { 1.0 / norm } else { 0.0 };
        let places: Vec<u32> =
            self.axes.iter().zip(&along).map(|(axis, value)| axis.place(value * unit)).collect();
        codes.extend(self.packed(&places));
        let coded: Vec<f32> = self.axes.iter().zip(&places).map(|(axis, place)| axis.value(*place)).collect();
        let length = dot(&coded, &coded).sqrt();
        let met = dot(&coded, &along).max(ALIGNED_MIN * norm * length);
        let gain = if norm > 0.0 { norm * norm / met } else { 0.0 };
        let error = (gain * gain * length * length - norm * norm).max(0.0).sqrt();
        let offset = dot(&residual, &centre.values) - gain * dot(&coded, &centre.along);
        Factors { gain, offset, error }.write(factors);
    }

    /// The bits of an axis' place lie side by side, the lowest first; so do the axes.
    fn packed(&self, places: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; self.code_bytes()];
        let bits = self
            .axes
            .iter()
            .zip(places)
            .flat_map(|(axis, place)| (0..axis.depth).map(move |bit| place >> bit & 1));
        for (at, bit) in bits.enumerate() {
            bytes[at / 8] |= (bit as u8) << (at % 8);
        }
        bytes
    }

    /// What estimates inner products of codes with a question.
    pub fn asked(&self, question: &[f32]) -> Asked {
        let along = self.along(question);
        let weights = self.axes.iter().zip(&along).flat_map(|(axis, value)| {
            (0..axis.depth).map(move |bit| value * axis.step * (1_u32 << bit) as f32)
        });
        let precision =
            if self.bits() >= FINE_BITS * self.dimensions { Precision::Fine } else { Precision::Coarse };
        let weights = Weights::of(&weights.collect::<Vec<f32>>(), precision);
        // A step counts from the lowest, and zero lies in the middle: where half of the bits' weights are.
        let offset = -weights.sum() / 2.0;
        Asked { weights, offset, share: self.share(question, &along) }
    }

    /// The standard error of an inner product with a direction as long as the question, of an error of length one:
    /// by how much of the question lies along axes where errors are greatest.
    fn share(&self, question: &[f32], along: &[f32]) -> f32 {
        let whole = dot(question, question);
        let across = (whole - dot(along, along)).max(0.0);
        let met: f32 = self.axes.iter().zip(along).map(|(axis, value)| axis.error * value * value).sum();
        let errors: f32 = self.axes.iter().map(|axis| axis.error).sum();
        let all = errors + self.rest * (self.dimensions - self.axes.len()) as f32;
        let share = (met + self.rest * across) / (all * whole);
        // Of a question of nothing, or where nothing errs.
        if share.is_finite() {
            share.sqrt()
        } else {
            1.0 / (self.dimensions as f32).sqrt()
        }
    }
}

/// Bytes of a code that has so many bits.
pub fn code_bytes(bits: usize) -> usize {
    bits.div_ceil(WORD_BITS) * (WORD_BITS / 8)
}

fn is_square(value: f32) -> bool {
    value.is_finite() && value >= 0.0
}

/// A question as codes are asked it.
#[derive(Debug, Clone)]
pub struct Asked {
    weights: Weights,
    offset: f32,
    /// The standard error of an estimate, by the error's length and the question's.
    pub share: f32,
}

impl Asked {
    /// Inner products of codes with the question but for their gains, by a kernel; as many as there are codes.
    pub fn products(&self, kernel: Kernel, codes: &[u8], found: &mut Vec<f32>) {
        found.clear();
        kernel.sums(codes, &self.weights, found);
        for product in found.iter_mut() {
            *product += self.offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{normal, unit};
    use crate::halves::read;
    use crate::scan::KERNELS;

    const DIMENSIONS: usize = 128;

    /// Along the first dimensions residuals vary most; what remains has no axis.
    fn basis(depths: &[u32]) -> Basis {
        let spread = |at: usize| 1.0 / (at + 4) as f32;
        let all: f32 = (0..DIMENSIONS).map(|at| spread(at) * spread(at)).sum();
        let axis = |(at, depth): (usize, &u32)| {
            let variance = spread(at) * spread(at) / all;
            // Of a normal value: the best step, and the mean square of the error that it leaves.
            let (step, error) = [(1.596, 0.3634), (0.9957, 0.1188), (0.586, 0.0374)][*depth as usize - 1];
            Axis { step: variance.sqrt() * step, error: variance * error, depth: *depth }
        };
        let axes: Vec<Axis> = depths.iter().enumerate().map(axis).collect();
        let mut directions = vec![0.0; axes.len() * DIMENSIONS];
        (0..axes.len()).for_each(|at| directions[at * DIMENSIONS + at] = 1.0);
        let across: f32 = (axes.len()..DIMENSIONS).map(|at| spread(at) * spread(at) / all).sum();
        Basis {
            dimensions: DIMENSIONS,
            directions,
            rest: across / (DIMENSIONS - axes.len()).max(1) as f32,
            axes,
        }
    }

    fn residual(seed: u64) -> Vec<f32> {
        let values: Vec<f32> =
            normal(seed, DIMENSIONS).iter().enumerate().map(|(at, value)| value / (at + 4) as f32).collect();
        unit(&values).iter().map(|value| value * 0.7).collect()
    }

    /// Of many pairs: the estimate's error over its standard error as stored.
    fn errors(basis: &Basis) -> Vec<f32> {
        let centroid = unit(&normal(7, DIMENSIONS));
        let one = |seed: u64| {
            let residual = residual(seed);
            let vector: Vec<f32> = residual.iter().zip(&centroid).map(|(left, right)| left + right).collect();
            let question = unit(&normal(seed + 10_000, DIMENSIONS));
            let (mut codes, mut factors, mut products) = (Vec::new(), Vec::new(), Vec::new());
            basis.encode(&vector, &basis.centre(centroid.clone()), &mut codes, &mut factors);
            assert_eq!((codes.len(), factors.len()), (basis.code_bytes(), FACTOR_BYTES));
            let (stored, asked) = (Factors::of(&read(&factors)), basis.asked(&question));
            asked.products(KERNELS[0], &codes, &mut products);
            let estimate = stored.gain * products[0] + stored.offset;
            let across: Vec<f32> = question.iter().zip(&centroid).map(|(left, right)| left - right).collect();
            (estimate - dot(&residual, &question))
                / (stored.error * asked.share * dot(&across, &across).sqrt())
        };
        (0..400).map(one).collect()
    }

    #[test]
    fn estimates_are_unbiased_and_their_errors_are_as_said() {
        for depths in [vec![3; 64], [vec![2; 31], vec![1; 64]].concat(), vec![2; 32]] {
            let basis = basis(&depths);
            basis.check().expect("it is one");
            let errors = errors(&basis);
            let count = errors.len() as f32;
            let mean = errors.iter().sum::<f32>() / count;
            let spread = (errors.iter().map(|error| error * error).sum::<f32>() / count).sqrt();
            assert!(mean.abs() < 0.2, "{mean}");
            assert!((0.8..1.25).contains(&spread), "{spread}");
        }
    }

    #[test]
    fn what_lies_where_a_question_does_is_estimated_as_near_as_it_is() {
        let basis = basis(&[1; 64]);
        let centre = basis.centre(vec![0.0; DIMENSIONS]);
        for seed in 0..50 {
            let (residual, mut codes, mut factors, mut products) =
                (residual(seed), Vec::new(), Vec::new(), Vec::new());
            basis.encode(&residual, &centre, &mut codes, &mut factors);
            basis.asked(&residual).products(KERNELS[0], &codes, &mut products);
            let (stored, wanted) = (Factors::of(&read(&factors)), dot(&residual, &residual));
            let estimate = stored.gain * products[0] + stored.offset;
            assert!((estimate / wanted - 1.0).abs() < 0.05, "{estimate} {wanted}");
            assert!(stored.error > 0.1, "that it errs elsewhere is known: {}", stored.error);
        }
    }

    #[test]
    fn what_lies_across_all_axes_is_coded_with_an_error_that_says_so() {
        let (basis, mut across) = (basis(&[2; 32]), vec![0.0; DIMENSIONS]);
        across[DIMENSIONS - 1] = 1.0;
        let mut factors = Vec::new();
        basis.encode(&across, &basis.centre(vec![0.0; DIMENSIONS]), &mut Vec::new(), &mut factors);
        let Factors { gain, error, .. } = Factors::of(&read(&factors));
        assert!(gain.is_finite() && (9.0..11.0).contains(&error), "{gain} {error}");
    }

    #[test]
    fn bits_where_residuals_vary_err_by_less_than_as_many_on_all_axes() {
        let error = |depths: &[u32]| {
            let basis = basis(depths);
            let centre = basis.centre(vec![0.0; DIMENSIONS]);
            let errors = (0..50).map(|seed| {
                let mut factors = Vec::new();
                basis.encode(&residual(seed), &centre, &mut Vec::new(), &mut factors);
                Factors::of(&read(&factors)).error
            });
            errors.sum::<f32>()
        };
        let (dealt, even) =
            (error(&[vec![3; 16], vec![2; 20], vec![1; 40]].concat()), error(&[1; DIMENSIONS]));
        assert!(dealt < 0.8 * even, "{dealt} {even}");
    }

    #[test]
    fn what_lies_at_its_centroid_is_estimated_as_it() {
        let (basis, centroid) = (basis(&[2; 32]), unit(&normal(3, DIMENSIONS)));
        let mut factors = Vec::new();
        basis.encode(&centroid, &basis.centre(centroid.clone()), &mut Vec::new(), &mut factors);
        assert_eq!(Factors::of(&read(&factors)), Factors { gain: 0.0, offset: 0.0, error: 0.0 });
    }

    #[test]
    fn what_is_no_basis_is_refused_with_the_reason() {
        let whole = basis(&[2; 32]);
        let refusal = |change: fn(&mut Basis)| {
            let mut changed = whole.clone();
            change(&mut changed);
            changed.check().expect_err("it is refused")
        };
        assert!(refusal(|basis| basis.axes.clear()).contains("0 axes"));
        assert!(refusal(|basis| basis.directions[0] = 2.0).contains("axis 0 has not the length 1"));
        assert!(refusal(|basis| basis.axes[3].depth = 9).contains("axis 3 is none"));
        assert!(refusal(|basis| basis.axes[3].step = f32::NAN).contains("axis 3 is none"));
        assert!(refusal(|basis| basis.axes[3].error = -1.0).contains("axis 3 is none"));
        assert!(refusal(|basis| basis.rest = f32::INFINITY).contains("across its axes"));
    }
}
