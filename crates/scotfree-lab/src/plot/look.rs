//! How plots look, and how metrics are called in them.
//!
//! Invariant: what a metric's name says of its unit stands on its axis.

use serde_json::{json, Value};

/// How wide a panel is.
pub(super) const WIDTH: u32 = 520;
/// From this quotient of the largest and the smallest value on, an axis is logarithmic.
const LOG_FROM: f64 = 30.0;
/// The colours of arms and settings: those of Okabe and Ito, which most people tell apart.
pub(super) const COLOURS: [&str; 7] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31", "#444444"];
/// The colour of what must be reached.
pub(super) const REQUIRED: &str = "#C00000";
/// The colour of what is hoped for.
pub(super) const GOAL: &str = "#2E8B3D";
/// The colour of other people's numbers.
pub(super) const REFERENCE: &str = "#7A7A7A";

/// The size of what is written.
pub(super) fn config() -> Value {
    json!({
        "view": { "stroke": null },
        "axis": { "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
                  "gridColor": "#e4e4e4", "labelLimit": 260 },
        "title": { "anchor": "start", "fontSize": 14, "subtitleFontSize": 11, "subtitleColor": "#555555",
                   "offset": 12 },
        "legend": { "labelFontSize": 12, "title": null, "labelLimit": 300, "orient": "bottom",
                    "columns": 4, "symbolSize": 80 },
        "text": { "fontSize": 11 },
    })
}

/// An axis from zero, or a logarithmic one where the values need it.
pub(super) fn scale(values: impl IntoIterator<Item = f64>) -> Value {
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        (min, max) = (min.min(value), max.max(value));
    }
    if min > 0.0 && max / min >= LOG_FROM {
        json!({ "type": "log", "nice": true })
    } else {
        json!({ "zero": true, "nice": true })
    }
}

/// The number as it is kept in a specification: six digits are more than anybody sees.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 12) as usize);
    text.parse().expect("a printed number is one")
}

/// Lines of at most so many letters each.
pub(super) fn wrapped(text: &str, letters_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.len() + word.len() < letters_max) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A metric or setting in words, with its unit behind it: `p50_us` is "p50 (us)".
pub(super) fn in_words(name: &str) -> String {
    let (words, unit) = words_and_unit(name);
    unit.map_or(words.clone(), |unit| format!("{words} ({unit})"))
}

/// The same in two parts.
pub(super) fn words_and_unit(name: &str) -> (String, Option<&'static str>) {
    let name = name.replace('-', "_");
    let (name, per) = match name.split_once("_per_") {
        Some((name, "s")) => (name, " per second".to_owned()),
        Some((name, per)) => (name, format!(" per {}", per.replace('_', " "))),
        None => (name.as_str(), String::new()),
    };
    let parts: Vec<&str> = name.split('_').collect();
    // A name that is nothing but a unit is a word.
    let at = parts.iter().rposition(|part| unit_of(part).is_some()).filter(|at| *at > 0);
    let words = parts.iter().enumerate().filter(|(index, _)| Some(*index) != at);
    let words: Vec<&str> = words.map(|(_, part)| *part).collect();
    (words.join(" ") + &per, at.and_then(|at| unit_of(parts[at])))
}

fn unit_of(part: &str) -> Option<&'static str> {
    [("ns", "ns"), ("us", "us"), ("ms", "ms"), ("s", "s"), ("bytes", "B"), ("percent", "%")]
        .into_iter()
        .find_map(|(suffix, unit)| (part == suffix).then_some(unit))
}

/// Whether small values of a metric are the good ones: it is a time.
pub(super) fn is_time(metric: &str) -> bool {
    let name = metric.split("_per_").next().unwrap_or_default();
    name.split('_').any(|part| ["ns", "us", "ms", "s"].contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words_with_units() {
        for (name, words) in [
            ("p50_us", "p50 (us)"),
            ("requests_per_s", "requests per second"),
            ("cpu_us_per_request_redis", "cpu per request redis (us)"),
            ("payload-bytes", "payload (B)"),
            ("recovery_ms_max_server", "recovery max server (ms)"),
            ("lost", "lost"),
            ("update-percent", "update (%)"),
            ("outstanding", "outstanding"),
        ] {
            assert_eq!(in_words(name), words);
        }
        assert!(is_time("cpu_us_per_request") && is_time("p50_us") && !is_time("requests_per_s"));
    }

    #[test]
    fn an_axis_is_logarithmic_where_the_values_need_it() {
        assert_eq!(scale([1.0, 29.0])["zero"], true);
        assert_eq!(scale([1.0, 30.0])["type"], "log");
        assert_eq!(scale([0.0, 30.0])["zero"], true);
    }

    #[test]
    fn six_digits_are_kept() {
        for (value, kept) in [
            (5.525_007_578, 5.525_01),
            (109_427.091_2, 109_427.0),
            (0.0, 0.0),
            (-0.001_234_567_8, -0.001_234_57),
        ] {
            assert_eq!(rounded(value).to_string(), kept.to_string());
        }
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let lines = wrapped(&"word ".repeat(50), 100);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() <= 100 && line.ends_with("word")));
    }
}
