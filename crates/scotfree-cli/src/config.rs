//! Puts `scot.toml`, environment and flags together.
//!
//! Invariant: flags win over variables, variables over the file; whatever is wrong is reported with its
//! place and with what is allowed, before anything is started.

use crate::failure::Failure;
use crate::settings::{Config, Proxies};
use crate::variables::{self, Variable};
use figment::providers::{Format, Serialized, Toml};
use figment::value::Value;
use figment::{Figment, Profile};
use scotfree_stage::config::{with_allowed, Source};
use serde::Serialize;
use std::ffi::OsString;
use std::net::SocketAddr;
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
        let mut over = OverSeveral::default();
        if let Some(file) = &self.file {
            // The file alone first: this parser knows lines.
            let source = Source::read(file).map_err(Failure::usage)?;
            let config = source.parse::<Config>().map_err(Failure::usage)?;
            over.are_several = matches!(config.proxy, Proxies::Several(_));
            figment = figment.merge(Toml::string(source.text()));
        }
        for variable in &self.variables {
            let (key, value) = variable.setting()?;
            if over.takes(&format!("variable {}", variable.name), &key, &value, |e| blame(variable, e))? {
                continue;
            }
            figment = figment.merge(layer(&key, &value));
            // Each at once, so that the one to blame is known.
            figment.extract::<Config>().map_err(|error| blame(variable, error))?;
        }
        for (section, value) in &self.flags {
            if !over.takes_flags(section, value)? {
                figment = figment.merge(layer(section, value));
            }
        }
        let mut config: Config = figment.extract().map_err(Failure::usage)?;
        over.put_over(&mut config);
        Ok(config)
    }
}

/// What may be set over several sections `[[proxy]]`: nothing that is one proxy's, since nobody could know whose.
#[derive(Default)]
struct OverSeveral {
    are_several: bool,
    /// Where the whole process answers.
    metrics: Option<SocketAddr>,
}

impl OverSeveral {
    /// Takes a setting that is not to be put into the file's section: that would replace all sections.
    fn takes(
        &mut self,
        what: &str,
        key: &str,
        value: &Value,
        blame: impl Fn(figment::Error) -> Failure,
    ) -> Result<bool, Failure> {
        match key.strip_prefix("proxy.").filter(|_| self.are_several) {
            None => Ok(false),
            Some("metrics") => {
                self.metrics = Some(value.deserialize().map_err(blame)?);
                Ok(true)
            }
            Some(key) => Err(Failure::usage(format!(
                "{what} sets `{key}` of one proxy, and the file has sections [[proxy]], each of which is whole: write it \
                 there. --metrics, --key-file, --log-level and their variables go over all of them"
            ))),
        }
    }

    fn takes_flags(&mut self, section: &str, flags: &Value) -> Result<bool, Failure> {
        if section != "proxy" || !self.are_several {
            return Ok(false);
        }
        for (key, value) in flags.as_dict().into_iter().flatten() {
            self.takes("a flag", &format!("proxy.{key}"), value, Failure::usage)?;
        }
        Ok(true)
    }

    fn put_over(&self, config: &mut Config) {
        let (Some(metrics), Proxies::Several(proxies)) = (self.metrics, &mut config.proxy) else { return };
        for (index, proxy) in proxies.iter_mut().enumerate() {
            proxy.metrics = (index == 0).then_some(metrics);
        }
    }
}

impl Sources {
    /// Puts the place in the file before what a daemon's check has against a section: it sees values, wherever
    /// they came from.
    pub fn placed(&self, section: &str, failure: Failure) -> Failure {
        match (&failure, self.place(section, 0, &failure.to_string())) {
            (Failure::Usage(problem), Some(place)) => Failure::Usage(format!("{place}: {problem}")),
            _ => failure,
        }
    }

    /// File and line of the key that a problem names first, or of the section, the one at `index` where several have
    /// its name; none if the file has no part in it.
    pub fn place(&self, section: &str, index: usize, problem: &str) -> Option<String> {
        let file = self.file.as_ref()?;
        let source = Source::read(file).ok()?;
        let figment = Figment::from(Toml::string(source.text()));
        let keys = match figment.find_value(section).ok()? {
            Value::Array(_, sections) => sections.into_iter().nth(index)?,
            one => one,
        };
        let keys = keys.into_dict()?;
        let over = self.set_over_the_file(section);
        let words: Vec<&str> = problem.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let named =
            words.into_iter().find(|word| keys.contains_key(*word) || over.iter().any(|key| key == word));
        if named.is_some_and(|key| over.iter().any(|set| set == key)) {
            return None;
        }
        let line =
            line_of(source.text(), section, index, named).map(|line| format!(":{line}")).unwrap_or_default();
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

/// The line of a key in its section, or of the section's head; of the section at `index` where several have the name.
fn line_of(text: &str, section: &str, index: usize, key: Option<&str>) -> Option<usize> {
    let heads = [format!("[{section}]"), format!("[[{section}]]")];
    let lines = || text.lines().map(str::trim_start).zip(1..);
    let is_head = |line: &str| heads.iter().any(|head| line.starts_with(head));
    let (_, begin) = lines().filter(|(line, _)| is_head(line)).nth(index)?;
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
    use crate::settings::{Kv, Proxy, Switch};
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

    const TWO: &str =
        "[[proxy]]\nname = \"a\"\nlog = \"a.log\"\nmetrics = \"127.0.0.1:1\"\n\n[[proxy]]\nlog = \"b.log\"\n";

    fn logs_and_metrics(config: &Config) -> Vec<(String, Option<u16>)> {
        let Proxies::Several(proxies) = &config.proxy else { panic!("{:?}", config.proxy) };
        let log = |proxy: &Proxy| proxy.log.as_ref().map(|log| log.display().to_string());
        let port = |proxy: &Proxy| proxy.metrics.map(|address| address.port());
        proxies.iter().map(|proxy| (log(proxy).unwrap_or_default(), port(proxy))).collect()
    }

    #[test]
    fn over_several_proxies_goes_only_what_is_of_all() {
        let (_folder, path) = file(TWO);
        let plain = Sources::of(Some(path.clone()), []);
        let no_flags = plain.clone().flags("proxy", &Proxy::default());
        for sources in [&plain, &no_flags] {
            let found = logs_and_metrics(&sources.read().expect("it is right"));
            assert_eq!(found, [("a.log".to_owned(), Some(1)), ("b.log".to_owned(), None)]);
        }
        let variable = Sources::of(Some(path.clone()), pairs(&[("SCOT_PROXY_METRICS", "127.0.0.1:2")]));
        let flag = Proxy { metrics: "127.0.0.1:3".parse().ok(), ..Proxy::default() };
        let flag = variable.clone().flags("proxy", &flag);
        for (sources, port) in [(variable, 2), (flag, 3)] {
            let found = logs_and_metrics(&sources.read().expect("it is right"));
            assert_eq!(found, [("a.log".to_owned(), Some(port)), ("b.log".to_owned(), None)]);
        }
        let wrong = Sources::of(Some(path.clone()), pairs(&[("SCOT_PROXY_METRICS", "here")]));
        let one = Sources::of(Some(path), pairs(&[("SCOT_PROXY_LOG", "c.log")]));
        let flag = plain.flags("proxy", &Proxy { log: Some("c.log".into()), ..Proxy::default() });
        for (sources, wanted) in [
            (wrong, ["variable SCOT_PROXY_METRICS", "allowed is IP:PORT"]),
            (one, ["variable SCOT_PROXY_LOG sets `log` of one proxy", "write it there"]),
            (flag, ["a flag sets `log` of one proxy", "--metrics"]),
        ] {
            let failure = sources.read().expect_err("it is wrong");
            let shown = failure.to_string();
            assert_eq!(failure.code(), 2);
            assert!(wanted.iter().all(|part| shown.contains(part)), "{shown}");
        }
    }

    #[test]
    fn what_is_wrong_in_one_of_several_sections_gets_its_line() {
        let (_folder, path) = file(&TWO.replace("log = \"b.log\"", "lgo = \"b.log\""));
        let shown = Sources::of(Some(path), []).read().expect_err("it is wrong").to_string();
        assert!(shown.contains("scot.toml:7") && shown.contains("`lgo`"), "{shown}");
        let (_folder, path) = file(TWO);
        let sources = Sources::of(Some(path.clone()), []);
        for (index, problem, line) in [(0, "log: x", 3), (1, "log: x", 7), (1, "redis is missing", 6)] {
            let place = sources.place("proxy", index, problem);
            assert_eq!(place, Some(format!("{}:{line}", path.display())));
        }
        let (_folder, path) = file("proxy = 3\n");
        let shown = Sources::of(Some(path), []).read().expect_err("it is no section").to_string();
        assert!(shown.contains("scot.toml:1") && shown.contains("[[proxy]]"), "{shown}");
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
