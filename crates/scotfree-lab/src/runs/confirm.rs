//! Confirms recorded results by short runs of their experiments instead of measuring everything again.
//!
//! Invariant: every counter must say what it must in a full run, and only a run of committed code that came out as
//! recorded is written down; what came out otherwise is named, better or worse, and left to be measured again.

use super::runners::Runner;
use super::{choose, measure, repository, say, Chosen, Measurements, RunError, RunOptions};
use crate::experiment::Experiment;
use crate::results::{
    add_confirmation, bounded, compare, is_comparable_elsewhere, is_of_now, is_same_machine, number,
    repetitions_of, Change, Claim, Comparison, Confirmation, ExperimentResult, Machine,
};
use scotfree_stage::environment::Environment;
use scotfree_stage::interrupt::Interrupt;
use scotfree_stage::priority::Priority;
use scotfree_stage::sweep::sweep_before_run;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Experiments whose names begin so take hours; they are confirmed if they are named or all are.
const RETRIEVAL: &str = "rag-";
/// Those of the others that are run by name only, but whose runs can be made short.
const IN_ROUNDS: &str = "kill-rounds";
/// The share of an experiment's repetitions, and of its rounds of killing, that makes a short run.
const REPETITIONS_SHARE: u32 = 5;
const REPETITIONS: std::ops::RangeInclusive<u32> = 3..=25;
const ROUNDS_SHARE: u64 = 10;
const ROUNDS_MIN: u64 = 2;
/// After this time no further repetition of an experiment begins.
const EXPERIMENT_TIME_MAX: Duration = Duration::from_secs(12);
/// After this time no further experiment begins if none was named, so that all is over after twenty minutes: the
/// longest takes some two to be measured once.
const TIME_MAX: Duration = Duration::from_secs(18 * 60);

/// How results are confirmed.
#[derive(Debug, Clone)]
pub struct ConfirmOptions {
    /// Whether those that take hours and those that nothing has changed are among them, and time has no end.
    pub all: bool,
    /// How the short runs are made. Whether results are written says whether confirmations are.
    pub run: RunOptions,
}

/// What came of a short run.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It came out as recorded, and that is written down unless the reason is given why not.
    Confirmed {
        /// Why it is not written down.
        unwritten: Option<&'static str>,
    },
    /// Something is outside the recorded spread.
    Changed {
        /// Better, or worse.
        change: Change,
        /// What, in words.
        what: Vec<String>,
    },
    /// There is nothing recorded that it could be compared with.
    Unrecorded(String),
    /// It could not be run.
    Failed(String),
    /// The time was over.
    NotReached,
}

/// What came of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmRow {
    /// The experiment.
    pub experiment: String,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub time: Duration,
}

/// What came of all.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmReport {
    /// In the order of running.
    pub rows: Vec<ConfirmRow>,
}

/// How the whole stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Everything came out as recorded.
    Confirmed,
    /// Nothing is worse, but not everything is confirmed.
    Open,
    /// Something is worse.
    Worse,
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Confirmed { .. } => "confirmed",
            Outcome::Changed { change: Change::Worse, .. } => "WORSE",
            Outcome::Changed { .. } => "better",
            Outcome::Unrecorded(_) => "not recorded",
            Outcome::Failed(_) => "not run",
            Outcome::NotReached => "not reached",
        }
    }

    fn details(&self) -> Vec<String> {
        match self {
            Outcome::Confirmed { unwritten } => {
                unwritten.iter().map(|why| format!("not written: {why}")).collect()
            }
            Outcome::Changed { what, .. } => what.clone(),
            Outcome::Unrecorded(why) | Outcome::Failed(why) => why.lines().map(str::to_owned).collect(),
            Outcome::NotReached => Vec::new(),
        }
    }
}

impl ConfirmReport {
    /// How the whole stands.
    pub fn standing(&self) -> Standing {
        let is_worse =
            |row: &ConfirmRow| matches!(row.outcome, Outcome::Changed { change: Change::Worse, .. });
        let is_confirmed = |row: &ConfirmRow| matches!(row.outcome, Outcome::Confirmed { .. });
        if self.rows.iter().any(is_worse) {
            Standing::Worse
        } else if self.rows.iter().all(is_confirmed) {
            Standing::Confirmed
        } else {
            Standing::Open
        }
    }

    /// The closing table.
    pub fn render(&self) -> String {
        let width = self.rows.iter().map(|row| row.experiment.len()).max().unwrap_or(0);
        let mut lines = Vec::new();
        for ConfirmRow { experiment, outcome, time } in &self.rows {
            lines.push(format!("{experiment:<width$}  {:<12} {:>6.1} s", outcome.word(), time.as_secs_f64()));
            lines.extend(outcome.details().iter().map(|detail| format!("  {detail}")));
        }
        let time: Duration = self.rows.iter().map(|row| row.time).sum();
        lines.push(format!("{}; {:.0} s in all", self.counts(), time.as_secs_f64()));
        let again = self.names(|outcome| matches!(outcome, Outcome::Changed { .. } | Outcome::Unrecorded(_)));
        if !again.is_empty() {
            lines.push(format!("measure again: scot lab run {}", again.join(" ")));
        }
        let open = self.names(|outcome| *outcome == Outcome::NotReached);
        if !open.is_empty() {
            lines.push(format!("the time was over: scot lab confirm {}", open.join(" ")));
        }
        lines.join("\n")
    }

    fn names(&self, is_meant: fn(&Outcome) -> bool) -> Vec<&str> {
        let rows = self.rows.iter().filter(|row| is_meant(&row.outcome));
        rows.map(|row| row.experiment.as_str()).collect()
    }

    fn counts(&self) -> String {
        let words = ["confirmed", "better", "WORSE", "not recorded", "not run", "not reached"];
        let count = |word: &str| self.rows.iter().filter(|row| row.outcome.word() == word).count();
        let counts = words.into_iter().map(|word| (word, count(word)));
        let said = counts.filter(|(word, count)| *count > 0 || *word == "confirmed");
        said.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }
}

/// Confirms results by name; without names, those that are older than the code, but not retrieval's. Progress goes to
/// standard error, the table to standard output. SIGINT and SIGTERM end it.
pub fn confirm(wanted: &[String], options: &ConfirmOptions) -> Result<ConfirmReport, RunError> {
    let chosen = choose_to_confirm(wanted, options)?;
    let interrupt = Interrupt::watch()?;
    sweep_before_run(&options.run.run_folder, &options.run.lab_folder);
    let (begin, count) = (Instant::now(), chosen.len());
    let has_end = wanted.is_empty() && !options.all;
    let mut report = ConfirmReport { rows: Vec::new() };
    for (number, (experiment, runner)) in (1..).zip(chosen) {
        let name = experiment.name.clone();
        let begun = Instant::now();
        let outcome = if has_end && begin.elapsed() >= TIME_MAX {
            Outcome::NotReached
        } else {
            eprint!("{number} of {count}, {} s: ", begin.elapsed().as_secs());
            confirm_one(experiment, runner, &options.run, &interrupt)
        };
        if interrupt.has_come() {
            return Err(RunError::Interrupted);
        }
        eprintln!("  {}", outcome.word());
        report.rows.push(ConfirmRow { experiment: name, outcome, time: begun.elapsed() });
    }
    say(&report.render());
    Ok(report)
}

fn choose_to_confirm(
    wanted: &[String],
    options: &ConfirmOptions,
) -> Result<Vec<(Experiment, Runner)>, RunError> {
    let Chosen { mut experiments, not_run } = choose(wanted, &options.run.lab_folder)?;
    if !wanted.is_empty() {
        return Ok(experiments);
    }
    let is_meant = |name: &String| options.all || name.starts_with(IN_ROUNDS);
    let more: Vec<String> = not_run.into_iter().filter(is_meant).collect();
    if !more.is_empty() {
        experiments.extend(choose(&more, &options.run.lab_folder)?.experiments);
    }
    if options.all {
        return Ok(experiments);
    }
    experiments.retain(|(experiment, _)| !experiment.name.starts_with(RETRIEVAL));
    let count = experiments.len();
    experiments.retain(|(experiment, _)| {
        let recorded = ExperimentResult::read(&result_file(experiment, &options.run));
        !recorded.is_ok_and(|recorded| is_of_now(&recorded, repository(&options.run)))
    });
    if experiments.len() < count {
        say(&format!("not run, since the code is that of their results: {}", count - experiments.len()));
    }
    // Of those whose times are of another machine only the counters can be held against anything: they come last.
    let here = Environment::observe(repository(&options.run), &[]);
    experiments.sort_by_cached_key(|(experiment, _)| !has_comparable(experiment, &options.run, &here));
    Ok(experiments)
}

/// Whether anything recorded of an experiment can be held against measurements made here.
fn has_comparable(experiment: &Experiment, options: &RunOptions, here: &Environment) -> bool {
    let recorded = ExperimentResult::read(&result_file(experiment, options));
    recorded.is_ok_and(|recorded| comparable(&recorded, here).next().is_some())
}

/// The claims of a result that measurements made here can be held against.
fn comparable<'a>(recorded: &'a ExperimentResult, here: &Environment) -> impl Iterator<Item = &'a Claim> {
    let is_here = is_same_machine(&recorded.environment, here);
    bounded(recorded).filter(move |claim| is_here || is_comparable_elsewhere(&claim.formula))
}

fn result_file(experiment: &Experiment, options: &RunOptions) -> PathBuf {
    options.lab_folder.join("results").join(format!("{}.json", experiment.name))
}

fn confirm_one(
    mut experiment: Experiment,
    runner: Runner,
    options: &RunOptions,
    interrupt: &Interrupt,
) -> Outcome {
    let file = result_file(&experiment, options);
    let experiments = options.lab_folder.join("experiments");
    let recorded = ExperimentResult::read(&file).and_then(|recorded| recorded.as_stated(&experiments));
    let recorded = match recorded {
        Ok(recorded) if recorded.unmeasured.is_empty() => recorded,
        Ok(recorded) => {
            let said = recorded.unmeasured.iter().map(|rule| format!("stated since: {}", rule.claim));
            eprintln!("{}", experiment.name);
            return Outcome::Unrecorded(said.collect::<Vec<_>>().join("\n"));
        }
        Err(_) if !file.exists() => {
            eprintln!("{}", experiment.name);
            return Outcome::Unrecorded("it was never measured".to_owned());
        }
        Err(trouble) => return Outcome::Failed(trouble.to_string()),
    };
    let options = short(&experiment, &recorded, options);
    experiment.repetitions = options.repetitions.unwrap_or(experiment.repetitions);
    let measured = match measure(&mut experiment, runner, &options, interrupt) {
        Ok(measured) => measured,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let confirmation = match judge(&experiment, &recorded, measured) {
        Ok(confirmation) => confirmation,
        Err(outcome) => return outcome,
    };
    let unwritten = if !options.write_results {
        Some("as asked")
    } else if confirmation.environment.has_uncommitted_changes {
        Some("the code has changes that are in no commit")
    } else if let Err(trouble) = add_confirmation(&file, confirmation) {
        return Outcome::Failed(trouble.to_string());
    } else {
        None
    };
    Outcome::Confirmed { unwritten }
}

/// How a short run of an experiment is made: at the priority of the recorded one, unless another is asked for.
fn short(experiment: &Experiment, recorded: &ExperimentResult, options: &RunOptions) -> RunOptions {
    let repetitions = experiment.repetitions.div_ceil(REPETITIONS_SHARE);
    let repetitions = repetitions.clamp(*REPETITIONS.start(), *REPETITIONS.end());
    let rounds = experiment.arms.first().and_then(|arm| arm.settings.get("rounds")?.as_integer());
    let rounds = rounds.filter(|_| experiment.runner.starts_with(IN_ROUNDS));
    let rounds = rounds.map(|rounds| (rounds.unsigned_abs() / ROUNDS_SHARE).max(ROUNDS_MIN));
    // What was recorded before priorities were was at the normal one. Where real time is no longer to be had, the
    // table says so.
    let was_real_time = recorded.environment.priority == Priority::RealTime.name();
    RunOptions {
        repetitions: options.repetitions.or(Some(repetitions.min(experiment.repetitions))),
        rounds: options.rounds.or(rounds),
        priority: options.priority.or((!was_real_time).then_some(Priority::Normal)),
        time_max: Some(options.time_max.unwrap_or(EXPERIMENT_TIME_MAX)),
        ..options.clone()
    }
}

/// Compares a short run with what is recorded. An error is any outcome but that it came out the same.
fn judge(
    experiment: &Experiment,
    recorded: &ExperimentResult,
    measured: Measurements,
) -> Result<Confirmation, Outcome> {
    let Measurements { environment, series } = measured;
    let violations = experiment.counter_violations(&series);
    if !violations.is_empty() {
        return Err(Outcome::Changed { change: Change::Worse, what: violations });
    }
    let (mut values, mut changes) = (BTreeMap::new(), Vec::new());
    for claim in comparable(recorded, &environment) {
        let now = claim.formula.compute(&series).map_err(Outcome::Failed)?;
        let comparison = compare(claim, repetitions_of(recorded) as usize, &now);
        values.insert(claim.claim.clone(), comparison.value);
        if comparison.change != Change::None {
            changes.push((comparison.change, describe(&claim.claim, &claim.unit, &comparison)));
        }
    }
    if values.is_empty() {
        let there = Machine::of(&recorded.environment).describe();
        return Err(Outcome::Unrecorded(format!("its times are of another machine: {there}")));
    }
    match changes.iter().map(|(change, _)| *change).max() {
        None => Ok(Confirmation { environment, repetitions: experiment.repetitions, values }),
        Some(change) => {
            let mut what: Vec<String> = changes.into_iter().map(|(_, words)| words).collect();
            what.extend(differences(recorded, &environment));
            Err(Outcome::Changed { change, what })
        }
    }
}

fn describe(claim: &str, unit: &str, comparison: &Comparison) -> String {
    let Comparison { value, low, high, change } = comparison;
    let word = if *change == Change::Worse { "worse" } else { "better" };
    let [value, low, high] = [value, low, high].map(|value| number(*value));
    format!("{word}: {value} {unit}, expected {low} .. {high}: {claim}")
}

/// What besides the code is another than when the result was recorded.
fn differences(recorded: &ExperimentResult, now: &Environment) -> Vec<String> {
    let then = &recorded.environment;
    let mut said = Vec::new();
    if !is_same_machine(then, now) {
        let [then, now] = [then, now].map(|environment| Machine::of(environment).describe());
        said.push(format!("recorded on {then}, now {now}"));
    }
    if then.priority != now.priority {
        said.push(format!("recorded at {} priority, now {}", then.priority, now.priority));
    }
    said
}

#[cfg(test)]
mod tests;
