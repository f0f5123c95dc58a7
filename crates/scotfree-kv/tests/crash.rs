//! Power fails at every write of the log, and inside every write: what is found again is the state
//! after some request, no earlier than the last one that was reported as stable.

mod common;

use common::{apply, content, open, options, options_with, Driver, MemoryStorage};
use scotfree_core::{SeqNum, SessionId};
use scotfree_io::DomainError;
use scotfree_kv::{IndexKind, JournalError, KvOptions, Value};
use scotfree_session::RequestKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state after some request: what the map holds and takes, and each session's position.
type Model = (BTreeMap<Vec<u8>, Value>, usize, BTreeMap<SessionId, SeqNum>);

const SCRIPT: &[(u64, &str)] = &[
    (1, "SET a 1"),
    (2, "RPUSH list x"),
    (1, "INCR a"),
    (1, "APPEND text hello"),
    (2, "RPUSH list y z"),
    (1, "GET a extra"),
    (2, "INCR list"),
    (1, "INCR a"),
    (2, "DEL text none"),
    (1, "SET big 0123456789012345678901234567890123456789012345678901234567890123456789"),
    (1, "INCR n"),
    (2, "INCR n"),
    (1, "INCR n"),
    (2, "RPUSH list w"),
    (1, "INCR a"),
];

#[test]
fn a_crash_at_every_write_leaves_a_state_that_was() {
    IndexKind::ALL.into_iter().for_each(crash_at_every_write);
}

fn crash_at_every_write(index: IndexKind) {
    let (storage, history) = run_script(index, 700);
    assert!(history.snapshots >= 2, "the script is long enough for snapshots: {}", history.snapshots);
    let writes = storage.writes.lock().expect("no writer panics").clone();
    let mut image = Vec::new();
    for (count, (offset, bytes)) in writes.iter().enumerate() {
        if count >= history.writes_of_opening {
            let floor = history.stable_after(count);
            check(&image, &history, floor, &format!("before write {count}"));
            // A write that was cut: its beginning is there, or only its end.
            for cut in 1..bytes.len() {
                if cut % cut_step(bytes.len()) == 0 {
                    let mut torn = image.clone();
                    apply(&mut torn, *offset, &bytes[..cut]);
                    check(&torn, &history, floor, &format!("write {count} cut at {cut}"));
                }
            }
        }
        apply(&mut image, *offset, bytes);
    }
    check(&image, &history, SCRIPT.len(), "the end");
}

#[test]
fn the_last_record_cut_at_every_byte_is_reported_and_cut_off() {
    let (storage, history) = run_script(IndexKind::Hash, 1 << 20);
    let writes = storage.writes.lock().expect("no writer panics").clone();
    // The last write of a record, not of a state page: it lies in the ring.
    let last = writes.iter().rposition(|(offset, _)| *offset >= 8 * 4_096).expect("records were written");
    let mut before = Vec::new();
    writes[..last].iter().for_each(|(offset, bytes)| apply(&mut before, *offset, bytes));
    let (offset, bytes) = &writes[last];
    for cut in 1..bytes.len() {
        let mut torn = before.clone();
        apply(&mut torn, *offset, &bytes[..cut]);
        let (service, recovery) =
            open(&MemoryStorage::of(torn), &options(1 << 20)).expect("a torn end is cut off");
        let found = model(&Driver::new(service));
        if found == history.models[SCRIPT.len() - 1] {
            // Less than a record's header cannot be told from nothing.
            assert!(recovery.report.torn_count == 1 || cut < 40, "{cut}");
        } else {
            // Only padding is missing.
            assert!(
                found == history.models[SCRIPT.len()] && bytes[cut..].iter().all(|byte| *byte == 0),
                "{cut}"
            );
        }
    }
}

#[test]
fn damage_in_the_middle_and_foreign_logs_are_refused_and_left_alone() {
    let (storage, _) = run_script(IndexKind::Hash, 1 << 20);
    let whole = storage.image();
    let first_record = 8 * 4_096;
    let mut damaged = whole.clone();
    damaged[first_record + 45] ^= 1;
    let damaged = MemoryStorage::of(damaged);
    let before = damaged.image();
    let error = open(&damaged, &options(1 << 20)).err().expect("the damage is found");
    assert!(matches!(error, JournalError::Domain(DomainError::Damaged { .. })), "{error}");
    assert!(damaged.image() == before, "a damaged log is left untouched");

    // Another user's log: records, and a meta blob that is not ours.
    let foreign = MemoryStorage::of(Vec::new());
    let name = std::path::Path::new("memory");
    let config = scotfree_io::disk::DiskConfig { log_bytes: 64 << 10, ..Default::default() };
    let storage: Arc<dyn scotfree_io::storage::Storage> = Arc::clone(&foreign) as _;
    let mut domain = scotfree_io::disk::DiskDomain::open_on(storage, name, &config).expect("a new log");
    scotfree_io::PersistenceDomain::set_meta(&mut domain, b"a device").expect("a short blob");
    drop(domain);
    let error = open(&foreign, &options(1 << 20)).err().expect("the log is not ours");
    assert!(matches!(error, JournalError::Foreign), "{error}");
    let storage: Arc<dyn scotfree_io::storage::Storage> = foreign;
    let domain = scotfree_io::disk::DiskDomain::open_on(storage, name, &config).expect("it is whole");
    assert_eq!(scotfree_io::PersistenceDomain::meta(&domain), b"a device");
}

/// What happened in a run of the script.
struct History {
    /// The state after each number of requests.
    models: Vec<Model>,
    /// How many writes there had been when the first so many requests were stable.
    writes_when_stable: Vec<usize>,
    writes_of_opening: usize,
    snapshots: u64,
    options: KvOptions,
}

impl History {
    /// How many requests were certainly stable when only the first `writes` writes had happened.
    fn stable_after(&self, writes: usize) -> usize {
        self.writes_when_stable.iter().rposition(|needed| *needed <= writes).unwrap_or(0)
    }
}

/// Short writes are cut at every byte, long ones at some.
fn cut_step(bytes: usize) -> usize {
    (bytes / 64).max(1)
}

fn run_script(index: IndexKind, ops_bytes_max: u64) -> (Arc<MemoryStorage>, History) {
    let storage = MemoryStorage::of(Vec::new());
    let options = options_with(index, ops_bytes_max);
    let (service, _) = open(&storage, &options).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    driver.start_session(2);
    driver.settle();
    let mut history = History {
        models: vec![model(&driver)],
        writes_when_stable: vec![storage.write_count()],
        writes_of_opening: storage.write_count(),
        snapshots: 0,
        options,
    };
    let mut seqs = BTreeMap::new();
    for (session, line) in SCRIPT {
        let seq = seqs.entry(*session).or_insert(0_u64);
        *seq += 1;
        driver.run(RequestKind::Update, *session, *seq, line);
        history.models.push(model(&driver));
        driver.settle();
        history.writes_when_stable.push(storage.write_count());
    }
    history.snapshots = driver.service.snapshots_taken();
    drop(driver);
    (storage, history)
}

fn model(driver: &Driver) -> Model {
    let positions = driver.service.sessions().values().map(|record| (record.session, record.position));
    let store = driver.service.store();
    (content(store), store.data_bytes(), positions.collect())
}

/// Opens the image: the state found is that after some request, not before `floor`.
fn check(image: &[u8], history: &History, floor: usize, when: &str) {
    let opened = open(&MemoryStorage::of(image.to_vec()), &history.options);
    let (service, recovery) = opened.unwrap_or_else(|error| panic!("{when}: {error}"));
    let found = model(&Driver::new(service));
    let at = history.models.iter().rposition(|model| *model == found);
    let at = at.unwrap_or_else(|| panic!("{when}: a state that never was: {found:?}"));
    assert!(at >= floor, "{when}: {at} requests found, {floor} were stable");
    assert!(recovery.epoch.0 >= 1);
}
