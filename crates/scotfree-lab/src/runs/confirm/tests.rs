//! Confirming: what is compared, what is said of it, what is chosen.

use super::*;
use crate::experiment::tests::example;
use crate::experiment::Measurement;
use crate::formula::tests::series;
use crate::results::tests::{environment, result};
use scotfree_stage::environment::UNKNOWN;
use std::path::Path;

/// The example's series with all values of the slow arm so many times as large.
fn slower(times: f64) -> Vec<Measurement> {
    let mut series = series();
    for measurement in series.iter_mut().filter(|measurement| measurement.arm == "slow") {
        for value in measurement.values.values_mut() {
            *value *= times;
        }
    }
    series
}

fn judged(series: Vec<Measurement>, environment: Environment) -> Result<Confirmation, Outcome> {
    judge(&example(), &result(), Measurements { environment, series })
}

#[test]
fn what_comes_out_as_recorded_is_confirmed_with_its_values() {
    let confirmation = judged(series(), environment()).expect("it is the same");
    assert_eq!(confirmation.repetitions, 3);
    assert_eq!(confirmation.values, BTreeMap::from([("latency, slow over fast".to_owned(), 3.0)]));
}

#[test]
fn a_value_outside_is_named_as_better_or_worse() {
    for (times, change, word) in [(3.0, Change::Better, "better: 9 x"), (0.5, Change::Worse, "worse: 1.5 x")]
    {
        let Err(Outcome::Changed { change: found, what }) = judged(slower(times), environment()) else {
            panic!("it is a change");
        };
        assert_eq!(found, change);
        assert!(what[0].starts_with(word) && what[0].contains("expected"), "{what:?}");
        assert!(what[0].ends_with("latency, slow over fast"), "{what:?}");
    }
}

#[test]
fn a_counter_that_says_that_something_else_was_measured_is_a_change_for_the_worse() {
    let mut wrong = series();
    wrong[1].counters.insert("acks".into(), 0);
    let Err(Outcome::Changed { change: Change::Worse, what }) = judged(wrong, environment()) else {
        panic!("it is worse");
    };
    assert!(what[0].contains("`acks` is 0"), "{what:?}");
}

#[test]
fn what_else_is_different_is_said_beside_a_change() {
    let other = Environment { kernel: "6.2".into(), priority: "real-time".into(), ..environment() };
    let Err(Outcome::Changed { what, .. }) = judged(slower(3.0), other) else {
        panic!("it is a change");
    };
    assert_eq!(
        what[1..],
        [
            "recorded on test family 1, Linux 6.1, now test family 1, Linux 6.2",
            "recorded at normal priority, now real-time"
        ]
    );
}

#[test]
fn times_of_another_machine_are_not_compared_and_quotients_are() {
    let other = || Environment { kernel: "6.2".into(), ..environment() };
    assert!(judged(series(), other()).is_ok(), "a quotient");
    let mut recorded = result();
    recorded.claims[0].formula =
        crate::formula::Formula::Median { metric: "p50_us".into(), arm: "slow".into() };
    let measured = Measurements { environment: other(), series: series() };
    let Err(Outcome::Unrecorded(why)) = judge(&example(), &recorded, measured) else {
        panic!("it cannot be compared");
    };
    assert!(why.contains("another machine: test family 1, Linux 6.1"), "{why}");
}

/// What could only be compared on another machine must not take the time of what can be compared here.
#[test]
fn what_cannot_be_compared_here_is_run_last() {
    let lab_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
    let run = RunOptions { lab_folder, ..RunOptions::new("scot") };
    let chosen = choose_to_confirm(&[], &ConfirmOptions { all: false, run: run.clone() });
    let here = Environment::observe(repository(&run), &[]);
    let chosen = chosen.expect("all are known");
    let chosen: Vec<bool> =
        chosen.iter().map(|(experiment, _)| has_comparable(experiment, &run, &here)).collect();
    assert!(chosen.is_sorted_by_key(|can_be| !can_be), "{chosen:?}");
    let (mut elsewhere, mut recorded) = (environment(), result());
    assert_eq!(comparable(&recorded, &elsewhere).count(), 1);
    elsewhere.kernel = "6.2".into();
    recorded.claims[0].formula =
        crate::formula::Formula::Median { metric: "p50_us".into(), arm: "slow".into() };
    assert_eq!(comparable(&recorded, &elsewhere).count(), 0);
}

#[test]
fn a_short_run_is_short_and_at_the_recorded_priority() {
    let options = RunOptions::new("scot");
    let (mut experiment, mut recorded) = (example(), result());
    for (repetitions, short_repetitions) in [(1, 1), (3, 3), (15, 3), (50, 10), (400, 25)] {
        experiment.repetitions = repetitions;
        let short = short(&experiment, &recorded, &options);
        assert_eq!((short.repetitions, short.rounds), (Some(short_repetitions), None));
        assert_eq!((short.priority, short.time_max), (Some(Priority::Normal), Some(EXPERIMENT_TIME_MAX)));
    }
    recorded.environment.priority = UNKNOWN.into();
    assert_eq!(short(&experiment, &recorded, &options).priority, Some(Priority::Normal));
    recorded.environment.priority = "real-time".into();
    assert_eq!(short(&experiment, &recorded, &options).priority, None, "where it can be");
    experiment.arms[0].settings.insert("rounds".into(), toml::Value::from(1_000));
    assert_eq!(short(&experiment, &recorded, &options).rounds, None, "rounds of something else");
    experiment.runner = "kill-rounds".into();
    assert_eq!(short(&experiment, &recorded, &options).rounds, Some(100));
    let asked = RunOptions { repetitions: Some(2), rounds: Some(7), ..options };
    let short = short(&experiment, &recorded, &asked);
    assert_eq!((short.repetitions, short.rounds), (Some(2), Some(7)));
}

fn row(experiment: &str, outcome: Outcome) -> ConfirmRow {
    ConfirmRow { experiment: experiment.into(), outcome, time: Duration::from_millis(1_500) }
}

fn changed(change: Change) -> Outcome {
    Outcome::Changed { change, what: vec!["what it was".into()] }
}

#[test]
fn the_table_says_what_to_measure_again_and_how_long_it_took() {
    let report = ConfirmReport {
        rows: vec![
            row("alpha", Outcome::Confirmed { unwritten: None }),
            row("be", changed(Change::Worse)),
            row("gamma", Outcome::NotReached),
        ],
    };
    assert_eq!(
        report.render(),
        "alpha  confirmed       1.5 s\n\
         be     WORSE           1.5 s\n  what it was\n\
         gamma  not reached     1.5 s\n\
         1 confirmed, 1 WORSE, 1 not reached; 4 s in all\n\
         measure again: scot lab run be\n\
         the time was over: scot lab confirm gamma"
    );
}

#[test]
fn the_worst_decides_how_the_whole_stands() {
    let confirmed = || Outcome::Confirmed { unwritten: None };
    for (outcomes, standing) in [
        (vec![confirmed(), confirmed()], Standing::Confirmed),
        (vec![confirmed(), changed(Change::Better)], Standing::Open),
        (vec![Outcome::Failed(String::new()), confirmed()], Standing::Open),
        (vec![changed(Change::Worse), Outcome::NotReached], Standing::Worse),
        (vec![], Standing::Confirmed),
    ] {
        let rows = outcomes.into_iter().map(|outcome| row("x", outcome)).collect();
        assert_eq!(ConfirmReport { rows }.standing(), standing);
    }
}

#[test]
fn without_names_retrieval_and_what_cannot_be_short_are_left_out() {
    let lab_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
    let run = RunOptions { lab_folder, ..RunOptions::new("scot") };
    let names = |wanted: &[&str], all| {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let chosen = choose_to_confirm(&wanted, &ConfirmOptions { all, run: run.clone() });
        let chosen = chosen.map_err(|error| error.to_string())?;
        Ok::<Vec<String>, String>(chosen.into_iter().map(|(experiment, _)| experiment.name).collect())
    };
    let few = names(&[], false).expect("all are known");
    assert!(few.iter().all(|name| !name.starts_with("rag-") && name != "study-whole"), "{few:?}");
    let all = names(&[], true).expect("all are known");
    assert!(["rag-million", "study-whole", "kill-rounds", "update-ack"]
        .iter()
        .all(|name| all.contains(&(*name).to_owned())));
    assert_eq!(names(&["rag-million"], false), Ok(vec!["rag-million".to_owned()]));
    let error = names(&["rag-millon"], false).expect_err("there is none");
    assert!(error.contains("`rag-millon`") && error.contains("rag-million"), "{error}");
}
