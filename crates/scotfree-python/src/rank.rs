//! Quantiles per method for Python: columns in, columns out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::histogram::bytes;
use crate::lent::Lent;

/// Of each method with a value, by method: method (u32), samples (u64), weight and squares of weights (f64), and
/// its quantiles (f64) behind each other. `parts` has so many for each method as are asked, in ten-thousandths.
#[pyfunction]
pub fn ranked(
    py: Python<'_>,
    methods: Lent<i32>,
    values: Lent<f64>,
    weights: Lent<f64>,
    parts: Lent<u32>,
    asked: usize,
) -> PyResult<[Bound<'_, PyBytes>; 5]> {
    let (methods, values, weights, parts) = (methods.slice(), values.slice(), weights.slice(), parts.slice());
    if [values.len(), weights.len()] != [methods.len(); 2] {
        return Err(PyValueError::new_err("the columns have unequal lengths"));
    }
    if asked == 0 || parts.len() % asked != 0 {
        return Err(PyValueError::new_err("there are not equally many parts for each method"));
    }
    let (rows, quantiles) = py.detach(|| scotfree_study::ranked(methods, values, weights, parts, asked));
    Ok([
        bytes(py, &rows, |row| row.method.to_ne_bytes()),
        bytes(py, &rows, |row| row.samples.to_ne_bytes()),
        bytes(py, &rows, |row| row.weight.to_ne_bytes()),
        bytes(py, &rows, |row| row.squares.to_ne_bytes()),
        bytes(py, &quantiles, |value| value.to_ne_bytes()),
    ])
}
