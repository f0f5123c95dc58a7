//! Both persistence domains pass the conformance suite.

mod common;

use common::Folder;
use scotfree_core::Token;
use scotfree_io::conformance::domain::{await_completions, records, suite, Fixture};
use scotfree_io::conformance::faults::{Fault, FaultyStorage};
use scotfree_io::disk::{DiskConfig, DiskDomain, DiskWriter};
use scotfree_io::ram::{RamConfig, RamDomain};
use scotfree_io::storage::{FileStorage, Storage, WriteWaits};
use scotfree_io::verify::{verify, LogKind, VerifyReport};
use scotfree_io::{DomainError, PersistenceDomain};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where every log keeps its version.
const VERSION_OFFSET: u64 = 8;

#[test]
fn ram_conforms() {
    suite(|| Ram { folder: Folder::new() });
}

#[test]
fn ram_conforms_on_a_memory_file_system() {
    let Some(folder) = Folder::in_memory() else {
        println!("SKIP: /dev/shm is missing or not writable");
        return;
    };
    drop(folder);
    suite(|| Ram { folder: Folder::in_memory().expect("it was writable a moment ago") });
}

#[test]
fn disk_conforms_on_a_file() {
    suite(|| DiskFile { folder: Folder::new() });
}

#[test]
fn disk_conforms_where_its_owner_writes() {
    let writer = DiskWriter::Owner { quick_row: 0 };
    suite(|| DiskMemory { storage: Arc::new(FaultyStorage::new()), writer });
}

#[test]
fn disk_conforms_under_loss_of_power() {
    suite(|| DiskMemory { storage: Arc::new(FaultyStorage::new()), writer: DiskWriter::Thread });
}

#[test]
fn a_valid_ram_record_that_fails_its_checksum_is_damage_and_left_alone() {
    let first_half = |slot: u64| 8 * 4_096 + slot * 2 * 20_480;
    // A byte of the content, the length beyond the slot, a state that is none.
    for (at, byte) in [(32, 0xff), (6, 0xff), (0, 9)] {
        let mut fixture = Ram { folder: Folder::new() };
        let mut domain = fixture.open().expect("a new log");
        for token in [1, 4] {
            domain.submit(Token(token), b"12345").expect("there is room");
        }
        drop(domain);
        // A torn record as well, which opening would empty.
        fixture.tear();
        let path = fixture.folder.path("log");
        poke(&path, first_half(4) + at, &[byte]);
        let before = std::fs::read(&path).expect("the log can be read");
        let place = first_half(4);
        let opened = fixture.open().map(drop).expect_err("an acknowledged record is damaged");
        let verified = verify(&path).expect_err("as verifying says");
        for error in [opened, verified] {
            assert!(matches!(error, DomainError::Damaged { offset, .. } if offset == place), "{error}");
        }
        assert!(std::fs::read(&path).expect("the log can be read") == before, "it was written to");
    }
}

#[test]
fn a_log_in_the_making_has_no_name_where_files_can_be_without() {
    let folder = Folder::new();
    let path = folder.path("log");
    let parent = path.parent().expect("a folder");
    let unnamed = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(parent);
    if unnamed.is_err() {
        println!("SKIP: this file system has no files without names");
        return;
    }
    let names = || std::fs::read_dir(parent).expect("it is there").count();
    let made = FileStorage::open_or_create(&path, WriteWaits::No, &|storage| {
        assert_eq!(names(), 0, "whoever is killed now leaves nothing");
        storage.write_at(0, b"whole")
    });
    assert_eq!((made.expect("a new log").length().expect("a file"), names()), (5, 1));
}

#[test]
fn what_is_no_regular_file_is_no_log() {
    let folder = Folder::new();
    for path in [Path::new("/dev/zero"), Path::new("/proc"), folder.path("log").parent().expect("a folder")] {
        for refused in [
            DiskDomain::open(path, &small_log()).map(drop),
            RamDomain::open(path, &RamConfig::default()).map(drop),
            verify(path).map(drop),
        ] {
            let error = refused.expect_err("it is no file");
            assert!(matches!(error, DomainError::Foreign { .. }), "{error}");
        }
    }
}

#[test]
fn a_ram_log_is_verified_without_changing() {
    let mut fixture = Ram { folder: Folder::new() };
    let mut domain = fixture.open().expect("a new log");
    for token in [1, 2, 1, 3] {
        domain.submit(Token(token), b"12345").expect("there is room");
    }
    domain.erase(Token(3)).expect("erasing works");
    drop(domain);
    let path = fixture.folder.path("log");
    let whole = verify(&path).expect("a healthy log");
    let expected =
        VerifyReport { kind: LogKind::Ram, record_count: 2, live_count: 2, live_bytes: 10, torn_bytes: 0 };
    assert_eq!(whole, expected);
    fixture.tear();
    let before = std::fs::read(&path).expect("the log can be read");
    let torn = verify(&path).expect("a torn log");
    assert_eq!(
        torn,
        VerifyReport { record_count: 1, live_count: 1, live_bytes: 5, torn_bytes: 100, ..expected }
    );
    assert_eq!(std::fs::read(&path).expect("the log can be read"), before);
    let other = DiskDomain::open(&path, &small_log()).map(drop).expect_err("the other kind");
    assert!(other.to_string().contains("it is a ram log"), "{other}");
}

#[test]
fn a_replacement_that_a_crash_interrupts_leaves_the_old_or_the_new_record() {
    let mut fixture = Ram { folder: Folder::new() };
    let path = fixture.folder.path("log");
    let halves = [1, 2].map(|half| 8 * 4_096 + (2 + half - 1) * 20_480);
    let (writing, valid) = ([1, 0, 0, 0], [2, 0, 0, 0]);
    let mut submit = |record: &[u8]| {
        let mut domain = fixture.open().expect("a log");
        domain.submit(Token(1), record).expect("there is room");
    };
    submit(b"one");
    poke(&path, halves[1], &writing);
    assert_eq!(found_in(&path), (b"one".to_vec(), 1), "the new half was being written: the old one counts");
    submit(b"two");
    poke(&path, halves[0], &valid);
    assert_eq!(found_in(&path), (b"two".to_vec(), 0), "both are whole: the newer one counts");
    submit(b"three");
    poke(&path, halves[1], &valid);
    assert_eq!(found_in(&path), (b"three".to_vec(), 0), "whichever half it is in");
}

/// The record of token 1, and how many torn ones were met.
fn found_in(path: &Path) -> (Vec<u8>, u64) {
    let config = RamConfig { slot_count: 32, record_bytes_max: 20_000, ..RamConfig::default() };
    let (mut found, report) = records(&RamDomain::open(path, &config).expect("a log after a crash"));
    (found.remove(&Token(1)).expect("one of the two is there"), report.torn_count)
}

#[test]
fn the_sizes_of_a_ram_log_change_only_while_it_is_empty() {
    let folder = Folder::new();
    let open = |slot_count, record_bytes_max| {
        let config = RamConfig { slot_count, record_bytes_max, ..RamConfig::default() };
        RamDomain::open(&folder.path("log"), &config)
    };
    let mut domain = open(8, 10_000).expect("a new log");
    domain.set_meta(b"boot epoch 7").expect("a blob");
    domain.submit(Token(7), &[1; 10_000]).expect("there is room");
    drop(domain);
    let refused = open(4, 300).map(drop).expect_err("there is a record");
    assert!(refused.to_string().contains("8 slots of 10000 bytes"), "{refused}");
    let mut domain = open(8, 10_000).expect("its own sizes");
    domain.erase(Token(7)).expect("erasing works");
    drop(domain);
    for (slot_count, record_bytes_max) in [(4, 300), (1_000, 5_000), (2, 20_000)] {
        let mut domain = open(slot_count, record_bytes_max).expect("an empty log");
        assert_eq!(domain.meta(), b"boot epoch 7", "the blob stays");
        assert_eq!(records(&domain).0.len(), 0);
        let last = Token(slot_count - 1);
        domain.submit(last, &vec![2; record_bytes_max]).expect("the last slot is there");
        assert!(matches!(domain.submit(Token(slot_count), b""), Err(DomainError::Full { .. })));
        domain.erase(last).expect("erasing works");
    }
}

#[test]
fn a_large_erased_record_gives_its_memory_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    let config = RamConfig { slot_count: 4, record_bytes_max: 1 << 20, ..RamConfig::default() };
    let mut domain = RamDomain::open(&folder.path("log"), &config).expect("a new log");
    let blocks = || std::fs::metadata(folder.path("log")).expect("the log is there").blocks();
    let before = blocks();
    domain.submit(Token(1), &vec![3; 1 << 20]).expect("there is room");
    assert!(blocks() >= before + 2_048, "a megabyte is 2,048 blocks");
    domain.erase(Token(1)).expect("erasing works");
    assert!(blocks() <= before + 64, "only the first page stays");
    domain.submit(Token(1), &vec![4; 1 << 20]).expect("there is room again");
    assert_eq!(records(&domain).0[&Token(1)], vec![4; 1 << 20]);
}

struct Ram {
    folder: Folder,
}

impl Fixture for Ram {
    type Domain = RamDomain;

    fn open(&mut self) -> Result<RamDomain, DomainError> {
        let config = RamConfig { slot_count: 32, record_bytes_max: 20_000, ..RamConfig::default() };
        RamDomain::open(&self.folder.path("log"), &config)
    }

    fn crash(&mut self, domain: RamDomain) {
        // A process that dies leaves the mapped memory as it is; so does dropping.
        drop(domain);
    }

    fn tear(&mut self) {
        // Slot 2, first half: marked as being written, some of the content there.
        let slot_offset = 8 * 4_096 + 2 * 2 * 20_480;
        poke(&self.folder.path("log"), slot_offset, &[1, 0, 0, 0, 100, 0, 0, 0]);
    }

    fn make_foreign(&mut self) {
        poke(&self.folder.path("log"), VERSION_OFFSET, &[99]);
    }

    fn record_bytes_max(&self) -> usize {
        20_000
    }

    fn locks(&self) -> bool {
        true
    }
}

fn small_log() -> DiskConfig {
    DiskConfig {
        log_bytes: 64 << 10,
        record_bytes_max: 4_096,
        outstanding_max: 1_000,
        ..DiskConfig::default()
    }
}

struct DiskFile {
    folder: Folder,
}

impl Fixture for DiskFile {
    type Domain = DiskDomain;

    fn open(&mut self) -> Result<DiskDomain, DomainError> {
        DiskDomain::open(&self.folder.path("log"), &small_log())
    }

    fn crash(&mut self, domain: DiskDomain) {
        drop(domain);
    }

    fn tear(&mut self) {
        let path = self.folder.path("log");
        let before = std::fs::read(&path).expect("the log can be read");
        let mut domain = self.open().expect("a healthy log");
        domain.submit(Token(2), &[7; 3_000]).expect("there is room");
        await_completions(&mut domain, 1);
        drop(domain);
        // Of the whole record only the first sector is kept; the state knows nothing of it.
        let after = std::fs::read(&path).expect("the log can be read");
        let record =
            after.windows(3_000).position(|window| window == [7; 3_000]).expect("the record is there");
        let cut = (record / 512 + 1) * 512;
        let mut torn = before;
        torn[record - 40..cut].copy_from_slice(&after[record - 40..cut]);
        std::fs::write(&path, torn).expect("the log can be written");
    }

    fn make_foreign(&mut self) {
        poke(&self.folder.path("log"), VERSION_OFFSET, &[99]);
    }

    fn record_bytes_max(&self) -> usize {
        4_096
    }

    fn locks(&self) -> bool {
        true
    }
}

struct DiskMemory {
    storage: Arc<FaultyStorage>,
    writer: DiskWriter,
}

impl Fixture for DiskMemory {
    type Domain = DiskDomain;

    fn open(&mut self) -> Result<DiskDomain, DomainError> {
        let config = DiskConfig { writer: self.writer, ..small_log() };
        DiskDomain::open_on(Arc::clone(&self.storage) as Arc<dyn Storage>, Path::new("memory"), &config)
    }

    fn crash(&mut self, domain: DiskDomain) {
        self.storage.plan(0, Fault::Tear { seed: self.storage.write_count() });
        drop(domain);
        self.storage.repair();
    }

    fn tear(&mut self) {
        let mut domain = self.open().expect("a healthy log");
        self.storage.plan(0, Fault::Cut { bytes: 600 });
        domain.submit(Token(2), &[7; 3_000]).expect("there is room");
        drop(domain);
        assert!(self.storage.is_broken(), "the write was torn");
        self.storage.repair();
    }

    fn make_foreign(&mut self) {
        self.storage.write_at(VERSION_OFFSET, &[99]).expect("a healthy storage");
    }

    fn record_bytes_max(&self) -> usize {
        4_096
    }

    fn locks(&self) -> bool {
        false
    }
}

fn poke(path: &PathBuf, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("the log can be opened");
    file.write_all_at(bytes, offset).expect("the log can be written");
}
