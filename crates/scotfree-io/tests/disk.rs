//! The rules of the disk log beyond those of every domain: groups, torn and failed writes, damage.

mod common;

use common::Folder;
use scotfree_core::{Nanos, Token};
use scotfree_io::conformance::domain::{await_completions, records, step, Model, Records};
use scotfree_io::conformance::faults::{Fault, FaultyStorage, Random};
use scotfree_io::disk::{DiskConfig, DiskDomain, DiskWriter};
use scotfree_io::storage::Storage;
use scotfree_io::verify::{verify, LogKind};
use scotfree_io::{now_monotonic, DomainError, PersistenceDomain};
use std::path::Path;
use std::sync::Arc;

/// Where the ring begins in the file.
const LOG_OFFSET: u64 = 8 * 4_096;

#[test]
fn what_is_submitted_during_a_write_goes_into_the_next_one() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage).expect("a new log");
    let before = storage.write_count();
    storage.hold();
    domain.submit(Token(0), b"first").expect("there is room");
    await_that(|| storage.is_waiting());
    for token in 1..=50 {
        domain.submit(Token(token), b"later").expect("there is room");
    }
    let mut done = Vec::new();
    domain.completions(&mut done).expect("a healthy log");
    assert!(done.is_empty(), "nothing is completed before it is written");
    storage.release();
    assert_eq!(await_completions(&mut domain, 51).len(), 51);
    assert_eq!(storage.write_count() - before, 2, "one write for the first, one for all the others");
}

#[test]
fn erasures_ride_with_the_next_group() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage).expect("a new log");
    for token in 0..10 {
        domain.submit(Token(token), b"record").expect("there is room");
    }
    await_completions(&mut domain, 10);
    let before = storage.write_count();
    for token in 0..9 {
        domain.erase(Token(token)).expect("erasing works");
    }
    assert_eq!(storage.write_count(), before, "erasures alone are not written");
    domain.submit(Token(10), b"record").expect("there is room");
    await_completions(&mut domain, 1);
    assert_eq!(storage.write_count() - before, 1, "they go with the next record");
    storage.plan(0, Fault::Fail { errno: libc::EIO });
    drop(domain);
    storage.repair();
    let tokens: Vec<Token> = records(&open(&storage).expect("a log after a crash")).0.into_keys().collect();
    assert_eq!(tokens, [Token(9), Token(10)]);
}

#[test]
fn bytes_that_wait_for_the_disk_are_bounded() {
    let storage = Arc::new(FaultyStorage::new());
    let config = DiskConfig { group_bytes_max: 10_000, ..small_log() };
    let mut domain = open_with(&storage, &config).expect("a new log");
    storage.hold();
    domain.submit(Token(0), &[0; 1_000]).expect("there is room");
    await_that(|| storage.is_waiting());
    let accepted = (1..100).take_while(|token| domain.submit(Token(*token), &[0; 1_000]).is_ok()).count();
    assert_eq!(accepted, 9, "ten kilobytes are nine records of a kilobyte with their headers");
    storage.release();
    await_completions(&mut domain, 10);
    domain.submit(Token(50), &[0; 1_000]).expect("there is room again");
}

#[test]
fn a_failed_write_is_never_acknowledged_and_ends_the_log() {
    for errno in [libc::EIO, libc::ENOSPC] {
        let storage = Arc::new(FaultyStorage::new());
        let mut domain = open(&storage).expect("a new log");
        domain.submit(Token(1), b"whole").expect("there is room");
        await_completions(&mut domain, 1);
        storage.plan(0, Fault::Fail { errno });
        domain.submit(Token(2), b"lost").expect("there is room");
        let mut done = Vec::new();
        let failure = await_failure(&mut domain, &mut done);
        assert!(done.is_empty(), "what was not written is not acknowledged");
        let DomainError::Io { source, doing } = failure else { panic!("an I/O error: {failure}") };
        assert_eq!(source.raw_os_error(), Some(errno));
        assert!(doing.contains("writing records of memory"), "{doing}");
        assert!(matches!(domain.submit(Token(3), b"x"), Err(DomainError::Io { .. })), "and it stays failed");
        assert!(matches!(domain.erase(Token(1)), Err(DomainError::Io { .. })));
        assert!(matches!(domain.scan(&mut |_, _| ()), Err(DomainError::Io { .. })));
        domain.flush_erasures(Token(4));
        assert!(domain.completions(&mut done).is_err() && done.is_empty());
        drop(domain);
        storage.repair();
        let found = records(&open(&storage).expect("a log after a crash")).0;
        assert_eq!(found, Records::from([(Token(1), b"whole".to_vec())]));
    }
}

#[test]
fn torn_writes_leave_a_prefix_of_history() {
    let mut torn_count = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let storage = Arc::new(FaultyStorage::new());
        let mut model = Model::default();
        // Written by its thread, or by its owner.
        let writer = if seed / 4 % 2 == 0 { DiskWriter::Thread } else { DiskWriter::Owner { quick_row: 0 } };
        for _ in 0..4 {
            let config = DiskConfig { writer, ..small_log() };
            let mut domain =
                open_with(&storage, &config).expect("a torn write does not keep a log from opening");
            let (found, report) = records(&domain);
            torn_count += report.torn_count;
            model.check_after_crash(&found);
            // Short histories tear the first groups, long ones go round the ring.
            let writes_max = if seed % 4 == 0 { 400 } else { 12 };
            storage.plan(random.below(writes_max), Fault::Tear { seed: random.next() });
            while step(&mut domain, &mut model, &mut random, 4_096) && !storage.is_broken() {
                if model.awaited_count() > 8 {
                    storage_settles(&mut domain, &mut model);
                }
            }
            let mut done = Vec::new();
            let _ = domain.completions(&mut done);
            model.completed(&done);
            drop(domain);
            storage.repair();
        }
    }
    assert!(torn_count > 50, "torn ends were met: {torn_count}");
}

#[test]
fn nothing_of_a_torn_group_comes_back_later() {
    for seed in 0..64 {
        let storage = Arc::new(FaultyStorage::new());
        let mut domain = open(&storage).expect("a new log");
        storage.hold();
        domain.submit(Token(0), &[0; 984]).expect("there is room");
        await_that(|| storage.is_waiting());
        for token in 1..=4 {
            domain.submit(Token(token), &[1; 984]).expect("there is room");
        }
        storage.plan(1, Fault::Tear { seed });
        storage.release();
        await_failure(&mut domain, &mut Vec::new());
        drop(domain);
        storage.repair();
        let mut domain = open(&storage).expect("a torn write does not keep a log from opening");
        let mut expected = records(&domain).0;
        // The record takes just the place of a torn one; behind it lie the rest of the torn group.
        domain.submit(Token(9), &[2; 984]).expect("there is room");
        await_completions(&mut domain, 1);
        expected.insert(Token(9), vec![2; 984]);
        storage.plan(0, Fault::Fail { errno: libc::EIO });
        drop(domain);
        storage.repair();
        assert_eq!(records(&open(&storage).expect("a log after a crash")).0, expected);
    }
}

#[test]
fn damage_in_the_middle_is_refused_and_left_untouched() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage).expect("a new log");
    for token in 0..4 {
        domain.submit(Token(token), &[7; 1_000]).expect("there is room");
        await_completions(&mut domain, 1);
    }
    storage.plan(0, Fault::Fail { errno: libc::EIO });
    drop(domain);
    storage.repair();
    let second_record = LOG_OFFSET + 1_040;
    for offset in [second_record, second_record + 20, second_record + 500] {
        storage.flip(offset);
        let before = storage.content();
        match open(&storage).map(drop).expect_err("a later write holds") {
            DomainError::Damaged { offset, .. } => assert_eq!(offset, second_record),
            other => panic!("damage is called damage, not: {other}"),
        }
        assert_eq!(storage.content(), before, "a damaged log is left untouched");
        storage.flip(offset);
    }
    assert_eq!(records(&open(&storage).expect("the damage was undone")).0.len(), 4);
}

#[test]
fn damage_of_the_last_record_is_seen_after_a_clean_end() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage).expect("a new log");
    domain.submit(Token(1), &[7; 1_000]).expect("there is room");
    await_completions(&mut domain, 1);
    drop(domain);
    storage.flip(LOG_OFFSET + 100);
    let error = open(&storage).map(drop).expect_err("the clean end has said that the record was durable");
    assert!(matches!(error, DomainError::Damaged { offset: LOG_OFFSET, .. }), "{error}");
    assert!(error.to_string().contains("scot log verify memory"), "{error}");
}

#[test]
fn content_that_looks_like_records_is_only_content() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage).expect("a new log");
    domain.submit(Token(1), &[7; 1_000]).expect("there is room");
    await_completions(&mut domain, 1);
    drop(domain);
    // A stranger's log gives a record that is perfect but for the salt.
    let stranger = Arc::new(FaultyStorage::new());
    let mut domain = open(&stranger).expect("a new log");
    for token in 0..30 {
        domain.submit(Token(token), b"forged").expect("there is room");
        await_completions(&mut domain, 1);
    }
    drop(domain);
    let start = LOG_OFFSET as usize + 29 * 48;
    let forged = stranger.content()[start..start + 48].to_vec();
    let mut domain = open(&storage).expect("a healthy log");
    storage.plan(0, Fault::Cut { bytes: 2_000 });
    domain.submit(Token(2), &forged.repeat(60)).expect("there is room");
    drop(domain);
    storage.repair();
    let (found, report) = records(&open(&storage).expect("forged records prove nothing"));
    assert_eq!((found.len(), report.torn_count), (1, 1));
}

#[test]
fn a_record_that_stays_does_not_block_the_ring() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage).expect("a new log");
    for token in 10_000..10_010 {
        domain.submit(Token(token), &[token as u8; 2_000]).expect("there is room");
    }
    await_completions(&mut domain, 10);
    for round in 0..2_000_u64 {
        domain.submit(Token(round), &[round as u8; 500]).expect("what is erased makes room");
        await_completions(&mut domain, 1);
        domain.erase(Token(round)).expect("erasing works");
    }
    let moved = domain.counters().moved_bytes;
    assert!(moved > 0, "the ring has gone round, so the old records have moved");
    assert!(moved <= 2 * 2_000 * 600, "moving costs at most twice what was submitted: {moved}");
    storage.plan(0, Fault::Fail { errno: libc::EIO });
    drop(domain);
    storage.repair();
    let found = records(&open(&storage).expect("a log after a crash")).0;
    for token in 10_000..10_010 {
        assert_eq!(found[&Token(token)], [token as u8; 2_000]);
    }
}

#[test]
fn files_that_are_not_logs_are_refused_untouched() {
    let folder = Folder::new();
    for (name, content) in [("empty", vec![]), ("text", b"hello".to_vec()), ("zeros", vec![0; 100_000])] {
        let path = folder.path(name);
        std::fs::write(&path, &content).expect("the folder is writable");
        let error = DiskDomain::open(&path, &small_log()).map(drop).expect_err("no log");
        assert!(matches!(error, DomainError::Foreign { .. }), "{error}");
        assert_eq!(std::fs::read(&path).expect("the file is there"), content);
    }
    let short = folder.path("short");
    drop(DiskDomain::open(&short, &small_log()).expect("a new log"));
    std::fs::OpenOptions::new()
        .write(true)
        .open(&short)
        .and_then(|file| file.set_len(50_000))
        .expect("it shrinks");
    let error = DiskDomain::open(&short, &small_log()).map(drop).expect_err("half a log");
    assert!(matches!(error, DomainError::Damaged { offset: 50_000, .. }), "{error}");
}

#[test]
fn a_path_that_cannot_be_made_is_named() {
    let folder = Folder::new();
    let path = folder.path("missing/log");
    let error = DiskDomain::open(&path, &small_log()).map(drop).expect_err("no such folder");
    assert!(error.to_string().contains("missing/log"), "{error}");
}

#[test]
fn an_interrupted_birth_is_begun_again() {
    let folder = Folder::new();
    std::fs::write(folder.path("log.new"), b"left over").expect("the folder is writable");
    drop(DiskDomain::open(&folder.path("log"), &small_log()).expect("a new log"));
    assert!(!folder.path("log.new").exists());
}

#[test]
fn verify_reads_without_changing() {
    let folder = Folder::new();
    let path = folder.path("log");
    let mut domain = DiskDomain::open(&path, &small_log()).expect("a new log");
    for token in 0..3 {
        domain.submit(Token(token), b"12345").expect("there is room");
    }
    domain.erase(Token(0)).expect("erasing works");
    domain.flush_erasures(Token(9));
    await_completions(&mut domain, 4);
    assert!(matches!(verify(&path), Err(DomainError::InUse { .. })), "not while somebody writes");
    drop(domain);
    let before = std::fs::read(&path).expect("the log can be read");
    let report = verify(&path).expect("a healthy log");
    assert_eq!(report.kind, LogKind::Disk);
    assert_eq!((report.record_count, report.live_count, report.live_bytes), (4, 2, 10));
    assert_eq!(report.torn_bytes, 0);
    assert_eq!(std::fs::read(&path).expect("the log can be read"), before);
}

fn small_log() -> DiskConfig {
    DiskConfig { log_bytes: 64 << 10, record_bytes_max: 4_096, ..DiskConfig::default() }
}

fn open(storage: &Arc<FaultyStorage>) -> Result<DiskDomain, DomainError> {
    open_with(storage, &small_log())
}

fn open_with(storage: &Arc<FaultyStorage>, config: &DiskConfig) -> Result<DiskDomain, DomainError> {
    DiskDomain::open_on(Arc::clone(storage) as Arc<dyn Storage>, Path::new("memory"), config)
}

/// Collects completions until nothing is awaited or the storage fails.
fn storage_settles(domain: &mut DiskDomain, model: &mut Model) {
    let deadline = now_monotonic().plus(Nanos::from_secs(30));
    while model.awaited_count() > 0 {
        assert!(now_monotonic() < deadline, "a submission is completed or the log fails");
        domain.write_waiting();
        let mut done = Vec::new();
        let result = domain.completions(&mut done);
        model.completed(&done);
        if result.is_err() {
            return;
        }
        std::thread::yield_now();
    }
}

fn await_failure(domain: &mut DiskDomain, done: &mut Vec<Token>) -> DomainError {
    let mut failure = None;
    await_that(|| {
        failure = domain.completions(done).err();
        failure.is_some()
    });
    failure.expect("it was awaited")
}

fn await_that(mut condition: impl FnMut() -> bool) {
    let deadline = now_monotonic().plus(Nanos::from_secs(30));
    while !condition() {
        assert!(now_monotonic() < deadline, "the condition comes true in time");
        std::thread::yield_now();
    }
}
