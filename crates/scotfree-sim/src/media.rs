//! The persistence domains of one simulated device.
//!
//! Invariant: a completion is reported only for what a crash would now leave in place: `ram` at
//! once, `disk` after a group commit. At a crash every operation that the disk had not completed is
//! done, not done or, for a write, torn, each as chance has it.

use crate::rng::{PerMillion, Rng};
use scotfree_core::{Durability, Nanos, Token};
use scotfree_device::DISK_TOKEN_BIT;
use std::collections::BTreeMap;

/// Where a log entry's record names its session and its place in it (see the layout in
/// `remedy_persist`'s device/record.rs).
const RECORD_TYPE_AT: usize = 1;
const TYPE_ENTRY: u8 = 2;
const SESSION_AT: usize = 20;
const SEQ_AT: usize = 72;

/// What a record is about: a session and a place in it.
pub type EntryName = (u64, u64);

/// Which log entry a record is, if it is one.
pub fn entry_name(record: &[u8]) -> Option<EntryName> {
    let number = |at: usize| {
        let bytes = record.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("a slice of eight bytes has eight bytes")))
    };
    (record.get(RECORD_TYPE_AT) == Some(&TYPE_ENTRY)).then_some(())?;
    Some((number(SESSION_AT)?, number(SEQ_AT)?))
}

/// What goes wrong in a device's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCrash {
    /// The process dies.
    Process,
    /// The host restarts: memory is lost unless it is declared to survive.
    Host,
}

/// The domains of one device.
#[derive(Debug)]
pub struct Media {
    ram_survives_host: bool,
    ram: BTreeMap<u64, Vec<u8>>,
    disk: BTreeMap<u64, Vec<u8>>,
    /// What the commit in progress will have done.
    committing: Vec<DiskOp>,
    /// What waits for the next commit.
    waiting: Vec<DiskOp>,
}

#[derive(Debug)]
enum DiskOp {
    Write(u64, Vec<u8>),
    Erase(u64),
    /// Report this token when everything before is done.
    Flush(u64),
}

impl Media {
    /// Empty domains.
    pub fn new(ram_survives_host: bool) -> Media {
        Media {
            ram_survives_host,
            ram: BTreeMap::new(),
            disk: BTreeMap::new(),
            committing: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Takes a record; `true` if it is durable at once.
    pub fn persist(&mut self, token: Token, record: &[u8]) -> bool {
        if token.0 & DISK_TOKEN_BIT == 0 {
            self.ram.insert(token.0, record.to_vec());
            true
        } else {
            self.waiting.push(DiskOp::Write(token.0, record.to_vec()));
            false
        }
    }

    /// Forgets a record: from `ram` at once, from `disk` with the next commit.
    pub fn erase(&mut self, token: Token) {
        if token.0 & DISK_TOKEN_BIT == 0 {
            self.ram.remove(&token.0);
        } else {
            self.waiting.push(DiskOp::Erase(token.0));
        }
    }

    /// Reports `token` when every erasure so far is durable.
    pub fn flush(&mut self, token: Token) {
        self.waiting.push(DiskOp::Flush(token.0));
    }

    /// The log entry that an erasure of `token` would forget now.
    pub fn entry_under(&self, token: Token) -> Option<EntryName> {
        let latest = self.waiting.iter().chain(&self.committing).rev().find_map(|op| match op {
            DiskOp::Write(written, record) if *written == token.0 => Some(Some(record)),
            DiskOp::Erase(erased) if *erased == token.0 => Some(None),
            DiskOp::Write(..) | DiskOp::Erase(_) | DiskOp::Flush(_) => None,
        });
        let kept =
            || if token.0 & DISK_TOKEN_BIT == 0 { self.ram.get(&token.0) } else { self.disk.get(&token.0) };
        entry_name(latest.unwrap_or_else(kept)?)
    }

    /// Whether an entry is held at `level`.
    pub fn holds(&self, entry: EntryName, level: Durability) -> bool {
        let held =
            |domain: &BTreeMap<u64, Vec<u8>>| domain.values().any(|record| entry_name(record) == Some(entry));
        (!level.satisfies(Durability::Ram) || held(&self.ram))
            && (!level.satisfies(Durability::Disk) || held(&self.disk))
    }

    /// Whether an entry is under way to the disk.
    pub fn is_writing(&self, entry: EntryName) -> bool {
        let mut under_way = self.committing.iter().chain(&self.waiting);
        under_way.any(|op| matches!(op, DiskOp::Write(_, record) if entry_name(record) == Some(entry)))
    }

    /// Whether a commit should begin: none is in progress and somebody waits for a completion.
    /// (Erasures alone wait for company.)
    pub fn wants_commit(&self) -> bool {
        self.committing.is_empty() && self.waiting.iter().any(|op| !matches!(op, DiskOp::Erase(_)))
    }

    /// Begins a commit of all that waits.
    pub fn begin_commit(&mut self) {
        assert!(self.committing.is_empty(), "one commit at a time");
        std::mem::swap(&mut self.committing, &mut self.waiting);
    }

    /// Ends it; what is to be reported.
    pub fn end_commit(&mut self) -> Vec<Token> {
        let mut done = Vec::new();
        for op in std::mem::take(&mut self.committing) {
            done.extend(op.reported());
            self.carry_out(op);
        }
        done
    }

    /// What survives a crash, in no particular order, as the restarted process will find it.
    pub fn crash(&mut self, kind: DeviceCrash, rng: &mut Rng) {
        let unfinished =
            std::mem::take(&mut self.committing).into_iter().chain(std::mem::take(&mut self.waiting));
        for op in unfinished.collect::<Vec<_>>() {
            match (rng.below(3), &op) {
                (0, _) => self.carry_out(op),
                (1, DiskOp::Write(token, _)) => {
                    // Torn: its checksum fails, and what it overwrote is gone too.
                    self.disk.remove(token);
                }
                _ => {}
            }
        }
        if kind == DeviceCrash::Host && !self.ram_survives_host {
            self.ram.clear();
        }
    }

    /// All records, in an order that no device may rely on.
    pub fn scan(&self, rng: &mut Rng) -> Vec<(Token, Vec<u8>)> {
        let both = self.ram.iter().chain(&self.disk);
        let mut found: Vec<_> = both.map(|(token, record)| (Token(*token), record.clone())).collect();
        for last in (1..found.len()).rev() {
            found.swap(last, rng.index(last + 1));
        }
        found
    }

    /// Whether a crash now could lose what was wished to be kept.
    pub fn loses_at(&self, kind: DeviceCrash) -> bool {
        let unfinished =
            self.committing.iter().chain(&self.waiting).any(|op| matches!(op, DiskOp::Write(..)));
        unfinished || (kind == DeviceCrash::Host && !self.ram_survives_host)
    }

    /// How many records there are.
    pub fn record_count(&self) -> usize {
        self.ram.len() + self.disk.len()
    }

    fn carry_out(&mut self, op: DiskOp) {
        match op {
            DiskOp::Write(token, record) => {
                self.disk.insert(token, record);
            }
            DiskOp::Erase(token) => {
                self.disk.remove(&token);
            }
            DiskOp::Flush(_) => {}
        }
    }
}

impl DiskOp {
    fn reported(&self) -> Option<Token> {
        match self {
            DiskOp::Write(token, _) | DiskOp::Flush(token) => Some(Token(*token)),
            DiskOp::Erase(_) => None,
        }
    }
}

/// How long a disk's commits take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskTimes {
    /// The shortest.
    pub commit_min: Nanos,
    /// The longest of the ordinary ones.
    pub commit_max: Nanos,
    /// How often one takes ten times as long.
    pub slow: PerMillion,
}

impl DiskTimes {
    /// How long the next commit takes.
    pub fn draw(&self, rng: &mut Rng) -> Nanos {
        let time = rng.span(self.commit_min, self.commit_max);
        Nanos(if rng.chance(self.slow) { time.0 * 10 } else { time.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Token = Token(DISK_TOKEN_BIT | 3);
    const RAM: Token = Token(3);

    fn entry(session: u64, seq: u64) -> Vec<u8> {
        let mut record = vec![0; SEQ_AT];
        record[RECORD_TYPE_AT] = TYPE_ENTRY;
        record[SESSION_AT..SESSION_AT + 8].copy_from_slice(&session.to_le_bytes());
        record.extend_from_slice(&seq.to_le_bytes());
        record
    }

    #[test]
    fn ram_is_done_at_once_and_disk_after_its_commit() {
        let mut media = Media::new(false);
        assert!(media.persist(RAM, &entry(1, 1)));
        assert!(media.holds((1, 1), Durability::Ram));
        assert!(!media.persist(DISK, &entry(1, 1)));
        assert!(media.wants_commit());
        media.begin_commit();
        assert!(!media.holds((1, 1), Durability::Disk));
        assert_eq!(media.end_commit(), [DISK]);
        assert!(media.holds((1, 1), Durability::RamAndDisk));
    }

    #[test]
    fn erasures_wait_for_company_unless_flushed() {
        let mut media = Media::new(false);
        media.persist(DISK, &entry(1, 1));
        media.begin_commit();
        media.end_commit();
        media.erase(DISK);
        assert!(!media.wants_commit());
        assert_eq!(media.entry_under(DISK), None);
        media.flush(Token(99));
        assert!(media.wants_commit());
        media.begin_commit();
        assert_eq!(media.end_commit(), [Token(99)]);
        assert!(!media.holds((1, 1), Durability::Disk));
    }

    #[test]
    fn a_crash_keeps_what_was_completed_and_leaves_the_rest_to_chance() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 0);
            let mut media = Media::new(false);
            media.persist(Token(DISK_TOKEN_BIT | 9), &entry(9, 9));
            media.persist(DISK, &entry(1, 1));
            media.begin_commit();
            media.end_commit();
            media.persist(DISK, &entry(1, 2));
            media.crash(DeviceCrash::Process, &mut rng);
            assert!(media.holds((9, 9), Durability::Disk));
            seen.insert((media.holds((1, 1), Durability::Disk), media.holds((1, 2), Durability::Disk)));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(false, false), (false, true), (true, false)]);
    }

    #[test]
    fn memory_survives_its_host_only_if_declared() {
        for declared in [false, true] {
            let mut media = Media::new(declared);
            media.persist(RAM, &entry(1, 1));
            media.crash(DeviceCrash::Process, &mut Rng::new(0, 0));
            assert!(media.holds((1, 1), Durability::Ram));
            media.crash(DeviceCrash::Host, &mut Rng::new(0, 0));
            assert_eq!(media.holds((1, 1), Durability::Ram), declared);
        }
    }

    #[test]
    fn an_entry_is_recognised_by_its_record() {
        assert_eq!(entry_name(&entry(7, 8)), Some((7, 8)));
        assert_eq!(entry_name(&[1, 1, 0]), None);
        assert_eq!(entry_name(&[1, 2, 0]), None);
    }
}
