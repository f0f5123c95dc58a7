//! Trees for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use scotfree_study::{Calls, Place};

use crate::histogram::bytes;
use crate::lent::Lent;

/// Where calls stand in their traces.
///
/// `trace_ids`: 16 bytes a call; `span_ids`, `parent_ids`: 8; `has_parent`: 1, not 0 where there is a parent.
/// Returned are three columns as bytes: descendants and ancestors (u32), and whether it is on a ring (u8).
#[pyfunction]
pub fn tree(
    py: Python<'_>,
    trace_ids: Lent<u8>,
    span_ids: Lent<i64>,
    parent_ids: Lent<i64>,
    has_parent: Lent<u8>,
) -> PyResult<[Bound<'_, PyBytes>; 3]> {
    let calls = Calls {
        trace_ids: trace_ids.slice(),
        span_ids: span_ids.slice(),
        parent_ids: parent_ids.slice(),
        has_parent: has_parent.slice(),
    };
    let count = calls.span_ids.len();
    if [calls.trace_ids.len(), calls.parent_ids.len(), calls.has_parent.len()] != [16 * count, count, count] {
        return Err(PyValueError::new_err("the columns have unequal lengths"));
    }
    let places = py.detach(|| scotfree_study::tree(calls));
    Ok([
        bytes(py, &places, |place: &Place| place.descendants.to_ne_bytes()),
        bytes(py, &places, |place: &Place| place.ancestors.to_ne_bytes()),
        bytes(py, &places, |place: &Place| [u8::from(place.is_cyclic)]),
    ])
}
