//! What programs under limits have used, as the kernel counted it.
//!
//! Invariant: what the kernel does not count is absent, never 0.

use super::disk::Disk;
use super::group::Part;
use super::hierarchy::{Controller, Version};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// What all processes of a group have used together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The most memory at a time, the page cache of what they read with it.
    pub memory_peak_bytes: Option<u64>,
    /// How many processes the kernel has ended because there was no more memory for them.
    pub memory_kills: Option<u64>,
    /// Processor time.
    pub cpu_us: Option<u64>,
    /// How long they stood still because the quota of a period was used up, on each processor for itself.
    pub throttled_us: Option<u64>,
    /// In how many periods they did.
    pub throttled_periods: Option<u64>,
    /// In how many periods they wanted a processor.
    pub periods: Option<u64>,
    /// Reads of the limited disks.
    pub reads: Option<u64>,
    /// Bytes read from them.
    pub read_bytes: Option<u64>,
    /// Writes to them.
    pub writes: Option<u64>,
    /// Bytes written to them.
    pub written_bytes: Option<u64>,
}

impl Usage {
    pub(super) fn of(parts: &[Part], disks: &[Disk]) -> Usage {
        let mut usage = Usage::default();
        for part in parts {
            for controller in &part.controllers {
                usage.take(*controller, part.version, &part.folder, disks);
            }
        }
        usage
    }

    /// All of it by name.
    pub fn counts(&self) -> [(&'static str, Option<u64>); 10] {
        [
            ("memory_peak_bytes", self.memory_peak_bytes),
            ("memory_kills", self.memory_kills),
            ("cpu_us", self.cpu_us),
            ("throttled_us", self.throttled_us),
            ("throttled_periods", self.throttled_periods),
            ("periods", self.periods),
            ("reads", self.reads),
            ("read_bytes", self.read_bytes),
            ("writes", self.writes),
            ("written_bytes", self.written_bytes),
        ]
    }

    fn take(&mut self, controller: Controller, version: Version, folder: &Path, disks: &[Disk]) {
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
        match (controller, version) {
            (Controller::Memory, Version::One) => {
                self.memory_peak_bytes = number(&read("memory.max_usage_in_bytes"));
                self.memory_kills = value_of(&read("memory.oom_control"), "oom_kill");
            }
            (Controller::Memory, Version::Two) => {
                self.memory_peak_bytes = number(&read("memory.peak"));
                self.memory_kills = value_of(&read("memory.events"), "oom_kill");
            }
            (Controller::Cpu, _) => self.take_cpu(version, &read("cpu.stat")),
            (Controller::CpuUsed, Version::Two) => (),
            (Controller::CpuUsed, Version::One) => {
                self.cpu_us = number(&read("cpuacct.usage")).map(|nanos| nanos / 1_000);
            }
            (Controller::Disk, Version::One) => {
                self.take_disks_one(
                    &read("blkio.throttle.io_serviced"),
                    &read("blkio.throttle.io_service_bytes"),
                    disks,
                );
            }
            (Controller::Disk, Version::Two) => self.take_disks_two(&read("io.stat"), disks),
        }
    }

    fn take_cpu(&mut self, version: Version, stat: &str) {
        self.periods = value_of(stat, "nr_periods");
        self.throttled_periods = value_of(stat, "nr_throttled");
        match version {
            Version::One => {
                self.throttled_us = value_of(stat, "throttled_time").map(|nanos| nanos / 1_000);
            }
            Version::Two => {
                self.throttled_us = value_of(stat, "throttled_usec");
                self.cpu_us = value_of(stat, "usage_usec");
            }
        }
    }

    /// Lines are `254:0 Read 128`. The kernel counts from the moment on at which a rate of the disk is limited.
    fn take_disks_one(&mut self, serviced: &str, bytes: &str, disks: &[Disk]) {
        let sum = |text: &str, kind: &str| {
            let of_disk = |disk: &Disk| value_of(text, &format!("{} {kind}", disk.number));
            disks.iter().map(of_disk).sum::<Option<u64>>().filter(|_| !disks.is_empty())
        };
        self.reads = sum(serviced, "Read");
        self.writes = sum(serviced, "Write");
        self.read_bytes = sum(bytes, "Read");
        self.written_bytes = sum(bytes, "Write");
    }

    /// Lines are `254:0 rbytes=1 wbytes=2 rios=3 wios=4 …`; a disk that nobody used has none.
    fn take_disks_two(&mut self, stat: &str, disks: &[Disk]) {
        let sum = |key: &str| {
            let of_line = |line: &str| {
                let mut words = line.split(' ');
                let number = words.next()?;
                let is_meant = disks.iter().any(|disk| disk.number == number);
                let word = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
                is_meant.then(|| word.parse::<u64>().ok()).flatten()
            };
            (!disks.is_empty()).then(|| stat.lines().filter_map(of_line).sum())
        };
        self.reads = sum("rios");
        self.writes = sum("wios");
        self.read_bytes = sum("rbytes");
        self.written_bytes = sum("wbytes");
    }
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The number behind a key, of lines of a key and a number.
fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| number(line.strip_prefix(key)?.strip_prefix(' ')?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn disk(number: &str) -> Disk {
        Disk { number: number.into(), name: String::new() }
    }

    /// What is used by the files of a group.
    fn usage(version: Version, files: &[(&str, &str)], disks: &[Disk]) -> Usage {
        let folder = Scratch::new("edge-usage").expect("temporary files can be written");
        for (file, text) in files {
            fs::write(folder.path().join(file), text).expect("it can be written");
        }
        let mut usage = Usage::default();
        for controller in Controller::ALL {
            usage.take(controller, version, folder.path(), disks);
        }
        usage
    }

    #[test]
    fn version_one_counts_in_several_files() {
        let files = [
            ("memory.max_usage_in_bytes", "4096\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 5000\n"),
            ("cpuacct.usage", "7000\n"),
            ("blkio.throttle.io_serviced", "254:0 Read 3\n254:0 Write 1\n8:0 Read 4\n8:0 Write 0\nTotal 8\n"),
            ("blkio.throttle.io_service_bytes", "254:0 Read 30\n254:0 Write 10\n8:0 Read 40\n8:0 Write 0\n"),
        ];
        let wanted = Usage {
            memory_peak_bytes: Some(4_096),
            memory_kills: Some(2),
            cpu_us: Some(7),
            throttled_us: Some(5),
            throttled_periods: Some(4),
            periods: Some(9),
            reads: Some(3),
            read_bytes: Some(30),
            writes: Some(1),
            written_bytes: Some(10),
        };
        assert_eq!(usage(Version::One, &files, &[disk("254:0")]), wanted);
        let both = usage(Version::One, &files, &[disk("254:0"), disk("8:0")]);
        assert_eq!((both.reads, both.read_bytes), (Some(7), Some(70)));
    }

    #[test]
    fn version_two_counts_the_same() {
        let files = [
            ("memory.peak", "4096\n"),
            ("memory.events", "low 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"),
            ("cpu.stat", "usage_usec 7\nuser_usec 6\nnr_periods 9\nnr_throttled 4\nthrottled_usec 5\n"),
            ("io.stat", "254:0 rbytes=30 wbytes=10 rios=3 wios=1 dbytes=0 dios=0\n8:0 rbytes=40 wbytes=0 rios=4 wios=0\n"),
        ];
        let counted = usage(Version::Two, &files, &[disk("254:0")]);
        let memory = (counted.memory_peak_bytes, counted.memory_kills);
        assert_eq!(memory, (Some(4_096), Some(2)));
        let cpu = (counted.cpu_us, counted.throttled_us, counted.throttled_periods, counted.periods);
        assert_eq!(cpu, (Some(7), Some(5), Some(4), Some(9)));
        let disks = (counted.reads, counted.read_bytes, counted.writes, counted.written_bytes);
        assert_eq!(disks, (Some(3), Some(30), Some(1), Some(10)));
        assert_eq!(usage(Version::Two, &files, &[disk("9:9")]).reads, Some(0), "nobody used it");
    }

    #[test]
    fn names_are_those_of_the_fields() {
        let counts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(Some);
        let [memory_peak_bytes, memory_kills, cpu_us, throttled_us, throttled_periods, periods, ..] = counts;
        let [.., reads, read_bytes, writes, written_bytes] = counts;
        let usage = Usage {
            memory_peak_bytes,
            memory_kills,
            cpu_us,
            throttled_us,
            throttled_periods,
            periods,
            reads,
            read_bytes,
            writes,
            written_bytes,
        };
        let by_name: serde_json::Map<String, serde_json::Value> =
            usage.counts().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        assert_eq!(serde_json::to_value(&usage).ok(), Some(by_name.into()));
    }

    #[test]
    fn what_is_not_counted_is_absent() {
        for version in [Version::One, Version::Two] {
            assert_eq!(usage(version, &[], &[]), Usage::default());
        }
        let old = [("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")];
        assert_eq!(usage(Version::One, &old, &[]).memory_kills, None);
        assert_eq!(usage(Version::One, &[], &[disk("254:0")]).reads, None);
    }
}
