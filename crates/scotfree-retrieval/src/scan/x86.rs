//! Kernels for AVX2 and AVX-512.
//!
//! Invariant: their callers have made sure that the processor has the instructions, and that codes are whole, of a
//! multiple of 64 bits, and that there is a weight for each bit of a code.
#![allow(unsafe_code)]
// Their names say which registers they are of.
#![allow(clippy::wildcard_imports)]

use std::arch::x86_64::*;

use super::{Weights, Word, GROUP_WORDS};

pub fn sums_avx2(codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(weights.code_bytes()).map(|code| unsafe { weighed_avx2(code, weights) }));
}

pub fn sums_avx512(codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(
        codes.chunks_exact(weights.code_bytes()).map(|code| unsafe { weighed_avx512(code, weights) }),
    );
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
    for group in &weights.0 {
        let mut whole = _mm256_setzero_si256();
        for (weights, code) in group.words.iter().flat_map(|word| word.0.chunks_exact(32)).zip(&mut code) {
            let bits = i32::from_le_bytes([code[0], code[1], code[2], code[3]]);
            // SAFETY: the chunk has 32 weights.
            let weights = unsafe { _mm256_loadu_si256(weights.as_ptr().cast()) };
            whole = _mm256_add_epi32(whole, quadruples_avx2(_mm256_and_si256(bytes_avx2(bits), weights)));
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

#[target_feature(enable = "avx2")]
fn sum_avx2(values: __m256) -> f32 {
    let halves = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps::<1>(values));
    let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn weighed_avx512(code: &[u8], weights: &Weights) -> f32 {
    let mut sum = _mm512_setzero_ps();
    for (code, group) in code.chunks(8 * GROUP_WORDS).zip(&weights.0) {
        let whole = match (
            <&[u8; 8 * GROUP_WORDS]>::try_from(code),
            <&[Word; GROUP_WORDS]>::try_from(&group.words[..]),
        ) {
            // Of a length that the compiler knows there is no loop.
            (Ok(code), Ok(words)) => group_avx512(code, words),
            _ => group_avx512(code, &group.words),
        };
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(group.scale), sum);
    }
    _mm512_reduce_add_ps(sum)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn group_avx512(code: &[u8], words: &[Word]) -> __m512i {
    let mut whole = _mm512_setzero_si512();
    for (code, word) in code.chunks_exact(8).zip(words) {
        let bits = [code[0], code[1], code[2], code[3], code[4], code[5], code[6], code[7]];
        // SAFETY: a word has 64 weights.
        let weights = unsafe { _mm512_maskz_loadu_epi8(u64::from_le_bytes(bits), word.0.as_ptr()) };
        whole = _mm512_dpbusd_epi32(whole, _mm512_set1_epi8(1), weights);
    }
    whole
}
