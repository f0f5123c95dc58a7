//! A group of the kernel's for processes that are under limits together.
//!
//! Invariant: a group is there only with all its limits in force; dropping it ends what runs in it and removes it, and
//! what a killed lab left is removed by a later sweep. A group lies below the one that the lab itself is in wherever
//! the kernel allows that, so that whatever holds for the lab holds for its programs, too.

use super::disk::Disk;
use super::hierarchy::{controllers_in, hierarchies, require, Controller, Hierarchy, Version};
use super::profile::Limits;
use super::settings::{lift_rates, settings, write};
use super::usage::Usage;
use crate::process::{run, wait_until};
use crate::scratch::{is_left_behind, is_of_the_dead, new_name};
use crate::trouble::Trouble;
use scotfree_io::lifetime::try_lock;
use scotfree_io::stderr;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group with limits; dropping it ends the processes in it and removes it.
#[derive(Debug)]
pub struct Group {
    parts: Vec<Part>,
    limits: Limits,
    disks: Vec<Disk>,
}

/// What a group is in one hierarchy.
#[derive(Debug)]
pub(super) struct Part {
    pub version: Version,
    /// What of it is limited or counted here.
    pub controllers: Vec<Controller>,
    pub folder: PathBuf,
    // Held while its lab lives, as scratch folders' are.
    _lock: File,
}

/// How long processes may take to vanish after SIGKILL, and their group after them.
const VANISH: Duration = Duration::from_secs(10);
/// Enters the groups before the `--`, then becomes the program behind it.
const ENTER: &str =
    "while [ \"$1\" != -- ]; do echo $$ >\"$1\" || { echo \"scot: not let into $1\" >&2; exit 125; }; \
                     shift; done; shift; exec \"$@\"";
const AS_ROOT: &str =
    "run it as root, outside of a user namespace and of a container whose /sys/fs/cgroup cannot be written";

impl Group {
    /// Makes a group; `disks` are those whose rates the limits are of.
    pub fn new(name: &str, limits: &Limits, disks: &[Disk]) -> Result<Group, Trouble> {
        Group::new_in(&hierarchies(), name, limits, disks)
    }

    fn new_in(
        hierarchies: &[Hierarchy],
        name: &str,
        limits: &Limits,
        disks: &[Disk],
    ) -> Result<Group, Trouble> {
        let needed = needed_by(limits);
        require(&needed, hierarchies)?;
        let folder = new_name(name);
        let mut group = Group { parts: Vec::new(), limits: *limits, disks: disks.to_vec() };
        for hierarchy in hierarchies {
            let is_needed = hierarchy.controllers.iter().any(|one| needed.contains(one));
            match Part::make(hierarchy, &needed, &folder) {
                Ok(part) => group.parts.push(part),
                Err(trouble) if is_needed => return Err(trouble),
                // It would only have counted.
                Err(_) => (),
            }
        }
        group.set()?;
        group.try_to_enter()?;
        Ok(group)
    }

    fn set(&self) -> Result<(), Trouble> {
        let all = self.parts.iter().flat_map(|part| part.controllers.iter().map(move |one| (part, *one)));
        for (part, controller) in all {
            for setting in settings(controller, part.version, &self.limits, &self.disks) {
                setting.write(&part.folder)?;
            }
        }
        Ok(())
    }

    /// The words that, put before a program's, have it begin inside.
    pub fn prefix(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["sh", "-c", ENTER, "sh"].map(Into::into).into();
        words.extend(self.parts.iter().map(|part| part.folder.join("cgroup.procs").into()));
        words.push("--".into());
        words
    }

    /// Has a program that does nothing begin inside, so that whatever does later begins there, too.
    fn try_to_enter(&self) -> Result<(), Trouble> {
        let words = self.prefix().into_iter().skip(1).chain(["true".into()]);
        run("sh", words).map(drop).map_err(|trouble| {
            let next = "see whether the limits leave room for a shell; if so, run it as root";
            Trouble::new("start a program under limits", trouble.problem, next)
        })
    }

    /// What has been used in it so far.
    pub fn usage(&self) -> Usage {
        Usage::of(&self.parts, &self.disks)
    }

    /// Ends what runs in it.
    pub fn end_processes(&self) {
        self.parts.iter().for_each(|part| end_processes(&part.folder));
    }

    /// Ends what runs in it and removes it.
    pub fn remove(mut self) -> Result<(), Trouble> {
        self.remove_parts()
    }

    /// Ends what runs in it and removes it; what cannot be removed now stays for a sweep.
    fn remove_parts(&mut self) -> Result<(), Trouble> {
        let parts = std::mem::take(&mut self.parts);
        let removed: Vec<_> = parts.iter().map(|part| remove(&part.folder)).collect();
        removed.into_iter().collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(trouble) = self.remove_parts() {
            stderr::line(format_args!("warning: {trouble}"));
        }
    }
}

impl Part {
    fn make(hierarchy: &Hierarchy, needed: &[Controller], name: &str) -> Result<Part, Trouble> {
        let needed: Vec<Controller> =
            hierarchy.controllers.iter().copied().filter(|one| needed.contains(one)).collect();
        let parent = match hierarchy.version {
            Version::One => hierarchy.own.clone(),
            Version::Two => parent_with(&needed, hierarchy)?,
        };
        let folder = parent.join(name);
        let make = || {
            fs::create_dir(&folder)?;
            let lock = File::open(&folder)?;
            try_lock(&lock)?;
            Ok(lock)
        };
        let lock = make().map_err(|error: io::Error| {
            Trouble::new(format!("make the control group {}", folder.display()), error, AS_ROOT)
        })?;
        let controllers = match hierarchy.version {
            Version::One => hierarchy.controllers.clone(),
            Version::Two => controllers_in(&folder.join("cgroup.controllers")),
        };
        Ok(Part { version: hierarchy.version, controllers, folder, _lock: lock })
    }
}

/// The controllers without which a limit would not hold.
fn needed_by(limits: &Limits) -> Vec<Controller> {
    let needs = [
        (limits.memory.is_some(), Controller::Memory),
        (limits.cpus.is_some(), Controller::Cpu),
        (limits.has_disk(), Controller::Disk),
    ];
    needs.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, controller)| controller).collect()
}

/// Below which group of version 2 one can have these controllers: the nearest above this process that hands them on, or
/// else the nearest that can be told to. A group with processes in it hands nothing on, so this process's own will
/// hardly ever do.
fn parent_with(needed: &[Controller], hierarchy: &Hierarchy) -> Result<PathBuf, Trouble> {
    const HANDED_ON: &str = "cgroup.subtree_control";
    let above = || hierarchy.own.ancestors().take_while(|folder| folder.starts_with(&hierarchy.mount));
    let hands_on = |folder: &&Path| {
        let handed_on = controllers_in(&folder.join(HANDED_ON));
        needed.iter().all(|one| handed_on.contains(one))
    };
    let wanted: Vec<String> =
        needed.iter().filter_map(|one| Some(format!("+{}", one.name(Version::Two)?))).collect();
    let wanted = wanted.join(" ");
    let can_be_told = |folder: &&Path| write(&folder.join(HANDED_ON), &wanted).is_ok();
    above().find(hands_on).or_else(|| above().find(can_be_told)).map(Path::to_owned).ok_or_else(|| {
        let top = hierarchy.mount.join(HANDED_ON);
        Trouble::new(
            format!("hand the controllers {wanted} on to a control group"),
            format!("no group above {} does, and none can be told to", hierarchy.own.display()),
            format!("{AS_ROOT}: echo {wanted} >{}", top.display()),
        )
    })
}

/// Ends what runs in a group and in those below it, and removes them.
fn remove(folder: &Path) -> Result<(), Trouble> {
    let mut problem = None;
    let is_gone = wait_until(VANISH, || {
        lift_rates(folder);
        end_processes(folder);
        problem = remove_tree(folder).err();
        problem.is_none()
    });
    if is_gone {
        return Ok(());
    }
    let problem = problem.map_or("it stays".to_owned(), |error| error.to_string());
    let next = format!("end what cgroup.procs in it names, then: rmdir {}", folder.display());
    Err(Trouble::new(format!("remove the control group {}", folder.display()), problem, next))
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    for below in folders_in(folder) {
        remove_tree(&below)?;
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn end_processes(folder: &Path) {
    for below in folders_in(folder) {
        end_processes(&below);
    }
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    // Processes that this one cannot see are listed as 0, which for `kill` is this very process's group.
    let mut words: Vec<&str> = vec!["-c", "kill -s KILL \"$@\"", "sh"];
    words.extend(text.lines().filter(|pid| *pid != "0"));
    if words.len() > 3 {
        // Some may have ended meanwhile.
        let _ = run("sh", words);
    }
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Removes the groups that killed labs of this user left, with what still runs in them. Says which it removed, and what
/// it could not.
pub fn sweep() -> (Vec<String>, Vec<Trouble>) {
    let mut left = Vec::new();
    for hierarchy in hierarchies() {
        find_left(&hierarchy.mount, &mut left);
    }
    let (mut removed, mut troubles) = (Vec::new(), Vec::new());
    for folder in left {
        match remove(&folder) {
            Ok(()) => removed.extend(folder.file_name().map(|name| name.to_string_lossy().into_owned())),
            Err(trouble) => troubles.push(trouble),
        }
    }
    // One group has a folder in each hierarchy.
    removed.sort();
    removed.dedup();
    (removed, troubles)
}

fn find_left(folder: &Path, left: &mut Vec<PathBuf>) {
    for below in folders_in(folder) {
        let name = below.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_of_the_dead(name) && is_left_behind(&below) {
            left.push(below);
        } else {
            find_left(&below, left);
        }
    }
}

/// Has the kernel forget what it keeps of files, so that whoever reads them next reads them from their disks, and the
/// pages are his. The files of everybody on this machine are meant.
pub fn forget_files() -> Result<(), Trouble> {
    forget_files_by(Path::new("/proc/sys/vm/drop_caches"))
}

fn forget_files_by(file: &Path) -> Result<(), Trouble> {
    // What is not written yet cannot be forgotten.
    run("sync", [] as [&str; 0])?;
    write(file, "1\n")
        .map_err(|error| Trouble::new(format!("empty the page cache by {}", file.display()), error, AS_ROOT))
}

#[cfg(test)]
mod tests;
