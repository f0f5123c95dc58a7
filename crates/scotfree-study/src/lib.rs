//! What the study counts that no group-by can, over columns of one partition of calls.
//!
//! Invariant: a partition holds its traces whole, and results of partitions add up in any order.
#![forbid(unsafe_code)]

pub mod otlp;
mod tree;

pub use tree::{tree, Place};
