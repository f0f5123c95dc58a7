//! What the study counts that no group-by can, over columns of one partition of calls.
//!
//! Invariant: a partition holds its traces whole, and results of partitions add up in any order.
#![forbid(unsafe_code)]

mod groups;
mod histogram;
pub mod otlp;
mod rank;
mod trace;
mod tree;

pub use histogram::{add, bin_of, value_of, Bin, ByMethod};
pub use rank::{ranked, Ranked};
pub use tree::{tree, Calls, Place};
