//! Whether what clients saw is linearizable: whether some order of all operations, in which none
//! comes before one that had returned when it was called, explains every reply. And whether transactions
//! that append to lists and read them are strictly serializable, which is the same of many keys at once,
//! but told from unique values, in histories of any length.
//!
//! Invariant: pure and exact. "Linearizable" and "violation" are proofs; where the search is given up,
//! the verdict is "unknown", never one of these. See docs/design/linearizability.md.
#![forbid(unsafe_code)]

mod append;
mod model;
mod parts;
mod registers;
mod search;
mod smallest;
mod verdict;

pub use append::{
    check_appends, Anomaly, AnomalyKind, AppendLimits, AppendVerdict, Ended, Link, Step, Transaction,
};
pub use model::{Answer, Key, Model, Operation};
pub use registers::{Op, Registers, Reply};
pub use verdict::{check, Limits, Verdict, Violation};
