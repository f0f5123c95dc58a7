//! Lines: over a setting, over another metric, and over the percentiles of latency.
//!
//! Invariant: a line joins medians of measurements, in the order of the arms; nothing lies between them.

use super::bounds::{self, Bound};
use super::charts::{bound_colours, colour_scale, distinct, reference_rows, x_title};
use super::look::{self, COLOURS, REFERENCE, WIDTH};
use super::measured;
use super::rule::{At, Axis, Entry, Kind, Plot};
use crate::formula::values_of;
use crate::results::ExperimentResult;
use scotfree_stage::stats::{median, Spread};
use serde_json::{json, Value};

const HEIGHT: u32 = 280;
/// The width and height of a panel that is alone, and of one of several beside each other.
const WHOLE: (u32, u32) = (WIDTH, HEIGHT);
const PART: (u32, u32) = (WIDTH / 2 - 30, HEIGHT * 2 / 3);
/// Percentiles that make a line.
const PERCENTILES_MIN: usize = 3;

/// A point of a line.
#[derive(Clone)]
struct Spot {
    x: At,
    series: String,
    /// Of several panels, which it is in.
    panel: Option<String>,
    metric: String,
    spread: Spread,
    bounds: Vec<Bound>,
}

/// Lines of medians in one panel, or in one for each value of the setting that panels mean; those have the same axes.
pub(super) fn curves(plot: &Plot, result: &ExperimentResult) -> Result<Value, String> {
    let spots = spots(plot, result)?;
    let lines = Lines::of(plot, &spots);
    let Some(setting) = &plot.panels else { return Ok(lines.panel(plot.title.as_deref(), WHOLE, &spots)) };
    let values = distinct(plot.entries.iter().filter_map(|entry| entry.panel.clone()));
    let panel = |value: &String| {
        let there: Vec<Spot> =
            spots.iter().filter(|spot| spot.panel.as_ref() == Some(value)).cloned().collect();
        lines.panel(Some(&format!("{}: {value}", look::in_words(setting))), PART, &there)
    };
    Ok(json!({
        "title": plot.title,
        "columns": 2,
        "concat": values.iter().map(panel).collect::<Vec<Value>>(),
        "resolve": { "scale": { "x": "shared", "y": "shared", "color": "shared", "strokeDash": "shared" } },
    }))
}

/// What the panels of one plot share.
struct Lines<'a> {
    plot: &'a Plot,
    axes: Axes,
    colours: Value,
    dashes: Value,
    references: Vec<Value>,
}

impl<'a> Lines<'a> {
    fn of(plot: &'a Plot, spots: &[Spot]) -> Lines<'a> {
        let series = distinct(spots.iter().map(|spot| spot.series.clone()));
        let metrics = distinct(spots.iter().map(|spot| spot.metric.clone()));
        let references = reference_rows(plot);
        let mut names: Vec<(String, &str)> = series.into_iter().zip(COLOURS.into_iter().cycle()).collect();
        names.extend(bound_colours(spots.iter().flat_map(|spot| &spot.bounds)));
        names.extend(plot.references.iter().map(|reference| (reference.label.clone(), REFERENCE)));
        let dashes = json!({ "field": "metric", "type": "nominal", "sort": metrics,
            "legend": if metrics.len() > 1 { json!({ "title": null }) } else { Value::Null } });
        let axes = Axes::of(plot, spots, &references);
        Lines { plot, axes, colours: colour_scale(&names), dashes, references }
    }

    fn coloured(&self, field: &str) -> Value {
        json!({ "field": field, "type": "nominal", "scale": self.colours })
    }

    /// A line for each value of the setting that colours mean and each metric, with the spread at each point. Where the
    /// places are words, only the points.
    fn panel(&self, title: Option<&str>, (width, height): (u32, u32), spots: &[Spot]) -> Value {
        let Lines { plot, axes, dashes, .. } = self;
        let mut layers = Vec::new();
        if plot.kind == Kind::Ratio {
            layers.push(json!({ "data": { "values": [{ "one": 1 }] },
                "mark": { "type": "rule", "color": "#999999", "strokeDash": [2, 3] },
                "encoding": { "y": axes.y("one") } }));
        }
        if axes.has_numbers {
            layers.push(json!({ "mark": { "type": "line", "strokeWidth": 2 }, "encoding": axes.place(json!({
                "y": axes.y("median"), "color": self.coloured("series"), "strokeDash": dashes,
                "order": { "field": "order" } })) }));
        }
        layers.push(json!({ "mark": { "type": "rule", "opacity": 0.5 }, "encoding": axes.place(json!({
            "y": axes.y("min"), "y2": { "field": "max" }, "color": self.coloured("series") })) }));
        layers.push(json!({ "mark": { "type": "point", "filled": true, "size": 50, "opacity": 1 },
            "encoding": axes.place(json!({ "y": axes.y("median"), "color": self.coloured("series") })) }));
        layers.push(json!({ "data": { "values": bound_rows(spots) },
            "mark": { "type": "tick", "orient": "horizontal", "thickness": 2, "size": 16 },
            "encoding": axes.place(json!({ "y": axes.y("value"), "color": self.coloured("bound") })) }));
        layers.extend(self.reference_layers());
        let rows = spots.iter().enumerate().map(|(order, spot)| spot.row(order));
        json!({
            "title": title,
            "width": width,
            "height": height,
            "data": { "values": rows.collect::<Vec<Value>>() },
            "layer": layers,
        })
    }

    fn reference_layers(&self) -> Vec<Value> {
        let Lines { axes, references, .. } = self;
        if references.is_empty() {
            return Vec::new();
        }
        let layer = |mark: Value| {
            json!({ "data": { "values": references }, "mark": mark, "encoding":
                { "x": axes.x, "y": axes.y("value"), "color": self.coloured("label") } })
        };
        let line = axes.has_numbers.then(|| layer(json!({ "type": "line", "strokeDash": [6, 4] })));
        let point = json!({ "type": "point", "shape": "diamond", "filled": true, "size": 70, "opacity": 1 });
        line.into_iter().chain([layer(point)]).collect()
    }
}

fn spots(plot: &Plot, result: &ExperimentResult) -> Result<Vec<Spot>, String> {
    let mut spots = Vec::new();
    for metric in &plot.metrics {
        for entry in &plot.entries {
            let (_, spread) = measured(result, metric, entry)?;
            let bounds = match &entry.over {
                // Of several metrics one would not see whose bound it is.
                _ if plot.metrics.len() > 1 => Vec::new(),
                None => bounds::of_arm(result, metric, &entry.arm),
                Some(over) => bounds::of_ratio(result, metric, &entry.arm, over),
            };
            let (words, _) = look::words_and_unit(metric);
            let series = entry.by.clone().unwrap_or_else(|| words.clone());
            let (x, panel) = (place(plot, entry, result)?, entry.panel.clone());
            spots.push(Spot { x, series, panel, metric: words, spread, bounds });
        }
    }
    Ok(spots)
}

/// Where an entry stands: where its setting says, or where the median of the other metric is.
fn place(plot: &Plot, entry: &Entry, result: &ExperimentResult) -> Result<At, String> {
    match &plot.x {
        Axis::Arm | Axis::Setting(_) | Axis::Time => Ok(entry.x.clone()),
        Axis::Metric(metric) => Ok(At::Number(measured(result, metric, entry)?.1.median)),
    }
}

/// The two axes, the same in all layers.
struct Axes {
    has_numbers: bool,
    x: Value,
    scale: Value,
    title: String,
    /// Where points of one place and several colours stand beside each other.
    offset: Option<Value>,
}

impl Axes {
    fn of(plot: &Plot, spots: &[Spot], references: &[Value]) -> Axes {
        let has_numbers = spots.iter().all(|spot| spot.x.is_number());
        let numbers = spots.iter().filter_map(|spot| match spot.x {
            At::Number(number) => Some(number),
            At::Name(_) => None,
        });
        let places = distinct(spots.iter().map(|spot| spot.x.to_string()));
        let x = if has_numbers {
            {
                json!({ "field": "x", "type": "quantitative", "title": x_title(plot), "scale": look::scale(numbers) })
            }
        } else {
            json!({ "field": "x", "type": "nominal", "title": x_title(plot), "sort": places,
                             "axis": { "labelAngle": 0 } })
        };
        let values = spots.iter().flat_map(|spot| {
            let bounds = spot.bounds.iter().map(|bound| bound.value);
            [spot.spread.min, spot.spread.max].into_iter().chain(bounds)
        });
        let values = values.chain(references.iter().filter_map(|row| row["value"].as_f64()));
        let offset = (!has_numbers).then(|| json!({ "field": "series", "type": "nominal" }));
        Axes { has_numbers, x, scale: look::scale(values), title: y_title(plot), offset }
    }

    fn y(&self, field: &str) -> Value {
        json!({ "field": field, "type": "quantitative", "title": self.title, "scale": self.scale })
    }

    fn place(&self, mut encoding: Value) -> Value {
        encoding["x"] = self.x.clone();
        if let Some(offset) = &self.offset {
            encoding["xOffset"] = offset.clone();
        }
        encoding
    }
}

/// The metrics in words, then the unit, or what is divided.
fn y_title(plot: &Plot) -> String {
    let names: Vec<(String, Option<&str>)> =
        plot.metrics.iter().map(|metric| look::words_and_unit(metric)).collect();
    let words: Vec<&str> = names.iter().map(|(words, _)| words.as_str()).collect();
    let words = words.join(", ");
    match (&plot.quotient, names.first().and_then(|(_, unit)| *unit)) {
        (Some(quotient), _) => format!("{words}: {quotient} (x)"),
        (None, Some(unit)) => format!("{words} ({unit})"),
        (None, None) => words,
    }
}

impl Spot {
    fn row(&self, order: usize) -> Value {
        let Spread { min, median, max, .. } = self.spread;
        let mut row = self.place();
        row["metric"] = self.metric.clone().into();
        row["order"] = order.into();
        for (field, value) in [("min", min), ("median", median), ("max", max)] {
            row[field] = look::rounded(value).into();
        }
        row
    }

    fn place(&self) -> Value {
        let x = match &self.x {
            At::Number(number) => json!(look::rounded(*number)),
            At::Name(name) => json!(name),
        };
        json!({ "x": x, "series": self.series })
    }
}

fn bound_rows(spots: &[Spot]) -> Vec<Value> {
    let of_spot = |spot: &Spot| -> Vec<Value> {
        let with = |bound: &Bound| {
            let mut place = spot.place();
            place["bound"] = bound.word.into();
            place["value"] = look::rounded(bound.value).into();
            place
        };
        spot.bounds.iter().map(with).collect()
    };
    spots.iter().flat_map(of_spot).collect()
}

/// A line for each arm through the medians of its percentiles.
pub(super) fn cdf(plot: &Plot, result: &ExperimentResult) -> Result<Value, String> {
    let mut rows = Vec::new();
    for entry in &plot.entries {
        let percentiles = percentiles(result, &entry.arm)?;
        rows.extend(
            percentiles.into_iter().map(
                |(percent, us)| json!({ "arm": entry.arm, "percent": percent, "us": look::rounded(us) }),
            ),
        );
    }
    let arms: Vec<String> = plot.entries.iter().map(|entry| entry.arm.clone()).collect();
    let names: Vec<(String, &str)> = arms.into_iter().zip(COLOURS.into_iter().cycle()).collect();
    let scale = look::scale(rows.iter().filter_map(|row| row["us"].as_f64()));
    Ok(json!({
        "title": plot.title,
        "width": WIDTH,
        "height": HEIGHT,
        "data": { "values": rows },
        "mark": { "type": "line", "point": { "size": 30 }, "strokeWidth": 2, "interpolate": "monotone" },
        "encoding": {
            "x": { "field": "us", "type": "quantitative", "title": "completion time (us)", "scale": scale },
            "y": { "field": "percent", "type": "quantitative", "title": "calls that are complete (%)",
                   "scale": { "domain": [0, 100] } },
            "order": { "field": "percent" },
            "color": { "field": "arm", "type": "nominal", "scale": colour_scale(&names) },
        },
    }))
}

/// The percentiles that were measured of an arm, each the median over its repetitions.
fn percentiles(result: &ExperimentResult, arm: &str) -> Result<Vec<(f64, f64)>, String> {
    let of_arm = result.series.iter().filter(|one| one.arm == arm);
    let metrics = distinct(of_arm.flat_map(|one| one.values.keys().cloned()));
    let mut found = Vec::new();
    for metric in metrics {
        if let Some(percent) = percent_of(&metric) {
            let values: Vec<f64> = values_of(&result.series, &metric, arm)?.into_values().collect();
            let us =
                median(&values).ok_or_else(|| format!("`{metric}` of the arm `{arm}` is not a number"))?;
            found.push((percent, us));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    if found.len() < PERCENTILES_MIN {
        Err(format!(
            "of the arm `{arm}` {} percentiles were measured (p50_us and the like), and a cdf needs {PERCENTILES_MIN}",
            found.len()
        ))
    } else {
        Ok(found)
    }
}

/// 50 of `p50_us`, 99.9 of `p999_us`.
fn percent_of(metric: &str) -> Option<f64> {
    let digits = metric.strip_prefix('p')?.strip_suffix("_us")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<f64>().ok().filter(|_| is_number)?;
    let behind_the_point = digits.len().saturating_sub(2) as i32;
    Some(if digits == "100" { 100.0 } else { number / 10f64.powi(behind_the_point) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_percentiles_are_read() {
        for (metric, percent) in [
            ("p50_us", Some(50.0)),
            ("p5_us", Some(5.0)),
            ("p999_us", Some(99.9)),
            ("p9999_us", Some(99.99)),
            ("p100_us", Some(100.0)),
            ("mean_us", None),
            ("p50_ms", None),
            ("p_us", None),
        ] {
            assert_eq!(percent_of(metric), percent, "{metric}");
        }
    }
}
