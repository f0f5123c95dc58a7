//! Reading a disk log from its start to its end, and telling a torn end from damage.
//!
//! Invariant: reading changes nothing. A record that does not hold is the end of the log only if no
//! record of a later group holds anywhere in the ring and the state does not know better; otherwise it
//! is damage, because a later group is written only when everything before it is durable.

use super::layout::{RecordHeader, RecordKind, Ring, State, HEADER_BYTES};
use scotfree_core::Token;
use std::io;

/// How much of the ring is looked at in one go; also more than the largest header.
const WINDOW_BYTES: usize = 256 << 10;

/// A record of the log, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where it begins.
    pub position: u64,
    /// Whose content it is.
    pub token: Token,
    /// The bytes of content.
    pub length: u32,
    /// What it does.
    pub kind: RecordKind,
}

/// A log as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// All records from the start, in order; the first has the state's start sequence.
    pub entries: Vec<Entry>,
    /// Where the next record goes.
    pub end_position: u64,
    /// The sequence of the next record.
    pub end_sequence: u64,
    /// The position after the last trace of a write that was cut short; none if there is no trace.
    pub torn_end: Option<u64>,
}

/// Why a log cannot be read.
#[derive(Debug)]
pub enum RecoverError {
    /// The storage failed.
    Io(io::Error),
    /// A record that had been durable does not hold any more.
    Damaged {
        /// Where it begins.
        position: u64,
        /// What is wrong.
        found: String,
    },
}

/// Reads the log of `ring` from `state` on.
pub fn recover(ring: &Ring<'_>, salt: u64, state: &State) -> Result<Recovered, RecoverError> {
    let mut recovered = walk(ring, salt, state).map_err(RecoverError::Io)?;
    if recovered.end_sequence < state.known_sequence {
        return Err(RecoverError::Damaged {
            position: recovered.end_position,
            found: format!(
                "record {} does not hold, but {} were durable",
                recovered.end_sequence, state.known_sequence
            ),
        });
    }
    let limit = state.start_position + ring.log_bytes;
    let traces = find_traces(ring, salt, &recovered, limit).map_err(RecoverError::Io)?;
    if let Some(later) = traces.later_group {
        return Err(RecoverError::Damaged {
            position: recovered.end_position,
            found: format!(
                "record {} does not hold, but record {later} of a later write does",
                recovered.end_sequence
            ),
        });
    }
    recovered.torn_end = traces.torn_end;
    Ok(recovered)
}

/// Follows the records while they hold.
fn walk(ring: &Ring<'_>, salt: u64, state: &State) -> io::Result<Recovered> {
    let limit = state.start_position + ring.log_bytes;
    let mut window = Window::new(ring, limit);
    let mut found = Recovered {
        entries: Vec::new(),
        end_position: state.start_position,
        end_sequence: state.start_sequence,
        torn_end: None,
    };
    while let Some(header) = read_record(&mut window, salt, found.end_position)? {
        if header.sequence != found.end_sequence {
            break;
        }
        found.entries.push(Entry {
            position: found.end_position,
            token: header.token,
            length: header.length,
            kind: header.kind,
        });
        found.end_position += header.record_bytes();
        found.end_sequence += 1;
    }
    Ok(found)
}

#[derive(Default)]
struct Traces {
    /// A record that holds and belongs to a group after the one that the log ends in.
    later_group: Option<u64>,
    torn_end: Option<u64>,
}

/// Looks through the rest of the ring for records beyond the end of the log.
fn find_traces(ring: &Ring<'_>, salt: u64, log: &Recovered, limit: u64) -> io::Result<Traces> {
    let mut traces = Traces::default();
    let mut window = Window::new(ring, limit);
    let mut position = log.end_position;
    while let Some(bytes) = window.at(position, HEADER_BYTES)? {
        let header = RecordHeader::decode(bytes, salt);
        let beyond = header.filter(|header| header.sequence >= log.end_sequence);
        if let Some(header) = beyond {
            let is_first = position == log.end_position && header.sequence == log.end_sequence;
            let holds = read_record(&mut window, salt, position)?.is_some();
            if holds && header.group > log.end_sequence {
                traces.later_group = Some(header.sequence);
                return Ok(traces);
            }
            if holds || is_first {
                let end = (position + header.record_bytes()).min(limit);
                traces.torn_end = traces.torn_end.max(Some(end));
            }
        }
        position += 8;
    }
    Ok(traces)
}

/// The header of the record at `position`, if it is one and holds.
fn read_record(window: &mut Window<'_>, salt: u64, position: u64) -> io::Result<Option<RecordHeader>> {
    let Some(bytes) = window.at(position, HEADER_BYTES)? else { return Ok(None) };
    let Some(header) = RecordHeader::decode(bytes, salt) else { return Ok(None) };
    let whole_bytes = HEADER_BYTES + header.length as usize;
    let Some(record) = window.at(position, whole_bytes)? else { return Ok(None) };
    Ok(RecordHeader::content_holds(record, salt).then_some(header))
}

/// A part of the ring in memory, moved forward as it is read.
struct Window<'a> {
    ring: &'a Ring<'a>,
    /// Nothing is read from here on.
    limit: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(ring: &'a Ring<'a>, limit: u64) -> Window<'a> {
        Window { ring, limit, start: 0, bytes: Vec::new() }
    }

    /// `length` bytes from `position`; none if they cross the limit.
    fn at(&mut self, position: u64, length: usize) -> io::Result<Option<&[u8]>> {
        if length as u64 > self.limit.saturating_sub(position) {
            return Ok(None);
        }
        if position < self.start || position + length as u64 > self.start + self.bytes.len() as u64 {
            let rest = usize::try_from(self.limit - position).unwrap_or(usize::MAX);
            self.bytes.resize(length.max(WINDOW_BYTES).min(rest), 0);
            self.start = position;
            self.ring.read(position, &mut self.bytes)?;
        }
        let index = (position - self.start) as usize;
        Ok(Some(&self.bytes[index..index + length]))
    }
}
