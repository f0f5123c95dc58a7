//! Arms that run under the limits of a small machine: their setting `device`.
//!
//! Invariant: what the setting asks for is in force for every repetition, or the run ends with what is missing; that a
//! repetition was ended by the memory limit is a measurement only where its arm says that it may be.

use super::Measured;
use crate::experiment::Arm;
use scotfree_stage::confined::{self, disks_of, Disk, Group, Limits, Profile, Usage};
use scotfree_stage::trouble::Trouble;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The setting's name.
const SETTING: &str = "device";

/// What an arm runs on: `device = "board-1gb"`, or a table of a profile's name, limits that come before the profile's,
/// and how it is run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Device {
    /// A file of lab/devices.
    profile: Option<String>,
    limits: Limits,
    /// That the memory limit ends it is measured.
    may_be_killed: bool,
    /// It begins with an empty page cache.
    is_cold: bool,
}

impl Device {
    /// What an arm says of it, if it does.
    pub fn of(arm: &Arm, lab_folder: &Path) -> Result<Option<Device>, Trouble> {
        let device = match arm.settings.get(SETTING) {
            None => return Ok(None),
            Some(toml::Value::String(name)) => Device::parse(
                toml::Table::from_iter([("profile".to_owned(), name.clone().into())]),
                lab_folder,
            ),
            Some(toml::Value::Table(table)) => Device::parse(table.clone(), lab_folder),
            Some(_) => Err("it is neither the name of a file in lab/devices nor a table".to_owned()),
        };
        device.map(Some).map_err(|problem| {
            let tried = format!("understand the setting `{SETTING}` of the arm `{}`", arm.name);
            let next =
                "allowed are a name of lab/devices, or a table of profile, may_be_killed, cold, and limits: \
                        memory, cpus, read_rate, write_rate, read_iops, write_iops";
            Trouble::new(tried, problem, next)
        })
    }

    fn parse(mut table: toml::Table, lab_folder: &Path) -> Result<Device, String> {
        let profile: Option<String> = taken(&mut table, "profile")?;
        let may_be_killed = taken(&mut table, "may_be_killed")?.unwrap_or(false);
        let is_cold = taken(&mut table, "cold")?.unwrap_or(false);
        let own: Limits = table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
        let file = |name: &String| lab_folder.join("devices").join(name).with_extension("toml");
        let of_profile = profile.as_ref().map(|name| Profile::read(&file(name))).transpose();
        let of_profile = of_profile.map_err(|error| error.to_string())?;
        let limits = of_profile.map_or(own, |profile| own.or(profile.limits));
        if limits.is_none() {
            return Err("it limits nothing".to_owned());
        }
        Ok(Device { profile, limits, may_be_killed, is_cold })
    }

    /// The disks whose rates are limited, of folders in which the arm reads and writes.
    pub fn disks(&self, folders: &[PathBuf]) -> Result<Vec<Disk>, Trouble> {
        if self.limits.has_disk() {
            disks_of(folders.iter().map(PathBuf::as_path))
        } else {
            Ok(Vec::new())
        }
    }

    /// Where a repetition runs.
    pub fn enter(&self, disks: &[Disk]) -> Result<Group, Trouble> {
        let group = self.group(disks)?;
        if self.is_cold {
            confined::forget_files()?;
        }
        Ok(group)
    }

    /// Finds out whether it can be had here.
    pub fn try_out(&self, disks: &[Disk]) -> Result<(), Trouble> {
        self.group(disks)?.remove()
    }

    fn group(&self, disks: &[Disk]) -> Result<Group, Trouble> {
        Group::new(self.profile.as_deref().unwrap_or("arm"), &self.limits, disks)
    }

    /// What the machine that measures has less of.
    pub fn warnings(&self) -> Vec<String> {
        self.limits.beyond_this_machine()
    }

    /// A repetition with what it used: what it printed, or that the limit has ended it. Nothing if it failed otherwise,
    /// or was not to be ended.
    pub fn measured(&self, printed: Option<Measured>, usage: &Usage) -> Option<Measured> {
        let was_killed = printed.is_none() && has_killed(usage);
        let mut measured = match printed {
            None if was_killed && self.may_be_killed => Measured::default(),
            printed => printed?,
        };
        let limit = self.limits.memory.map(|memory| memory.0);
        let counts = [("killed", Some(u64::from(was_killed))), ("memory_limit_bytes", limit)];
        for (name, count) in counts.into_iter().chain(usage.counts()) {
            if let Some(count) = count {
                let name = format!("{SETTING}_{name}");
                measured.value(&name, count as f64).counter(&name, count);
            }
        }
        Some(measured)
    }

    /// Why a repetition that failed did, if its limit has ended it, and what to do.
    pub fn blame(&self, usage: &Usage) -> Option<(String, &'static str)> {
        let limit = self.limits.memory.filter(|_| has_killed(usage))?;
        let next = "raise the limit, or say in its device that it may_be_killed, if that is what is measured";
        Some((format!("it wanted more memory than {limit}, and the kernel ended it"), next))
    }
}

/// The settings of an arm without this one: what is its program's affair.
pub(super) fn settings_of_program(arm: &Arm) -> std::collections::BTreeMap<&String, &toml::Value> {
    arm.settings.iter().filter(|(key, _)| *key != SETTING).collect()
}

fn has_killed(usage: &Usage) -> bool {
    usage.memory_kills > Some(0)
}

fn taken<Value: DeserializeOwned>(table: &mut toml::Table, key: &str) -> Result<Option<Value>, String> {
    let value = table.remove(key).map(toml::Value::try_into::<Value>).transpose();
    value.map_err(|error| format!("`{key}`: {}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use scotfree_stage::confined::Bytes;
    use std::collections::BTreeMap;

    fn lab() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab")
    }

    fn arm(settings: &str) -> Arm {
        let settings: toml::Table = settings.parse().expect("it is TOML");
        Arm { name: "flat".into(), settings: settings.into_iter().collect() }
    }

    fn device(settings: &str) -> Device {
        Device::of(&arm(settings), &lab()).expect("it is right").expect("it is there")
    }

    #[test]
    fn a_device_is_named_or_described_and_its_own_limits_come_first() {
        assert_eq!(Device::of(&arm("calls = 3"), &lab()), Ok(None));
        let board = device("device = 'board-1gb'");
        assert!(board.limits.memory == Some(Bytes(1 << 30)) && board.limits.has_disk());
        assert!(!board.may_be_killed && !board.is_cold);
        let table = "device = { profile = 'board-1gb', memory = '400MB', may_be_killed = true, cold = true }";
        let smaller = device(table);
        let memory = Some(Bytes(400_000_000));
        assert_eq!(smaller.limits, Limits { memory, ..board.limits });
        assert!(smaller.may_be_killed && smaller.is_cold);
        let alone = device("device = { memory = '400MB' }");
        assert_eq!(alone.limits, Limits { memory, ..Limits::default() });
        assert_eq!(alone.disks(&["/nowhere".into()]), Ok(Vec::new()), "no rate is limited");
    }

    #[test]
    fn what_a_device_cannot_be_is_said_with_the_arm() {
        for (settings, problem) in [
            ("device = 3", "neither the name"),
            ("device = {}", "limits nothing"),
            ("device = 'nowhere'", "nowhere.toml"),
            ("device = { memry = '1MB' }", "unknown field `memry`"),
            ("device = { memory = '1 page' }", "for instance 400MB"),
            ("device = { may_be_killed = 1 }", "`may_be_killed`: invalid type"),
        ] {
            let error = Device::of(&arm(settings), &lab()).expect_err(problem).to_string();
            assert!(error.contains("arm `flat`") && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn the_devices_of_the_experiments_are_right() {
        for file in std::fs::read_dir(lab().join("experiments")).expect("it is there").flatten() {
            let experiment = Experiment::read(&file.path()).expect("it is an experiment");
            for arm in &experiment.arms {
                Device::of(arm, &lab()).unwrap_or_else(|trouble| panic!("{}: {trouble}", experiment.name));
            }
        }
    }

    #[test]
    fn a_program_hears_of_its_own_settings_only() {
        let arm = arm("device = 'board-1gb'\ncalls = 3");
        let settings = serde_json::to_string(&settings_of_program(&arm)).expect("it is JSON");
        assert_eq!(settings, r#"{"calls":3}"#);
    }

    #[test]
    fn an_end_by_the_limit_is_a_measurement_only_where_it_may_be() {
        let killed = Usage { memory_kills: Some(1), memory_peak_bytes: Some(9), ..Usage::default() };
        let alive = Usage { memory_kills: Some(0), ..killed.clone() };
        let printed = || {
            let mut printed = Measured::default();
            printed.value("recall", 0.5);
            Some(printed)
        };
        let strict = device("device = { memory = '400MB' }");
        let open = Device { may_be_killed: true, ..strict.clone() };
        assert!(strict.measured(None, &killed).is_none());
        assert!(strict.blame(&killed).is_some_and(|(said, _)| said.contains("400.0 MB")));
        assert!(open.measured(None, &alive).is_none(), "it failed by itself");
        assert_eq!(open.blame(&alive), None);
        let measured = open.measured(None, &killed).expect("that is measured");
        let counters = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(name, count)| (format!("device_{name}"), *count)).collect()
        };
        let both = [("memory_limit_bytes", 400_000_000), ("memory_peak_bytes", 9)];
        let with = |more: &[(&str, u64)]| counters(&[&both[..], more].concat());
        assert_eq!(measured.counters, with(&[("killed", 1), ("memory_kills", 1)]));
        for device in [strict, open] {
            let measured = device.measured(printed(), &alive).expect("it printed");
            assert_eq!(measured.counters, with(&[("killed", 0), ("memory_kills", 0)]));
            assert_eq!((measured.values["recall"], measured.values["device_memory_peak_bytes"]), (0.5, 9.0));
        }
    }
}
