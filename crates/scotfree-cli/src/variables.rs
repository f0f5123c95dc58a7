//! Settings by variables of the environment: `SCOT_SWITCH_DEVICE_ID` sets the key `device_id` of the section
//! `switch`.
//!
//! Invariant: every variable that begins with `SCOT_` is a setting or one of the few that are named here; any
//! other is refused, as an unknown key of the file is.

use crate::failure::Failure;
use crate::settings::{Client, Cluster, Doctor, Kv, Peer, Proxy, Server, Switch};
use clap::Args;
use figment::value::Value;
use std::ffi::{OsStr, OsString};

/// The variable that names the configuration file.
pub const FILE: &str = "SCOT_CONFIG";
/// Set to 1 it allows what only experiments may do.
pub const TEST: &str = "SCOT_TEST";
/// Set inside the lab's user namespace, so that it is entered once.
pub const INSIDE: &str = "SCOT_INSIDE_NAMESPACE";

/// Tells a program in the path that this one was started for a command which `scot` it was.
pub const PROGRAM: &str = "SCOT_PROGRAM";

const PREFIX: &str = "SCOT_";
/// What is longer resembles no setting.
const NAME_BYTES_MAX: usize = 64;

/// A variable that is meant as a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its whole name.
    pub name: String,
    value: OsString,
}

impl Variable {
    /// A variable of ours that is not one of those that are no settings.
    pub fn from_pair(name: &OsStr, value: OsString) -> Option<Variable> {
        let name = name.to_string_lossy().into_owned();
        let is_setting = name.starts_with(PREFIX) && ![FILE, TEST, INSIDE, PROGRAM].contains(&name.as_str());
        is_setting.then_some(Variable { name, value })
    }

    /// The key that it sets, with its section, and the value.
    pub fn setting(&self) -> Result<(String, Value), Failure> {
        let known = known();
        let Some((_, key)) = known.iter().find(|(name, _)| *name == self.name) else {
            return Err(self.unknown(&known));
        };
        let Some(value) = self.value.to_str() else {
            return Err(Failure::usage(format!("variable {}: its value is not UTF-8", self.name)));
        };
        let value = value.parse().unwrap_or_else(|never: std::convert::Infallible| match never {});
        Ok((key.clone(), value))
    }

    fn unknown(&self, known: &[(String, String)]) -> Failure {
        let name = &self.name;
        let is_short = name.len() <= NAME_BYTES_MAX;
        let nearest = known.iter().filter(|_| is_short).min_by_key(|(known, _)| distance(name, known));
        let hint = nearest.map(|(nearest, _)| format!("; the nearest is {nearest}")).unwrap_or_default();
        Failure::usage(format!(
            "variable {name}: there is no such setting{hint}; unset it, or name it SCOT_SECTION_KEY as in scot.toml"
        ))
    }
}

/// The variables that there are, each with the key that it sets.
fn known() -> Vec<(String, String)> {
    let sections = [
        ("cluster", keys_of::<Cluster>()),
        ("switch", keys_of::<Switch>()),
        ("kv", keys_of::<Kv>()),
        ("server", keys_of::<Server>()),
        ("client", keys_of::<Client>()),
        ("proxy", keys_of::<Proxy>()),
        ("peer", keys_of::<Peer>()),
        ("doctor", keys_of::<Doctor>()),
    ];
    let name = |section: &str, key: &str| format!("{PREFIX}{section}_{key}").to_uppercase();
    let known = |(section, keys): (&str, Vec<String>)| {
        keys.into_iter().map(|key| (name(section, &key), format!("{section}.{key}"))).collect::<Vec<_>>()
    };
    sections.into_iter().flat_map(known).collect()
}

/// The keys of a section: every one is a flag, too.
fn keys_of<Section: Args>() -> Vec<String> {
    let flags = Section::augment_args(clap::Command::new("section"));
    flags.get_arguments().map(|flag| flag.get_id().to_string()).collect()
}

/// How many bytes must be put in, taken out or replaced to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (count, from) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], count + 1);
        for (at, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            let least = replaced.min(row[at] + 1).min(row[at + 1] + 1);
            diagonal = std::mem::replace(&mut row[at + 1], least);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Config, SECTIONS};

    fn variable(name: &str) -> Option<Variable> {
        Variable::from_pair(OsStr::new(name), "1".into())
    }

    #[test]
    fn every_key_of_the_file_is_a_variable() {
        let known = known();
        assert!(SECTIONS.iter().all(|section| known.iter().any(|(_, key)| key.starts_with(section))));
        for (_, key) in known {
            let (section, key) = key.split_once('.').expect("a section and a key");
            let text = format!("[{section}]\n{key} = {{}}\n");
            let problem = toml_error(&text);
            assert!(!problem.contains("unknown"), "{key}: {problem}");
        }
    }

    fn toml_error(text: &str) -> String {
        let read = scotfree_stage::config::Source::from_text("scot.toml", text).parse::<Config>();
        read.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn a_misspelt_variable_is_answered_with_the_nearest() {
        for (name, nearest) in [
            ("SCOT_SWICTH_LOG", "SCOT_SWITCH_LOG"),
            ("SCOT_SWITCH_ADRESS", "SCOT_SWITCH_ADDRESS"),
            ("SCOT_KV_LISTN", "SCOT_KV_LISTEN"),
            ("SCOT_CLUSTER_KEYFILE", "SCOT_CLUSTER_KEY_FILE"),
        ] {
            let failure = variable(name).expect("it is ours").setting().expect_err("it is misspelt");
            let shown = failure.to_string();
            assert!(shown.contains(name) && shown.contains(&format!("nearest is {nearest};")), "{shown}");
        }
        let long = format!("SCOT_{}", "X".repeat(100_000));
        assert!(variable(&long).expect("it is ours").setting().is_err());
    }

    #[test]
    fn variables_of_others_and_those_that_are_no_settings_are_left_alone() {
        for name in ["PATH", "SCOT", "SCOTTY", FILE, TEST, INSIDE] {
            assert_eq!(variable(name), None, "{name}");
        }
        let (key, value) = variable("SCOT_SWITCH_DEVICE_ID").expect("ours").setting().expect("a setting");
        assert_eq!((key.as_str(), value.to_u128()), ("switch.device_id", Some(1)));
    }
}
