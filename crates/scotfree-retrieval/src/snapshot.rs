//! The file of an index: one header, and side by side what a search scans; mapped, never read into memory.
//!
//! ```text
//!   0 magic  8 version 4  dimensions 4  axes 4  clusters 4  rows 8  coded 8  bits 4  rest 4  model 32
//!  80 body's CRC-32C 4  header's CRC-32C 4
//! 128 directions: axes x dimensions x 2, as half-precision numbers
//!     axes: axes x (step 4, error 4, depth 4)
//!     centroids: clusters x dimensions x 2, as half-precision numbers
//!     starts: (clusters + 1) x 4, the first row of each cluster
//!     firsts: (clusters + 1) x 4, the first code of each cluster
//!     passages: rows x 4, which passage a row is
//!     factors: coded x 6, as half-precision numbers
//!     codes: coded x bits / 8, filled up to a multiple of 8
//! ```
//! Of a cluster all rows have codes, or none: such a cluster is bare.
//! Numbers are little-endian; each section begins at a multiple of 64 bytes.
//!
//! Invariant: a file is whole or refused. It is written beside its place, synced and renamed, and never changed.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Cursor, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::f16;

use crate::code::{code_bytes, Axis, Basis, Centre, DEPTH_MAX, FACTOR_BYTES};
use crate::scan::Kernel;
use crate::{dot, halves};

mod mapped;

const MAGIC: [u8; 8] = *b"SCOTRAG\0";
const VERSION: u32 = 3;
const HEADER_BYTES: usize = 128;
const HEADER_USED: usize = 88;
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

/// Passages and their embeddings.
#[derive(Debug, Clone, Copy)]
pub struct Embedded<'a> {
    /// Of length one, and behind each other.
    pub embeddings: &'a [f32],
    /// Of each the passage.
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
        source: io::Error,
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
    coded: usize,
}

/// Where the sections lie.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    directions: Range<usize>,
    axes: Range<usize>,
    centroids: Range<usize>,
    starts: Range<usize>,
    firsts: Range<usize>,
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
            firsts: section(counts.clusters.checked_add(1)?, 4)?,
            passages: section(counts.rows, 4)?,
            factors: section(counts.coded, FACTOR_BYTES)?,
            codes: section(counts.coded, code_bytes(counts.bits))?,
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
    check(basis, clusters, embeddings).map_err(SnapshotError::Unfit)?;
    put(path, model, &Body::coded(&stored(basis), clusters, embeddings))
}

/// Writes an index cluster by cluster, with no more in memory than what is in the file.
#[derive(Debug)]
pub struct Writer {
    body: Body,
    model: [u8; 32],
    clusters: usize,
    centre: Centre,
    /// Which passages there are: none may be there twice.
    seen: HashSet<u32>,
}

impl Writer {
    /// For clusters of these centroids, one behind the other.
    pub fn new(basis: &Basis, model: [u8; 32], centroids: &[f32]) -> Result<Self, SnapshotError> {
        check_basis(basis, centroids).map_err(SnapshotError::Unfit)?;
        let body = Body::new(&stored(basis), centroids);
        let (clusters, centre) = (centroids.len() / basis.dimensions, body.centre(0));
        Ok(Self { body, model, clusters, centre, seen: HashSet::new() })
    }

    /// Passages and their embeddings, each with its cluster: that of the one before, or a later one.
    pub fn push(&mut self, added: Embedded<'_>, clusters: &[u32]) -> Result<(), SnapshotError> {
        let unfit = SnapshotError::Unfit;
        let dimensions = self.body.basis.dimensions;
        check_embeddings(dimensions, added.embeddings, added.passages).map_err(unfit)?;
        if clusters.len() != added.passages.len() {
            return Err(unfit(format!(
                "{} passages and {} of their clusters",
                added.passages.len(),
                clusters.len()
            )));
        }
        let vectors = added.embeddings.chunks_exact(dimensions);
        for ((vector, passage), cluster) in vectors.zip(added.passages).zip(clusters) {
            self.begin(*cluster as usize)?;
            if !self.seen.insert(*passage) {
                return Err(unfit(format!("passage {passage} is there twice")));
            }
            self.body.push(&self.centre, vector, *passage);
        }
        Ok(())
    }

    /// Ends the clusters before this one.
    fn begin(&mut self, cluster: usize) -> Result<(), SnapshotError> {
        let current = self.body.ended();
        if cluster < current || cluster >= self.clusters {
            return Err(SnapshotError::Unfit(format!(
                "cluster {cluster} behind cluster {current} of {}",
                self.clusters
            )));
        }
        if cluster > current {
            (current..cluster).for_each(|_| self.body.end_cluster());
            self.centre = self.body.centre(cluster);
        }
        Ok(())
    }

    /// Writes the file; what was at the path stays until all of the new one is on the disk.
    pub fn finish(mut self, path: &Path) -> Result<(), SnapshotError> {
        (self.body.ended()..self.clusters).for_each(|_| self.body.end_cluster());
        put(path, self.model, &self.body)
    }
}

/// The bytes of an index's file.
pub fn encoded(
    basis: &Basis,
    model: [u8; 32],
    clusters: Clusters<'_>,
    embeddings: &[f32],
) -> Result<Vec<u8>, SnapshotError> {
    check(basis, clusters, embeddings).map_err(SnapshotError::Unfit)?;
    Ok(Body::coded(&stored(basis), clusters, embeddings).bytes(model))
}

/// Writes an index of what another has but for what is gone, and of embeddings, each in the nearest of its clusters.
///
/// The codes of what stays are copied, so that nothing is embedded again. Clusters that are to be bare lose theirs;
/// of those that were and are not to be, the embeddings of all passages are among these.
pub fn merge(
    path: &Path,
    old: &Snapshot,
    is_gone: impl Fn(u32) -> bool,
    is_bare: impl Fn(usize) -> bool,
    added: Embedded<'_>,
) -> Result<(), SnapshotError> {
    put(path, old.model, &merged_body(old, is_gone, is_bare, added)?)
}

/// The bytes of what `merge` writes.
pub fn merged(
    old: &Snapshot,
    is_gone: impl Fn(u32) -> bool,
    is_bare: impl Fn(usize) -> bool,
    added: Embedded<'_>,
) -> Result<Vec<u8>, SnapshotError> {
    Ok(merged_body(old, is_gone, is_bare, added)?.bytes(old.model))
}

fn merged_body(
    old: &Snapshot,
    is_gone: impl Fn(u32) -> bool,
    is_bare: impl Fn(usize) -> bool,
    added: Embedded<'_>,
) -> Result<Body, SnapshotError> {
    check_embeddings(old.counts.dimensions, added.embeddings, added.passages)
        .map_err(SnapshotError::Unfit)?;
    Body::merged(old, is_gone, is_bare, added).map_err(SnapshotError::Unfit)
}

fn put(path: &Path, model: [u8; 32], body: &Body) -> Result<(), SnapshotError> {
    let half = path.with_extension("half");
    let failed = |source| SnapshotError::Io { path: half.clone(), source };
    write_file(&half, model, body).map_err(failed)?;
    let failed = |source| SnapshotError::Io { path: path.to_owned(), source };
    fs::rename(&half, path).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn write_file(path: &Path, model: [u8; 32], body: &Body) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    body.write(model, &mut file)?;
    file.into_inner()?.sync_all()
}

/// A basis as a file has it: with what is coded by it, it must be searched.
fn stored(basis: &Basis) -> Basis {
    let directions = basis.directions.iter().map(|value| f16::from_f32(*value).to_f32()).collect();
    Basis { directions, ..basis.clone() }
}

fn check(basis: &Basis, clusters: Clusters<'_>, embeddings: &[f32]) -> Result<(), String> {
    check_basis(basis, clusters.centroids)?;
    let (dimensions, count) = (basis.dimensions, clusters.starts.len().saturating_sub(1));
    let rows = clusters.rows.len();
    if clusters.centroids.len() != count * dimensions {
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

fn check_basis(basis: &Basis, centroids: &[f32]) -> Result<(), String> {
    check_dimensions(basis.dimensions)?;
    basis.check()?;
    if centroids.is_empty() || !centroids.len().is_multiple_of(basis.dimensions) {
        return Err(format!("{} values of centroids of {} dimensions", centroids.len(), basis.dimensions));
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
    firsts: Vec<u32>,
    passages: Vec<u32>,
    factors: Vec<u8>,
    codes: Vec<u8>,
}

impl Body {
    fn new(basis: &Basis, centroids: &[f32]) -> Self {
        // Residuals are of the centroids that a search reads, rounded as they are.
        let centroids = centroids.iter().copied().map(f16::from_f32).collect();
        let (passages, factors, codes) = (Vec::new(), Vec::new(), Vec::new());
        let (starts, firsts) = (vec![0], vec![0]);
        Self { basis: basis.clone(), centroids, starts, firsts, passages, factors, codes }
    }

    fn coded(basis: &Basis, clusters: Clusters<'_>, embeddings: &[f32]) -> Self {
        let mut body = Self::new(basis, clusters.centroids);
        for (cluster, ends) in clusters.starts.windows(2).enumerate() {
            let centre = body.centre(cluster);
            for row in &clusters.rows[ends[0] as usize..ends[1] as usize] {
                let at = *row as usize * basis.dimensions;
                let vector = &embeddings[at..at + basis.dimensions];
                body.push(&centre, vector, clusters.passages[*row as usize]);
            }
            body.end_cluster();
        }
        body
    }

    fn merged(
        old: &Snapshot,
        is_gone: impl Fn(u32) -> bool,
        is_bare: impl Fn(usize) -> bool,
        added: Embedded<'_>,
    ) -> Result<Self, String> {
        let mut body = Self::new(&old.basis, &old.centroids);
        let stays = |cluster| old.rows_of(cluster).filter(|row| !is_gone(old.passage(*row)));
        let is_coded_again = |cluster| old.is_bare(cluster) && !is_bare(cluster);
        let again = (0..old.counts.clusters).filter(|cluster| is_coded_again(*cluster)).flat_map(stays);
        let again: HashSet<u32> = again.map(|row| old.passage(row)).collect();
        let vectors: Vec<&[f32]> = added.embeddings.chunks_exact(old.counts.dimensions).collect();
        let mut vector_of = HashMap::new();
        let mut new_in: Vec<Vec<usize>> = vec![Vec::new(); old.counts.clusters];
        for (place, (vector, passage)) in vectors.iter().zip(added.passages).enumerate() {
            if again.contains(passage) {
                vector_of.insert(*passage, *vector);
            } else {
                new_in[old.cluster_of(vector)].push(place);
            }
        }
        for (cluster, places) in new_in.iter().enumerate() {
            let centre = body.centre(cluster);
            for row in stays(cluster) {
                let passage = old.passage(row);
                if is_bare(cluster) {
                    body.passages.push(passage);
                } else if let Some(code) = old.code_of(cluster, row) {
                    body.copy(old, code, passage);
                } else {
                    let vector = vector_of.get(&passage);
                    body.push(&centre, vector.ok_or_else(|| unembedded(passage))?, passage);
                }
            }
            for place in places {
                let passage = added.passages[*place];
                if is_bare(cluster) {
                    body.passages.push(passage);
                } else {
                    body.push(&centre, vectors[*place], passage);
                }
            }
            body.end_cluster();
        }
        Ok(body)
    }

    fn copy(&mut self, old: &Snapshot, code: usize, passage: u32) {
        self.factors.extend_from_slice(old.factor_bytes(code..code + 1));
        self.codes.extend_from_slice(old.codes(code..code + 1));
        self.passages.push(passage);
    }

    fn centre(&self, cluster: usize) -> Centre {
        let dimensions = self.basis.dimensions;
        let values = &self.centroids[cluster * dimensions..(cluster + 1) * dimensions];
        self.basis.centre(values.iter().map(|value| value.to_f32()).collect())
    }

    /// How many clusters are whole.
    fn ended(&self) -> usize {
        self.starts.len() - 1
    }

    fn push(&mut self, centre: &Centre, vector: &[f32], passage: u32) {
        self.basis.encode(vector, centre, &mut self.codes, &mut self.factors);
        self.passages.push(passage);
    }

    fn end_cluster(&mut self) {
        self.starts.push(self.passages.len() as u32);
        self.firsts.push(self.coded_rows() as u32);
    }

    fn coded_rows(&self) -> usize {
        self.factors.len() / FACTOR_BYTES
    }

    fn counts(&self) -> Counts {
        Counts {
            dimensions: self.basis.dimensions,
            axes: self.basis.axes.len(),
            bits: self.basis.bits(),
            clusters: self.ended(),
            rows: self.passages.len(),
            coded: self.coded_rows(),
        }
    }

    fn bytes(&self, model: [u8; 32]) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        self.write(model, &mut file).expect("memory takes it");
        file.into_inner()
    }

    /// The header is last: until then it is no such file.
    fn write(&self, model: [u8; 32], file: &mut (impl Write + Seek)) -> io::Result<()> {
        let counts = self.counts();
        let layout = Layout::of(counts).expect("it lies in memory");
        file.write_all(&[0; HEADER_USED])?;
        let mut sections = Sections { file: &mut *file, at: HEADER_USED, sum: 0 };
        sections.put(
            layout.directions,
            &flat(&self.basis.directions, |value| f16::from_f32(value).to_le_bytes()),
        )?;
        sections.put(layout.axes, &flat(&self.basis.axes, axis_bytes))?;
        sections.put(layout.centroids, &flat(&self.centroids, f16::to_le_bytes))?;
        sections.put(layout.starts, &flat(&self.starts, u32::to_le_bytes))?;
        sections.put(layout.firsts, &flat(&self.firsts, u32::to_le_bytes))?;
        sections.put(layout.passages, &flat(&self.passages, u32::to_le_bytes))?;
        sections.put(layout.factors, &self.factors)?;
        sections.put(layout.codes, &self.codes)?;
        let body = sections.sum;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&head(counts, self.basis.rest, model, body))
    }
}

/// What is written behind a header, and the checksum of it so far.
struct Sections<'a, W> {
    file: &'a mut W,
    at: usize,
    sum: u32,
}

impl<W: Write> Sections<'_, W> {
    fn put(&mut self, at: Range<usize>, bytes: &[u8]) -> io::Result<()> {
        self.append(&vec![0; at.start - self.at])?;
        self.append(bytes)?;
        assert_eq!(self.at, at.end, "a section is as long as it is laid out");
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.at += bytes.len();
        Ok(())
    }
}

fn unembedded(passage: u32) -> String {
    format!("passage {passage} is to have a code again, and there is no embedding of it")
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
    bytes.extend((counts.coded as u64).to_le_bytes());
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
    let count = |at: usize| {
        let count = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        usize::try_from(count).map_err(|_| format!("it has {count} rows"))
    };
    let counts = Counts {
        dimensions: number(12) as usize,
        axes: number(16) as usize,
        clusters: number(20) as usize,
        rows: count(24)?,
        coded: count(32)?,
        bits: number(40) as usize,
    };
    check_dimensions(counts.dimensions)?;
    // More would be read from a basis that is not checked yet.
    if counts.axes > counts.dimensions || counts.bits > counts.axes * DEPTH_MAX as usize {
        return Err(format!("it has {} bits along {} axes", counts.bits, counts.axes));
    }
    Ok((counts, number(80)))
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
        rest: f32::from_bits(number(bytes, 44)),
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
        let model = bytes[48..80].try_into().expect("32 bytes");
        let centroids = halves::read(&bytes[layout.centroids.clone()]);
        let own = centroids.chunks_exact(counts.dimensions).map(|centre| dot(centre, centre)).collect();
        let opened = Self { basis, model, layout, counts, centroids, own, bytes };
        check_starts(&opened.starts().collect::<Vec<u32>>(), counts.rows)?;
        opened.check_codes()?;
        Ok(opened)
    }

    fn check_codes(&self) -> Result<(), String> {
        let firsts: Vec<u32> = (0..=self.counts.clusters).map(|cluster| self.first(cluster) as u32).collect();
        check_starts(&firsts, self.counts.coded)?;
        let is_one = |cluster: &usize| {
            let codes = self.codes_of(*cluster).len();
            codes == 0 || codes == self.rows_of(*cluster).len()
        };
        match (0..self.counts.clusters).find(|cluster| !is_one(cluster)) {
            Some(cluster) => Err(format!("of cluster {cluster} some passages have codes, others have none")),
            None => Ok(()),
        }
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

    /// Whether a cluster has passages, and no codes.
    pub fn is_bare(&self, cluster: usize) -> bool {
        self.codes_of(cluster).is_empty() && !self.rows_of(cluster).is_empty()
    }

    pub(crate) fn is_all_coded(&self) -> bool {
        self.counts.coded == self.counts.rows
    }

    /// The clusters whose centroids lie most in a vector's direction, the first one most.
    ///
    /// Of clusters whose passages all count, more of the nearest lie in these than in those that are as many and
    /// nearest by distance, which prefers clusters that lie wide: their centroids are short.
    pub fn along(&self, vector: &[f32], count: usize) -> Vec<usize> {
        let cosine =
            |near: Near| (near.product / self.own[near.cluster].sqrt().max(f32::MIN_POSITIVE), near.cluster);
        if count == 0 {
            return Vec::new();
        }
        let mut clusters: Vec<(f32, usize)> = self.near(vector).into_iter().map(cosine).collect();
        clusters.sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        clusters.truncate(count);
        clusters.into_iter().map(|(_, cluster)| cluster).collect()
    }

    /// The clusters whose centroids are nearest, by distance, the nearest first.
    pub(crate) fn nearest(&self, vector: &[f32], count: usize) -> Vec<Near> {
        let mut clusters = self.near(vector);
        clusters.sort_unstable_by(|left, right| {
            left.distance.total_cmp(&right.distance).then(left.cluster.cmp(&right.cluster))
        });
        clusters.truncate(count);
        clusters
    }

    /// All clusters, in their order.
    fn near(&self, vector: &[f32]) -> Vec<Near> {
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

    /// Of a cluster's rows their codes, in the same order; none of a bare one.
    pub(crate) fn codes_of(&self, cluster: usize) -> Range<usize> {
        self.first(cluster)..self.first(cluster + 1)
    }

    fn code_of(&self, cluster: usize, row: usize) -> Option<usize> {
        let (rows, codes) = (self.rows_of(cluster), self.codes_of(cluster));
        (!codes.is_empty()).then(|| codes.start + row - rows.start)
    }

    pub(crate) fn codes(&self, of: Range<usize>) -> &[u8] {
        let (start, bytes) = (self.layout.codes.start, self.basis.code_bytes());
        &self.bytes[start + of.start * bytes..start + of.end * bytes]
    }

    /// Of each code its factors.
    pub(crate) fn factors(&self, of: Range<usize>, found: &mut Vec<f32>) {
        halves::read_into(self.factor_bytes(of), found);
    }

    fn factor_bytes(&self, of: Range<usize>) -> &[u8] {
        let start = self.layout.factors.start;
        &self.bytes[start + of.start * FACTOR_BYTES..start + of.end * FACTOR_BYTES]
    }

    /// Of the clusters the one whose centroid is nearest to a vector.
    fn cluster_of(&self, vector: &[f32]) -> usize {
        let nearest =
            self.near(vector).into_iter().min_by(|left, right| left.distance.total_cmp(&right.distance));
        nearest.map_or(0, |near| near.cluster)
    }

    fn first(&self, cluster: usize) -> usize {
        self.number(self.layout.firsts.start + 4 * cluster) as usize
    }

    fn start(&self, cluster: usize) -> usize {
        self.number(self.layout.starts.start + 4 * cluster) as usize
    }

    fn number(&self, at: usize) -> u32 {
        number(&self.bytes, at)
    }
}
