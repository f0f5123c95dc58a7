//! The state file of a lab: what it made, and whose it is.
//!
//! Invariant: what a state file names is removed only when its owner is dead or somebody asks for it by
//! name; a remover that is killed in the middle leaves a file from which the next one goes on.

use crate::process::{run, start_ticks_of, wait_until};
use crate::topology::Topology;
use crate::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Standing, RUN_FOLDER};

// How long the processes of a namespace may take to vanish after SIGKILL.
const VANISH: Duration = Duration::from_secs(5);
// How often the run folder may vanish under a lab that is being made.
const RACES_MAX: u32 = 100;

/// What the state file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub topology: Topology,
    pub namespaces: Vec<String>,
    pub owner_pid: u32,
    pub owner_start_ticks: u64,
    // Whether it stays up when its owner ends.
    pub is_kept: bool,
}

const STATE_ENDING: &str = ".lab.json";

/// The state file of a lab.
pub(super) fn state_file_of(name: &str, run_folder: &Path) -> PathBuf {
    run_folder.join(format!("{name}{STATE_ENDING}"))
}

impl State {
    pub fn of(topology: &Topology) -> State {
        let owner_pid = std::process::id();
        State {
            topology: topology.clone(),
            namespaces: topology.hosts.iter().map(|host| topology.namespace(&host.role)).collect(),
            owner_pid,
            owner_start_ticks: start_ticks_of(owner_pid).unwrap_or_default(),
            is_kept: false,
        }
    }

    pub fn read(file: &Path) -> Result<Option<State>, Trouble> {
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Trouble::file("read", file, &error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let next = "look which `scot-` namespaces are yours (ip netns list), remove them and the file";
            Trouble::new(format!("read the lab's state {}", file.display()), error, next)
        })
    }

    /// Writes the file if there is none: of two that try, one succeeds, and nobody sees half a file.
    pub fn claim(&self, file: &Path) -> Result<(), Trouble> {
        let draft = self.draft(file)?;
        let linked = fs::hard_link(&draft, file);
        let removed = fs::remove_file(&draft);
        linked.and(removed).map_err(|error| Trouble::file("claim the lab by creating", file, &error))
    }

    pub fn replace(&self, file: &Path) -> Result<(), Trouble> {
        let draft = self.draft(file)?;
        fs::rename(&draft, file).map_err(|error| Trouble::file("write", file, &error))
    }

    fn draft(&self, file: &Path) -> Result<PathBuf, Trouble> {
        let draft = file.with_extension(format!("{}.draft", self.owner_pid));
        let text = serde_json::to_vec_pretty(self).expect("a state is JSON");
        write_in_run_folder(&draft, &text).map_err(|error| Trouble::file("write", &draft, &error))?;
        Ok(draft)
    }

    fn is_owner_alive(&self) -> bool {
        start_ticks_of(self.owner_pid) == Some(self.owner_start_ticks)
    }

    pub fn require_dead(&self, file: &Path) -> Result<(), Trouble> {
        if !self.is_owner_alive() {
            return Ok(());
        }
        Err(Trouble::new(
            format!("use the lab `{}`", self.topology.name),
            format!("process {} is using it (says {})", self.owner_pid, file.display()),
            "wait for it or end it",
        ))
    }

    /// None of the names may exist yet: what this lab did not make is not its own.
    pub fn require_free_names(&self) -> Result<(), Trouble> {
        let existing = existing_namespaces()?;
        match self.namespaces.iter().find(|namespace| existing.contains(namespace)) {
            None => Ok(()),
            Some(taken) => Err(Trouble::new(
                format!("make the network namespace `{taken}`"),
                "it exists, and no lab says that it is its own",
                format!("if nobody needs it, remove it: ip netns delete {taken}"),
            )),
        }
    }

    /// Removes what a dead lab left. Of two that try, one does it.
    pub fn remove_stale(&self, file: &Path) -> Result<(), Trouble> {
        let mine = file.with_extension(format!("{}.stale", std::process::id()));
        fs::rename(file, &mine).map_err(|error| Trouble::file("take over", file, &error))?;
        let removed = self.require_same(&mine).and_then(|()| self.remove(&mine));
        if removed.is_err() {
            // Put back, so that it can be tried again; the first error is the one to report.
            let _ = fs::rename(&mine, file);
        }
        removed
    }

    /// Between reading and taking over, another process may have removed this lab and made a new one.
    fn require_same(&self, file: &Path) -> Result<(), Trouble> {
        if State::read(file)?.as_ref() == Some(self) {
            return Ok(());
        }
        let problem = "another process has just brought up a lab of that name";
        Err(Trouble::new(format!("remove the lab `{}`", self.topology.name), problem, "try again"))
    }

    pub fn remove(&self, file: &Path) -> Result<(), Trouble> {
        let existing = existing_namespaces()?;
        for namespace in self.namespaces.iter().filter(|namespace| existing.contains(namespace)) {
            empty_namespace(namespace)?;
            run("ip", ["netns", "delete", namespace])?;
        }
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Trouble::file("remove", file, &error));
            }
            _ => (),
        }
        if file.parent() == Some(Path::new(RUN_FOLDER)) {
            // Ours when it is empty; otherwise other labs are up, and it stays.
            let _ = fs::remove_dir(RUN_FOLDER);
        }
        Ok(())
    }
}

/// Writes a file and, if it is missing, its folder: whoever removes the last lab removes the folder too,
/// which may happen between the two steps.
fn write_in_run_folder(file: &Path, text: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    for _ in 0..RACES_MAX {
        fs::create_dir_all(folder)?;
        match fs::write(file, text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            done => return done,
        }
    }
    Err(io::Error::other("its folder is removed again and again"))
}

/// Ends all processes of a namespace of ours: without this, grandchildren would keep it alive unnamed.
fn empty_namespace(namespace: &str) -> Result<(), Trouble> {
    let pids = || run("ip", ["netns", "pids", namespace]);
    let mut left = pids()?;
    let is_empty = wait_until(VANISH, || {
        for pid in left.split_whitespace() {
            // It may have ended meanwhile.
            let _ = run("sh", ["-c", "kill -s KILL \"$1\"", "sh", pid]);
        }
        left = pids().unwrap_or_default();
        left.trim().is_empty()
    });
    if is_empty {
        return Ok(());
    }
    let problem = format!("processes are left: {}", left.split_whitespace().collect::<Vec<_>>().join(" "));
    Err(Trouble::new(format!("empty the namespace {namespace}"), problem, "end them and try again"))
}

/// The names of all network namespaces.
pub(super) fn existing_namespaces() -> Result<Vec<String>, Trouble> {
    // Lines are `name` or `name (id: 3)`.
    let text = run("ip", ["netns", "list"])?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// The names of the labs that have a state file.
pub(super) fn names_in(run_folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = file_names(run_folder)
        .iter()
        .filter_map(|name| name.strip_suffix(STATE_ENDING).map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn file_names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.file_name().into_string().ok()).collect()
}

/// Removes what dead processes left; see `Lab::sweep`.
pub(super) fn sweep(run_folder: &Path) -> (Vec<String>, Vec<Trouble>) {
    for name in file_names(run_folder) {
        finish_dead_work(run_folder, &name);
    }
    let (mut removed, mut troubles) = (Vec::new(), Vec::new());
    for name in names_in(run_folder) {
        match sweep_one(&state_file_of(&name, run_folder)) {
            Ok(true) => removed.push(name),
            Ok(false) => (),
            Err(trouble) => troubles.push(trouble),
        }
    }
    (removed, troubles)
}

/// The labs that a sweep leaves alone; see `Lab::standing`.
pub(super) fn standing(run_folder: &Path) -> Vec<Standing> {
    let standing = |name: String| {
        let state = State::read(&state_file_of(&name, run_folder)).ok().flatten()?;
        let is_up = state.is_kept || state.is_owner_alive();
        is_up.then_some(Standing { name, owner_pid: (!state.is_kept).then_some(state.owner_pid) })
    };
    names_in(run_folder).into_iter().filter_map(standing).collect()
}

fn sweep_one(file: &Path) -> Result<bool, Trouble> {
    let Some(state) = State::read(file)?.filter(|_| is_ours(file)) else { return Ok(false) };
    if state.is_kept || state.is_owner_alive() {
        return Ok(false);
    }
    match state.remove_stale(file) {
        // Another process swept it at the same time.
        Err(_) if !file.exists() => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// A file that a dead process had under way: `NAME.lab.PID.draft` was never a state, and
/// `NAME.lab.PID.stale` becomes one again.
fn finish_dead_work(run_folder: &Path, file_name: &str) {
    let Some((name, kind)) = under_way(file_name) else { return };
    let file = run_folder.join(file_name);
    if !is_ours(&file) {
        return;
    }
    if kind == "stale" {
        // Where there is a state again, its maker has found all of the old one's names free.
        let _ = fs::hard_link(&file, state_file_of(name, run_folder));
    }
    // If it cannot be removed, the next sweep tries again.
    let _ = fs::remove_file(&file);
}

/// The lab and the ending of a file that a process which is dead now had under way.
fn under_way(file_name: &str) -> Option<(&str, &str)> {
    let (rest, kind) = file_name.rsplit_once('.').filter(|(_, kind)| ["draft", "stale"].contains(kind))?;
    let (rest, pid) = rest.rsplit_once('.')?;
    let is_dead = start_ticks_of(pid.parse().ok()?).is_none();
    is_dead.then_some((rest.strip_suffix(".lab")?, kind))
}

/// Whether a file belongs to the user who runs this process.
fn is_ours(file: &Path) -> bool {
    let user_of = |file: &Path| fs::symlink_metadata(file).map(|data| data.uid());
    matches!((user_of(file), user_of(Path::new("/proc/self"))), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;
    use crate::scratch::Scratch;

    // Larger than any number that the kernel gives.
    const NOBODY: u32 = 1 << 30;

    fn state(name: &str, owner_pid: u32) -> State {
        let text = include_str!("../../../../lab/topologies/one-device.toml").replace("one-device", name);
        let topology = Topology::parse(&Source::from_text("one-device.toml", text)).expect("a topology");
        State { owner_pid, namespaces: Vec::new(), ..State::of(&topology) }
    }

    fn put(state: &State, run_folder: &Path) {
        state.claim(&state_file_of(&state.topology.name, run_folder)).expect("the name is free");
    }

    #[test]
    fn a_sweep_removes_what_is_dead_and_nothing_else() {
        if crate::process::find_tool("ip").is_none() {
            eprintln!("skipped: there is no ip");
            return;
        }
        let folder = Scratch::new("state-sweep").expect("temporary files can be written");
        let dead_alive_kept = [
            state("t-dead", NOBODY),
            state("t-alive", std::process::id()),
            State { is_kept: true, ..state("t-kept", NOBODY) },
        ];
        for state in &dead_alive_kept {
            put(state, folder.path());
        }
        let (removed, troubles) = sweep(folder.path());
        assert_eq!((removed, troubles), (vec!["t-dead".to_owned()], Vec::new()));
        let standing = standing(folder.path());
        let standing: Vec<_> = standing.iter().map(|one| (one.name.as_str(), one.owner_pid)).collect();
        assert_eq!(standing, [("t-alive", Some(std::process::id())), ("t-kept", None)]);
    }

    #[test]
    fn the_work_of_a_dead_remover_is_finished() {
        if crate::process::find_tool("ip").is_none() {
            eprintln!("skipped: there is no ip");
            return;
        }
        let folder = Scratch::new("state-stale").expect("temporary files can be written");
        put(&state("t-half", NOBODY), folder.path());
        let stale = folder.path().join(format!("t-half.lab.{NOBODY}.stale"));
        fs::rename(state_file_of("t-half", folder.path()), &stale).expect("it is there");
        fs::write(folder.path().join(format!("t-none.lab.{NOBODY}.draft")), "{").expect("it can be written");
        let mine = format!("t-mine.lab.{}.draft", std::process::id());
        fs::write(folder.path().join(&mine), "{").expect("it can be written");
        assert_eq!(sweep(folder.path()), (vec!["t-half".to_owned()], Vec::new()));
        assert_eq!(file_names(folder.path()), [mine]);
    }
}
