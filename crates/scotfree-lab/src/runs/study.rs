//! Experiments of the study and of retrieval, which are in Python: each repetition of an arm is a process of its own.
//!
//! Invariant: what a repetition measured is what its process printed, one JSON object of numbers; a whole
//! number is a counter, too. A process that fails ends the run with its own words. An arm that names a device runs
//! under its limits (`on_device.rs`), and what it used of them is measured, too.

use super::on_device::{settings_of_program, Device};
use super::{Context, Measured};
use crate::experiment::{Arm, Measurement};
use scotfree_stage::confined::{Disk, Group};
use scotfree_stage::process::{wait_until, ProcessSpec, Supervisor};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::trouble::Trouble;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The interpreter that scripts/python.sh makes, from the repository's root.
const PYTHON: &str = "target/python/bin/python";
/// Where an arm keeps what it makes once for all its repetitions.
const FOLDER: &str = "SCOT_BENCH_FOLDER";
/// Where the calls lie that an arm is to look at.
const TRACES: &str = "SCOT_BENCH_TRACES";
/// The longest repetition: the whole study of a hundred million calls, and its making.
const PATIENCE: Duration = Duration::from_secs(3_600);
const MAKE: &str = "see python/bench; what it runs in is made by scripts/python.sh";

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let bench = Bench::new(context)?;
    context.measure_in_turns(|arm, repetition| bench.measure(arm, repetition, None))
}

/// What starts the measuring processes of an experiment.
pub(super) struct Bench<'a> {
    context: &'a Context<'a>,
    repository: PathBuf,
    supervisor: Supervisor,
    folder: Scratch,
    devices: BTreeMap<&'a str, (Device, Vec<Disk>)>,
}

impl<'a> Bench<'a> {
    pub fn new(context: &'a Context<'a>) -> Result<Bench<'a>, Trouble> {
        let repository = repository(&context.options.lab_folder)?;
        let python = repository.join(PYTHON);
        if !python.is_file() {
            let tried = format!("measure `{}`", context.experiment.name);
            let problem = format!("there is no {}", python.display());
            return Err(Trouble::new(tried, problem, "make it: scripts/python.sh"));
        }
        let folder = Scratch::new_in(&std::env::temp_dir(), &context.experiment.name)?;
        let devices = devices(context, &[folder.path().to_owned(), repository.clone()])?;
        Ok(Bench { context, repository, supervisor: Supervisor::new(), folder, devices })
    }

    /// One repetition of an arm, over the calls in a folder if it is given one.
    pub fn measure(&self, arm: &Arm, repetition: u32, traces: Option<&Path>) -> Result<Measured, Trouble> {
        let device = self.devices.get(arm.name.as_str());
        let group = device.map(|(device, disks)| device.enter(disks)).transpose()?;
        let prefix = group.as_ref().map(Group::prefix).unwrap_or_default();
        let prefix: Vec<&OsStr> = prefix.iter().map(OsString::as_os_str).collect();
        // Behind its group, so that it ends before that goes.
        let process = self.supervisor.spawn_behind(&prefix, &self.spec(arm, repetition, traces))?;
        wait_until(PATIENCE, || self.context.interrupt.has_come() || !process.is_running());
        self.context.interrupt.check()?;
        let is_good = process.exit_status().is_some_and(|status| status.success());
        let printed = measured(is_good, &process.output());
        let used = device.zip(group).map(|((device, _), group)| (device, group.usage()));
        let blame = used.as_ref().and_then(|(device, usage)| device.blame(usage));
        let measured = match &used {
            Some((device, usage)) => device.measured(printed, usage),
            None => printed,
        };
        measured.ok_or_else(|| {
            let (problem, next) = blame.unwrap_or_else(|| (last(&process.error_output()), MAKE));
            Trouble::new(format!("measure the arm `{}`", arm.name), problem, next)
        })
    }

    fn spec(&self, arm: &Arm, repetition: u32, traces: Option<&Path>) -> ProcessSpec {
        let settings = serde_json::to_string(&settings_of_program(arm)).expect("settings are JSON");
        let words = ["-m", "bench", &self.context.experiment.name, &arm.name, &settings];
        let name = format!("{}-{repetition}", arm.name);
        let logs = self.context.options.log_folder.clone().unwrap_or_else(|| self.folder.path().join("logs"));
        let mut spec = ProcessSpec::new(&name, self.repository.join(PYTHON), logs).args(words);
        spec = spec.env(FOLDER, self.folder.path());
        if let Some(traces) = traces {
            spec = spec.env(TRACES, traces);
        }
        spec.working_folder = Some(self.repository.join("python"));
        spec
    }
}

/// The devices of the arms that have one, each tried: nobody wants to hear at the end of a run that it cannot be. What
/// an arm reads and writes lies in `folders`.
fn devices<'a>(
    context: &'a Context<'a>,
    folders: &[PathBuf],
) -> Result<BTreeMap<&'a str, (Device, Vec<Disk>)>, Trouble> {
    let mut devices = BTreeMap::new();
    for arm in &context.experiment.arms {
        if let Some(device) = Device::of(arm, &context.options.lab_folder)? {
            for warning in device.warnings() {
                eprintln!("warning: arm `{}`: {warning}", arm.name);
            }
            let disks = device.disks(folders)?;
            device.try_out(&disks)?;
            devices.insert(arm.name.as_str(), (device, disks));
        }
    }
    Ok(devices)
}

/// The folder above the lab's, from the root: the process starts elsewhere.
fn repository(lab_folder: &Path) -> Result<PathBuf, Trouble> {
    let lab = lab_folder.canonicalize().map_err(|error| Trouble::file("find", lab_folder, &error))?;
    Ok(lab.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf))
}

fn last(words: &str) -> String {
    words.trim_end().lines().last().unwrap_or("its process ended without a word").to_owned()
}

/// The numbers of one repetition: the last line of what was printed. Nothing if it is none of ours.
fn measured(is_good: bool, printed: &str) -> Option<Measured> {
    let line = printed.trim_end().lines().last().filter(|_| is_good)?;
    let numbers: BTreeMap<String, serde_json::Number> = serde_json::from_str(line).ok()?;
    let mut measured = Measured::default();
    for (name, number) in numbers {
        let number = number.as_f64()?;
        measured.value(&name, number);
        if number >= 0.0 && number.fract() == 0.0 {
            measured.counter(&name, number as u64);
        }
    }
    Some(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_measurement_and_whole_numbers_count() {
        let measured = measured(true, "a warning\n{\"spans_per_s\": 2.5, \"lost\": 0.0}\n").expect("numbers");
        assert_eq!(measured.values, BTreeMap::from([("lost".into(), 0.0), ("spans_per_s".into(), 2.5)]));
        assert_eq!(measured.counters, BTreeMap::from([("lost".into(), 0)]));
    }

    #[test]
    fn a_failed_process_and_words_are_no_measurement() {
        assert!(measured(false, "{\"spans_per_s\": 2.5}").is_none());
        assert!(measured(true, "{\"spans_per_s\": \"fast\"}").is_none());
        assert!(measured(true, "").is_none());
        assert_eq!(last("Traceback\nValueError: no\n"), "ValueError: no");
    }
}
