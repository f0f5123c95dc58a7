//! Arms beside each other: rows of repetitions, and bars.
//!
//! Invariant: the repetitions' spread is always drawn with their median.

use super::bounds::{self, Bound};
use super::look::{self, COLOURS, GOAL, REFERENCE, REQUIRED, WIDTH};
use super::measured;
use super::rule::{At, Axis, Entry, Plot};
use crate::results::{number, ExperimentResult};
use scotfree_stage::stats::Spread;
use serde_json::{json, Value};

/// With more repetitions than this their middle half is drawn instead of each.
const DOTS_MAX: usize = 25;
const BAR_STEP: usize = 46;
const MEDIAN: &str = "median";

/// One entry with what was measured of it.
struct Row<'a> {
    entry: &'a Entry,
    values: Vec<f64>,
    spread: Spread,
    bounds: Vec<Bound>,
}

fn rows<'a>(plot: &'a Plot, metric: &str, result: &ExperimentResult) -> Result<Vec<Row<'a>>, String> {
    let row = |entry: &'a Entry| {
        let (values, spread) = measured(result, metric, entry)?;
        Ok(Row { entry, values, spread, bounds: bounds::of_arm(result, metric, &entry.arm) })
    };
    plot.entries.iter().map(row).collect()
}

/// All that an axis must have room for.
fn extent<'a>(rows: &'a [Row<'_>]) -> impl Iterator<Item = f64> + 'a {
    rows.iter().flat_map(|row| {
        let bounds = row.bounds.iter().map(|bound| bound.value);
        [row.spread.min, row.spread.max].into_iter().chain(bounds)
    })
}

/// A colour for each name, the same in all layers, so that they share one legend.
pub(super) fn colour_scale(names: &[(String, &str)]) -> Value {
    let (names, colours): (Vec<&String>, Vec<&str>) =
        names.iter().map(|(name, colour)| (name, *colour)).unzip();
    json!({ "domain": names, "range": colours })
}

/// The bounds that are there, with their colours.
pub(super) fn bound_colours<'a>(bounds: impl Iterator<Item = &'a Bound>) -> Vec<(String, &'static str)> {
    let words: Vec<&str> = bounds.map(|bound| bound.word).collect();
    let there = [("required", REQUIRED), ("goal", GOAL)].into_iter();
    there.filter(|(word, _)| words.contains(word)).map(|(word, colour)| (word.to_owned(), colour)).collect()
}

/// The bounds that arms have in any rows: all share one legend.
fn claimed_colours(result: &ExperimentResult) -> Vec<(String, &'static str)> {
    let bounds = result.claims.iter().flat_map(|claim| {
        let arms = claim.formula.arms().into_iter();
        arms.flat_map(|arm| bounds::of_arm(result, claim.formula.metric(), arm))
    });
    bound_colours(bounds.collect::<Vec<Bound>>().iter())
}

/// A row for each arm: its repetitions, their median, and where its bounds lie.
pub(super) fn points(
    plot: &Plot,
    metric: &str,
    has_legend: bool,
    result: &ExperimentResult,
) -> Result<Value, String> {
    let rows = rows(plot, metric, result)?;
    let arms: Vec<&str> = rows.iter().map(|row| row.entry.arm.as_str()).collect();
    let has_dots = rows.iter().all(|row| row.values.len() <= DOTS_MAX);
    let repetitions = if has_dots { "one repetition" } else { "half of the repetitions" };
    let mut names = vec![(repetitions.to_owned(), COLOURS[0]), (MEDIAN.to_owned(), "#111111")];
    names.extend(claimed_colours(result));
    let (colours, legend) = (colour_scale(&names), has_legend.then(|| json!({})));
    let colour = |name: &str| json!({ "datum": name, "scale": colours, "legend": legend });
    let y = json!({ "field": "arm", "type": "nominal", "sort": arms, "title": null });
    let x = |field: &str| json!({ "field": field, "type": "quantitative", "title": look::in_words(metric), "scale": look::scale(extent(&rows)) });
    let middle = if has_dots {
        json!({
            "data": { "values": dots(&rows) },
            "mark": { "type": "circle", "size": 46, "opacity": 0.6 },
            "encoding": { "y": y, "x": x("value"), "color": colour(repetitions) },
        })
    } else {
        json!({
            "mark": { "type": "bar", "height": 9, "opacity": 0.6 },
            "encoding": { "y": y, "x": x("q1"), "x2": { "field": "q3" }, "color": colour(repetitions) },
        })
    };
    Ok(json!({
        "title": title(plot, metric),
        "width": WIDTH,
        "height": { "step": 28 },
        "data": { "values": rows.iter().map(Row::five_numbers).collect::<Vec<Value>>() },
        "layer": [
            { "mark": { "type": "rule", "color": "#999999" },
              "encoding": { "y": y, "x": x("min"), "x2": { "field": "max" } } },
            middle,
            { "mark": { "type": "tick", "thickness": 3, "size": 16, "opacity": 1 },
              "encoding": { "y": y, "x": x("median"), "color": colour(MEDIAN) } },
            { "mark": { "type": "text", "align": "left", "dx": 8 },
              "encoding": { "y": y, "x": x("end"), "text": { "field": "label" } } },
            { "data": { "values": bound_rows(&rows) },
              "mark": { "type": "tick", "thickness": 3, "size": 24, "opacity": 1 },
              "encoding": { "y": y, "x": x("value"), "color": { "field": "bound", "type": "nominal", "scale": colours, "legend": legend } } },
        ],
    }))
}

impl Row<'_> {
    fn five_numbers(&self) -> Value {
        let Spread { min, q1, median, q3, max } = self.spread;
        let bounds = self.bounds.iter().map(|bound| bound.value);
        let mut row = self.place();
        row["label"] = number(median).into();
        // The median's number stands behind everything in its row.
        let end = bounds.fold(max, f64::max);
        for (field, value) in
            [("min", min), ("q1", q1), ("median", median), ("q3", q3), ("max", max), ("end", end)]
        {
            row[field] = look::rounded(value).into();
        }
        row
    }

    fn place(&self) -> Value {
        let Entry { arm, x, by, .. } = self.entry;
        json!({ "arm": arm, "x": x.to_string(), "by": by })
    }
}

fn dots(rows: &[Row<'_>]) -> Vec<Value> {
    let of_row = |row: &Row<'_>| -> Vec<Value> {
        let arm = &row.entry.arm;
        row.values.iter().map(|value| json!({ "arm": arm, "value": look::rounded(*value) })).collect()
    };
    rows.iter().flat_map(of_row).collect()
}

fn bound_rows(rows: &[Row<'_>]) -> Vec<Value> {
    let of_row = |row: &Row<'_>| -> Vec<Value> {
        let with = |bound: &Bound| {
            let mut place = row.place();
            place["bound"] = bound.word.into();
            place["value"] = look::rounded(bound.value).into();
            place
        };
        row.bounds.iter().map(with).collect()
    };
    rows.iter().flat_map(of_row).collect()
}

/// A bar for each arm, as high as its median, with a line over the spread of its repetitions.
pub(super) fn bars(plot: &Plot, metric: &str, result: &ExperimentResult) -> Result<Value, String> {
    let rows = rows(plot, metric, result)?;
    let places = distinct(rows.iter().map(|row| row.entry.x.to_string()));
    let groups = distinct(rows.iter().filter_map(|row| row.entry.by.clone()));
    let names = bar_colours(plot, &rows, &groups);
    let colours = colour_scale(&names);
    let references = reference_rows(plot);
    let values = references.iter().filter_map(|row| row["value"].as_f64()).chain(extent(&rows));
    let scale = bar_scale(values);
    let x = json!({
        "field": "x", "type": "nominal", "sort": places, "title": x_title(plot),
        "axis": { "labelAngle": if is_wide(&places) { -25 } else { 0 }, "grid": false },
    });
    let y = |field: &str| json!({ "field": field, "type": "quantitative", "title": look::in_words(metric), "scale": scale });
    let over = |mut encoding: Value| {
        encoding["x"] = x.clone();
        if !groups.is_empty() {
            encoding["xOffset"] = json!({ "field": "by", "type": "nominal", "sort": groups });
        }
        encoding
    };
    let bar_colour = if groups.is_empty() {
        json!({ "value": COLOURS[0] })
    } else {
        json!({ "field": "by", "type": "nominal", "scale": colours })
    };
    let base = scale.get("domainMin").map_or(json!({ "datum": 0 }), |base| json!({ "datum": base }));
    let mut layers = vec![
        json!({ "mark": { "type": "bar", "opacity": 0.85 },
                "encoding": over(json!({ "y": y("median"), "y2": base, "color": bar_colour })) }),
        json!({ "mark": { "type": "rule", "color": "#333333", "strokeWidth": 1.5 },
                "encoding": over(json!({ "y": y("min"), "y2": { "field": "max" } })) }),
        json!({ "mark": { "type": "text", "dy": -7 },
                "encoding": over(json!({ "y": y("end"), "text": { "field": "label" } })) }),
    ];
    // A layer of nothing has no size, and neither has a picture with one.
    let bounds = bound_rows(&rows);
    if !bounds.is_empty() {
        layers.push(json!({
            "data": { "values": bounds },
            "mark": { "type": "tick", "thickness": 2, "orient": "horizontal" },
            "encoding": over(json!({ "y": y("value"), "color": { "field": "bound", "scale": colours } })),
        }));
    }
    if !references.is_empty() {
        layers.push(json!({
            "data": { "values": references },
            "mark": { "type": "point", "shape": "diamond", "filled": true, "size": 90, "opacity": 1 },
            "encoding": { "x": x, "y": y("value"), "color": { "field": "label", "scale": colours } },
        }));
    }
    Ok(json!({
        "title": title(plot, metric),
        "width": (places.len() * (groups.len().max(1) * BAR_STEP + 20)).clamp(240, WIDTH as usize + 120),
        "height": 230,
        "data": { "values": rows.iter().map(Row::five_numbers).collect::<Vec<Value>>() },
        "layer": layers,
    }))
}

/// What stands above the first panel of a plot.
fn title<'a>(plot: &'a Plot, metric: &str) -> Option<&'a String> {
    plot.title.as_ref().filter(|_| plot.metrics.first().is_some_and(|first| first == metric))
}

/// Bars begin at zero; on a logarithmic axis, where there is none, at the power of ten below all of them.
fn bar_scale(values: impl Iterator<Item = f64>) -> Value {
    let values: Vec<f64> = values.collect();
    let mut scale = look::scale(values.iter().copied());
    if scale["type"] == "log" {
        let min = values.into_iter().fold(f64::INFINITY, f64::min);
        scale["domainMin"] = 10f64.powf(min.log10().floor()).into();
    }
    scale
}

fn bar_colours(plot: &Plot, rows: &[Row<'_>], groups: &[String]) -> Vec<(String, &'static str)> {
    let mut names: Vec<(String, &str)> = groups.iter().cloned().zip(COLOURS.into_iter().cycle()).collect();
    names.extend(bound_colours(rows.iter().flat_map(|row| &row.bounds)));
    names.extend(plot.references.iter().map(|reference| (reference.label.clone(), REFERENCE)));
    names
}

/// The numbers of others, each in its place.
pub(super) fn reference_rows(plot: &Plot) -> Vec<Value> {
    let rows = plot.references.iter().flat_map(|reference| {
        let row = |(at, value): &(At, f64)| {
            let x = match at {
                At::Number(number) => json!(number),
                At::Name(name) => json!(name),
            };
            json!({ "x": x, "value": value, "label": reference.label })
        };
        reference.points.iter().map(row)
    });
    rows.collect()
}

/// What the places mean, in words.
pub(super) fn x_title(plot: &Plot) -> Option<String> {
    match &plot.x {
        Axis::Arm => None,
        Axis::Setting(name) | Axis::Metric(name) => Some(look::in_words(name)),
        Axis::Time => Some("time (s)".to_owned()),
    }
}

/// Whether names would run into each other side by side.
fn is_wide(names: &[String]) -> bool {
    names.iter().any(|name| name.len() > 10) || names.iter().map(String::len).sum::<usize>() > 70
}

/// Each once, in the order of their first appearance.
pub(super) fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}
