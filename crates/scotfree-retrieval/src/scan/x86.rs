//! Kernels for AVX2 and AVX-512.
//!
//! Invariant: their callers have made sure that the processor has the instructions, and that codes and direction are
//! whole: 8, 2 dimensions a byte, and a multiple of 64 dimensions.
#![allow(unsafe_code)]
// Their names say which registers they are of.
#![allow(clippy::wildcard_imports)]

use std::arch::x86_64::*;

pub fn signs_avx2(codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(direction.len() / 8).map(|code| unsafe { sign_avx2(code, direction) }));
}

pub fn steps_avx2(codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(direction.len() / 2).map(|code| unsafe { step_avx2(code, direction) }));
}

pub fn signs_avx512(codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(direction.len() / 8).map(|code| unsafe { sign_avx512(code, direction) }));
}

pub fn steps_avx512(codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
    // SAFETY: `Kernel::here` has seen the processor's features.
    sums.extend(codes.chunks_exact(direction.len() / 2).map(|code| unsafe { step_avx512(code, direction) }));
}

#[target_feature(enable = "avx2,fma")]
fn sign_avx2(code: &[u8], direction: &[f32]) -> f32 {
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let mut sums = [_mm256_setzero_ps(); 2];
    for (at, (byte, values)) in code.iter().zip(direction.chunks_exact(8)).enumerate() {
        let set = _mm256_and_si256(_mm256_set1_epi32(i32::from(*byte)), bits);
        let mask = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits));
        // SAFETY: the chunk has eight values.
        let values = unsafe { _mm256_loadu_ps(values.as_ptr()) };
        sums[at % 2] = _mm256_add_ps(sums[at % 2], _mm256_and_ps(mask, values));
    }
    sum_avx2(_mm256_add_ps(sums[0], sums[1]))
}

#[target_feature(enable = "avx2,fma")]
fn step_avx2(code: &[u8], direction: &[f32]) -> f32 {
    let low_half = _mm_set1_epi8(15);
    let mut sums = [_mm256_setzero_ps(); 4];
    for (bytes, values) in code.chunks_exact(16).zip(direction.chunks_exact(32)) {
        // SAFETY: the chunk has sixteen bytes.
        let both = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        let low = _mm_and_si128(both, low_half);
        let high = _mm_and_si128(_mm_srli_epi16::<4>(both), low_half);
        let quarters = [low, _mm_srli_si128::<8>(low), high, _mm_srli_si128::<8>(high)];
        for ((sum, steps), values) in sums.iter_mut().zip(quarters).zip(values.chunks_exact(8)) {
            let steps = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(steps));
            // SAFETY: the chunk has eight values.
            *sum = _mm256_fmadd_ps(steps, unsafe { _mm256_loadu_ps(values.as_ptr()) }, *sum);
        }
    }
    sum_avx2(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])))
}

#[target_feature(enable = "avx2")]
fn sum_avx2(values: __m256) -> f32 {
    let halves = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps::<1>(values));
    let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
}

#[target_feature(enable = "avx512f")]
fn sign_avx512(code: &[u8], direction: &[f32]) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 4];
    for (word, values) in code.chunks_exact(8).zip(direction.chunks_exact(64)) {
        for (at, (half, values)) in word.chunks_exact(2).zip(values.chunks_exact(16)).enumerate() {
            let mask = u16::from_le_bytes([half[0], half[1]]);
            // SAFETY: the chunk has sixteen values.
            let values = unsafe { _mm512_loadu_ps(values.as_ptr()) };
            sums[at] = _mm512_mask_add_ps(sums[at], mask, sums[at], values);
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
}

#[target_feature(enable = "avx512f")]
fn step_avx512(code: &[u8], direction: &[f32]) -> f32 {
    let low_half = _mm_set1_epi8(15);
    let mut sums = [_mm512_setzero_ps(); 2];
    for (bytes, values) in code.chunks_exact(16).zip(direction.chunks_exact(32)) {
        // SAFETY: the chunk has sixteen bytes.
        let both = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        let halves = [_mm_and_si128(both, low_half), _mm_and_si128(_mm_srli_epi16::<4>(both), low_half)];
        for ((sum, steps), values) in sums.iter_mut().zip(halves).zip(values.chunks_exact(16)) {
            let steps = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(steps));
            // SAFETY: the chunk has sixteen values.
            *sum = _mm512_fmadd_ps(steps, unsafe { _mm512_loadu_ps(values.as_ptr()) }, *sum);
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]))
}
