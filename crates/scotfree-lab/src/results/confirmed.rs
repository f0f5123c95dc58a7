//! Short repetitions of an experiment beside its recorded result: whether they still come out as recorded.
//!
//! Invariant: a confirmation is written behind what is recorded, of which no byte changes; nothing is confirmed
//! that lies outside the recorded spread, widened by one rule for all.

use super::{Claim, ExperimentResult};
use crate::experiment::{Better, Formula};
use crate::formula::Computed;
use scotfree_stage::environment::Environment;
use scotfree_stage::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Confirmations of one result: the last on each of so many machines.
pub const CONFIRMED_MAX: usize = 8;
/// The smallest and the largest of so many repetitions lie so far apart that the quartiles take their places.
const MANY_REPETITIONS: usize = 20;
/// The share of a value by which two runs of the same code may differ.
const DRIFT: f64 = 0.05;

/// That a short repetition came out as recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// On what, of what and when.
    #[serde(flatten)]
    pub environment: Environment,
    /// How often each arm was measured.
    pub repetitions: u32,
    /// The values that were compared, by claim.
    pub values: BTreeMap<String, f64>,
}

/// How a claim's new value stands beside the recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is what it was.
    None,
    /// It is better.
    Better,
    /// It is worse.
    Worse,
}

/// A claim's new value beside what was expected of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The new value: the median of the short run, or of what must hold in every repetition the one furthest out.
    pub value: f64,
    /// The smallest that is as recorded.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// How it stands.
    pub change: Change,
}

/// Compares a claim's recorded spread over so many repetitions with a short run. What is expected is the recorded range
/// (of many repetitions the quartiles' range), widened at each end by half its width and by a twentieth of its middle;
/// what is counted in every repetition and came out the same in each is not widened.
pub fn compare(recorded: &Claim, repetitions: usize, now: &Computed) -> Comparison {
    let spread = &recorded.spread;
    let is_counted = matches!(recorded.formula, Formula::Sum { .. });
    let (least, most) = if repetitions >= MANY_REPETITIONS && !is_counted {
        (spread.q1, spread.q3)
    } else {
        (spread.min, spread.max)
    };
    let is_exact = is_counted && least >= most;
    let margin = if is_exact { 0.0 } else { (most - least) / 2.0 + DRIFT * spread.median.abs() };
    let (low, high) = (least - margin, most + margin);
    let values = match recorded.formula {
        Formula::Sum { .. } | Formula::Min { .. } | Formula::Max { .. } => {
            vec![now.spread.min, now.spread.max]
        }
        _ => vec![now.spread.median],
    };
    let change = |value: f64| match recorded.better {
        _ if (low..=high).contains(&value) => Change::None,
        Better::Higher if value > high => Change::Better,
        Better::Lower if value < low => Change::Better,
        _ => Change::Worse,
    };
    let judged = values.into_iter().map(|value| Comparison { value, low, high, change: change(value) });
    judged.max_by_key(|comparison| comparison.change).expect("there is a value")
}

/// Whether a claim's value does not depend on the machine as times do.
pub(crate) fn is_comparable_elsewhere(formula: &Formula) -> bool {
    matches!(formula, Formula::Ratio { .. } | Formula::GeometricMean { .. } | Formula::Sum { .. })
}

/// What stands between a recorded result and its confirmations.
const KEY: &str = ",\n  \"confirmed\": ";
const END: &str = "\n}";

/// Writes a confirmation behind a recorded result. Of those from one machine the last stays.
pub fn add_confirmation(file: &Path, confirmation: Confirmation) -> Result<(), Trouble> {
    let mut confirmed = ExperimentResult::read(file)?.confirmed;
    let is_other = |known: &Confirmation| {
        !super::machines::is_same_machine(&known.environment, &confirmation.environment)
    };
    confirmed.retain(is_other);
    confirmed.push(confirmation);
    let surplus = confirmed.len().saturating_sub(CONFIRMED_MAX);
    confirmed.drain(..surplus);
    let text = fs::read_to_string(file).map_err(|error| Trouble::file("read", file, &error))?;
    let recorded = text.rsplit_once(KEY).map(|(recorded, _)| recorded);
    let recorded = recorded.or_else(|| text.trim_end().strip_suffix(END)).ok_or_else(|| {
        let next = "measure it again; results are not edited by hand";
        Trouble::new(format!("add to the result {}", file.display()), "it has another form", next)
    })?;
    let list = serde_json::to_string_pretty(&confirmed).expect("a confirmation is JSON");
    let text = format!("{recorded}{KEY}{}{END}\n", list.replace('\n', "\n  "));
    super::write_whole(file, &text)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{environment, result, scratch};
    use super::*;
    use scotfree_stage::stats::Spread;
    use std::path::PathBuf;

    fn claim(values: &[f64], better: Better, formula: Formula) -> Claim {
        let spread = Spread::of(values).expect("there are values");
        Claim { value: spread.median, spread, better, formula, ..result().claims[0].clone() }
    }

    fn now(values: &[f64]) -> Computed {
        let spread = Spread::of(values).expect("there are values");
        Computed { value: spread.median, spread }
    }

    fn median() -> Formula {
        Formula::Median { metric: "p50_us".into(), arm: "fast".into() }
    }

    fn sum() -> Formula {
        Formula::Sum { metric: "lost".into(), arm: "fast".into() }
    }

    #[test]
    fn a_value_inside_the_widened_spread_is_as_recorded_and_one_outside_is_a_change() {
        // 90 to 110 around 100: widened by 10 and by 5.
        let recorded = |better| claim(&[90.0, 100.0, 110.0], better, median());
        for (value, lower, higher) in [
            (100.0, Change::None, Change::None),
            (124.9, Change::None, Change::None),
            (75.1, Change::None, Change::None),
            (125.1, Change::Worse, Change::Better),
            (74.9, Change::Better, Change::Worse),
        ] {
            let change = |better| compare(&recorded(better), 3, &now(&[value])).change;
            assert_eq!((change(Better::Lower), change(Better::Higher)), (lower, higher), "{value}");
        }
        let Comparison { low, high, .. } = compare(&recorded(Better::Lower), 3, &now(&[100.0]));
        assert_eq!((low, high), (75.0, 125.0));
    }

    #[test]
    fn one_wild_repetition_does_not_make_a_change_where_medians_are_compared() {
        let recorded = claim(&[90.0, 100.0, 110.0], Better::Lower, median());
        assert_eq!(compare(&recorded, 3, &now(&[99.0, 101.0, 900.0])).change, Change::None);
    }

    #[test]
    fn of_many_repetitions_the_quartiles_are_what_is_expected() {
        let mut values = vec![1.0; 38];
        values.extend([0.5, 1.5]);
        let recorded = claim(&values, Better::Lower, median());
        assert_eq!(compare(&recorded, 40, &now(&[1.1])).change, Change::Worse);
        assert_eq!(compare(&recorded, 5, &now(&[1.1])).change, Change::None);
    }

    #[test]
    fn what_was_never_lost_may_not_be_lost_once() {
        let recorded = claim(&[0.0, 0.0, 0.0], Better::Lower, sum());
        assert_eq!(compare(&recorded, 3, &now(&[0.0, 0.0])).change, Change::None);
        let lost = compare(&recorded, 3, &now(&[0.0, 0.0, 1.0]));
        assert_eq!((lost.change, lost.value), (Change::Worse, 1.0));
        let sent = claim(&[200_000.0; 5], Better::Higher, sum());
        assert_eq!(compare(&sent, 5, &now(&[200_000.0; 2])).change, Change::None);
        assert_eq!(compare(&sent, 5, &now(&[199_999.0, 200_000.0])).change, Change::Worse);
    }

    fn confirmation(kernel: &str, date: &str) -> Confirmation {
        let environment = Environment { kernel: kernel.into(), date: date.into(), ..environment() };
        let values = BTreeMap::from([("latency".to_owned(), 3.0)]);
        Confirmation { environment, repetitions: 2, values }
    }

    fn dates(file: &Path) -> Vec<String> {
        let read = ExperimentResult::read(file).expect("it can be read");
        read.confirmed.into_iter().map(|known| known.environment.date).collect()
    }

    #[test]
    fn confirmations_stand_behind_what_is_recorded_the_last_of_each_machine() {
        let folder = scratch();
        let file = result().write(folder.path()).expect("it can be written");
        let recorded = fs::read_to_string(&file).expect("it is there");
        for (kernel, date, wanted) in
            [("6.1", "a", vec!["a"]), ("6.2", "b", vec!["a", "b"]), ("6.1", "c", vec!["b", "c"])]
        {
            add_confirmation(&file, confirmation(kernel, date)).expect("it can be written");
            assert_eq!(dates(&file), wanted);
        }
        for number in 0..CONFIRMED_MAX {
            let kernel = format!("7.{number}");
            add_confirmation(&file, confirmation(&kernel, "d")).expect("it can be written");
        }
        assert_eq!(dates(&file), vec!["d"; CONFIRMED_MAX]);
        let text = fs::read_to_string(&file).expect("it is there");
        assert!(text.starts_with(recorded.trim_end().strip_suffix("\n}").expect("it is an object")));
    }

    #[test]
    fn a_confirmed_result_of_the_lab_is_as_it_was_but_for_the_addition() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/results");
        let folder = scratch();
        let files: Vec<PathBuf> = fs::read_dir(lab)
            .expect("it is there")
            .flatten()
            .map(|entry| entry.path())
            .filter(|file| file.extension().is_some_and(|ending| ending == "json"))
            .collect();
        assert!(!files.is_empty());
        for file in files {
            let copy = folder.path().join(file.file_name().expect("a name"));
            let recorded = fs::read_to_string(&file).expect("it is there");
            let recorded =
                recorded.rsplit_once(KEY).map_or(recorded.clone(), |(before, _)| format!("{before}{END}\n"));
            fs::write(&copy, &recorded).expect("it can be written");
            add_confirmation(&copy, confirmation("6.1", "a")).expect("it can be written");
            let text = fs::read_to_string(&copy).expect("it is there");
            assert_eq!(text.rsplit_once(KEY).expect("it was added").0.to_owned() + END + "\n", recorded);
            assert_eq!(dates(&copy), ["a"]);
        }
    }
}
