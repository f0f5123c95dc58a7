//! Sums of weights at the set bits of codes: one plain kernel, and those of processors that have wider registers.
//!
//! Invariant: all kernels give the plain one's values but for the rounding of another order of additions.

use crate::code::WORD_BITS;

mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Of the greatest weight of a group, whichever its sign.
const WEIGHT_MAX: f32 = i8::MAX as f32;

/// Words whose weights are multiples of one number: the sums of so many are added before they are scaled.
const GROUP_WORDS: usize = 4;

/// What each bit of a code weighs, group by group.
#[derive(Debug, Clone)]
pub(crate) struct Weights(Vec<Group>);

/// Weights as whole numbers of eight bits, and what one of them stands for.
///
/// They are rounded by at most 1/254 of the greatest of their group. Of four bits a dimension that costs 0.007 of
/// recall@10 (0.9775 with weights of 32 bits, 24,744 passages of Debian's documentation, all clusters looked
/// through), and a search takes half as long; of fewer bits, whose own errors are greater, it costs less.
#[derive(Debug, Clone)]
struct Group {
    words: Vec<Word>,
    scale: f32,
}

/// The weights of the bits of a word, which lie in one line of a cache.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Word([i8; WORD_BITS]);

impl Group {
    fn of(weights: &[f32]) -> Self {
        let greatest = weights.iter().fold(0.0_f32, |greatest, weight| greatest.max(weight.abs()));
        let unit = if greatest > 0.0 { WEIGHT_MAX / greatest } else { 0.0 };
        let word = |weights: &[f32]| {
            let mut word = [0; WORD_BITS];
            for (value, weight) in word.iter_mut().zip(weights) {
                *value = (weight * unit).round() as i8;
            }
            Word(word)
        };
        Self { words: weights.chunks(WORD_BITS).map(word).collect(), scale: greatest / WEIGHT_MAX }
    }

    fn sum(&self) -> f32 {
        self.words.iter().flat_map(|word| &word.0).map(|weight| i32::from(*weight)).sum::<i32>() as f32
            * self.scale
    }
}

impl Weights {
    /// Of as many bits as there are weights, filled up to whole words by bits without weight.
    pub(crate) fn of(weights: &[f32]) -> Self {
        Self(weights.chunks(GROUP_WORDS * WORD_BITS).map(Group::of).collect())
    }

    /// Of all bits.
    pub(crate) fn sum(&self) -> f32 {
        self.0.iter().map(Group::sum).sum()
    }

    fn code_bytes(&self) -> usize {
        self.0.iter().map(|group| group.words.len()).sum::<usize>() * WORD_BITS / 8
    }
}

/// One way to compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// On every processor; what tests compare the others with.
    Plain,
    /// 32 bits at once.
    Avx2,
    /// 64 bits at once.
    Avx512,
}

/// All of them, the plain one first.
pub const KERNELS: [Kernel; 3] = [Kernel::Plain, Kernel::Avx2, Kernel::Avx512];

impl Kernel {
    /// The widest that this processor has.
    pub fn best() -> Self {
        KERNELS.into_iter().rev().find(|kernel| kernel.is_here()).unwrap_or(Self::Plain)
    }

    /// Whether this processor can run it.
    pub fn is_here(self) -> bool {
        match self {
            Self::Plain => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Appends for each code the sum of the weights at its set bits.
    pub(crate) fn sums(self, codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
        assert_ne!(weights.code_bytes(), 0, "a code has bits");
        assert_eq!(codes.len() % weights.code_bytes(), 0, "codes are whole");
        match self.here() {
            Self::Plain => plain::sums(codes, weights, sums),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::sums_avx2(codes, weights, sums),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::sums_avx512(codes, weights, sums),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => unreachable!("such a kernel is not here"),
        }
    }

    /// The inner product of two vectors of one length.
    pub(crate) fn dot(self, left: &[f32], right: &[f32]) -> f32 {
        assert_eq!(left.len(), right.len());
        match self.here() {
            Self::Plain => crate::dot(left, right),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::dot_avx2(left, right),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::dot_avx512(left, right),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => unreachable!("such a kernel is not here"),
        }
    }

    /// Itself: the kernels behind it trust that the processor has it.
    fn here(self) -> Self {
        assert!(self.is_here(), "{self:?} is not of this processor");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::normal;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_kernel_gives_the_plain_ones_sums(
            codes in prop::collection::vec(any::<u8>(), 56 * 4), words in 1_usize..8, seed in 0_u64..100
        ) {
            let weights = Weights::of(&normal(seed, words * WORD_BITS));
            let codes = &codes[..codes.len() / weights.code_bytes() * weights.code_bytes()];
            let mut wanted = Vec::new();
            Kernel::Plain.sums(codes, &weights, &mut wanted);
            for kernel in KERNELS.into_iter().filter(|kernel| kernel.is_here()) {
                let mut found = Vec::new();
                kernel.sums(codes, &weights, &mut found);
                prop_assert_eq!(found.len(), wanted.len());
                for (found, wanted) in found.iter().zip(&wanted) {
                    prop_assert!((found - wanted).abs() <= 1e-3 * wanted.abs().max(1.0), "{:?}: {} {}", kernel, found, wanted);
                }
            }
        }
    }

    #[test]
    fn every_kernel_gives_the_plain_ones_products_of_any_length() {
        for count in [0, 1, 7, 8, 15, 16, 17, 100, 384] {
            let (left, right) = (normal(1, count), normal(2, count));
            let wanted = Kernel::Plain.dot(&left, &right);
            for kernel in KERNELS.into_iter().filter(|kernel| kernel.is_here()) {
                assert!((kernel.dot(&left, &right) - wanted).abs() < 1e-3, "{kernel:?} {count}");
            }
        }
    }

    #[test]
    fn a_planted_bit_is_the_weight_at_its_place() {
        // The greatest is what a weight of eight bits can be, so that none is rounded.
        let weights: Vec<f32> =
            (0..128).map(|at| if at % 64 == 9 { -127.0 } else { (at % 64) as f32 }).collect();
        for place in 0..128 {
            let mut code = [0_u8; 16];
            code[place / 8] = 1 << (place % 8);
            for kernel in KERNELS.into_iter().filter(|kernel| kernel.is_here()) {
                let mut sums = Vec::new();
                kernel.sums(&code, &Weights::of(&weights), &mut sums);
                assert_eq!(sums, [weights[place]], "{kernel:?}");
            }
        }
    }

    #[test]
    fn weights_are_rounded_by_little_of_the_greatest_of_their_group() {
        let exact: Vec<f32> =
            [normal(1, 256), normal(2, 100).iter().map(|weight| weight / 1e3).collect()].concat();
        let weights = Weights::of(&exact);
        assert_eq!(weights.code_bytes(), 48);
        for (at, exact) in exact.iter().enumerate() {
            let Group { words, scale } = &weights.0[at / (GROUP_WORDS * WORD_BITS)];
            let found = f32::from(words[at / WORD_BITS % GROUP_WORDS].0[at % WORD_BITS]) * scale;
            assert!((found - exact).abs() <= 0.501 * scale, "{at}: {found} {exact}");
        }
        assert!(weights.0[1].words[1].0[36..].iter().all(|value| *value == 0));
        assert!(Weights::of(&[0.0; 64]).sum().abs() < f32::EPSILON);
    }
}
