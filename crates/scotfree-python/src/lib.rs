//! The Python module `scotfree._native`: the study's kernels over buffers of Arrow's columns.
//!
//! Invariant: nothing is decided here; buffers of unequal lengths are refused before a kernel sees them.

// Python's arguments are its interpreter's to lend, and come by value.
#![allow(clippy::needless_pass_by_value)]

mod otlp;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Where calls stand in their traces.
///
/// `trace_ids`: 16 bytes a call; `span_ids`, `parent_ids`: 8; `has_parent`: 1, not 0 where there is a parent.
/// Returned are three columns as bytes: descendants and ancestors (u32), and whether it is on a ring (u8).
#[pyfunction]
fn tree(
    py: Python<'_>,
    trace_ids: PyBuffer<u8>,
    span_ids: PyBuffer<i64>,
    parent_ids: PyBuffer<i64>,
    has_parent: PyBuffer<u8>,
) -> PyResult<[Bound<'_, PyBytes>; 3]> {
    let spans = span_ids.to_vec(py)?;
    let traces: Vec<[u8; 16]> = traces_of(&trace_ids.to_vec(py)?);
    let (parents, has) = (parent_ids.to_vec(py)?, has_parent.to_vec(py)?);
    if [traces.len(), parents.len(), has.len()] != [spans.len(); 3] {
        return Err(PyValueError::new_err("the columns have unequal lengths"));
    }
    let parents: Vec<Option<i64>> =
        parents.iter().zip(&has).map(|(parent, has)| (*has != 0).then_some(*parent)).collect();
    let places = py.detach(|| scotfree_study::tree(&traces, &spans, &parents));
    let column = |of: fn(&scotfree_study::Place) -> u32| -> Vec<u8> {
        places.iter().flat_map(|place| of(place).to_ne_bytes()).collect()
    };
    let cyclic: Vec<u8> = places.iter().map(|place| u8::from(place.is_cyclic)).collect();
    Ok([
        PyBytes::new(py, &column(|place| place.descendants)),
        PyBytes::new(py, &column(|place| place.ancestors)),
        PyBytes::new(py, &cyclic),
    ])
}

fn traces_of(bytes: &[u8]) -> Vec<[u8; 16]> {
    bytes.chunks_exact(16).map(|trace| trace.try_into().expect("a chunk has the length asked for")).collect()
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::otlp::{from_json, signal, SpanDecoder};
    #[pymodule_export]
    use super::tree;
}
