//! What Prometheus' own tool asks of a page of metrics, asked here as well, since the tool is not everywhere.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// Units that are no base units, and short forms of units: `promtool check metrics` refuses both in names.
const UNITS: [&str; 27] = [
    "s",
    "ms",
    "us",
    "ns",
    "sec",
    "b",
    "kb",
    "mb",
    "gb",
    "tb",
    "pb",
    "m",
    "h",
    "d",
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "bits",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "kibibytes",
    "mebibytes",
    "gibibytes",
];
const KINDS: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];

/// What is wrong with a page, as promtool would say.
pub fn faults(page: &str) -> Vec<String> {
    let (mut faults, mut declared, mut helped) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (mut last, mut is_histogram, mut buckets) = (String::new(), false, Buckets::default());
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            if !help.trim().is_empty() {
                helped.insert(name.to_owned());
            }
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            faults.extend(wrong_name(name, kind).map(|what| format!("{name} {what}")));
            if !helped.contains(name) {
                faults.push(format!("{name} no help text"));
            }
            if !declared.insert(name.to_owned()) {
                faults.push(format!("{name} is declared twice"));
            }
            name.clone_into(&mut last);
            is_histogram = kind == "histogram";
        } else if !line.starts_with('#') && !line.is_empty() {
            let value = line.rsplit_once(' ').map_or("", |(_, value)| value);
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let part = name.strip_prefix(last.as_str()).unwrap_or("of another");
            let is_part = if is_histogram { PARTS.contains(&part) } else { part.is_empty() };
            match value.parse::<f64>() {
                Ok(value) if is_part && is_histogram => faults.extend(buckets.next(part, line, value)),
                Ok(_) if is_part => {}
                _ => faults.push(format!("{line} is no sample of {last}")),
            }
        }
    }
    faults
}

/// What of a page is no `OpenMetrics`: where it ends, and what its families are called.
pub fn open_faults(page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut names, mut suffix) = (BTreeSet::new(), "");
    let mut last = String::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            suffix = if kind == "counter" { "_total" } else { "" };
            if !names.insert(name.to_owned()) {
                faults.push(format!("{name} is declared twice"));
            }
            if name.ends_with("_total") && kind != "unknown" {
                faults.push(format!("{name} is no name of a {kind}"));
            }
            name.clone_into(&mut last);
        } else if !line.starts_with('#') && !line.starts_with(&(last.clone() + suffix)) {
            faults.push(format!("{line} is no sample of {last}"));
        }
    }
    if !page.ends_with("\n# EOF\n") {
        faults.push("it has no end".to_owned());
    }
    faults
}

/// What a histogram's samples are named by, behind its own name.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// A histogram that is read, sample by sample.
#[derive(Default)]
struct Buckets {
    /// The last bucket, and whether it is the unbounded one.
    last: (f64, bool),
    has_sum: bool,
}

impl Buckets {
    /// What is wrong with the next sample, behind those before it.
    fn next(&mut self, part: &str, line: &str, value: f64) -> Option<String> {
        match part {
            "_bucket" => {
                let before = std::mem::replace(&mut self.last, (value, line.contains("le=\"+Inf\"")));
                (value < before.0).then(|| format!("{line} has less than the bucket before it"))
            }
            "_sum" => {
                self.has_sum = true;
                None
            }
            _ => {
                let Buckets { last, has_sum } = std::mem::take(self);
                (last != (value, true) || !has_sum).then(|| format!("{line} is not what its buckets hold"))
            }
        }
    }
}

fn wrong_name(name: &str, kind: &str) -> Option<&'static str> {
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if !name.chars().all(is_plain) || name.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Some("has letters other than a-z, 0-9 and _");
    }
    if name.split('_').any(|word| UNITS.contains(&word)) {
        return Some("has a unit in its name that is no base unit, or is abbreviated");
    }
    if name.split('_').any(|word| KINDS.contains(&word)) {
        return Some("has its kind in its name");
    }
    match (kind, name.ends_with("_total")) {
        ("counter", false) => Some("is a counter without _total"),
        ("gauge", true) => Some("ends in _total and is no counter"),
        ("histogram", _) if !name.ends_with("_seconds") => Some("is a histogram without its unit"),
        ("counter" | "gauge" | "histogram", _) => None,
        _ => Some("is of a kind that is not used here"),
    }
}

/// Lets Prometheus' own tool judge a page, where it is installed.
pub fn check_by_promtool(page: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!(
            "SKIP: there is no promtool (Debian: apt-get install prometheus); only our own rules are applied"
        );
        return;
    };
    child.stdin.take().expect("it is a pipe").write_all(page.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
