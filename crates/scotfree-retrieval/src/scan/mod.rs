//! Sums of weights at the set bits of codes: one plain kernel, and those of processors that have wider registers.
//!
//! Invariant: all kernels give the plain one's values but for the rounding of another order of additions.

use crate::code::WORD_BITS;

mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

/// One way to compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// On every processor; what tests compare the others with.
    Plain,
    /// 8 bits at once.
    Avx2,
    /// 16 bits at once.
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
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Appends for each code the sum of the weights at its set bits.
    pub(crate) fn sums(self, codes: &[u8], weights: &[f32], sums: &mut Vec<f32>) {
        assert!(!weights.is_empty() && weights.len().is_multiple_of(WORD_BITS));
        assert_eq!(codes.len() % (weights.len() / 8), 0, "codes are whole");
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
            codes in prop::collection::vec(any::<u8>(), 24 * 4), words in 1_usize..4, seed in 0_u64..100
        ) {
            let weights = normal(seed, words * WORD_BITS);
            let codes = &codes[..codes.len() / (weights.len() / 8) * (weights.len() / 8)];
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
        let weights: Vec<f32> = (0..64).map(|at| at as f32).collect();
        for place in 0..64 {
            let mut code = [0_u8; 8];
            code[place / 8] = 1 << (place % 8);
            for kernel in KERNELS.into_iter().filter(|kernel| kernel.is_here()) {
                let mut sums = Vec::new();
                kernel.sums(&code, &weights, &mut sums);
                assert_eq!(sums, [place as f32], "{kernel:?}");
            }
        }
    }
}
