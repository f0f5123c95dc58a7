//! The cache before persist, in persist's world: what clients saw decides alone.
//!
//! A cache without a log would not be the thing, and no remedy names another: so the world that has both stands here.
//! `CACHE_SEEDS=n` tries another number of seeds; `SEED=n` replays one and shows everything that happened.

use remedy_cache::{CacheFault, Language, Limits, Names, Planted, ReadCache};
use remedy_persist_world::app::{App, Op, Reply, WriteToken};
use remedy_persist_world::model::Invariant;
use remedy_persist_world::rng::PerMillion;
use remedy_persist_world::scenario::{Judge, Mishap, Trouble, When};
use remedy_persist_world::{campaign, run, CampaignReport, Depth, Failure, Options, Scenario};
use scotfree_core::{Durability, Nanos};
use scotfree_device::{Function, Maker, Settings};
use scotfree_sim::media::{Crash, DiskTimes};
use scotfree_wire::ObjectNote;

/// The application of persist's world.
#[derive(Debug)]
struct Registers;

const SET: u8 = 1;
const GET: u8 = 4;

impl Language for Registers {
    /// Sessions' histories are judged whole.
    fn caller(&self, _payload: &[u8]) -> Option<u32> {
        None
    }

    fn read(&self, payload: &[u8], key: &mut Vec<u8>) -> bool {
        key.extend(payload.get(1));
        payload.first() == Some(&GET)
    }

    fn overwrite(&self, payload: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        let (Some([SET, cell]), Some(token)) = (payload.first_chunk(), payload.get(4..12)) else {
            return false;
        };
        let token = WriteToken(u64::from_le_bytes(token.try_into().expect("eight bytes")));
        let mut app = App::new(1);
        app.apply(&Op::Set { cell: 0, token });
        app.look(&Op::Get { cell: 0 }).encode(48, value);
        key.push(*cell);
        true
    }

    fn names(&self, payload: &[u8]) -> Names {
        if payload.first() == Some(&SET) {
            Names::All
        } else {
            Names::Some
        }
    }

    fn lives(&self, reply: &[u8], _note: Option<ObjectNote>, value: &mut Vec<u8>) -> Option<Nanos> {
        value.extend_from_slice(reply);
        Reply::decode(false, reply).map(|_| Nanos::MAX)
    }
}

fn make(planted: Planted) -> Box<dyn Function> {
    let limits =
        Limits { admit_reads: 0, bucket_count: 8, bytes_max: 4_000, needs_word: false, ..Limits::default() };
    Box::new(ReadCache::new(limits, Box::new(Registers), planted))
}

const CACHE: Maker = Maker::plain("cache", |_| make(Planted::NONE));

fn with_fault<const FAULT: usize>(_settings: &Settings) -> Box<dyn Function> {
    make(Planted::some(FAULTS[FAULT]))
}

/// What breaks what clients see here. Here nobody names further keys and nothing expires, two keys have two hashes, and
/// a server keeps its data; crates/remedy-cache/tests has what shows the others.
const FAULTS: [CacheFault; 8] = [
    CacheFault::ServeStale,
    CacheFault::FillBelowVersion,
    CacheFault::FillBesideUnderWay,
    CacheFault::ForgetVersion,
    CacheFault::ServeBeforeDurable,
    CacheFault::PendingBesideUnderWay,
    CacheFault::NoFloor,
    CacheFault::ServeBeforeElders,
];

type Make = fn(&Settings) -> Box<dyn Function>;

const MAKES: [Make; FAULTS.len()] = [
    with_fault::<0>,
    with_fault::<1>,
    with_fault::<2>,
    with_fault::<3>,
    with_fault::<4>,
    with_fault::<5>,
    with_fault::<6>,
    with_fault::<7>,
];

/// What is acknowledged is on the disk, which takes its time; the device's host, and clients, die meanwhile.
fn with_slow_disk(seed: u64) -> Scenario {
    let mut scenario = Scenario::random(seed);
    scenario.asked = Durability::Disk;
    scenario.ram_survives_host = false;
    scenario.disk =
        DiskTimes { commit_min: Nanos::from_millis(1), commit_max: Nanos::from_millis(4), ..scenario.disk };
    scenario.network.loss = PerMillion::percent(20);
    scenario.work.early = PerMillion::percent(100);
    let mishap = |at_us: u64, what| Mishap { when: When::Time(Nanos::from_micros(at_us)), what };
    let crash = |at: u64| {
        let down = Nanos::from_micros(300);
        let client = Trouble::CrashClient { client: at as usize % 2, down: Some(Nanos::from_millis(1)) };
        let device = Trouble::CrashDevice { device: 0, kind: Crash::Host, down };
        let at_us = 12_000 * (at + 1) + seed * 37 % 9_000;
        [mishap(at_us, client), mishap(at_us + 1, device)]
    };
    scenario.mishaps = (0..5).flat_map(crash).collect();
    scenario
}

/// Several clients that read what others write, through devices of which the last has the cache, in worlds of all sorts.
fn with_cache(seed: u64, cache: Maker) -> Scenario {
    let mut scenario = match seed % 4 {
        0 => Scenario::several(seed),
        1 => Scenario::storm(seed),
        2 => Scenario::random(seed),
        _ => with_slow_disk(seed),
    };
    scenario.client_count = scenario.client_count.max(2);
    scenario.device_count = 1;
    scenario.device_acks = 1;
    if scenario.asked == Durability::None {
        scenario.asked = Durability::Ram;
    }
    let loses =
        |trouble: &Trouble| matches!(trouble, Trouble::LoseDevice { .. } | Trouble::ExcludeDevice { .. });
    // Those of devices that there are not any more go too.
    let names_another = |trouble: &Trouble| {
        let words = format!("{trouble:?}");
        ["device: 1", "device: 2", "Device(1)", "Device(2)"].iter().any(|device| words.contains(device))
    };
    scenario.mishaps.retain(|mishap| !loses(&mishap.what) && !names_another(&mishap.what));
    scenario.functions.insert(0, cache);
    scenario.work.cell_count = 3;
    scenario.work.answerable = true;
    scenario.work.reads = PerMillion::percent(60);
    scenario.work.relaxed = PerMillion::NEVER;
    // Every way leads through the device (K11).
    scenario.network.detour = PerMillion::NEVER;
    scenario
}

fn seed_count(default: u64) -> u64 {
    std::env::var("CACHE_SEEDS").ok().map_or(default, |text| text.parse().expect("CACHE_SEEDS is a number"))
}

fn judged(seeds: u64, cache: Maker, judge: Judge) -> CampaignReport {
    let scenario = |seed| Scenario { judge, ..with_cache(seed, cache) };
    let options = Options { scenario: &scenario, failures_max: 1, ..Options::default() };
    let report = campaign(0..seeds, &options, |_| {});
    let by_clients = |failure: &Failure| failure.violation.invariant == Invariant::Strict;
    assert!(judge == Judge::Everyone || report.failures.iter().all(by_clients));
    report
}

#[test]
fn in_every_world_some_order_explains_what_clients_saw() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        match run(seed, with_cache(seed, CACHE), Depth::All) {
            Ok(report) => return println!("{report}"),
            Err(failure) => panic!("{failure}"),
        }
    }
    let report = judged(seed_count(600), CACHE, Judge::Everyone);
    let failure =
        report.failures.first().map(|failure| format!("seed {}: {}", failure.seed, failure.violation.detail));
    assert_eq!(failure, None, "replay it with SEED=n cargo test -p scotfree-sim --test cache");
    println!("{}", report.total);
    assert!(report.total.answered > report.total.completed_reads / 50, "{}", report.total);
}

#[test]
fn clients_see_for_themselves_which_rule_is_off() {
    let mut missed = Vec::new();
    for (fault, make) in FAULTS.into_iter().zip(MAKES) {
        match judged(seed_count(2_000), Maker::plain("cache", make), Judge::Clients).failures.first() {
            Some(failure) => println!("{fault:?}: seed {}", failure.seed),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
