//! The Python module `scotfree._native`: kernels of study and retrieval over buffers that Python lends.
//!
//! Invariant: nothing is decided here; buffers of unequal lengths are refused before a kernel sees them, and
//! `unsafe` lives in the private module `lent` alone.
#![deny(unsafe_code)]
// Python's arguments are its interpreter's to lend, and come by value.
#![allow(clippy::needless_pass_by_value)]

use pyo3::prelude::*;

mod histogram;
mod lent;
mod otlp;
mod rank;
mod retrieval;
mod transform;
mod tree;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::histogram::{bin_values, value_bins, ByMethod, Histogram};
    #[pymodule_export]
    use super::otlp::{from_json, signal, MetricDecoder, SpanDecoder};
    #[pymodule_export]
    use super::rank::ranked;
    #[pymodule_export]
    use super::retrieval::{merge_snapshot, Axes, PassageSet, Rows, Search, Snapshot, SnapshotWriter};
    #[pymodule_export]
    use super::transform::{DecodeError, FieldTypeError, FieldValueError, Schema, SchemaError};
    #[pymodule_export]
    use super::tree::tree;
}
