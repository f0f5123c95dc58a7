//! The command `scot lab`: topologies and experiments, commands under limits.
//!
//! Invariant: what is found by name lies in the repository's lab folder.

mod device;

use crate::cli::{Lab, LabConfirm, LabRun};
use crate::failure::Failure;
use crate::out;
use crate::variables::INSIDE;
use scotfree_lab::experiment::Experiment;
use scotfree_lab::load;
use scotfree_lab::netns::{self, Standing, RUN_FOLDER};
use scotfree_lab::plot;
use scotfree_lab::results;
use scotfree_lab::runs::confirm::{confirm, ConfirmOptions, Standing as Confirmed};
use scotfree_lab::runs::{self, RunError, RunOptions};
use scotfree_lab::sweep::{sweep, sweep_before_run};
use scotfree_lab::topology::Topology;
use scotfree_lab::trouble::Trouble;
use scotfree_lab::workload::Workload;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

const LAB_FOLDER: &str = "lab";
const ELSEWHERE: &str =
    "it is not here; go to the root of the repository, where names are known, or name a file by its path";

pub fn run(command: Lab) -> Result<(), Failure> {
    match command {
        Lab::Up { topology } => up(&topology),
        Lab::Run(flags) => experiments(&flags),
        Lab::Confirm(flags) => confirmation(&flags),
        Lab::Device(flags) => device::run(&flags),
        Lab::Plot { experiments } => plots(&experiments),
        Lab::Down { name: Some(name), .. } => down(&name),
        Lab::Down { name: None, all } => tidy(all),
        Lab::List => {
            list();
            Ok(())
        }
        Lab::Load { workload, address } => load_service(&workload, address),
    }
}

/// What an experiment runs inside a host's namespace.
pub fn worker(spec: &Path) -> Result<(), Failure> {
    Ok(runs::worker::main(spec)?)
}

fn up(name: &Path) -> Result<(), Failure> {
    let topology = Topology::read(&file_of("topologies", name)?).map_err(Failure::usage)?;
    require_access()?;
    sweep_before_run(Path::new(RUN_FOLDER), Path::new(LAB_FOLDER));
    let lab = netns::Lab::up(&topology, Path::new(RUN_FOLDER))?;
    lab.keep()?;
    for warning in lab.warnings() {
        eprintln!("scot: warning: {warning}");
    }
    for host in &topology.hosts {
        out::line(topology.namespace(&host.role));
    }
    out::line(format_args!("remove it: scot lab down {}", topology.name));
    Ok(())
}

fn down(name: &str) -> Result<(), Failure> {
    if !netns::Lab::down(name, Path::new(RUN_FOLDER))? {
        return Err(Failure::usage(format!("there is no lab `{name}`; see: scot lab list")));
    }
    out::line(format_args!("{name} removed"));
    Ok(())
}

/// Removes what dead runs left. What was kept up is somebody's: it is removed only if all is asked for. The
/// first that cannot go does not save the others.
fn tidy(all: bool) -> Result<(), Failure> {
    let run_folder = Path::new(RUN_FOLDER);
    let swept = sweep(run_folder, Path::new(LAB_FOLDER));
    for name in &swept.labs {
        out::line(format_args!("{name} removed, left by a run that was killed"));
    }
    for name in &swept.groups {
        out::line(format_args!("control group {name} removed, left by a run that was killed"));
    }
    if swept.folders_count > 0 {
        out::line(format_args!("{} folders removed, left by runs that were killed", swept.folders_count));
    }
    let mut troubles = swept.troubles;
    let standing = netns::Lab::standing(run_folder);
    troubles.extend(standing.iter().filter_map(|lab| tidy_standing(lab, all, run_folder)));
    let troubles: Vec<String> = troubles.iter().map(ToString::to_string).collect();
    if troubles.is_empty() {
        return Ok(());
    }
    Err(Failure::environment(troubles.join("\nscot: ")))
}

fn tidy_standing(lab: &Standing, all: bool, run_folder: &Path) -> Option<Trouble> {
    let name = &lab.name;
    match lab.owner_pid {
        Some(pid) => {
            out::line(format_args!("{name} stays: process {pid} runs in it and removes it at its end"));
        }
        None if !all => {
            out::line(format_args!("{name} stays: it was kept up; remove it: scot lab down {name}"));
        }
        None => match netns::Lab::down(name, run_folder) {
            Ok(_) => out::line(format_args!("{name} removed")),
            Err(trouble) => return Some(trouble),
        },
    }
    None
}

fn list() {
    let run_folder = Path::new(RUN_FOLDER);
    let standing = netns::Lab::standing(run_folder);
    let up: Vec<String> =
        netns::Lab::list(run_folder).into_iter().map(|name| whose(name, &standing)).collect();
    out::line(format_args!("up: {}", shown(&up)));
    if !Path::new(LAB_FOLDER).is_dir() {
        eprintln!("scot: the folder {LAB_FOLDER}: {ELSEWHERE}");
        return;
    }
    for kind in ["topologies", "workloads", "devices", "experiments"] {
        out::line(format_args!("{kind}: {}", shown(&names_in(kind))));
    }
}

/// A lab's name and who has it.
fn whose(name: String, standing: &[Standing]) -> String {
    match standing.iter().find(|lab| lab.name == name) {
        Some(Standing { owner_pid: None, .. }) => name,
        Some(Standing { owner_pid: Some(pid), .. }) => format!("{name} (process {pid} runs in it)"),
        None => format!("{name} (nobody runs in it; remove it: scot lab down)"),
    }
}

fn shown(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn names_in(kind: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new(LAB_FOLDER).join(kind)).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned);
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names
}

fn load_service(workload: &Path, address: SocketAddr) -> Result<(), Failure> {
    let workload = Workload::read(&file_of("workloads", workload)?).map_err(Failure::usage)?;
    let report = load::run(address, &workload, &AtomicBool::new(false))?;
    out::json(&report);
    Ok(())
}

/// A file by its path, or by its name in the lab folder.
fn file_of(kind: &str, name: &Path) -> Result<PathBuf, Failure> {
    if name.extension().is_some() || name.components().count() > 1 {
        return Ok(name.to_owned());
    }
    require_lab_folder()?;
    let file = Path::new(LAB_FOLDER).join(kind).join(name).with_extension("toml");
    if !file.exists() {
        let there_are = shown(&names_in(kind));
        return Err(Failure::usage(format!("there is no {}; in lab/{kind}: {there_are}", file.display())));
    }
    Ok(file)
}

fn require_lab_folder() -> Result<(), Failure> {
    if Path::new(LAB_FOLDER).is_dir() {
        return Ok(());
    }
    Err(Failure::usage(format!("find the folder {LAB_FOLDER}: {ELSEWHERE}")))
}

fn require_access() -> Result<(), Failure> {
    match netns::access() {
        netns::Access::Direct => Ok(()),
        netns::Access::UserNamespace => Err(Failure::environment(
            "make network namespaces that stay: this needs root; sudo scot lab up …, or for one shell: \
             unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run; exec sh'",
        )),
        netns::Access::None(trouble) => Err(trouble.into()),
    }
}

/// Goes on where network namespaces can be made: here, or in a user namespace, which this process's
/// successor enters.
pub fn enter_namespaces() -> Result<(), Failure> {
    match netns::access() {
        netns::Access::Direct => Ok(()),
        netns::Access::UserNamespace if std::env::var_os(INSIDE).is_none() => {
            let mut command = netns::in_user_namespace(&scot()?, std::env::args_os().skip(1));
            let error = command.env(INSIDE, "1").exec();
            Err(Failure::tried("enter a user namespace", &error, "see: scot doctor"))
        }
        netns::Access::UserNamespace => Err(Failure::environment(
            "make network namespaces inside a user namespace: it has no rights there; see: scot doctor",
        )),
        netns::Access::None(trouble) => Err(trouble.into()),
    }
}

/// This very program, of which daemons and workers are started.
pub fn scot() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::tried("find the running program", &error, "see whether /proc is mounted"))
}

fn experiments(flags: &LabRun) -> Result<(), Failure> {
    require_lab_folder()?;
    enter_namespaces()?;
    let options = RunOptions {
        repetitions: flags.repetitions,
        rounds: flags.rounds,
        seed: flags.seed,
        write_results: !flags.no_results,
        log_folder: flags.log_folder.clone(),
        priority: flags.priority,
        ..RunOptions::new(scot()?)
    };
    let report = runs::run(&flags.experiments, &options).map_err(failed)?;
    if report.missed_count > 0 {
        return Err(Failure::Verdict);
    }
    Ok(())
}

fn confirmation(flags: &LabConfirm) -> Result<(), Failure> {
    require_lab_folder()?;
    enter_namespaces()?;
    let run = RunOptions {
        write_results: !flags.no_results,
        log_folder: flags.log_folder.clone(),
        priority: flags.priority,
        ..RunOptions::new(scot()?)
    };
    let report = confirm(&flags.experiments, &ConfirmOptions { all: flags.all, run }).map_err(failed)?;
    match report.standing() {
        Confirmed::Confirmed => Ok(()),
        Confirmed::Worse => Err(Failure::Verdict),
        Confirmed::Open => {
            Err(Failure::environment("not all is confirmed, and nothing is worse; see the table"))
        }
    }
}

/// Makes the plots of results. One that cannot be made does not save the others.
fn plots(wanted: &[String]) -> Result<(), Failure> {
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
pub fn failed(error: RunError) -> Failure {
    match error {
        RunError::Unknown { .. } | RunError::UnknownRunner { .. } | RunError::Config(_) => {
            Failure::usage(error)
        }
        RunError::LeftOut { .. }
        | RunError::Priority { .. }
        | RunError::Trouble(_)
        | RunError::Interrupted => Failure::environment(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_in_use_is_told_from_one_that_was_kept_and_from_one_that_was_left() {
        let lab = |name: &str, owner_pid| Standing { name: name.to_owned(), owner_pid };
        let standing = [lab("kept", None), lab("running", Some(7))];
        for (name, said) in [
            ("kept", "kept"),
            ("running", "running (process 7 runs in it)"),
            ("left", "left (nobody runs in it; remove it: scot lab down)"),
        ] {
            assert_eq!(whose(name.to_owned(), &standing), said);
        }
    }
}
