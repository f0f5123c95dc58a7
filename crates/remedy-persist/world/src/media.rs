//! The persistence domains of one device, with its log entries by name.
//!
//! Invariant: a token's high bit says which domain its record is for, as in the device's shells.

use scotfree_core::{Durability, Token};
use scotfree_device::DISK_TOKEN_BIT;
use scotfree_sim::media::Domain;
use scotfree_sim::rng::Rng;

pub use scotfree_sim::media::{Crash as DeviceCrash, DiskTimes};

/// Where a log entry's record names its session and its place in it (see the layout in
/// `remedy_persist`'s device/record.rs).
const RECORD_TYPE_AT: usize = 1;
const TYPE_ENTRY: u8 = 2;
const TYPE_BITS: u8 = 0x0f;
const SESSION_AT: usize = 20;
const SEQ_AT: usize = 72;

/// What a record is about: a server's index, a session of its, and a place in that.
pub type EntryName = (u8, u64, u64);

/// Which log entry a record is, if it is one.
pub fn entry_name(record: &[u8]) -> Option<EntryName> {
    let number = |at: usize| {
        let bytes = record.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("a slice of eight bytes has eight bytes")))
    };
    let record_type = *record.get(RECORD_TYPE_AT)?;
    (record_type & TYPE_BITS == TYPE_ENTRY).then_some(())?;
    Some((record_type >> 4, number(SESSION_AT)?, number(SEQ_AT)?))
}

/// The domains of one device.
#[derive(Debug)]
pub struct Media(scotfree_sim::media::Media);

impl Media {
    /// Empty domains.
    pub fn new(ram_survives_host: bool) -> Media {
        Media(scotfree_sim::media::Media::new(ram_survives_host))
    }

    /// Takes a record; `true` if it is durable at once.
    pub fn persist(&mut self, token: Token, record: &[u8]) -> bool {
        self.0.persist(domain_of(token), token, record)
    }

    /// Forgets a record: from `ram` at once, from `disk` with the next commit.
    pub fn erase(&mut self, token: Token) {
        self.0.erase(domain_of(token), token);
    }

    /// Reports `token` when every erasure so far is durable.
    pub fn flush(&mut self, token: Token) {
        self.0.flush(token);
    }

    /// The log entry that an erasure of `token` would forget now.
    pub fn entry_under(&self, token: Token) -> Option<EntryName> {
        entry_name(self.0.latest(domain_of(token), token)?)
    }

    /// Whether an entry is held at `level`.
    pub fn holds(&self, entry: EntryName, level: Durability) -> bool {
        let held = |domain| self.0.records(domain).any(|(_, record)| entry_name(record) == Some(entry));
        (!level.satisfies(Durability::Ram) || held(Domain::Ram))
            && (!level.satisfies(Durability::Disk) || held(Domain::Disk))
    }

    /// Whether an entry is under way to the disk.
    pub fn is_writing(&self, entry: EntryName) -> bool {
        self.0.under_way().any(|(_, record)| entry_name(record) == Some(entry))
    }

    /// Whether a commit should begin.
    pub fn wants_commit(&self) -> bool {
        self.0.wants_commit()
    }

    /// Begins a commit of all that waits.
    pub fn begin_commit(&mut self) {
        self.0.begin_commit();
    }

    /// Ends it; what is to be reported.
    pub fn end_commit(&mut self) -> Vec<Token> {
        self.0.end_commit()
    }

    /// What survives a crash.
    pub fn crash(&mut self, kind: DeviceCrash, rng: &mut Rng) {
        self.0.crash(kind, rng);
    }

    /// All records, in an order that no device may rely on.
    pub fn scan(&self, rng: &mut Rng) -> Vec<(Token, Vec<u8>)> {
        self.0.scan(rng)
    }

    /// Whether a crash now could lose what was wished to be kept.
    pub fn loses_at(&self, kind: DeviceCrash) -> bool {
        self.0.loses_at(kind)
    }
}

fn domain_of(token: Token) -> Domain {
    if token.0 & DISK_TOKEN_BIT == 0 {
        Domain::Ram
    } else {
        Domain::Disk
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
        assert!(media.holds((0, 1, 1), Durability::Ram));
        assert!(!media.persist(DISK, &entry(1, 1)));
        assert!(media.wants_commit());
        media.begin_commit();
        assert!(!media.holds((0, 1, 1), Durability::Disk));
        assert_eq!(media.end_commit(), [DISK]);
        assert!(media.holds((0, 1, 1), Durability::RamAndDisk));
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
        assert!(!media.holds((0, 1, 1), Durability::Disk));
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
            assert!(media.holds((0, 9, 9), Durability::Disk));
            seen.insert((media.holds((0, 1, 1), Durability::Disk), media.holds((0, 1, 2), Durability::Disk)));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(false, false), (false, true), (true, false)]);
    }

    #[test]
    fn memory_survives_its_host_only_if_declared() {
        for declared in [false, true] {
            let mut media = Media::new(declared);
            media.persist(RAM, &entry(1, 1));
            media.crash(DeviceCrash::Process, &mut Rng::new(0, 0));
            assert!(media.holds((0, 1, 1), Durability::Ram));
            media.crash(DeviceCrash::Host, &mut Rng::new(0, 0));
            assert_eq!(media.holds((0, 1, 1), Durability::Ram), declared);
        }
    }

    #[test]
    fn an_entry_is_recognised_by_its_record() {
        assert_eq!(entry_name(&entry(7, 8)), Some((0, 7, 8)));
        assert_eq!(entry_name(&[1, 1, 0]), None);
        assert_eq!(entry_name(&[1, 2, 0]), None);
    }
}
