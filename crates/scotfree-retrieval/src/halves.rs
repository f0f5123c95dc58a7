//! Numbers of two bytes, as they lie in a file.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// All of them; many at once, since a processor takes as long for one as for eight.
pub fn read(bytes: &[u8]) -> Vec<f32> {
    let mut values = Vec::new();
    read_into(bytes, &mut values);
    values
}

/// In place of what is there.
pub fn read_into(bytes: &[u8], values: &mut Vec<f32>) {
    const AT_ONCE: usize = 64;
    values.clear();
    values.resize(bytes.len() / 2, 0.0);
    let mut halves = [f16::ZERO; AT_ONCE];
    for (bytes, values) in bytes.chunks(2 * AT_ONCE).zip(values.chunks_mut(AT_ONCE)) {
        for (half, two) in halves.iter_mut().zip(bytes.chunks_exact(2)) {
            *half = f16::from_le_bytes([two[0], two[1]]);
        }
        halves[..values.len()].convert_to_f32_slice(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written_however_many() {
        for count in [0, 1, 63, 64, 65, 200] {
            let values: Vec<f32> = (0..count).map(|at| at as f32 / 8.0 - 3.0).collect();
            let bytes: Vec<u8> =
                values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
            assert_eq!(read(&bytes), values);
        }
    }
}
