//! Rows of exact values beside the codes, as they lie in a file: of each passage a scale (f32), a checksum and whole
//! numbers of eight bits, of which a value is its number times the scale.
//!
//! Invariant: a row is another passage's, or damaged, is found when it is read: its checksum is of the passage's
//! number, too.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::scan::Kernel;

/// Before the values of a row.
const HEAD_BYTES: usize = 8;

/// A file's rows.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// The file.
    pub file: &'a File,
    /// Where in it the rows begin.
    pub start: u64,
    /// Of an embedding.
    pub dimensions: usize,
    /// Which passage a row is: first those in memory, then the others, both in order.
    pub numbers: &'a [u32],
    /// The rows in memory, which were checked.
    pub memory: &'a [u8],
}

/// Why a row could not be had.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The system's reason.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file has no such row.
    #[error("it ends in row {0}")]
    Short(usize),
    /// It is another's, or not as it was written.
    #[error("the row of passage {0} is damaged")]
    Damaged(u32),
}

impl Rows<'_> {
    fn row_bytes(&self) -> usize {
        HEAD_BYTES + self.dimensions
    }

    /// What `product` reads into.
    pub fn buffer(&self) -> Row {
        Row { bytes: vec![0; self.row_bytes()], values: vec![0.0; self.dimensions], kernel: Kernel::best() }
    }

    /// The inner product of a passage's row with a vector of as many dimensions; nothing, if it has none.
    pub fn product(&self, passage: u32, vector: &[f32], row: &mut Row) -> Result<Option<f32>, RowError> {
        let held = self.memory.len() / self.row_bytes();
        let (first, others) = self.numbers.split_at(held);
        if let Ok(place) = first.binary_search(&passage) {
            let bytes = self.memory.chunks_exact(self.row_bytes()).nth(place);
            return Ok(bytes.map(|bytes| product(bytes, vector, &mut row.values, row.kernel)));
        }
        let Ok(place) = others.binary_search(&passage) else { return Ok(None) };
        self.read(held + place, &mut row.bytes)?;
        if checksum(passage, &row.bytes) != number(&row.bytes[4..]) {
            return Err(RowError::Damaged(passage));
        }
        Ok(Some(product(&row.bytes, vector, &mut row.values, row.kernel)))
    }

    fn read(&self, place: usize, bytes: &mut [u8]) -> Result<(), RowError> {
        let at = self.start + (place * self.row_bytes()) as u64;
        self.file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => RowError::Short(place),
            _ => RowError::Io(error),
        })
    }
}

/// A row that was read, and its values.
#[derive(Debug)]
pub struct Row {
    bytes: Vec<u8>,
    values: Vec<f32>,
    kernel: Kernel,
}

fn product(row: &[u8], vector: &[f32], values: &mut [f32], kernel: Kernel) -> f32 {
    for (value, byte) in values.iter_mut().zip(&row[HEAD_BYTES..]) {
        *value = f32::from(*byte as i8);
    }
    kernel.dot(values, vector) * f32::from_bits(number(row))
}

/// CRC-32 (IEEE) of the passage's number, the scale and the values.
fn checksum(passage: u32, row: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&passage.to_le_bytes());
    sum.update(&row[..4]);
    sum.update(&row[HEAD_BYTES..]);
    sum.finalize()
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const DIMENSIONS: usize = 5;

    fn row(passage: u32, scale: f32, values: [i8; DIMENSIONS]) -> Vec<u8> {
        let mut bytes = [scale.to_le_bytes(), [0; 4]].concat();
        bytes.extend(values.map(|value| value as u8));
        let sum = checksum(passage, &bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn file(rows: &[Vec<u8>]) -> File {
        let mut file = tempfile::tempfile().expect("it is made");
        file.write_all(&[0; 3]).expect("it has room");
        file.write_all(&rows.concat()).expect("it has room");
        file
    }

    #[test]
    fn a_passage_has_its_own_row_in_memory_or_in_the_file() {
        let rows =
            [row(9, 0.5, [1, 0, 0, 0, 0]), row(2, 0.1, [0, 10, 0, 0, 0]), row(7, 2.0, [0, 0, -3, 0, 127])];
        let (file, memory) = (file(&rows), rows[0].clone());
        let rows =
            Rows { file: &file, start: 3, dimensions: DIMENSIONS, numbers: &[9, 2, 7], memory: &memory };
        let mut buffer = rows.buffer();
        let mut product =
            |passage| rows.product(passage, &[1.0, 2.0, 3.0, 4.0, 0.5], &mut buffer).expect("it is whole");
        assert_eq!((product(9), product(2), product(7)), (Some(0.5), Some(2.0), Some(109.0)));
        assert_eq!((product(8), product(10)), (None, None));
    }

    #[test]
    fn what_is_another_s_row_or_cut_short_is_refused() {
        let file = file(&[row(3, 1.0, [1; DIMENSIONS])]);
        let asked = |passage, numbers: &[u32]| {
            let rows = Rows { file: &file, start: 3, dimensions: DIMENSIONS, numbers, memory: &[] };
            rows.product(passage, &[1.0; DIMENSIONS], &mut rows.buffer()).map_err(|error| error.to_string())
        };
        assert_eq!(asked(3, &[3]), Ok(Some(5.0)));
        assert_eq!(asked(4, &[4]), Err("the row of passage 4 is damaged".to_owned()));
        assert_eq!(asked(5, &[3, 5]), Err("it ends in row 1".to_owned()));
    }
}
