//! What one write of the log holds: the updates of a turn, with their places.
//!
//! Layout, little-endian: version (1 byte); then for each update its place (8), its session (8), the place of the
//! session's last unlogged write before it (8), the length of its payload (4), and that.
//!
//! Invariant: whatever the bytes, reading ends, in updates with growing places or in an error.

use scotfree_core::{SeqNum, SessionId};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 28;

/// An update as the log holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedUpdate<'a> {
    /// Its place in the total order.
    pub seq: SeqNum,
    /// Whose it is.
    pub session: SessionId,
    /// The last write of its session before it that the log does not hold; 0 if there is none.
    pub behind: SeqNum,
    /// What is to be executed.
    pub payload: &'a [u8],
}

/// Why a record cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It ends within an update.
    #[error("a record ends within an update")]
    Truncated,
    /// It is of another version.
    #[error("a record has version {0}, and version {VERSION} is read here")]
    Version(u8),
    /// Its places do not grow.
    #[error("the places in a record do not grow")]
    Order,
}

/// Makes a record.
#[derive(Debug, Default)]
pub struct RecordWriter {
    bytes: Vec<u8>,
    first: SeqNum,
    last: SeqNum,
}

impl RecordWriter {
    /// How many bytes an update takes.
    pub fn cost(payload_bytes: usize) -> usize {
        HEAD_BYTES + payload_bytes
    }

    /// Adds an update.
    pub fn add(&mut self, update: &LoggedUpdate<'_>) {
        if self.bytes.is_empty() {
            self.bytes.push(VERSION);
            self.first = update.seq;
        }
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(&update.seq.0.to_le_bytes());
        bytes.extend_from_slice(&update.session.0.to_le_bytes());
        bytes.extend_from_slice(&update.behind.0.to_le_bytes());
        bytes.extend_from_slice(&(update.payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(update.payload);
        self.last = update.seq;
    }

    /// The record; empty if nothing was added.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The place of its first update.
    pub fn first(&self) -> SeqNum {
        self.first
    }

    /// The place of its last update.
    pub fn last(&self) -> SeqNum {
        self.last
    }

    /// Begins anew, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.first, self.last) = (SeqNum(0), SeqNum(0));
    }
}

/// Reads the updates of a record.
#[derive(Debug, Clone)]
pub struct RecordReader<'a> {
    rest: &'a [u8],
    last: u64,
}

impl<'a> RecordReader<'a> {
    /// Reads from the beginning.
    pub fn new(record: &'a [u8]) -> Result<RecordReader<'a>, RecordError> {
        match record {
            [VERSION, rest @ ..] => Ok(RecordReader { rest, last: 0 }),
            [version, ..] => Err(RecordError::Version(*version)),
            [] => Err(RecordError::Truncated),
        }
    }

    fn read(&mut self) -> Result<LoggedUpdate<'a>, RecordError> {
        let (head, rest) = self.rest.split_first_chunk::<HEAD_BYTES>().ok_or(RecordError::Truncated)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
        let length = u32::from_le_bytes([head[24], head[25], head[26], head[27]]) as usize;
        let (payload, rest) = rest.split_at_checked(length).ok_or(RecordError::Truncated)?;
        let seq = number(0);
        if seq <= self.last {
            return Err(RecordError::Order);
        }
        self.last = seq;
        self.rest = rest;
        let (session, behind) = (SessionId(number(8)), SeqNum(number(16)));
        Ok(LoggedUpdate { seq: SeqNum(seq), session, behind, payload })
    }
}

impl<'a> Iterator for RecordReader<'a> {
    type Item = Result<LoggedUpdate<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_gives_back_what_was_added() {
        let updates = [
            LoggedUpdate { seq: SeqNum(3), session: SessionId(u64::MAX), behind: SeqNum(0), payload: b"a" },
            LoggedUpdate { seq: SeqNum(9), session: SessionId(7), behind: SeqNum(4), payload: b"" },
        ];
        let mut writer = RecordWriter::default();
        assert!(writer.bytes().is_empty());
        for update in &updates {
            writer.add(update);
        }
        assert_eq!((writer.first(), writer.last()), (SeqNum(3), SeqNum(9)));
        assert_eq!(writer.bytes().len(), 1 + RecordWriter::cost(1) + RecordWriter::cost(0));
        let read: Result<Vec<_>, _> = RecordReader::new(writer.bytes()).expect("our version").collect();
        assert_eq!(read, Ok(updates.to_vec()));
        writer.clear();
        assert_eq!((writer.bytes().len(), writer.first(), writer.last()), (0, SeqNum(0), SeqNum(0)));
    }

    #[test]
    fn damage_is_an_error() {
        let mut writer = RecordWriter::default();
        let update =
            LoggedUpdate { seq: SeqNum(3), session: SessionId(1), behind: SeqNum(0), payload: b"abc" };
        writer.add(&update);
        let whole = writer.bytes().to_vec();
        for length in 2..whole.len() {
            let read: Result<Vec<_>, _> = RecordReader::new(&whole[..length]).expect("our version").collect();
            assert_eq!(read, Err(RecordError::Truncated), "{length}");
        }
        writer.add(&update);
        let read: Result<Vec<_>, _> = RecordReader::new(writer.bytes()).expect("our version").collect();
        assert_eq!(read, Err(RecordError::Order));
        assert_eq!(RecordReader::new(&[9]).err(), Some(RecordError::Version(9)));
        assert_eq!(RecordReader::new(&[]).err(), Some(RecordError::Truncated));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(reader) = RecordReader::new(&bytes) {
                prop_assert!(reader.count() <= bytes.len() / HEAD_BYTES + 1);
            }
        }
    }
}
