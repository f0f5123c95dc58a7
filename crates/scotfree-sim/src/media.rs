//! The persistence domains of one role's host.
//!
//! Invariant: a completion is reported only for what a crash would now leave in place: `ram` at
//! once, `disk` after a group commit. At a crash every operation that the disk had not completed is
//! done, not done or, for a write, torn, each as chance has it.

use crate::rng::{PerMillion, Rng};
use scotfree_core::{Nanos, Token};
use std::collections::BTreeMap;

/// What goes wrong in a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process dies.
    Process,
    /// The host restarts: memory is lost unless it is declared to survive.
    Host,
}

/// Where a record is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// In memory that outlives the process, and the host if that is declared.
    Ram,
    /// On a disk.
    Disk,
}

/// The domains of one host.
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
    pub fn persist(&mut self, domain: Domain, token: Token, record: &[u8]) -> bool {
        match domain {
            Domain::Ram => {
                self.ram.insert(token.0, record.to_vec());
            }
            Domain::Disk => self.waiting.push(DiskOp::Write(token.0, record.to_vec())),
        }
        domain == Domain::Ram
    }

    /// Forgets a record: from `ram` at once, from `disk` with the next commit.
    pub fn erase(&mut self, domain: Domain, token: Token) {
        match domain {
            Domain::Ram => {
                self.ram.remove(&token.0);
            }
            Domain::Disk => self.waiting.push(DiskOp::Erase(token.0)),
        }
    }

    /// Reports `token` when every erasure so far is durable.
    pub fn flush(&mut self, token: Token) {
        self.waiting.push(DiskOp::Flush(token.0));
    }

    /// The record that an erasure of `token` would forget now. What a commit in progress has of it stands
    /// before what waits for the next, until the commit has ended.
    pub fn latest(&self, domain: Domain, token: Token) -> Option<&[u8]> {
        let under_way = match domain {
            Domain::Ram => None,
            Domain::Disk => self.waiting.iter().chain(&self.committing).rev().find_map(|op| match op {
                DiskOp::Write(written, record) if *written == token.0 => Some(Some(record)),
                DiskOp::Erase(erased) if *erased == token.0 => Some(None),
                DiskOp::Write(..) | DiskOp::Erase(_) | DiskOp::Flush(_) => None,
            }),
        };
        under_way.unwrap_or_else(|| self.domain(domain).get(&token.0)).map(Vec::as_slice)
    }

    /// All that a domain holds durably, by token.
    pub fn records(&self, domain: Domain) -> impl Iterator<Item = (Token, &[u8])> {
        self.domain(domain).iter().map(|(token, record)| (Token(*token), record.as_slice()))
    }

    /// All that is under way to the disk.
    pub fn under_way(&self) -> impl Iterator<Item = (Token, &[u8])> {
        self.committing.iter().chain(&self.waiting).filter_map(|op| match op {
            DiskOp::Write(token, record) => Some((Token(*token), record.as_slice())),
            DiskOp::Erase(_) | DiskOp::Flush(_) => None,
        })
    }

    fn domain(&self, domain: Domain) -> &BTreeMap<u64, Vec<u8>> {
        match domain {
            Domain::Ram => &self.ram,
            Domain::Disk => &self.disk,
        }
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
    pub fn crash(&mut self, kind: Crash, rng: &mut Rng) {
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
        if kind == Crash::Host && !self.ram_survives_host {
            self.ram.clear();
        }
    }

    /// All records, in an order that no role may rely on.
    pub fn scan(&self, rng: &mut Rng) -> Vec<(Token, Vec<u8>)> {
        let both = self.ram.iter().chain(&self.disk);
        let mut found: Vec<_> = both.map(|(token, record)| (Token(*token), record.clone())).collect();
        for last in (1..found.len()).rev() {
            found.swap(last, rng.index(last + 1));
        }
        found
    }

    /// Whether a crash now could lose what was wished to be kept.
    pub fn loses_at(&self, kind: Crash) -> bool {
        self.under_way().next().is_some() || (kind == Crash::Host && !self.ram_survives_host)
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
    use Domain::{Disk, Ram};

    const TOKEN: Token = Token(3);

    fn held(media: &Media, domain: Domain) -> Vec<(u64, &[u8])> {
        media.records(domain).map(|(token, record)| (token.0, record)).collect()
    }

    #[test]
    fn ram_is_done_at_once_and_disk_after_its_commit() {
        let mut media = Media::new(false);
        assert!(media.persist(Ram, TOKEN, b"one"));
        assert_eq!(held(&media, Ram), [(3, &b"one"[..])]);
        assert!(!media.persist(Disk, TOKEN, b"one"));
        assert!(media.wants_commit());
        media.begin_commit();
        assert_eq!(held(&media, Disk), []);
        assert_eq!(media.under_way().collect::<Vec<_>>(), [(TOKEN, &b"one"[..])]);
        assert_eq!(media.end_commit(), [TOKEN]);
        assert_eq!(held(&media, Disk), [(3, &b"one"[..])]);
    }

    #[test]
    fn erasures_wait_for_company_unless_flushed() {
        let mut media = Media::new(false);
        media.persist(Disk, TOKEN, b"one");
        assert_eq!(media.latest(Disk, TOKEN), Some(&b"one"[..]));
        media.begin_commit();
        media.end_commit();
        assert_eq!(media.latest(Disk, TOKEN), Some(&b"one"[..]));
        media.erase(Disk, TOKEN);
        assert!(!media.wants_commit());
        assert_eq!(media.latest(Disk, TOKEN), None);
        media.flush(Token(99));
        assert!(media.wants_commit());
        media.begin_commit();
        assert_eq!(media.end_commit(), [Token(99)]);
        assert_eq!(held(&media, Disk), []);
    }

    #[test]
    fn what_is_being_committed_stands_before_what_waits() {
        let mut media = Media::new(false);
        media.persist(Ram, TOKEN, b"in memory");
        media.persist(Disk, TOKEN, b"old");
        media.begin_commit();
        media.persist(Disk, TOKEN, b"new");
        assert_eq!(media.latest(Disk, TOKEN), Some(&b"old"[..]));
        media.end_commit();
        assert_eq!(media.latest(Disk, TOKEN), Some(&b"new"[..]));
        media.erase(Disk, TOKEN);
        assert_eq!(media.latest(Disk, TOKEN), None);
        assert_eq!(media.latest(Ram, TOKEN), Some(&b"in memory"[..]));
    }

    #[test]
    fn a_crash_keeps_what_was_completed_and_leaves_the_rest_to_chance() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 0);
            let mut media = Media::new(false);
            media.persist(Disk, Token(9), b"other");
            media.persist(Disk, TOKEN, b"old");
            media.begin_commit();
            media.end_commit();
            media.persist(Disk, TOKEN, b"new");
            media.crash(Crash::Process, &mut rng);
            assert_eq!(media.latest(Disk, Token(9)), Some(&b"other"[..]));
            seen.insert(media.latest(Disk, TOKEN).map(<[u8]>::to_vec));
        }
        let kept = [None, Some(b"new".to_vec()), Some(b"old".to_vec())];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), kept);
    }

    #[test]
    fn memory_survives_its_host_only_if_declared() {
        for declared in [false, true] {
            let mut media = Media::new(declared);
            media.persist(Ram, TOKEN, b"one");
            assert_eq!(media.loses_at(Crash::Host), !declared);
            media.crash(Crash::Process, &mut Rng::new(0, 0));
            assert_eq!(held(&media, Ram).len(), 1);
            media.crash(Crash::Host, &mut Rng::new(0, 0));
            assert_eq!(held(&media, Ram).len(), usize::from(declared));
        }
    }
}
