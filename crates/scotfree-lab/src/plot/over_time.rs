//! What a repetition measured in each of its intervals, over its time, and when what happened.
//!
//! Invariant: a line joins medians over the repetitions, and their spread is drawn with it. The rate `NAME` in the
//! interval that begins with the millisecond N is measured as `NAME_at_N_ms`.

use super::charts::{colour_scale, distinct, x_title};
use super::look::{self, COLOURS, WIDTH};
use super::measured;
use super::rule::{Entry, Plot};
use crate::results::ExperimentResult;
use scotfree_stage::stats::Spread;
use serde_json::{json, Value};

const HEIGHT: u32 = 150;
/// Intervals that make a line.
const INTERVALS_MIN: usize = 2;
/// How far below each other the names of events are written, so that those of neighbours can be read.
const LABEL_STEP: usize = 12;

/// A line for each arm.
pub(super) fn panel(
    plot: &Plot,
    metric: &str,
    has_legend: bool,
    result: &ExperimentResult,
) -> Result<Value, String> {
    let mut rows = Vec::new();
    for entry in &plot.entries {
        rows.extend(line(result, metric, entry)?);
    }
    let names = distinct(plot.entries.iter().map(|entry| series(entry).to_owned()));
    let colours = colour_scale(&names.into_iter().zip(COLOURS.into_iter().cycle()).collect::<Vec<_>>());
    // As the lines are, not as pale as the spread.
    let legend = has_legend.then(|| json!({ "symbolType": "stroke", "symbolOpacity": 1 }));
    let colour = json!({ "field": "series", "type": "nominal", "scale": colours, "legend": legend });
    let x =
        json!({ "field": "s", "type": "quantitative", "title": x_title(plot), "scale": { "nice": false } });
    // Nothing is what one looks for, so the axis always has it.
    let y = |field: &str| json!({ "field": field, "type": "quantitative", "title": look::in_words(metric), "scale": { "zero": true, "nice": true } });
    let mut layers = vec![
        json!({ "mark": { "type": "area", "interpolate": "step-after", "opacity": 0.2 },
                "encoding": { "x": x, "y": y("min"), "y2": { "field": "max" }, "color": colour } }),
        json!({ "mark": { "type": "line", "interpolate": "step-after", "strokeWidth": 1.5 },
                "encoding": { "x": x, "y": y("median"), "color": colour } }),
    ];
    for (index, event) in plot.events.iter().enumerate() {
        layers.extend(event_layers(event, index, &moments(plot, event, result)?, &x));
    }
    let is_first = plot.metrics.first().is_some_and(|first| first == metric);
    Ok(json!({
        "title": plot.title.as_ref().filter(|_| is_first),
        "width": WIDTH,
        "height": HEIGHT,
        "data": { "values": rows },
        "layer": layers,
    }))
}

fn series(entry: &Entry) -> &str {
    entry.by.as_deref().unwrap_or(&entry.arm)
}

/// What was measured of one arm in each interval.
fn line(result: &ExperimentResult, metric: &str, entry: &Entry) -> Result<Vec<Value>, String> {
    let intervals = intervals(result, metric, &entry.arm);
    if intervals.len() < INTERVALS_MIN {
        return Err(format!("`{metric}` of the arm `{}` was not measured over time", entry.arm));
    }
    let row = |(ms, name): &(u64, String)| {
        let (_, Spread { min, median, max, .. }) = measured(result, name, entry)?;
        let mut row = json!({ "series": series(entry), "s": look::rounded(*ms as f64 / 1e3) });
        for (field, value) in [("min", min), ("median", median), ("max", max)] {
            row[field] = look::rounded(value).into();
        }
        Ok(row)
    };
    intervals.iter().map(row).collect()
}

/// Where the intervals begin, in milliseconds, and the names of what was measured there.
fn intervals(result: &ExperimentResult, metric: &str, arm: &str) -> Vec<(u64, String)> {
    let of_arm = result.series.iter().filter(|one| one.arm == arm);
    let names = distinct(of_arm.flat_map(|one| one.values.keys().cloned()));
    let mut intervals: Vec<(u64, String)> =
        names.into_iter().filter_map(|name| Some((begin_of(&name, metric)?, name))).collect();
    intervals.sort();
    intervals
}

/// 250 of `reads_per_s_at_250_ms`.
fn begin_of(name: &str, metric: &str) -> Option<u64> {
    name.strip_prefix(metric)?.strip_prefix("_at_")?.strip_suffix("_ms")?.parse().ok()
}

/// When an event came in each arm, in seconds.
fn moments(plot: &Plot, event: &str, result: &ExperimentResult) -> Result<Vec<f64>, String> {
    let moment = |entry: &Entry| Ok(look::rounded(measured(result, event, entry)?.1.median / 1e3));
    plot.entries.iter().map(moment).collect()
}

/// An upright line for each arm, named once.
fn event_layers(event: &str, index: usize, moments: &[f64], x: &Value) -> [Value; 2] {
    let first = moments.iter().copied().fold(f64::INFINITY, f64::min);
    let (words, _) = look::words_and_unit(event);
    let rows: Vec<Value> = moments.iter().map(|s| json!({ "s": s })).collect();
    [
        json!({ "data": { "values": rows },
            "mark": { "type": "rule", "color": "#555555", "strokeDash": [3, 3] }, "encoding": { "x": x } }),
        json!({ "data": { "values": [{ "s": first, "event": words }] },
            "mark": { "type": "text", "align": "left", "dx": 3, "baseline": "top" },
            "encoding": { "x": x, "y": { "value": index * LABEL_STEP }, "text": { "field": "event" } } }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_intervals_are_read() {
        for (name, begin) in [
            ("reads_per_s_at_0_ms", Some(0)),
            ("reads_per_s_at_12250_ms", Some(12_250)),
            ("reads_per_s", None),
            ("reads_per_s_at_x_ms", None),
            ("writes_per_s_at_0_ms", None),
        ] {
            assert_eq!(begin_of(name, "reads_per_s"), begin, "{name}");
        }
    }
}
