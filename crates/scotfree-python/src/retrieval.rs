//! Indexes of passages for Python: written, mapped, searched.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use scotfree_retrieval::{Axis, Basis, Clusters, Embedded, Found, Kernel, SnapshotError, Wanted};

use crate::lent::Lent;

/// A passage and its similarity.
type Pair = (u32, f32);

/// Along what an index codes: `directions` (f32, axes x dimensions), and of each axis the length of a step, the mean
/// square of the error that is left of residuals of length one, and how many bits it has; `rest` is their mean square
/// along each direction across all axes.
#[pyclass(frozen)]
pub struct Axes(Basis);

#[pymethods]
impl Axes {
    #[new]
    #[pyo3(signature = (directions, steps, errors, depths, *, rest, dimensions))]
    fn new(
        directions: Lent<f32>,
        steps: Lent<f32>,
        errors: Lent<f32>,
        depths: Lent<u32>,
        rest: f32,
        dimensions: usize,
    ) -> PyResult<Self> {
        let (steps, errors, depths) = (steps.slice(), errors.slice(), depths.slice());
        if steps.len() != depths.len() || errors.len() != depths.len() {
            return Err(PyValueError::new_err("of each axis there is one step, one error and one depth"));
        }
        let values = steps.iter().zip(errors).zip(depths);
        let axes =
            values.map(|((step, error), depth)| Axis { step: *step, error: *error, depth: *depth }).collect();
        let basis = Basis { dimensions, directions: directions.slice().to_vec(), axes, rest };
        basis.check().map_err(PyValueError::new_err)?;
        Ok(Self(basis))
    }
}

/// Writes an index of embeddings (f32, of length one) as codes along axes.
///
/// `starts` has the first row of each cluster and, last, how many rows there are; `rows` the embedding of each row;
/// `passages` the passage of each embedding. `model` is the digest of what embedded them.
#[pyfunction]
#[pyo3(signature = (path, axes, embeddings, centroids, starts, rows, passages, *, model))]
#[allow(clippy::too_many_arguments)]
pub fn write_snapshot(
    py: Python<'_>,
    path: PathBuf,
    axes: &Axes,
    embeddings: Lent<f32>,
    centroids: Lent<f32>,
    starts: Lent<u32>,
    rows: Lent<u32>,
    passages: Lent<u32>,
    model: [u8; 32],
) -> PyResult<()> {
    let (starts, rows, passages) = (starts.slice(), rows.slice(), passages.slice());
    let clusters = Clusters { centroids: centroids.slice(), starts, rows, passages };
    let embeddings = embeddings.slice();
    py.detach(|| scotfree_retrieval::write(&path, &axes.0, model, clusters, embeddings)).map_err(raised)
}

/// Writes an index of what `old` has but for `gone`, and of embeddings (f32, of length one) of more passages.
///
/// Clusters of `bare` have no codes; of those that had none and are to, the passages' embeddings are among these.
#[pyfunction]
#[pyo3(signature = (path, old, gone, embeddings, passages, *, bare))]
pub fn merge_snapshot(
    py: Python<'_>,
    path: PathBuf,
    old: &Snapshot,
    gone: HashSet<u32>,
    embeddings: Lent<f32>,
    passages: Lent<u32>,
    bare: HashSet<usize>,
) -> PyResult<()> {
    let added = Embedded { embeddings: embeddings.slice(), passages: passages.slice() };
    let (is_gone, is_bare) = (|passage| gone.contains(&passage), |cluster| bare.contains(&cluster));
    py.detach(|| scotfree_retrieval::merge(&path, &old.0, is_gone, is_bare, added)).map_err(raised)
}

fn raised(error: SnapshotError) -> PyErr {
    match &error {
        SnapshotError::Io { source, .. } => match source.raw_os_error() {
            Some(code) => PyOSError::new_err((code, error.to_string())),
            None => PyOSError::new_err(error.to_string()),
        },
        SnapshotError::Refused { .. } | SnapshotError::Unfit(_) => PyValueError::new_err(error.to_string()),
    }
}

/// An index that is mapped.
#[pyclass(frozen)]
pub struct Snapshot(Arc<scotfree_retrieval::Snapshot>);

#[pymethods]
impl Snapshot {
    /// Opens it; `ValueError` says what is wrong with the file.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| scotfree_retrieval::Snapshot::open(&path)).map_err(raised)?;
        Ok(Self(Arc::new(opened)))
    }

    #[getter]
    fn dimensions(&self) -> usize {
        self.0.basis().dimensions
    }

    #[getter]
    fn bits(&self) -> usize {
        self.0.basis().bits()
    }

    /// Of a passage's code with its factors.
    #[getter]
    fn code_bytes(&self) -> usize {
        self.0.basis().coded_bytes()
    }

    #[getter]
    fn model(&self) -> [u8; 32] {
        self.0.model()
    }

    #[getter]
    fn clusters(&self) -> usize {
        self.0.clusters()
    }

    /// Its passages, in the order of rows.
    fn passages(&self) -> Vec<u32> {
        self.0.passages().collect()
    }

    /// The first row of each cluster and, last, how many rows there are.
    fn starts(&self) -> Vec<u32> {
        self.0.starts().collect()
    }

    /// The clusters that have passages, and no codes.
    fn bare(&self) -> Vec<usize> {
        (0..self.0.clusters()).filter(|cluster| self.0.is_bare(*cluster)).collect()
    }

    /// The clusters whose centroids lie most in an embedding's direction, the first one most.
    fn along(&self, embedding: Lent<f32>, count: usize) -> PyResult<Vec<usize>> {
        Ok(self.0.along(self.checked(&embedding)?, count))
    }

    /// Begins a search for a question's embedding; passages of `gone` are not found.
    #[pyo3(signature = (question, count, probes, deviations, gone, *, bare_probes))]
    #[allow(clippy::too_many_arguments)]
    fn search(
        &self,
        py: Python<'_>,
        question: Lent<f32>,
        count: usize,
        probes: usize,
        deviations: f32,
        gone: HashSet<u32>,
        bare_probes: usize,
    ) -> PyResult<Search> {
        let question = self.checked(&question)?;
        let wanted = Wanted { question, count, probes, bare_probes, deviations };
        let begin = || {
            scotfree_retrieval::Search::new(&self.0, wanted, Kernel::best(), |passage| {
                gone.contains(&passage)
            })
        };
        Ok(Search(py.detach(begin)))
    }
}

impl Snapshot {
    fn checked<'a>(&self, embedding: &'a Lent<f32>) -> PyResult<&'a [f32]> {
        let (values, dimensions) = (embedding.slice(), self.0.basis().dimensions);
        if values.len() != dimensions {
            let problem = format!("the embedding has {} dimensions, the index {dimensions}", values.len());
            return Err(PyValueError::new_err(problem));
        }
        Ok(values)
    }
}

/// A search that is under way.
#[pyclass]
pub struct Search(scotfree_retrieval::Search);

#[pymethods]
impl Search {
    #[getter]
    fn estimated(&self) -> usize {
        self.0.estimated()
    }

    #[getter]
    fn certain(&self) -> usize {
        self.0.certain()
    }

    #[getter]
    fn probed(&self) -> usize {
        self.0.probed()
    }

    /// At most so many passages whose exact values may matter; none: the search is over.
    fn ask(&mut self, most: usize) -> Vec<u32> {
        self.0.ask(most)
    }

    /// Exact similarities of passages.
    fn give(&mut self, exact: Vec<Pair>) {
        self.0.give(exact.into_iter().map(|(passage, similarity)| Found { passage, similarity }));
    }

    /// The nearest by exact values.
    fn found(&self) -> Vec<Pair> {
        pairs(self.0.found())
    }

    /// The nearest by estimates, and by exact values where they are known.
    fn guessed(&self) -> Vec<Pair> {
        pairs(self.0.guessed())
    }
}

fn pairs(found: Vec<Found>) -> Vec<Pair> {
    found.into_iter().map(|one| (one.passage, one.similarity)).collect()
}
