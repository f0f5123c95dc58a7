//! The command `scot remedies`.

use crate::cli::Remedies;
use crate::{out, registry};

pub fn run(flags: &Remedies) {
    let text = if flags.json { registry::json() } else { registry::text() };
    out::line(format_args!("{}", text.trim_end()));
}
