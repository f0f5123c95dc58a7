//! The command as a user meets it: help, errors, exit codes, small commands.

use scotfree_stage::netns::{access, Access};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder that is removed at the end, in which the command runs without any configuration.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("scot-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("temporary files can be written");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("temporary files can be written");
        path
    }

    fn scot<S: AsRef<OsStr>>(&self, words: &[S]) -> Output {
        self.scot_with(&[], words)
    }

    fn scot_with<S: AsRef<OsStr>>(&self, variables: &[(&str, &str)], words: &[S]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
        command.args(words).current_dir(&self.0).env_remove("SCOT_CONFIG").envs(variables.iter().copied());
        command.output().expect("the command runs")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where nobody reads any more, as behind `head`.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("there are descriptors");
    drop(reader);
    writer.into()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{}{}", out(output), err(output));
    for part in parts {
        assert!(err(output).contains(part), "`{part}` is not in: {}", err(output));
    }
}

fn assert_succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", out(output), err(output));
    out(output)
}

#[test]
fn help_says_where_to_begin_and_shows_examples() {
    let folder = Folder::new("help");
    let help = assert_succeeds(&folder.scot(&["--help"]));
    assert!(help.contains("scot doctor") && help.contains("scot demo") && help.contains("SCOT_SECTION_KEY"));
    assert!(!help.contains("lab-worker"), "what is for the lab alone is hidden");
    for words in [&["switch", "--help"][..], &["sidecar", "client", "--help"], &["lab", "up", "--help"]] {
        assert!(assert_succeeds(&folder.scot(words)).contains("Examples:"), "{words:?}");
    }
    assert_eq!(folder.scot::<&str>(&[]).status.code(), Some(2));
    assert_fails(&folder.scot(&["demo", "--seconds", "0"]), 2, &["1..=600"]);
}

#[cfg(not(feature = "lab"))]
#[test]
fn what_is_left_out_says_where_it_is() {
    let folder = Folder::new("left-out");
    for words in [&["lab", "run", "probes"][..], &["lab", "confirm"], &["claims"]] {
        assert_fails(&folder.scot(words), 2, &["cargo build --release"]);
    }
}

#[cfg(feature = "lab")]
#[test]
fn an_experiment_of_nothing_is_refused() {
    let folder = Folder::new("nothing");
    assert_fails(&folder.scot(&["lab", "run", "kill-rounds", "--rounds", "0"]), 2, &["--rounds"]);
    assert_fails(&folder.scot(&["lab", "run", "probes", "--repetitions", "0"]), 2, &["--repetitions"]);
}

#[test]
fn the_example_of_a_configuration_is_right() {
    let folder = Folder::new("example");
    let here = folder.0.to_str().expect("a plain path");
    let text = include_str!("../../../docs/scot.example.toml").replace("/etc/scotfree", here);
    let file = folder.write("scot.toml", &text);
    assert!(folder.scot(&["key", "new", "cluster.key"]).status.success());
    // Wherever it is started, as by a service.
    let mut check = Command::new(env!("CARGO_BIN_EXE_scot"));
    check.args(["config", "check"]).arg(&file).current_dir("/").env_remove("SCOT_CONFIG");
    assert_succeeds(&check.output().expect("the command runs"));
}

#[test]
fn a_wrong_configuration_starts_nothing_and_is_named() {
    let folder = Folder::new("config");
    folder.write("scot.toml", "[cluster]\n\n[switch]\nport = [\"a\"]\n");
    let expected = ["scot.toml:4", "`port`", "expected one of `ports`"];
    assert_fails(&folder.scot(&["switch"]), 2, &expected);
    assert_fails(&folder.scot(&["config", "check"]), 2, &expected);
    let good = folder.write("good.toml", "[client]\nlisten = \"127.0.0.1:1\"\nserver = \"10.0.0.2\"\n");
    let shown = assert_succeeds(&folder.scot(&["config".as_ref(), "check".as_ref(), good.as_os_str()]));
    assert!(shown.contains("good.toml: can be used; sections set: client"), "{shown}");
    let half = folder.write("half.toml", "[switch]\nports = [\"a\", \"b\"]\n");
    let words = ["config".as_ref(), "check".as_ref(), half.as_os_str()];
    assert_fails(&folder.scot(&words), 2, &["half.toml", "--address is missing", "SCOT_SWITCH_ADDRESS"]);
    let late = folder.scot_with(&[("SCOT_CLIENT_MODE", "late")], &["config", "check", "good.toml"]);
    assert_fails(&late, 2, &["SCOT_CLIENT_MODE", "early"]);
    assert_fails(&folder.scot(&["--config", "none.toml", "kv"]), 2, &["none.toml"]);
}

#[test]
fn a_daemon_names_what_is_missing() {
    let folder = Folder::new("missing");
    assert_fails(&folder.scot(&["kv"]), 2, &["--key-file is missing", "SCOT_CLUSTER_KEY_FILE"]);
    assert_succeeds(&folder.scot(&["key", "new", "k"]));
    assert_fails(&folder.scot(&["kv", "--key-file", "k"]), 2, &["--log is missing"]);
    let words = ["sidecar", "server", "--key-file", "k", "--listen", "127.0.0.1", "--redis", "10.0.0.1:6379"];
    assert_fails(&folder.scot(&words), 2, &["10.0.0.1:6379", "loopback"]);
    let words = ["sidecar", "server", "--key-file", "k", "--listen", "127.0.0.1", "--redis", "unix:/nowhere"];
    let words = [&words[..], &["--dead-letters", "d", "--unsafe-ack-when-applied"]].concat();
    assert_fails(&folder.scot(&words), 2, &["loses acknowledged updates"]);
}

#[test]
fn keys_are_made_once_and_for_their_owner() {
    let folder = Folder::new("key");
    assert_succeeds(&folder.scot(&["key", "new", "k"]));
    let path = folder.0.join("k");
    let text = fs::read_to_string(&path).expect("it is there");
    assert_eq!(text.trim().len(), 64);
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert_fails(&folder.scot(&["key", "new", "k"]), 3, &["never overwritten"]);
    assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
    assert_fails(&folder.scot(&["kv", "--key-file", "k"]), 2, &["chmod 600 k"]);
}

#[test]
fn the_doctors_findings_are_json_with_a_mend_for_each_fault() {
    let folder = Folder::new("doctor");
    let output = folder.scot(&["doctor", "--json"]);
    let examination: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let ok = examination["ok"].as_bool().expect("it says whether all is well");
    assert_eq!(output.status.code(), Some(i32::from(!ok)));
    let findings = examination["findings"].as_array().expect("a list");
    assert!(findings.len() > 10);
    for finding in findings {
        assert_eq!(finding["state"] == "ok", finding["mend"].is_null(), "{finding}");
    }
    let text = out(&folder.scot(&["doctor"]));
    assert!(text.contains("tool ip") && text.contains("must be mended"), "{text}");
}

#[test]
fn the_doctor_sees_a_port_in_use_and_a_log_that_is_too_small() {
    let folder = Folder::new("doctor-port");
    let used = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = used.local_addr().expect("it is bound");
    let log = "[switch]\nlog = [\"disk:/var/lib/x:1M\"]\n[doctor]\nrate_per_s = 100000.0\n";
    folder.write("scot.toml", &format!("[client]\nlisten = \"{address}\"\n{log}"));
    let output = folder.scot(&["doctor"]);
    assert_eq!(output.status.code(), Some(1), "a configured port must be free");
    let text = out(&output);
    assert!(text.contains(&format!("sport = :{}", address.port())), "{text}");
    assert!(text.contains("size of log disk:/var/lib/x"), "{text}");
}

#[test]
fn the_doctor_says_whether_a_pmem_log_could_be_one() {
    let folder = Folder::new("doctor-pmem");
    let output = folder.scot_with(&[("SCOT_SWITCH_LOG", "[\"pmem:here.log\"]")], &["doctor"]);
    let text = out(&output);
    let (told, mend) = text.split_once("persistent memory under pmem:here.log").expect("it is examined");
    if told.ends_with("MUST   ") {
        assert!(mend.contains("MAP_SYNC") && mend.contains("findmnt -O dax"), "{text}");
        assert_eq!(output.status.code(), Some(1));
    } else {
        assert!(mend.contains("flushes with cl"), "{text}");
    }
    assert!(!folder.0.join("here.log").exists());
}

#[test]
fn commands_are_classified() {
    let folder = Folder::new("classify");
    let shown = assert_succeeds(&folder.scot(&["classify", "SET", "k", "v", "EX", "10"]));
    assert!(shown.starts_with("SET k v EX 10: early"), "{shown}");
    assert!(assert_succeeds(&folder.scot(&["classify"])).lines().count() > 400);
}

#[test]
fn the_simulator_runs_many_seeds_or_one() {
    let folder = Folder::new("sim");
    assert!(assert_succeeds(&folder.scot(&["sim", "--seeds", "0..3"])).contains("wall clock"));
    assert!(assert_succeeds(&folder.scot(&["sim", "--seeds", "0..2", "--storm"])).contains("wall clock"));
    assert!(assert_succeeds(&folder.scot(&["sim", "--seeds", "0..2", "--kind", "several"]))
        .contains("servers_lost"));
    assert_succeeds(&folder.scot(&["sim", "--seed", "7"]));
    assert_fails(&folder.scot(&["sim", "--seeds", "3..3"]), 2, &["FIRST..END"]);
    let storm = assert_succeeds(&folder.scot(&["sim", "--seed", "7", "--storm"]));
    let named = ["sim", "--seed", "7", "--remedy", "persist", "--kind", "storm"];
    assert_eq!(assert_succeeds(&folder.scot(&named)), storm);
    assert_fails(&folder.scot(&["sim", "--seed", "7", "--remedy", "cache"]), 2, &["`cache`", "persist"]);
    assert_fails(&folder.scot(&["sim", "--seed", "7", "--kind", "calm"]), 2, &["`calm`", "random", "storm"]);
}

#[test]
fn an_unknown_command_is_a_program_of_that_name() {
    let folder = Folder::new("external");
    let program = folder.write("scot-greet", "#!/bin/sh\necho greetings $1\nexit 7\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:/usr/bin:/bin", folder.0.display());
    let output = folder.scot_with(&[("PATH", &path)], &["greet", "all"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(7), "greetings all\n"));
    assert_fails(&folder.scot(&["gret"]), 2, &["no command `gret`", "scot-gret"]);
}

#[test]
fn completions_and_manual_pages_are_made() {
    let folder = Folder::new("manual");
    assert!(assert_succeeds(&folder.scot(&["completions", "bash"])).contains("_scot"));
    assert_succeeds(&folder.scot(&["man", "pages"]));
    // Those of Python programs, whether these are installed or not.
    for (name, says) in [
        ("scot-sidecar-client", "early"),
        ("scot-study-report", "spark"),
        ("scot-plan-fit", "remedy"),
        ("scot-rag-ask", "the passages nearest to a question"),
    ] {
        let page = fs::read_to_string(folder.0.join(format!("pages/{name}.1"))).expect("it is there");
        assert!(page.contains(says), "{page}");
        assert_eq!(page.contains("configuration file"), name == "scot-sidecar-client", "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let offered = assert_succeeds(&folder.scot(&["completions", shell]));
        for flag in ["spark-master", "time-to-stable", "no-llm"] {
            assert!(offered.contains(flag), "{shell}: {flag}");
        }
    }
}

#[test]
fn reports_of_files_without_calls_are_refused() {
    let folder = Folder::new("tax");
    folder.write("empty.jsonl", "");
    assert_fails(&folder.scot(&["tax", "report", "empty.jsonl"]), 2, &["no calls", "--trace"]);
    assert_fails(&folder.scot(&["tax", "report", "none.jsonl"]), 2, &["none.jsonl"]);
}

#[test]
fn a_file_that_is_no_log_is_called_that() {
    let folder = Folder::new("log");
    folder.write("x", "this is no log at all, whatever else it may be");
    for command in ["ls", "verify", "export"] {
        assert_fails(&folder.scot(&["log", command, "x"]), 1, &["x is not usable as a log"]);
        assert_fails(&folder.scot(&["log", command, "none"]), 3, &["none"]);
    }
}

#[cfg(feature = "lab")]
#[test]
fn claims_without_results_say_how_to_measure() {
    let folder = Folder::new("claims");
    assert_fails(&folder.scot(&["claims"]), 2, &["scot lab run"]);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if repository.join("lab/results").read_dir().is_ok_and(|mut files| files.next().is_some()) {
        let words = ["claims".as_ref(), "--repository".as_ref(), repository.as_os_str()];
        assert!(out(&folder.scot(&words)).contains(" claims, "));
    }
}

#[test]
fn what_the_lab_has_is_listed() {
    let scot = |words: &[&str]| {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let output = Command::new(env!("CARGO_BIN_EXE_scot")).args(words).current_dir(repository).output();
        output.expect("the command runs")
    };
    let shown = assert_succeeds(&scot(&["lab", "list"]));
    assert!(shown.contains("one-device") && shown.contains("kill-rounds"), "{shown}");
    assert_fails(
        &scot(&["lab", "up", "nowhere"]),
        2,
        &["no topology `nowhere`", "one-device", "./NAME.toml"],
    );
    let folder = Folder::new("lab");
    assert_fails(&folder.scot(&["lab", "down", "nothing-of-this-name"]), 2, &["scot lab list"]);
}

#[test]
fn names_of_the_lab_are_known_in_the_repository_only_and_said_to_be() {
    let folder = Folder::new("elsewhere");
    let where_to = "root of the repository";
    for words in [&["run", "probes"][..], &["load", "set-one", "--address", "127.0.0.1:1"]] {
        assert_fails(&folder.scot(&[&["lab"], words].concat()), 2, &[where_to]);
    }
    let listed = folder.scot(&["lab", "list"]);
    assert!(err(&listed).contains(where_to));
    assert!(out(&listed).contains("topologies: ") && out(&listed).contains("one-device"), "{}", out(&listed));
    assert_fails(&folder.scot(&["lab", "up", "nowhere"]), 2, &["no topology `nowhere`", "one-device"]);
}

#[test]
fn a_topology_of_the_lab_comes_up_anywhere() {
    if access() != Access::Direct {
        eprintln!("SKIP: a lab that stays takes root");
        return;
    }
    // A folder that is called lab is not the repository's for that.
    let folder = Folder::new("lab-anywhere");
    fs::create_dir(folder.0.join("lab")).expect("temporary files can be written");
    let name = "one-device-bad-wire";
    if out(&folder.scot(&["lab", "list"])).lines().any(|line| line.starts_with("up: ") && line.contains(name))
    {
        eprintln!("SKIP: somebody has that one up");
        return;
    }
    let shown = assert_succeeds(&folder.scot(&["lab", "up", name]));
    assert_succeeds(&folder.scot(&["lab", "down", name]));
    assert!(shown.contains(&format!("scot-{name}-device")), "{shown}");
}

#[test]
fn the_example_of_a_lab_with_a_device_bridges_the_ports_it_has() {
    let help = assert_succeeds(&Folder::new("lab-help").scot(&["lab", "up", "--help"]));
    let topology = include_str!("../../../lab/topologies/one-device.toml");
    let words: Vec<&str> = help.split_whitespace().collect();
    let after = |flag| words.windows(2).filter(move |pair| pair[0] == flag).map(|pair| pair[1]);
    let ports: Vec<&str> = after("--port").collect();
    assert_eq!(ports.len(), 2, "{help}");
    for name in ports.into_iter().chain(after("--address")) {
        assert!(topology.contains(&format!("\"{name}\"")), "{name} is not in {topology}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_but_a_reader_that_hangs_up_is_none() {
    let folder = Folder::new("full");
    let scot = |words: &[&str], stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
        command.args(words).current_dir(&folder.0).env_remove("SCOT_CONFIG").stdout(stdout);
        command.output().expect("the command runs")
    };
    for words in [&["config", "check"][..], &["classify"], &["--help"], &["completions", "bash"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        assert_fails(&scot(words, full.into()), 3, &["write to standard output: No space left"]);
        let (reader, writer) = std::io::pipe().expect("pipes can be made");
        drop(reader);
        let output = scot(words, writer.into());
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {}", err(&output));
    }
}

#[test]
fn a_key_that_could_not_be_written_leaves_no_file() {
    let folder = Folder::new("full-key");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\" key new new.key", env!("CARGO_BIN_EXE_scot")]);
    assert_fails(
        &command.current_dir(&folder.0).output().expect("sh runs"),
        3,
        &["new.key", "no key was made"],
    );
    assert!(!folder.0.join("new.key").exists());
}

#[test]
fn what_may_not_be_run_is_no_program() {
    let folder = Folder::new("denied");
    fs::create_dir(folder.0.join("scot-greet")).expect("temporary files can be written");
    let path = folder.0.display().to_string();
    assert_fails(
        &folder.scot_with(&[("PATH", &path)], &["greet"]),
        2,
        &["no command `greet`", "scot --help"],
    );
    folder.write("scot-wave", "no program");
    assert_fails(&folder.scot_with(&[("PATH", &path)], &["wave"]), 3, &["run scot-wave: Permission denied"]);
}

#[test]
fn what_contradicts_itself_is_refused_with_its_line() {
    let folder = Folder::new("lines");
    folder.write(
        "scot.toml",
        "[switch]\nports = [\"a\"]\naddress = \"10.0.0.9\"\nserver = \"10.0.0.2\"\ndevice_id = 0\n",
    );
    let parts = ["scot.toml:5: [switch] device_id: no device has the number 0"];
    assert_fails(&folder.scot(&["config", "check"]), 2, &parts);
    assert_succeeds(&folder.scot(&["key", "new", "key"]));
    assert_fails(&folder.scot(&["switch", "--key-file", "key"]), 2, &parts);
}

#[test]
fn who_does_not_read_errors_changes_no_exit_code() {
    let folder = Folder::new("unheard");
    for (words, code) in [(&["key", "retire", "nowhere"][..], 2), (&["classify", "SET", "a", "b"], 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
        command.args(words).current_dir(&folder.0).env_remove("SCOT_CONFIG");
        let status = command.stdout(closed_pipe()).stderr(closed_pipe()).status();
        assert_eq!(status.expect("the command runs").code(), Some(code), "{words:?}");
    }
}
