//! An experiment: what is compared, how often, and what must come out.
//!
//! Invariant: a claim's value is computed here from the series of measurements by the formula that the
//! experiment's file states, and is nowhere written by hand.

use crate::config::{is_plain_name, Source, PLAIN_NAME_RULE};
use crate::stats::Spread;
use crate::trouble::ConfigError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;

/// Arms of one experiment.
pub const ARMS_MAX: usize = 32;
/// Repetitions of one experiment.
pub const REPETITIONS_MAX: u32 = 100_000;

/// An experiment as its file states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name: the file's name without ending.
    pub name: String,
    /// What it shows, in a sentence.
    pub title: String,
    /// The topology's name in `lab/topologies`.
    pub topology: String,
    /// The workload's name in `lab/workloads`.
    pub workload: Option<String>,
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

/// How a claim's value follows from the measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Formula {
    /// The median over the repetitions of an arm.
    Median {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The sum over the repetitions of an arm.
    Sum {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The smallest of the repetitions of an arm.
    Min {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The largest of the repetitions of an arm.
    Max {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The median of the quotients of two arms, repetition by repetition.
    Ratio {
        /// What was measured.
        metric: String,
        /// The arm above the line.
        arm: String,
        /// The arm below it.
        over: String,
    },
    /// The median of the differences of two arms, repetition by repetition.
    Difference {
        /// What was measured.
        metric: String,
        /// The arm from which is taken.
        arm: String,
        /// The arm that is taken away.
        minus: String,
    },
}

/// What one repetition of one arm measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The arm.
    pub arm: String,
    /// The repetition, from 0.
    pub repetition: u32,
    /// What was measured, by metric; units are in the metrics' names.
    pub values: BTreeMap<String, f64>,
    /// What was counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// What was computed for a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Computed {
    /// The value.
    pub value: f64,
    /// How far the repetitions lie apart.
    pub spread: Spread,
}

impl Formula {
    /// The arms that it speaks of.
    pub fn arms(&self) -> Vec<&str> {
        match self {
            Formula::Median { arm, .. }
            | Formula::Sum { arm, .. }
            | Formula::Min { arm, .. }
            | Formula::Max { arm, .. } => vec![arm],
            Formula::Ratio { arm, over, .. } => vec![arm, over],
            Formula::Difference { arm, minus, .. } => vec![arm, minus],
        }
    }

    /// The value that follows from the measurements, or what is missing.
    pub fn compute(&self, series: &[Measurement]) -> Result<Computed, String> {
        let values = match self {
            Formula::Median { metric, arm }
            | Formula::Sum { metric, arm }
            | Formula::Min { metric, arm }
            | Formula::Max { metric, arm } => values_of(series, metric, arm)?.into_values().collect(),
            Formula::Ratio { metric, arm, over } => pairwise(series, metric, arm, over, |a, b| a / b)?,
            Formula::Difference { metric, arm, minus } => pairwise(series, metric, arm, minus, |a, b| a - b)?,
        };
        let spread = Spread::of(&values).ok_or("a value is not a number, or there are none")?;
        let value = match self {
            Formula::Median { .. } | Formula::Ratio { .. } | Formula::Difference { .. } => spread.median,
            Formula::Sum { .. } => values.iter().sum(),
            Formula::Min { .. } => spread.min,
            Formula::Max { .. } => spread.max,
        };
        Ok(Computed { value, spread })
    }
}

/// The values of one arm by repetition.
fn values_of(series: &[Measurement], metric: &str, arm: &str) -> Result<BTreeMap<u32, f64>, String> {
    let of_arm: Vec<&Measurement> = series.iter().filter(|measurement| measurement.arm == arm).collect();
    if of_arm.is_empty() {
        return Err(format!("the arm `{arm}` was not measured"));
    }
    let value = |measurement: &&Measurement| match measurement.values.get(metric) {
        Some(value) => Ok((measurement.repetition, *value)),
        None => Err(format!("`{metric}` of the arm `{arm}` was not measured")),
    };
    of_arm.iter().map(value).collect()
}

fn pairwise(
    series: &[Measurement],
    metric: &str,
    arm: &str,
    other: &str,
    combine: fn(f64, f64) -> f64,
) -> Result<Vec<f64>, String> {
    let (values, others) = (values_of(series, metric, arm)?, values_of(series, metric, other)?);
    if values.len() != others.len() {
        return Err(format!("the arms `{arm}` and `{other}` were not measured equally often"));
    }
    let pair =
        |(repetition, value): (&u32, &f64)| others.get(repetition).map(|other| combine(*value, *other));
    Ok(values.iter().filter_map(pair).collect())
}

/// Measures every arm `repetitions` times, interleaved, so that what the machine does meanwhile falls on
/// all arms alike: forwards in even rounds, backwards in odd ones. Ends at the first error.
pub fn run_interleaved<Arm, Measured, Error>(
    arms: &[Arm],
    repetitions: u32,
    mut measure: impl FnMut(&Arm, u32) -> Result<Measured, Error>,
) -> Result<Vec<Measured>, Error> {
    let mut all = Vec::new();
    for repetition in 0..repetitions {
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
    topology: Spanned<String>,
    workload: Option<Spanned<String>>,
    repetitions: Spanned<u32>,
    covers: Spanned<Vec<String>>,
    arm: Vec<ArmForm>,
    #[serde(default)]
    counter: Vec<CounterForm>,
    claim: Vec<ClaimForm>,
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
            ("topology", Some(&self.topology)),
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
        let arms = check_arms(source, self.arm)?;
        let counters =
            self.counter.into_iter().map(|form| form.check(source, &arms)).collect::<Result<_, _>>()?;
        let claims =
            self.claim.into_iter().map(|form| form.check(source, &arms)).collect::<Result<_, _>>()?;
        Ok(Experiment {
            name: self.name.into_inner(),
            title: self.title,
            topology: self.topology.into_inner(),
            workload: self.workload.map(Spanned::into_inner),
            repetitions: self.repetitions.into_inner(),
            covers: self.covers.into_inner(),
            arms,
            counters,
            claims,
        })
    }
}

fn check_arms(source: &Source, forms: Vec<ArmForm>) -> Result<Vec<Arm>, ConfigError> {
    let mut arms: Vec<Arm> = Vec::new();
    if forms.is_empty() || forms.len() > ARMS_MAX {
        let problem = format!("{} arms; allowed are 1 to {ARMS_MAX}", forms.len());
        return Err(source.error_at_top("arm", problem));
    }
    for form in forms {
        let span = form.name.span();
        let arm = Arm { name: form.name.into_inner(), settings: form.settings };
        if arms.iter().any(|other| other.name == arm.name) {
            return Err(source.error(span, "name", format!("there are two arms `{}`", arm.name)));
        }
        arms.push(arm);
    }
    Ok(arms)
}

fn unknown_arm(arms: &[Arm], name: &str) -> Option<String> {
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

    #[test]
    fn the_experiments_of_the_lab_are_right() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
        for file in std::fs::read_dir(lab.join("experiments")).expect("it is there").flatten() {
            let experiment = Experiment::read(&file.path()).expect("it is an experiment");
            assert!(lab.join("topologies").join(experiment.topology + ".toml").is_file());
            if let Some(workload) = experiment.workload {
                assert!(lab.join("workloads").join(workload + ".toml").is_file());
            }
        }
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        for (from, to, line, problem) in [
            ("name = \"speed\"", "name = \"other\"", 1, "the file is called `speed`"),
            ("repetitions = 3", "repetitions = 0", 4, "allowed are 1 to"),
            ("covers = [\"crates\"]", "covers = []", 5, "stale"),
            ("name = \"fast\"", "name = \"slow\"", 9, "two arms"),
            ("arm = \"fast\"\nname", "arm = \"quick\"\nname", 13, "allowed are slow, fast"),
            ("at_least = 1", "", 14, "either `equals`"),
            ("at_least = 1", "at_least = 1\nat_most = 0", 14, "no value is"),
            ("over = \"fast\"", "over = \"quick\"", 22, "allowed are slow, fast"),
            ("over = \"fast\"", "onto = \"fast\"", 22, "unknown field `onto`"),
            ("kind = \"ratio\"", "kind = \"mode\"", 22, "unknown variant `mode`"),
            ("goal = 3.0", "goal = 1.0", 17, "worse than the required"),
            ("better = \"higher\"", "better = \"more\"", 21, "expected `higher` or `lower`"),
        ] {
            let text = TEXT.replace(from, to);
            let error = Experiment::parse(&Source::from_text("lab/speed.toml", text)).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
            assert_eq!(error.line, line, "{error}");
        }
    }

    #[test]
    fn formulas_follow_the_measurements() {
        let series = series();
        for (formula, value, min, max) in [
            ("kind = \"median\"\nmetric = \"p50_us\"\narm = \"slow\"", 40.0, 30.0, 60.0),
            ("kind = \"sum\"\nmetric = \"p50_us\"\narm = \"slow\"", 130.0, 30.0, 60.0),
            ("kind = \"min\"\nmetric = \"p50_us\"\narm = \"slow\"", 30.0, 30.0, 60.0),
            ("kind = \"max\"\nmetric = \"p50_us\"\narm = \"fast\"", 20.0, 10.0, 20.0),
            ("kind = \"ratio\"\nmetric = \"p50_us\"\narm = \"slow\"\nover = \"fast\"", 3.0, 3.0, 4.0),
            (
                "kind = \"difference\"\nmetric = \"p50_us\"\narm = \"slow\"\nminus = \"fast\"",
                30.0,
                20.0,
                40.0,
            ),
        ] {
            let formula: Formula = toml::from_str(formula).expect("it is a formula");
            let computed = formula.compute(&series).expect("all was measured");
            assert_eq!(
                (computed.value, computed.spread.min, computed.spread.max),
                (value, min, max),
                "{formula:?}"
            );
        }
    }

    #[test]
    fn what_was_not_measured_has_no_value() {
        let ratio = Formula::Ratio { metric: "p50_us".into(), arm: "slow".into(), over: "fast".into() };
        let mut short = series();
        short.pop();
        assert!(ratio.compute(&short).expect_err("one is missing").contains("equally often"));
        assert!(ratio.compute(&[]).expect_err("all are missing").contains("`slow` was not measured"));
        let mut zero = series();
        for measurement in &mut zero {
            measurement.values.insert("p50_us".into(), 0.0);
        }
        assert!(ratio.compute(&zero).expect_err("0 / 0").contains("not a number"));
        let other = Formula::Median { metric: "p51_us".into(), arm: "slow".into() };
        assert!(other.compute(&series()).expect_err("another metric").contains("`p51_us`"));
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
    }

    const TEXT: &str = r#"name = "speed"
title = "How much faster the fast arm is"
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

    pub(crate) fn example() -> Experiment {
        Experiment::parse(&Source::from_text("lab/speed.toml", TEXT)).expect("it is an experiment")
    }

    pub(crate) fn series() -> Vec<Measurement> {
        let rows = [
            ("slow", 0, 30.0),
            ("fast", 0, 10.0),
            ("fast", 1, 20.0),
            ("slow", 1, 60.0),
            ("slow", 2, 40.0),
            ("fast", 2, 10.0),
        ];
        let measurement = |(arm, repetition, p50_us): (&str, u32, f64)| Measurement {
            arm: arm.to_owned(),
            repetition,
            values: BTreeMap::from([("p50_us".to_owned(), p50_us)]),
            counters: BTreeMap::from([("acks".to_owned(), 7)]),
        };
        rows.map(measurement).to_vec()
    }
}
