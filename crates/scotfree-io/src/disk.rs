//! The domain `disk`: a circular log in a preallocated file, written in groups by a commit thread or by its owner.
//!
//! Invariant: at every moment a crash leaves on the medium the state after some prefix of the
//! operations made so far, at least up to the last completed one. Live records never take more than
//! half of the log, and each has the room for its erasure set aside, so erasing never fails for lack
//! of room, and old records that stay are copied forward instead of blocking the ring.

mod commit;
pub mod interrupt;
mod layout;
mod patience;
mod queue;
mod recover;

use crate::domain::{check_meta, DomainError, PersistenceDomain, ScanReport};
use crate::log_file::{self, Identity, LogKind, PAGE_BYTES};
use crate::storage::{FileStorage, Storage, WriteWaits};
use crate::verify::VerifyReport;
use commit::{Commit, Medium};
use layout::{record_bytes, RecordHeader, RecordKind, Ring, State, HEADER_BYTES, LOG_OFFSET};
use patience::Patience;
use queue::{Place, Queue};
use recover::{recover, Entry, RecoverError, Recovered};
use scotfree_core::{Durability, Survives, Token};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

/// The smallest ring, enough for records of one page.
const LOG_BYTES_MIN: u64 = 16 * PAGE_BYTES;
/// The largest ring; within it no position overflows.
const LOG_BYTES_MAX: u64 = 1 << 46;
/// A record takes at most this part of the ring.
const RECORDS_PER_LOG_MIN: u64 = 8;
/// The start on the medium may lag behind by this part of the ring, which saves writes.
const START_LAG_PARTS: u64 = 16;
/// The room that an erasure takes.
const ERASURE_BYTES: u64 = HEADER_BYTES as u64;

/// Who writes a disk log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskWriter {
    /// A thread of its own, at once: the owner never waits for the medium.
    Thread,
    /// The owner, when it asks for it ([`PersistenceDomain::write_waiting`]), while the medium is quick; the thread
    /// otherwise. A group then costs no wake-up but the medium's, and the owner's time.
    Owner {
        /// How many writes in a row must have been quick before the owner waits for one.
        quick_row: u32,
    },
}

impl DiskWriter {
    /// The owner, with what has shown to be enough caution.
    pub const OWNER: DiskWriter = DiskWriter::Owner { quick_row: 4 };

    fn patience(self) -> Patience {
        match self {
            DiskWriter::Thread => Patience::after(None),
            DiskWriter::Owner { quick_row } => Patience::after(Some(quick_row)),
        }
    }
}

/// How a [`DiskDomain`] is set up.
#[derive(Debug, Clone)]
pub struct DiskConfig {
    /// The size of the ring when the file is made, which takes the time to write it once; an existing
    /// file keeps its own. Live records may take half of it; then submitting gives
    /// [`DomainError::Full`].
    pub log_bytes: u64,
    /// The largest record, never more than an eighth of the ring.
    pub record_bytes_max: usize,
    /// How many bytes wait for the next write at most; at the limit submitting gives
    /// [`DomainError::Full`].
    pub group_bytes_max: usize,
    /// How many live records there are at most; at the limit submitting gives [`DomainError::Full`].
    pub records_max: usize,
    /// How many submissions may be uncollected ([`PersistenceDomain::completions`]) at most; at the
    /// limit submitting gives [`DomainError::Full`].
    pub outstanding_max: usize,
    /// How many bytes of erasures wait for company before they are written on their own.
    pub erasures_bytes_max: usize,
    /// Who writes.
    pub writer: DiskWriter,
    /// The processor of the thread that writes, if that matters ([`interrupt::processor_of`]).
    pub processor: Option<usize>,
}

impl Default for DiskConfig {
    fn default() -> Self {
        DiskConfig {
            log_bytes: 64 << 20,
            record_bytes_max: 64 << 10,
            group_bytes_max: 1 << 20,
            records_max: 1 << 20,
            outstanding_max: 1 << 16,
            erasures_bytes_max: 64 << 10,
            writer: DiskWriter::Thread,
            processor: None,
        }
    }
}

/// What a [`DiskDomain`] has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Records accepted.
    pub submitted: u64,
    /// Records refused with [`DomainError::Full`].
    pub full: u64,
    /// Records erased.
    pub erased: u64,
    /// Bytes of old records that were copied forward to free the ring behind them.
    pub moved_bytes: u64,
    /// Groups that the owner has written itself.
    pub owner_writes: u64,
}

/// A persistence domain on stable storage. Dropping it writes what was submitted.
pub struct DiskDomain {
    commit: Arc<Commit>,
    thread: Option<JoinHandle<()>>,
    config: DiskConfig,
    /// The sequence of the newest record of each live token.
    index: HashMap<Token, u64>,
    /// All records since the start, dead ones included, in order of sequence.
    entries: VecDeque<Entry>,
    /// The place of the first entry.
    start: Place,
    /// The last start that the commit thread was asked to write down.
    start_asked: Place,
    /// What the live records take, with their erasures.
    live_bytes: u64,
    /// How many bytes of old records may be copied forward now: bounds what that costs per submission.
    copy_credit_bytes: u64,
    /// Submissions and flushes that were not collected yet.
    outstanding: usize,
    meta: Vec<u8>,
    meta_generation: u64,
    torn: ScanReport,
    scratch: Vec<u8>,
    counters: DiskCounters,
}

impl DiskDomain {
    /// Opens the log at `path` or makes it. A torn end is cut off and reported by
    /// [`PersistenceDomain::scan`]; a damaged, foreign or used file is refused and left untouched.
    pub fn open(path: &Path, config: &DiskConfig) -> Result<DiskDomain, DomainError> {
        let log_bytes = rounded_log_bytes(config);
        let storage =
            FileStorage::open_or_create(path, WriteWaits::ForMedium, &|storage| format(storage, log_bytes))?;
        let storage = Arc::new(storage);
        let domain = Self::recover(Arc::clone(&storage) as Arc<dyn Storage>, path, config)?;
        storage.note_owner();
        Ok(domain)
    }

    /// Opens the log in `storage`, formatting it if it is empty; `name` stands for it in messages.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        name: &Path,
        config: &DiskConfig,
    ) -> Result<DiskDomain, DomainError> {
        let doing = |error| DomainError::io(format!("making {}", name.display()), error);
        if storage.length().map_err(doing)? == 0 {
            format(storage.as_ref(), rounded_log_bytes(config)).map_err(doing)?;
        }
        Self::recover(storage, name, config)
    }

    fn recover(
        storage: Arc<dyn Storage>,
        path: &Path,
        config: &DiskConfig,
    ) -> Result<DiskDomain, DomainError> {
        let log = read_log(storage.as_ref(), path)?;
        let ring = Ring { storage: storage.as_ref(), log_bytes: log.log_bytes };
        let torn = cut_torn_end(&ring, &log.recovered)
            .map_err(|error| DomainError::io(format!("cutting the torn end of {}", path.display()), error))?;
        let medium =
            Medium { storage, log_bytes: log.log_bytes, salt: log.salt, name: path.display().to_string() };
        let end = Place { position: log.recovered.end_position, sequence: log.recovered.end_sequence };
        let (commit, thread) =
            Commit::start(medium, end, &log.state, config.writer.patience(), config.processor)?;
        let start = Place { position: log.state.start_position, sequence: log.state.start_sequence };
        let mut domain = DiskDomain {
            commit,
            thread: Some(thread),
            config: effective(config, log.log_bytes),
            index: HashMap::new(),
            entries: log.recovered.entries.into(),
            start,
            start_asked: start,
            live_bytes: 0,
            copy_credit_bytes: 0,
            outstanding: 0,
            meta: log.meta,
            meta_generation: log.meta_generation,
            torn,
            scratch: Vec::new(),
            counters: DiskCounters::default(),
        };
        domain.build_index();
        Ok(domain)
    }

    /// What has happened so far.
    pub fn counters(&self) -> DiskCounters {
        self.counters
    }

    /// As [`PersistenceDomain::write_waiting`], for an owner who has better things to do now than to wait for the
    /// medium: the thread writes.
    pub fn write_by_thread(&self) {
        self.commit.write_due_by_thread();
    }

    /// Names the log: another file has another name, whatever it is called.
    pub fn log_name(&self) -> u64 {
        // The salt itself stays in the file: who knows it could make bytes that pass for records.
        scotfree_core::Fnv1a::EMPTY.and(&self.commit.medium().salt.to_le_bytes()).value()
    }

    /// The size of the ring.
    pub fn log_bytes(&self) -> u64 {
        self.commit.medium().log_bytes
    }

    /// What live records take of the ring, of which half is theirs.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    fn build_index(&mut self) {
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            let sequence = self.start.sequence + index as u64;
            match entry.kind {
                RecordKind::Data => self.note_live(entry.token, sequence, entry.length),
                RecordKind::Erase => self.note_erased(entry.token),
            }
        }
    }

    fn note_live(&mut self, token: Token, sequence: u64, length: u32) {
        self.note_erased(token);
        self.index.insert(token, sequence);
        self.live_bytes += record_bytes(length as usize) + ERASURE_BYTES;
    }

    fn note_erased(&mut self, token: Token) {
        if let Some(sequence) = self.index.remove(&token) {
            self.live_bytes -= self.entry(sequence).live_bytes();
        }
    }

    fn entry(&self, sequence: u64) -> Entry {
        self.entries[(sequence - self.start.sequence) as usize]
    }

    fn is_live(&self, entry: &Entry, sequence: u64) -> bool {
        entry.kind == RecordKind::Data && self.index.get(&entry.token) == Some(&sequence)
    }

    /// Appends a record to the next write.
    fn append(&mut self, queue: &mut Queue, token: Token, kind: RecordKind, content: &[u8]) {
        let length = content.len() as u32;
        // The sequence and the group are the queue's to give.
        let header = RecordHeader { kind, sequence: 0, group: 0, token, length };
        let place = queue.append(header, content, self.commit.medium().salt);
        self.entries.push_back(Entry { position: place.position, token, length, kind });
        match kind {
            RecordKind::Data => self.note_live(token, place.sequence, length),
            RecordKind::Erase => self.note_erased(token),
        }
    }

    /// Why a record may not be submitted now, if so.
    fn check_room(&self, queue: &Queue, token: Token, content_bytes: usize) -> Result<(), DomainError> {
        let full = |what: String| Err(DomainError::Full { what });
        let needed_bytes = record_bytes(content_bytes);
        let replaced = self.index.get(&token).map(|sequence| self.entry(*sequence));
        let live_bytes = self.live_bytes - replaced.map_or(0, |entry| entry.live_bytes());
        let live_bytes_max = self.log_bytes() / 2;
        if live_bytes + needed_bytes + ERASURE_BYTES > live_bytes_max {
            return full(format!("live records take {live_bytes} of at most {live_bytes_max} bytes"));
        }
        if replaced.is_none() && self.index.len() >= self.config.records_max {
            return full(format!("{} records are live", self.index.len()));
        }
        if self.outstanding >= self.config.outstanding_max {
            return full(format!("{} completions were not collected", self.outstanding));
        }
        if queue.waiting_bytes() + needed_bytes as usize > self.config.group_bytes_max {
            return full(format!("{} bytes wait for the disk", queue.waiting_bytes()));
        }
        // Room for one more record is kept, so that copying forward never gets stuck.
        let spare_bytes = record_bytes(self.config.record_bytes_max);
        if !self.fits(queue, needed_bytes + spare_bytes) {
            return full("the ring waits for its start to be written".to_owned());
        }
        Ok(())
    }

    /// Whether the ring has room for `bytes` beside the erasures of all live records and one more.
    fn fits(&self, queue: &Queue, bytes: u64) -> bool {
        let used_bytes = queue.end().position - queue.start_durable().position;
        let erasures_bytes = (self.index.len() as u64 + 1) * ERASURE_BYTES;
        used_bytes + bytes + erasures_bytes <= self.log_bytes()
    }

    /// Frees the old end of the ring: steps over dead records, and while more than half is used, copies
    /// live ones that block it forward, as many bytes as submissions have earned.
    fn reclaim(&mut self, queue: &mut Queue, earned_bytes: u64) -> Result<(), DomainError> {
        let credit_bytes_max = self.log_bytes() / RECORDS_PER_LOG_MIN;
        self.copy_credit_bytes = (self.copy_credit_bytes + earned_bytes).min(credit_bytes_max);
        self.step_over_dead();
        while let Some(entry) = self.next_to_move(queue) {
            self.copy_credit_bytes -= entry.record_bytes();
            self.copy_forward(queue, entry)?;
            self.step_over_dead();
        }
        self.ask_for_start(queue, self.log_bytes() / START_LAG_PARTS);
        Ok(())
    }

    fn step_over_dead(&mut self) {
        while let Some(entry) = self.entries.front().copied() {
            if self.is_live(&entry, self.start.sequence) {
                break;
            }
            self.entries.pop_front();
            self.start.position += entry.record_bytes();
            self.start.sequence += 1;
        }
    }

    /// The oldest record, if it is to be copied forward now.
    fn next_to_move(&self, queue: &Queue) -> Option<Entry> {
        let entry = self.entries.front().copied()?;
        let used_bytes = queue.end().position - self.start.position;
        let is_written = self.start.sequence < queue.sequence_durable();
        let affordable = entry.record_bytes() <= self.copy_credit_bytes;
        let wanted = used_bytes > self.log_bytes() / 2 && is_written && affordable;
        (wanted && self.fits(queue, entry.record_bytes())).then_some(entry)
    }

    /// Has the thread write down the start if that frees at least `bytes_min`.
    fn ask_for_start(&mut self, queue: &mut Queue, bytes_min: u64) {
        if self.start.position - self.start_asked.position >= bytes_min {
            queue.move_start(self.start);
            self.start_asked = self.start;
        }
    }

    fn copy_forward(&mut self, queue: &mut Queue, entry: Entry) -> Result<(), DomainError> {
        let mut record = std::mem::take(&mut self.scratch);
        let read = self.read_record(&entry, &mut record);
        if read.is_ok() {
            self.append(queue, entry.token, RecordKind::Data, &record[HEADER_BYTES..]);
            self.counters.moved_bytes += entry.record_bytes();
        }
        self.scratch = record;
        read
    }

    /// Reads a record that is on the medium, header included.
    fn read_record(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), DomainError> {
        let medium = self.commit.medium();
        let ring = medium.ring();
        out.resize(HEADER_BYTES + entry.length as usize, 0);
        ring.read(entry.position, out)
            .map_err(|error| DomainError::io(format!("reading {}", medium.name), error))?;
        let is_ours = RecordHeader::decode(out, medium.salt)
            .is_some_and(|header| header.token == entry.token && header.length == entry.length);
        if is_ours && RecordHeader::content_holds(out, medium.salt) {
            return Ok(());
        }
        Err(DomainError::Damaged {
            path: PathBuf::from(&medium.name),
            offset: ring.offset(entry.position),
            found: format!("the record of token {} fails its checksum", entry.token.0),
        })
    }

    fn try_submit(&mut self, queue: &mut Queue, token: Token, record: &[u8]) -> Result<(), DomainError> {
        queue.check()?;
        // Twice the record keeps pace with it, since at least half of the ring is dead.
        self.reclaim(queue, 2 * record_bytes(record.len()))?;
        if let Err(error) = self.check_room(queue, token, record.len()) {
            self.ask_for_start(queue, 1);
            return Err(error);
        }
        self.append(queue, token, RecordKind::Data, record);
        queue.complete(token);
        self.outstanding += 1;
        self.counters.submitted += 1;
        Ok(())
    }

    /// Runs `change` with the queue locked; then what waits is due if `change` says so.
    fn with_queue<T>(&mut self, change: impl FnOnce(&mut Self, &mut Queue) -> (bool, T)) -> T {
        let commit = Arc::clone(&self.commit);
        let mut queue: MutexGuard<'_, Queue> = commit.queue();
        let (due, result) = change(self, &mut queue);
        match self.config.writer {
            DiskWriter::Thread if due => commit.wake(queue),
            DiskWriter::Owner { .. } if due => queue.note_due(),
            DiskWriter::Thread | DiskWriter::Owner { .. } => {}
        }
        result
    }
}

impl PersistenceDomain for DiskDomain {
    fn survives(&self) -> Survives {
        Survives::PowerLoss
    }

    fn durability(&self) -> Durability {
        Durability::Disk
    }

    fn submit(&mut self, token: Token, record: &[u8]) -> Result<(), DomainError> {
        let bytes_max = self.config.record_bytes_max;
        if record.len() > bytes_max {
            return Err(DomainError::TooLarge { bytes: record.len(), bytes_max });
        }
        self.with_queue(|domain, queue| {
            let result = domain.try_submit(queue, token, record);
            domain.counters.full += u64::from(matches!(result, Err(DomainError::Full { .. })));
            // Also after Full: the thread may have a start to write that makes room.
            (true, result)
        })
    }

    fn write_waiting(&mut self) -> bool {
        let written = self.commit.write_due();
        self.counters.owner_writes += u64::from(written);
        written
    }

    fn completions(&mut self, out: &mut Vec<Token>) -> Result<(), DomainError> {
        let before = out.len();
        let result = self.commit.take_done(out);
        self.outstanding -= out.len() - before;
        result
    }

    fn erase(&mut self, token: Token) -> Result<(), DomainError> {
        self.with_queue(|domain, queue| {
            if let Err(error) = queue.check() {
                return (false, Err(error));
            }
            if !domain.index.contains_key(&token) {
                return (false, Ok(()));
            }
            domain.append(queue, token, RecordKind::Erase, &[]);
            domain.counters.erased += 1;
            domain.step_over_dead();
            domain.ask_for_start(queue, domain.log_bytes() / START_LAG_PARTS);
            (queue.waiting_bytes() >= domain.config.erasures_bytes_max, Ok(()))
        })
    }

    fn flush_erasures(&mut self, token: Token) {
        self.outstanding += 1;
        self.with_queue(|_, queue| (true, queue.complete_flush(token)));
    }

    fn scan(&self, each: &mut dyn FnMut(Token, &[u8])) -> Result<ScanReport, DomainError> {
        self.commit.wait_idle()?;
        let mut report = self.torn;
        let mut record = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            if !self.is_live(entry, self.start.sequence + index as u64) {
                continue;
            }
            self.read_record(entry, &mut record)?;
            each(entry.token, &record[HEADER_BYTES..]);
            report.record_count += 1;
            report.record_bytes += u64::from(entry.length);
        }
        Ok(report)
    }

    fn meta(&self) -> &[u8] {
        &self.meta
    }

    fn set_meta(&mut self, meta: &[u8]) -> Result<(), DomainError> {
        check_meta(meta)?;
        let medium = self.commit.medium();
        let generation = self.meta_generation + 1;
        log_file::write_meta(medium.storage.as_ref(), medium.salt, generation, meta)
            .map_err(|error| DomainError::io(format!("writing the meta blob of {}", medium.name), error))?;
        self.meta_generation = generation;
        self.meta.clear();
        self.meta.extend_from_slice(meta);
        Ok(())
    }

    fn completion_fd(&self) -> Option<RawFd> {
        Some(self.commit.eventfd().as_raw_fd())
    }
}

impl Drop for DiskDomain {
    fn drop(&mut self) {
        self.commit.close();
        if let Some(thread) = self.thread.take() {
            // The thread only ends early when a write failed, which was reported.
            let _ = thread.join();
        }
    }
}

impl Entry {
    fn record_bytes(&self) -> u64 {
        record_bytes(self.length as usize)
    }

    fn live_bytes(&self) -> u64 {
        self.record_bytes() + ERASURE_BYTES
    }
}

/// A log as read from its storage.
struct ReadLog {
    log_bytes: u64,
    salt: u64,
    state: State,
    meta: Vec<u8>,
    meta_generation: u64,
    recovered: Recovered,
}

/// Reads all there is to know from a log, changing nothing.
fn read_log(storage: &dyn Storage, path: &Path) -> Result<ReadLog, DomainError> {
    let io = |error| DomainError::io(format!("reading {}", path.display()), error);
    let damaged = |offset, found: String| DomainError::Damaged { path: path.to_owned(), offset, found };
    let length = storage.length().map_err(io)?;
    let identity = Identity::read(storage, path)?.expect(LogKind::Disk, path)?;
    let (salt, log_bytes) = (identity.salt, identity.geometry[0]);
    if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&log_bytes) || log_bytes % PAGE_BYTES != 0 {
        return Err(damaged(24, format!("a ring of {log_bytes} bytes cannot be")));
    }
    if length < LOG_OFFSET + log_bytes {
        return Err(damaged(length, format!("the file should have {} bytes", LOG_OFFSET + log_bytes)));
    }
    let state = State::read(storage, salt).map_err(io)?;
    let state = state
        .ok_or_else(|| damaged(layout::STATE_OFFSETS[0], "neither copy of the state holds".to_owned()))?;
    let meta = log_file::read_meta(storage, salt).map_err(io)?;
    let (meta_generation, meta) = meta.ok_or_else(|| {
        damaged(log_file::META_OFFSETS[0], "neither copy of the meta blob holds".to_owned())
    })?;
    let ring = Ring { storage, log_bytes };
    let recovered = recover(&ring, salt, &state).map_err(|error| match error {
        RecoverError::Io(error) => io(error),
        RecoverError::Damaged { position, found } => damaged(ring.offset(position), found),
    })?;
    Ok(ReadLog { log_bytes, salt, state, meta, meta_generation, recovered })
}

/// Overwrites the traces of a write that was cut short, so that no later reading can take them for
/// records.
fn cut_torn_end(ring: &Ring<'_>, log: &Recovered) -> io::Result<ScanReport> {
    let Some(torn_end) = log.torn_end else { return Ok(ScanReport::default()) };
    let torn_bytes = torn_end - log.end_position;
    ring.write(log.end_position, &vec![0; torn_bytes as usize])?;
    Ok(ScanReport {
        torn_count: 1,
        torn_bytes,
        torn_at: Some(ring.offset(log.end_position)),
        ..ScanReport::default()
    })
}

/// Writes an empty log. Its ring is written with zeros, not only reserved, so that later writes change
/// no block of the file system's own.
fn format(storage: &dyn Storage, log_bytes: u64) -> io::Result<()> {
    let identity = Identity::new(LogKind::Disk, [log_bytes, 0])?;
    let zeros = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < LOG_OFFSET + log_bytes {
        let bytes = (LOG_OFFSET + log_bytes - offset).min(zeros.len() as u64);
        storage.write_at(offset, &zeros[..bytes as usize])?;
        offset += bytes;
    }
    let state = State { generation: 0, start_position: 0, start_sequence: 1, known_sequence: 1 };
    state.write(storage, identity.salt)?;
    log_file::write_meta(storage, identity.salt, 0, &[])?;
    storage.write_at(0, &identity.encode())
}

/// Reads a whole log, changing nothing.
pub(crate) fn verify(storage: &dyn Storage, path: &Path) -> Result<VerifyReport, DomainError> {
    let log = read_log(storage, path)?.recovered;
    let mut live: HashMap<Token, u64> = HashMap::new();
    for entry in &log.entries {
        match entry.kind {
            RecordKind::Data => live.insert(entry.token, u64::from(entry.length)),
            RecordKind::Erase => live.remove(&entry.token),
        };
    }
    Ok(VerifyReport {
        kind: LogKind::Disk,
        record_count: log.entries.len() as u64,
        live_count: live.len() as u64,
        live_bytes: live.values().sum(),
        torn_bytes: log.torn_end.map_or(0, |torn_end| torn_end - log.end_position),
    })
}

fn rounded_log_bytes(config: &DiskConfig) -> u64 {
    config.log_bytes.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX).next_multiple_of(PAGE_BYTES)
}

fn effective(config: &DiskConfig, log_bytes: u64) -> DiskConfig {
    let record_bytes_max = (log_bytes / RECORDS_PER_LOG_MIN) as usize - HEADER_BYTES;
    DiskConfig { record_bytes_max: config.record_bytes_max.min(record_bytes_max), ..config.clone() }
}
