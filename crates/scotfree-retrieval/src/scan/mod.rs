//! Inner products of codes with a direction: one plain kernel, and those of processors that have wider registers.
//!
//! Invariant: all kernels give the plain one's values but for the rounding of another order of additions.

mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

/// One way to compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// On every processor; what tests compare the others with.
    Plain,
    /// 8 dimensions at once.
    Avx2,
    /// 16 dimensions at once.
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

    /// Appends for each code of a bit per dimension the sum of the direction's values at its set bits.
    pub(crate) fn signs(self, codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
        check(codes, direction, 8);
        match self.here() {
            Self::Plain => plain::signs(codes, direction, sums),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::signs_avx2(codes, direction, sums),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::signs_avx512(codes, direction, sums),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => unreachable!("such a kernel is not here"),
        }
    }

    /// Appends for each code of four bits per dimension the sum of steps times the direction's values.
    pub(crate) fn steps(self, codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
        check(codes, direction, 2);
        match self.here() {
            Self::Plain => plain::steps(codes, direction, sums),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::steps_avx2(codes, direction, sums),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::steps_avx512(codes, direction, sums),
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

fn check(codes: &[u8], direction: &[f32], of_a_byte: usize) {
    assert!(!direction.is_empty() && direction.len().is_multiple_of(crate::code::DIMENSIONS_STEP));
    assert_eq!(codes.len() % (direction.len() / of_a_byte), 0, "codes are whole");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Run = fn(Kernel, &[u8], &[f32], &mut Vec<f32>);

    fn agree(run: Run, codes: &[u8], direction: &[f32]) {
        let mut wanted = Vec::new();
        run(Kernel::Plain, codes, direction, &mut wanted);
        for kernel in KERNELS.into_iter().filter(|kernel| kernel.is_here()) {
            let mut found = Vec::new();
            run(kernel, codes, direction, &mut found);
            assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(&wanted) {
                assert!(
                    (found - wanted).abs() <= 1e-3 * wanted.abs().max(1.0),
                    "{kernel:?}: {found} {wanted}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn every_kernel_gives_the_plain_ones_sums(
            codes in prop::collection::vec(any::<u8>(), 192 * 4), words in 1_usize..4, seed in 0_u64..100
        ) {
            let mut random = crate::random::Random::new(seed);
            let direction: Vec<f32> = (0..words * 64).map(|_| random.normal() as f32).collect();
            let whole = |bytes: usize| &codes[..codes.len() / bytes * bytes];
            agree(Kernel::signs, whole(direction.len() / 8), &direction);
            agree(Kernel::steps, whole(direction.len() / 2), &direction);
        }
    }

    #[test]
    fn a_planted_bit_is_the_value_at_its_place() {
        let direction: Vec<f32> = (0..64).map(|at| at as f32).collect();
        for place in 0..64 {
            let mut signs = [0_u8; 8];
            signs[place / 8] = 1 << (place % 8);
            let mut steps = [0_u8; 32];
            steps[place / 32 * 16 + place % 16] = 3 << (4 * (place % 32 / 16));
            for kernel in KERNELS.into_iter().filter(|kernel| kernel.is_here()) {
                let mut sums = Vec::new();
                kernel.signs(&signs, &direction, &mut sums);
                kernel.steps(&steps, &direction, &mut sums);
                assert_eq!(sums, [place as f32, 3.0 * place as f32], "{kernel:?}");
            }
        }
    }
}
