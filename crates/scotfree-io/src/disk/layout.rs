//! The bytes of a disk log.
//!
//! ```text
//! page 0        identity (log_file)
//! page 1, 2     state, two copies written in turn: the newer valid one counts
//! page 3, 4     meta blob (log_file)
//! page 8 ...    the log: a ring of `log_bytes`, position p lies at p mod log_bytes
//!
//! state  0  generation       8
//!        8  start position   8
//!       16  start sequence   8
//!       24  known sequence   8
//!       32  CRC32C           4   salted, of bytes 0..32
//!
//! record 0  magic 0x5C07     2
//!        2  kind: 1 data, 2 erase      1
//!        3  zero             1
//!        4  CRC32C           4   salted, of the content
//!        8  sequence         8   grows by one from record to record
//!       16  group            8   the sequence of the first record of its group
//!       24  token            8
//!       32  length           4
//!       36  CRC32C           4   salted, of bytes 0..36
//!       40  content, padded with zeros to a multiple of 8
//! ```
//!
//! Invariant: a record is taken for one only if its checksums hold under the salt of the file, so no
//! content can pass for records; the header has its own, so that looking costs no more than the header.
//! A group
//! is written only after the group before it is durable. So a valid record of a later group proves that
//! everything before that group had been durable.

use crate::log_file::{read_u32, read_u64, salted_crc, PAGE_BYTES};
use crate::storage::Storage;
use scotfree_core::Token;
use std::io;

/// The size of a record without content, hence of an erasure.
pub const HEADER_BYTES: usize = 40;
/// Where the two copies of the state lie.
pub const STATE_OFFSETS: [u64; 2] = [PAGE_BYTES, 2 * PAGE_BYTES];
/// Where the ring begins.
pub const LOG_OFFSET: u64 = 8 * PAGE_BYTES;
const STATE_BYTES: usize = 36;
const MAGIC: u16 = 0x5C07;

/// What a record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Gives its token this content.
    Data,
    /// Takes its token's content away.
    Erase,
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// What it does.
    pub kind: RecordKind,
    /// Its place in the log's history.
    pub sequence: u64,
    /// The sequence of the first record of its group.
    pub group: u64,
    /// Whose content it is.
    pub token: Token,
    /// The bytes of content.
    pub length: u32,
}

impl RecordHeader {
    /// Appends the whole record to `out`.
    pub fn encode(&self, salt: u64, content: &[u8], out: &mut Vec<u8>) {
        assert_eq!(content.len(), self.length as usize, "the header speaks of this content");
        let mut header = [0; HEADER_BYTES];
        header[..2].copy_from_slice(&MAGIC.to_le_bytes());
        header[2] = match self.kind {
            RecordKind::Data => 1,
            RecordKind::Erase => 2,
        };
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        header[16..24].copy_from_slice(&self.group.to_le_bytes());
        header[24..32].copy_from_slice(&self.token.0.to_le_bytes());
        header[32..36].copy_from_slice(&self.length.to_le_bytes());
        header[4..8].copy_from_slice(&salted_crc(salt, &[content]).to_le_bytes());
        let crc = salted_crc(salt, &[&header[..36]]);
        header[36..].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(8), 0);
    }

    /// The header that `bytes` begin with, if it is one and its checksum holds.
    pub fn decode(bytes: &[u8], salt: u64) -> Option<RecordHeader> {
        if bytes.len() < HEADER_BYTES || bytes[..2] != MAGIC.to_le_bytes() {
            return None;
        }
        if salted_crc(salt, &[&bytes[..36]]) != read_u32(bytes, 36) {
            return None;
        }
        let kind = match bytes[2] {
            1 => RecordKind::Data,
            2 => RecordKind::Erase,
            _ => return None,
        };
        Some(RecordHeader {
            kind,
            sequence: read_u64(bytes, 8),
            group: read_u64(bytes, 16),
            token: Token(read_u64(bytes, 24)),
            length: read_u32(bytes, 32),
        })
    }

    /// Whether the content that follows the header in `record` is what was written.
    pub fn content_holds(record: &[u8], salt: u64) -> bool {
        salted_crc(salt, &[&record[HEADER_BYTES..]]) == read_u32(record, 4)
    }

    /// The bytes that the record takes in the log.
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.length as usize)
    }
}

/// The bytes that a record with `content_bytes` takes in the log.
pub fn record_bytes(content_bytes: usize) -> u64 {
    (HEADER_BYTES + content_bytes).next_multiple_of(8) as u64
}

/// Where reading the log begins, and how far it is known to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Grows with every copy written; its parity chooses the copy.
    pub generation: u64,
    /// The position of the oldest record that may count.
    pub start_position: u64,
    /// Its sequence.
    pub start_sequence: u64,
    /// Every record below this sequence was durable when the copy was written.
    pub known_sequence: u64,
}

impl State {
    /// Writes the state over its older copy.
    pub fn write(&self, storage: &dyn Storage, salt: u64) -> io::Result<()> {
        let mut out = [0; STATE_BYTES];
        out[..8].copy_from_slice(&self.generation.to_le_bytes());
        out[8..16].copy_from_slice(&self.start_position.to_le_bytes());
        out[16..24].copy_from_slice(&self.start_sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.known_sequence.to_le_bytes());
        let crc = salted_crc(salt, &[&out[..32]]);
        out[32..].copy_from_slice(&crc.to_le_bytes());
        storage.write_at(STATE_OFFSETS[(self.generation % 2) as usize], &out)
    }

    /// The newer of the copies that hold; none if neither does.
    pub fn read(storage: &dyn Storage, salt: u64) -> io::Result<Option<State>> {
        let mut newest: Option<State> = None;
        for offset in STATE_OFFSETS {
            let mut bytes = [0; STATE_BYTES];
            storage.read_at(offset, &mut bytes)?;
            let holds = salted_crc(salt, &[&bytes[..32]]) == read_u32(&bytes, 32);
            let state = State {
                generation: read_u64(&bytes, 0),
                start_position: read_u64(&bytes, 8),
                start_sequence: read_u64(&bytes, 16),
                known_sequence: read_u64(&bytes, 24),
            };
            if holds && newest.is_none_or(|newest| newest.generation < state.generation) {
                newest = Some(state);
            }
        }
        Ok(newest)
    }
}

/// The ring of the log inside a storage.
pub struct Ring<'a> {
    /// What holds it.
    pub storage: &'a dyn Storage,
    /// Its size.
    pub log_bytes: u64,
}

impl Ring<'_> {
    /// The place of a position in the storage.
    pub fn offset(&self, position: u64) -> u64 {
        LOG_OFFSET + position % self.log_bytes
    }

    /// Fills `buffer` from `position`, around the end of the ring if need be.
    pub fn read(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (first, second) = buffer.split_at_mut(self.split(position, buffer.len()));
        self.storage.read_at(self.offset(position), first)?;
        if second.is_empty() {
            return Ok(());
        }
        self.storage.read_at(LOG_OFFSET, second)
    }

    /// Writes `bytes` from `position`: one write, or two around the end of the ring.
    pub fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let (first, second) = bytes.split_at(self.split(position, bytes.len()));
        self.storage.write_at(self.offset(position), first)?;
        if second.is_empty() {
            return Ok(());
        }
        self.storage.write_at(LOG_OFFSET, second)
    }

    fn split(&self, position: u64, length: usize) -> usize {
        let to_end = self.log_bytes - position % self.log_bytes;
        length.min(usize::try_from(to_end).unwrap_or(usize::MAX))
    }
}
