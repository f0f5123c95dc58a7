//! Reports as text: a stacked bar for each percentile, and the times behind it.
//!
//! Invariant: no line is longer than the style's width (but for a method's own long name); without
//! colour the text is plain ASCII and loses nothing, since each stage is drawn as its own digit.

use crate::report::{MethodReport, Percentile, Report, Row};
use scotfree_core::{Stage, STAGE_COUNT};
use std::fmt::Write;

const WIDTH_DEFAULT: usize = 80;
const WIDTH_MIN: usize = 60;
const WIDTH_MAX: usize = 240;
// A full bar stands for this multiple of the median at most, so that a long tail does not flatten the rest.
const SCALE_TO_MEDIAN_MAX: f64 = 2.0;
// Background colours of the nine stages in the 256-colour palette: queues in yellows, stacks in
// magentas, wires in blues, the application in green.
const COLOURS: [u8; STAGE_COUNT] = [222, 176, 75, 214, 78, 220, 140, 111, 229];

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns to use.
    pub width: usize,
    /// Whether to use terminal colours.
    pub colour: bool,
}

impl Style {
    /// The style for standard output as the environment has it: colours only on a terminal and not where
    /// `NO_COLOR` is set; the width of `COLUMNS`, or 80.
    pub fn from_environment(is_terminal: bool) -> Style {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        Style::new(columns, is_terminal && !no_colour && !is_dumb)
    }

    fn new(columns: Option<usize>, colour: bool) -> Style {
        Style { width: columns.unwrap_or(WIDTH_DEFAULT).clamp(WIDTH_MIN, WIDTH_MAX), colour }
    }
}

impl Default for Style {
    fn default() -> Self {
        Style::new(None, false)
    }
}

/// One set of calls: for every method its bars and the table behind them.
pub fn render_report(report: &Report, style: Style) -> String {
    let mut text = String::new();
    render_legend(style, &mut text);
    for method in &report.methods {
        text.push('\n');
        render_method(method, style, &mut text);
    }
    text.push('\n');
    render_footer(report, &mut text);
    text
}

/// Two sets side by side on one scale, such as without and with a remedy.
pub fn render_comparison(baseline: &Report, remedy: &Report, style: Style) -> String {
    let mut text = String::new();
    render_legend(style, &mut text);
    for method in &baseline.methods {
        if let Some(other) = remedy.method(&method.method) {
            text.push('\n');
            render_method_comparison((&baseline.label, method), (&remedy.label, other), style, &mut text);
        }
    }
    render_unmatched(baseline, remedy, &mut text);
    render_unmatched(remedy, baseline, &mut text);
    for report in [baseline, remedy] {
        write_line(&mut text, &format!("\n{}:", report.label));
        render_footer(report, &mut text);
    }
    text
}

fn render_unmatched(report: &Report, other: &Report, text: &mut String) {
    for method in report.methods.iter().filter(|method| other.method(&method.method).is_none()) {
        let MethodReport { method, call_count, .. } = method;
        write_line(text, &format!("\n{method}: {call_count} calls in {} only", report.label));
    }
}

fn render_legend(style: Style, text: &mut String) {
    for (index, stage) in Stage::ALL.into_iter().enumerate() {
        let digit = paint(stage, &digit_of(stage), style);
        let gap = if index % 3 == 2 { "\n" } else { "  " };
        let padding = if index % 3 == 2 { 0 } else { 20 };
        write!(text, "{digit} {:padding$}{gap}", stage.name()).expect("writing to memory does not fail");
    }
}

fn render_method(method: &MethodReport, style: Style, text: &mut String) {
    write_line(text, &heading(method));
    let Some(scale_ns) = scale_of(&[method]) else { return };
    for row in &method.rows {
        let label = format!(" {:<5}", row.percentile.name());
        write_line(text, &bar_line(&label, row, scale_ns, style));
    }
    render_table(
        &method.rows.iter().map(|row| (row.percentile.name().to_owned(), row)).collect::<Vec<_>>(),
        text,
    );
}

fn render_method_comparison(
    (baseline_label, baseline): (&str, &MethodReport),
    (remedy_label, remedy): (&str, &MethodReport),
    style: Style,
    text: &mut String,
) {
    let label_width = baseline_label.len().max(remedy_label.len());
    for (label, method) in [(baseline_label, baseline), (remedy_label, remedy)] {
        write_line(text, &format!("{label:<label_width$}  {}", heading(method)));
    }
    let Some(scale_ns) = scale_of(&[baseline, remedy]) else { return };
    for percentile in Percentile::ALL {
        let (Some(before), Some(after)) = (baseline.row(percentile), remedy.row(percentile)) else {
            continue;
        };
        for (label, row) in [(baseline_label, before), (remedy_label, after)] {
            let label = format!(" {:<5}{label:<label_width$} ", percentile.name());
            write_line(text, &bar_line(&label, row, scale_ns, style));
        }
        write_line(text, &format!(" {:<5}{}", "", verdict(before.total_ns, after.total_ns)));
    }
    let pairs = [Percentile::P50, Percentile::P99].into_iter().filter_map(|percentile| {
        let columns = [("before", baseline.row(percentile)?), ("after", remedy.row(percentile)?)];
        Some(columns.map(|(when, row)| (format!("{} {when}", percentile.name()), row)))
    });
    render_table(&pairs.flatten().collect::<Vec<_>>(), text);
}

fn verdict(before_ns: f64, after_ns: f64) -> String {
    let change = micros((before_ns - after_ns).abs());
    if after_ns > before_ns {
        format!("{:.2}x as long, {change} us lost", after_ns / before_ns.max(1.0))
    } else {
        format!("{:.2}x as fast, {change} us saved", before_ns / after_ns.max(1.0))
    }
}

fn heading(method: &MethodReport) -> String {
    let split: Vec<String> = method.answered_by.iter().map(|(by, count)| format!("{by} {count}")).collect();
    let mut heading = format!("{}  {} calls", method.method, method.call_count);
    if method.error_count > 0 {
        write!(heading, ", {} errors", method.error_count).expect("writing to memory does not fail");
    }
    write!(heading, ", answered by {}", split.join(", ")).expect("writing to memory does not fail");
    if method.sample_count < method.call_count - method.error_count {
        write!(heading, " (percentiles of a sample of {})", method.sample_count)
            .expect("writing to memory does not fail");
    }
    heading
}

/// The time that a full bar stands for.
fn scale_of(methods: &[&MethodReport]) -> Option<f64> {
    let rows = || methods.iter().flat_map(|method| &method.rows);
    let longest = rows().map(|row| row.total_ns).fold(0.0, f64::max);
    let median =
        rows().filter(|row| row.percentile == Percentile::P50).map(|row| row.total_ns).fold(0.0, f64::max);
    let scale = longest.min(median * SCALE_TO_MEDIAN_MAX);
    (scale > 0.0).then_some(scale)
}

/// ` P50  |1223...9     |   34.1 us`; a bar that is longer than the scale ends in `>`.
fn bar_line(label: &str, row: &Row, scale_ns: f64, style: Style) -> String {
    let total = format!("{:>9} us", micros(row.total_ns));
    let columns = style.width.saturating_sub(label.len() + total.len() + 2);
    let mut bar = String::new();
    let mut end_ns = 0.0;
    let mut used = 0;
    for stage in Stage::ALL {
        end_ns += row.stages_ns.get(stage).unwrap_or(0.0);
        // Rounding the ends, not the lengths, keeps the whole bar true to the total.
        let end = ((end_ns / scale_ns * columns as f64).round() as usize).min(columns);
        bar.push_str(&paint(stage, &digit_of(stage).repeat(end - used), style));
        used = end;
    }
    let is_cut = row.total_ns > scale_ns * 1.000_001;
    let edge = if is_cut { '>' } else { '|' };
    format!("{label}|{bar}{:padding$}{edge}{total}", "", padding = columns - used)
}

fn digit_of(stage: Stage) -> String {
    (stage.index() + 1).to_string()
}

fn paint(stage: Stage, text: &str, style: Style) -> String {
    if style.colour && !text.is_empty() {
        format!("\x1b[48;5;{}m\x1b[30m{text}\x1b[0m", COLOURS[stage.index()])
    } else {
        text.to_owned()
    }
}

fn render_table(columns: &[(String, &Row)], text: &mut String) {
    type Field = fn(&Row) -> f64;
    const SUMS: [(&str, Field); 5] = [
        ("wire (3+8)", |row| row.wire_ns),
        ("stack (2+7)", |row| row.stack_ns),
        ("queue (1+4+6+9)", |row| row.queue_ns),
        ("tax", |row| row.tax_ns),
        ("total", |row| row.total_ns),
    ];
    write_cells("us", columns.iter().map(|(title, _)| title.clone()), text);
    let cells = |cell: &dyn Fn(&Row) -> String| columns.iter().map(|(_, row)| cell(row)).collect::<Vec<_>>();
    for stage in Stage::ALL {
        let name = format!("{} {}", digit_of(stage), stage.name());
        write_cells(&name, cells(&|row| stage_micros(row.stages_ns.get(stage))), text);
    }
    for (name, field) in SUMS {
        write_cells(name, cells(&|row| micros(field(row))), text);
    }
    write_cells("tax share", cells(&|row| format!("{:.1} %", row.tax_share * 100.0)), text);
}

fn write_cells(name: &str, cells: impl IntoIterator<Item = String>, text: &mut String) {
    let mut line = format!(" {name:<20}");
    for cell in cells {
        write!(line, "{cell:>11}").expect("writing to memory does not fail");
    }
    write_line(text, &line);
}

/// A stage that did not occur has no time.
fn stage_micros(nanos: Option<f64>) -> String {
    nanos.map_or_else(|| "-".to_owned(), micros)
}

/// Microseconds with as many decimals as mean something.
fn micros(nanos: f64) -> String {
    let micros = nanos / 1_000.0;
    match micros {
        _ if micros < 10.0 => format!("{micros:.2}"),
        _ if micros < 1_000.0 => format!("{micros:.1}"),
        _ => format!("{micros:.0}"),
    }
}

fn render_footer(report: &Report, text: &mut String) {
    let Report { call_count, sum_violation_count, other_span_count, damaged_line_count, .. } = report;
    let share = report.sum_violation_share() * 100.0;
    write_line(
        text,
        &format!("{call_count} calls; the stages miss the duration in {sum_violation_count} ({share:.2} %)"),
    );
    if *other_span_count > 0 {
        write_line(text, &format!("{other_span_count} other spans left out"));
    }
    if *damaged_line_count > 0 {
        write_line(text, &format!("{damaged_line_count} damaged lines left out, first:"));
        report.damaged_lines.iter().for_each(|line| write_line(text, &format!("  {line}")));
    }
}

fn write_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AnsweredBy, MeasuredCall};
    use crate::report::tests::{call, of};
    use scotfree_core::DeviceId;
    use std::path::Path;

    #[test]
    fn a_report_looks_like_this() {
        assert_snapshot("report.txt", &render_report(&baseline(), Style::default()));
    }

    #[test]
    fn a_comparison_looks_like_this() {
        assert_snapshot("comparison.txt", &render_comparison(&baseline(), &remedy(), Style::default()));
    }

    #[test]
    fn the_json_form_looks_like_this() {
        let json = serde_json::to_string_pretty(&remedy()).expect("a report is JSON");
        assert_snapshot("report.json", &(json + "\n"));
    }

    #[test]
    fn lines_keep_to_the_width() {
        for columns in [1, 60, 100, 240, 10_000] {
            let style = Style::new(Some(columns), false);
            let text = render_comparison(&baseline(), &remedy(), style);
            let longest = text.lines().map(str::len).max().unwrap_or(0);
            assert!(longest <= style.width.max(88), "{longest} > {}", style.width);
            let bar = text.lines().find(|line| line.contains('|')).expect("there are bars");
            assert_eq!(bar.len(), style.width);
        }
    }

    #[test]
    fn colour_changes_no_text() {
        let plain = render_report(&baseline(), Style::default());
        let mut coloured = render_report(&baseline(), Style::new(None, true));
        assert!(coloured.contains("\x1b[48;5;78m"));
        for code in COLOURS {
            coloured = coloured.replace(&format!("\x1b[48;5;{code}m\x1b[30m"), "");
        }
        assert_eq!(coloured.replace("\x1b[0m", ""), plain);
    }

    #[test]
    fn a_remedy_that_does_not_pay_is_called_a_loss() {
        assert_eq!(verdict(10_000.0, 12_500.0), "1.25x as long, 2.50 us lost");
        assert_eq!(verdict(10_000.0, 5_000.0), "2.00x as fast, 5.00 us saved");
    }

    #[test]
    fn empty_sets_are_no_problem() {
        let text = render_report(&of(std::iter::empty()), Style::default());
        assert!(text.contains("0 calls"));
        let text = render_comparison(&of(std::iter::empty()), &remedy(), Style::default());
        assert!(text.contains("SET: 200 calls in remedy only"), "{text}");
        let instant = of([call("SET", [0; 9], AnsweredBy::Server)].into_iter());
        assert!(render_report(&instant, Style::default()).contains("1 calls"));
    }

    fn baseline() -> Report {
        let sets = (0..200_u64).map(|at| {
            let slow = if at % 50 == 0 { 300_000 } else { 0 };
            let us = [1, 3, 6, 5 + at % 7, 30 + at % 10, 1, 4, 6, 4].map(|us: u64| us * 1_000);
            let mut stages = us;
            stages[3] += slow;
            call("SET", stages, AnsweredBy::Server)
        });
        let gets = (0..20).map(|_| call("GET", [900; 9], AnsweredBy::Server));
        let failed = MeasuredCall { error: Some("reset".into()), ..call("GET", [1; 9], AnsweredBy::Server) };
        let mut report = of(sets.chain(gets).chain([failed]));
        report.label = "baseline".into();
        report
    }

    fn remedy() -> Report {
        let calls = (0..200_u64).map(|at| {
            let stages = [1_000, 3_000, 3_000, 0, 0, 0, 0, 3_000 + at % 5 * 100, 2_000];
            call("SET", stages, AnsweredBy::Device(DeviceId(1)))
        });
        let mut report = of(calls);
        report.label = "remedy".into();
        report
    }

    /// Compares with a file of tests/expected; `UPDATE_EXPECTED=1` writes it instead.
    fn assert_snapshot(name: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(name);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, text).expect("the expected file can be written");
        }
        let expected = std::fs::read_to_string(&path).expect("the expected file is there");
        assert_eq!(text, expected, "to accept the change: UPDATE_EXPECTED=1 cargo test -p scotfree-trace");
    }
}
