//! What a program says on standard error.
//!
//! Invariant: a reader that hangs up, such as `head`, ends nothing: what is said there is lost, and the work goes on.
//! (`eprintln!` would panic.)

use std::fmt::Display;
use std::io::Write;

/// Says a line.
pub fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}

/// Says a text as it is.
pub fn text(text: impl Display) {
    // Nobody is there who could be told.
    let _ = write!(std::io::stderr(), "{text}");
}
