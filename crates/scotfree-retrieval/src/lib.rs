//! Retrieval in little memory: an index of clusters whose passages are kept as codes of their embeddings.
//!
//! Invariant: no embedder is called here. A search says which passages it wants exact, and is given their embeddings.
#![deny(unsafe_code)]

mod code;
#[cfg(test)]
mod drawn;
mod halves;
mod passage_set;
mod rows;
mod scan;
mod search;
mod snapshot;

pub use code::{Axis, Basis};
pub use passage_set::PassageSet;
pub use rows::{RowError, Rows};
pub use scan::{Kernel, KERNELS};
pub use search::{Found, Refined, Search, Wanted};
pub use snapshot::{encoded, merge, merged, write, Clusters, Embedded, Snapshot, SnapshotError, Writer};

/// The inner product, in as many sums as a processor adds at once.
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0_f32; LANES];
    let (lefts, rights) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest: f32 = lefts.remainder().iter().zip(rights.remainder()).map(|(left, right)| left * right).sum();
    for (left, right) in lefts.zip(rights) {
        for lane in 0..LANES {
            sums[lane] += left[lane] * right[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
