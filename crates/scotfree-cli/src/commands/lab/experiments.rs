//! The commands `scot lab run`, `scot lab confirm` and `scot lab plot`.
//!
//! Invariant: a required value that is missed, and a result that has become worse, is exit code 1.

use super::{enter_namespaces, file_of, require_lab_folder, scot, LAB_FOLDER};
use crate::cli::{LabConfirm, LabRun};
use crate::failure::Failure;
use crate::out;
use crate::registry;
use scotfree_lab::experiment::Experiment;
use scotfree_lab::runs::confirm::{self, ConfirmOptions, Standing as Confirmed};
use scotfree_lab::runs::{self, RunError, RunOptions};
use scotfree_lab::{plot, results};
use std::path::Path;

/// Runs experiments.
pub fn run(flags: &LabRun) -> Result<(), Failure> {
    require_lab_folder()?;
    enter_namespaces()?;
    let options = RunOptions {
        repetitions: flags.repetitions,
        rounds: flags.rounds,
        seed: flags.seed,
        write_results: !flags.no_results,
        log_folder: flags.log_folder.clone(),
        priority: flags.priority,
        functions: registry::functions(),
        ..RunOptions::new(scot()?)
    };
    let report = runs::run(&flags.experiments, &options).map_err(failed)?;
    if report.missed_count > 0 {
        return Err(Failure::Verdict);
    }
    Ok(())
}

/// Runs them shortly, to see which results still hold.
pub fn confirm(flags: &LabConfirm) -> Result<(), Failure> {
    require_lab_folder()?;
    enter_namespaces()?;
    let run = RunOptions {
        write_results: !flags.no_results,
        log_folder: flags.log_folder.clone(),
        priority: flags.priority,
        functions: registry::functions(),
        ..RunOptions::new(scot()?)
    };
    let report =
        confirm::confirm(&flags.experiments, &ConfirmOptions { all: flags.all, run }).map_err(failed)?;
    match report.standing() {
        Confirmed::Confirmed => Ok(()),
        Confirmed::Worse => Err(Failure::Verdict),
        Confirmed::Open => {
            Err(Failure::environment("not all is confirmed, and nothing is worse; see the table"))
        }
    }
}

/// Makes the plots of results. One that cannot be made does not save the others.
pub fn plot(wanted: &[String]) -> Result<(), Failure> {
    require_lab_folder()?;
    let folder = Path::new(LAB_FOLDER).join("results");
    let mut found = results::read_all(&folder)?;
    if let Some(name) = wanted.iter().find(|name| found.iter().all(|result| result.experiment != **name)) {
        return Err(Failure::usage(format!("`{name}` was not measured; measure it: scot lab run {name}")));
    }
    found.retain(|result| wanted.is_empty() || wanted.contains(&result.experiment));
    let mut troubles = Vec::new();
    for result in &found {
        let file = file_of("experiments", Path::new(&result.experiment))?;
        let written = Experiment::read(&file).map_err(|error| error.to_string()).and_then(|experiment| {
            plot::write(&experiment, result, &folder).map_err(|error| error.to_string())
        });
        match written {
            Ok(file) => out::line(file.display()),
            Err(trouble) => troubles.push(trouble),
        }
    }
    if troubles.is_empty() {
        Ok(())
    } else {
        Err(Failure::environment(troubles.join("\nscot: ")))
    }
}

/// Whose turn it is after a run that ended early.
fn failed(error: RunError) -> Failure {
    match error {
        RunError::Unknown { .. } | RunError::UnknownRunner { .. } | RunError::Config(_) => {
            Failure::usage(error)
        }
        RunError::LeftOut { .. } | RunError::Priority { .. } | RunError::Trouble(_) => {
            Failure::environment(error)
        }
        RunError::Interrupted => Failure::Interrupted(error.to_string()),
    }
}
