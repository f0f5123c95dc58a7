//! Many seeds, in which much goes wrong; and each safety rule switched off, which must be seen.

use remedy_replicate::{Fault, Planted};
use remedy_replicate_world::{Report, Scenario, World};
use scotfree_sim::{campaign, run, Depth, Options};

const SEED_COUNT: u64 = 3_000;

fn total(scenario: &(dyn Fn(u64) -> Scenario + Sync)) -> Report {
    let options = Options::<World> { scenario, failures_max: 1, ..Options::default() };
    let report = campaign(0..SEED_COUNT, &options, |_| {});
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    report.total
}

fn assert_all_happened(total: &Report) {
    for (name, number) in total.numbers() {
        let is_idle = ["packets_detoured", "trace_hash"].contains(&name);
        assert!(number > 10 || is_idle, "{name} came to {number} only:\n{total}");
    }
}

#[test]
fn a_chain_keeps_every_promise() {
    assert_all_happened(&total(&Scenario::chain));
}

#[test]
fn craq_keeps_every_promise() {
    assert_all_happened(&total(&Scenario::craq));
}

/// `SEED=n cargo test -p remedy-replicate-world one_seed -- --nocapture` shows a run.
#[test]
fn one_seed() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let kind = std::env::var("KIND").unwrap_or_default();
    let scenario = if kind == "chain" { Scenario::chain(seed) } else { Scenario::craq(seed) };
    match run::<World>(seed, scenario, Depth::All) {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        let with = |seed: u64| {
            let scenario =
                if fault == Fault::AnyoneAnswers { Scenario::chain(seed) } else { Scenario::craq(seed) };
            Scenario { planted: Planted(Some(fault)), ..scenario }
        };
        let options = Options::<World> { scenario: &with, failures_max: 1, ..Options::default() };
        match campaign(0..4_000, &options, |_| {}).failures.first() {
            Some(found) => println!("{fault:?}: seed {} {:?}", found.seed, found.violation.invariant),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
