//! Sums of weights at the set bits of codes: one plain kernel, and those of processors that have wider registers.
//!
//! Invariant: all kernels give the plain one's values but for the rounding of another order of additions.

use crate::code::WORD_BITS;

mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Of the greatest weight of a group, whichever its sign.
const WEIGHT_MAX: f32 = i8::MAX as f32;
const FINE_MAX: f32 = i16::MAX as f32;

/// Words whose weights are multiples of one number: the sums of so many are added before they are scaled.
const GROUP_WORDS: usize = 4;

/// What each bit of a code weighs: whole numbers, and of each group of words what one of them stands for.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    /// All of a weight or, of sixteen bits, the upper half.
    words: Vec<Word>,
    /// The lower halves, which have no sign; none of eight bits.
    lows: Vec<Low>,
    /// One for each `GROUP_WORDS` words.
    scales: Vec<f32>,
}

/// How exact weights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Eight bits: rounded by at most 1/254 of the greatest of their group. That is little beside the errors of codes
    /// of a bit a dimension.
    Coarse,
    /// Sixteen bits, for codes that err by less: two sums instead of one.
    Fine,
}

/// The weights of the bits of a word, which lie in one line of a cache.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Word([i8; WORD_BITS]);

/// What `Word` has no room for.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Low([u8; WORD_BITS]);

/// What a unit of an upper half is of lower ones.
const HIGH: i32 = 256;

impl Weights {
    /// Of as many bits as there are weights, filled up to whole words by bits without weight.
    pub(crate) fn of(weights: &[f32], precision: Precision) -> Self {
        let (mut words, mut lows, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        let most = match precision {
            Precision::Coarse => WEIGHT_MAX,
            Precision::Fine => FINE_MAX,
        };
        for group in weights.chunks(GROUP_WORDS * WORD_BITS) {
            let greatest = group.iter().fold(0.0_f32, |greatest, weight| greatest.max(weight.abs()));
            let unit = if greatest > 0.0 { most / greatest } else { 0.0 };
            for part in group.chunks(WORD_BITS) {
                let (mut word, mut low) = (Word([0; WORD_BITS]), Low([0; WORD_BITS]));
                for (at, weight) in part.iter().enumerate() {
                    let whole = (weight * unit).round() as i32;
                    (word.0[at], low.0[at]) = match precision {
                        Precision::Coarse => (whole as i8, 0),
                        Precision::Fine => (whole.div_euclid(HIGH) as i8, whole.rem_euclid(HIGH) as u8),
                    };
                }
                words.push(word);
                lows.extend((precision == Precision::Fine).then_some(low));
            }
            scales.push(greatest / most);
        }
        Self { words, lows, scales }
    }

    /// Of all bits.
    pub(crate) fn sum(&self) -> f32 {
        self.groups().map(|group| group.whole(|_, weights| sum(weights), |_, weights| sum(weights))).sum()
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let lows = self.lows.chunks(GROUP_WORDS).chain(std::iter::repeat(&[][..]));
        self.words.chunks(GROUP_WORDS).zip(lows).zip(&self.scales).map(|((words, lows), scale)| Group {
            words,
            lows,
            scale: *scale,
        })
    }

    fn code_bytes(&self) -> usize {
        self.words.len() * WORD_BITS / 8
    }
}

/// Words whose weights are multiples of one number.
#[derive(Debug, Clone, Copy)]
struct Group<'a> {
    words: &'a [Word],
    lows: &'a [Low],
    scale: f32,
}

impl Group<'_> {
    /// Of sums of a word's halves, each by its place in the group, that of the whole weights.
    fn whole(
        &self,
        upper: impl Fn(usize, &[i8; WORD_BITS]) -> i32,
        lower: impl Fn(usize, &[u8; WORD_BITS]) -> i32,
    ) -> f32 {
        let uppers: i32 = self.words.iter().enumerate().map(|(at, word)| upper(at, &word.0)).sum();
        let lowers: i32 = self.lows.iter().enumerate().map(|(at, low)| lower(at, &low.0)).sum();
        (if self.lows.is_empty() { uppers } else { HIGH * uppers + lowers }) as f32 * self.scale
    }
}

fn sum<T: Copy + Into<i32>>(weights: &[T]) -> i32 {
    weights.iter().map(|weight| (*weight).into()).sum()
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
            codes in prop::collection::vec(any::<u8>(), 56 * 4),
            words in 1_usize..8,
            seed in 0_u64..100,
            is_fine in any::<bool>(),
        ) {
            let precision = if is_fine { Precision::Fine } else { Precision::Coarse };
            let weights = Weights::of(&normal(seed, words * WORD_BITS), precision);
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
                kernel.sums(&code, &Weights::of(&weights, Precision::Coarse), &mut sums);
                assert_eq!(sums, [weights[place]], "{kernel:?}");
            }
        }
    }

    #[test]
    fn weights_are_rounded_by_little_of_the_greatest_of_their_group() {
        let exact: Vec<f32> =
            [normal(1, 256), normal(2, 100).iter().map(|weight| weight / 1e3).collect()].concat();
        for (precision, most) in [(Precision::Coarse, 127.0), (Precision::Fine, 32_767.0)] {
            let weights = Weights::of(&exact, precision);
            assert_eq!(weights.code_bytes(), 48);
            for (at, exact) in exact.iter().enumerate() {
                let group = weights.groups().nth(at / (GROUP_WORDS * WORD_BITS)).expect("it has one");
                let is_it = |word: usize| i32::from(word == at / WORD_BITS % GROUP_WORDS);
                let bit = at % WORD_BITS;
                let found = group.whole(
                    |word, weights| is_it(word) * i32::from(weights[bit]),
                    |word, weights| is_it(word) * i32::from(weights[bit]),
                );
                assert!((found - exact).abs() <= 0.501 * group.scale, "{at}: {found} {exact}");
            }
            let greatest = exact[..256].iter().fold(0.0_f32, |greatest, weight| greatest.max(weight.abs()));
            assert!((weights.scales[0] * most / greatest - 1.0).abs() < 1e-6, "{precision:?}");
            assert!(weights.words[5].0[36..].iter().all(|value| *value == 0));
            assert!(Weights::of(&[0.0; 64], precision).sum().abs() < f32::EPSILON);
        }
    }
}
