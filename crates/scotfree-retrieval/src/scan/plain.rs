//! The plain kernel.

use super::{Weights, Word};
use crate::code::WORD_BITS;

pub fn sums(codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
    sums.extend(codes.chunks_exact(weights.code_bytes()).map(|code| {
        let mut words = code.chunks_exact(WORD_BITS / 8);
        let groups = weights.0.iter().map(|group| {
            group.words.iter().zip(&mut words).map(|(word, code)| weighed(code, word)).sum::<i32>() as f32
                * group.scale
        });
        groups.sum::<f32>()
    }));
}

fn weighed(code: &[u8], word: &Word) -> i32 {
    let of_byte = |(byte, weights): (&u8, &[i8])| -> i32 {
        weights.iter().enumerate().map(|(bit, weight)| i32::from(byte >> bit & 1) * i32::from(*weight)).sum()
    };
    code.iter().zip(word.0.chunks_exact(8)).map(of_byte).sum()
}
