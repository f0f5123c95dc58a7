//! Where this machine has its control groups: one hierarchy of version 2, several of version 1, or both.
//!
//! Invariant: nothing is tried here; what is found is what the kernel lists.

use crate::trouble::Trouble;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Which of the kernel's two interfaces a hierarchy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller, or for a few.
    One,
    /// One for all.
    Two,
}

/// What a group can limit or count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Memory.
    Memory,
    /// Processors.
    Cpu,
    /// What was used of them; its own controller under version 1 only.
    CpuUsed,
    /// Disks.
    Disk,
}

impl Controller {
    pub const ALL: [Controller; 4] =
        [Controller::Memory, Controller::Cpu, Controller::CpuUsed, Controller::Disk];

    /// Its name, if it has one there.
    pub const fn name(self, version: Version) -> Option<&'static str> {
        match (self, version) {
            (Controller::Memory, _) => Some("memory"),
            (Controller::Cpu, _) => Some("cpu"),
            (Controller::CpuUsed, Version::One) => Some("cpuacct"),
            (Controller::CpuUsed, Version::Two) => None,
            (Controller::Disk, Version::One) => Some("blkio"),
            (Controller::Disk, Version::Two) => Some("io"),
        }
    }
}

/// A mounted hierarchy of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub version: Version,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The folder of the group in which this process is.
    pub own: PathBuf,
    /// Which of the controllers it has.
    pub controllers: Vec<Controller>,
}

/// The hierarchies of this machine with controllers of ours.
pub fn hierarchies() -> Vec<Hierarchy> {
    let read = |file: &Path| fs::read_to_string(file).unwrap_or_default();
    let [mountinfo, cgroups] = ["mountinfo", "cgroup"].map(|name| read(&Path::new("/proc/self").join(name)));
    hierarchies_in(&mountinfo, &cgroups, read)
}

fn hierarchies_in(mountinfo: &str, cgroups: &str, read: impl Fn(&Path) -> String) -> Vec<Hierarchy> {
    let mut found = listed(mountinfo, cgroups);
    for hierarchy in found.iter_mut().filter(|hierarchy| hierarchy.version == Version::Two) {
        let text = read(&hierarchy.mount.join("cgroup.controllers"));
        hierarchy.controllers = named(text.split_whitespace(), Version::Two);
    }
    found.retain(|hierarchy| !hierarchy.controllers.is_empty());
    found
}

/// The controllers that a file of version 2 lists.
pub fn controllers_in(file: &Path) -> Vec<Controller> {
    let text = fs::read_to_string(file).unwrap_or_default();
    named(text.split_whitespace(), Version::Two)
}

/// Names the controllers that somebody needs and no hierarchy has.
pub fn require(needed: &[Controller], found: &[Hierarchy]) -> Result<(), Trouble> {
    let is_there = |controller: &Controller| found.iter().any(|one| one.controllers.contains(controller));
    let missing: Vec<String> = needed
        .iter()
        .filter(|controller| !is_there(controller))
        .map(|controller| format!("`{}`", names_of(*controller)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Trouble::new(
        "start a program under limits",
        format!("no control group here has the controller {} ({})", missing.join(", "), shown(found)),
        "run it where one is mounted and the kernel was not told to leave it out (cgroup_disable), \
         outside of a container whose /sys/fs/cgroup has none; see: scot doctor",
    ))
}

fn names_of(controller: Controller) -> String {
    let names = [Version::One, Version::Two].map(|version| controller.name(version));
    let mut names: Vec<&str> = names.into_iter().flatten().collect();
    names.dedup();
    names.join("` or `")
}

fn shown(found: &[Hierarchy]) -> String {
    let one = |hierarchy: &Hierarchy| {
        let names: Vec<&str> =
            hierarchy.controllers.iter().filter_map(|one| one.name(hierarchy.version)).collect();
        format!("{} by cgroup {}", names.join(", "), hierarchy.version)
    };
    if found.is_empty() {
        "there are no control groups".to_owned()
    } else {
        format!("there are {}", found.iter().map(one).collect::<Vec<_>>().join("; "))
    }
}

/// What this machine can limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// What there is, in words.
    pub found: String,
    /// What cannot be limited: memory, processors, disks.
    pub missing: Vec<&'static str>,
}

/// What a machine can limit, by its /proc/self/mountinfo and /proc/self/cgroup and its other files; whether this process
/// may is found out by trying.
pub fn available(mountinfo: &str, cgroups: &str, read: impl Fn(&Path) -> String) -> Availability {
    let found = hierarchies_in(mountinfo, cgroups, read);
    let wanted =
        [(Controller::Memory, "memory"), (Controller::Cpu, "processors"), (Controller::Disk, "disks")];
    let missing = wanted.into_iter().filter(|(controller, _)| require(&[*controller], &found).is_err());
    Availability { missing: missing.map(|(_, what)| what).collect(), found: shown(&found) }
}

/// The hierarchies in the two lists of the kernel; those of version 2 without their controllers, which it lists
/// elsewhere.
fn listed(mountinfo: &str, cgroups: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mountinfo.lines().filter_map(Mount::parse) {
        // A second mount of the same hierarchy is the same hierarchy.
        if let Some(hierarchy) = mount.hierarchy(cgroups) {
            let is_known = |known: &Hierarchy| {
                known.version == hierarchy.version && known.controllers == hierarchy.controllers
            };
            if !found.iter().any(is_known) {
                found.push(hierarchy);
            }
        }
    }
    found
}

/// A line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    /// The number of its disk, `254:0`.
    pub number: String,
    /// What of the file system it shows.
    pub root: PathBuf,
    /// Where.
    pub place: PathBuf,
    /// The file system's kind.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Options of the file system.
    options: String,
}

impl Mount {
    pub fn parse(line: &str) -> Option<Mount> {
        let (of_mount, of_system) = line.split_once(" - ")?;
        let mut of_mount = of_mount.split(' ').skip(2);
        let mut of_system = of_system.split(' ');
        Some(Mount {
            number: of_mount.next()?.to_owned(),
            root: unescaped(of_mount.next()?).into(),
            place: unescaped(of_mount.next()?).into(),
            kind: of_system.next()?.to_owned(),
            source: unescaped(of_system.next()?),
            options: of_system.next()?.to_owned(),
        })
    }

    fn hierarchy(&self, cgroups: &str) -> Option<Hierarchy> {
        let version = match self.kind.as_str() {
            "cgroup" => Version::One,
            "cgroup2" => Version::Two,
            _ => return None,
        };
        let controllers = match version {
            Version::One => named(self.options.split(','), version),
            Version::Two => Vec::new(),
        };
        if version == Version::One && controllers.is_empty() {
            return None;
        }
        let own = cgroups.lines().find_map(|line| self.own_path(line, version, &controllers))?;
        Some(Hierarchy { version, mount: self.place.clone(), own, controllers })
    }

    /// The folder of a group that a line of /proc/self/cgroup names, if it is one of this hierarchy.
    fn own_path(&self, line: &str, version: Version, controllers: &[Controller]) -> Option<PathBuf> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let is_meant = match version {
            Version::One => named(names.split(','), version) == controllers,
            Version::Two => names.is_empty(),
        };
        // Seen from a namespace of groups that this process is outside of, its group has no folder: the topmost will do.
        let below = Path::new(path).strip_prefix(&self.root).unwrap_or(Path::new(""));
        let is_outside = below.components().any(|part| part == std::path::Component::ParentDir);
        let below = if is_outside { Path::new("") } else { below };
        is_meant.then(|| if below == Path::new("") { self.place.clone() } else { self.place.join(below) })
    }
}

fn named<'a>(names: impl Iterator<Item = &'a str>, version: Version) -> Vec<Controller> {
    let names: Vec<&str> = names.collect();
    let is_named = |one: &Controller| one.name(version).is_some_and(|name| names.contains(&name));
    Controller::ALL.into_iter().filter(is_named).collect()
}

/// A path as the kernel lists it, with blanks and the like in octal.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            path.push(char::from(code));
            path.push_str(&part[3..]);
        } else {
            path.push('\\');
            path.push_str(part);
        }
    }
    path
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::One => "v1",
            Version::Two => "v2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 master:1 - cgroup cgroup rw,memory
34 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
35 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
36 27 254:1 / / rw,relatime - ext4 /dev/vda1 rw
";
    const OWN_ONE: &str = "7:blkio:/\n4:memory:/user/a b\n1:cpu,cpuacct:/user\n9:name=systemd:/x\n0::/\n";
    const TWO: &str = "29 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    fn paths(hierarchies: &[Hierarchy]) -> Vec<(&Path, &Path)> {
        hierarchies.iter().map(|one| (one.mount.as_path(), one.own.as_path())).collect()
    }

    #[test]
    fn hierarchies_of_version_one_are_found_with_the_own_group_in_each() {
        let found = listed(ONE, OWN_ONE);
        let folder = |name: &str| Path::new("/sys/fs/cgroup").join(name);
        let wanted = [
            (folder("cpu,cpuacct"), folder("cpu,cpuacct/user")),
            (folder("memory"), folder("memory/user/a b")),
            (folder("blkio"), folder("blkio")),
        ];
        let wanted: Vec<_> = wanted.iter().map(|(mount, own)| (mount.as_path(), own.as_path())).collect();
        assert_eq!(paths(&found), wanted);
        assert_eq!(found[0].controllers, [Controller::Cpu, Controller::CpuUsed]);
        assert!(found.iter().all(|one| one.version == Version::One));
        assert_eq!(listed(&format!("{ONE}{ONE}"), OWN_ONE), found, "a second mount is the same hierarchy");
    }

    #[test]
    fn the_own_group_is_found_wherever_the_hierarchy_is_mounted() {
        let root = |root: &str| TWO.replace(" / /sys", &format!(" {root} /sys"));
        for (mountinfo, cgroups, own) in [
            (TWO.to_owned(), "0::/system.slice/a.service\n", "/sys/fs/cgroup/system.slice/a.service"),
            (root("/docker/7"), "0::/docker/7/x\n", "/sys/fs/cgroup/x"),
            (root("/docker/7"), "0::/docker/7\n", "/sys/fs/cgroup"),
            (TWO.to_owned(), "0::/\n", "/sys/fs/cgroup"),
            (TWO.to_owned(), "0::/../../elsewhere\n", "/sys/fs/cgroup"),
        ] {
            let found = listed(&mountinfo, cgroups);
            assert_eq!(paths(&found), [(Path::new("/sys/fs/cgroup"), Path::new(own))], "{cgroups}");
            assert_eq!(found[0].version, Version::Two);
        }
        assert_eq!(listed("garbage\n1 2 3\n", "0::/\n"), []);
        assert_eq!(listed(TWO, "1:cpu:/\n"), [], "this process is in none");
    }

    #[test]
    fn what_is_missing_is_named_with_what_is_there() {
        let found = listed(ONE, OWN_ONE);
        require(&[Controller::Memory, Controller::Cpu, Controller::Disk], &found).expect("all are there");
        let error =
            require(&[Controller::Memory, Controller::Disk], &found[..1]).expect_err("two are missing");
        let error = error.to_string();
        assert!(
            error.contains("`memory`, `blkio` or `io`") && error.contains("there are cpu, cpuacct by"),
            "{error}"
        );
        let error = require(&[Controller::Cpu], &[]).expect_err("nothing is there").to_string();
        assert!(error.contains("`cpu` (there are no control groups)"), "{error}");
    }

    #[test]
    fn a_machine_says_what_it_can_limit() {
        let of_two = |names: &'static str| available(TWO, "0::/\n", move |_| names.to_owned());
        let all = of_two("cpuset cpu io memory hugetlb pids");
        assert_eq!((all.found.as_str(), all.missing), ("there are memory, cpu, io by cgroup v2", Vec::new()));
        assert_eq!(of_two("cpu pids").missing, ["memory", "disks"]);
        assert_eq!(available(ONE, OWN_ONE, |_| String::new()).missing, Vec::<&str>::new());
        let none = available("", "", |_| String::new());
        assert_eq!(none.missing, ["memory", "processors", "disks"]);
        assert_eq!(none.found, "there are no control groups");
    }

    #[test]
    fn blanks_in_paths_are_read() {
        let mount = Mount::parse(r"36 27 8:1 / /mnt/a\040b\134c rw - ext4 /dev/sda1 rw").expect("a line");
        assert_eq!((mount.place.to_str(), mount.number.as_str()), (Some(r"/mnt/a b\c"), "8:1"));
        assert_eq!(unescaped(r"\x\04"), r"\x\04");
    }
}
