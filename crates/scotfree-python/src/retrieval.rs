//! Indexes of passages for Python: written, mapped, searched.

use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use scotfree_retrieval::{Axis, Basis, Embedded, Found, Kernel, RowError, SnapshotError, Wanted};

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

/// An index that is being written, cluster by cluster, as codes along axes; `model` is the digest of what embedded it.
#[pyclass]
pub struct SnapshotWriter(Option<scotfree_retrieval::Writer>);

#[pymethods]
impl SnapshotWriter {
    #[new]
    #[pyo3(signature = (axes, centroids, *, model))]
    fn new(axes: &Axes, centroids: Lent<f32>, model: [u8; 32]) -> PyResult<Self> {
        Ok(Self(Some(scotfree_retrieval::Writer::new(&axes.0, model, centroids.slice()).map_err(raised)?)))
    }

    /// Passages (u32) and their embeddings (f32, of length one), each with its cluster (u32): that of the one before,
    /// or a later one.
    fn add(
        &mut self,
        py: Python<'_>,
        embeddings: Lent<f32>,
        passages: Lent<u32>,
        clusters: Lent<u32>,
    ) -> PyResult<()> {
        let writer = self.0.as_mut().ok_or_else(ended)?;
        let added = Embedded { embeddings: embeddings.slice(), passages: passages.slice() };
        let clusters = clusters.slice();
        py.detach(|| writer.push(added, clusters)).map_err(raised)
    }

    /// Writes the file.
    fn finish(&mut self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let writer = self.0.take().ok_or_else(ended)?;
        py.detach(|| writer.finish(&path)).map_err(raised)
    }
}

fn ended() -> PyErr {
    PyValueError::new_err("the index is written")
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

    /// How many passages it has.
    #[getter]
    fn rows(&self) -> usize {
        self.0.rows()
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
        gone: &PassageSet,
        bare_probes: usize,
    ) -> PyResult<Search> {
        let question = self.checked(&question)?;
        let wanted = Wanted { question, count, probes, bare_probes, deviations };
        let gone = Arc::clone(&gone.0);
        let begin = || scotfree_retrieval::Search::new(&self.0, wanted, Kernel::best(), gone);
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

/// A set of passages, by their numbers.
#[pyclass(frozen)]
pub struct PassageSet(Arc<scotfree_retrieval::PassageSet>);

#[pymethods]
impl PassageSet {
    /// Of these.
    #[new]
    #[pyo3(signature = (passages = Vec::new()))]
    fn new(passages: Vec<u32>) -> Self {
        Self(Arc::new(passages.into_iter().collect()))
    }

    /// Of documents, each with the runs of its passages, as JSON; nothing, if these are none, or one is beyond `most`.
    #[staticmethod]
    fn of_runs(documents: &str, most: u32) -> Option<Self> {
        scotfree_retrieval::PassageSet::of_runs(documents, most).map(|found| Self(Arc::new(found)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bool__(&self) -> bool {
        !self.0.is_empty()
    }

    fn __contains__(&self, passage: u32) -> bool {
        self.0.contains(passage)
    }

    /// Those of both.
    fn __or__(&self, other: &Self) -> Self {
        if self.0.is_empty() || other.0.is_empty() {
            let whole = if self.0.is_empty() { other } else { self };
            return Self(Arc::clone(&whole.0));
        }
        let mut both = (*self.0).clone();
        both.insert_all(&other.0);
        Self(Arc::new(both))
    }

    /// Of passages (u32) whether each is one of them, a byte for each.
    fn has(&self, passages: Lent<u32>) -> Vec<u8> {
        passages.slice().iter().map(|passage| u8::from(self.0.contains(*passage))).collect()
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

    /// Gives exact values out of rows, to `most` passages each time, until no other can be among the nearest or some
    /// have no row: the passages that rows gave, and those.
    fn refine(
        &mut self,
        py: Python<'_>,
        rows: &Rows,
        question: Lent<f32>,
        most: usize,
    ) -> PyResult<(Vec<u32>, Vec<u32>)> {
        let (rows, question) = (rows.of(&question)?, question.slice());
        let refined = py.detach(|| self.0.refine(&rows, question, most)).map_err(unread)?;
        Ok((refined.loaded, refined.missing))
    }

    /// The nearest by exact values.
    fn found(&self) -> Vec<Pair> {
        pairs(self.0.found())
    }

    /// The nearest by their bounds (estimates, if those are no standard errors away), and by exact values where
    /// they are known.
    fn guessed(&mut self) -> Vec<Pair> {
        pairs(self.0.guessed())
    }
}

fn pairs(found: Vec<Found>) -> Vec<Pair> {
    found.into_iter().map(|one| (one.passage, one.similarity)).collect()
}

/// Rows of a file of exact values that was opened and checked: which passage a row is, and the rows that are held.
#[pyclass(frozen)]
pub struct Rows {
    file: File,
    start: u64,
    dimensions: usize,
    numbers: Lent<u32>,
    memory: Lent<u8>,
}

#[pymethods]
impl Rows {
    /// Those that begin at a byte of a file; `numbers` (u32) say which passage a row is: of `memory` (u8) first, then
    /// of the others, both in order.
    #[new]
    fn new(
        path: PathBuf,
        start: u64,
        dimensions: usize,
        numbers: Lent<u32>,
        memory: Lent<u8>,
    ) -> PyResult<Self> {
        Ok(Self { file: File::open(path)?, start, dimensions, numbers, memory })
    }

    /// Of passages those that have a row, and its inner product with a vector.
    fn products(
        &self,
        py: Python<'_>,
        passages: Vec<u32>,
        vector: Lent<f32>,
    ) -> PyResult<(Vec<u32>, Vec<f32>)> {
        let (rows, vector) = (self.of(&vector)?, vector.slice());
        let mut row = rows.buffer();
        let mut found = (Vec::new(), Vec::new());
        py.detach(|| {
            for passage in passages {
                if let Some(product) = rows.product(passage, vector, &mut row)? {
                    found.0.push(passage);
                    found.1.push(product);
                }
            }
            Ok(found)
        })
        .map_err(unread)
    }
}

impl Rows {
    /// Them, for a vector of as many dimensions.
    fn of(&self, vector: &Lent<f32>) -> PyResult<scotfree_retrieval::Rows<'_>> {
        let (values, dimensions) = (vector.slice().len(), self.dimensions);
        if values != dimensions {
            let problem = format!("the embedding has {values} dimensions, the rows {dimensions}");
            return Err(PyValueError::new_err(problem));
        }
        let (file, start, numbers, memory) =
            (&self.file, self.start, self.numbers.slice(), self.memory.slice());
        Ok(scotfree_retrieval::Rows { file, start, dimensions, numbers, memory })
    }
}

fn unread(error: RowError) -> PyErr {
    match error {
        RowError::Io(error) => PyOSError::new_err(error.to_string()),
        RowError::Short(_) | RowError::Damaged(_) => PyValueError::new_err(error.to_string()),
    }
}
