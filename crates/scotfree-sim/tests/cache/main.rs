//! The cache before persist, in persist's world: what clients saw decides alone.
//!
//! A cache without a log would not be the thing, and no remedy names another: so the world that has both stands here.
//! `CACHE_SEEDS=n` or `n..m` tries other seeds; `SEED=n KIND=name` replays one and shows everything that happened.

mod registers;
mod worlds;

use registers::{CACHE, FAULTY};
use remedy_cache::CacheFault;
use remedy_persist_world::model::Invariant;
use remedy_persist_world::scenario::Judge;
use remedy_persist_world::{campaign, run, CampaignReport, Depth, Failure, Options, Scenario};
use scotfree_device::Maker;
use scotfree_session::Fault;
use std::ops::Range;
use worlds::{with, Kind, KINDS};

/// Within how many seeds a fault must be found.
const SEEDS_FAULT: u64 = 2_000;

fn seeds(default: u64) -> Range<u64> {
    let Ok(text) = std::env::var("CACHE_SEEDS") else { return 0..default };
    let number = |text: &str| text.parse().expect("CACHE_SEEDS is a number, or two with .. between");
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

fn judged(seeds: Range<u64>, scenario: &(dyn Fn(u64) -> Scenario + Sync)) -> CampaignReport {
    campaign(seeds, &Options { scenario, failures_max: 1, ..Options::default() }, |_| {})
}

/// No order is broken in any world of this kind, and so much of a hundred reads is answered there.
fn holds(name: &str, kind: Kind, seed_count: u64, percent: u64) {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        if std::env::var("KIND").as_deref() != Ok(name) {
            return;
        }
        match run(seed, with(CACHE, kind, seed), Depth::All) {
            Ok(report) => return println!("{report}"),
            Err(failure) => panic!("{failure}"),
        }
    }
    let report = judged(seeds(seed_count), &|seed| with(CACHE, kind, seed));
    let tell = |failure: &Failure| {
        let violation = &failure.violation;
        format!("seed {}: {:?}: {}", failure.seed, violation.invariant, violation.detail)
    };
    let failure = report.failures.first().map(tell);
    assert_eq!(failure, None, "replay it with SEED=n KIND='{name}' cargo test -p scotfree-sim --test cache");
    println!("{name}: {}", report.total);
    assert!(100 * report.total.answered > percent * report.total.completed_reads, "{name}: {}", report.total);
}

#[test]
fn in_every_world_some_order_explains_what_clients_saw() {
    for (name, kind) in KINDS {
        let seed_count = if name == "usual" { 600 } else { 200 };
        holds(name, kind, seed_count, 1);
    }
}

#[test]
fn whatever_role_dies_at_whatever_step_some_order_explains_what_clients_saw() {
    holds("crashes", worlds::crashes, 1_000, 2);
}

#[test]
fn in_long_histories_half_of_the_reads_are_answered_and_some_order_explains_them() {
    holds("busy", worlds::busy, 30, 45);
}

/// The worlds in which clients can see that a rule is off.
fn kind_for(fault: CacheFault) -> Kind {
    match fault {
        CacheFault::ServeWithoutLease => worlds::around,
        CacheFault::IgnoreFurtherKeys => worlds::pairs,
        CacheFault::IgnoreDeadline => worlds::living,
        CacheFault::KeepAcrossEpoch => worlds::changed,
        CacheFault::CompareHashOnly => worlds::colliding,
        CacheFault::ServeOverUnsafe => worlds::given_up,
        CacheFault::TakeOldForNew => worlds::sent_again,
        CacheFault::OutliveUnexecuted => worlds::lagging,
        _ => worlds::usual,
    }
}

#[test]
fn clients_see_for_themselves_which_rule_is_off() {
    let mut missed = Vec::new();
    for (fault, make) in CacheFault::ALL.into_iter().zip(FAULTY) {
        let (cache, kind) = (Maker::plain("cache", make), kind_for(fault));
        let scenario = |seed| {
            let mut scenario = with(cache, kind, seed);
            scenario.judge = Judge::Clients;
            // The pipeline itself lets nobody answer without a lease: that has to be off as well.
            scenario.planted = (fault == CacheFault::ServeWithoutLease).then_some(Fault::AbsorbWrite);
            scenario
        };
        let report = judged(seeds(SEEDS_FAULT), &scenario);
        let by_clients = |failure: &Failure| failure.violation.invariant == Invariant::Strict;
        assert!(report.failures.iter().all(by_clients), "{fault:?} is not found by histories");
        match report.failures.first() {
            Some(failure) => println!("{fault:?}: seed {}", failure.seed),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
