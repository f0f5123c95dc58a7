//! The file of an index: one header, and side by side what a search scans; mapped, never read into memory.
//!
//! ```text
//!   0 magic  8 version 4  dimensions 4  axes 4  clusters 4  rows 8  bits 4  rest 4  model 32  body's CRC-32C 4
//!  76 header's CRC-32C 4
//! 128 directions: axes x dimensions x 2, as half-precision numbers
//!     axes: axes x (step 4, error 4, depth 4)
//!     centroids: clusters x dimensions x 2, as half-precision numbers
//!     starts: (clusters + 1) x 4, the first row of each cluster
//!     passages: rows x 4, which passage a row is
//!     factors: rows x 6, as half-precision numbers
//!     codes: rows x bits / 8, filled up to a multiple of 8
//! ```
//! Numbers are little-endian; each section begins at a multiple of 64 bytes.
//!
//! Invariant: a file is whole or refused. It is written beside its place, synced and renamed, and never changed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::f16;

use crate::code::{code_bytes, Axis, Basis, Centre, DEPTH_MAX, FACTOR_BYTES};
use crate::scan::Kernel;
use crate::{dot, halves};

mod mapped;

const MAGIC: [u8; 8] = *b"SCOTRAG\0";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 128;
const HEADER_USED: usize = 80;
const ALIGNMENT: usize = 64;
const AXIS_BYTES: usize = 12;
/// Embeddings of more dimensions than any model has are no embeddings.
const DIMENSIONS_MAX: usize = 16_384;
/// How far from one the length of an embedding may be.
const LENGTH_SLACK: f32 = 0.01;

/// Which passages lie in which cluster.
#[derive(Debug, Clone, Copy)]
pub struct Clusters<'a> {
    /// One behind the other.
    pub centroids: &'a [f32],
    /// The first row of each cluster, and behind the last one how many there are.
    pub starts: &'a [u32],
    /// Of each row, in the order of clusters, the embedding's place among all.
    pub rows: &'a [u32],
    /// Of each embedding the passage.
    pub passages: &'a [u32],
}

/// Why there is no index.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The system's reason.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is none of this kind, or damaged.
    #[error("{path}: {reason}")]
    Refused {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// What was to be written is no index.
    #[error("no index: {0}")]
    Unfit(String),
}

/// What a file has how many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    dimensions: usize,
    axes: usize,
    bits: usize,
    clusters: usize,
    rows: usize,
}

/// Where the sections lie.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    directions: Range<usize>,
    axes: Range<usize>,
    centroids: Range<usize>,
    starts: Range<usize>,
    passages: Range<usize>,
    factors: Range<usize>,
    codes: Range<usize>,
}

impl Layout {
    /// Nothing, if a file of such counts cannot be.
    fn of(counts: Counts) -> Option<Self> {
        let mut end = HEADER_BYTES;
        let mut section = |count: usize, bytes: usize| {
            let start = end.checked_next_multiple_of(ALIGNMENT)?;
            end = start.checked_add(count.checked_mul(bytes)?)?;
            Some(start..end)
        };
        Some(Self {
            directions: section(counts.axes, 2 * counts.dimensions)?,
            axes: section(counts.axes, AXIS_BYTES)?,
            centroids: section(counts.clusters, 2 * counts.dimensions)?,
            starts: section(counts.clusters.checked_add(1)?, 4)?,
            passages: section(counts.rows, 4)?,
            factors: section(counts.rows, FACTOR_BYTES)?,
            codes: section(counts.rows, code_bytes(counts.bits))?,
        })
    }
}

/// An index as its file has it.
#[derive(Debug)]
pub struct Snapshot {
    basis: Basis,
    model: [u8; 32],
    layout: Layout,
    counts: Counts,
    /// As numbers that a processor multiplies, and of each its inner product with itself.
    centroids: Vec<f32>,
    own: Vec<f32>,
    bytes: mapped::Mapped,
}

/// A cluster, as near as it is to a vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near {
    pub cluster: usize,
    /// Of the centroid with the vector.
    pub product: f32,
    pub distance: f32,
}

/// Writes an index; `embeddings` have length one, and lie behind each other; `model` is the SHA-256 of what made them.
///
/// What was at the path stays until all of the new file is on the disk.
pub fn write(
    path: &Path,
    basis: &Basis,
    model: [u8; 32],
    clusters: Clusters<'_>,
    embeddings: &[f32],
) -> Result<(), SnapshotError> {
    put(path, &encoded(basis, model, clusters, embeddings)?)
}

/// The bytes of an index's file.
pub fn encoded(
    basis: &Basis,
    model: [u8; 32],
    clusters: Clusters<'_>,
    embeddings: &[f32],
) -> Result<Vec<u8>, SnapshotError> {
    check(basis, clusters, embeddings).map_err(SnapshotError::Unfit)?;
    Ok(Body::coded(&stored(basis), clusters, embeddings).file(model))
}

/// Writes an index of what another has but for what is gone, and of embeddings, each in the nearest of its clusters.
///
/// The codes of what stays are copied, so that nothing is embedded again; `passages` are those of the embeddings.
pub fn merge(
    path: &Path,
    old: &Snapshot,
    is_gone: impl Fn(u32) -> bool,
    embeddings: &[f32],
    passages: &[u32],
) -> Result<(), SnapshotError> {
    check_embeddings(old.counts.dimensions, embeddings, passages).map_err(SnapshotError::Unfit)?;
    put(path, &Body::merged(old, is_gone, embeddings, passages).file(old.model))
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let half = path.with_extension("half");
    let failed = |source| SnapshotError::Io { path: half.clone(), source };
    write_file(&half, bytes).map_err(failed)?;
    let failed = |source| SnapshotError::Io { path: path.to_owned(), source };
    fs::rename(&half, path).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(bytes)?;
    file.into_inner()?.sync_all()
}

/// A basis as a file has it: with what is coded by it, it must be searched.
fn stored(basis: &Basis) -> Basis {
    let directions = basis.directions.iter().map(|value| f16::from_f32(*value).to_f32()).collect();
    Basis { directions, ..basis.clone() }
}

fn check(basis: &Basis, clusters: Clusters<'_>, embeddings: &[f32]) -> Result<(), String> {
    check_dimensions(basis.dimensions)?;
    basis.check()?;
    let (dimensions, count) = (basis.dimensions, clusters.starts.len().saturating_sub(1));
    let rows = clusters.rows.len();
    if clusters.centroids.len() != count * dimensions || count == 0 {
        return Err(format!("{count} clusters and {} values of centroids", clusters.centroids.len()));
    }
    check_embeddings(dimensions, embeddings, clusters.passages)?;
    check_starts(clusters.starts, rows)?;
    if clusters.passages.len() != rows {
        return Err(format!("{rows} rows and {} embeddings", clusters.passages.len()));
    }
    let mut seen = vec![false; rows];
    for row in clusters.rows {
        let first = seen.get_mut(*row as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        if !first {
            return Err(format!("embedding {row} is not there, or in two rows"));
        }
    }
    Ok(())
}

fn check_embeddings(dimensions: usize, embeddings: &[f32], passages: &[u32]) -> Result<(), String> {
    if embeddings.len() != passages.len() * dimensions {
        return Err(format!("{} passages and {} values of embeddings", passages.len(), embeddings.len()));
    }
    let length = |vector: &[f32]| dot(vector, vector).sqrt();
    // Also what is no number has no such length.
    let is_unit = |vector: &[f32]| (length(vector) - 1.0).abs() <= LENGTH_SLACK;
    match embeddings.chunks_exact(dimensions).position(|vector| !is_unit(vector)) {
        Some(at) => Err(format!("embedding {at} has not the length 1")),
        None => Ok(()),
    }
}

fn check_dimensions(dimensions: usize) -> Result<(), String> {
    if dimensions == 0 || dimensions > DIMENSIONS_MAX {
        return Err(format!("{dimensions} dimensions are none, or more than {DIMENSIONS_MAX}"));
    }
    Ok(())
}

fn check_starts(starts: &[u32], rows: usize) -> Result<(), String> {
    let is_whole = starts.first() == Some(&0) && starts.last().map(|end| *end as usize) == Some(rows);
    if !is_whole || starts.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(format!("the clusters do not part {rows} rows"));
    }
    Ok(())
}

/// What a file has behind its header.
#[derive(Debug)]
struct Body {
    basis: Basis,
    centroids: Vec<f16>,
    starts: Vec<u32>,
    passages: Vec<u32>,
    factors: Vec<u8>,
    codes: Vec<u8>,
}

impl Body {
    fn new(basis: &Basis, centroids: &[f32]) -> Self {
        // Residuals are of the centroids that a search reads, rounded as they are.
        let centroids = centroids.iter().copied().map(f16::from_f32).collect();
        let (passages, factors, codes) = (Vec::new(), Vec::new(), Vec::new());
        Self { basis: basis.clone(), centroids, starts: vec![0], passages, factors, codes }
    }

    fn coded(basis: &Basis, clusters: Clusters<'_>, embeddings: &[f32]) -> Self {
        let mut body = Self::new(basis, clusters.centroids);
        for (cluster, ends) in clusters.starts.windows(2).enumerate() {
            let centre = body.basis.centre(body.centroid(cluster));
            for row in &clusters.rows[ends[0] as usize..ends[1] as usize] {
                let at = *row as usize * basis.dimensions;
                let vector = &embeddings[at..at + basis.dimensions];
                body.push(&centre, vector, clusters.passages[*row as usize]);
            }
            body.end_cluster();
        }
        body
    }

    fn merged(old: &Snapshot, is_gone: impl Fn(u32) -> bool, embeddings: &[f32], passages: &[u32]) -> Self {
        let clusters = old.counts.clusters;
        let mut body = Self::new(&old.basis, &old.centroids);
        let vectors: Vec<&[f32]> = embeddings.chunks_exact(old.counts.dimensions).collect();
        let mut new_in: Vec<Vec<usize>> = vec![Vec::new(); clusters];
        for (place, vector) in vectors.iter().enumerate() {
            new_in[old.nearest(vector)].push(place);
        }
        for (cluster, places) in new_in.iter().enumerate() {
            for row in old.rows_of(cluster).filter(|row| !is_gone(old.passage(*row))) {
                body.passages.push(old.passage(row));
                body.factors.extend_from_slice(old.factor_bytes(row..row + 1));
                body.codes.extend_from_slice(old.codes(row..row + 1));
            }
            let centre = body.basis.centre(body.centroid(cluster));
            for place in places {
                body.push(&centre, vectors[*place], passages[*place]);
            }
            body.end_cluster();
        }
        body
    }

    fn centroid(&self, cluster: usize) -> Vec<f32> {
        let dimensions = self.basis.dimensions;
        let values = &self.centroids[cluster * dimensions..(cluster + 1) * dimensions];
        values.iter().map(|value| value.to_f32()).collect()
    }

    fn push(&mut self, centre: &Centre, vector: &[f32], passage: u32) {
        self.basis.encode(vector, centre, &mut self.codes, &mut self.factors);
        self.passages.push(passage);
    }

    fn end_cluster(&mut self) {
        self.starts.push(self.passages.len() as u32);
    }

    fn counts(&self) -> Counts {
        Counts {
            dimensions: self.basis.dimensions,
            axes: self.basis.axes.len(),
            bits: self.basis.bits(),
            clusters: self.starts.len() - 1,
            rows: self.passages.len(),
        }
    }

    fn file(&self, model: [u8; 32]) -> Vec<u8> {
        let counts = self.counts();
        let layout = Layout::of(counts).expect("it lies in memory");
        let mut bytes = vec![0; layout.codes.end];
        let mut put = |at: Range<usize>, of: &[u8]| bytes[at].copy_from_slice(of);
        put(layout.directions, &flat(&self.basis.directions, |value| f16::from_f32(value).to_le_bytes()));
        put(layout.axes, &flat(&self.basis.axes, axis_bytes));
        put(layout.centroids, &flat(&self.centroids, f16::to_le_bytes));
        put(layout.starts, &flat(&self.starts, u32::to_le_bytes));
        put(layout.passages, &flat(&self.passages, u32::to_le_bytes));
        put(layout.factors, &self.factors);
        put(layout.codes, &self.codes);
        let body = crc32c::crc32c(&bytes[HEADER_USED..]);
        bytes[..HEADER_USED].copy_from_slice(&head(counts, self.basis.rest, model, body));
        bytes
    }
}

fn axis_bytes(axis: Axis) -> [u8; AXIS_BYTES] {
    let parts = [axis.step.to_le_bytes(), axis.error.to_le_bytes(), axis.depth.to_le_bytes()];
    parts.concat().try_into().expect("three numbers of four bytes")
}

fn flat<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

fn head(counts: Counts, rest: f32, model: [u8; 32], body: u32) -> [u8; HEADER_USED] {
    let mut bytes = Vec::with_capacity(HEADER_USED);
    bytes.extend(MAGIC);
    for number in [VERSION, counts.dimensions as u32, counts.axes as u32, counts.clusters as u32] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend((counts.rows as u64).to_le_bytes());
    bytes.extend((counts.bits as u32).to_le_bytes());
    bytes.extend(rest.to_le_bytes());
    bytes.extend(model);
    bytes.extend(body.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.try_into().expect("the fields fill the header")
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// What a file has how many of, and its body's checksum.
fn parse(bytes: &[u8]) -> Result<(Counts, u32), String> {
    if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
        return Err("it is no index of passages".to_owned());
    }
    let number = |at| number(bytes, at);
    if number(8) != VERSION {
        return Err(format!("it is of version {}, this reads {VERSION}", number(8)));
    }
    if crc32c::crc32c(&bytes[..HEADER_USED - 4]) != number(HEADER_USED - 4) {
        return Err("its header is damaged".to_owned());
    }
    let rows = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
    let counts = Counts {
        dimensions: number(12) as usize,
        axes: number(16) as usize,
        clusters: number(20) as usize,
        rows: usize::try_from(rows).map_err(|_| format!("it has {rows} rows"))?,
        bits: number(32) as usize,
    };
    check_dimensions(counts.dimensions)?;
    // More would be read from a basis that is not checked yet.
    if counts.axes > counts.dimensions || counts.bits > counts.axes * DEPTH_MAX as usize {
        return Err(format!("it has {} bits along {} axes", counts.bits, counts.axes));
    }
    Ok((counts, number(72)))
}

/// The basis of a file whose checksum is right.
fn parse_basis(bytes: &[u8], counts: Counts, layout: &Layout) -> Result<Basis, String> {
    let axis = |stored: &[u8]| Axis {
        step: f32::from_bits(number(stored, 0)),
        error: f32::from_bits(number(stored, 4)),
        depth: number(stored, 8),
    };
    let basis = Basis {
        dimensions: counts.dimensions,
        directions: halves::read(&bytes[layout.directions.clone()]),
        axes: bytes[layout.axes.clone()].chunks_exact(AXIS_BYTES).map(axis).collect(),
        rest: f32::from_bits(number(bytes, 36)),
    };
    basis.check()?;
    match basis.bits() {
        bits if bits == counts.bits => Ok(basis),
        bits => Err(format!("its axes have {bits} bits, its codes {}", counts.bits)),
    }
}

impl Snapshot {
    /// Maps an index and reads it once, so that damage is found here and not in a search.
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let bytes = mapped::Mapped::open(path)
            .map_err(|source| SnapshotError::Io { path: path.to_owned(), source })?;
        Self::checked(bytes).map_err(|reason| SnapshotError::Refused { path: path.to_owned(), reason })
    }

    /// An index whose file was read; the reason, if it is none.
    pub fn of(bytes: Vec<u8>) -> Result<Self, String> {
        Self::checked(mapped::Mapped::Memory(bytes))
    }

    fn checked(bytes: mapped::Mapped) -> Result<Self, String> {
        let (counts, body) = parse(&bytes)?;
        let layout = Layout::of(counts).filter(|layout| layout.codes.end == bytes.len());
        let layout = layout.ok_or_else(|| {
            format!(
                "{} rows in {} clusters do not make its {} bytes",
                counts.rows,
                counts.clusters,
                bytes.len()
            )
        })?;
        if crc32c::crc32c(&bytes[HEADER_USED..]) != body {
            return Err("it is damaged: its checksum is another".to_owned());
        }
        let basis = parse_basis(&bytes, counts, &layout)?;
        let model = bytes[40..72].try_into().expect("32 bytes");
        let centroids = halves::read(&bytes[layout.centroids.clone()]);
        let own = centroids.chunks_exact(counts.dimensions).map(|centre| dot(centre, centre)).collect();
        let opened = Self { basis, model, layout, counts, centroids, own, bytes };
        check_starts(&opened.starts().collect::<Vec<u32>>(), counts.rows)?;
        Ok(opened)
    }

    /// How it codes.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// SHA-256 of the model that embedded its passages.
    pub fn model(&self) -> [u8; 32] {
        self.model
    }

    /// How many clusters.
    pub fn clusters(&self) -> usize {
        self.counts.clusters
    }

    /// How many passages.
    pub fn rows(&self) -> usize {
        self.counts.rows
    }

    /// Its passages, in the order of rows.
    pub fn passages(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.counts.rows).map(|row| self.passage(row))
    }

    /// The first row of each cluster, and behind the last one how many there are.
    pub fn starts(&self) -> impl Iterator<Item = u32> + '_ {
        (0..=self.counts.clusters).map(|cluster| self.start(cluster) as u32)
    }

    /// All clusters, in their order.
    pub(crate) fn near(&self, vector: &[f32]) -> Vec<Near> {
        let (whole, kernel) = (dot(vector, vector), Kernel::best());
        let one = |(cluster, (centre, own)): (usize, (&[f32], &f32))| {
            let product = kernel.dot(centre, vector);
            Near { cluster, product, distance: (whole - 2.0 * product + own).max(0.0).sqrt() }
        };
        self.centroids.chunks_exact(self.counts.dimensions).zip(&self.own).enumerate().map(one).collect()
    }

    pub(crate) fn rows_of(&self, cluster: usize) -> Range<usize> {
        self.start(cluster)..self.start(cluster + 1)
    }

    pub(crate) fn passage(&self, row: usize) -> u32 {
        self.number(self.layout.passages.start + 4 * row)
    }

    pub(crate) fn codes(&self, rows: Range<usize>) -> &[u8] {
        let (start, bytes) = (self.layout.codes.start, self.basis.code_bytes());
        &self.bytes[start + rows.start * bytes..start + rows.end * bytes]
    }

    /// Of each row its factors.
    pub(crate) fn factors(&self, rows: Range<usize>, found: &mut Vec<f32>) {
        halves::read_into(self.factor_bytes(rows), found);
    }

    fn factor_bytes(&self, rows: Range<usize>) -> &[u8] {
        let start = self.layout.factors.start;
        &self.bytes[start + rows.start * FACTOR_BYTES..start + rows.end * FACTOR_BYTES]
    }

    /// Of the clusters the one whose centroid is nearest to a vector.
    fn nearest(&self, vector: &[f32]) -> usize {
        let nearest =
            self.near(vector).into_iter().min_by(|left, right| left.distance.total_cmp(&right.distance));
        nearest.map_or(0, |near| near.cluster)
    }

    fn start(&self, cluster: usize) -> usize {
        self.number(self.layout.starts.start + 4 * cluster) as usize
    }

    fn number(&self, at: usize) -> u32 {
        number(&self.bytes, at)
    }
}
