//! An experiment: what is compared, how often, and what must come out.
//!
//! Invariant: a claim's value is computed from the series of measurements by the formula that the
//! experiment's file states (formula.rs), and is nowhere written by hand.

use crate::plot::rule::{Plot, PlotForm, PLOTS_MAX};
use scotfree_stage::config::{is_plain_name, Source, PLAIN_NAME_RULE};
use scotfree_stage::trouble::ConfigError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;

pub use crate::formula::{Formula, Measurement};

/// Arms of one experiment.
pub const ARMS_MAX: usize = 64;
/// Repetitions of one experiment.
pub const REPETITIONS_MAX: u32 = 100_000;

/// An experiment as its file states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name: the file's name without ending.
    pub name: String,
    /// What it shows, in a sentence.
    pub title: String,
    /// What measures it, of the table in runs/runners.rs.
    pub runner: String,
    /// Whether it takes so long that it is run by name only.
    pub by_name_only: bool,
    /// The topology's name in `lab/topologies`; none if nothing crosses a network.
    pub topology: Option<String>,
    /// The workload's name in `lab/workloads`.
    pub workload: Option<String>,
    /// How long idle processors look for work before they halt, in nanoseconds, for as long as it runs; as the
    /// machine is set if none is said.
    pub halt_poll_ns: Option<u64>,
    /// How often each arm is measured.
    pub repetitions: u32,
    /// The paths whose code is measured.
    pub covers: Vec<String>,
    /// What is compared.
    pub arms: Vec<Arm>,
    /// What the counters must say, or nothing was measured that the arms' names promise.
    pub counters: Vec<CounterRule>,
    /// What must come out.
    pub claims: Vec<ClaimRule>,
    /// How it is drawn; what the claims speak of, if nothing is said.
    pub plots: Vec<Plot>,
}

/// One of the things compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// How it differs; what the keys mean is the affair of the code that runs the experiment.
    pub settings: BTreeMap<String, toml::Value>,
}

/// What a counter must say after every repetition of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterRule {
    /// The arm; all if none is named.
    pub arm: Option<String>,
    /// The counter.
    pub name: String,
    /// Its smallest allowed value.
    pub at_least: u64,
    /// Its largest allowed value.
    pub at_most: u64,
}

/// What must come out.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRule {
    /// In words.
    pub claim: String,
    /// The value's unit.
    pub unit: String,
    /// What must be reached.
    pub required: Option<f64>,
    /// What is hoped for.
    pub goal: Option<f64>,
    /// Which values are better.
    pub better: Better,
    /// How the value follows from the measurements.
    pub formula: Formula,
}

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Larger ones.
    Higher,
    /// Smaller ones.
    Lower,
}

impl Better {
    /// Whether `value` is as good as `bound`.
    pub fn reaches(self, value: f64, bound: f64) -> bool {
        match self {
            Better::Higher => value >= bound,
            Better::Lower => value <= bound,
        }
    }

    /// The sign before a bound.
    pub const fn sign(self) -> &'static str {
        match self {
            Better::Higher => ">=",
            Better::Lower => "<=",
        }
    }
}

/// Measures every arm `repetitions` times, interleaved, so that what the machine does meanwhile falls on
/// all arms alike: forwards in even rounds, backwards in odd ones. Ends at the first error.
pub fn run_interleaved<Arm, Measured, Error>(
    arms: &[Arm],
    repetitions: u32,
    measure: impl FnMut(&Arm, u32) -> Result<Measured, Error>,
) -> Result<Vec<Measured>, Error> {
    run_interleaved_while(arms, repetitions, |_| true, measure)
}

/// The same, as long as `goes_on` allows the next repetition; the first is always measured.
pub fn run_interleaved_while<Arm, Measured, Error>(
    arms: &[Arm],
    repetitions: u32,
    mut goes_on: impl FnMut(u32) -> bool,
    mut measure: impl FnMut(&Arm, u32) -> Result<Measured, Error>,
) -> Result<Vec<Measured>, Error> {
    let mut all = Vec::new();
    for repetition in 0..repetitions {
        if repetition > 0 && !goes_on(repetition) {
            break;
        }
        for place in 0..arms.len() {
            let index = if repetition % 2 == 0 { place } else { arms.len() - 1 - place };
            all.push(measure(&arms[index], repetition)?);
        }
    }
    Ok(all)
}

impl Experiment {
    /// Reads an experiment file.
    pub fn read(file: &Path) -> Result<Experiment, ConfigError> {
        Experiment::parse(&Source::read(file)?)
    }

    /// Reads an experiment.
    pub fn parse(source: &Source) -> Result<Experiment, ConfigError> {
        source.parse::<Form>()?.check(source)
    }

    /// The arm of a name.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// What the counters say that they must not. An experiment with any of it has measured something else.
    pub fn counter_violations(&self, series: &[Measurement]) -> Vec<String> {
        let broken = |rule: &CounterRule, measurement: &Measurement| {
            let Measurement { arm, repetition, .. } = measurement;
            let CounterRule { name, at_least, at_most, .. } = rule;
            match measurement.counters.get(name) {
                None => Some(format!("{arm}, repetition {repetition}: `{name}` was not counted")),
                Some(value) if (at_least..=at_most).contains(&value) => None,
                Some(value) => {
                    let allowed = format!("allowed are {at_least} to {at_most}");
                    Some(format!("{arm}, repetition {repetition}: `{name}` is {value}; {allowed}"))
                }
            }
        };
        let pairs = self.counters.iter().flat_map(|rule| {
            let is_meant =
                |measurement: &&Measurement| rule.arm.as_ref().is_none_or(|arm| *arm == measurement.arm);
            series.iter().filter(is_meant).map(move |measurement| (rule, measurement))
        });
        pairs.filter_map(|(rule, measurement)| broken(rule, measurement)).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: Spanned<String>,
    title: String,
    runner: String,
    #[serde(default)]
    by_name_only: bool,
    topology: Option<Spanned<String>>,
    workload: Option<Spanned<String>>,
    halt_poll_ns: Option<u64>,
    repetitions: Spanned<u32>,
    covers: Spanned<Vec<String>>,
    /// What all arms are set to.
    #[serde(default)]
    settings: BTreeMap<String, toml::Value>,
    arm: Vec<ArmForm>,
    #[serde(default)]
    counter: Vec<CounterForm>,
    claim: Vec<ClaimForm>,
    #[serde(default)]
    plot: Vec<PlotForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmForm {
    name: Spanned<String>,
    #[serde(default)]
    settings: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CounterForm {
    arm: Option<Spanned<String>>,
    name: Spanned<String>,
    at_least: Option<u64>,
    at_most: Option<u64>,
    equals: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimForm {
    claim: Spanned<String>,
    unit: String,
    required: Option<f64>,
    goal: Option<f64>,
    better: Better,
    formula: Spanned<Formula>,
}

impl Form {
    fn check(self, source: &Source) -> Result<Experiment, ConfigError> {
        for (key, name) in [
            ("name", Some(&self.name)),
            ("topology", self.topology.as_ref()),
            ("workload", self.workload.as_ref()),
        ] {
            if let Some(name) = name.filter(|name| !is_plain_name(name.get_ref())) {
                let problem = format!("`{}` is not a name; {PLAIN_NAME_RULE}", name.get_ref());
                return Err(source.error(name.span(), key, problem));
            }
        }
        if self.name.get_ref() != source.stem() {
            let problem =
                format!("it is `{}`, but the file is called `{}`", self.name.get_ref(), source.stem());
            return Err(source.error(self.name.span(), "name", problem));
        }
        if !(1..=REPETITIONS_MAX).contains(self.repetitions.get_ref()) {
            let problem =
                format!("{} is not allowed; allowed are 1 to {REPETITIONS_MAX}", self.repetitions.get_ref());
            return Err(source.error(self.repetitions.span(), "repetitions", problem));
        }
        if self.covers.get_ref().is_empty() {
            let problem = "name the paths whose code is measured, or nobody knows when a result is stale";
            return Err(source.error(self.covers.span(), "covers", problem));
        }
        let arms = check_arms(source, &self.settings, self.arm)?;
        let counters =
            self.counter.into_iter().map(|form| form.check(source, &arms)).collect::<Result<_, _>>()?;
        let claims =
            self.claim.into_iter().map(|form| form.check(source, &arms)).collect::<Result<_, _>>()?;
        if self.plot.len() > PLOTS_MAX {
            let problem = format!("{} plots; allowed are 0 to {PLOTS_MAX}", self.plot.len());
            return Err(source.error_at_top("plot", problem));
        }
        let plots = self.plot.into_iter().map(|form| form.check(source, &arms)).collect::<Result<_, _>>()?;
        Ok(Experiment {
            name: self.name.into_inner(),
            title: self.title,
            runner: self.runner,
            by_name_only: self.by_name_only,
            topology: self.topology.map(Spanned::into_inner),
            workload: self.workload.map(Spanned::into_inner),
            halt_poll_ns: self.halt_poll_ns,
            repetitions: self.repetitions.into_inner(),
            covers: self.covers.into_inner(),
            arms,
            counters,
            claims,
            plots,
        })
    }
}

fn check_arms(
    source: &Source,
    shared: &BTreeMap<String, toml::Value>,
    forms: Vec<ArmForm>,
) -> Result<Vec<Arm>, ConfigError> {
    let mut arms: Vec<Arm> = Vec::new();
    if forms.is_empty() || forms.len() > ARMS_MAX {
        let problem = format!("{} arms; allowed are 1 to {ARMS_MAX}", forms.len());
        return Err(source.error_at_top("arm", problem));
    }
    for form in forms {
        let span = form.name.span();
        let mut arm = Arm { name: form.name.into_inner(), settings: form.settings };
        if let Some(key) = shared.keys().find(|key| arm.settings.contains_key(*key)) {
            let problem = format!("`{key}` is set for all arms; the arm `{}` cannot set it again", arm.name);
            return Err(source.error(span, "settings", problem));
        }
        arm.settings.extend(shared.clone());
        if arms.iter().any(|other| other.name == arm.name) {
            return Err(source.error(span, "name", format!("there are two arms `{}`", arm.name)));
        }
        arms.push(arm);
    }
    Ok(arms)
}

pub(crate) fn unknown_arm(arms: &[Arm], name: &str) -> Option<String> {
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    (!names.contains(&name)).then(|| format!("there is no arm `{name}`; allowed are {}", names.join(", ")))
}

impl CounterForm {
    fn check(self, source: &Source, arms: &[Arm]) -> Result<CounterRule, ConfigError> {
        if let Some(arm) = &self.arm {
            if let Some(problem) = unknown_arm(arms, arm.get_ref()) {
                return Err(source.error(arm.span(), "arm", problem));
            }
        }
        let (at_least, at_most) = match (self.equals, self.at_least, self.at_most) {
            (Some(value), None, None) => (value, value),
            (None, None, None) | (Some(_), _, _) => {
                let problem = "either `equals`, or one or both of `at_least` and `at_most` are allowed";
                return Err(source.error(self.name.span(), "counter", problem));
            }
            (None, at_least, at_most) => (at_least.unwrap_or(0), at_most.unwrap_or(u64::MAX)),
        };
        if at_least > at_most {
            let problem = format!("no value is at least {at_least} and at most {at_most}");
            return Err(source.error(self.name.span(), "counter", problem));
        }
        let arm = self.arm.map(Spanned::into_inner);
        Ok(CounterRule { arm, name: self.name.into_inner(), at_least, at_most })
    }
}

impl ClaimForm {
    fn check(self, source: &Source, arms: &[Arm]) -> Result<ClaimRule, ConfigError> {
        if self.formula.get_ref().arms().is_empty() {
            let problem = "a geometric mean needs at least one ratio";
            return Err(source.error(self.formula.span(), "formula", problem));
        }
        let unknown = self.formula.get_ref().arms().into_iter().find_map(|name| unknown_arm(arms, name));
        if let Some(problem) = unknown {
            return Err(source.error(self.formula.span(), "formula", problem));
        }
        if let (Some(required), Some(goal)) = (self.required, self.goal) {
            if !self.better.reaches(goal, required) {
                let problem = format!("the goal {goal} is worse than the required {required}");
                return Err(source.error(self.claim.span(), "goal", problem));
            }
        }
        Ok(ClaimRule {
            claim: self.claim.into_inner(),
            unit: self.unit,
            required: self.required,
            goal: self.goal,
            better: self.better,
            formula: self.formula.into_inner(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::formula::tests::series;

    #[test]
    fn the_experiments_of_the_lab_are_right() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
        for file in std::fs::read_dir(lab.join("experiments")).expect("it is there").flatten() {
            let experiment = Experiment::read(&file.path()).expect("it is an experiment");
            if let Some(topology) = experiment.topology {
                assert!(lab.join("topologies").join(topology + ".toml").is_file());
            }
            if let Some(workload) = experiment.workload {
                assert!(lab.join("workloads").join(workload + ".toml").is_file());
            }
        }
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        for (from, to, line, problem) in [
            ("name = \"speed\"", "name = \"other\"", 1, "the file is called `speed`"),
            ("repetitions = 3", "repetitions = 0", 5, "allowed are 1 to"),
            ("covers = [\"crates\"]", "covers = []", 6, "stale"),
            ("name = \"fast\"", "name = \"slow\"", 10, "two arms"),
            ("arm = \"fast\"\nname", "arm = \"quick\"\nname", 14, "allowed are slow, fast"),
            ("at_least = 1", "", 15, "either `equals`"),
            ("at_least = 1", "at_least = 1\nat_most = 0", 15, "no value is"),
            ("over = \"fast\"", "over = \"quick\"", 23, "allowed are slow, fast"),
            (
                RATIO,
                "{ kind = \"geometric-mean\", metric = \"p50_us\", ratios = [] }",
                23,
                "at least one ratio",
            ),
            ("over = \"fast\"", "onto = \"fast\"", 23, "unknown field `onto`"),
            ("kind = \"ratio\"", "kind = \"mode\"", 23, "unknown variant `mode`"),
            ("goal = 3.0", "goal = 1.0", 18, "worse than the required"),
            ("better = \"higher\"", "better = \"more\"", 22, "expected `higher` or `lower`"),
        ] {
            let text = TEXT.replace(from, to);
            let error = Experiment::parse(&Source::from_text("lab/speed.toml", text)).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
            assert_eq!(error.line, line, "{error}");
        }
    }

    #[test]
    fn what_is_set_for_all_arms_is_set_for_each() {
        let text = |shared: &str| {
            TEXT.replace(
                "[[arm]]\nname = \"slow\"",
                &format!("[settings]\n{shared}\n[[arm]]\nname = \"slow\""),
            )
        };
        let experiment = Experiment::parse(&Source::from_text("lab/speed.toml", text("calls = 7")));
        let experiment = experiment.expect("it is an experiment");
        assert!(experiment.arms.iter().all(|arm| arm.settings["calls"] == toml::Value::from(7)));
        assert_eq!(experiment.arms[1].settings["durability"].as_str(), Some("ram"));
        let twice = Experiment::parse(&Source::from_text("lab/speed.toml", text("durability = \"disk\"")));
        assert!(twice.expect_err("an arm has it too").to_string().contains("arm `fast` cannot set it again"));
    }

    #[test]
    fn counters_are_asserted() {
        let experiment = example();
        let mut series = series();
        assert_eq!(experiment.counter_violations(&series), Vec::<String>::new());
        series[1].counters.insert("acks".into(), 0);
        series[2].counters.clear();
        let violations = experiment.counter_violations(&series);
        assert_eq!(
            violations,
            [
                "fast, repetition 0: `acks` is 0; allowed are 1 to 18446744073709551615",
                "fast, repetition 1: `acks` was not counted",
            ]
        );
    }

    #[test]
    fn arms_take_turns_and_the_order_alternates() {
        let order =
            run_interleaved(&["a", "b", "c"], 3, |arm, repetition| Ok::<_, ()>(format!("{arm}{repetition}")));
        assert_eq!(order.expect("no error").join(" "), "a0 b0 c0 c1 b1 a1 a2 b2 c2");
        let failed =
            run_interleaved(&["a", "b"], 3, |arm, _| if *arm == "b" { Err("b broke") } else { Ok(()) });
        assert_eq!(failed, Err("b broke"));
        let some = run_interleaved_while(
            &["a", "b"],
            5,
            |next| next < 2,
            |arm, repetition| Ok::<_, ()>(format!("{arm}{repetition}")),
        );
        assert_eq!(some.expect("no error").join(" "), "a0 b0 b1 a1");
    }

    const TEXT: &str = r#"name = "speed"
title = "How much faster the fast arm is"
runner = "update-ack"
topology = "direct"
repetitions = 3
covers = ["crates"]
[[arm]]
name = "slow"
[[arm]]
name = "fast"
[arm.settings]
durability = "ram"
[[counter]]
arm = "fast"
name = "acks"
at_least = 1
[[claim]]
claim = "latency, slow over fast"
unit = "x"
required = 2.0
goal = 3.0
better = "higher"
formula = { kind = "ratio", metric = "p50_us", arm = "slow", over = "fast" }
"#;

    const RATIO: &str = r#"{ kind = "ratio", metric = "p50_us", arm = "slow", over = "fast" }"#;

    pub(crate) fn example() -> Experiment {
        Experiment::parse(&Source::from_text("lab/speed.toml", TEXT)).expect("it is an experiment")
    }
}
