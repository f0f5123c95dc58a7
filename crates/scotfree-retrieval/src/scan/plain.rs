//! The plain kernel.

use super::Weights;
use crate::code::WORD_BITS;

pub fn sums(codes: &[u8], weights: &Weights, sums: &mut Vec<f32>) {
    const GROUP_BYTES: usize = super::GROUP_WORDS * WORD_BITS / 8;
    sums.extend(codes.chunks_exact(weights.code_bytes()).map(|code| {
        let of_group = |(group, code): (super::Group<'_>, &[u8])| {
            let word = |at: usize| &code[at * WORD_BITS / 8..(at + 1) * WORD_BITS / 8];
            group.whole(|at, weights| weighed(word(at), weights), |at, weights| weighed(word(at), weights))
        };
        weights.groups().zip(code.chunks(GROUP_BYTES)).map(of_group).sum::<f32>()
    }));
}

fn weighed<T: Copy + Into<i32>>(code: &[u8], weights: &[T]) -> i32 {
    let of_byte = |(byte, weights): (&u8, &[T])| -> i32 {
        weights.iter().enumerate().map(|(bit, weight)| i32::from(byte >> bit & 1) * (*weight).into()).sum()
    };
    code.iter().zip(weights.chunks_exact(8)).map(of_byte).sum()
}
