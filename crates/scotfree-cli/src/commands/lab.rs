//! The command `scot lab`: topologies and experiments, commands under limits.
//!
//! Invariant: what is found by name lies in the repository's lab folder; its topologies are built in as well, for
//! use elsewhere.

mod device;
#[cfg(feature = "lab")]
mod experiments;

use crate::cli::Lab;
use crate::failure::Failure;
use crate::out;
use crate::variables::INSIDE;
use scotfree_io::stderr;
use scotfree_stage::load;
use scotfree_stage::netns::{self, Standing, RUN_FOLDER};
use scotfree_stage::sweep::{sweep, sweep_before_run};
use scotfree_stage::topology::Topology;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Workload;
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
        #[cfg(feature = "lab")]
        Lab::Run(flags) => experiments::run(&flags),
        #[cfg(feature = "lab")]
        Lab::Confirm(flags) => experiments::confirm(&flags),
        #[cfg(feature = "lab")]
        Lab::Plot { experiments } => experiments::plot(&experiments),
        #[cfg(not(feature = "lab"))]
        Lab::Experiments(words) => Err(left_out(&words)),
        Lab::Device(flags) => device::run(&flags),
        Lab::Down { name: Some(name), .. } => down(&name),
        Lab::Down { name: None, all } => tidy(all),
        Lab::List => {
            list();
            Ok(())
        }
        Lab::Load { workload, address } => load_service(&workload, address),
        Lab::FitCalls(flags) => super::demo::fit_calls(&flags),
    }
}

/// What runs inside a host's namespace.
pub fn worker(spec: &Path) -> Result<(), Failure> {
    #[cfg(feature = "lab")]
    let main = scotfree_lab::runs::worker::main;
    #[cfg(not(feature = "lab"))]
    let main = scotfree_stage::worker::main;
    Ok(main(spec)?)
}

/// Why a command that others have is not here.
#[cfg(not(feature = "lab"))]
fn left_out(words: &[std::ffi::OsString]) -> Failure {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    Failure::usage(format!(
        "scot lab {}: this scot is built without the experiments; those of the repository are run there, by one that \
         has them: cargo build --release; what there is here: scot lab --help",
        words.join(" ")
    ))
}

fn up(name: &Path) -> Result<(), Failure> {
    let topology = topology_of(name)?;
    require_access()?;
    sweep_before_run(Path::new(RUN_FOLDER), Path::new(LAB_FOLDER));
    let lab = netns::Lab::up(&topology, Path::new(RUN_FOLDER))?;
    lab.keep()?;
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
    out::line(format_args!("topologies: {}", shown(&topologies())));
    if !Path::new(LAB_FOLDER).is_dir() {
        stderr::line(format_args!(
            "scot: the folder {LAB_FOLDER} with workloads, devices and experiments: {ELSEWHERE}"
        ));
        return;
    }
    for kind in ["workloads", "devices", "experiments"] {
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

/// A topology by its file's path, or by its name: that of a file in the lab folder, or one that is built in.
fn topology_of(name: &Path) -> Result<Topology, Failure> {
    if is_path(name) {
        return Topology::read(name).map_err(Failure::usage);
    }
    let file = file_named("topologies", name);
    if file.exists() {
        return Topology::read(&file).map_err(Failure::usage);
    }
    let known = name.to_str().and_then(Topology::built_in).ok_or_else(|| {
        let there_are = shown(&topologies());
        Failure::usage(format!(
            "there is no topology `{}`; there are: {there_are}; one of your own is named by its file: ./NAME.toml",
            name.display()
        ))
    })?;
    known.map_err(Failure::usage)
}

/// The names of topologies, in the lab folder and built in.
fn topologies() -> Vec<String> {
    let mut names = names_in("topologies");
    names.extend(Topology::built_in_names().map(str::to_owned));
    names.sort();
    names.dedup();
    names
}

fn is_path(name: &Path) -> bool {
    name.extension().is_some() || name.components().count() > 1
}

fn file_named(kind: &str, name: &Path) -> PathBuf {
    Path::new(LAB_FOLDER).join(kind).join(name).with_extension("toml")
}

/// A file by its path, or by its name in the lab folder.
fn file_of(kind: &str, name: &Path) -> Result<PathBuf, Failure> {
    if is_path(name) {
        return Ok(name.to_owned());
    }
    require_lab_folder()?;
    let file = file_named(kind, name);
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
