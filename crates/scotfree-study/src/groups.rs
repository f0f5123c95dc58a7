//! Rows by their method, counted before they are placed.

/// Where each method's rows begin, and at last where all end.
pub fn starts(methods: impl Iterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut starts = vec![0; count + 1];
    for method in methods {
        starts[method + 1] += 1;
    }
    for index in 1..starts.len() {
        starts[index] += starts[index - 1];
    }
    starts
}
