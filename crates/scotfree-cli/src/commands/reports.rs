//! The command `scot tax report` and `scot classify`.
//!
//! Invariant: standard output has the report and nothing else.

use crate::cli::TaxReport;
use crate::failure::Failure;
use crate::out;
use scotfree_resp::classes;
use scotfree_trace::{render_comparison, render_report, Report, Style};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Draws where the time of calls went.
pub fn tax(flags: &TaxReport) -> Result<(), Failure> {
    let style = Style::from_environment(std::io::stdout().is_terminal());
    let first = read(&flags.files)?;
    let second = if flags.against.is_empty() { None } else { Some(read(&flags.against)?) };
    match (second, flags.json) {
        (None, false) => out::text(render_report(&first, style)),
        (None, true) => out::json(&first),
        (Some(second), false) => out::text(render_comparison(&first, &second, style)),
        (Some(second), true) => out::json(&[&first, &second]),
    }
    Ok(())
}

fn read(files: &[PathBuf]) -> Result<Report, Failure> {
    let label = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ");
    let report = Report::from_files(&label, files).map_err(Failure::usage)?;
    if report.call_count == 0 {
        let next = "name files that were written by --trace";
        return Err(Failure::usage(format!("{label}: there are no calls with stages in it; {next}")));
    }
    Ok(report)
}

/// Says what may be done with a command.
pub fn classify(words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    out::text(if words.is_empty() { classes::table_text() } else { classes::explain(&words) });
}
