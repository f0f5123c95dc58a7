//! Reads a ram log without writing to it. The domain itself cannot: it maps the file and empties what
//! is torn. The layout is that of `scotfree_io::ram` and of the first pages of all logs.
//!
//! Invariant: the file is opened for reading only, and every record that is returned has been checked.

use super::RawLog;
use scotfree_core::Token;
use scotfree_io::storage::{FileStorage, Storage};
use scotfree_io::DomainError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const MAGIC: &[u8] = b"SCOTLOG\n";
const VERSION: u32 = 1;
const PAGE_BYTES: u64 = 4_096;
const META_OFFSETS: [u64; 2] = [3 * PAGE_BYTES, 4 * PAGE_BYTES];
const META_HEADER_BYTES: usize = 16;
const META_BYTES_MAX: usize = 256;
const SLOTS_OFFSET: u64 = 8 * PAGE_BYTES;
const HALF_HEADER_BYTES: usize = 32;
const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const VALID: u32 = 2;

pub(super) fn read(path: &Path) -> Result<RawLog, DomainError> {
    let storage = Arc::new(FileStorage::open_to_read(path)?);
    let file = RamFile::identify(&storage, path)?;
    let (meta, mut records, mut torn_count) = (file.meta()?, Vec::new(), 0);
    let mut damage = Damage::default();
    for slot in 0..file.slot_count {
        let mut newest: Option<Half> = None;
        for half in [0, 1] {
            match file.half(slot, half) {
                Ok(Found::Nothing) => {}
                Ok(Found::Torn) => torn_count += 1,
                Ok(Found::Record(found)) => {
                    let newer = newest.as_ref().is_none_or(|newest| newest.generation < found.generation);
                    newest = if newer { Some(found) } else { newest };
                }
                Err(error) => damage.add(error)?,
            }
        }
        records.extend(newest.map(|half| (Token(slot), half.record)));
    }
    damage.none_or_all()?;
    Ok(RawLog { meta, records, torn_count, file: storage })
}

/// The records that do not hold.
#[derive(Default)]
struct Damage {
    first: Option<(PathBuf, u64)>,
    found: Vec<String>,
    unnamed_count: u64,
}

/// How many of them are named.
const NAMED_MAX: usize = 8;

impl Damage {
    fn add(&mut self, error: DomainError) -> Result<(), DomainError> {
        let DomainError::Damaged { path, offset, found } = error else { return Err(error) };
        self.first.get_or_insert((path, offset));
        if self.found.len() < NAMED_MAX {
            self.found.push(found);
        } else {
            self.unnamed_count += 1;
        }
        Ok(())
    }

    fn none_or_all(self) -> Result<(), DomainError> {
        let Some((path, offset)) = self.first else { return Ok(()) };
        let more = (self.unnamed_count > 0).then(|| format!("{} more records", self.unnamed_count));
        let found = self.found.into_iter().chain(more).collect::<Vec<_>>().join(", ");
        Err(DomainError::Damaged { path, offset, found })
    }
}

struct RamFile<'a> {
    storage: &'a FileStorage,
    path: &'a Path,
    salt: u64,
    slot_count: u64,
    record_bytes_max: u64,
}

struct Half {
    generation: u64,
    record: Vec<u8>,
}

enum Found {
    Nothing,
    Torn,
    Record(Half),
}

impl<'a> RamFile<'a> {
    fn identify(storage: &'a FileStorage, path: &'a Path) -> Result<RamFile<'a>, DomainError> {
        let mut file = RamFile { storage, path, salt: 0, slot_count: 0, record_bytes_max: 0 };
        let mut first = [0; 44];
        file.read(0, &mut first)?;
        if u32_at(&first, 8) != VERSION {
            return Err(DomainError::Foreign {
                path: path.to_owned(),
                found: format!(
                    "it has version {} and this program reads version {VERSION}",
                    u32_at(&first, 8)
                ),
                advice: "inspect it with the release that wrote it".to_owned(),
            });
        }
        if crc32c::crc32c(&first[..40]) != u32_at(&first, 40) {
            return Err(file.damaged(0, "the first page fails its checksum"));
        }
        file.salt = u64_at(&first, 16);
        file.slot_count = u64_at(&first, 24);
        file.record_bytes_max = u64_at(&first, 32);
        let length = storage.length().map_err(|error| file.failed(error))?;
        let needed =
            file.slot_count.checked_mul(2 * file.half_bytes()).and_then(|all| all.checked_add(SLOTS_OFFSET));
        if needed.is_none_or(|needed| length < needed) {
            return Err(file.damaged(length, "the file is shorter than its slots"));
        }
        Ok(file)
    }

    fn half_bytes(&self) -> u64 {
        self.record_bytes_max
            .saturating_add(HALF_HEADER_BYTES as u64)
            .div_ceil(PAGE_BYTES)
            .saturating_mul(PAGE_BYTES)
    }

    /// The newer of the two meta blobs.
    fn meta(&self) -> Result<Vec<u8>, DomainError> {
        let mut newest: Option<(u64, Vec<u8>)> = None;
        for offset in META_OFFSETS {
            let mut bytes = [0; META_HEADER_BYTES + META_BYTES_MAX];
            self.read(offset, &mut bytes)?;
            let length = u32_at(&bytes, 8) as usize;
            let Some(blob) = bytes[META_HEADER_BYTES..].get(..length) else { continue };
            let holds = self.crc(&[&bytes[..12], blob]) == u32_at(&bytes, 12);
            let generation = u64_at(&bytes, 0);
            if holds && newest.as_ref().is_none_or(|(newest, _)| *newest < generation) {
                newest = Some((generation, blob.to_vec()));
            }
        }
        let newest =
            newest.ok_or_else(|| self.damaged(META_OFFSETS[0], "neither copy of the meta blob holds"))?;
        Ok(newest.1)
    }

    fn half(&self, slot: u64, half: u64) -> Result<Found, DomainError> {
        let start = SLOTS_OFFSET + (2 * slot + half) * self.half_bytes();
        let mut header = [0; HALF_HEADER_BYTES];
        self.read(start, &mut header)?;
        let (state, length) = (u32_at(&header, 0), u64::from(u32_at(&header, 4)));
        if state == EMPTY {
            return Ok(Found::Nothing);
        }
        if state == WRITING {
            return Ok(Found::Torn);
        }
        if state != VALID {
            return Err(self.damaged(start, &format!("slot {slot} has the state {state}, which is none")));
        }
        let damaged = || self.damaged(start, &format!("the record of slot {slot} fails its checksum"));
        if length > self.record_bytes_max {
            return Err(damaged());
        }
        let mut record = vec![0; length as usize];
        self.read(start + HALF_HEADER_BYTES as u64, &mut record)?;
        if self.crc(&[&slot.to_le_bytes(), &header[4..16], &record]) != u32_at(&header, 16) {
            return Err(damaged());
        }
        Ok(Found::Record(Half { generation: u64_at(&header, 8), record }))
    }

    fn crc(&self, parts: &[&[u8]]) -> u32 {
        let start = crc32c::crc32c(&self.salt.to_le_bytes());
        parts.iter().fold(start, |crc, part| crc32c::crc32c_append(crc, part))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DomainError> {
        self.storage.read_at(offset, buffer).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> DomainError {
        DomainError::Io { doing: format!("reading {}", self.path.display()), source }
    }

    fn damaged(&self, offset: u64, found: &str) -> DomainError {
        DomainError::Damaged { path: self.path.to_owned(), offset, found: found.to_owned() }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
