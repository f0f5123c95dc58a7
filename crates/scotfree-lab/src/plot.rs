//! Draws results: a Vega-Lite specification with its data inside, made of a result and the `[[plot]]`
//! tables of its experiment.
//!
//! Invariant: what is drawn follows from the result alone; a specification says of which measurement it was
//! made, and one whose data were not measured is not made.

mod bounds;
mod charts;
mod defaults;
mod file;
mod lines;
mod look;
mod over_time;
pub mod rule;

pub use file::{text, write, FOLDER};

use crate::experiment::Experiment;
use crate::formula::{pairwise, values_of};
use crate::results::{short, ExperimentResult};
use rule::{Entry, Kind, Plot};
use scotfree_stage::environment::Environment;
use scotfree_stage::stats::Spread;
use serde_json::{json, Value};

/// The version of the grammar that specifications are written in.
const SCHEMA: &str = "https://vega.github.io/schema/vega-lite/v5.json";

/// The specification, but for the mark of the measurement, which [`text`] adds.
pub fn specification(experiment: &Experiment, result: &ExperimentResult) -> Result<Value, String> {
    let (plots, zeros) = if experiment.plots.is_empty() {
        defaults::plots(result)
    } else {
        (experiment.plots.clone(), Vec::new())
    };
    let mut panels = Vec::new();
    for (index, plot) in plots.iter().enumerate() {
        let is_last = plots.get(index + 1).is_none_or(|next| next.kind != plot.kind);
        panels.extend(panels_of(plot, is_last, result)?);
    }
    Ok(json!({
        "$schema": SCHEMA,
        "background": "white",
        "config": look::config(),
        "title": { "text": look::wrapped(&heading(result), 90), "subtitle": subtitle(result, &zeros) },
        "spacing": 18,
        "vconcat": panels,
        "resolve": { "scale": { "color": "independent", "strokeDash": "independent" } },
    }))
}

/// Rows that follow each other have their legend below the last.
fn panels_of(plot: &Plot, is_last: bool, result: &ExperimentResult) -> Result<Vec<Value>, String> {
    let metrics = plot.metrics.iter();
    match plot.kind {
        Kind::Points => {
            let last = plot.metrics.last().filter(|_| is_last);
            metrics.map(|metric| charts::points(plot, metric, last == Some(metric), result)).collect()
        }
        Kind::Bars => metrics.map(|metric| charts::bars(plot, metric, result)).collect(),
        Kind::Curve | Kind::Ratio => Ok(vec![lines::curves(plot, result)?]),
        Kind::Cdf => Ok(vec![lines::cdf(plot, result)?]),
        Kind::Time => {
            let last = plot.metrics.last();
            metrics.map(|metric| over_time::panel(plot, metric, last == Some(metric), result)).collect()
        }
    }
}

fn heading(result: &ExperimentResult) -> String {
    format!("{}: {}", result.experiment, result.title)
}

fn subtitle(result: &ExperimentResult, zeros: &[String]) -> Vec<String> {
    let Environment { machine, kernel, commit, date, load_average, .. } = &result.environment;
    let day = date.split('T').next().unwrap_or(date);
    let repetitions = result.series.iter().map(|one| one.repetition + 1).max().unwrap_or(0);
    let circumstances = format!(
        "{day}, commit {}, {machine}, Linux {kernel}, load average {load_average}, repetitions: {repetitions}",
        short(commit)
    );
    let mut lines = look::wrapped(&circumstances, 125);
    if !zeros.is_empty() {
        lines.extend(look::wrapped(&format!("0 in every repetition: {}", zeros.join(", ")), 125));
    }
    lines
}

/// What the repetitions of an entry gave, in their order, and how far they lie apart.
fn measured(result: &ExperimentResult, metric: &str, entry: &Entry) -> Result<(Vec<f64>, Spread), String> {
    let Entry { arm, over, .. } = entry;
    let values = match over {
        None => values_of(&result.series, metric, arm)?.into_values().collect(),
        Some(over) => pairwise(&result.series, metric, arm, over, |above, below| above / below)?,
    };
    let spread = Spread::of(&values);
    let spread = spread.ok_or_else(|| format!("`{metric}` of the arm `{arm}` is not a number"))?;
    Ok((values, spread))
}

#[cfg(test)]
mod tests;
