//! A second protocol of the engine, to show that it is one: registers kept by majorities, with any number of
//! writers and replicas, whose planted faults are found as those of the remedies are.

mod machines;
mod scenario;
mod world;

use machines::Fault;
use scenario::{Place, Scenario, Trouble};
use scotfree_core::Nanos;
use scotfree_sim::media::Crash;
use scotfree_sim::network::Quality;
use scotfree_sim::rng::PerMillion;
use scotfree_sim::{campaign, run, Depth, Mishap, Options, Protocol, Simulation, When, Worlds};
use std::collections::BTreeSet;
use world::{Invariant, Report, World};

const SEED_COUNT: u64 = 300;

fn total(scenario: impl Fn(u64) -> Scenario + Sync, options: &Options<'_, World>) -> Report {
    let report = campaign(0..SEED_COUNT, &Options { scenario: &scenario, ..*options }, |_| {});
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    report.total
}

#[test]
fn every_seed_keeps_every_promise_though_much_goes_wrong() {
    let total = total(World::draw, &Options::default());
    let tally = total.tally;
    assert_eq!(tally.runs, SEED_COUNT);
    assert!(total.completed > 20 * SEED_COUNT, "{total}");
    for (name, number) in total.numbers() {
        let is_idle = name == "packets_detoured" || name == "trace_hash";
        assert!(number > 100 || is_idle, "{name} came to {number} only");
    }
    assert_eq!(tally.packets_detoured, 0, "nothing stands between two places here");
}

/// What each fault breaks first.
const FAULTS: [(Fault, Invariant); 5] = [
    (Fault::AcknowledgeBeforeDurable, Invariant::HeldByMajority),
    (Fault::CountTwice, Invariant::HeldByMajority),
    (Fault::TakeOlder, Invariant::OnlyForward),
    (Fault::BelieveDamage, Invariant::Authentic),
    (Fault::NeverRepeat, Invariant::Progress),
];

#[test]
fn every_planted_fault_is_found() {
    for (fault, broken) in FAULTS {
        let scenario = |seed| Scenario { planted: Some(fault), ..World::draw(seed) };
        let options = Options::<World> { scenario: &scenario, ..Options::default() };
        let failures = campaign(0..SEED_COUNT, &options, |_| {}).failures;
        let found: Vec<_> = failures.iter().map(|failure| failure.violation.invariant).collect();
        assert!(found.contains(&broken), "{fault:?} broke {found:?}");
    }
}

fn careless(seed: u64) -> Scenario {
    Scenario { planted: Some(Fault::CountTwice), ..World::draw(seed) }
}

#[test]
fn worlds_are_run_by_kind_and_say_in_words_what_typed_runs_say() {
    let worlds = Worlds::<World> {
        kinds: &[
            ("random", "what the seed says", World::draw),
            ("careless", "an answer counts twice", careless),
        ],
    };
    let simulation: &dyn Simulation = &worlds;
    assert_eq!(simulation.kinds()[1], ("careless", "an answer counts twice"));

    let mut done_count = 0;
    let told = simulation.many(0, 0..SEED_COUNT, &mut |progress| done_count = progress.done_count);
    assert_eq!(told.total, total(World::draw, &Options::default()).to_string());
    assert!(told.failures.is_empty() && done_count == SEED_COUNT);

    let failures = simulation.many(1, 0..SEED_COUNT, &mut |_| {}).failures;
    let (seed, broken) = failures.first().expect("the fault is found");
    let failure = run::<World>(*seed, careless(*seed), Depth::All).expect_err("it has failed before");
    assert_eq!(*broken, format!("{:?}: {}", failure.violation.invariant, failure.violation.detail));
    assert_eq!(simulation.one(1, *seed, Depth::All), Err(failure.to_string()));
    let report = run::<World>(0, World::draw(0), Depth::Last).expect("no fault is planted");
    assert_eq!(simulation.one(0, 0, Depth::Last), Ok(report.to_string()));
}

#[test]
fn one_seed_is_one_run_and_the_hash_tells_runs_apart() {
    let mut hashes = BTreeSet::new();
    for seed in 0..30 {
        let run = |depth| run::<World>(seed, World::draw(seed), depth).expect("no fault is planted");
        let hash = run(Depth::Hashed).tally.trace_hash;
        assert_eq!(hash, run(Depth::Hashed).tally.trace_hash);
        assert_eq!(run(Depth::Last), run(Depth::All), "what is kept changes nothing");
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 30);
}

#[test]
fn a_campaign_does_not_depend_on_its_threads() {
    let total = |threads_max| total(World::draw, &Options { threads_max, ..Options::default() });
    assert_eq!(total(1), total(3));
}

fn calm(writer_count: usize, replica_count: usize) -> Scenario {
    Scenario {
        writer_count,
        replica_count,
        write_count: 5,
        network: Quality::CALM,
        drift_ppm_max: 0,
        mishaps: Vec::new(),
        calm_at: Nanos::from_millis(50),
        planted: None,
    }
}

#[test]
fn there_may_be_any_number_of_each_role() {
    for (writer_count, replica_count) in [(1, 1), (12, 1), (1, 9), (20, 15)] {
        let report = run::<World>(1, calm(writer_count, replica_count), Depth::Last).expect("all is calm");
        assert_eq!(report.completed, 5 * writer_count as u64);
        // To each replica, and back from a majority at least.
        let sent = report.tally.packets_sent as usize / (5 * writer_count);
        assert!((replica_count + replica_count / 2 + 1..=2 * replica_count).contains(&sent), "{report}");
    }
}

#[test]
fn a_majority_goes_on_and_less_than_one_waits_for_the_faults_to_stop() {
    let cut_off = |count: usize| {
        let cut = |replica| Trouble::Cut {
            from: Place::Writer(0),
            to: Place::Replica(replica),
            span: Nanos::from_secs(9),
        };
        let mishaps = (0..count).map(|replica| Mishap { when: When::Step(0), what: cut(replica) });
        let scenario = Scenario { mishaps: mishaps.collect(), ..calm(1, 5) };
        run::<World>(1, scenario, Depth::Last).expect("cuts are healed")
    };
    assert!(cut_off(2).completed_at() < Nanos::from_millis(50));
    assert!(cut_off(3).completed_at() > Nanos::from_millis(50));
}

#[test]
fn mishaps_of_one_step_befall_in_their_order() {
    let jump = |jump_ns| Trouble::JumpClock { place: Place::Replica(0), jump_ns };
    let crash = Trouble::Crash { replica: 0, kind: Crash::Host, down: Nanos::from_millis(1) };
    let at = |step, what| Mishap { when: When::Step(step), what };
    let mishaps = vec![at(9, jump(7)), at(9, crash), at(3, jump(1)), at(9, jump(8)), at(9, jump(9))];
    let mut scenario = Scenario { mishaps, planted: Some(Fault::NeverRepeat), ..calm(12, 1) };
    scenario.network.loss = PerMillion::ALWAYS;
    let failure = run::<World>(1, scenario, Depth::All).expect_err("nothing arrives");
    let told: Vec<String> = failure.trace.iter().map(|entry| entry.what.to_string()).collect();
    let told: Vec<&str> = told
        .iter()
        .map(String::as_str)
        .filter(|what| what.ends_with(')') && !what.contains("Message"))
        .collect();
    assert_eq!(
        told,
        [
            "has its clock set (1)",
            "has its clock set (7)",
            "crashes (1)",
            "has its clock set (8)",
            "has its clock set (9)",
            "comes back (0)",
            "is calm (0)"
        ]
    );
    assert!(failure.to_string().contains("broke Progress"), "{failure}");
}
