//! Kernels for AVX2 and AVX-512.
//!
//! Invariant: their callers have made sure that the processor has the instructions, and that codes are whole, of a
//! multiple of 64 bits, and that there is a weight for each bit of a code.
#![allow(unsafe_code)]
// Their names say which registers they are of.
#![allow(clippy::wildcard_imports)]

use std::arch::x86_64::*;

pub fn sums_avx2(codes: &[u8], weights: &[f32], sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(weights.len() / 8).map(|code| unsafe { weighed_avx2(code, weights) }));
}

pub fn sums_avx512(codes: &[u8], weights: &[f32], sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(weights.len() / 8).map(|code| unsafe { weighed_avx512(code, weights) }));
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

#[target_feature(enable = "avx2")]
fn weighed_avx2(code: &[u8], weights: &[f32]) -> f32 {
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let mut sums = [_mm256_setzero_ps(); 2];
    for (at, (byte, weights)) in code.iter().zip(weights.chunks_exact(8)).enumerate() {
        let set = _mm256_and_si256(_mm256_set1_epi32(i32::from(*byte)), bits);
        let mask = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits));
        // SAFETY: the chunk has eight weights.
        let weights = unsafe { _mm256_loadu_ps(weights.as_ptr()) };
        sums[at % 2] = _mm256_add_ps(sums[at % 2], _mm256_and_ps(mask, weights));
    }
    sum_avx2(_mm256_add_ps(sums[0], sums[1]))
}

#[target_feature(enable = "avx2")]
fn sum_avx2(values: __m256) -> f32 {
    let halves = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps::<1>(values));
    let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
}

#[target_feature(enable = "avx512f")]
fn weighed_avx512(code: &[u8], weights: &[f32]) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 4];
    for (word, weights) in code.chunks_exact(8).zip(weights.chunks_exact(64)) {
        for (at, (half, weights)) in word.chunks_exact(2).zip(weights.chunks_exact(16)).enumerate() {
            let mask = u16::from_le_bytes([half[0], half[1]]);
            // SAFETY: the chunk has sixteen weights.
            let weights = unsafe { _mm512_loadu_ps(weights.as_ptr()) };
            sums[at] = _mm512_mask_add_ps(sums[at], mask, sums[at], weights);
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
}
