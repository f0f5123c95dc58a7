//! What must hold of every [`PersistenceDomain`].
//!
//! Invariant: the model here is the definition: after a crash a domain holds the state after some prefix
//! of the operations made, at least up to the last one known to be durable.

use super::faults::Random;
use crate::clock::now_monotonic;
use crate::domain::{DomainError, PersistenceDomain, ScanReport, META_BYTES_MAX};
use crate::poll::{Interest, Poller};
use scotfree_core::{Durability, Nanos, Survives, Token};
use std::collections::BTreeMap;
use std::time::Duration;

const DEADLINE: Nanos = Nanos::from_secs(30);
/// Tokens that every domain under test can take.
const TOKEN_COUNT: u64 = 32;

/// One log, to be opened again and again. A fresh fixture has no log yet.
pub trait Fixture {
    /// The domain under test.
    type Domain: PersistenceDomain;

    /// Opens the log, making it the first time.
    fn open(&mut self) -> Result<Self::Domain, DomainError>;

    /// Ends the domain the way the failure that it survives would.
    fn crash(&mut self, domain: Self::Domain);

    /// Leaves in the closed log what a failure in the middle of writing a further record leaves.
    fn tear(&mut self);

    /// Makes the closed log somebody else's: another format version.
    fn make_foreign(&mut self);

    /// The largest record.
    fn record_bytes_max(&self) -> usize;

    /// Whether opening takes a lock. A storage in memory has none.
    fn locks(&self) -> bool;
}

/// Runs every rule, each on a fresh fixture.
pub fn suite<F: Fixture>(mut make: impl FnMut() -> F) {
    what_it_survives_fits_what_it_grants(make());
    submissions_complete_once_in_order(make());
    a_reopened_log_has_the_newest_records(make());
    erased_records_stay_away_after_a_flush(make());
    what_is_too_large_changes_nothing(make());
    a_full_log_keeps_what_it_has_and_recovers(make());
    uncollected_completions_are_bounded(make());
    the_meta_blob_is_durable(make());
    a_torn_record_is_cut_and_reported_once(make());
    a_foreign_log_is_refused_untouched(make());
    there_is_one_owner(make());
    for seed in 0..20 {
        random_histories_survive_crashes(make(), seed);
    }
}

/// The operations made on a domain, and how far they are known to be durable.
#[derive(Debug, Default)]
pub struct Model {
    operations: Vec<(Token, Option<Vec<u8>>)>,
    durable_count: usize,
    /// Tokens that will be completed, with the number of operations that are durable then.
    awaited: Vec<(Token, usize)>,
}

/// What a domain holds.
pub type Records = BTreeMap<Token, Vec<u8>>;

impl Model {
    /// Notes an accepted submission.
    pub fn submitted(&mut self, token: Token, record: &[u8]) {
        self.operations.push((token, Some(record.to_vec())));
        self.awaited.push((token, self.operations.len()));
    }

    /// Notes an erasure.
    pub fn erased(&mut self, token: Token) {
        self.operations.push((token, None));
    }

    /// Notes a flush of erasures.
    pub fn flushed(&mut self, token: Token) {
        self.awaited.push((token, self.operations.len()));
    }

    /// Notes completions, which must have been awaited.
    pub fn completed(&mut self, tokens: &[Token]) {
        for token in tokens {
            let index = self.awaited.iter().position(|(awaited, _)| awaited == token);
            let (_, count) = self.awaited.remove(index.expect("only what is awaited is completed"));
            self.durable_count = self.durable_count.max(count);
        }
    }

    /// How many completions are awaited.
    pub fn awaited_count(&self) -> usize {
        self.awaited.len()
    }

    /// Checks what a crash left, and goes on from there.
    pub fn check_after_crash(&mut self, found: &Records) {
        let mut state = Records::new();
        let mut matches = self.durable_count == 0 && state == *found;
        for (index, (token, record)) in self.operations.iter().enumerate() {
            match record {
                Some(record) => state.insert(*token, record.clone()),
                None => state.remove(token),
            };
            matches |= index + 1 >= self.durable_count && state == *found;
        }
        assert!(
            matches,
            "after a crash a log holds the state after a prefix of {} operations, at least {}; it holds {:?}",
            self.operations.len(),
            self.durable_count,
            found.iter().map(|(token, record)| (token.0, record.len())).collect::<Vec<_>>()
        );
        let survivors = found.iter().map(|(token, record)| (*token, Some(record.clone())));
        *self = Model { operations: survivors.collect(), durable_count: found.len(), awaited: Vec::new() };
    }
}

/// All records of a domain, with its report.
pub fn records(domain: &impl PersistenceDomain) -> (Records, ScanReport) {
    let mut found = Records::new();
    let scanned = domain.scan(&mut |token, record| {
        let again = found.insert(token, record.to_vec());
        assert_eq!(again, None, "a scan reports a token once");
    });
    let report = scanned.expect("a healthy log can be scanned");
    assert_eq!(report.record_count, found.len() as u64, "a report counts the records");
    (found, report)
}

/// Waits until `count` tokens have been completed.
pub fn await_completions(domain: &mut impl PersistenceDomain, count: usize) -> Vec<Token> {
    let mut poller = Poller::new(1).expect("a poller");
    if let Some(fd) = domain.completion_fd() {
        poller.add(fd, 0, Interest::Read).expect("a watch");
    }
    let deadline = now_monotonic().plus(DEADLINE);
    let mut done = Vec::new();
    while done.len() < count {
        domain.write_waiting();
        if domain.completion_fd().is_some() {
            let left = Duration::from_nanos(deadline.since(now_monotonic()).0);
            assert!(!poller.wait(Some(left)).expect("a wait").is_empty(), "completions come in time");
        }
        let before = done.len();
        domain.completions(&mut done).expect("a healthy log completes");
        assert!(done.len() > before, "a readable descriptor means that completions wait");
    }
    done
}

fn what_it_survives_fits_what_it_grants<F: Fixture>(mut fixture: F) {
    let domain = fixture.open().expect("a new log");
    match domain.durability() {
        Durability::Disk | Durability::RamAndDisk => assert_eq!(domain.survives(), Survives::PowerLoss),
        // Memory survives what its medium does.
        Durability::Ram => {}
        Durability::None => panic!("a domain grants some durability"),
    }
    assert_eq!(records(&domain), (Records::new(), ScanReport::default()), "a new log is empty");
}

fn submissions_complete_once_in_order<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    let tokens: Vec<Token> = [3, 1, 2, 1, 3].map(Token).into();
    for token in &tokens {
        domain.submit(*token, b"record").expect("there is room");
    }
    assert_eq!(await_completions(&mut domain, tokens.len()), tokens, "once each, in order");
    let mut more = Vec::new();
    domain.completions(&mut more).expect("a healthy log completes");
    assert!(more.is_empty(), "nothing is completed twice");
}

fn a_reopened_log_has_the_newest_records<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    let largest = vec![9; fixture.record_bytes_max()];
    for (token, record) in [(1, &b"old"[..]), (2, b""), (1, b"new"), (3, &largest), (3, b"small again")] {
        domain.submit(Token(token), record).expect("there is room");
        await_completions(&mut domain, 1);
    }
    let expected: Records = [(1, &b"new"[..]), (2, b""), (3, b"small again")]
        .map(|(token, record)| (Token(token), record.to_vec()))
        .into();
    assert_eq!(records(&domain).0, expected, "a scan sees what was submitted");
    fixture.crash(domain);
    let domain = fixture.open().expect("a log after a crash");
    assert_eq!(records(&domain).0, expected, "a crash loses nothing that was completed");
    drop(domain);
    let domain = fixture.open().expect("a log after a clean end");
    assert_eq!(
        records(&domain),
        (expected, ScanReport { record_count: 3, record_bytes: 14, ..ScanReport::default() })
    );
}

fn erased_records_stay_away_after_a_flush<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    for token in 1..=3 {
        domain.submit(Token(token), b"record").expect("there is room");
    }
    await_completions(&mut domain, 3);
    domain.erase(Token(1)).expect("erasing works");
    domain.erase(Token(1)).expect("erasing twice is erasing once");
    domain.erase(Token(30)).expect("erasing what is not there is nothing");
    domain.flush_erasures(Token(1_000));
    assert_eq!(await_completions(&mut domain, 1), [Token(1_000)], "a flush completes its token");
    domain.erase(Token(2)).expect("erasing works");
    domain.submit(Token(2), b"again").expect("there is room");
    await_completions(&mut domain, 1);
    fixture.crash(domain);
    let mut domain = fixture.open().expect("a log after a crash");
    let expected: Records = [(2, &b"again"[..]), (3, b"record")].map(|(t, r)| (Token(t), r.to_vec())).into();
    assert_eq!(records(&domain).0, expected, "flushed erasures stay, later records too");
    domain.flush_erasures(Token(7));
    assert_eq!(await_completions(&mut domain, 1), [Token(7)], "a flush of nothing completes as well");
}

fn what_is_too_large_changes_nothing<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    let bytes_max = fixture.record_bytes_max();
    domain.submit(Token(1), &vec![1; bytes_max]).expect("the largest record fits");
    await_completions(&mut domain, 1);
    let refused = domain.submit(Token(1), &vec![2; bytes_max + 1]).expect_err("a larger one does not");
    assert!(matches!(refused, DomainError::TooLarge { bytes, bytes_max: max } if bytes == max + 1));
    assert_eq!(records(&domain).0[&Token(1)], vec![1; bytes_max], "the old record is still there");
}

fn a_full_log_keeps_what_it_has_and_recovers<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    let record = vec![5; fixture.record_bytes_max()];
    let mut expected = Records::new();
    let full = loop {
        let token = Token(expected.len() as u64);
        match domain.submit(token, &record) {
            Ok(()) => await_completions(&mut domain, 1),
            Err(error) => break error,
        };
        expected.insert(token, record.clone());
    };
    assert!(matches!(full, DomainError::Full { .. }), "running out of room is Full: {full}");
    assert_eq!(records(&domain).0, expected, "a full log keeps what it has");
    for round in 0..50_u8 {
        let record = vec![round; record.len()];
        for token in expected.keys().copied().collect::<Vec<Token>>() {
            domain.erase(token).expect("erasing works in a full log");
        }
        domain.flush_erasures(Token(9_999));
        await_completions(&mut domain, 1);
        for (token, old) in &mut expected {
            domain.submit(*token, &record).expect("what was erased and flushed makes room");
            await_completions(&mut domain, 1);
            old.clone_from(&record);
        }
    }
    fixture.crash(domain);
    assert_eq!(records(&fixture.open().expect("a log after a crash")).0, expected);
}

fn uncollected_completions_are_bounded<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    let mut accepted = 0;
    let full = loop {
        match domain.submit(Token(accepted as u64 % TOKEN_COUNT), b"") {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 10_000_000, "uncollected completions are bounded");
    };
    assert!(matches!(full, DomainError::Full { .. }), "uncollected completions end in Full: {full}");
    await_completions(&mut domain, accepted);
    domain.submit(Token(1), b"").expect("collecting makes room");
}

fn the_meta_blob_is_durable<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    assert!(domain.meta().is_empty(), "a new log has no blob");
    for round in 0..5_u8 {
        domain.set_meta(&[round; META_BYTES_MAX]).expect("a blob of the largest size");
    }
    domain.set_meta(b"boot epoch 7").expect("a blob");
    let refused = domain.set_meta(&[0; META_BYTES_MAX + 1]).expect_err("a blob that is too large");
    assert!(matches!(refused, DomainError::TooLarge { .. }));
    fixture.crash(domain);
    assert_eq!(fixture.open().expect("a log after a crash").meta(), b"boot epoch 7");
}

fn a_torn_record_is_cut_and_reported_once<F: Fixture>(mut fixture: F) {
    let mut domain = fixture.open().expect("a new log");
    domain.submit(Token(1), b"whole").expect("there is room");
    await_completions(&mut domain, 1);
    drop(domain);
    fixture.tear();
    let expected: Records = [(Token(1), b"whole".to_vec())].into();
    let mut domain = fixture.open().expect("a torn record does not keep a log from opening");
    let (found, report) = records(&domain);
    assert_eq!(found, expected, "a torn record is skipped");
    assert_eq!(report.torn_count, 1, "and reported");
    assert!(report.torn_at.is_some() && report.torn_bytes > 0, "with its place and size");
    domain.submit(Token(2), b"after").expect("the log goes on");
    await_completions(&mut domain, 1);
    drop(domain);
    let domain = fixture.open().expect("a mended log");
    let (found, report) = records(&domain);
    assert_eq!((found.len(), report.torn_count), (2, 0), "what was torn is gone for good");
}

fn a_foreign_log_is_refused_untouched<F: Fixture>(mut fixture: F) {
    drop(fixture.open().expect("a new log"));
    fixture.make_foreign();
    for _ in 0..2 {
        let refused = fixture.open().map(drop).expect_err("a foreign version");
        assert!(matches!(refused, DomainError::Foreign { .. }), "{refused}");
    }
}

fn there_is_one_owner<F: Fixture>(mut fixture: F) {
    if !fixture.locks() {
        return;
    }
    let domain = fixture.open().expect("a new log");
    match fixture.open().map(drop).expect_err("a second owner") {
        DomainError::InUse { pid, .. } => assert_eq!(pid, Some(std::process::id()), "the owner is named"),
        other => panic!("a second owner is told that the log is in use, not: {other}"),
    }
    drop(domain);
    fixture.open().expect("the owner is gone");
}

fn random_histories_survive_crashes<F: Fixture>(mut fixture: F, seed: u64) {
    let mut random = Random::new(seed);
    let mut model = Model::default();
    for _ in 0..5 {
        let mut domain = fixture.open().expect("a log after a crash");
        model.check_after_crash(&records(&domain).0);
        for _ in 0..random.below(200) {
            step(&mut domain, &mut model, &mut random, fixture.record_bytes_max());
        }
        fixture.crash(domain);
    }
    model.check_after_crash(&records(&fixture.open().expect("a log after a crash")).0);
}

/// Does one random thing to a domain and notes it in the model; false when the domain has failed.
pub fn step(
    domain: &mut impl PersistenceDomain,
    model: &mut Model,
    random: &mut Random,
    record_bytes_max: usize,
) -> bool {
    let token = Token(random.below(TOKEN_COUNT));
    let result = match random.below(10) {
        0..5 => {
            // Many of one length, so that what an earlier life left behind fits the place of what follows.
            let length = match random.below(10) {
                0 => record_bytes_max as u64,
                1..8 => 100,
                _ => random.below(300),
            };
            let record: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            domain.submit(token, &record).map(|()| model.submitted(token, &record))
        }
        5..7 => domain.erase(token).map(|()| model.erased(token)),
        7 => {
            domain.flush_erasures(Token(TOKEN_COUNT + 1));
            model.flushed(Token(TOKEN_COUNT + 1));
            Ok(())
        }
        _ => {
            domain.write_waiting();
            let mut done = Vec::new();
            let result = domain.completions(&mut done);
            model.completed(&done);
            result
        }
    };
    match result {
        Ok(()) | Err(DomainError::Full { .. }) => true,
        Err(DomainError::Io { .. }) => false,
        Err(other) => panic!("a healthy log accepts or is full: {other}"),
    }
}
