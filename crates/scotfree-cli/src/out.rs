//! Standard output.
//!
//! Invariant: a reader that hangs up, such as `head`, has read enough: that is no error.

use serde::Serialize;
use std::fmt::Display;
use std::io::Write;

/// Prints a text as it is.
pub fn text(text: impl Display) {
    let mut out = std::io::stdout();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a line.
pub fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}

/// Prints a value as JSON for a reader.
pub fn json(value: &impl Serialize) {
    line(serde_json::to_string_pretty(value).expect("what the command prints is JSON"));
}
