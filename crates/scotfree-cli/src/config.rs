//! Puts `scot.toml`, environment and flags together.
//!
//! Invariant: flags win over variables, variables over the file; whatever is wrong is reported with its
//! place and with what is allowed, before anything is started.

use crate::failure::Failure;
use crate::settings::Config;
use crate::variables::{self, Variable};
use figment::providers::{Format, Serialized, Toml};
use figment::value::Value;
use figment::{Figment, Profile};
use scotfree_stage::config::{with_allowed, Source};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the file is looked for if nobody names it.
const FILES: [&str; 2] = ["scot.toml", "/etc/scotfree/scot.toml"];

/// Where the settings of a command come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file, if there is one.
    file: Option<PathBuf>,
    /// Variables that set a key.
    variables: Vec<Variable>,
    /// Sections that flags have set.
    flags: Vec<(&'static str, Value)>,
}

impl Sources {
    /// The file that a flag or the environment names, or that lies in one of the usual places, and the
    /// environment's variables.
    pub fn find(named: Option<&Path>) -> Sources {
        let variable = std::env::var_os(variables::FILE).map(PathBuf::from);
        let usual = || FILES.iter().map(PathBuf::from).find(|file| file.is_file());
        let file = named.map(Path::to_owned).or(variable).or_else(usual);
        Sources::of(file, std::env::vars_os())
    }

    fn of(file: Option<PathBuf>, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Sources {
        let variables =
            variables.into_iter().filter_map(|(name, value)| Variable::from_pair(&name, value)).collect();
        Sources { file, variables, flags: Vec::new() }
    }

    /// Puts a section's flags over what is there.
    #[must_use]
    pub fn flags(mut self, section: &'static str, settings: &impl Serialize) -> Sources {
        let value = Value::serialize(settings).expect("settings are plain values");
        self.flags.push((section, value));
        self
    }

    /// The file that is read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads everything; may be called again to see what has changed.
    pub fn read(&self) -> Result<Config, Failure> {
        let mut figment = Figment::new();
        if let Some(file) = &self.file {
            // The file alone first: this parser knows lines.
            let source = Source::read(file).map_err(Failure::usage)?;
            source.parse::<Config>().map_err(Failure::usage)?;
            figment = figment.merge(Toml::string(source.text()));
        }
        for variable in &self.variables {
            let (key, value) = variable.setting()?;
            figment = figment.merge(layer(&key, &value));
            // Each at once, so that the one to blame is known.
            figment.extract::<Config>().map_err(|error| blame(variable, error))?;
        }
        for (section, value) in &self.flags {
            figment = figment.merge(layer(section, value));
        }
        figment.extract().map_err(Failure::usage)
    }
}

impl Sources {
    /// Puts the place in the file before what a daemon's check has against a section: it sees values, wherever
    /// they came from.
    pub fn placed(&self, section: &str, failure: Failure) -> Failure {
        match (&failure, self.place(section, &failure.to_string())) {
            (Failure::Usage(problem), Some(place)) => Failure::Usage(format!("{place}: {problem}")),
            _ => failure,
        }
    }

    /// File and line of the key that a problem names first, or of the section; none if the file has no part in
    /// it.
    fn place(&self, section: &str, problem: &str) -> Option<String> {
        let file = self.file.as_ref()?;
        let source = Source::read(file).ok()?;
        let figment = Figment::from(Toml::string(source.text()));
        let keys = figment.find_value(section).ok()?.into_dict()?;
        let over = self.set_over_the_file(section);
        let words: Vec<&str> = problem.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let named =
            words.into_iter().find(|word| keys.contains_key(*word) || over.iter().any(|key| key == word));
        if named.is_some_and(|key| over.iter().any(|set| set == key)) {
            return None;
        }
        let line = line_of(source.text(), section, named).map(|line| format!(":{line}")).unwrap_or_default();
        let is_mixed = named.is_none() && !over.is_empty();
        let more = if is_mixed { ", with flags or variables over it" } else { "" };
        Some(format!("{}{line}{more}", file.display()))
    }

    /// The keys of a section that a variable or a flag sets.
    fn set_over_the_file(&self, section: &str) -> Vec<String> {
        let variables = self.variables.iter().filter_map(|variable| {
            let (key, _) = variable.setting().ok()?;
            Some(key.strip_prefix(section)?.strip_prefix('.')?.to_owned())
        });
        let of_section = self.flags.iter().filter(|(name, _)| *name == section);
        let flags = of_section.filter_map(|(_, value)| value.as_dict()).flat_map(|keys| keys.keys().cloned());
        variables.chain(flags).collect()
    }
}

/// The line of a key in its section, or of the section's head.
fn line_of(text: &str, section: &str, key: Option<&str>) -> Option<usize> {
    let head = format!("[{section}]");
    let lines = || text.lines().map(str::trim_start).zip(1..);
    let (_, begin) = lines().find(|(line, _)| line.starts_with(&head))?;
    let inside = lines().skip(begin).take_while(|(line, _)| !line.starts_with('['));
    let is_key = |line: &str, key| line.split('=').next().map(str::trim) == Some(key);
    let at = key.and_then(|key| inside.into_iter().find(|(line, _)| is_key(line, key)));
    Some(at.map_or(begin, |(_, line)| line))
}

fn layer(key: &str, value: &Value) -> Serialized<Value> {
    Serialized::from(value.clone(), Profile::Default).key(key)
}

fn blame(variable: &Variable, error: figment::Error) -> Failure {
    let problems: Vec<String> =
        error.into_iter().map(|error| with_allowed(&error.kind.to_string())).collect();
    Failure::usage(format!("variable {}: {}", variable.name, problems.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Kv, Switch};
    use scotfree_stage::scratch::Scratch;
    use std::fs;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn file(text: &str) -> (Scratch, PathBuf) {
        let folder = Scratch::new("config").expect("temporary files can be written");
        let path = folder.path().join("scot.toml");
        fs::write(&path, text).expect("it can be written");
        (folder, path)
    }

    fn flags(ports: &[&str]) -> Switch {
        Switch { ports: ports.iter().map(|port| (*port).to_owned()).collect(), ..Switch::default() }
    }

    #[test]
    fn flags_win_over_variables_and_these_over_the_file() {
        let (_folder, path) = file("[switch]\nports = [\"a\", \"b\"]\ndevice_id = 1\nloss = 1\n");
        let variables = [
            ("SCOT_SWITCH_DEVICE_ID", "2"),
            ("SCOT_SWITCH_ADDRESS", "10.0.0.9"),
            ("SCOT_SWITCH_RATE", "500"),
            ("SCOT_TEST", "1"),
            ("UNRELATED_THING", "x"),
            ("SCOT", "x"),
        ];
        let sources = Sources::of(Some(path), pairs(&variables));
        let config = sources.clone().flags("switch", &flags(&["c", "d"])).read().expect("it is right");
        assert_eq!(config.switch.ports, ["c", "d"]);
        assert_eq!(config.switch.device_id, Some(2));
        assert_eq!(config.switch.loss, Some(1.0));
        assert_eq!(config.switch.address.map(|it| it.to_string()).as_deref(), Some("10.0.0.9:51000"));
        let config = sources.flags("switch", &Switch::default()).read().expect("it is right");
        assert_eq!(config.switch.ports, ["a", "b"], "flags that nobody gave change nothing");
    }

    #[test]
    fn without_a_file_all_is_default_and_a_missing_one_is_named() {
        assert_eq!(Sources::of(None, []).read().expect("all defaults"), Config::default());
        let (_folder, path) = file("[kv]\nlog = \"x\"\nlog_size = 4096\n");
        let config = Sources::of(Some(path), []).read().expect("it is right");
        assert_eq!(config.kv.log, Some("x".into()));
        assert_eq!(config.kv, Kv { log: Some("x".into()), log_size: "4K".parse().ok(), ..Kv::default() });
        let missing = Sources::of(Some("/nowhere/none.toml".into()), []).read().expect_err("it is not there");
        assert!(missing.to_string().contains("/nowhere/none.toml"), "{missing}");
    }

    #[test]
    fn a_wrong_file_is_reported_with_line_key_and_what_is_allowed() {
        for (text, wanted) in [
            ("[switch]\nport = 1\n", ["scot.toml:2", "`port`", "expected one of `ports`, `address`"]),
            ("\n[swich]\n", ["scot.toml:2", "swich", "expected one of `cluster`, `switch`"]),
            (
                "[switch]\n\nserver = \"10.0.0.2:99999\"\n",
                ["scot.toml:3", "`server`", "`10.0.0.2:99999` is no address; allowed are IP and IP:PORT"],
            ),
            (
                "[switch]\nserver = [\"10.0.0.2\", \"redis.example\"]\n",
                ["scot.toml:2", "`server`", "`redis.example` is no address"],
            ),
            ("[switch]\nserver = true\n", ["scot.toml:2", "`server`", "a word, or a list of words"]),
            ("[switch]\nlog = [\"tape:/x\"]\n", ["scot.toml:2", "`log`", "allowed are ram:PATH"]),
            ("[client]\n\nmode = \"late\"\n", ["scot.toml:3", "`mode`", "`covered` or `early`"]),
            (
                "[switch]\ndevice_id = 70000\n",
                ["scot.toml:2", "`device_id`", "a whole number from 0 to 65535"],
            ),
            (
                "[kv]\nmetrics = \"9100\"\n",
                ["scot.toml:2", "`metrics`", "IP:PORT, for instance 127.0.0.1:9100"],
            ),
            ("[switch]\naddress = true\n", ["scot.toml:2", "`address`", "a word or a whole number"]),
            ("[kv\n", ["scot.toml:1", "kv", "expected"]),
        ] {
            let (_folder, path) = file(text);
            let failure = Sources::of(Some(path), []).read().expect_err(text);
            assert_eq!(failure.code(), 2);
            let shown = failure.to_string();
            assert!(wanted.iter().all(|part| shown.contains(part)), "{shown}");
        }
    }

    #[test]
    fn what_a_daemon_refuses_gets_its_place_in_the_file() {
        let (_folder, path) = file("[cluster]\n[switch]\nloss = 200\n\nwindow_max = 0\n[kv]\nloss = 1\n");
        let placed = |sources: &Sources, problem: &str| {
            let shown = sources.placed("switch", Failure::usage(problem)).to_string();
            shown.replace(&path.display().to_string(), "F")
        };
        let plain = Sources::of(Some(path.clone()), []);
        let flagged = plain.clone().flags("switch", &flags(&["a"]));
        let variable = Sources::of(Some(path.clone()), pairs(&[("SCOT_SWITCH_LOSS", "300")]));
        for (sources, problem, wanted) in [
            (&plain, "[switch] loss: 200", "F:3: [switch] loss: 200"),
            (&plain, "window_max and sessions_max", "F:5: window_max and sessions_max"),
            (&plain, "2 interfaces", "F:2: 2 interfaces"),
            (&flagged, "[switch] loss: 200", "F:3: [switch] loss: 200"),
            (&flagged, "2 interfaces", "F:2, with flags or variables over it: 2 interfaces"),
            (&variable, "[switch] loss: 300", "[switch] loss: 300"),
            (&Sources::of(None, []), "loss", "loss"),
        ] {
            assert_eq!(placed(sources, problem), wanted);
        }
        let failure = plain.placed("client", Failure::usage("acks"));
        assert_eq!(failure.to_string(), "acks", "the file has no such section");
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for (name, value, wanted) in [
            ("SCOT_CLIENT_MODE", "late", "early"),
            ("SCOT_SWITCH_ADRESS", "10.0.0.9", "SCOT_SWITCH_ADDRESS"),
            ("SCOT_SWICTH_LOG", "[]", "SCOT_SWITCH_LOG"),
            ("SCOT_SWITCH_LOG", "[\"tape:/x\"]", "allowed are ram:PATH"),
            ("SCOT_SWITCH_DEVICE_ID", "-1", "a whole number from 0 to 65535"),
            ("SCOT_CLIENT_LISTEN", "localhost", "IP:PORT, for instance 127.0.0.1:9100"),
        ] {
            let sources = Sources::of(None, pairs(&[("SCOT_SWITCH_LOSS", "1"), (name, value)]));
            let shown = sources.read().expect_err(value).to_string();
            assert!(shown.contains(name) && shown.contains(wanted), "{shown}");
        }
    }
}
