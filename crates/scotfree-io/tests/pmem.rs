//! The pmem domain: refused where the file system offers no DAX; where it is granted, under loss of power
//! at every step, on memory behind a simulated cache that writes back when it likes.

mod common;

use common::Folder;
use scotfree_core::{Survives, Token};
use scotfree_io::conformance::domain::{records, suite, Fixture, Model};
use scotfree_io::conformance::write_back::{CachePlant, CachedMedium};
use scotfree_io::pmem::{probe, Flush, PmemMemory, STREAMING_BYTES_MIN};
use scotfree_io::ram::{Media, RamConfig, RamDomain};
use scotfree_io::{DomainError, PersistenceDomain};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SLOTS_OFFSET: u64 = 8 * 4_096;
const RECORD_BYTES_MAX: usize = 5_000;

#[test]
fn a_file_system_without_dax_is_refused_and_nothing_is_made() {
    for folder in [Some(Folder::new()), Folder::in_memory()].into_iter().flatten() {
        let path = folder.path("log");
        let refused = match RamDomain::open(&path, &config()) {
            Ok(domain) => {
                assert_eq!(domain.survives(), Survives::PowerLoss);
                println!("SKIP: {} offers DAX", path.display());
                continue;
            }
            Err(refused) => refused,
        };
        assert!(matches!(refused, DomainError::NotPersistent { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("MAP_SYNC") && text.contains("-o dax") && text.contains("disk:"), "{text}");
        assert!(!path.exists(), "{} was made", path.display());
        let is_empty = path.parent().expect("a folder").read_dir().expect("it can be read").next().is_none();
        assert!(is_empty, "something was left");
        assert!(probe(&path).is_err());
    }
}

#[test]
fn a_log_that_is_there_is_refused_and_left_alone() {
    let folder = Folder::new();
    let path = folder.path("log");
    let mut domain =
        RamDomain::open(&path, &RamConfig { media: Media::Volatile, ..config() }).expect("a log");
    domain.submit(Token(1), b"one").expect("there is room");
    drop(domain);
    let before = std::fs::read(&path).expect("it is there");
    match RamDomain::open(&path, &config()) {
        Ok(_) => println!("SKIP: {} offers DAX", path.display()),
        Err(refused) => {
            assert!(matches!(refused, DomainError::NotPersistent { .. }), "{refused}");
            assert!(std::fs::read(&path).expect("it is there") == before, "it was written to");
        }
    }
    std::fs::write(&path, b"").expect("an empty file");
    assert!(matches!(probe(&path), Err(DomainError::Foreign { .. })));
    assert!(matches!(probe(path.parent().expect("a folder")), Err(DomainError::Foreign { .. })));
    assert!(matches!(probe(&folder.path("none/log")), Err(DomainError::Io { .. })));
}

#[test]
fn a_file_system_without_nameless_files_is_refused_as_well() {
    let refused = probe(Path::new("/proc/log")).expect_err("/proc is no place for logs");
    assert!(matches!(refused, DomainError::NotPersistent { .. }), "{refused}");
    assert!(refused.to_string().contains("O_TMPFILE"), "{refused}");
}

#[test]
fn slots_conform_with_every_way_out_of_the_processor() {
    for flush in Flush::all() {
        for streaming_bytes_min in [0, STREAMING_BYTES_MIN, usize::MAX] {
            let flush = flush.streaming_from(streaming_bytes_min);
            suite(|| Flushed { slots: Pmem { loses_power: false, ..Pmem::new() }, flush });
        }
    }
}

#[test]
fn pmem_conforms_under_loss_of_power() {
    suite(Pmem::new);
}

#[test]
fn pmem_conforms_under_the_death_of_processes() {
    suite(|| Pmem { loses_power: false, ..Pmem::new() });
}

/// What is done to a domain, with the record's size.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Submit(u64, usize),
    Erase(u64),
    Flush,
}

const FLUSH: Token = Token(1_000);
/// Fresh, replaced, erased, used again in a half that held a longer record; records within a line, of some
/// lines, and larger than a page, which give blocks back.
const DEEDS: [Deed; 12] = [
    Deed::Submit(1, 20),
    Deed::Submit(1, 200),
    Deed::Submit(2, 0),
    Deed::Submit(1, 33),
    Deed::Erase(1),
    Deed::Submit(1, 100),
    Deed::Submit(3, RECORD_BYTES_MAX),
    Deed::Erase(3),
    Deed::Flush,
    Deed::Submit(3, 90),
    Deed::Submit(2, 64),
    Deed::Erase(2),
];

#[test]
fn the_power_may_be_lost_at_every_step() {
    for seed in 0..8 {
        every_step_of(&DEEDS, seed, None).expect("nothing that was completed is lost");
    }
}

#[test]
fn the_power_may_be_lost_while_the_log_of_a_dead_process_is_opened() {
    for death in (0..steps_of(&DEEDS)).step_by(3) {
        for cut in 0.. {
            let mut fixture = Pmem::new();
            let mut model = Model::default();
            // The process dies: what it has stored is seen by the next, whether it is on the medium or not.
            fixture.run(&DEEDS, death, None, &mut model);
            fixture.medium.plan_death(cut);
            drop(fixture.open_again().expect("the log of a dead process"));
            let was_cut = fixture.medium.is_dead();
            fixture.medium.lose_power(death << 32 ^ cut);
            check(&mut fixture, &mut model);
            if !was_cut {
                break;
            }
        }
    }
}

#[test]
fn each_mistake_in_the_use_of_the_cache_is_found() {
    // A fresh record has two fences: before it becomes valid, and after.
    let fresh: Vec<Deed> = (1..8).map(|token| Deed::Submit(token, 30 * token as usize)).collect();
    for plant in [
        CachePlant::ContentNotFlushed,
        CachePlant::WordsNotFlushed,
        CachePlant::FenceLeftOut { is_second: false },
        CachePlant::FenceLeftOut { is_second: true },
    ] {
        let found = (0..20).find_map(|seed| every_step_of(&fresh, seed, Some(plant)).err());
        println!("{plant:?}: {}", found.unwrap_or_else(|| panic!("{plant:?} was not found")));
    }
}

/// Loses the power at every step of `deeds`; the first complaint.
fn every_step_of(deeds: &[Deed], seed: u64, plant: Option<CachePlant>) -> Result<(), String> {
    for step in 0..=steps_of(deeds) {
        let broken = std::panic::catch_unwind(|| {
            let mut fixture = Pmem::new();
            let mut model = Model::default();
            fixture.run(deeds, step, plant, &mut model);
            fixture.medium.lose_power(seed << 32 ^ step);
            check(&mut fixture, &mut model);
        });
        if let Err(broken) = broken {
            let text = broken.downcast_ref::<String>().cloned().unwrap_or_default();
            return Err(format!("seed {seed}, step {step}: {text}"));
        }
    }
    Ok(())
}

/// How many steps the deeds take.
fn steps_of(deeds: &[Deed]) -> u64 {
    let mut fixture = Pmem::new();
    fixture.run(deeds, u64::MAX >> 1, None, &mut Model::default());
    fixture.medium.step_count()
}

/// What is found must be what was completed, and what comes after is found as well.
fn check(fixture: &mut Pmem, model: &mut Model) {
    let mut domain = fixture.open().expect("a log after a loss of power");
    model.check_after_crash(&records(&domain).0);
    domain.submit(Token(1), b"later").expect("the log goes on");
    drop(domain);
    fixture.medium.lose_power(7);
    let found = records(&fixture.open().expect("a log after a second loss")).0;
    assert_eq!(found.get(&Token(1)).map(Vec::as_slice), Some(&b"later"[..]));
}

fn config() -> RamConfig {
    RamConfig {
        slot_count: 32,
        record_bytes_max: RECORD_BYTES_MAX,
        media: Media::PMEM,
        ..RamConfig::default()
    }
}

/// A log whose file is real and whose slots lie in simulated memory.
struct Pmem {
    folder: Folder,
    medium: CachedMedium,
    /// Whether a crash is a loss of power, and not only the death of the process.
    loses_power: bool,
    crash_count: u64,
}

impl Pmem {
    fn new() -> Pmem {
        let folder = Folder::in_memory().unwrap_or_else(Folder::new);
        Pmem { folder, medium: CachedMedium::default(), loses_power: true, crash_count: 0 }
    }

    fn file(&self) -> PathBuf {
        self.folder.path("log")
    }

    /// Does the deeds on a new log until its process ends at `death`, and notes what it saw.
    fn run(&mut self, deeds: &[Deed], death: u64, plant: Option<CachePlant>, model: &mut Model) {
        let mut domain = self.open().expect("a new log");
        if let Some(plant) = plant {
            self.medium.plant(plant);
        }
        self.medium.plan_death(death);
        for (index, deed) in deeds.iter().enumerate() {
            if self.medium.is_dead() {
                break;
            }
            match *deed {
                Deed::Submit(token, length) => {
                    let record = vec![index as u8 + 1; length];
                    domain.submit(Token(token), &record).expect("there is room");
                    model.submitted(Token(token), &record);
                }
                Deed::Erase(token) => {
                    domain.erase(Token(token)).expect("erasing works");
                    model.erased(Token(token));
                }
                Deed::Flush => {
                    domain.flush_erasures(FLUSH);
                    model.flushed(FLUSH);
                }
            }
            let mut done = Vec::new();
            domain.completions(&mut done).expect("a healthy log completes");
            // The dead see no completions.
            if !self.medium.is_dead() {
                model.completed(&done);
            }
        }
    }

    /// Opens the log while an end is planned.
    fn open_again(&mut self) -> Result<RamDomain, DomainError> {
        self.write_file();
        let file_bytes = |file: &std::fs::File, length: usize| {
            let mut content = vec![0; length];
            file.read_exact_at(&mut content, 0).map(|()| content)
        };
        RamDomain::open_on(&self.file(), &config(), &|file, length| {
            Ok(self.medium.map(|| file_bytes(file, length).expect("the file can be read")))
        })
    }

    /// Gives the file what the memory has, since the domain looks into the file for what is in use.
    fn write_file(&self) {
        let Some(content) = self.medium.content() else { return };
        let file = OpenOptions::new().write(true).open(self.file()).expect("the log can be opened");
        file.set_len(SLOTS_OFFSET).expect("the log can be cut");
        file.set_len(content.len() as u64).expect("the log can grow");
        for (page, bytes) in content.chunks(4_096).enumerate().skip(8) {
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_all_at(bytes, page as u64 * 4_096).expect("the log can be written");
            }
        }
    }

    fn poke(&self, offset: u64, bytes: &[u8]) {
        self.write_file();
        self.medium.forget();
        let file = OpenOptions::new().write(true).open(self.file()).expect("the log can be opened");
        file.write_all_at(bytes, offset).expect("the log can be written");
    }
}

/// The real instructions, on a file that is none of persistent memory.
struct Flushed {
    slots: Pmem,
    flush: Flush,
}

impl Fixture for Flushed {
    type Domain = RamDomain;

    fn open(&mut self) -> Result<RamDomain, DomainError> {
        RamDomain::open_on(&self.slots.file(), &config(), &|file, length| {
            Ok(Box::new(PmemMemory::map_unpersistent(file, length, self.flush).expect("it can be mapped")))
        })
    }

    fn crash(&mut self, domain: RamDomain) {
        drop(domain);
    }

    fn tear(&mut self) {
        self.slots.tear();
    }

    fn make_foreign(&mut self) {
        self.slots.make_foreign();
    }

    fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }

    fn locks(&self) -> bool {
        true
    }
}

impl Fixture for Pmem {
    type Domain = RamDomain;

    fn open(&mut self) -> Result<RamDomain, DomainError> {
        self.medium.revive();
        self.open_again()
    }

    fn crash(&mut self, domain: RamDomain) {
        drop(domain);
        self.crash_count += 1;
        if self.loses_power {
            self.medium.lose_power(self.crash_count);
        }
    }

    fn tear(&mut self) {
        // Slot 2, first half: marked as being written, some of the content there.
        self.poke(SLOTS_OFFSET + 2 * 2 * 8_192, &[1, 0, 0, 0, 100, 0, 0, 0]);
    }

    fn make_foreign(&mut self) {
        self.poke(8, &[99]);
    }

    fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }

    fn locks(&self) -> bool {
        true
    }
}
