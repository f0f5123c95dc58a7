//! Many seeds, in which much goes wrong; and each safety rule switched off, which must be seen.

use remedy_replicate::{Fault, HermesFault, Planted};
use remedy_replicate_world::{Protocol, Report, Scenario, World};
use scotfree_sim::{campaign, run, Depth, Options};

/// `SEEDS=n` tries more.
fn seed_count() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2_000)
}

fn total(scenario: &(dyn Fn(u64) -> Scenario + Sync)) -> Report {
    let options = Options::<World> { scenario, failures_max: 1, ..Options::default() };
    let report = campaign(0..seed_count(), &options, |_| {});
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    report.total
}

fn assert_all_happened(total: &Report) {
    for (name, number) in total.numbers() {
        let is_idle = ["packets_detoured", "trace_hash", "owed", "turned_away"].contains(&name);
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

#[test]
fn a_window_of_a_few_writes_only_slows() {
    total(&|seed| Scenario { window_bytes_max: 40, ..Scenario::craq(seed) });
    total(&|seed| Scenario { window_bytes_max: 40, ..Scenario::hermes(seed) });
}

#[test]
fn hermes_keeps_every_promise() {
    assert_all_happened(&total(&Scenario::hermes));
}

#[test]
fn what_an_operator_starts_again_breaks_nothing() {
    total(&|seed| Scenario::stated(seed, Protocol::Hermes));
}

#[test]
fn a_joiner_that_members_do_not_hear_holds_nothing_up() {
    for protocol in [Protocol::Chain, Protocol::Craq, Protocol::Hermes] {
        total(&|seed| Scenario::apart(seed, protocol));
    }
}

#[test]
fn what_devices_have_acknowledged_is_executed_once_in_its_order() {
    for protocol in [Protocol::Chain, Protocol::Craq] {
        let total = total(&|seed| Scenario::behind_devices(seed, protocol));
        assert!(total.owed > 10 && total.turned_away > 10, "{total}");
    }
}

#[test]
fn storms_of_chains_break_nothing() {
    for protocol in [Protocol::Chain, Protocol::Craq] {
        total(&|seed| Scenario::storm(seed, protocol));
    }
}

#[test]
fn members_that_join_two_at_a_time_lack_nothing() {
    total(&|seed| Scenario::joining(seed, Protocol::Hermes));
}

#[test]
fn storms_of_hermes_break_nothing() {
    total(&|seed| Scenario::storm(seed, Protocol::Hermes));
}

/// The scenarios that `KIND` names.
fn scenario_of(kind: &str, seed: u64) -> Scenario {
    match kind {
        "chain" => Scenario::chain(seed),
        "chain-behind" => Scenario::behind_devices(seed, Protocol::Chain),
        "craq-behind" => Scenario::behind_devices(seed, Protocol::Craq),
        "chain-storm" => Scenario::storm(seed, Protocol::Chain),
        "hermes" => Scenario::hermes(seed),
        "hermes-stated" => Scenario::stated(seed, Protocol::Hermes),
        "hermes-joining" => Scenario::joining(seed, Protocol::Hermes),
        "hermes-apart" => Scenario::apart(seed, Protocol::Hermes),
        "hermes-storm" => Scenario::storm(seed, Protocol::Hermes),
        "craq-storm" => Scenario::storm(seed, Protocol::Craq),
        _ => Scenario::craq(seed),
    }
}

/// The fault that `FAULT` names, if any is planted.
fn planted() -> Planted {
    let name = std::env::var("FAULT").unwrap_or_default();
    let faults = Fault::ALL.into_iter().chain(HermesFault::ALL.map(Fault::Hermes));
    Planted(faults.into_iter().find(|fault| format!("{fault:?}") == name))
}

/// `SEED=n KIND=craq cargo test -p remedy-replicate-world one_seed -- --nocapture` shows a run that fails.
#[test]
fn one_seed() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let kind = std::env::var("KIND").unwrap_or_default();
    let scenario = Scenario { planted: planted(), ..scenario_of(&kind, seed) };
    if let Err(failure) = run::<World>(seed, scenario, Depth::All) {
        panic!("{failure}");
    }
}

/// The scenarios in which a fault shows. Most show in any that are bad enough.
fn scenario_for(fault: Fault, seed: u64) -> Scenario {
    match fault {
        Fault::AnyoneAnswers => Scenario::chain(seed),
        Fault::DisplacedOvertaken => Scenario::behind_devices(seed, Protocol::Chain),
        Fault::TailNotIntroduced => Scenario::joining(seed, Protocol::Chain),
        _ => Scenario::craq(seed),
    }
}

/// Looks for each of these; `FAULT=name` for that one only.
fn assert_found(faults: impl Iterator<Item = Fault>, scenario: fn(Fault, u64) -> Scenario) {
    let mut missed = Vec::new();
    let only = std::env::var("FAULT").ok();
    let is_wanted = |fault: &Fault| only.as_ref().is_none_or(|name| format!("{fault:?}").contains(name));
    for fault in faults.filter(is_wanted) {
        let with = |seed| Scenario { planted: Planted(Some(fault)), ..scenario(fault, seed) };
        let options = Options::<World> { scenario: &with, failures_max: 1, ..Options::default() };
        match campaign(0..20_000, &options, |_| {}).failures.first() {
            Some(found) => println!("{fault:?}: seed {} {:?}", found.seed, found.violation.invariant),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn every_planted_fault_is_found() {
    assert_found(Fault::ALL.into_iter(), scenario_for);
}

/// The scenarios in which a fault of Hermes shows.
fn hermes_for(fault: Fault, seed: u64) -> Scenario {
    match fault {
        Fault::Hermes(HermesFault::OvertakenForgotten | HermesFault::GivenTakenForValid) => {
            Scenario::storm(seed, Protocol::Hermes)
        }
        Fault::Hermes(
            HermesFault::OpenNotTold | HermesFault::GivenToSeveral | HermesFault::StateBeforeCounted,
        ) => Scenario::joining(seed, Protocol::Hermes),
        Fault::Hermes(HermesFault::CountedUnheard) => Scenario::apart(seed, Protocol::Hermes),
        Fault::Hermes(HermesFault::AcksKept | HermesFault::RestoredTakenForValid) => {
            Scenario::stated(seed, Protocol::Hermes)
        }
        _ => Scenario::hermes(seed),
    }
}

#[test]
fn every_planted_fault_of_hermes_is_found() {
    let common = [Fault::LeaseIgnored, Fault::OlderEpochTaken];
    assert_found(common.into_iter().chain(HermesFault::ALL.map(Fault::Hermes)), hermes_for);
}
