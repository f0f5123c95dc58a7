//! What is in packaging/: units that systemd and the command understand, and papers that speak of one version.

use scotfree_stage::scratch::Scratch;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SCOT: &str = env!("CARGO_BIN_EXE_scot");
/// Where the units look for the command.
const INSTALLED: &str = "/usr/local/bin/scot";
/// The only unit that grants rights.
const DEVICE: &str = "scot-switch";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Names and texts of all units.
fn units() -> Vec<(String, String)> {
    let files = fs::read_dir(repository().join("packaging")).expect("it is there");
    let paths = files.map(|file| file.expect("it can be read").path());
    let units = paths.filter(|path| path.extension().is_some_and(|extension| extension == "service"));
    units
        .map(|path| {
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("it can be read"))
        })
        .collect()
}

/// What a unit says of a key, each time.
fn values<'t>(unit: &'t str, key: &str) -> Vec<&'t str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// The words that a unit gives to the command, at its start and before.
fn command_lines(unit: &str) -> Vec<Vec<&str>> {
    let lines = [values(unit, "ExecStartPre"), values(unit, "ExecStart")].concat();
    lines.iter().filter_map(|line| line.trim_start_matches('+').strip_prefix(INSTALLED)).map(words).collect()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Whether the command takes these words: it shows its help only when nothing before was wrong.
fn understands(words: &[&str]) -> bool {
    Command::new(SCOT).args(words).arg("--help").output().expect("the command runs").status.success()
}

#[test]
fn every_daemon_has_a_unit_whose_flags_the_command_takes() {
    let mut started: Vec<String> = Vec::new();
    for (name, unit) in units() {
        let lines = command_lines(&unit);
        let last = lines.last().unwrap_or_else(|| panic!("{name} starts {INSTALLED}"));
        for line in &lines {
            assert!(understands(line), "{name}: {line:?}");
        }
        started.push(
            last.iter().take_while(|word| !word.starts_with("--")).copied().collect::<Vec<_>>().join(" "),
        );
    }
    started.sort_unstable();
    assert_eq!(started, ["kv", "peer", "proxy", "sidecar client", "sidecar server", "switch"]);
    assert!(!understands(&["switch", "--configuration", "x"]), "a wrong flag is seen");
}

#[test]
fn systemd_has_nothing_to_say_of_the_units() {
    let folder = Scratch::new("units").expect("temporary files can be written");
    for (name, unit) in units() {
        let here = folder.path().join(format!("{name}.service"));
        fs::write(&here, unit.replace(INSTALLED, SCOT)).expect("it can be written");
        match Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&here).output() {
            Ok(output) => assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output)),
            Err(error) => eprintln!("SKIP: systemd-analyze: {error}"),
        }
    }
}

#[test]
fn only_the_device_is_granted_rights_and_all_are_confined_alike() {
    let all = units();
    let (_, device) = all.iter().find(|(name, _)| name == DEVICE).expect("it is there");
    let confined = |unit: &str| -> Vec<String> {
        let is_common = |line: &&str| {
            [
                "NoNew",
                "Lock",
                "MemoryDeny",
                "PrivateTmp",
                "Protect",
                "RestrictN",
                "RestrictR",
                "RestrictS",
                "UMask",
            ]
            .iter()
            .any(|begin| line.starts_with(begin))
        };
        let of_others = ["ProtectKernelTunables=yes"];
        unit.lines().filter(is_common).filter(|line| !of_others.contains(line)).map(str::to_owned).collect()
    };
    assert!(confined(device).len() > 12, "{:?}", confined(device));
    for (name, unit) in all.iter().filter(|(name, _)| name != DEVICE) {
        assert_eq!(values(unit, "CapabilityBoundingSet"), [""], "{name}");
        assert_eq!(values(unit, "AmbientCapabilities"), [""; 0], "{name}");
        assert_eq!(values(unit, "User"), values(device, "User"), "{name}: one key file, which has one owner");
        assert_eq!(confined(unit), confined(device), "{name}");
    }
}

#[test]
fn a_removal_stops_every_unit() {
    let removal = read("packaging/deb/prerm");
    for (name, _) in units() {
        assert!(removal.contains(&format!("{name}.service")), "packaging/deb/prerm does not stop {name}");
    }
}

#[test]
fn one_version_stands_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    let line = format!("version = \"{version}\"\n");
    for file in ["python/pyproject.toml", "fuzz/Cargo.toml"] {
        assert!(read(file).contains(&line), "{file} is not of version {version}");
    }
    assert!(read("python/src/scotfree/__init__.py").contains(&format!("__version__ = \"{version}\"\n")));
    let newest = read("CHANGELOG.md").lines().find_map(|line| line.strip_prefix("## ").map(str::to_owned));
    assert!(newest.as_deref().is_some_and(|head| head.starts_with(version)), "{newest:?} is not {version}");
}
