//! What is written into the files of a group to put limits in force, and to lift them.
//!
//! Invariant: both versions are told the same, and what is not limited is not written.

use super::disk::Disk;
use super::hierarchy::{Controller, Version};
use super::profile::Limits;
use crate::trouble::Trouble;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// What is written into a file of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    file: &'static str,
    text: String,
    /// Kernels that do not count swap have no file for it.
    is_of_swap: bool,
}

impl Setting {
    fn new(file: &'static str, text: String) -> Setting {
        Setting { file, text, is_of_swap: false }
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), Trouble> {
        let file = folder.join(self.file);
        let tried = || format!("limit a program: write `{}` to {}", self.text, file.display());
        match write(&file, &self.text) {
            Err(error) if self.is_of_swap && error.kind() == io::ErrorKind::NotFound => {
                if swaps(&fs::read_to_string("/proc/swaps").unwrap_or_default()) {
                    let next = "switch it off for the time: swapoff --all; or boot with swapaccount=1";
                    return Err(Trouble::new(
                        tried(),
                        "the kernel does not count swap, and there is some",
                        next,
                    ));
                }
                Ok(())
            }
            written => written.map_err(|error| {
                let next =
                    "see whether the group above has less itself, and what the kernel says of it: dmesg";
                Trouble::new(tried(), error, next)
            }),
        }
    }
}

/// Whether a text of /proc/swaps names one, behind its heading.
fn swaps(text: &str) -> bool {
    text.lines().count() > 1
}

/// What puts limits in force.
pub(super) fn settings(
    controller: Controller,
    version: Version,
    limits: &Limits,
    disks: &[Disk],
) -> Vec<Setting> {
    match (controller, version) {
        (Controller::Memory, _) => memory_settings(version, limits),
        (Controller::Cpu, _) => cpu_settings(version, limits),
        (Controller::CpuUsed, _) => Vec::new(),
        (Controller::Disk, Version::One) => disk_settings_one(limits, disks),
        (Controller::Disk, Version::Two) => disk_settings_two(limits, disks),
    }
}

fn memory_settings(version: Version, limits: &Limits) -> Vec<Setting> {
    let Some(memory) = limits.memory else { return Vec::new() };
    let (file, swap_file, swap) = match version {
        // There it is the sum of both.
        Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", memory.0),
        Version::Two => ("memory.max", "memory.swap.max", 0),
    };
    vec![
        Setting::new(file, memory.0.to_string()),
        Setting { is_of_swap: true, ..Setting::new(swap_file, swap.to_string()) },
    ]
}

fn cpu_settings(version: Version, limits: &Limits) -> Vec<Setting> {
    let Some(cpus) = limits.cpus else { return Vec::new() };
    let (quota_us, period_us) = quota(cpus.count());
    match version {
        Version::One => {
            vec![
                Setting::new("cpu.cfs_period_us", period_us.to_string()),
                Setting::new("cpu.cfs_quota_us", quota_us.to_string()),
            ]
        }
        Version::Two => vec![Setting::new("cpu.max", format!("{quota_us} {period_us}"))],
    }
}

/// The microseconds that may be used of each period of so many. A quota is 1 ms at least; so is a period, but below 10
/// the kernel's own bookkeeping begins to weigh.
fn quota(cpus: f64) -> (u64, u64) {
    const QUOTA_US_MIN: f64 = 1_000.0;
    const PERIOD_US: f64 = 10_000.0;
    let period_us = PERIOD_US.max((QUOTA_US_MIN / cpus).ceil());
    ((cpus * period_us).round().max(QUOTA_US_MIN) as u64, period_us as u64)
}

/// The files of version 1 and the keys of version 2 for rates of reads and writes, bytes and counts.
const DISK_RATES: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "rbps"),
    ("blkio.throttle.write_bps_device", "wbps"),
    ("blkio.throttle.read_iops_device", "riops"),
    ("blkio.throttle.write_iops_device", "wiops"),
];

/// Each limited rate with its file of version 1 and its key of version 2.
fn disk_rates(limits: &Limits) -> Vec<(&'static str, &'static str, u64)> {
    let rates: [Option<u64>; 4] = [
        limits.read_rate.map(Into::into),
        limits.write_rate.map(Into::into),
        limits.read_iops.map(|count| count.get().into()),
        limits.write_iops.map(|count| count.get().into()),
    ];
    let named = DISK_RATES.into_iter().zip(rates);
    named.filter_map(|((file, key), rate)| Some((file, key, rate?))).collect()
}

fn disk_settings_one(limits: &Limits, disks: &[Disk]) -> Vec<Setting> {
    let of_disk = |(file, _, rate): (&'static str, &str, u64)| {
        disks.iter().map(move |disk| Setting::new(file, format!("{} {rate}", disk.number)))
    };
    disk_rates(limits).into_iter().flat_map(of_disk).collect()
}

fn disk_settings_two(limits: &Limits, disks: &[Disk]) -> Vec<Setting> {
    let rates = disk_rates(limits).into_iter().map(|(_, key, rate)| format!(" {key}={rate}"));
    let rates = rates.collect::<Vec<_>>().concat();
    if rates.is_empty() {
        return Vec::new();
    }
    disks.iter().map(|disk| Setting::new("io.max", format!("{}{rates}", disk.number))).collect()
}

/// Takes the limits on rates away. A process whose read waits for its turn cannot be ended before it came, which at a
/// low rate is never; one that waits for its quota ends late.
pub(super) fn lift_rates(folder: &Path) {
    let lines_of = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let numbers_in = |file: &str| {
        let text = lines_of(file);
        text.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    // Of a file that the other version has, or another controller, nothing is known and nothing is to be done.
    let set = |file: &str, text: &str| write(&folder.join(file), text).unwrap_or_default();
    for (file, _) in DISK_RATES {
        for number in numbers_in(file) {
            set(file, &format!("{number} 0"));
        }
    }
    let free = "rbps=max wbps=max riops=max wiops=max";
    for number in numbers_in("io.max") {
        set("io.max", &format!("{number} {free}"));
    }
    set("cpu.cfs_quota_us", "-1");
    set("cpu.max", "max");
}

/// Writes into a file that the kernel has made: one that is missing is not made.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confined::quantity::{Bytes, BytesPerSecond, Processors};
    use crate::scratch::Scratch;
    use std::num::NonZeroU32;

    fn limits() -> Limits {
        Limits {
            memory: Some(Bytes(400_000_000)),
            cpus: Processors::try_from(0.5).ok(),
            read_rate: Some(BytesPerSecond(25_000_000)),
            write_rate: None,
            read_iops: NonZeroU32::new(1_500),
            write_iops: NonZeroU32::new(500),
        }
    }

    fn disks() -> Vec<Disk> {
        [("254:0", "vda"), ("8:16", "sdb")]
            .map(|(number, name)| Disk { number: number.into(), name: name.into() })
            .into()
    }

    fn written(version: Version, limits: &Limits) -> Vec<String> {
        let settings = Controller::ALL.into_iter().flat_map(|one| settings(one, version, limits, &disks()));
        settings.map(|setting| format!("{}={}", setting.file, setting.text)).collect()
    }

    #[test]
    fn limits_are_written_as_each_version_wants_them() {
        assert_eq!(
            written(Version::One, &limits()),
            [
                "memory.limit_in_bytes=400000000",
                "memory.memsw.limit_in_bytes=400000000",
                "cpu.cfs_period_us=10000",
                "cpu.cfs_quota_us=5000",
                "blkio.throttle.read_bps_device=254:0 25000000",
                "blkio.throttle.read_bps_device=8:16 25000000",
                "blkio.throttle.read_iops_device=254:0 1500",
                "blkio.throttle.read_iops_device=8:16 1500",
                "blkio.throttle.write_iops_device=254:0 500",
                "blkio.throttle.write_iops_device=8:16 500",
            ]
        );
        assert_eq!(
            written(Version::Two, &limits()),
            [
                "memory.max=400000000",
                "memory.swap.max=0",
                "cpu.max=5000 10000",
                "io.max=254:0 rbps=25000000 riops=1500 wiops=500",
                "io.max=8:16 rbps=25000000 riops=1500 wiops=500",
            ]
        );
        for version in [Version::One, Version::Two] {
            assert_eq!(written(version, &Limits::default()), Vec::<String>::new(), "nothing is limited");
        }
    }

    #[test]
    fn a_quota_is_of_the_shortest_period_that_the_kernel_takes() {
        for (cpus, quota_us, period_us) in [
            (0.5, 5_000, 10_000),
            (2.0, 20_000, 10_000),
            (0.1, 1_000, 10_000),
            (0.01, 1_000, 100_000),
            (0.03, 1_000, 33_334),
        ] {
            assert_eq!(quota(cpus), (quota_us, period_us), "{cpus}");
        }
    }

    #[test]
    fn rates_are_lifted_before_processes_are_ended() {
        let folder = Scratch::new("edge-lift").expect("temporary files can be written");
        let files = ["blkio.throttle.read_iops_device", "io.max", "cpu.cfs_quota_us", "cpu.max"];
        for (file, text) in
            files.into_iter().zip(["254:0 1\n", "8:16 rbps=1 wbps=max\n", "1000\n", "1000 10000\n"])
        {
            fs::write(folder.path().join(file), text).expect("it can be written");
        }
        lift_rates(folder.path());
        // The kernel's files take each write as a whole; these keep what is longer.
        let read = |file: &str| fs::read_to_string(folder.path().join(file)).expect("it is there");
        let lifted = ["254:0 0", "8:16 rbps=max wbps=max riops=max wiops=max", "-1", "max"];
        assert!(files.into_iter().zip(lifted).all(|(file, text)| read(file).starts_with(text)));
    }

    #[test]
    fn swap_that_is_not_counted_makes_a_memory_limit_an_error_where_there_is_some() {
        assert!(!swaps("Filename\tType\tSize\n") && !swaps(""));
        assert!(swaps("Filename\tType\tSize\n/dev/zram0\tpartition\t8\n"));
    }
}
