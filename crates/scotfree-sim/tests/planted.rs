//! Each safety rule is switched off once, and the simulator must notice; with the rule in force the
//! same seeds pass. A check that never failed has not been tested.

use remedy_persist::Fault;
use scotfree_core::{Durability, Nanos, SeqNum};
use scotfree_sim::network::Place;
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_sim::scenario::{Drop, Mishap, Trouble, When};
use scotfree_sim::{campaign, Options, Scenario};
use scotfree_wire::Kind;

/// Within how many seeds a planted fault must be found.
const SEED_COUNT: u64 = 600;

/// The scenarios in which a fault shows. Most show in any world that is bad enough.
fn scenario_for(fault: Fault, seed: u64) -> Scenario {
    match fault {
        Fault::AdmitOutOfOrder => left_behind(seed),
        Fault::DeleteBeforeEmpty => silent_death(seed),
        Fault::ApplyUnknownSession => return_of_the_device(seed),
        _ => Scenario::random(seed),
    }
}

/// One update of a client never reaches the device, those behind it do, and the client dies. What
/// the device has not admitted holds nobody up: all others go on at once.
fn left_behind(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 76);
    let mut scenario = Scenario::calm();
    scenario.client_count = 2;
    scenario.work.reads = PerMillion::NEVER;
    scenario.work.bypasses = PerMillion::NEVER;
    let (from, to) = (Place::Client(0), Place::Device(0));
    let seq = SeqNum(rng.between(10, 20));
    scenario.drops = vec![Drop { from, to, kind: Kind::Update, seq, count: u32::MAX }];
    let died_at = When::Time(Nanos::from_millis(rng.between(16, 20)));
    scenario.mishaps = vec![Mishap { when: died_at, what: Trouble::CrashClient { client: 0, down: None } }];
    scenario.calm_at = Nanos::from_millis(21);
    scenario.recovery_max = Nanos::from_millis(25);
    scenario
}

/// A client dies after its device has acknowledged updates that cannot reach the server before the
/// session expires.
fn silent_death(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 77);
    let mut scenario = Scenario::calm();
    scenario.client_count = 2;
    scenario.work.reads = PerMillion::percent(10);
    scenario.work.early = PerMillion::ALWAYS;
    scenario.expiry = Nanos::from_millis(60);
    scenario.calm_at = Nanos::from_millis(250);
    let cut_at = Nanos(rng.between(1_000_000, 15_000_000));
    let died_at = cut_at.plus(Nanos(rng.between(100_000, 4_000_000)));
    let (from, to) = (Place::Device(0), Place::Server);
    scenario.mishaps = vec![
        Mishap { when: When::Time(cut_at), what: Trouble::Cut { from, to, span: Nanos::from_millis(110) } },
        Mishap { when: When::Time(died_at), what: Trouble::CrashClient { client: 0, down: None } },
    ];
    scenario
}

/// A device is excluded, sessions end without it, and it comes back with what it held of them.
fn return_of_the_device(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 78);
    let mut scenario = Scenario::calm();
    scenario.client_count = 3;
    scenario.device_count = 2;
    scenario.device_acks = 2;
    scenario.asked = rng.pick(&[Durability::Ram, Durability::Disk]);
    scenario.work.reads = PerMillion::percent(10);
    scenario.expiry = Nanos::from_millis(60);
    scenario.calm_at = Nanos::from_millis(300);
    let lost_at = Nanos(rng.between(5_000_000, 15_000_000));
    let back = Some(Nanos::from_millis(180));
    let lost = Trouble::LoseDevice { device: rng.index(2), noticed: Nanos::from_millis(1), back };
    let died = |client| Trouble::CrashClient { client, down: None };
    let after = |span| When::Time(lost_at.plus(Nanos::from_millis(span)));
    scenario.mishaps = vec![
        Mishap { when: When::Time(lost_at), what: lost },
        Mishap { when: after(5), what: died(0) },
        Mishap { when: after(30), what: died(1) },
    ];
    scenario
}

fn failures(fault: Fault, planted: Option<Fault>) -> Vec<String> {
    let scenario = |seed| Scenario { planted, ..scenario_for(fault, seed) };
    let options = Options { scenario: &scenario, failures_max: 1, ..Options::default() };
    let report = campaign(0..SEED_COUNT, &options, |_| {});
    let tell = |failure: &scotfree_sim::Failure| {
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
    for fault in
        [Fault::AdmitOutOfOrder, Fault::DeleteBeforeEmpty, Fault::ApplyUnknownSession, Fault::IgnoreOrder]
    {
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
    let returned = total(Fault::ApplyUnknownSession);
    assert!(returned.devices_reinstated >= 45 && returned.expired >= 50, "{returned}");
    assert!(returned.dead_letters > 0, "{returned}");
}
