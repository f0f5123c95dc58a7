//! The command `scot setup`: sets of programs for a group.
//!
//! Invariant: what is there already is said and left as it is.

use crate::cli::Setup;
use crate::failure::Failure;
use std::path::PathBuf;

/// Where sets lie unless another folder is named; the group's name follows.
const PREFIX: &str = "/sys/fs/bpf/scotfree-group-";

pub fn run(flags: &Setup) -> Result<(), Failure> {
    if let Some(set) = &flags.release {
        return kernel::release(set);
    }
    let group = flags.group.as_deref().unwrap_or_default();
    let folder = flags.folder.clone().unwrap_or_else(|| usual_folder(group));
    if flags.remove {
        kernel::remove(&folder)
    } else {
        kernel::make(flags, group, folder)
    }
}

/// A name in a BPF file system has no dots.
fn usual_folder(group: &str) -> PathBuf {
    format!("{PREFIX}{}", group.replace('.', "-")).into()
}

#[cfg(feature = "xdp")]
mod kernel {
    use super::{Failure, Setup};
    use crate::out;
    use scotfree_switch::sets::{self, GroupSets};
    use scotfree_switch::Prepared;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    pub fn make(flags: &Setup, group: &str, folder: PathBuf) -> Result<(), Failure> {
        let wanted = GroupSets { folder, group: number(group)?, count: flags.sets, slots: flags.slots };
        for (set, done) in wanted.make().map_err(Failure::environment)? {
            let done = match done {
                Prepared::Made => "made",
                Prepared::Renewed => "has this build's programs now",
                Prepared::There => "is there",
            };
            out::line(format_args!("{}: {done}", set.display()));
        }
        out::line(format_args!(
            "members of {group} run, in their own namespaces (unshare -Urnm): scot switch --plane xdp --pin {}/0 …",
            wanted.folder.display()
        ));
        Ok(())
    }

    pub fn remove(folder: &Path) -> Result<(), Failure> {
        let was_there = sets::remove(folder).map_err(Failure::environment)?;
        let said = if was_there { "removed" } else { "is not there" };
        out::line(format_args!("{}: {said}", folder.display()));
        Ok(())
    }

    pub fn release(set: &Path) -> Result<(), Failure> {
        sets::release(set).map_err(Failure::environment)?;
        out::line(format_args!("{}: is nobody's now", set.display()));
        Ok(())
    }

    /// A group's number, as the system's sources of names have it.
    fn number(group: &str) -> Result<u32, Failure> {
        // Where there is no such tool a number will do.
        let asked = Command::new("getent").args(["group", group]).output();
        let line = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let line = line.unwrap_or_default();
        let known = line.trim().split(':').nth(2).and_then(|number| number.parse().ok());
        known.or_else(|| group.parse().ok()).ok_or_else(|| {
            let make = format!("make it: groupadd {group} && usermod -aG {group} USER");
            Failure::usage(format!("--group: there is no group `{group}`; {make}"))
        })
    }
}

#[cfg(not(feature = "xdp"))]
mod kernel {
    use super::{Failure, Setup};
    use std::path::{Path, PathBuf};

    fn left_out<T>() -> Result<T, Failure> {
        Err(Failure::environment(
            "this scot was built without the plane in the kernel; build it where clang (14 or newer) and libbpf's headers are",
        ))
    }

    pub fn make(_: &Setup, _: &str, _: PathBuf) -> Result<(), Failure> {
        left_out()
    }

    pub fn remove(_: &Path) -> Result<(), Failure> {
        left_out()
    }

    pub fn release(_: &Path) -> Result<(), Failure> {
        left_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_lie_where_their_group_says() {
        assert_eq!(usual_folder("devs"), PathBuf::from("/sys/fs/bpf/scotfree-group-devs"));
        assert_eq!(usual_folder("a.b"), PathBuf::from("/sys/fs/bpf/scotfree-group-a-b"));
    }
}
