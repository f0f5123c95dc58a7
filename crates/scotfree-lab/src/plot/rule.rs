//! What an experiment's file says of its plots: the `[[plot]]` tables.
//!
//! Invariant: a plot that has been read can be drawn from every result that measured its arms and metrics:
//! the settings it speaks of are there, and no two arms stand in the same place.

use crate::experiment::{unknown_arm, Arm};
use scotfree_stage::config::Source;
use scotfree_stage::trouble::ConfigError;
use serde::Deserialize;
use std::fmt;
use toml::Spanned;

/// Plots of one experiment.
pub const PLOTS_MAX: usize = 8;
/// Metrics of one plot.
pub const METRICS_MAX: usize = 4;
/// Kinds of events of one plot.
pub const EVENTS_MAX: usize = 4;

/// One plot: what stands where. See [`Kind`] for what is drawn there.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// What is drawn.
    pub kind: Kind,
    /// In words, above it.
    pub title: Option<String>,
    /// What was measured; none for a [`Kind::Cdf`], which takes all percentiles.
    pub metrics: Vec<String>,
    /// Of a [`Kind::Time`], the metrics that are moments of events.
    pub events: Vec<String>,
    /// What the places mean.
    pub x: Axis,
    /// The setting that the colours mean.
    pub by: Option<String>,
    /// The setting of which each value has a panel of its own.
    pub panels: Option<String>,
    /// Of a [`Kind::Ratio`], which values of which setting are divided.
    pub quotient: Option<String>,
    /// What is drawn, in this order.
    pub entries: Vec<Entry>,
    /// Numbers of others, for comparison.
    pub references: Vec<Reference>,
}

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A row for each arm, with its repetitions and their median.
    Points,
    /// A bar for each arm, as high as the median of its repetitions.
    Bars,
    /// A line over a setting or another metric.
    Curve,
    /// A line over a setting: the quotients of two arms each.
    Ratio,
    /// A line for each arm: what part of the calls was complete by then.
    Cdf,
    /// A line for each arm: a rate over the time that a repetition took.
    Time,
}

/// What the places of the entries mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// Each arm has its own.
    Arm,
    /// The value of a setting.
    Setting(String),
    /// What was measured of another metric.
    Metric(String),
    /// The time since a repetition's begin.
    Time,
}

/// A place on an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum At {
    /// A number.
    Number(f64),
    /// A word.
    Name(String),
}

/// An arm, or two arms to divide, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The arm.
    pub arm: String,
    /// The arm to divide by.
    pub over: Option<String>,
    /// Its place.
    pub x: At,
    /// The value of the setting that the colours mean.
    pub by: Option<String>,
    /// The value of the setting that panels mean.
    pub panel: Option<String>,
}

/// Numbers of others, drawn for comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Whose they are.
    pub label: String,
    /// The numbers with their places.
    pub points: Vec<(At, f64)>,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Kind::Points => "points",
            Kind::Bars => "bars",
            Kind::Curve => "curve",
            Kind::Ratio => "ratio",
            Kind::Cdf => "cdf",
            Kind::Time => "time",
        }
    }

    /// The keys that it has besides `kind`, `title` and `arms`.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Kind::Points => &["metrics"],
            Kind::Bars => &["metrics", "x", "by", "reference"],
            Kind::Curve => &["metrics", "x", "x_metric", "by", "panels", "reference"],
            Kind::Ratio => &["metrics", "x", "by", "compare", "reference"],
            Kind::Cdf => &[],
            Kind::Time => &["metrics", "by", "events"],
        }
    }
}

impl At {
    fn of(value: &toml::Value) -> At {
        match value {
            toml::Value::Integer(number) => At::Number(*number as f64),
            toml::Value::Float(number) => At::Number(*number),
            toml::Value::String(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => At::Name(word(value)),
        }
    }

    /// Whether it is a number.
    pub const fn is_number(&self) -> bool {
        matches!(self, At::Number(_))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Number(number) => write!(f, "{number}"),
            At::Name(name) => f.write_str(name),
        }
    }
}

/// A setting's value as it is shown: words without their quotes.
fn word(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A `[[plot]]` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlotForm {
    kind: Spanned<Kind>,
    title: Option<String>,
    arms: Option<Vec<Spanned<String>>>,
    metrics: Option<Spanned<Vec<String>>>,
    x: Option<Spanned<String>>,
    x_metric: Option<Spanned<String>>,
    by: Option<Spanned<String>>,
    panels: Option<Spanned<String>>,
    events: Option<Spanned<Vec<String>>>,
    compare: Option<Spanned<Compare>>,
    #[serde(default)]
    reference: Vec<ReferenceForm>,
}

/// Which arms are divided: those that differ in this setting.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compare {
    setting: String,
    of: toml::Value,
    over: toml::Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReferenceForm {
    label: Spanned<String>,
    points: Vec<(toml::Value, f64)>,
}

/// What is wrong with a key.
type Fault = (std::ops::Range<usize>, &'static str, String);

impl PlotForm {
    pub(crate) fn check(self, source: &Source, arms: &[Arm]) -> Result<Plot, ConfigError> {
        self.plot(arms).map_err(|(span, key, problem)| source.error(span, key, problem))
    }

    fn plot(self, arms: &[Arm]) -> Result<Plot, Fault> {
        let kind = *self.kind.get_ref();
        self.refuse_other_keys(kind)?;
        let arms = self.chosen(arms)?;
        let metrics = self.metrics(kind)?;
        let events = self.events()?;
        for (key, setting) in [("x", &self.x), ("by", &self.by), ("panels", &self.panels)] {
            if let Some(setting) = setting {
                require(&arms, setting.get_ref()).map_err(|problem| (setting.span(), key, problem))?;
            }
        }
        let x = self.axis(kind)?;
        let by = self.by.as_ref().map(|by| by.get_ref().clone());
        let panels = self.panels.as_ref().map(|panels| panels.get_ref().clone());
        let place = |arm: &Arm| Entry {
            arm: arm.name.clone(),
            over: None,
            x: match &x {
                Axis::Setting(setting) => At::of(&arm.settings[setting]),
                // A line over time has all places, and is told from others by its colour.
                Axis::Time if by.is_some() => At::Name(String::new()),
                Axis::Arm | Axis::Metric(_) | Axis::Time => At::Name(arm.name.clone()),
            },
            by: by.as_ref().map(|by| word(&arm.settings[by])),
            panel: panels.as_ref().map(|panels| word(&arm.settings[panels])),
        };
        let entries = match &self.compare {
            Some(compare) => divided(&arms, compare.get_ref(), place)
                .map_err(|problem| (compare.span(), "compare", problem))?,
            None => arms.iter().map(|arm| place(arm)).collect(),
        };
        if let Some(problem) = unfit(kind, &x, &entries) {
            return Err((self.kind.span(), "kind", problem));
        }
        let references = self.reference.into_iter().map(|form| form.reference(&x, &entries));
        let references = references.collect::<Result<_, _>>()?;
        let quotient = self.compare.as_ref().map(|compare| compare.get_ref().in_words());
        Ok(Plot { kind, title: self.title, metrics, events, x, by, panels, quotient, entries, references })
    }

    fn refuse_other_keys(&self, kind: Kind) -> Result<(), Fault> {
        let spanned = [
            ("metrics", self.metrics.as_ref().map(Spanned::span)),
            ("x", self.x.as_ref().map(Spanned::span)),
            ("x_metric", self.x_metric.as_ref().map(Spanned::span)),
            ("by", self.by.as_ref().map(Spanned::span)),
            ("panels", self.panels.as_ref().map(Spanned::span)),
            ("events", self.events.as_ref().map(Spanned::span)),
            ("compare", self.compare.as_ref().map(Spanned::span)),
            ("reference", self.reference.first().map(|reference| reference.label.span())),
        ];
        let other = spanned.into_iter().find_map(|(key, span)| Some((key, span?)).filter(|_| !kind.has(key)));
        other.map_or(Ok(()), |(key, span)| {
            let allowed = [&["title", "arms"], kind.keys()].concat().join(", ");
            Err((span, key, format!("a plot of kind `{}` has none; allowed are {allowed}", kind.word())))
        })
    }

    fn chosen<'a>(&self, arms: &'a [Arm]) -> Result<Vec<&'a Arm>, Fault> {
        let Some(wanted) = &self.arms else { return Ok(arms.iter().collect()) };
        let find = |name: &Spanned<String>| {
            let found = arms.iter().find(|arm| arm.name == *name.get_ref());
            found.ok_or_else(|| {
                (name.span(), "arms", unknown_arm(arms, name.get_ref()).expect("there is none"))
            })
        };
        wanted.iter().map(find).collect()
    }

    fn metrics(&self, kind: Kind) -> Result<Vec<String>, Fault> {
        let metrics = self.metrics.as_ref().map(|metrics| metrics.get_ref().clone()).unwrap_or_default();
        if kind.has("metrics") && !(1..=METRICS_MAX).contains(&metrics.len()) {
            let span = self.metrics.as_ref().map_or(self.kind.span(), Spanned::span);
            let problem = format!("{} metrics; allowed are 1 to {METRICS_MAX}", metrics.len());
            return Err((span, "metrics", problem));
        }
        Ok(metrics)
    }

    fn events(&self) -> Result<Vec<String>, Fault> {
        let Some(events) = &self.events else { return Ok(Vec::new()) };
        let count = events.get_ref().len();
        if count > EVENTS_MAX {
            let problem = format!("{count} events; allowed are 0 to {EVENTS_MAX}");
            return Err((events.span(), "events", problem));
        }
        Ok(events.get_ref().clone())
    }

    fn axis(&self, kind: Kind) -> Result<Axis, Fault> {
        let fault = |problem: &str| Err((self.kind.span(), "kind", problem.to_owned()));
        match (kind, &self.x, &self.x_metric) {
            (Kind::Time, _, _) => Ok(Axis::Time),
            (Kind::Points | Kind::Cdf | Kind::Bars, None, _) => Ok(Axis::Arm),
            (Kind::Curve, None, None) => fault("a curve needs either `x`, a setting, or `x_metric`"),
            (_, Some(_), Some(_)) => fault("either `x`, a setting, or `x_metric` is allowed, not both"),
            (Kind::Ratio, None, _) => fault("a ratio needs `x`, a setting"),
            (Kind::Ratio, Some(_), _) if self.compare.is_none() => {
                fault("a ratio needs `compare = { setting = …, of = …, over = … }`")
            }
            (_, Some(setting), None) => Ok(Axis::Setting(setting.get_ref().clone())),
            (Kind::Curve, None, Some(metric)) => Ok(Axis::Metric(metric.get_ref().clone())),
        }
    }
}

impl Kind {
    fn has(self, key: &str) -> bool {
        self.keys().contains(&key)
    }
}

impl ReferenceForm {
    fn reference(self, x: &Axis, entries: &[Entry]) -> Result<Reference, Fault> {
        let points: Vec<(At, f64)> =
            self.points.iter().map(|(place, value)| (At::of(place), *value)).collect();
        let has_numbers = matches!(x, Axis::Metric(_)) || entries.iter().all(|entry| entry.x.is_number());
        let fits = |place: &At| {
            if has_numbers {
                place.is_number()
            } else {
                entries.iter().any(|entry| entry.x == *place)
            }
        };
        match points.iter().find(|(place, _)| !fits(place)) {
            Some((place, _)) => {
                let span = self.label.span();
                Err((span, "points", format!("no arm stands at `{place}`")))
            }
            None => Ok(Reference { label: self.label.into_inner(), points }),
        }
    }
}

impl Compare {
    fn in_words(&self) -> String {
        let Compare { setting, of, over } = self;
        format!("{setting} {} / {}", word(of), word(over))
    }
}

fn require(arms: &[&Arm], setting: &str) -> Result<(), String> {
    match arms.iter().find(|arm| !arm.settings.contains_key(setting)) {
        None => Ok(()),
        Some(arm) => {
            Err(format!("the arm `{}` has no setting `{setting}`; choose others by `arms`", arm.name))
        }
    }
}

/// Each arm that has the one value with the arm that stands in the same place and has the other.
fn divided(arms: &[&Arm], compare: &Compare, place: impl Fn(&Arm) -> Entry) -> Result<Vec<Entry>, String> {
    require(arms, &compare.setting)?;
    let with = |value: &toml::Value| -> Vec<Entry> {
        let has = |arm: &&&Arm| arm.settings[&compare.setting] == *value;
        arms.iter().filter(has).map(|arm| place(arm)).collect()
    };
    let below = with(&compare.over);
    let pair = |entry: Entry| {
        let there: Vec<&Entry> =
            below.iter().filter(|other| other.x == entry.x && other.by == entry.by).collect();
        let [over] = there[..] else {
            let (Compare { setting, over, .. }, count) = (compare, there.len());
            return Err(format!(
                "{count} arms with {setting} = {over} stand where `{}` does, not 1",
                entry.arm
            ));
        };
        Ok(Entry { over: Some(over.arm.clone()), ..entry })
    };
    let entries: Vec<Entry> = with(&compare.of).into_iter().map(pair).collect::<Result<_, String>>()?;
    if entries.is_empty() {
        Err(format!("no arm has {} = {}", compare.setting, compare.of))
    } else {
        Ok(entries)
    }
}

/// Why the places will not do.
fn unfit(kind: Kind, x: &Axis, entries: &[Entry]) -> Option<String> {
    if kind == Kind::Curve && *x != Axis::Arm {
        let word = entries.iter().find(|entry| !matches!(x, Axis::Metric(_)) && !entry.x.is_number());
        if let Some(Entry { arm, x, .. }) = word {
            return Some(format!("a curve needs numbers, and the arm `{arm}` has `{x}`"));
        }
    }
    let twins = entries.iter().enumerate().find_map(|(index, entry)| {
        let same = |other: &&Entry| other.x == entry.x && other.by == entry.by && other.panel == entry.panel;
        Some((entry, entries[..index].iter().find(same)?))
    });
    let (entry, other) = twins?;
    Some(format!(
        "the arms `{}` and `{}` stand in the same place; tell them apart by `by`, or choose by `arms`",
        other.arm, entry.arm
    ))
}

#[cfg(test)]
mod tests;
