//! What a small machine has: the files of `lab/devices`, and limits that a run names itself.
//!
//! Invariant: a profile limits something, and what it says of limits is all that is limited.

use super::quantity::{Bytes, BytesPerSecond, Processors};
use crate::config::Source;
use crate::trouble::ConfigError;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::path::Path;

/// A small machine, as its file states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name: the file's name without ending.
    pub name: String,
    /// What it is, in a sentence.
    pub title: String,
    /// What it has.
    pub limits: Limits,
}

/// What a program may use; what is not named is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory, the page cache of what it reads with it.
    pub memory: Option<Bytes>,
    /// Processors' worth of time, all its threads together.
    pub cpus: Option<Processors>,
    /// Bytes a second that it reads from each disk.
    pub read_rate: Option<BytesPerSecond>,
    /// Bytes a second that it writes to each disk.
    pub write_rate: Option<BytesPerSecond>,
    /// Reads a second of each disk.
    pub read_iops: Option<NonZeroU32>,
    /// Writes a second to each disk.
    pub write_iops: Option<NonZeroU32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    title: String,
    limits: Limits,
}

impl Profile {
    /// Reads a file of `lab/devices`.
    pub fn read(file: &Path) -> Result<Profile, ConfigError> {
        Profile::parse(&Source::read(file)?)
    }

    /// Reads a profile.
    pub fn parse(source: &Source) -> Result<Profile, ConfigError> {
        let Form { title, limits } = source.parse()?;
        if limits.is_none() {
            let problem =
                "nothing is limited; name one of memory, cpus, read_rate, write_rate, read_iops, write_iops";
            return Err(source.error_at_top("limits", problem));
        }
        Ok(Profile { name: source.stem().to_owned(), title, limits })
    }
}

impl Limits {
    /// These, and of `other` what these leave open.
    #[must_use]
    pub fn or(self, other: Limits) -> Limits {
        Limits {
            memory: self.memory.or(other.memory),
            cpus: self.cpus.or(other.cpus),
            read_rate: self.read_rate.or(other.read_rate),
            write_rate: self.write_rate.or(other.write_rate),
            read_iops: self.read_iops.or(other.read_iops),
            write_iops: self.write_iops.or(other.write_iops),
        }
    }

    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }

    /// Whether a rate of disks is limited.
    pub fn has_disk(&self) -> bool {
        self.read_rate.is_some()
            || self.write_rate.is_some()
            || self.read_iops.is_some()
            || self.write_iops.is_some()
    }

    /// What the limits ask for that a machine has not: there they limit nothing.
    pub fn beyond(&self, processors: usize, memory: Bytes) -> Vec<String> {
        let cpus = self.cpus.filter(|cpus| cpus.count() > processors as f64).map(|cpus| {
            format!("{cpus} processors are allowed, but this machine has {processors}: it is the slower one")
        });
        let memory = self
            .memory
            .filter(|limit| *limit > memory)
            .map(|limit| format!("{limit} of memory are allowed, but this machine has {memory}"));
        cpus.into_iter().chain(memory).collect()
    }

    /// The same of this machine.
    pub fn beyond_this_machine(&self) -> Vec<String> {
        let processors = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        let kib = crate::environment::field_of("/proc/meminfo", "MemTotal")
            .and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
        self.beyond(processors, Bytes(kib.map_or(u64::MAX, |kib| kib << 10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_of_the_lab_are_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/devices");
        let files = std::fs::read_dir(folder).expect("it is there").flatten();
        let mut names: Vec<String> = files
            .map(|file| Profile::read(&file.path()).unwrap_or_else(|error| panic!("{error}")))
            .map(|profile| {
                let Limits { memory, cpus, .. } = profile.limits;
                assert!(memory.is_some() && cpus.is_some() && profile.limits.has_disk(), "{profile:?}");
                profile.name
            })
            .collect();
        names.sort();
        assert_eq!(names, ["board-1gb", "jetson-8gb-sd", "laptop"]);
    }

    #[test]
    fn a_profile_that_limits_nothing_or_something_unknown_is_refused() {
        for (text, line, problem) in [
            ("title = 'x'\n[limits]\n", 1, "nothing is limited"),
            ("title = 'x'\n[limits]\nmemory = 4\n", 3, "expected a string"),
            ("title = 'x'\n[limits]\nmemory = '4 pages'\n", 3, "for instance 400MB"),
            ("title = 'x'\n[limits]\ncpus = 0.0\n", 3, "0.01 to 1024"),
            ("title = 'x'\n[limits]\nread_rate = '1MB'\n", 3, "for instance 25MB/s"),
            ("title = 'x'\n[limits]\nread_iops = 0\n", 3, "nonzero"),
            ("title = 'x'\n[limits]\nmemry = '1MB'\n", 3, "unknown field `memry`"),
            ("title = 'x'\nmemory = '1MB'\n[limits]\n", 2, "unknown field `memory`"),
        ] {
            let error = Profile::parse(&Source::from_text("lab/devices/x.toml", text)).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
            assert_eq!(error.line, line, "{error}");
        }
    }

    #[test]
    fn what_a_run_names_itself_comes_before_the_profile() {
        let profile = "title = 'x'\n[limits]\nmemory = '1GB'\ncpus = 0.5\nread_iops = 1500\n";
        let profile = Profile::parse(&Source::from_text("x.toml", profile)).expect("a profile");
        let own = Limits { memory: Some(Bytes(7)), write_rate: Some(BytesPerSecond(9)), ..Limits::default() };
        let both = own.or(profile.limits);
        assert_eq!((both.memory, both.write_rate), (Some(Bytes(7)), Some(BytesPerSecond(9))));
        assert_eq!((both.cpus, both.read_iops), (profile.limits.cpus, NonZeroU32::new(1_500)));
        assert_eq!(Limits::default().or(profile.limits), profile.limits);
    }

    #[test]
    fn what_a_machine_has_not_limits_nothing_there_and_is_said() {
        let limits = Limits {
            memory: Some(Bytes(2_000)),
            cpus: Some(Processors::try_from(2.5).expect("it is allowed")),
            ..Limits::default()
        };
        assert_eq!(limits.beyond(3, Bytes(2_000)), Vec::<String>::new());
        let said = limits.beyond(2, Bytes(1_999));
        assert!(said[0].contains("2.5 processors") && said[0].contains("has 2"), "{said:?}");
        assert!(said[1].contains("2.0 kB") && said.len() == 2, "{said:?}");
    }
}
