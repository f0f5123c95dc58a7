//! Standard output.
//!
//! Invariant: a reader that hangs up, such as `head`, has read enough: that is no error. Any other loss of
//! output is kept until the command ends, which then ends badly.

use crate::failure::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

static FIRST_LOSS: OnceLock<io::Error> = OnceLock::new();

/// Prints a text as it is.
pub fn text(text: impl Display) {
    let mut out = io::stdout();
    note(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Keeps what became of something that was printed.
pub fn note(printed: io::Result<()>) {
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // The first says why; the others follow from it.
            let _ = FIRST_LOSS.set(error);
        }
        _ => (),
    }
}

/// Why not all that was printed has arrived, if so.
pub fn loss() -> Option<Failure> {
    let next = "what was printed is not complete; make room for it, or send it elsewhere";
    FIRST_LOSS.get().map(|error| Failure::tried("write to standard output", error, next))
}

/// Prints a line.
pub fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}

/// Prints a value as JSON for a reader.
pub fn json(value: &impl Serialize) {
    line(serde_json::to_string_pretty(value).expect("what the command prints is JSON"));
}
