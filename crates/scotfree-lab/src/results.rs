//! Evidence: what experiments measured, judged against what was claimed.
//!
//! Invariant: a claim's value follows from the series beside it by the formula beside it. It is computed
//! when a result is made and computed again when it is read; a result in which it does not is refused.

mod confirmed;
mod documents;
mod machines;
mod stated;

pub(crate) use confirmed::is_comparable_elsewhere;
pub use confirmed::{add_confirmation, compare, Change, Comparison, Confirmation, CONFIRMED_MAX};
pub use documents::update_documents;
pub(crate) use machines::{is_same_machine, Machine};

use crate::experiment::{Better, ClaimRule, Experiment, Formula, Measurement};
use crate::formula::Computed;
use machines::Machines;
use scotfree_stage::environment::{freshness, Environment, Freshness};
use scotfree_stage::stats::Spread;
use scotfree_stage::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

// Files of raw data beside the results; not committed, not read here.
const RAW_ENDING: &str = ".raw.json";
/// The verdict on a claim that has no value yet.
const NOT_MEASURED: &str = "not measured";

/// What one experiment measured: the content of `lab/results/NAME.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// The experiment.
    pub experiment: String,
    /// What it shows.
    pub title: String,
    /// On what, of what and when it was measured.
    #[serde(flatten)]
    pub environment: Environment,
    /// The claims with their values.
    pub claims: Vec<Claim>,
    /// What was measured.
    pub series: Vec<Measurement>,
    /// The paths whose code was measured.
    pub covers: Vec<String>,
    /// Short repetitions since that came out as recorded; last in the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<Confirmation>,
    /// What its experiment states by now and its series has no value of.
    #[serde(skip)]
    pub unmeasured: Vec<ClaimRule>,
}

/// A claim with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// In words.
    pub claim: String,
    /// What was measured.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What must be reached.
    pub required: Option<f64>,
    /// What is hoped for.
    pub goal: Option<f64>,
    /// How far the repetitions lie apart.
    pub spread: Spread,
    /// Which values are better.
    pub better: Better,
    /// How the value follows from the series.
    pub formula: Formula,
}

/// How a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// What is hoped for is reached.
    Goal,
    /// What must be reached is.
    Met,
    /// What must be reached is not.
    Missed,
    /// Nothing must be reached; the value is for information.
    Noted,
}

impl Verdict {
    /// The word shown.
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Goal => "goal",
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Noted => "noted",
        }
    }
}

impl Claim {
    /// How it stands.
    pub fn verdict(&self) -> Verdict {
        let reaches = |bound: Option<f64>| bound.map(|bound| self.better.reaches(self.value, bound));
        match (reaches(self.required), reaches(self.goal)) {
            (Some(false), _) => Verdict::Missed,
            (_, Some(true)) => Verdict::Goal,
            (Some(true), _) => Verdict::Met,
            (None, _) => Verdict::Noted,
        }
    }

    fn of(rule: &ClaimRule, computed: Computed) -> Claim {
        Claim {
            claim: rule.claim.clone(),
            value: computed.value,
            unit: rule.unit.clone(),
            required: rule.required,
            goal: rule.goal,
            spread: computed.spread,
            better: rule.better,
            formula: rule.formula.clone(),
        }
    }

    fn bound(&self, bound: Option<f64>) -> String {
        bound_in_words(self.better, bound)
    }
}

fn bound_in_words(better: Better, bound: Option<f64>) -> String {
    bound.map_or("-".into(), |bound| format!("{} {}", better.sign(), number(bound)))
}

impl ExperimentResult {
    /// The result of an experiment: every value computed from the series. It is an error if a measurement
    /// is missing or a counter says that something else was measured.
    pub fn of(
        experiment: &Experiment,
        environment: Environment,
        series: Vec<Measurement>,
    ) -> Result<ExperimentResult, Trouble> {
        let fault = |problem: String| {
            let next = "see the logs of the run; the result was not written";
            Trouble::new(format!("evaluate the experiment `{}`", experiment.name), problem, next)
        };
        let violations = experiment.counter_violations(&series);
        if !violations.is_empty() {
            return Err(fault(violations.join("; ")));
        }
        for arm in &experiment.arms {
            let count = series.iter().filter(|measurement| measurement.arm == arm.name).count();
            if count != experiment.repetitions as usize {
                let wanted = experiment.repetitions;
                return Err(fault(format!("`{}` was measured {count} times instead of {wanted}", arm.name)));
            }
        }
        let claims = experiment.claims.iter().map(|rule| Ok(Claim::of(rule, rule.formula.compute(&series)?)));
        let claims = claims.collect::<Result<_, String>>().map_err(fault)?;
        Ok(ExperimentResult {
            experiment: experiment.name.clone(),
            title: experiment.title.clone(),
            environment,
            claims,
            series,
            covers: experiment.covers.clone(),
            confirmed: Vec::new(),
            unmeasured: Vec::new(),
        })
    }

    /// Writes it to `FOLDER/NAME.json`, whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Trouble> {
        let file = folder.join(format!("{}.json", self.experiment));
        let text = serde_json::to_string_pretty(self).expect("a result is JSON") + "\n";
        fs::create_dir_all(folder).map_err(|error| Trouble::file("create the folder", folder, &error))?;
        write_whole(&file, &text)?;
        Ok(file)
    }

    /// Reads a result and computes its claims again.
    pub fn read(file: &Path) -> Result<ExperimentResult, Trouble> {
        let fault = |problem: String| {
            let next = "measure it again; results are not edited by hand";
            Trouble::new(format!("read the result {}", file.display()), problem, next)
        };
        let text = fs::read(file).map_err(|error| Trouble::file("read", file, &error))?;
        let result: ExperimentResult =
            serde_json::from_slice(&text).map_err(|error| fault(error.to_string()))?;
        for claim in &result.claims {
            let computed = claim.formula.compute(&result.series).map_err(fault)?;
            if !is_same(computed.value, claim.value) || !is_same_spread(computed.spread, claim.spread) {
                let Claim { claim, value, .. } = claim;
                return Err(fault(format!(
                    "`{claim}` says {value}, but its series gives {}",
                    computed.value
                )));
            }
        }
        Ok(result)
    }
}

/// Writes a file whole or not at all.
fn write_whole(file: &Path, text: &str) -> Result<(), Trouble> {
    let draft = file.with_extension(format!("{}.draft", std::process::id()));
    fs::write(&draft, text)
        .and_then(|()| fs::rename(&draft, file))
        .map_err(|error| Trouble::file("write", file, &error))
}

// Numbers in JSON are exact enough for this; computing again may differ in the last digit.
fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn is_same_spread(a: Spread, b: Spread) -> bool {
    let fields = |spread: Spread| [spread.min, spread.q1, spread.median, spread.q3, spread.max];
    fields(a).into_iter().zip(fields(b)).all(|(a, b)| is_same(a, b))
}

/// Reads all results of a folder, by name, with the claims that the files in `experiments` beside it state today. A
/// folder that is not there has none.
pub fn read_all(folder: &Path) -> Result<Vec<ExperimentResult>, Trouble> {
    let mut files: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Trouble::file("read the folder", folder, &error)),
    };
    let is_result = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file.extension().is_some_and(|ending| ending == "json") && !name.ends_with(RAW_ENDING)
    };
    files.retain(is_result);
    files.sort();
    let experiments = folder.with_file_name("experiments");
    let read = |file: &PathBuf| ExperimentResult::read(file)?.as_stated(&experiments);
    files.iter().map(read).collect()
}

/// All claims with their verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimsReport {
    /// For the reader.
    pub text: String,
    /// Claims whose required value is missed.
    pub missed_count: usize,
    /// Claims whose measurement is older than the code, or of no known code, and that nothing has confirmed since.
    pub stale_count: usize,
    /// Claims that are stated and were not measured.
    pub unmeasured_count: usize,
}

impl ClaimsReport {
    /// What `scot claims` ends with: 1 if a required value is missed. That a measurement is older than the code is
    /// said, and is no defect.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.missed_count > 0)
    }
}

/// Judges all claims and compares the code measured with the repository's.
pub fn judge(results: &[ExperimentResult], repository: &Path) -> ClaimsReport {
    let mut report =
        ClaimsReport { text: String::new(), missed_count: 0, stale_count: 0, unmeasured_count: 0 };
    let machines = Machines::of(results);
    for (index, result) in results.iter().enumerate() {
        let mark = machines.mark(index).map_or(String::new(), |mark| format!(" [{mark}]"));
        line(&mut report.text, &format!("{}{mark}: {}", result.experiment, result.title));
        judge_one(&mut report, result, repository);
    }
    let legend = machines.legend(|result| results[result].experiment.clone());
    for said in &legend {
        line(&mut report.text, said);
    }
    let count: usize = results.iter().map(|result| result.claims.len() + result.unmeasured.len()).sum();
    let ClaimsReport { missed_count, stale_count, unmeasured_count, .. } = &report;
    let mut sum = format!("{count} claims, {missed_count} missed, {stale_count} older than the code");
    if *unmeasured_count > 0 {
        write!(sum, ", {unmeasured_count} not measured").expect("writing to memory does not fail");
    }
    line(&mut report.text, &sum);
    report
}

fn judge_one(report: &mut ClaimsReport, result: &ExperimentResult, repository: &Path) {
    let marks = marks_of(result, repository);
    let confirmed = confirmed_now(result, repository);
    line(&mut report.text, &format!("  measured {}", circumstances(&result.environment)));
    for mark in &marks {
        line(&mut report.text, &format!("  older than the code: {mark}"));
    }
    for confirmation in &result.confirmed {
        let of_now = if Some(confirmation) == confirmed { ", the code of now" } else { "" };
        let said = circumstances(&confirmation.environment);
        line(&mut report.text, &format!("  confirmed {said}{of_now}"));
    }
    for claim in &result.claims {
        report.missed_count += usize::from(claim.verdict() == Verdict::Missed);
        report.stale_count += usize::from(!marks.is_empty() && confirmed.is_none());
        line(&mut report.text, &claim_line(claim));
    }
    for rule in &result.unmeasured {
        report.unmeasured_count += 1;
        line(&mut report.text, &unmeasured_line(rule));
    }
}

fn circumstances(environment: &Environment) -> String {
    let Environment { machine, processor, kernel, priority, commit, date, load_average, .. } = environment;
    let processor = format!("{machine} (processor {processor}), Linux {kernel}");
    format!("{date} at {} on {processor}, {priority} priority, load {load_average}", short(commit))
}

/// The confirmation that is of the repository's code, if there is one.
fn confirmed_now<'a>(result: &'a ExperimentResult, repository: &Path) -> Option<&'a Confirmation> {
    let is_fresh = |confirmation: &&Confirmation| {
        let Environment { commit, has_uncommitted_changes, .. } = &confirmation.environment;
        !has_uncommitted_changes && freshness(repository, commit, &result.covers) == Freshness::Fresh
    };
    result.confirmed.iter().rev().find(is_fresh)
}

/// Whether nothing need be measured again: the code is that of the measurement or of a confirmation.
pub(crate) fn is_of_now(result: &ExperimentResult, repository: &Path) -> bool {
    marks_of(result, repository).is_empty() || confirmed_now(result, repository).is_some()
}

fn marks_of(result: &ExperimentResult, repository: &Path) -> Vec<String> {
    let mut marks = Vec::new();
    if result.environment.has_uncommitted_changes {
        marks.push("measured with changes that are in no commit".to_owned());
    }
    match freshness(repository, &result.environment.commit, &result.covers) {
        Freshness::Fresh => (),
        Freshness::Stale(1) => marks.push("1 commit has changed it since".to_owned()),
        Freshness::Stale(count) => marks.push(format!("{count} commits have changed it since")),
        Freshness::Unknown(why) => {
            marks.push(format!("whether it has changed since is unknown: {why}"));
        }
    }
    marks
}

fn claim_line(claim: &Claim) -> String {
    let Claim { claim: words, value, unit, required, goal, spread, better, .. } = claim;
    let value = format!("{} {unit}", number(*value));
    let spread = format!("[{} .. {}]", number(spread.min), number(spread.max));
    let bounds = bounds_in_words(*better, *required, *goal);
    format!("  {:<6}  {value:<14} {spread:<20} {words}{bounds}", claim.verdict().word())
}

fn unmeasured_line(rule: &ClaimRule) -> String {
    let bounds = bounds_in_words(rule.better, rule.required, rule.goal);
    format!("  {NOT_MEASURED}, stated since  {}{bounds}", rule.claim)
}

fn bounds_in_words(better: Better, required: Option<f64>, goal: Option<f64>) -> String {
    let mut bounds = String::new();
    for (name, bound) in [("required", required), ("goal", goal)] {
        if bound.is_some() {
            write!(bounds, ", {name} {}", bound_in_words(better, bound))
                .expect("writing to memory does not fail");
        }
    }
    bounds
}

/// Whether a result's claims without a bound are all that it has.
fn has_no_bound(result: &ExperimentResult) -> bool {
    let measured = result.claims.iter().any(|claim| claim.required.or(claim.goal).is_some());
    !measured && !result.unmeasured.iter().any(|rule| rule.required.or(rule.goal).is_some())
}

/// The claims of a result that have a bound; all of them if none has.
pub(crate) fn bounded(result: &ExperimentResult) -> impl Iterator<Item = &Claim> {
    let all = has_no_bound(result);
    result.claims.iter().filter(move |claim| all || claim.required.or(claim.goal).is_some())
}

/// Those that were not measured and have a bound.
fn bounded_unmeasured(result: &ExperimentResult) -> impl Iterator<Item = &ClaimRule> {
    result.unmeasured.iter().filter(|rule| rule.required.or(rule.goal).is_some())
}

/// The table of claims in Markdown, made of the results alone: those with a bound, and those of experiments that
/// have none. Experiments that missed something stand first, and behind them those that state what was not measured.
pub fn render_table(results: &[ExperimentResult]) -> String {
    let machines = Machines::of(results);
    let rows = |(index, result): (usize, &ExperimentResult)| {
        let mark = machines.mark(index).map_or(String::new(), |mark| format!(" {mark}"));
        rows_of(result, &format!("`{}`{mark}", result.experiment))
    };
    let mut experiments: Vec<Vec<(Rank, String)>> = results.iter().enumerate().map(rows).collect();
    // Rows of one experiment stay together: many begin with "the same".
    experiments.sort_by_key(|rows| rows.iter().map(|(rank, _)| *rank).min());
    let mut text = String::from(
        "| claim | measured | spread | required | goal | verdict | experiment |\n|---|---|---|---|---|---|---|\n",
    );
    for (_, row) in experiments.iter().flatten() {
        line(&mut text, row);
    }
    text.push('\n');
    for result in results {
        line(&mut text, &format!("- `{}`: {}", result.experiment, note_on(result)));
    }
    let legend = machines.legend(|result| results[result].experiment.clone());
    if let Some((first, rest)) = legend.split_first() {
        for said in ["", first, ""] {
            line(&mut text, said);
        }
        for machine in rest {
            line(&mut text, &format!("- {machine}"));
        }
    }
    text
}

/// Where a row, and its experiment with it, stands in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Missed,
    NotMeasured,
    Other,
}

/// A result's rows of the table, each with where it stands; `source` names the experiment and its machine.
fn rows_of(result: &ExperimentResult, source: &str) -> Vec<(Rank, String)> {
    let measured = |claim: &Claim| {
        let Claim { claim: words, value, unit, required, goal, spread, .. } = claim;
        let cells = [
            cell(words),
            format!("{} {}", number(*value), cell(unit)),
            format!("{} .. {}", number(spread.min), number(spread.max)),
            claim.bound(*required),
            claim.bound(*goal),
            claim.verdict().word().to_owned(),
            source.to_owned(),
        ];
        let rank = if claim.verdict() == Verdict::Missed { Rank::Missed } else { Rank::Other };
        (rank, format!("| {} |", cells.join(" | ")))
    };
    let unmeasured = |ClaimRule { claim: words, required, goal, better, .. }: &ClaimRule| {
        let bounds = [required, goal].map(|bound| bound_in_words(*better, *bound)).join(" | ");
        let row = format!("| {} | - | - | {bounds} | {NOT_MEASURED} | {source} |", cell(words));
        (Rank::NotMeasured, row)
    };
    bounded(result).map(measured).chain(bounded_unmeasured(result).map(unmeasured)).collect()
}

/// What a table says of a result beside its claims.
fn note_on(result: &ExperimentResult) -> String {
    let Environment { machine, kernel, commit, date, load_average, priority, .. } = &result.environment;
    let day = |date: &str| date.split('T').next().unwrap_or(date).to_owned();
    let repetitions = repetitions_of(result);
    let title = result.title.trim_end_matches('.');
    let circumstances = format!("{}, commit {}, {machine}, Linux {kernel}", day(date), short(commit));
    let mut note = format!(
        "{title}. {circumstances}, {priority} priority, load average before {load_average}, repetitions: {repetitions}."
    );
    for Confirmation { environment, .. } in &result.confirmed {
        let Environment { commit, date, .. } = environment;
        let on = Machine::of(environment).describe();
        write!(note, " Confirmed {} at commit {} on {on}.", day(date), short(commit))
            .expect("writing to memory does not fail");
    }
    note
}

/// How often each arm was measured.
pub(crate) fn repetitions_of(result: &ExperimentResult) -> u32 {
    result.series.iter().map(|measurement| measurement.repetition + 1).max().unwrap_or(0)
}

/// Four significant digits, without what they do not need.
pub(crate) fn number(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (3 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

pub(crate) fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::tests::example;
    use crate::formula::tests::series;
    use scotfree_stage::environment::UNKNOWN;
    use scotfree_stage::fakes::Repository;
    use scotfree_stage::scratch::Scratch;

    #[test]
    fn a_result_is_computed_written_and_read_back() {
        let folder = scratch();
        let result = result();
        let claim = &result.claims[0];
        assert_eq!((claim.value, claim.verdict()), (3.0, Verdict::Goal));
        let file = result.write(folder.path()).expect("it can be written");
        assert_eq!(file.file_name().and_then(|name| name.to_str()), Some("speed.json"));
        assert_eq!(read_all(folder.path()), Ok(vec![result]));
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
    }

    #[test]
    fn a_value_that_does_not_follow_from_its_series_is_refused() {
        let folder = scratch();
        let mut result = result();
        result.claims[0].value = 300.0;
        let file = result.write(folder.path()).expect("it can be written");
        let error = read_all(folder.path()).expect_err("it is not what was measured").to_string();
        assert!(error.contains("says 300, but its series gives 3"), "{error}");
        fs::write(&file, "{").expect("it can be written");
        let error = read_all(folder.path()).expect_err("it is damaged").to_string();
        assert!(error.contains("speed.json"), "{error}");
    }

    #[test]
    fn too_few_measurements_and_wrong_counters_make_no_result() {
        let short = ExperimentResult::of(&example(), environment(), series()[..4].to_vec());
        assert!(short.expect_err("an arm is short").problem.contains("2 times instead of 3"));
        let mut wrong = series();
        wrong[1].counters.insert("acks".into(), 0);
        let wrong = ExperimentResult::of(&example(), environment(), wrong);
        assert!(wrong.expect_err("no acks").problem.contains("`acks` is 0"));
    }

    #[test]
    fn verdicts_follow_the_bounds() {
        let claim = |value, required, goal, better| Claim {
            value,
            required,
            goal,
            better,
            ..result().claims[0].clone()
        };
        for (value, required, goal, better, verdict) in [
            (5.0, Some(3.0), Some(4.0), Better::Higher, Verdict::Goal),
            (3.0, Some(3.0), Some(4.0), Better::Higher, Verdict::Met),
            (2.9, Some(3.0), Some(4.0), Better::Higher, Verdict::Missed),
            (3.0, Some(3.0), None, Better::Higher, Verdict::Met),
            (1.0, Some(3.0), Some(2.0), Better::Lower, Verdict::Goal),
            (2.5, Some(3.0), Some(2.0), Better::Lower, Verdict::Met),
            (3.5, Some(3.0), Some(2.0), Better::Lower, Verdict::Missed),
            (0.0, Some(0.0), None, Better::Lower, Verdict::Met),
            (1.0, None, Some(2.0), Better::Lower, Verdict::Goal),
            (1.0, None, Some(0.5), Better::Lower, Verdict::Noted),
            (1.0, None, None, Better::Lower, Verdict::Noted),
        ] {
            assert_eq!(claim(value, required, goal, better).verdict(), verdict, "{value}");
        }
    }

    #[test]
    fn a_missed_claim_is_the_exit_code() {
        let folder = scratch();
        let mut experiment = example();
        experiment.claims[0].required = Some(10.0);
        experiment.claims[0].goal = None;
        let missed = ExperimentResult::of(&experiment, environment(), series()).expect("all was measured");
        let report = judge(&[missed, result()], folder.path());
        assert_eq!((report.missed_count, report.exit_code()), (1, 1));
        assert!(report.text.contains("MISSED") && report.text.contains("required >= 10"), "{}", report.text);
        assert_eq!(judge(&[result()], folder.path()).exit_code(), 0);
        assert_eq!(judge(&[], folder.path()).text, "0 claims, 0 missed, 0 older than the code\n");
    }

    #[test]
    fn code_that_is_not_known_is_stale() {
        let folder = scratch();
        let mut result = result();
        let report = judge(&[result.clone()], folder.path());
        assert_eq!((report.stale_count, report.exit_code()), (1, 0), "that is no defect");
        assert!(report.text.contains("older than the code: whether it has changed since"), "{}", report.text);
        result.environment.has_uncommitted_changes = true;
        assert!(judge(&[result], folder.path()).text.contains("in no commit"));
    }

    #[test]
    fn the_table_looks_like_this() {
        assert_eq!(
            render_table(&[result()]),
            "| claim | measured | spread | required | goal | verdict | experiment |\n\
             |---|---|---|---|---|---|---|\n\
             | latency, slow over fast | 3 x | 3 .. 4 | >= 2 | >= 3 | goal | `speed` |\n\
             \n\
             - `speed`: How much faster the fast arm is. 2025-01-31, commit unknown, 2 x test, 1.0 GiB, \
             Linux 6.1, normal priority, load average before 0.1 0.2 0.3, repetitions: 3.\n"
        );
    }

    #[test]
    fn experiments_that_missed_stand_first_and_then_those_not_measured_whole() {
        let (good, mut unmeasured, mut missed) = (result(), result(), result());
        missed.claims.push(Claim { required: Some(100.0), ..missed.claims[0].clone() });
        let rule = ClaimRule { claim: "the rest".into(), ..example().claims[0].clone() };
        unmeasured.unmeasured.push(rule);
        let table = render_table(&[good, unmeasured, missed]);
        let verdicts: Vec<&str> = table.lines().skip(2).map_while(|row| row.split(" | ").nth(5)).collect();
        assert_eq!(verdicts, ["goal", "MISSED", "goal", NOT_MEASURED, "goal"], "{table}");
    }

    #[test]
    fn a_table_of_several_machines_says_so() {
        let mut other = result();
        other.environment.kernel = "6.2".into();
        let table = render_table(&[result(), other.clone()]);
        assert!(
            table.contains("| goal | `speed` M1 |") && table.contains("| goal | `speed` M2 |"),
            "{table}"
        );
        let legend = "\n\nMeasured on 2 machines; times on different ones are not to be compared:\n\n\
                      - M1: test family 1, Linux 6.1: speed\n- M2: test family 1, Linux 6.2: speed\n";
        assert!(table.ends_with(legend), "{table}");
        let text = judge(&[result(), other], scratch().path()).text;
        assert!(
            text.contains("speed [M2]: ") && text.contains("M2: test family 1, Linux 6.2: speed"),
            "{text}"
        );
    }

    #[test]
    fn what_was_confirmed_is_said_and_where_nothing_has_changed_since_it_is_of_now() {
        let folder = scratch();
        let mut result = result();
        let values = [("latency".to_owned(), 3.0)].into();
        result.confirmed.push(Confirmation { environment: environment(), repetitions: 2, values });
        let report = judge(&[result.clone()], folder.path());
        assert!(report.text.contains("  confirmed 2025-01-31T00:00:00Z at unknown on"), "{}", report.text);
        assert_eq!(report.stale_count, 1, "of that commit nothing is known");
        assert!(!is_of_now(&result, folder.path()));
        let table = render_table(&[result]);
        let said = "repetitions: 3. Confirmed 2025-01-31 at commit unknown on test family 1, Linux 6.1.\n";
        assert!(table.ends_with(said), "{table}");
    }

    #[test]
    fn a_result_older_than_the_code_is_of_now_once_it_is_confirmed() {
        let Some(repository) = Repository::new() else { return };
        let path = repository.folder.path();
        let mut result = result();
        repository.commit("crates/a", "1");
        result.environment = Environment::observe(path, &result.covers);
        assert!(is_of_now(&result, path));
        repository.commit("crates/a", "2");
        let report = judge(&[result.clone()], path);
        assert_eq!((report.stale_count, report.exit_code(), is_of_now(&result, path)), (1, 0, false));
        assert!(
            report.text.contains("older than the code: 1 commit has changed it since"),
            "{}",
            report.text
        );
        let environment = Environment::observe(path, &result.covers);
        result.confirmed.push(Confirmation { environment, repetitions: 2, values: [].into() });
        let report = judge(&[result.clone()], path);
        assert_eq!((report.stale_count, is_of_now(&result, path)), (0, true));
        assert!(report.text.contains("the code of now"), "{}", report.text);
        result.confirmed[0].environment.has_uncommitted_changes = true;
        assert!(!is_of_now(&result, path), "nobody knows that code");
    }

    #[test]
    fn what_has_no_bound_is_in_the_table_only_where_nothing_has_one() {
        let mut result = result();
        let free =
            Claim { claim: "by the way".into(), required: None, goal: None, ..result.claims[0].clone() };
        result.claims.push(free);
        assert!(!render_table(&[result.clone()]).contains("by the way"));
        result.claims.remove(0);
        assert!(render_table(&[result]).contains("by the way"));
    }

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (5.837_62, "5.838"),
            (0.012_345_6, "0.01235"),
            (123_456.0, "123456"),
            (99.999_9, "100"),
            (-1.5, "-1.5"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    pub(crate) fn scratch() -> Scratch {
        Scratch::new("results").expect("temporary files can be written")
    }

    pub(crate) fn result() -> ExperimentResult {
        ExperimentResult::of(&example(), environment(), series()).expect("all was measured")
    }

    pub(crate) fn environment() -> Environment {
        Environment {
            machine: "2 x test, 1.0 GiB".into(),
            processor: "test family 1".into(),
            kernel: "6.1".into(),
            priority: "normal".into(),
            commit: UNKNOWN.into(),
            has_uncommitted_changes: false,
            date: "2025-01-31T00:00:00Z".into(),
            load_average: "0.1 0.2 0.3".into(),
        }
    }
}
