//! The file of an index: one header, and side by side what a search scans; mapped, never read into memory.
//!
//! ```text
//!   0 magic  8 version 4  dimensions 4  bits 4  clusters 4  rows 8  seed 8  model 32  body's CRC-32C 4  header's 4
//! 128 centroids: clusters x dimensions x 2, rotated, as half-precision numbers
//!     starts: (clusters + 1) x 4, the first row of each cluster
//!     passages: rows x 4, which passage a row is
//!     factors: rows x (4 or 6), as half-precision numbers
//!     codes: rows x dimensions x bits / 8
//! ```
//! Numbers are little-endian; each section begins at a multiple of 64 bytes.
//!
//! Invariant: a file is whole or refused. It is written beside its place, synced and renamed, and never changed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::f16;

use crate::code::{Bits, Coder, Factors, DIMENSIONS_STEP};
use crate::dot;
use crate::rotation::Rotation;

mod mapped;

const MAGIC: [u8; 8] = *b"SCOTRAG\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 128;
const HEADER_USED: usize = 80;
const ALIGNMENT: usize = 64;
/// Embeddings of more dimensions than any model has are no embeddings.
const DIMENSIONS_MAX: usize = 16_384;
/// How far from one the length of an embedding may be.
const LENGTH_SLACK: f32 = 0.01;

/// What an index is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Of its embeddings, and how they are coded.
    pub coder: Coder,
    /// Of its rotation.
    pub seed: u64,
    /// SHA-256 of the model that embedded its passages.
    pub model: [u8; 32],
}

/// Which passages lie in which cluster.
#[derive(Debug, Clone, Copy)]
pub struct Clusters<'a> {
    /// One behind the other, not rotated.
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

/// Where the sections lie.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    centroids: Range<usize>,
    starts: Range<usize>,
    passages: Range<usize>,
    factors: Range<usize>,
    codes: Range<usize>,
}

impl Layout {
    /// Nothing, if a file of such counts cannot be.
    fn of(coder: Coder, clusters: usize, rows: usize) -> Option<Self> {
        let mut end = HEADER_BYTES;
        let mut section = |count: usize, bytes: usize| {
            let start = end.checked_next_multiple_of(ALIGNMENT)?;
            end = start.checked_add(count.checked_mul(bytes)?)?;
            Some(start..end)
        };
        Some(Self {
            centroids: section(clusters, 2 * coder.dimensions)?,
            starts: section(clusters.checked_add(1)?, 4)?,
            passages: section(rows, 4)?,
            factors: section(rows, coder.factor_bytes())?,
            codes: section(rows, coder.code_bytes())?,
        })
    }
}

/// An index as its file has it.
#[derive(Debug)]
pub struct Snapshot {
    header: Header,
    rotation: Rotation,
    layout: Layout,
    clusters: usize,
    rows: usize,
    bytes: mapped::Mapped,
}

/// Writes an index; `embeddings` have length one, and lie behind each other.
///
/// What was at the path stays until all of the new file is on the disk.
pub fn write(
    path: &Path,
    header: Header,
    clusters: Clusters<'_>,
    embeddings: &[f32],
) -> Result<(), SnapshotError> {
    put(path, &encoded(header, clusters, embeddings)?)
}

/// The bytes of an index's file.
pub fn encoded(header: Header, clusters: Clusters<'_>, embeddings: &[f32]) -> Result<Vec<u8>, SnapshotError> {
    check(header.coder, clusters, embeddings).map_err(SnapshotError::Unfit)?;
    Ok(Body::coded(header, clusters, embeddings).file(header))
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
    let coder = old.header.coder;
    check_embeddings(coder, embeddings, passages).map_err(SnapshotError::Unfit)?;
    put(path, &Body::merged(old, is_gone, embeddings, passages).file(old.header))
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

fn check(coder: Coder, clusters: Clusters<'_>, embeddings: &[f32]) -> Result<(), String> {
    check_coder(coder)?;
    let (dimensions, count) = (coder.dimensions, clusters.starts.len().saturating_sub(1));
    let rows = clusters.rows.len();
    if clusters.centroids.len() != count * dimensions || count == 0 {
        return Err(format!("{count} clusters and {} values of centroids", clusters.centroids.len()));
    }
    check_embeddings(coder, embeddings, clusters.passages)?;
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

fn check_embeddings(coder: Coder, embeddings: &[f32], passages: &[u32]) -> Result<(), String> {
    if embeddings.len() != passages.len() * coder.dimensions {
        return Err(format!("{} passages and {} values of embeddings", passages.len(), embeddings.len()));
    }
    let length = |vector: &[f32]| dot(vector, vector).sqrt();
    // Also what is no number has no such length.
    let is_unit = |vector: &[f32]| (length(vector) - 1.0).abs() <= LENGTH_SLACK;
    match embeddings.chunks_exact(coder.dimensions).position(|vector| !is_unit(vector)) {
        Some(at) => Err(format!("embedding {at} has not the length 1")),
        None => Ok(()),
    }
}

fn check_coder(coder: Coder) -> Result<(), String> {
    let dimensions = coder.dimensions;
    if dimensions == 0 || !dimensions.is_multiple_of(DIMENSIONS_STEP) || dimensions > DIMENSIONS_MAX {
        return Err(format!(
            "{dimensions} dimensions are no multiple of {DIMENSIONS_STEP} up to {DIMENSIONS_MAX}"
        ));
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
#[derive(Debug, Default)]
struct Body {
    /// Rotated.
    centroids: Vec<f16>,
    starts: Vec<u32>,
    passages: Vec<u32>,
    factors: Vec<u8>,
    codes: Vec<u8>,
}

impl Body {
    fn coded(header: Header, clusters: Clusters<'_>, embeddings: &[f32]) -> Self {
        let (coder, rotation) = (header.coder, Rotation::new(header.coder.dimensions, header.seed));
        // Residuals are of the centroids that a search reads, rounded as they are.
        let centroids = rotation.apply(clusters.centroids).into_iter().map(f16::from_f32).collect();
        let mut body = Self { centroids, starts: vec![0], ..Self::default() };
        for (cluster, ends) in clusters.starts.windows(2).enumerate() {
            for row in &clusters.rows[ends[0] as usize..ends[1] as usize] {
                let at = *row as usize * coder.dimensions;
                let rotated = rotation.apply(&embeddings[at..at + coder.dimensions]);
                body.push(coder, cluster, &rotated, clusters.passages[*row as usize]);
            }
            body.end_cluster();
        }
        body
    }

    fn merged(old: &Snapshot, is_gone: impl Fn(u32) -> bool, embeddings: &[f32], passages: &[u32]) -> Self {
        let coder = old.header.coder;
        let centroids =
            (0..old.clusters).flat_map(|cluster| old.centroid(cluster)).map(f16::from_f32).collect();
        let mut body = Self { centroids, starts: vec![0], ..Self::default() };
        let rotated: Vec<Vec<f32>> =
            embeddings.chunks_exact(coder.dimensions).map(|vector| old.rotated(vector)).collect();
        let mut new_in: Vec<Vec<usize>> = vec![Vec::new(); old.clusters];
        for (place, vector) in rotated.iter().enumerate() {
            new_in[old.nearest(vector)].push(place);
        }
        for (cluster, places) in new_in.iter().enumerate() {
            for row in old.rows_of(cluster).filter(|row| !is_gone(old.passage(*row))) {
                body.passages.push(old.passage(row));
                body.factors.extend_from_slice(old.factor_bytes(row));
                body.codes.extend_from_slice(old.codes(row..row + 1));
            }
            for place in places {
                body.push(coder, cluster, &rotated[*place], passages[*place]);
            }
            body.end_cluster();
        }
        body
    }

    fn push(&mut self, coder: Coder, cluster: usize, rotated: &[f32], passage: u32) {
        let centroid = &self.centroids[cluster * coder.dimensions..(cluster + 1) * coder.dimensions];
        let residual: Vec<f32> =
            rotated.iter().zip(centroid).map(|(value, centre)| value - centre.to_f32()).collect();
        coder.encode(&residual, &mut self.codes, &mut self.factors);
        self.passages.push(passage);
    }

    fn end_cluster(&mut self) {
        self.starts.push(self.passages.len() as u32);
    }

    fn file(&self, header: Header) -> Vec<u8> {
        let (count, rows) = (self.starts.len() - 1, self.passages.len());
        let layout = Layout::of(header.coder, count, rows).expect("it lies in memory");
        let mut bytes = vec![0; layout.codes.end];
        let mut put = |at: Range<usize>, of: &[u8]| bytes[at].copy_from_slice(of);
        put(layout.centroids, &flat(&self.centroids, f16::to_le_bytes));
        put(layout.starts, &flat(&self.starts, u32::to_le_bytes));
        put(layout.passages, &flat(&self.passages, u32::to_le_bytes));
        put(layout.factors, &self.factors);
        put(layout.codes, &self.codes);
        let body = crc32c::crc32c(&bytes[HEADER_USED..]);
        bytes[..HEADER_USED].copy_from_slice(&head(header, count, rows, body));
        bytes
    }
}

fn flat<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

fn head(header: Header, clusters: usize, rows: usize, body: u32) -> [u8; HEADER_USED] {
    let mut bytes = Vec::with_capacity(HEADER_USED);
    bytes.extend(MAGIC);
    for number in [VERSION, header.coder.dimensions as u32, header.coder.bits.count(), clusters as u32] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend((rows as u64).to_le_bytes());
    bytes.extend(header.seed.to_le_bytes());
    bytes.extend(header.model);
    bytes.extend(body.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.try_into().expect("the fields fill the header")
}

/// The header of a file, how many clusters and rows it has, and its body's checksum.
fn parse(bytes: &[u8]) -> Result<(Header, usize, usize, u32), String> {
    if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
        return Err("it is no index of passages".to_owned());
    }
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if number(8) != VERSION {
        return Err(format!("it is of version {}, this reads {VERSION}", number(8)));
    }
    if crc32c::crc32c(&bytes[..HEADER_USED - 4]) != number(HEADER_USED - 4) {
        return Err("its header is damaged".to_owned());
    }
    let bits = Bits::of(number(16)).ok_or_else(|| format!("it has {} bits a dimension", number(16)))?;
    let coder = Coder { dimensions: number(12) as usize, bits };
    check_coder(coder)?;
    let model = bytes[40..72].try_into().expect("32 bytes");
    let rows = usize::try_from(long(24)).map_err(|_| format!("it has {} rows", long(24)))?;
    Ok((Header { coder, seed: long(32), model }, number(20) as usize, rows, number(72)))
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
        let (header, clusters, rows, body) = parse(&bytes)?;
        let layout =
            Layout::of(header.coder, clusters, rows).filter(|layout| layout.codes.end == bytes.len());
        let layout = layout.ok_or_else(|| {
            format!("{rows} rows in {clusters} clusters do not make its {} bytes", bytes.len())
        })?;
        if crc32c::crc32c(&bytes[HEADER_USED..]) != body {
            return Err("it is damaged: its checksum is another".to_owned());
        }
        let rotation = Rotation::new(header.coder.dimensions, header.seed);
        let opened = Self { header, rotation, layout, clusters, rows, bytes };
        let starts: Vec<u32> = (0..=clusters).map(|cluster| opened.start(cluster) as u32).collect();
        check_starts(&starts, rows)?;
        Ok(opened)
    }

    /// What it is of.
    pub fn header(&self) -> Header {
        self.header
    }

    /// How many clusters.
    pub fn clusters(&self) -> usize {
        self.clusters
    }

    /// How many passages.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Its passages, in the order of rows.
    pub fn passages(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.rows).map(|row| self.passage(row))
    }

    /// A vector as its centroids and codes are.
    pub(crate) fn rotated(&self, vector: &[f32]) -> Vec<f32> {
        self.rotation.apply(vector)
    }

    pub(crate) fn centroid(&self, cluster: usize) -> impl Iterator<Item = f32> + '_ {
        let bytes = 2 * self.header.coder.dimensions;
        let at = self.layout.centroids.start + cluster * bytes;
        self.bytes[at..at + bytes].chunks_exact(2).map(|two| f16::from_le_bytes([two[0], two[1]]).to_f32())
    }

    pub(crate) fn rows_of(&self, cluster: usize) -> Range<usize> {
        self.start(cluster)..self.start(cluster + 1)
    }

    pub(crate) fn passage(&self, row: usize) -> u32 {
        self.number(self.layout.passages.start + 4 * row)
    }

    pub(crate) fn codes(&self, rows: Range<usize>) -> &[u8] {
        let (start, bytes) = (self.layout.codes.start, self.header.coder.code_bytes());
        &self.bytes[start + rows.start * bytes..start + rows.end * bytes]
    }

    pub(crate) fn factors(&self, row: usize) -> Factors {
        self.header.coder.factors(self.factor_bytes(row))
    }

    fn factor_bytes(&self, row: usize) -> &[u8] {
        let bytes = self.header.coder.factor_bytes();
        let at = self.layout.factors.start + row * bytes;
        &self.bytes[at..at + bytes]
    }

    /// Of the clusters the one whose centroid is nearest to a rotated vector.
    fn nearest(&self, rotated: &[f32]) -> usize {
        let distances = (0..self.clusters).map(|cluster| (self.distance(cluster, rotated), cluster));
        distances.min_by(|left, right| left.0.total_cmp(&right.0)).map_or(0, |(_, cluster)| cluster)
    }

    /// Between a centroid and a rotated vector, squared.
    pub(crate) fn distance(&self, cluster: usize, rotated: &[f32]) -> f32 {
        self.centroid(cluster).zip(rotated).map(|(centre, value)| (value - centre) * (value - centre)).sum()
    }

    fn start(&self, cluster: usize) -> usize {
        self.number(self.layout.starts.start + 4 * cluster) as usize
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }
}
