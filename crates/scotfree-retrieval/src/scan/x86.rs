//! Kernels for AVX2 and AVX-512.
//!
//! Invariant: their callers have made sure that the processor has the instructions, and that codes are whole, of a
//! multiple of 64 bits, and that there is a weight for each bit of a code.
#![allow(unsafe_code)]
// Their names say which registers they are of.
#![allow(clippy::wildcard_imports)]

use std::arch::x86_64::*;

use super::{Low, Weights, Word, GROUP_WORDS, HIGH};

pub fn sums_avx2(codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(weights.code_bytes()).map(|code| unsafe { weighed_avx2(code, weights) }));
}

pub fn sums_avx512(codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    unsafe { all_avx512(codes, weights, sums) }
}

pub fn dot_avx2(left: &[f32], right: &[f32]) -> f32 {
    // SAFETY: `Kernel::here` has seen the processor's features.
    unsafe { product_avx2(left, right) }
}

pub fn dot_avx512(left: &[f32], right: &[f32]) -> f32 {
    // SAFETY: `Kernel::here` has seen the processor's features.
    unsafe { product_avx512(left, right) }
}

#[target_feature(enable = "avx2,fma")]
fn product_avx2(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [_mm256_setzero_ps(); 4];
    let (lefts, rights) = (left.chunks_exact(8), right.chunks_exact(8));
    let rest: f32 = lefts.remainder().iter().zip(rights.remainder()).map(|(left, right)| left * right).sum();
    for (at, (left, right)) in lefts.zip(rights).enumerate() {
        // SAFETY: the chunks have eight values.
        let (left, right) = unsafe { (_mm256_loadu_ps(left.as_ptr()), _mm256_loadu_ps(right.as_ptr())) };
        sums[at % 4] = _mm256_fmadd_ps(left, right, sums[at % 4]);
    }
    sum_avx2(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]))) + rest
}

#[target_feature(enable = "avx512f")]
fn product_avx512(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 4];
    let (lefts, rights) = (left.chunks_exact(16), right.chunks_exact(16));
    let rest: f32 = lefts.remainder().iter().zip(rights.remainder()).map(|(left, right)| left * right).sum();
    for (at, (left, right)) in lefts.zip(rights).enumerate() {
        // SAFETY: the chunks have sixteen values.
        let (left, right) = unsafe { (_mm512_loadu_ps(left.as_ptr()), _mm512_loadu_ps(right.as_ptr())) };
        sums[at % 4] = _mm512_fmadd_ps(left, right, sums[at % 4]);
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
        + rest
}

#[target_feature(enable = "avx2,fma")]
fn weighed_avx2(code: &[u8], weights: &Weights) -> f32 {
    let mut sum = _mm256_setzero_ps();
    let mut code = code.chunks_exact(4);
    for group in weights.groups() {
        let (mut whole, mut lower) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        let halves = (0..group.words.len()).flat_map(|word| [(word, 0), (word, 32)]);
        for ((word, at), code) in halves.zip(&mut code) {
            let set = bytes_avx2(i32::from_le_bytes([code[0], code[1], code[2], code[3]]));
            // SAFETY: from either place on there are 32 weights.
            let weights = unsafe { _mm256_loadu_si256(group.words[word].0[at..at + 32].as_ptr().cast()) };
            whole = _mm256_add_epi32(whole, quadruples_avx2(_mm256_and_si256(set, weights)));
            if let Some(low) = group.lows.get(word) {
                // SAFETY: as above.
                let weights = unsafe { _mm256_loadu_si256(low.0[at..at + 32].as_ptr().cast()) };
                lower = _mm256_add_epi32(lower, unsigned_avx2(_mm256_and_si256(set, weights)));
            }
        }
        if !group.lows.is_empty() {
            whole = _mm256_add_epi32(_mm256_mullo_epi32(whole, _mm256_set1_epi32(HIGH)), lower);
        }
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), _mm256_set1_ps(group.scale), sum);
    }
    sum_avx2(sum)
}

/// Of each bit a byte: all ones where it is set.
#[target_feature(enable = "avx2")]
fn bytes_avx2(bits: i32) -> __m256i {
    let which = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, 128]));
    let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), which);
    _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit)
}

/// Sums of four bytes each.
#[target_feature(enable = "avx2")]
fn quadruples_avx2(values: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), values);
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

/// The same of bytes without sign.
#[target_feature(enable = "avx2")]
fn unsigned_avx2(values: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(values, _mm256_set1_epi8(1));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

#[target_feature(enable = "avx2")]
fn sum_avx2(values: __m256) -> f32 {
    let halves = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps::<1>(values));
    let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
}

/// Sixteen codes at a time, whose lanes are added together: one by one that takes as long as all the rest.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn all_avx512(codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
    let bytes = weights.code_bytes();
    sums.reserve(codes.len() / bytes);
    for codes in codes.chunks(LANES * bytes) {
        let mut lanes = [_mm512_setzero_ps(); LANES];
        for (at, group) in weights.groups().enumerate() {
            let codes = Part { codes, bytes, first: at * GROUP_WORDS * 8 };
            let unit = if group.lows.is_empty() { group.scale } else { HIGH as f32 * group.scale };
            codes.add_uppers(group.words, unit, &mut lanes);
            codes.add_lowers(group.lows, group.scale, &mut lanes);
        }
        let mut found = [0.0_f32; LANES];
        // SAFETY: there is room for sixteen values.
        unsafe { _mm512_storeu_ps(found.as_mut_ptr(), added_avx512(&lanes)) };
        sums.extend_from_slice(&found[..codes.len() / bytes]);
    }
}

/// Of up to sixteen codes of so many bytes what stands from one byte on.
#[derive(Clone, Copy)]
struct Part<'a> {
    codes: &'a [u8],
    bytes: usize,
    first: usize,
}

impl Part<'_> {
    /// Adds to each code's lanes the weights at its set bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn add_uppers(self, words: &[Word], unit: f32, lanes: &mut [__m512; LANES]) {
        // Of a number that the compiler knows all stay in registers.
        match words.len() {
            1 => self.add::<1, true>(|at| words[at].0.as_ptr(), unit, lanes),
            2 => self.add::<2, true>(|at| words[at].0.as_ptr(), unit, lanes),
            3 => self.add::<3, true>(|at| words[at].0.as_ptr(), unit, lanes),
            _ => self.add::<GROUP_WORDS, true>(|at| words[at].0.as_ptr(), unit, lanes),
        }
    }

    /// The same of weights without sign.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn add_lowers(self, lows: &[Low], unit: f32, lanes: &mut [__m512; LANES]) {
        match lows.len() {
            0 => (),
            1 => self.add::<1, false>(|at| lows[at].0.as_ptr().cast(), unit, lanes),
            2 => self.add::<2, false>(|at| lows[at].0.as_ptr().cast(), unit, lanes),
            3 => self.add::<3, false>(|at| lows[at].0.as_ptr().cast(), unit, lanes),
            _ => self.add::<GROUP_WORDS, false>(|at| lows[at].0.as_ptr().cast(), unit, lanes),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn add<const WORDS: usize, const SIGNED: bool>(
        self,
        word: impl Fn(usize) -> *const i8,
        unit: f32,
        lanes: &mut [__m512; LANES],
    ) {
        let (ones, unit) = (_mm512_set1_epi8(1), _mm512_set1_ps(unit));
        let mut weights = [_mm512_setzero_si512(); WORDS];
        for (at, weights) in weights.iter_mut().enumerate() {
            // SAFETY: a word has 64 weights.
            *weights = unsafe { _mm512_loadu_epi8(word(at)) };
        }
        for (lanes, code) in lanes.iter_mut().zip(self.codes.chunks_exact(self.bytes)) {
            let code = &code[self.first..self.first + 8 * WORDS];
            let mut whole = _mm512_setzero_si512();
            for (at, weights) in weights.iter().enumerate() {
                let set = _mm512_maskz_mov_epi8(bits(&code[8 * at..]), *weights);
                whole = if SIGNED {
                    _mm512_dpbusd_epi32(whole, ones, set)
                } else {
                    _mm512_dpbusd_epi32(whole, set, ones)
                };
            }
            *lanes = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), unit, *lanes);
        }
    }
}

/// Of a register.
const LANES: usize = 16;

/// Of each register the sum of its lanes, in their order.
#[inline]
#[target_feature(enable = "avx512f")]
fn added_avx512(lanes: &[__m512; LANES]) -> __m512 {
    let twos: [__m512; 8] = std::array::from_fn(|at| {
        let (left, right) = (lanes[2 * at], lanes[2 * at + 1]);
        _mm512_add_ps(_mm512_unpacklo_ps(left, right), _mm512_unpackhi_ps(left, right))
    });
    // Of four registers their sums in each quarter.
    let fours: [__m512; 4] = std::array::from_fn(|at| {
        let (left, right) = (_mm512_castps_pd(twos[2 * at]), _mm512_castps_pd(twos[2 * at + 1]));
        let (low, high) = (_mm512_unpacklo_pd(left, right), _mm512_unpackhi_pd(left, right));
        _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
    });
    let quarters = |left, right| {
        _mm512_add_ps(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(left, right),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(left, right),
        )
    };
    quarters(quarters(fours[0], fours[1]), quarters(fours[2], fours[3]))
}

#[inline]
fn bits(code: &[u8]) -> u64 {
    u64::from_le_bytes([code[0], code[1], code[2], code[3], code[4], code[5], code[6], code[7]])
}
