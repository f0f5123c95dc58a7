//! The plain kernel.

pub fn signs(codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
    sums.extend(codes.chunks_exact(direction.len() / 8).map(|code| {
        let of_byte = |(byte, values): (&u8, &[f32])| -> f32 {
            values.iter().enumerate().map(|(bit, value)| f32::from(byte >> bit & 1) * value).sum()
        };
        code.iter().zip(direction.chunks_exact(8)).map(of_byte).sum::<f32>()
    }));
}

pub fn steps(codes: &[u8], direction: &[f32], sums: &mut Vec<f32>) {
    sums.extend(codes.chunks_exact(direction.len() / 2).map(|code| {
        let of_group = |(bytes, values): (&[u8], &[f32])| -> f32 {
            let (low, high) = values.split_at(16);
            let pairs = bytes.iter().zip(low.iter().zip(high));
            pairs.map(|(byte, (low, high))| f32::from(byte & 15) * low + f32::from(byte >> 4) * high).sum()
        };
        code.chunks_exact(16).zip(direction.chunks_exact(32)).map(of_group).sum::<f32>()
    }));
}
