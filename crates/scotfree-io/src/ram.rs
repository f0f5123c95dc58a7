//! The domains `ram` and `pmem`: one slot per token in mapped memory, complete as soon as it is copied,
//! in persistent memory as soon as it is flushed.
//!
//! ```text
//! page 0       identity (log_file)         slot s has two halves, each begins on a page:
//! page 3, 4    meta blob (log_file)           0  state: 0 empty, 1 writing, 2 valid  4
//! page 8 ...   slots, by token                4  length                              4
//!                                             8  generation                          8
//!                                            16  CRC32C, salted, of slot, 4..16      4
//!                                                and content
//!                                            32  content                             length
//! ```
//!
//! Invariant: a record is replaced in the other half of its slot, which becomes valid before the old
//! one becomes empty; so at every instruction the old or the new record is there, whole. The medium may
//! lag behind: a half is written only when the medium has it empty, and becomes valid only when the
//! medium has the rest of it; so what is true at every instruction is true after a loss of power. The
//! file is sparse, and blocks are reserved before they are touched, so a full file system is an error
//! and not a fault.

use crate::domain::{check_meta, DomainError, PersistenceDomain, ScanReport};
use crate::log_file::{read_meta, read_u32, read_u64, salted_crc, write_meta, Identity, LogKind, PAGE_BYTES};
use crate::pmem::{self, PmemMemory};
use crate::slot_memory::SlotMemory;
use crate::storage::{FileStorage, Storage, WriteWaits};
use crate::sys::file::{next_data, punch, reserve};
use crate::sys::map::SharedMap;
use crate::verify::VerifyReport;
use scotfree_core::{Durability, Survives, Token};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

const SLOTS_OFFSET: u64 = 8 * PAGE_BYTES;
const HEADER_BYTES: usize = 32;
/// What one file may be asked to hold; within it no size overflows.
const SLOT_COUNT_MAX: u64 = 1 << 28;
const RECORD_BYTES_MAX: u64 = 1 << 26;
const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const VALID: u32 = 2;

/// How a [`RamDomain`] is set up.
#[derive(Debug, Clone)]
pub struct RamConfig {
    /// How many slots there are; tokens from this number on give [`DomainError::Full`].
    pub slot_count: u64,
    /// The largest record. A slot takes address space for two of this size but memory only for what
    /// is in it.
    pub record_bytes_max: usize,
    /// How many submissions may be uncollected ([`PersistenceDomain::completions`]) at most; at the
    /// limit submitting gives [`DomainError::Full`].
    pub outstanding_max: usize,
    /// What the memory is.
    pub media: Media,
}

/// What the memory is that a log with slots lies in. All but the first is the operator's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Media {
    /// Ordinary memory: records survive the death of processes.
    #[default]
    Volatile,
    /// Memory that, processor caches included, outlasts a restart of the host.
    BatteryBacked,
    /// Persistent memory behind a DAX file system; that the file system offers this, and that the
    /// processor can flush, is checked. Records survive a loss of power.
    Pmem {
        /// From how many bytes on a record is streamed past the processor's caches instead of flushed out
        /// of them.
        streaming_bytes_min: usize,
    },
}

impl Media {
    /// Persistent memory, written as [`pmem::STREAMING_BYTES_MIN`] says.
    pub const PMEM: Media = Media::Pmem { streaming_bytes_min: pmem::STREAMING_BYTES_MIN };
}

impl Default for RamConfig {
    fn default() -> Self {
        RamConfig {
            slot_count: 16_384,
            record_bytes_max: 64 << 10,
            outstanding_max: 1 << 16,
            media: Media::Volatile,
        }
    }
}

/// A persistence domain in mapped memory. Unless it is to be persistent, give it a path on a memory file
/// system (`/dev/shm`); on another one the kernel also writes the records back to disk, at leisure.
pub struct RamDomain {
    storage: FileStorage,
    path: PathBuf,
    memory: Box<dyn SlotMemory>,
    salt: u64,
    config: RamConfig,
    slots: Vec<Slot>,
    done: Vec<Token>,
    meta: Vec<u8>,
    meta_generation: u64,
    torn: ScanReport,
}

/// Makes memory of a file and the length that is to be mapped.
pub type MapSlots<'a> = dyn Fn(&File, usize) -> Result<Box<dyn SlotMemory>, DomainError> + 'a;

/// What is known of a slot without looking at it.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    live: Option<Live>,
    /// The last generation used in either half.
    generation: u64,
    /// How far the blocks of each half are reserved.
    reserved_bytes: [u32; 2],
}

#[derive(Debug, Clone, Copy)]
struct Live {
    half: usize,
    length: u32,
}

/// The header of a half.
#[derive(Debug, Clone, Copy)]
struct HalfHeader {
    state: u32,
    length: u32,
    generation: u64,
    crc: u32,
}

impl RamDomain {
    /// Opens the log at `path` or makes it. Half-written records are dropped and reported by
    /// [`PersistenceDomain::scan`]. A log of another geometry is changed if it has no records and
    /// otherwise refused; a damaged, foreign or used file is refused and left untouched.
    pub fn open(path: &Path, config: &RamConfig) -> Result<RamDomain, DomainError> {
        match config.media {
            Media::Volatile | Media::BatteryBacked => RamDomain::open_on(path, config, &|file, length| {
                let map = SharedMap::new(file, length)
                    .map_err(|error| DomainError::io(format!("mapping {}", path.display()), error))?;
                Ok(Box::new(map))
            }),
            Media::Pmem { streaming_bytes_min } => {
                // Before a file is made that would have to be removed again.
                pmem::probe(path)?;
                RamDomain::open_on(path, config, &|file, length| {
                    Ok(Box::new(PmemMemory::map(file, length, path, streaming_bytes_min)?))
                })
            }
        }
    }

    /// The same in memory that `map` makes of the locked file and its length.
    pub fn open_on(path: &Path, config: &RamConfig, map: &MapSlots<'_>) -> Result<RamDomain, DomainError> {
        assert!((1..=SLOT_COUNT_MAX).contains(&config.slot_count), "a log has 1 to {SLOT_COUNT_MAX} slots");
        assert!(
            config.record_bytes_max as u64 <= RECORD_BYTES_MAX,
            "a slot takes at most {RECORD_BYTES_MAX} bytes"
        );
        let format = |storage: &FileStorage| format(storage, config);
        let waits = match config.media {
            Media::Volatile | Media::BatteryBacked => WriteWaits::No,
            Media::Pmem { .. } => WriteWaits::ForMedium,
        };
        let storage = FileStorage::open_or_create(path, waits, &format)?;
        let doing = |what: &str| format!("{what} {}", path.display());
        let mut identity = read_identity(&storage, path)?;
        if identity.geometry != geometry(config) {
            refuse_unless_empty(&storage, path, &identity, config)?;
            identity = resize(&storage, identity, config)
                .map_err(|error| DomainError::io(doing("changing the sizes of"), error))?;
        }
        let (meta_generation, meta) = read_meta(&storage, identity.salt)
            .map_err(|error| DomainError::io(doing("reading"), error))?
            .ok_or_else(|| DomainError::Damaged {
                path: path.to_owned(),
                offset: crate::log_file::META_OFFSETS[0],
                found: "neither copy of the meta blob holds".to_owned(),
            })?;
        let memory = map(storage.file(), file_bytes(config) as usize)?;
        let mut domain = RamDomain {
            storage,
            path: path.to_owned(),
            memory,
            salt: identity.salt,
            config: config.clone(),
            slots: vec![Slot::default(); config.slot_count as usize],
            done: Vec::new(),
            meta,
            meta_generation,
            torn: ScanReport::default(),
        };
        domain.find_records()?;
        domain.storage.note_owner();
        Ok(domain)
    }

    fn find_records(&mut self) -> Result<(), DomainError> {
        let halves = halves_with_data(&self.storage, &self.config)
            .map_err(|error| DomainError::io(format!("reading {}", self.path.display()), error))?;
        // All of them before the first is changed: a damaged log is left as it is.
        for (slot, half) in &halves {
            let bytes = self.half(*slot, *half);
            HalfHeader::decode(bytes)
                .check(bytes, *slot, self.salt)
                .map_err(|found| damaged(&self.path, &self.config, *slot, *half, found))?;
        }
        // And all of them before the first is emptied, or a new record might be lost with its old one.
        for (slot, half) in &halves {
            self.settle(*slot, *half);
        }
        self.memory.fence();
        for (slot, half) in halves {
            self.look_at(slot, half);
        }
        Ok(())
    }

    /// Starts to bring a half to the medium as it is found: whoever wrote it may have died before that, or
    /// may not have known that the memory is persistent.
    fn settle(&mut self, slot: usize, half: usize) {
        let header = HalfHeader::decode(self.half(slot, half));
        let content_bytes = if header.state == VALID { header.length as usize } else { 0 };
        let start = half_range(&self.config, slot, half).start;
        self.memory.write_back(start..start + HEADER_BYTES + content_bytes);
    }

    fn look_at(&mut self, slot: usize, half: usize) {
        let header = HalfHeader::decode(self.half(slot, half));
        if header.state == EMPTY {
            return;
        }
        if header.state == WRITING {
            self.torn.torn_count += 1;
            self.torn.torn_bytes += u64::from(header.length).min(self.config.record_bytes_max as u64);
            self.torn.torn_at.get_or_insert(half_range(&self.config, slot, half).start as u64);
            self.set_state(slot, half, EMPTY);
            return;
        }
        // Both halves are valid when a crash came between making the new one valid and the old empty.
        let known = self.slots[slot];
        if known.live.is_some() && known.generation > header.generation {
            return self.set_state(slot, half, EMPTY);
        }
        if let Some(older) = known.live {
            self.set_state(slot, older.half, EMPTY);
        }
        self.slots[slot].live = Some(Live { half, length: header.length });
        self.slots[slot].generation = header.generation;
    }

    fn write(&mut self, slot: usize, half: usize, record: &[u8]) -> Result<(), DomainError> {
        self.reserve(slot, half, record.len())?;
        let generation = self.slots[slot].generation + 1;
        let start = half_range(&self.config, slot, half).start;
        let header = HalfHeader::new(self.salt, slot, generation, record).encode();
        self.memory.store(start, WRITING);
        self.memory.write(start + 4, &header[4..]);
        self.memory.write(start + HEADER_BYTES, record);
        self.memory.fence();
        self.set_state(slot, half, VALID);
        self.slots[slot].generation = generation;
        Ok(())
    }

    /// Reserves blocks for a record, so that touching them through the map cannot fail.
    fn reserve(&mut self, slot: usize, half: usize, record_bytes: usize) -> Result<(), DomainError> {
        let needed_bytes = (HEADER_BYTES + record_bytes) as u64;
        let reserved_bytes = u64::from(self.slots[slot].reserved_bytes[half]);
        if needed_bytes <= reserved_bytes {
            return Ok(());
        }
        let start = half_range(&self.config, slot, half).start as u64;
        let end_bytes = needed_bytes.next_multiple_of(PAGE_BYTES);
        match reserve(self.storage.file(), &(start + reserved_bytes..start + end_bytes)) {
            // A file system that cannot reserve can only be trusted to have room.
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                Err(DomainError::io(format!("reserving memory in {}", self.path.display()), error))
            }
            Ok(()) | Err(_) => {
                self.slots[slot].reserved_bytes[half] = end_bytes as u32;
                Ok(())
            }
        }
    }

    /// Empties a half and gives back what a large record took beyond its first page.
    fn empty(&mut self, slot: usize, live: Live) {
        self.set_state(slot, live.half, EMPTY);
        let used_bytes = (HEADER_BYTES + live.length as usize) as u64;
        if used_bytes <= PAGE_BYTES {
            return;
        }
        let start = half_range(&self.config, slot, live.half).start as u64;
        let rest = start + PAGE_BYTES..start + used_bytes.next_multiple_of(PAGE_BYTES);
        // Where the file system cannot punch, the blocks stay ours and are used again.
        if punch(self.storage.file(), &rest).is_ok() {
            self.slots[slot].reserved_bytes[live.half] = PAGE_BYTES as u32;
        }
    }

    /// Sets the state of a half, on the medium as well.
    fn set_state(&mut self, slot: usize, half: usize, state: u32) {
        let offset = half_range(&self.config, slot, half).start;
        self.memory.store(offset, state);
        self.memory.write_back(offset..offset + 4);
        self.memory.fence();
    }

    fn half(&self, slot: usize, half: usize) -> &[u8] {
        self.memory.bytes(half_range(&self.config, slot, half))
    }

    /// Whether a half holds what was written to it.
    fn holds(&self, slot: usize, half: usize) -> bool {
        let bytes = self.half(slot, half);
        HalfHeader::decode(bytes).holds(bytes, slot, self.salt)
    }

    fn content(&self, slot: usize, live: Live) -> &[u8] {
        &self.half(slot, live.half)[HEADER_BYTES..HEADER_BYTES + live.length as usize]
    }

    fn slot_of(&self, token: Token) -> Option<usize> {
        usize::try_from(token.0).ok().filter(|slot| *slot < self.slots.len())
    }
}

impl PersistenceDomain for RamDomain {
    fn survives(&self) -> Survives {
        match self.config.media {
            Media::Volatile => Survives::ProcessCrash,
            Media::BatteryBacked => Survives::HostCrash,
            Media::Pmem { .. } => Survives::PowerLoss,
        }
    }

    fn durability(&self) -> Durability {
        Durability::Ram
    }

    fn submit(&mut self, token: Token, record: &[u8]) -> Result<(), DomainError> {
        let bytes_max = self.config.record_bytes_max;
        if record.len() > bytes_max {
            return Err(DomainError::TooLarge { bytes: record.len(), bytes_max });
        }
        let Some(slot) = self.slot_of(token) else {
            let what = format!("token {} has no slot, there are {}", token.0, self.slots.len());
            return Err(DomainError::Full { what });
        };
        if self.done.len() >= self.config.outstanding_max {
            return Err(DomainError::Full {
                what: format!("{} completions were not collected", self.done.len()),
            });
        }
        let old = self.slots[slot].live;
        let half = old.map_or(0, |live| 1 - live.half);
        self.write(slot, half, record)?;
        self.slots[slot].live = Some(Live { half, length: record.len() as u32 });
        if let Some(old) = old {
            self.empty(slot, old);
        }
        self.done.push(token);
        Ok(())
    }

    fn completions(&mut self, out: &mut Vec<Token>) -> Result<(), DomainError> {
        out.append(&mut self.done);
        Ok(())
    }

    fn erase(&mut self, token: Token) -> Result<(), DomainError> {
        let Some(slot) = self.slot_of(token) else { return Ok(()) };
        if let Some(live) = self.slots[slot].live.take() {
            self.empty(slot, live);
        }
        Ok(())
    }

    fn flush_erasures(&mut self, token: Token) {
        self.done.push(token);
    }

    fn scan(&self, each: &mut dyn FnMut(Token, &[u8])) -> Result<ScanReport, DomainError> {
        let mut report = self.torn;
        for (slot, live) in
            self.slots.iter().enumerate().filter_map(|(slot, known)| Some((slot, known.live?)))
        {
            if !self.holds(slot, live.half) {
                let found = format!("the record of token {slot} fails its checksum");
                return Err(damaged(&self.path, &self.config, slot, live.half, found));
            }
            each(Token(slot as u64), self.content(slot, live));
            report.record_count += 1;
            report.record_bytes += u64::from(live.length);
        }
        Ok(report)
    }

    fn meta(&self) -> &[u8] {
        &self.meta
    }

    fn set_meta(&mut self, meta: &[u8]) -> Result<(), DomainError> {
        check_meta(meta)?;
        let generation = self.meta_generation + 1;
        write_meta(&self.storage, self.salt, generation, meta).map_err(|error| {
            DomainError::io(format!("writing the meta blob of {}", self.path.display()), error)
        })?;
        self.meta_generation = generation;
        self.meta.clear();
        self.meta.extend_from_slice(meta);
        Ok(())
    }

    fn completion_fd(&self) -> Option<RawFd> {
        None
    }
}

/// Writes an empty log: all slots are holes.
fn format(storage: &FileStorage, config: &RamConfig) -> io::Result<()> {
    let identity = Identity::new(LogKind::Ram, geometry(config))?;
    storage.file().set_len(0)?;
    storage.file().set_len(file_bytes(config))?;
    write_meta(storage, identity.salt, 0, &[])?;
    storage.write_at(0, &identity.encode())
}

/// Gives a log without records the geometry of `config`. After each step the file is a whole log.
fn resize(storage: &FileStorage, old: Identity, config: &RamConfig) -> io::Result<Identity> {
    let file = storage.file();
    let (old_bytes, new_bytes) = (file_bytes(&config_of(&old)), file_bytes(config));
    // What is left of erased records must not lie where new slots begin.
    punch(file, &(SLOTS_OFFSET..old_bytes))?;
    file.set_len(old_bytes.max(new_bytes))?;
    // On the medium as well, before the new sizes are there.
    file.sync_all()?;
    let identity = Identity { geometry: geometry(config), ..old };
    storage.write_at(0, &identity.encode())?;
    file.set_len(new_bytes)?;
    Ok(identity)
}

fn read_identity(storage: &FileStorage, path: &Path) -> Result<Identity, DomainError> {
    let identity = Identity::read(storage, path)?.expect(LogKind::Ram, path)?;
    let length =
        storage.length().map_err(|error| DomainError::io(format!("reading {}", path.display()), error))?;
    let damaged = |found: String| DomainError::Damaged { path: path.to_owned(), offset: length, found };
    let [slot_count, record_bytes_max] = identity.geometry;
    if !(1..=SLOT_COUNT_MAX).contains(&slot_count) || record_bytes_max > RECORD_BYTES_MAX {
        return Err(damaged(format!("{slot_count} slots of {record_bytes_max} bytes cannot be")));
    }
    let whole_bytes = file_bytes(&config_of(&identity));
    if length < whole_bytes {
        return Err(damaged(format!("the file should have {whole_bytes} bytes")));
    }
    Ok(identity)
}

/// A log of another geometry may be changed only if nothing is in it.
fn refuse_unless_empty(
    storage: &FileStorage,
    path: &Path,
    identity: &Identity,
    config: &RamConfig,
) -> Result<(), DomainError> {
    let io = |error| DomainError::io(format!("reading {}", path.display()), error);
    let found = config_of(identity);
    for (slot, half) in halves_with_data(storage, &found).map_err(io)? {
        let mut state = [0; 4];
        storage.read_at(half_range(&found, slot, half).start as u64, &mut state).map_err(io)?;
        if u32::from_le_bytes(state) != EMPTY {
            return Err(DomainError::Foreign {
                path: path.to_owned(),
                found: format!(
                    "it has {} slots of {} bytes with records in them, not {} of {}",
                    found.slot_count, found.record_bytes_max, config.slot_count, config.record_bytes_max
                ),
                advice: "set its own sizes, or let its records be erased first".to_owned(),
            });
        }
    }
    Ok(())
}

/// Every half that may hold something, in order. Holes of the file are skipped, so that looking does not
/// allocate memory.
fn halves_with_data(storage: &FileStorage, config: &RamConfig) -> io::Result<Vec<(usize, usize)>> {
    let half_bytes = half_bytes(config);
    let half_count = config.slot_count * 2;
    let mut halves = Vec::new();
    let mut offset = SLOTS_OFFSET;
    while let Some(data) = next_data(storage.file(), offset)? {
        let first = data.start.saturating_sub(SLOTS_OFFSET).div_ceil(half_bytes);
        let end = data.end.saturating_sub(SLOTS_OFFSET).div_ceil(half_bytes).min(half_count);
        halves.extend((first..end).map(|half| ((half / 2) as usize, (half % 2) as usize)));
        offset = data.end;
        if end == half_count {
            break;
        }
    }
    Ok(halves)
}

/// Reads a whole log, changing nothing.
pub(crate) fn verify(storage: &FileStorage, path: &Path) -> Result<VerifyReport, DomainError> {
    let io = |error| DomainError::io(format!("reading {}", path.display()), error);
    let identity = read_identity(storage, path)?;
    let config = config_of(&identity);
    let mut newest: BTreeMap<usize, HalfHeader> = BTreeMap::new();
    let mut report =
        VerifyReport { kind: LogKind::Ram, record_count: 0, live_count: 0, live_bytes: 0, torn_bytes: 0 };
    let mut half_content = vec![0; half_bytes(&config) as usize];
    for (slot, half) in halves_with_data(storage, &config).map_err(io)? {
        storage.read_at(half_range(&config, slot, half).start as u64, &mut half_content).map_err(io)?;
        let header = HalfHeader::decode(&half_content);
        if header.state == EMPTY {
            continue;
        }
        header
            .check(&half_content, slot, identity.salt)
            .map_err(|found| damaged(path, &config, slot, half, found))?;
        if header.state == WRITING {
            report.torn_bytes += u64::from(header.length).min(config.record_bytes_max as u64);
            continue;
        }
        report.record_count += 1;
        if newest.get(&slot).is_none_or(|known| known.generation < header.generation) {
            newest.insert(slot, header);
        }
    }
    report.live_count = newest.len() as u64;
    report.live_bytes = newest.values().map(|header| u64::from(header.length)).sum();
    Ok(report)
}

fn damaged(path: &Path, config: &RamConfig, slot: usize, half: usize, found: String) -> DomainError {
    DomainError::Damaged { path: path.to_owned(), offset: half_range(config, slot, half).start as u64, found }
}

impl HalfHeader {
    /// Of a half that is being written.
    fn new(salt: u64, slot: usize, generation: u64, record: &[u8]) -> HalfHeader {
        let header = HalfHeader { state: WRITING, length: record.len() as u32, generation, crc: 0 };
        HalfHeader { crc: half_crc(salt, slot, &header.encode(), record), ..header }
    }

    fn encode(&self) -> [u8; 20] {
        let mut out = [0; 20];
        out[..4].copy_from_slice(&self.state.to_le_bytes());
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..16].copy_from_slice(&self.generation.to_le_bytes());
        out[16..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    fn decode(half: &[u8]) -> HalfHeader {
        HalfHeader {
            state: read_u32(half, 0),
            length: read_u32(half, 4),
            generation: read_u64(half, 8),
            crc: read_u32(half, 16),
        }
    }

    /// Refuses a half that no crash leaves: one that is marked as being written was never completed, but
    /// one that is marked as valid was whole.
    fn check(&self, half: &[u8], slot: usize, salt: u64) -> Result<(), String> {
        match self.state {
            EMPTY | WRITING => Ok(()),
            VALID if self.holds(half, slot, salt) => Ok(()),
            VALID => Err(format!("the record of token {slot} fails its checksum")),
            other => Err(format!("the slot of token {slot} has the state {other}, which is none")),
        }
    }

    /// Whether the half that begins with this header holds what was written to it.
    fn holds(&self, half: &[u8], slot: usize, salt: u64) -> bool {
        let content = half[HEADER_BYTES..].get(..self.length as usize);
        content.is_some_and(|content| half_crc(salt, slot, half, content) == self.crc)
    }
}

fn half_crc(salt: u64, slot: usize, half: &[u8], content: &[u8]) -> u32 {
    salted_crc(salt, &[&(slot as u64).to_le_bytes(), &half[4..16], content])
}

fn half_range(config: &RamConfig, slot: usize, half: usize) -> Range<usize> {
    let half_bytes = half_bytes(config) as usize;
    let start = SLOTS_OFFSET as usize + (2 * slot + half) * half_bytes;
    start..start + half_bytes
}

fn config_of(identity: &Identity) -> RamConfig {
    RamConfig {
        slot_count: identity.geometry[0],
        record_bytes_max: usize::try_from(identity.geometry[1]).unwrap_or(usize::MAX),
        ..RamConfig::default()
    }
}

fn geometry(config: &RamConfig) -> [u64; 2] {
    [config.slot_count, config.record_bytes_max as u64]
}

fn half_bytes(config: &RamConfig) -> u64 {
    ((HEADER_BYTES + config.record_bytes_max) as u64).next_multiple_of(PAGE_BYTES)
}

fn file_bytes(config: &RamConfig) -> u64 {
    SLOTS_OFFSET + config.slot_count * 2 * half_bytes(config)
}
