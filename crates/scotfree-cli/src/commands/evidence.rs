//! The command `scot claims`.
//!
//! Invariant: the verdict is the exit code.

use crate::cli::Claims;
use crate::failure::Failure;
use crate::out;
use scotfree_lab::results;

pub fn claims(flags: &Claims) -> Result<(), Failure> {
    let found = results::read_all(&flags.repository.join("lab/results"))?;
    if found.is_empty() {
        let problem = format!("{} has no results in lab/results", flags.repository.display());
        return Err(Failure::usage(format!("{problem}; measure some: scot lab run")));
    }
    let report = results::judge(&found, &flags.repository);
    out::text(&report.text);
    if flags.update {
        for said in results::update_documents(&flags.repository, &found)? {
            out::line(said);
        }
    }
    match report.exit_code() {
        0 => Ok(()),
        _ => Err(Failure::Verdict),
    }
}
