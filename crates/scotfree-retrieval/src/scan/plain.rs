//! The plain kernel.

pub fn sums(codes: &[u8], weights: &[f32], sums: &mut Vec<f32>) {
    sums.extend(codes.chunks_exact(weights.len() / 8).map(|code| {
        let of_byte = |(byte, weights): (&u8, &[f32])| -> f32 {
            weights.iter().enumerate().map(|(bit, weight)| f32::from(byte >> bit & 1) * weight).sum()
        };
        code.iter().zip(weights.chunks_exact(8)).map(of_byte).sum::<f32>()
    }));
}
