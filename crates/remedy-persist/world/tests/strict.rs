//! Strict reads, judged by what clients saw and nothing else: they hold in every world, what breaks them
//! is found, and relaxed reads do not keep to them.

use remedy_persist_world::model::Invariant;
use remedy_persist_world::rng::PerMillion;
use remedy_persist_world::scenario::Judge;
use remedy_persist_world::{campaign, CampaignReport, Options, Scenario};
use scotfree_session::Fault;

const SEED_COUNT: u64 = 600;

/// What clients can see for themselves. Other faults break promises that histories do not show.
const BREAKS_STRICTNESS: [Fault; 7] = [
    Fault::RestampDuplicate,
    Fault::IgnoreOrder,
    Fault::IgnoreBarrier,
    Fault::SkipDrain,
    Fault::ReplyBeforeStable,
    Fault::ServeBeforeReplay,
    Fault::ForgetPosition,
];

/// Several clients that read, also two cells at once, what others write.
fn shared(seed: u64) -> Scenario {
    let mut scenario = Scenario::random(seed);
    scenario.client_count = scenario.client_count.max(2);
    scenario.work.cell_count = 2;
    scenario.work.reads = PerMillion::percent(50);
    scenario.work.relaxed = PerMillion::NEVER;
    scenario.judge = Judge::Clients;
    scenario
}

fn judged(scenario: impl Fn(u64) -> Scenario + Sync, failures_max: usize) -> CampaignReport {
    let report =
        campaign(0..SEED_COUNT, &Options { scenario: &scenario, failures_max, ..Options::default() }, |_| {});
    assert!(report.failures.iter().all(|failure| failure.violation.invariant == Invariant::Strict));
    // Many requests of dead clients, and too many ways in which they may have been executed.
    assert!(
        failures_max == report.failures.len()
            || report.total.histories_undecided * 50 <= report.total.histories_judged,
        "{}",
        report.total
    );
    report
}

fn found(scenario: impl Fn(u64) -> Scenario + Sync) -> Option<String> {
    let report = judged(scenario, 1);
    report.failures.first().map(|failure| format!("seed {}: {}", failure.seed, failure.violation.detail))
}

#[test]
fn in_every_world_some_order_explains_what_clients_saw() {
    let report = judged(shared, 1);
    assert_eq!(report.failures.first().map(|failure| &failure.violation), None);
    assert!(report.total.histories_judged > SEED_COUNT * 3 / 4, "{}", report.total);
    assert!(report.total.completed_reads > 20 * SEED_COUNT, "{}", report.total);
}

#[test]
fn clients_see_for_themselves_what_breaks_strictness() {
    let mut missed = Vec::new();
    for fault in BREAKS_STRICTNESS {
        match found(|seed| Scenario { planted: Some(fault), ..shared(seed) }) {
            Some(detail) => println!("{fault:?}: {detail}"),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found within {SEED_COUNT} seeds: {missed:?}");
}

#[test]
fn relaxed_reads_are_not_strict() {
    let relaxed = |judge| {
        move |seed| {
            let mut scenario = shared(seed);
            scenario.work.relaxed = PerMillion::ALWAYS;
            Scenario { judge, ..scenario }
        }
    };
    let detail = found(relaxed(Judge::ClientsAsIfStrict)).expect("some relaxed read is stale");
    assert!(detail.contains("Get"), "{detail}");
    assert_eq!(found(relaxed(Judge::Clients)), None, "nothing more is promised of them");
}
