//! A function before persist that answers reads in the server's place: every promise is kept, and what would break
//! sessions behind an answer is found.
//!
//! `ANSWERS_SEEDS=n` tries another number of seeds; `SEED=n` replays one and shows everything that happened.

use remedy_persist_world::app::{Reply, KNOWN_CELL};
use remedy_persist_world::rng::PerMillion;
use remedy_persist_world::{campaign, run, Depth, Failure, Options, Scenario};
use remedy_toy::Toy;
use scotfree_core::KeyHash;
use scotfree_device::Maker;
use scotfree_session::Fault;

fn seed_count() -> u64 {
    let named = std::env::var("ANSWERS_SEEDS").ok();
    named.map_or(700, |text| text.parse().expect("ANSWERS_SEEDS is a number"))
}

/// The toy, with the answer that this world's application would give.
const TOY: Maker = Maker::plain("toy", |settings| {
    let mut answer = Vec::new();
    Reply::KNOWN.encode(0, &mut answer);
    Box::new(Toy::new(&answer, settings.planted))
});

/// Worlds of one server and of several, of all sorts, in which clients often read what the toy knows.
fn with_toy(seed: u64) -> Scenario {
    let mut scenario = match seed % 3 {
        0 => Scenario::several(seed),
        1 => Scenario::storm(seed),
        _ => Scenario::random(seed),
    };
    scenario.functions.insert(0, TOY);
    scenario.work.known = PerMillion::percent(30);
    scenario
}

fn tell(failure: &Failure) -> String {
    format!("seed {}: {:?}: {}", failure.seed, failure.violation.invariant, failure.violation.detail)
}

#[test]
fn reads_are_answered_on_the_way_and_every_promise_is_kept() {
    assert_eq!(KeyHash(u64::from(KNOWN_CELL)), remedy_toy::ANSWERED);
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        match run(seed, with_toy(seed), Depth::All) {
            Ok(report) => return println!("{report}"),
            Err(failure) => panic!("{failure}"),
        }
    }
    let report = campaign(0..seed_count(), &Options { scenario: &with_toy, ..Options::default() }, |_| {});
    let failures: Vec<String> = report.failures.iter().map(tell).collect();
    assert_eq!(failures, [""; 0], "replay one with SEED=n cargo test -p remedy-persist-world --test answers");
    let total = report.total;
    println!("{total}");
    // Most requests that the toy could answer it does.
    assert!(total.completed_by_function > total.completed / 10, "{total}");
    assert!(
        total.answered > total.completed_by_function && total.passed_over > total.answered / 20,
        "{total}"
    );
}

#[test]
fn what_breaks_sessions_behind_an_answer_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::OF_ANSWERS {
        let scenario = |seed| Scenario { planted: Some(fault), ..with_toy(seed) };
        let options = Options { scenario: &scenario, failures_max: 1, ..Options::default() };
        match campaign(0..seed_count(), &options, |_| {}).failures.first() {
            Some(found) => println!("{fault:?}: {}", tell(found)),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
#[should_panic(expected = "NotLast(\"persist\")")]
fn behind_persist_it_is_refused() {
    let mut scenario = Scenario::calm();
    scenario.functions.push(TOY);
    let _ = run(0, scenario, Depth::Last);
}
