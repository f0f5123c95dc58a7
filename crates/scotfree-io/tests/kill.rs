//! A process that logs is killed at random moments; nothing that it saw completed is lost.
//!
//! The test runs itself again as the victim, which writes each completed token to its output.

mod common;

use common::Folder;
use scotfree_core::{Nanos, Token};
use scotfree_io::conformance::domain::{await_completions, records};
use scotfree_io::conformance::faults::Random;
use scotfree_io::disk::{DiskConfig, DiskDomain};
use scotfree_io::ram::{RamConfig, RamDomain};
use scotfree_io::{now_monotonic, PersistenceDomain};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set in the victim: which domain, and where.
const VICTIM: &str = "SCOT_IO_VICTIM";
const TOKEN_COUNT: u64 = 16;
const ROUNDS: u64 = 10;

#[test]
fn ram_survives_kills() {
    survive_kills("ram", |path| records(&open_ram(path)).0);
}

#[test]
fn disk_survives_kills() {
    survive_kills("disk", |path| records(&open_disk(path)).0);
}

/// The victim's life, when this program is started as one.
#[test]
fn victim() {
    let Some(task) = std::env::var_os(VICTIM) else { return };
    let task = task.into_string().expect("a readable task");
    let (kind, path) = task.split_once(':').expect("kind and path");
    match kind {
        "ram" => log_for_ever(open_ram(Path::new(path))),
        _ => log_for_ever(open_disk(Path::new(path))),
    }
}

/// Logs records whose content says which version they are, and says so when they are complete.
fn log_for_ever(mut domain: impl PersistenceDomain) {
    let next =
        records(&domain).0.values().map(|record| version_of(record)).max().map_or(1, |newest| newest + 1);
    let mut out = std::io::stdout().lock();
    for version in next.. {
        let token = Token(version % TOKEN_COUNT);
        domain.submit(token, &record_of(version)).expect("there is room");
        await_completions(&mut domain, 1);
        writeln!(out, "completed {version}").expect("the killer listens");
    }
}

fn survive_kills(kind: &str, reopen: impl Fn(&Path) -> BTreeMap<Token, Vec<u8>>) {
    let folder = Folder::new();
    let path = folder.path("log");
    let mut random = Random::new(7);
    let mut completed: BTreeMap<Token, u64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let lines = 1 + random.below(100) as usize;
        let extra = Nanos(random.below(300_000));
        for version in run_and_kill(kind, &path, lines, extra) {
            completed.insert(Token(version % TOKEN_COUNT), version);
        }
        let found = reopen(&path);
        for (token, version) in &completed {
            let record = found.get(token).expect("what was completed is found");
            let found_version = version_of(record);
            assert_eq!(*record, record_of(found_version), "records are whole");
            assert!(found_version >= *version, "token {token:?} went back from {version} to {found_version}");
        }
    }
    assert_eq!(completed.len() as u64, TOKEN_COUNT);
}

/// Runs a victim until it has completed `lines` records, and a little longer; all that it completed.
fn run_and_kill(kind: &str, path: &Path, lines: usize, extra: Nanos) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("a running program has a path"))
        .args(["--exact", "victim", "--nocapture"])
        .env(VICTIM, format!("{kind}:{}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be run again");
    let mut output = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    let mut versions = Vec::new();
    let note = |line: String, versions: &mut Vec<u64>| {
        versions.extend(line.strip_prefix("completed ").and_then(|version| version.parse::<u64>().ok()));
    };
    while versions.len() < lines {
        let line = output.next().expect("the victim lives until it is killed").expect("text");
        note(line, &mut versions);
    }
    let deadline = now_monotonic().plus(extra);
    while now_monotonic() < deadline {}
    child.kill().expect("it is our own");
    child.wait().expect("it was killed");
    // A line that was cut short by the kill has no end and may have lost digits: it is not counted.
    let rest: Vec<String> = output.map_while(Result::ok).collect();
    let whole = rest.len().saturating_sub(1);
    rest.into_iter().take(whole).for_each(|line| note(line, &mut versions));
    versions
}

/// Records of many sizes, the version in front.
fn record_of(version: u64) -> Vec<u8> {
    let mut record = version.to_le_bytes().to_vec();
    record.resize(8 + (version * 997 % 20_000) as usize, version as u8);
    record
}

fn version_of(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[..8].try_into().expect("eight bytes"))
}

fn open_ram(path: &Path) -> RamDomain {
    let config = RamConfig { slot_count: TOKEN_COUNT, record_bytes_max: 20_008, ..RamConfig::default() };
    RamDomain::open(path, &config).expect("a log after a kill")
}

fn open_disk(path: &Path) -> DiskDomain {
    let config = DiskConfig { log_bytes: 2 << 20, ..DiskConfig::default() };
    DiskDomain::open(path, &config).expect("a log after a kill")
}
