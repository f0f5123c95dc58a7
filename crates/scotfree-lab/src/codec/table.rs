//! Who is faster, as a table.
//!
//! Invariant: a ratio is the median of the quotients round by round, and the peer that is best is the one with the
//! smallest median; rows are in the order of how we stand to it, the worst first.

use super::Line;
use scotfree_stage::stats::{median, Spread};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Our arms' names begin so.
const OURS: &str = "ours";
const PORTABLE: &str = "ours-portable";
/// What others are compared to, the first that is there.
const USUAL: [&str; 2] = ["prost", "apache"];

/// How our codec stands to the others in one work on one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Of which messages.
    pub shape: String,
    /// Percent of absent fields, of the three classes alone.
    pub absent: Option<u32>,
    /// `encode` or `decode`.
    pub work: String,
    /// Bytes a message.
    pub bytes: f64,
    /// Nanoseconds a message of each arm: the median.
    pub ns: BTreeMap<String, f64>,
    /// The library that most use: prost, for Thrift Apache's.
    pub usual: String,
    /// Its time over ours.
    pub over_usual: Ratio,
    /// The fastest of the others.
    pub best: String,
    /// Its time over ours: below 1 we lose.
    pub over_best: Ratio,
    /// The usual one's time over that of our code without instructions of the processor's own, where that is measured.
    pub portable_over_usual: Option<Ratio>,
}

/// A quotient and how far rounds lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// A quarter of the rounds is below it.
    pub q1: f64,
    /// And a quarter above this.
    pub q3: f64,
}

/// The rows that lines give, where we lose first.
pub fn rows(lines: &[Line]) -> Vec<Row> {
    let mut groups: BTreeMap<(&str, u32, &str), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        groups.entry((&line.shape, line.absent, &line.work)).or_default().push(line);
    }
    let mut rows: Vec<Row> = groups.values().filter_map(|lines| row(lines)).collect();
    rows.sort_by(|a, b| a.over_best.median.total_cmp(&b.over_best.median));
    rows
}

fn row(lines: &[&Line]) -> Option<Row> {
    let mut series: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for line in lines {
        series.entry(&line.arm).or_default().push(line.ns);
    }
    let ns: BTreeMap<String, f64> =
        series.iter().filter_map(|(arm, ns)| Some(((*arm).to_owned(), median(ns)?))).collect();
    // Where the processor has nothing of its own, the portable code is what there is.
    let ours = series.get(OURS).or_else(|| series.get(PORTABLE))?;
    let usual = USUAL.into_iter().find(|name| series.contains_key(name))?;
    let others = ns.iter().filter(|(arm, _)| !arm.starts_with(OURS));
    let (best, _) = others.min_by(|a, b| a.1.total_cmp(b.1))?;
    let first = lines.first()?;
    Some(Row {
        shape: first.shape.clone(),
        absent: super::CLASSES.contains(&first.shape.as_str()).then_some(first.absent),
        work: first.work.clone(),
        bytes: first.bytes,
        usual: usual.to_owned(),
        over_usual: ratio(&series[usual], ours)?,
        over_best: ratio(&series[best.as_str()], ours)?,
        best: best.clone(),
        portable_over_usual: series.get(PORTABLE).and_then(|portable| ratio(&series[usual], portable)),
        ns,
    })
}

fn ratio(theirs: &[f64], ours: &[f64]) -> Option<Ratio> {
    let quotients: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
    let Spread { q1, median, q3, .. } = Spread::of(&quotients)?;
    Some(Ratio { median, q1, q3 })
}

/// The table in words.
pub fn render(rows: &[Row]) -> String {
    let mut text = String::from(
        "messages            work       bytes    ours ns   over the best peer                    over prost/Apache     portable\n",
    );
    for row in rows {
        let name =
            row.absent.map_or_else(|| row.shape.clone(), |absent| format!("{} {absent} % absent", row.shape));
        let ours = row.ns.get(OURS).or_else(|| row.ns.get(PORTABLE)).copied().unwrap_or_default();
        let portable =
            row.portable_over_usual.map_or_else(String::new, |ratio| format!("{:.2}x", ratio.median));
        let _ = writeln!(
            text,
            "{name:18}  {:6}  {:8.0}  {ours:9.1}   {:18} {:15}  {:20}  {portable:>8}",
            row.work,
            row.bytes,
            shown(row.over_best),
            row.best,
            shown(row.over_usual),
        );
    }
    let losses = rows.iter().filter(|row| row.over_best.median < 1.0).count();
    let _ = writeln!(
        text,
        "Times over ours, the median of rounds (a quarter of them below .. above): above 1x we are faster. {losses} of {} rows are \
         lost, and stand first.",
        rows.len()
    );
    text
}

fn shown(Ratio { median, q1, q3 }: Ratio) -> String {
    format!("{median:.2}x ({q1:.2}..{q3:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(shape: &str, arms: &[(&str, [f64; 3])]) -> Vec<Line> {
        let line = |arm: &str, round: usize, ns: f64| Line {
            shape: shape.into(),
            absent: 10,
            work: "decode".into(),
            arm: arm.into(),
            round: round as u32,
            ns,
            bytes: 100.0,
            items: 1.0,
        };
        arms.iter()
            .flat_map(|(arm, times)| times.iter().enumerate().map(move |(round, ns)| line(arm, round, *ns)))
            .collect()
    }

    #[test]
    fn where_we_lose_stands_first() {
        let won = lines(
            "flat",
            &[("prost", [4.0, 4.0, 8.0]), ("ours", [1.0, 2.0, 1.0]), ("buffa", [3.0, 3.0, 3.0])],
        );
        let lost = lines("otlp", &[("prost", [4.0; 3]), ("ours", [2.0; 3]), ("buffa", [1.0; 3])]);
        let rows = rows(&[won, lost].concat());
        let said: Vec<_> =
            rows.iter().map(|row| (row.shape.as_str(), row.best.as_str(), row.over_best.median)).collect();
        assert_eq!(said, [("otlp", "buffa", 0.5), ("flat", "buffa", 3.0)]);
        assert_eq!((rows[1].over_usual.median, rows[1].absent, rows[0].absent), (4.0, Some(10), None));
        let text = render(&rows);
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("otlp")), "{text}");
        assert!(text.contains("1 of 2 rows are lost"), "{text}");
    }

    #[test]
    fn without_instructions_of_its_own_a_processor_has_the_portable_code() {
        let rows = rows(&lines("flat", &[("prost", [4.0; 3]), ("ours-portable", [2.0; 3])]));
        assert!((rows[0].over_usual.median - 2.0).abs() < 1e-9);
        assert!(
            super::super::table::rows(&lines("flat", &[("ours", [1.0; 3])])).is_empty(),
            "there is no peer"
        );
    }
}
