//! Each safety rule is switched off once, and the simulator must notice; with the rule in force the
//! same seeds pass. A check that never failed has not been tested.

use remedy_persist_world::{campaign, made, Options, Scenario};
use scotfree_session::Fault;

/// Within how many seeds a planted fault must be found.
const SEED_COUNT: u64 = 600;

/// The scenarios in which a fault shows. Most show in any world that is bad enough.
fn scenario_for(fault: Fault, seed: u64) -> Scenario {
    match fault {
        Fault::AdmitOutOfOrder => made::left_behind(seed),
        Fault::PlaceOverGap => made::forgotten_run(seed),
        Fault::ForgetLeases => made::excluded_alive(seed),
        Fault::DeleteBeforeEmpty => made::silent_death(seed),
        Fault::ApplyUnknownSession => made::return_of_the_device(seed),
        Fault::HearRemovedKey => made::rotated_key(seed),
        Fault::ReplayAsFresh => made::refused_replay(seed),
        _ => Scenario::random(seed),
    }
}

fn failures(fault: Fault, planted: Option<Fault>) -> Vec<String> {
    let scenario = |seed| Scenario { planted, ..scenario_for(fault, seed) };
    let options = Options { scenario: &scenario, failures_max: 1, ..Options::default() };
    let report = campaign(0..SEED_COUNT, &options, |_| {});
    let tell = |failure: &remedy_persist_world::Failure| {
        format!("seed {}: {:?}: {}", failure.seed, failure.violation.invariant, failure.violation.detail)
    };
    report.failures.iter().map(tell).collect()
}

#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        match failures(fault, Some(fault)).first() {
            Some(found) => println!("{fault:?}: {found}"),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found within {SEED_COUNT} seeds: {missed:?}");
}

#[test]
fn without_the_fault_the_same_seeds_pass() {
    for fault in [
        Fault::AdmitOutOfOrder,
        Fault::PlaceOverGap,
        Fault::ForgetLeases,
        Fault::DeleteBeforeEmpty,
        Fault::ApplyUnknownSession,
        Fault::HearRemovedKey,
        Fault::ReplayAsFresh,
        Fault::IgnoreOrder,
    ] {
        assert_eq!(failures(fault, None), Vec::<String>::new(), "{fault:?}");
    }
}

#[test]
fn the_directed_scenarios_do_what_they_are_made_for() {
    let total = |fault| {
        let scenario = |seed| scenario_for(fault, seed);
        campaign(0..50, &Options { scenario: &scenario, ..Options::default() }, |_| {}).total
    };
    let silent_death = total(Fault::DeleteBeforeEmpty);
    assert!(silent_death.expired >= 50 && silent_death.completed_early > 500, "{silent_death}");
    let refused = total(Fault::ReplayAsFresh);
    assert!(refused.refused >= 30 && refused.server_crashes >= 60, "{refused}");
    let rotated = total(Fault::HearRemovedKey);
    assert!(rotated.rekeyed == 50 * 6 && rotated.sessions_ended >= 100, "{rotated}");
    assert!(rotated.completed_early > 500, "{rotated}");
    let returned = total(Fault::ApplyUnknownSession);
    assert!(returned.devices_reinstated >= 45 && returned.expired >= 50, "{returned}");
    assert!(returned.dead_letters > 0, "{returned}");
}
