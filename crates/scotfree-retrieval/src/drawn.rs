//! Vectors for tests, the same every time.

/// Nearly normal values: each the sum of uniform ones.
pub fn normal(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u32 << 24) as f32
    };
    (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

/// Of length one.
pub fn unit(vector: &[f32]) -> Vec<f32> {
    let length = crate::dot(vector, vector).sqrt();
    vector.iter().map(|value| value / length).collect()
}
