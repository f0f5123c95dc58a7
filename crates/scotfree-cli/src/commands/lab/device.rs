//! The command `scot lab device`: a command under the limits of a small machine.
//!
//! Invariant: the command's output is its own; what is said of it goes to standard error and to the file asked for.

use super::{file_of, LAB_FOLDER};
use crate::cli::LabDevice;
use crate::failure::Failure;
use scotfree_io::stderr;
use scotfree_stage::confined::{self, Bytes, Disk, Ended, Group, Limits, Profile, Usage};
use scotfree_stage::netns::RUN_FOLDER;
use scotfree_stage::process::find_tool;
use scotfree_stage::sweep::sweep_before_run;
use serde::Serialize;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

/// What the file says.
#[derive(Serialize)]
struct Report<'a> {
    device: Option<&'a str>,
    command: Vec<String>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// Whether the kernel has ended a process of it because there was no more memory for it.
    killed_by_limit: bool,
    wall_s: f64,
    limits: Limits,
    disks: &'a [Disk],
    used: &'a Usage,
}

pub fn run(flags: &LabDevice) -> Result<(), Failure> {
    let profile = flags.profile.as_deref().map(profile).transpose()?;
    let limits = own_limits(flags).or(profile.as_ref().map(|profile| profile.limits).unwrap_or_default());
    if limits.is_none() {
        return Err(Failure::usage(
            "nothing is limited; name a profile (scot lab list) or a limit: --memory 400MB",
        ));
    }
    require_program(flags)?;
    let disks = disks(&limits, flags)?;
    let report = flags.report.as_deref().map(create).transpose()?;
    sweep_before_run(Path::new(RUN_FOLDER), Path::new(LAB_FOLDER));
    for warning in limits.beyond_this_machine() {
        stderr::line(format_args!("scot: warning: {warning}"));
    }
    let name = profile.as_ref().map_or("limits", |profile| profile.name.as_str());
    let group = Group::new(name, &limits, &disks)?;
    if flags.cold {
        confined::forget_files()?;
    }
    let ended = confined::run_foreground(&group, &flags.command)?;
    // What it has left running is no part of it.
    group.end_processes();
    let used = group.usage();
    group.remove()?;
    stderr::text(said(name, &ended, &limits, &disks, &used));
    if let Some(file) = report {
        let command = flags.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let report = Report {
            device: profile.as_ref().map(|profile| profile.name.as_str()),
            command,
            exit_code: ended.status.code(),
            signal: ended.status.signal(),
            killed_by_limit: used.memory_kills > Some(0),
            wall_s: ended.wall.as_secs_f64(),
            limits,
            disks: &disks,
            used: &used,
        };
        serde_json::to_writer_pretty(file, &report).map_err(|error| not_written(flags, &error.into()))?;
    }
    match code_of(&ended) {
        0 => Ok(()),
        code => Err(Failure::Command(code)),
    }
}

fn profile(name: &Path) -> Result<Profile, Failure> {
    Profile::read(&file_of("devices", name)?).map_err(Failure::usage)
}

fn own_limits(flags: &LabDevice) -> Limits {
    Limits {
        memory: flags.memory,
        cpus: flags.cpus,
        read_rate: flags.read_rate,
        write_rate: flags.write_rate,
        read_iops: flags.read_iops,
        write_iops: flags.write_iops,
    }
}

fn require_program(flags: &LabDevice) -> Result<(), Failure> {
    let program = flags.command[0].to_string_lossy();
    match find_tool(&program) {
        Some(_) => Ok(()),
        None => Err(Failure::usage(format!("there is no program `{program}`; see: command -v {program}"))),
    }
}

/// The disks whose rates are limited: of the folders named, or of the current one.
fn disks(limits: &Limits, flags: &LabDevice) -> Result<Vec<Disk>, Failure> {
    if !limits.has_disk() {
        let unused = flags.disks.first().map(|_| Failure::usage("--disk: no rate of a disk is limited"));
        return unused.map_or(Ok(Vec::new()), Err);
    }
    let current = [Path::new(".").to_owned()];
    let folders = if flags.disks.is_empty() { &current[..] } else { &flags.disks };
    Ok(confined::disks_of(folders.iter().map(AsRef::as_ref))?)
}

/// The report's file, made before the command runs: afterwards it would be too late to hear that it cannot be.
fn create(file: &Path) -> Result<File, Failure> {
    let next = "name a file in a folder in which you may write";
    File::create(file)
        .map_err(|error| Failure::tried(format_args!("--report {}", file.display()), &error, next))
}

fn not_written(flags: &LabDevice, error: &io::Error) -> Failure {
    let file = flags.report.as_deref().unwrap_or(Path::new("")).display();
    Failure::tried(format_args!("--report {file}"), error, "the command has run; make room and run it again")
}

/// As shells have it.
fn code_of(ended: &Ended) -> u8 {
    let code = ended.status.code().or_else(|| ended.status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// What it used, of what it was allowed.
fn said(name: &str, ended: &Ended, limits: &Limits, disks: &[Disk], used: &Usage) -> String {
    let mut text = format!("scot: {name}: {} after {:.2} s\n", ended.status, ended.wall.as_secs_f64());
    let mut line = |line: String| writeln!(text, "scot: {line}").expect("a text can be written");
    if let (Some(limit), Some(kills @ 1..)) = (limits.memory, used.memory_kills) {
        line(format!("killed by the memory limit of {limit}: {kills} of its processes"));
    }
    let of = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    if let Some(peak) = used.memory_peak_bytes {
        let limit = of(limits.memory.map(|limit| limit.to_string()));
        line(format!("memory: {} at most{limit}, the page cache of what it read with it", Bytes(peak)));
    }
    if let Some(cpu_us) = used.cpu_us {
        let mut cpu = format!("processors: {:.2} s", cpu_us as f64 / 1e6);
        if let (Some(cpus), Some(periods), Some(throttled)) =
            (limits.cpus, used.periods, used.throttled_periods)
        {
            let _ = write!(cpu, "; {cpus} allowed, held back in {throttled} of {periods} periods");
        }
        line(cpu);
    }
    if let (Some(reads), Some(read), Some(writes), Some(written)) =
        (used.reads, used.read_bytes, used.writes, used.written_bytes)
    {
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        let (read, written) = (Bytes(read), Bytes(written));
        line(format!("{}: {reads} reads of {read}, {writes} writes of {written}", names.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::confined::Processors;
    use std::process::ExitStatus;
    use std::time::Duration;

    fn ended(raw: i32) -> Ended {
        Ended { status: ExitStatus::from_raw(raw), wall: Duration::from_millis(1_500) }
    }

    #[test]
    fn a_command_ends_as_shells_have_it() {
        for (raw, code) in [(0, 0), (3 << 8, 3), (9, 137), (15, 143)] {
            assert_eq!(code_of(&ended(raw)), code);
        }
    }

    #[test]
    fn what_was_used_is_said_of_what_was_allowed() {
        let limits = Limits {
            memory: Some(Bytes(400_000_000)),
            cpus: Processors::try_from(0.5).ok(),
            ..Limits::default()
        };
        let disks = [Disk { number: "254:0".into(), name: "vda".into() }];
        let used = Usage {
            memory_peak_bytes: Some(399_000_000),
            memory_kills: Some(1),
            cpu_us: Some(740_000),
            throttled_periods: Some(140),
            periods: Some(150),
            reads: Some(7),
            read_bytes: Some(28_672),
            writes: Some(0),
            written_bytes: Some(0),
            ..Usage::default()
        };
        assert_eq!(
            said("board-1gb", &ended(9), &limits, &disks, &used),
            "scot: board-1gb: signal: 9 (SIGKILL) after 1.50 s\n\
             scot: killed by the memory limit of 400.0 MB: 1 of its processes\n\
             scot: memory: 399.0 MB at most of 400.0 MB, the page cache of what it read with it\n\
             scot: processors: 0.74 s; 0.5 allowed, held back in 140 of 150 periods\n\
             scot: vda: 7 reads of 28.7 kB, 0 writes of 0 B\n"
        );
        // What is not counted is not said.
        let said = said("x", &ended(0), &limits, &[], &Usage::default());
        assert_eq!(said, "scot: x: exit status: 0 after 1.50 s\n");
    }
}
