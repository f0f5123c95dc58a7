//! Thousands of random worlds; `SEED=n` replays one and shows everything that happened.

use remedy_persist_world::{campaign, run, Depth, Options, Report, Scenario};
use scotfree_core::Nanos;

/// How many seeds a test run tries.
const SEED_COUNT: u64 = 2_000;

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        return replay(seed);
    }
    let report = campaign(0..SEED_COUNT, &Options::default(), |_| {});
    for failure in &report.failures {
        eprintln!("seed {}: {:?}: {}", failure.seed, failure.violation.invariant, failure.violation.detail);
    }
    assert!(
        report.failures.is_empty(),
        "replay one with SEED=n cargo test -p remedy-persist-world --test simulation"
    );
    assert_that_much_went_wrong(&report.total);
}

/// How many storms it tries.
const STORM_COUNT: u64 = 300;

#[test]
fn storms_too_keep_every_promise() {
    let options = Options { scenario: &Scenario::storm, ..Options::default() };
    let report = campaign(0..STORM_COUNT, &options, |_| {});
    for failure in &report.failures {
        eprintln!("storm {}: {:?}: {}", failure.seed, failure.violation.invariant, failure.violation.detail);
    }
    assert!(report.failures.is_empty(), "replay one with the example: sim --storm --seed n --trace");
    assert!(report.total.server_crashes > 2 * STORM_COUNT, "{}", report.total);
}

fn replay(seed: u64) {
    match run(seed, Scenario::random(seed), Depth::All) {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Runs in which nothing went wrong prove nothing.
fn assert_that_much_went_wrong(total: &Report) {
    assert_eq!(total.tally.runs, SEED_COUNT);
    for (name, number) in total.numbers() {
        // Keys are rotated, servers lost, writes refused and reads answered on the way in scenarios made for it.
        let elsewhere =
            ["rekeyed", "servers_lost", "refused", "completed_by_function", "answered", "passed_over"];
        if name == "mishaps_spared" || elsewhere.contains(&name) {
            continue;
        }
        if name == "histories_undecided" {
            assert!(number * 50 <= total.histories_judged, "{number} histories were given no verdict");
            continue;
        }
        let rare = [
            "weakened",
            "devices_reinstated",
            "devices_lost",
            "dead_letters",
            "forged",
            "busy",
            "past_epoch",
        ];
        let least = if rare.contains(&name) { 10 } else { 100 };
        assert!(number >= least, "{name} came to {number} only");
    }
    assert!(total.completed > 50 * SEED_COUNT * 9 / 10, "{} requests completed", total.completed);
    assert!(total.weakened < SEED_COUNT / 5, "{} runs promised less than everything", total.weakened);
    assert!(
        total.tally.recovery_max < Nanos::from_millis(1_000),
        "{} ns to recover",
        total.tally.recovery_max
    );
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..50 {
        let run = |depth| run(seed, Scenario::random(seed), depth).map_err(|failure| failure.to_string());
        assert_eq!(run(Depth::Last), run(Depth::All), "seed {seed}");
    }
}

#[test]
fn a_campaign_does_not_depend_on_its_threads() {
    let total = |threads_max| campaign(0..60, &Options { threads_max, ..Options::default() }, |_| {}).total;
    assert_eq!(total(1), total(3));
}
