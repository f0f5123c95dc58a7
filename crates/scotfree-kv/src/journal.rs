//! The log of requests in a persistence domain: ops under growing numbers, and now and then a snapshot
//! that takes the place of all ops before it.
//!
//! Tokens: tag in the top byte, then 0 op: its number; 1 chunk of a snapshot: generation (24 bits) and
//! index (32 bits); 2 head of the latest snapshot: generation (4 bytes), chunk count (4), the number of
//! the last op that it contains (8).
//!
//! Invariant: the domain keeps a prefix of what was submitted, and everything is submitted in this
//! order: ops by number; a snapshot's chunks and then its head behind all ops that it contains; erasures
//! of what it replaces only when the head is durable. So whatever is found again is a state that was.

use crate::op::Op;
use scotfree_core::{Nanos, Token};
use scotfree_io::{now_monotonic, DomainError, PersistenceDomain, ScanReport};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;

const OP: u64 = 0;
const CHUNK: u64 = 1 << 56;
const HEAD: Token = Token(2 << 56);
const TAG: u64 = 0xFF << 56;
/// What a record takes in a domain beyond its content, its erasure included.
const RECORD_OVERHEAD_BYTES: u64 = 96;
/// How many of them are handed over at a time, so that requests go on in between.
const CHUNKS_PER_PUMP_MAX: usize = 16;
/// How many records are erased at a time.
const ERASURES_PER_PUMP_MAX: usize = 1_024;
/// The magic of the meta blob; the epoch follows.
const META_MAGIC: [u8; 8] = *b"SCOTKV\n\x01";

/// Whether a log's meta data are those of a journal of any version: the magic's last byte is the version.
pub fn is_meta(meta: &[u8]) -> bool {
    meta.starts_with(&META_MAGIC[..META_MAGIC.len() - 1])
}

/// The bounds of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    /// How many bytes of a snapshot one record takes.
    pub chunk_bytes_max: usize,
    /// How many bytes of ops may lie in the domain. At half of it a snapshot is wanted; at all of it
    /// the journal is stalled until the snapshot is durable.
    pub ops_bytes_max: u64,
    /// How many bytes of ops may wait for the domain; at the limit the journal is stalled.
    pub backlog_bytes_max: usize,
    /// How long the domain may refuse records before the journal gives up.
    pub full_time_max: Nanos,
    /// How long ops wait for others to be handed over with; 0: not at all.
    pub gather_time: Nanos,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The domain cannot do what it was asked.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The log belongs to something else.
    #[error("this log was not written by `scot kv`; nothing in it was changed: choose another file")]
    Foreign,
    /// The log contradicts itself.
    #[error("the log is damaged: {0}; nothing in it was changed. Put a whole copy in its place, or move it away to begin anew, without what only it holds")]
    Damaged(String),
    /// The domain has had no room for too long.
    #[error("the log has taken nothing for {seconds} s: {what}; make it larger")]
    Stuck {
        /// What the domain said last.
        what: String,
        /// For how long.
        seconds: u64,
    },
}

/// What a journal found when it was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The epoch for this run: larger than that of all before, and durable.
    pub epoch: u32,
    /// The latest snapshot, if there is one.
    pub snapshot: Option<Vec<u8>>,
    /// The ops after it, in order.
    pub ops: Vec<Vec<u8>>,
    /// What the domain says of torn records.
    pub report: ScanReport,
}

/// Ops and snapshots in a domain.
pub struct Journal<D: PersistenceDomain> {
    domain: D,
    limits: JournalLimits,
    /// The number of the next op, and of the first that no durable snapshot contains.
    op_next: u64,
    op_first: u64,
    /// Every op up to this one is durable.
    op_durable: u64,
    /// The sizes of the ops from `op_first` on, and of everything that lies in the domain as ops.
    op_bytes: VecDeque<u64>,
    ops_bytes: u64,
    backlog: VecDeque<Vec<u8>>,
    backlog_bytes: usize,
    spare: Vec<Vec<u8>>,
    generation: u32,
    chunk_count: u32,
    snapshot: Option<Snapshot>,
    garbage: VecDeque<(Token, u64)>,
    completed: Vec<Token>,
    full_since: Option<Nanos>,
    /// When the backlog is handed over, if it waits for company.
    gathers_until: Option<Nanos>,
    snapshots_taken: u64,
}

/// A snapshot on its way into the domain.
struct Snapshot {
    bytes: Vec<u8>,
    /// The last op that it contains.
    op_last: u64,
    submitted_bytes: usize,
    chunk_count: u32,
    head_submitted: bool,
}

impl Snapshot {
    fn left_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.submitted_bytes)
    }
}

impl<D: PersistenceDomain> Journal<D> {
    /// Reads what the domain holds, and makes the next epoch durable.
    pub fn open(mut domain: D, limits: JournalLimits) -> Result<(Journal<D>, Recovered), JournalError> {
        let found = Found::scan(&domain)?;
        let epoch_last = found.epoch(domain.meta())?;
        let mut recovered = found.recover()?;
        recovered.epoch = epoch_last + 1;
        let mut meta = META_MAGIC.to_vec();
        meta.extend_from_slice(&recovered.epoch.to_le_bytes());
        domain.set_meta(&meta)?;
        let (generation, chunk_count, op_contained) = found.head.unwrap_or_default();
        let op_next = op_contained + recovered.ops.len() as u64 + 1;
        let op_bytes: VecDeque<u64> = recovered.ops.iter().map(|op| cost(op.len())).collect();
        let journal = Journal {
            limits,
            op_next,
            op_first: op_contained + 1,
            op_durable: op_next - 1,
            ops_bytes: op_bytes.iter().sum::<u64>() + found.garbage().map(|(_, bytes)| bytes).sum::<u64>(),
            op_bytes,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            spare: Vec::new(),
            generation,
            chunk_count,
            snapshot: None,
            garbage: found.garbage().collect(),
            completed: Vec::new(),
            full_since: None,
            gathers_until: None,
            snapshots_taken: 0,
            domain,
        };
        Ok((journal, recovered))
    }

    /// Notes an op; its number. It is durable when [`Journal::durable`] has reached it.
    pub fn append(&mut self, op: &Op<'_>) -> u64 {
        let mut record = self.spare.pop().unwrap_or_default();
        op.write(&mut record);
        if self.backlog.is_empty() && self.limits.gather_time > Nanos(0) {
            self.gathers_until = Some(now_monotonic().plus(self.limits.gather_time));
        }
        let number = self.op_next;
        self.op_next += 1;
        self.op_bytes.push_back(cost(record.len()));
        self.ops_bytes += cost(record.len());
        self.backlog_bytes += record.len();
        self.backlog.push_back(record);
        number
    }

    /// How many bytes of a snapshot one record takes.
    pub fn chunk_bytes_max(&self) -> usize {
        self.limits.chunk_bytes_max
    }

    /// Every op up to this one is durable.
    pub fn durable(&self) -> u64 {
        self.op_durable
    }

    /// Whether ops should wait with coming.
    pub fn is_stalled(&self) -> bool {
        self.backlog_bytes >= self.limits.backlog_bytes_max || self.ops_bytes >= self.limits.ops_bytes_max
    }

    /// Whether a snapshot should be taken now.
    pub fn wants_snapshot(&self) -> bool {
        self.ops_bytes > self.limits.ops_bytes_max / 2 && self.snapshot.is_none() && self.garbage.is_empty()
    }

    /// Takes a snapshot of the state after all ops noted so far.
    pub fn take_snapshot(&mut self, bytes: Vec<u8>) {
        assert!(self.snapshot.is_none(), "one snapshot at a time");
        let op_last = self.op_next - 1;
        self.snapshot =
            Some(Snapshot { bytes, op_last, submitted_bytes: 0, chunk_count: 0, head_submitted: false });
    }

    /// What the ops in the domain take.
    pub fn ops_bytes(&self) -> u64 {
        self.ops_bytes
    }

    /// What of a snapshot the domain has not been given yet.
    pub fn snapshot_left_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, Snapshot::left_bytes)
    }

    /// How many snapshots have become durable.
    pub fn snapshots_taken(&self) -> u64 {
        self.snapshots_taken
    }

    /// Moves things along: hands the domain what it has room for, and takes its completions.
    pub fn pump(&mut self) -> Result<(), JournalError> {
        self.collect()?;
        if self.is_gathering() {
            return Ok(());
        }
        self.gathers_until = None;
        self.erase_some()?;
        match self.submit_all() {
            Ok(()) => self.full_since = None,
            Err(DomainError::Full { what }) => self.wait_for_room(what)?,
            Err(error) => return Err(error.into()),
        }
        self.collect()
    }

    /// Writes what was handed over, where the domain leaves that to its owner: as late as possible.
    pub fn write(&mut self) -> Result<(), JournalError> {
        if self.domain.write_waiting() {
            self.collect()?;
        }
        Ok(())
    }

    /// Whether the backlog waits for company still; a long one does not, nor one beside which there is other work.
    fn is_gathering(&self) -> bool {
        let is_early = self.gathers_until.is_some_and(|until| now_monotonic() < until);
        let has_work = self.snapshot.is_some() || !self.garbage.is_empty();
        is_early && !has_work && self.backlog_bytes < self.limits.backlog_bytes_max / 8
    }

    /// When to pump again even if the domain reports nothing.
    pub fn next_pump(&self) -> Option<Nanos> {
        if !self.garbage.is_empty() {
            return Some(Nanos(0));
        }
        if self.full_since.is_some() {
            return Some(now_monotonic().plus(Nanos::from_millis(1)));
        }
        if self.gathers_until.is_some() {
            return self.gathers_until;
        }
        (self.snapshot_left_bytes() > 0).then_some(Nanos(0))
    }

    /// What is readable when the domain has completed something.
    pub fn completion_fd(&self) -> Option<RawFd> {
        self.domain.completion_fd()
    }

    /// Whether everything noted is durable and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.op_durable + 1 == self.op_next && self.snapshot.is_none() && self.garbage.is_empty()
    }

    fn collect(&mut self) -> Result<(), JournalError> {
        let mut completed = std::mem::take(&mut self.completed);
        completed.clear();
        let failed = self.domain.completions(&mut completed);
        for token in &completed {
            match token.0 & TAG {
                OP => self.op_durable = token.0,
                _ if *token == HEAD => self.finish_snapshot(),
                _ => {}
            }
        }
        self.completed = completed;
        Ok(failed?)
    }

    fn submit_all(&mut self) -> Result<(), DomainError> {
        while let Some(record) = self.backlog.front() {
            let number = self.op_next - self.backlog.len() as u64;
            self.domain.submit(Token(OP | number), record)?;
            self.backlog_bytes -= record.len();
            if let Some(mut record) = self.backlog.pop_front() {
                record.clear();
                self.spare.push(record);
            }
        }
        self.spare.truncate(1_024);
        self.submit_snapshot()
    }

    fn submit_snapshot(&mut self) -> Result<(), DomainError> {
        let Some(snapshot) = self.snapshot.as_mut().filter(|snapshot| !snapshot.head_submitted) else {
            return Ok(());
        };
        let generation = self.generation + 1;
        for _ in 0..CHUNKS_PER_PUMP_MAX {
            if snapshot.left_bytes() == 0 {
                break;
            }
            let end = snapshot.bytes.len().min(snapshot.submitted_bytes + self.limits.chunk_bytes_max);
            let token = chunk_token(generation, snapshot.chunk_count);
            self.domain.submit(token, &snapshot.bytes[snapshot.submitted_bytes..end])?;
            snapshot.submitted_bytes = end;
            snapshot.chunk_count += 1;
        }
        if snapshot.left_bytes() > 0 {
            return Ok(());
        }
        let mut head = Vec::with_capacity(16);
        head.extend_from_slice(&generation.to_le_bytes());
        head.extend_from_slice(&snapshot.chunk_count.to_le_bytes());
        head.extend_from_slice(&snapshot.op_last.to_le_bytes());
        self.domain.submit(HEAD, &head)?;
        snapshot.head_submitted = true;
        // The bytes are the domain's now.
        snapshot.bytes = Vec::new();
        Ok(())
    }

    /// The snapshot is durable: what it replaces may go.
    fn finish_snapshot(&mut self) {
        let Some(snapshot) = self.snapshot.take() else { return };
        for index in 0..self.chunk_count {
            self.garbage.push_back((chunk_token(self.generation, index), 0));
        }
        while self.op_first <= snapshot.op_last {
            let bytes = self.op_bytes.pop_front().expect("every op since the last snapshot has its size");
            self.garbage.push_back((Token(OP | self.op_first), bytes));
            self.op_first += 1;
        }
        self.generation += 1;
        self.chunk_count = snapshot.chunk_count;
        self.snapshots_taken += 1;
    }

    fn erase_some(&mut self) -> Result<(), DomainError> {
        for _ in 0..ERASURES_PER_PUMP_MAX {
            let Some((token, bytes)) = self.garbage.front().copied() else { return Ok(()) };
            self.domain.erase(token)?;
            self.ops_bytes -= bytes;
            self.garbage.pop_front();
        }
        Ok(())
    }

    fn wait_for_room(&mut self, what: String) -> Result<(), JournalError> {
        let now = now_monotonic();
        let waited = now.since(*self.full_since.get_or_insert(now));
        if waited > self.limits.full_time_max {
            return Err(JournalError::Stuck { what, seconds: waited.0 / 1_000_000_000 });
        }
        Ok(())
    }
}

/// What gathers is handed over at the end; the domain writes it as it ends.
impl<D: PersistenceDomain> Drop for Journal<D> {
    fn drop(&mut self) {
        if self.gathers_until.is_some() {
            // Who ends has nobody to tell an error to.
            let _ = self.submit_all();
        }
    }
}

/// What a domain was found to hold.
#[derive(Default)]
struct Found {
    ops: BTreeMap<u64, Vec<u8>>,
    chunks: BTreeMap<(u32, u32), Vec<u8>>,
    /// Generation, chunk count, and the last op contained.
    head: Option<(u32, u32, u64)>,
    strange: bool,
    report: ScanReport,
}

impl Found {
    fn scan<D: PersistenceDomain>(domain: &D) -> Result<Found, DomainError> {
        let mut found = Found::default();
        let report = domain.scan(&mut |token, record| found.take(token, record))?;
        Ok(Found { report, ..found })
    }

    fn take(&mut self, token: Token, record: &[u8]) {
        match token.0 & TAG {
            OP => drop(self.ops.insert(token.0, record.to_vec())),
            CHUNK => {
                let number = token.0 & !TAG;
                self.chunks.insert(((number >> 32) as u32, number as u32), record.to_vec());
            }
            _ => match (token, read_head(record)) {
                (HEAD, Some(head)) => self.head = Some(head),
                _ => self.strange = true,
            },
        }
    }

    /// The epoch of the last run, 0 if there was none.
    fn epoch(&self, meta: &[u8]) -> Result<u32, JournalError> {
        let is_new = meta.is_empty() && self.report.record_count == 0;
        if is_new {
            return Ok(0);
        }
        let epoch = meta.strip_prefix(&META_MAGIC).and_then(|epoch| epoch.try_into().ok());
        epoch.map(u32::from_le_bytes).ok_or(JournalError::Foreign)
    }

    fn recover(&self) -> Result<Recovered, JournalError> {
        if self.strange {
            return Err(JournalError::Damaged("it holds records of an unknown kind".to_owned()));
        }
        let contained = self.head.map_or(0, |(_, _, op_last)| op_last);
        let mut ops = Vec::new();
        for (number, record) in self.ops.range(contained + 1..) {
            let expected = contained + 1 + ops.len() as u64;
            if *number != expected {
                return Err(JournalError::Damaged(format!("op {expected} is missing")));
            }
            ops.push(record.clone());
        }
        let snapshot = self.head.map(|head| self.snapshot(head)).transpose()?;
        Ok(Recovered { epoch: 0, snapshot, ops, report: self.report })
    }

    fn snapshot(&self, (generation, chunk_count, _): (u32, u32, u64)) -> Result<Vec<u8>, JournalError> {
        let mut bytes = Vec::new();
        for index in 0..chunk_count {
            let chunk = self.chunks.get(&(generation, index)).ok_or_else(|| {
                JournalError::Damaged(format!("chunk {index} of snapshot {generation} is missing"))
            })?;
            bytes.extend_from_slice(chunk);
        }
        Ok(bytes)
    }

    /// What a crash left behind that the latest snapshot replaces, or that belongs to one without head.
    fn garbage(&self) -> impl Iterator<Item = (Token, u64)> + '_ {
        let (generation, _, contained) = self.head.unwrap_or_default();
        let chunks = self.chunks.keys().filter(move |(of, _)| *of != generation);
        let ops = self.ops.range(..=contained);
        chunks
            .map(|(generation, index)| (chunk_token(*generation, *index), 0))
            .chain(ops.map(|(number, record)| (Token(OP | number), cost(record.len()))))
    }
}

fn read_head(record: &[u8]) -> Option<(u32, u32, u64)> {
    let (generation, rest) = crate::op::take::<4>(record)?;
    let (chunk_count, rest) = crate::op::take::<4>(rest)?;
    let op_last = u64::from_le_bytes(rest.try_into().ok()?);
    Some((u32::from_le_bytes(generation), u32::from_le_bytes(chunk_count), op_last))
}

fn chunk_token(generation: u32, index: u32) -> Token {
    Token(CHUNK | u64::from(generation & 0xFF_FFFF) << 32 | u64::from(index))
}

fn cost(record_bytes: usize) -> u64 {
    record_bytes as u64 + RECORD_OVERHEAD_BYTES
}
