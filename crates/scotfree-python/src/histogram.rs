//! Histograms for Python: columns in, columns out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use scotfree_study::{bin_of, value_of, Bin};

use crate::lent::Lent;

/// Bins as bytes: method (u32), bin (i32), samples (u64), weight and squares of weights (f64).
type Columns<'py> = [Bound<'py, PyBytes>; 5];
/// The same, lent.
type LentColumns = (Lent<u32>, Lent<i32>, Lent<u64>, Lent<f64>, Lent<f64>);

/// The calls of a partition by their method, for one quantity after the other.
#[pyclass(frozen)]
pub struct ByMethod {
    by_method: scotfree_study::ByMethod,
    calls: usize,
}

#[pymethods]
impl ByMethod {
    /// `is_wanted` has a byte for each method, not 0 where it is to be counted.
    #[new]
    fn new(py: Python<'_>, methods: Lent<i32>, is_wanted: Lent<u8>) -> Self {
        let (methods, is_wanted) = (methods.slice(), is_wanted.slice());
        let by_method = py.detach(|| scotfree_study::ByMethod::new(methods, is_wanted));
        Self { by_method, calls: methods.len() }
    }

    /// The bins of a quantity; a value that is no number is not known.
    fn bins<'py>(&self, py: Python<'py>, values: Lent<f64>, weights: Lent<f64>) -> PyResult<Columns<'py>> {
        let (values, weights) = (values.slice(), weights.slice());
        if [values.len(), weights.len()] != [self.calls; 2] {
            return Err(PyValueError::new_err("the columns have unequal lengths"));
        }
        Ok(columns(py, &py.detach(|| self.by_method.bins(values, weights))))
    }
}

/// The sum of histograms, which grows as they come.
#[pyclass]
pub struct Histogram(Vec<Bin>);

#[pymethods]
impl Histogram {
    #[new]
    fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds bins that are in the order of method and bin.
    fn add(&mut self, py: Python<'_>, part: LentColumns) -> PyResult<()> {
        let (all, part) = (&mut self.0, rows(&part)?);
        py.detach(|| scotfree_study::add(all, &part));
        Ok(())
    }

    /// All bins so far, by method and bin; nothing is left.
    fn take<'py>(&mut self, py: Python<'py>) -> Columns<'py> {
        columns(py, &std::mem::take(&mut self.0))
    }
}

/// The middle of each bin, as f64.
#[pyfunction]
pub fn bin_values(py: Python<'_>, bins: Lent<i32>) -> Bound<'_, PyBytes> {
    let values: Vec<u8> = bins.slice().iter().flat_map(|bin| value_of(*bin).to_ne_bytes()).collect();
    PyBytes::new(py, &values)
}

/// The bin of each value, as i32.
#[pyfunction]
pub fn value_bins(py: Python<'_>, values: Lent<f64>) -> Bound<'_, PyBytes> {
    let bins: Vec<u8> = values.slice().iter().flat_map(|value| bin_of(*value).to_ne_bytes()).collect();
    PyBytes::new(py, &bins)
}

fn rows(lent: &LentColumns) -> PyResult<Vec<Bin>> {
    let (methods, bins) = (lent.0.slice(), lent.1.slice());
    let (samples, weights, squares) = (lent.2.slice(), lent.3.slice(), lent.4.slice());
    if [bins.len(), samples.len(), weights.len(), squares.len()] != [methods.len(); 4] {
        return Err(PyValueError::new_err("the columns have unequal lengths"));
    }
    let row = |at: usize| Bin {
        method: methods[at],
        bin: bins[at],
        samples: samples[at],
        weight: weights[at],
        squares: squares[at],
    };
    Ok((0..methods.len()).map(row).collect())
}

fn columns<'py>(py: Python<'py>, bins: &[Bin]) -> Columns<'py> {
    [
        bytes(py, bins, |bin| bin.method.to_ne_bytes()),
        bytes(py, bins, |bin| bin.bin.to_ne_bytes()),
        bytes(py, bins, |bin| bin.samples.to_ne_bytes()),
        bytes(py, bins, |bin| bin.weight.to_ne_bytes()),
        bytes(py, bins, |bin| bin.squares.to_ne_bytes()),
    ]
}

/// A column of rows as Python's bytes.
pub fn bytes<'py, R, const N: usize>(
    py: Python<'py>,
    rows: &[R],
    of: impl Fn(&R) -> [u8; N],
) -> Bound<'py, PyBytes> {
    let column: Vec<u8> = rows.iter().flat_map(of).collect();
    PyBytes::new(py, &column)
}
