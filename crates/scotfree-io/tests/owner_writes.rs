//! A disk log that its owner writes: what it waits for, and what it leaves to the log's thread.

use scotfree_core::{Nanos, Token};
use scotfree_io::conformance::domain::{await_completions, records, Records};
use scotfree_io::conformance::faults::{Fault, FaultyStorage};
use scotfree_io::disk::{DiskConfig, DiskDomain, DiskWriter};
use scotfree_io::storage::Storage;
use scotfree_io::{now_monotonic, DomainError, Interest, PersistenceDomain, Poller};
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::Duration;

/// However the medium was, the owner waits.
const ALWAYS: DiskWriter = DiskWriter::Owner { quick_row: 0 };

#[test]
fn what_was_submitted_is_written_at_once_when_the_owner_asks_for_it() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage, ALWAYS).expect("a new log");
    let before = storage.write_count();
    for token in 0..50 {
        domain.submit(Token(token), b"record").expect("there is room");
    }
    assert_eq!(completed(&mut domain), [], "nothing is completed before it is written");
    assert!(domain.write_waiting());
    assert_eq!(completed(&mut domain).len(), 50);
    assert_eq!(storage.write_count() - before, 1);
    assert!(!domain.write_waiting(), "and once only");
    assert_eq!((storage.write_count() - before, domain.counters().owner_writes), (1, 1));
}

#[test]
fn nothing_is_said_to_be_durable_while_the_owner_waits_for_it() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage, ALWAYS).expect("a new log");
    let fd = domain.completion_fd().expect("a disk log has one");
    let mut poller = Poller::new(1).expect("a poller");
    poller.add(fd, 0, Interest::Read).expect("a watch");
    storage.hold();
    let owner = std::thread::spawn(move || {
        domain.submit(Token(1), b"record").expect("there is room");
        assert!(domain.write_waiting());
        domain
    });
    await_that(|| storage.is_waiting());
    assert!(poller.wait(Some(Duration::ZERO)).expect("a look").is_empty());
    storage.release();
    let mut domain = owner.join().expect("the owner goes on");
    assert_eq!(poller.wait(Some(Duration::ZERO)).expect("a look").len(), 1);
    assert_eq!(completed(&mut domain), [Token(1)]);
}

#[test]
fn a_write_that_fails_under_its_owner_is_never_acknowledged_and_ends_the_log() {
    for errno in [libc::EIO, libc::ENOSPC] {
        let storage = Arc::new(FaultyStorage::new());
        let mut domain = open(&storage, ALWAYS).expect("a new log");
        domain.submit(Token(1), b"whole").expect("there is room");
        assert_eq!(await_completions(&mut domain, 1), [Token(1)]);
        storage.plan(0, Fault::Fail { errno });
        domain.submit(Token(2), b"lost").expect("there is room");
        domain.write_waiting();
        let mut done = Vec::new();
        let failure = domain.completions(&mut done).expect_err("the write has failed");
        let DomainError::Io { source, .. } = failure else { panic!("an I/O error: {failure}") };
        assert_eq!((source.raw_os_error(), done.len()), (Some(errno), 0));
        assert!(matches!(domain.submit(Token(3), b"x"), Err(DomainError::Io { .. })), "and it stays failed");
        domain.flush_erasures(Token(4));
        storage.repair();
        let before = storage.content();
        assert!(!domain.write_waiting());
        assert!(domain.completions(&mut done).is_err() && done.is_empty());
        drop(domain);
        assert!(storage.content() == before, "after a failure nothing is written");
        let found = records(&open(&storage, ALWAYS).expect("a log after a crash")).0;
        assert_eq!(found, Records::from([(Token(1), b"whole".to_vec())]));
    }
}

#[test]
fn a_medium_that_has_not_shown_to_be_quick_is_left_to_the_thread() {
    let storage = Arc::new(FaultyStorage::new());
    let domain = open(&storage, DiskWriter::Owner { quick_row: 4 }).expect("a new log");
    let mut domain = hangs_without_its_owner(&storage, domain);
    write_until_the_owner_does(&mut domain);
}

#[test]
fn a_medium_that_begins_to_hang_holds_its_owner_up_for_one_write() {
    let storage = Arc::new(FaultyStorage::new());
    let mut domain = open(&storage, DiskWriter::Owner { quick_row: 4 }).expect("a new log");
    write_until_the_owner_does(&mut domain);
    storage.hold();
    let owner = std::thread::spawn(move || {
        domain.submit(Token(1), b"slow").expect("there is room");
        assert!(domain.write_waiting(), "how could it know");
        domain
    });
    await_that(|| storage.is_waiting());
    // It takes so long for the owner as well, whenever its thread has begun.
    let hung_at = now_monotonic();
    await_that(|| now_monotonic().since(hung_at) > Nanos::from_millis(4));
    storage.release();
    let mut domain = owner.join().expect("the owner goes on");
    assert_eq!(completed(&mut domain), [Token(1)]);
    let mut domain = hangs_without_its_owner(&storage, domain);
    write_until_the_owner_does(&mut domain);
}

/// The medium hangs, and the owner goes on; what it submits meanwhile is written behind.
fn hangs_without_its_owner(storage: &Arc<FaultyStorage>, mut domain: DiskDomain) -> DiskDomain {
    storage.hold();
    let (sender, went_on) = channel();
    std::thread::spawn(move || {
        for token in 1..10 {
            domain.submit(Token(token), b"record").expect("there is room");
            assert!(!domain.write_waiting());
        }
        assert_eq!(completed(&mut domain), []);
        sender.send(domain).expect("somebody waits for it");
    });
    let mut domain =
        went_on.recv_timeout(Duration::from_secs(30)).expect("the owner does not wait for the medium");
    await_that(|| storage.is_waiting());
    storage.release();
    assert_eq!(await_completions(&mut domain, 9), (1..10).map(Token).collect::<Vec<_>>());
    domain
}

fn write_until_the_owner_does(domain: &mut DiskDomain) {
    let before = domain.counters().owner_writes;
    await_that(|| {
        domain.submit(Token(0), b"quick").expect("there is room");
        await_completions(domain, 1);
        domain.counters().owner_writes > before
    });
}

fn completed(domain: &mut DiskDomain) -> Vec<Token> {
    let mut done = Vec::new();
    domain.completions(&mut done).expect("a healthy log");
    done
}

fn open(storage: &Arc<FaultyStorage>, writer: DiskWriter) -> Result<DiskDomain, DomainError> {
    let config = DiskConfig { log_bytes: 64 << 10, record_bytes_max: 4_096, writer, ..DiskConfig::default() };
    DiskDomain::open_on(Arc::clone(storage) as Arc<dyn Storage>, Path::new("memory"), &config)
}

fn await_that(mut condition: impl FnMut() -> bool) {
    let deadline = now_monotonic().plus(Nanos::from_secs(30));
    while !condition() {
        assert!(now_monotonic() < deadline, "the condition comes true in time");
        std::thread::yield_now();
    }
}
