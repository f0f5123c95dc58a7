//! Several servers behind one chain of devices: each keeps its promises, whatever becomes of the others, and a device
//! that takes one for another is found.

use remedy_persist_world::rng::PerMillion;
use remedy_persist_world::scenario::{Logged, Mishap, Trouble, When};
use remedy_persist_world::{campaign, run, Depth, Failure, Options, Report, Scenario};
use scotfree_core::Nanos;
use scotfree_session::Fault;

/// How many seeds a test run tries.
const SEED_COUNT: u64 = 700;

fn tell(failure: &Failure) -> String {
    format!("several {}: {:?}: {}", failure.seed, failure.violation.invariant, failure.violation.detail)
}

fn pass(seed: u64, scenario: Scenario) -> Report {
    run(seed, scenario, Depth::Last).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn every_server_keeps_every_promise() {
    let options = Options { scenario: &Scenario::several, ..Options::default() };
    let report = campaign(0..SEED_COUNT, &options, |_| {});
    let failures: Vec<String> = report.failures.iter().map(tell).collect();
    assert_eq!(failures, [""; 0], "replay one with the example: sim --several --seed n --trace");
    let total = report.total;
    assert!(total.server_crashes > SEED_COUNT / 2 && total.servers_lost > SEED_COUNT / 10, "{total}");
    assert!(total.rekeyed > SEED_COUNT / 2 && total.executed_from_log > SEED_COUNT, "{total}");
    // Each server's history is judged for itself.
    assert!(total.histories_judged > SEED_COUNT * 3 / 2, "{total}");
    assert!(total.histories_undecided * 50 <= total.histories_judged, "{total}");
}

#[test]
fn a_device_that_takes_one_server_for_another_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::OF_SERVERS {
        let scenario = |seed| Scenario { planted: Some(fault), ..Scenario::several(seed) };
        let options = Options { scenario: &scenario, failures_max: 1, ..Options::default() };
        match campaign(0..SEED_COUNT, &options, |_| {}).failures.first() {
            Some(found) => println!("{fault:?}: {}", tell(found)),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found within {SEED_COUNT} seeds: {missed:?}");
}

/// Two servers with two clients each, in which nothing goes wrong.
fn two_servers() -> Scenario {
    let mut scenario = Scenario::calm();
    scenario.server_count = 2;
    scenario.client_count = 4;
    scenario.work.reads = PerMillion::percent(20);
    scenario
}

#[test]
fn a_server_that_is_lost_costs_the_clients_of_the_other_nothing() {
    for server in 0..2 {
        let when = When::Time(Nanos::from_millis(5));
        let lost = Mishap { when, what: Trouble::LoseServer { server } };
        let all = pass(1, two_servers());
        let rest = pass(1, Scenario { mishaps: vec![lost], ..two_servers() });
        assert_eq!((all.servers_lost, rest.servers_lost), (0, 1));
        assert!(rest.completed >= all.completed / 2 && rest.completed < all.completed, "{rest}");
    }
}

#[test]
fn only_the_updates_of_servers_that_are_to_be_logged_are() {
    let logged = |logged| pass(1, Scenario { logged, ..two_servers() }).logged;
    let (all, first, second) = (logged(Logged::All), logged(Logged::Only(0)), logged(Logged::Only(1)));
    assert!(first > 0 && second > 0 && first.max(second) < all, "{first} and {second} of {all}");
}

/// The server's record of a session is under an epoch of the key that was taken away while the server was down, and
/// the client, which was never told, opens the same again under the next.
#[test]
fn an_opening_outlives_the_epoch_under_which_it_began() {
    for seed in [654, 1505, 1846] {
        let report = pass(seed, Scenario::several(seed));
        assert!(report.rekeyed > 0, "{report}");
    }
}
