//! A client's host, a device's and a server's on two cables, for tests that run inside namespaces of their own.
//!
//! Invariant: the test that uses this runs in a mount and a network namespace that end with it: whatever is made
//! here is gone then.
#![allow(dead_code, reason = "each test file uses its part")]

use scotfree_core::Tier;
use scotfree_lab::runs::worker::calls::{CallsReport, CallsSpec};
use scotfree_lab::runs::worker::noop::NoopSpec;
use scotfree_lab::runs::worker::WorkerSpec;
use scotfree_stage::process::{Process, ProcessSpec, Supervisor};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::worker::metrics::{Counts, MetricsSpec};
use scotfree_stage::worker::{self, parse_report};
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const SCOT: &str = env!("CARGO_BIN_EXE_scot");
const KEY: u8 = 0x5c;
const CLUSTER_KEY: [u8; 32] = [KEY; 32];
const SERVER: &str = "10.77.0.2:51000";
const DEVICE: &str = "10.77.0.254:51000";

/// The hosts; the device's namespace is the test's own.
pub struct Wires {
    pub supervisor: Supervisor,
    folder: Scratch,
}

impl Wires {
    pub fn up() -> Wires {
        let folder = Scratch::new("wires").expect("temporary files can be written");
        run("ip", &["link", "set", "lo", "up"]);
        run("mount", &["-t", "tmpfs", "tmpfs", "/run"]);
        for (host, address) in [("client", "10.77.0.1/24"), ("server", "10.77.0.2/24")] {
            let (namespace, port) = (format!("scot-{host}"), format!("to-{host}"));
            run("ip", &["netns", "add", &namespace]);
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", &namespace];
            run("ip", &[&["link", "add", &port][..], &peer].concat());
            run("ip", &["link", "set", &port, "up"]);
            run("ip", &["-n", &namespace, "link", "set", "eth0", "up"]);
            run("ip", &["-n", &namespace, "address", "add", address, "dev", "eth0"]);
            let offloads = ["ethtool", "-K", "eth0", "tx", "off", "gro", "on"];
            run("ip", &[&["netns", "exec", &namespace][..], &offloads].concat());
        }
        let wires = Wires { supervisor: Supervisor::new(), folder };
        wires.write_key("key", KEY);
        wires
    }

    /// A file of the test's own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a cluster key that is nothing but this byte.
    pub fn write_key(&self, name: &str, byte: u8) {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.file(name));
        let text = format!("{byte:02x}").repeat(32);
        file.expect("it can be made").write_all(text.as_bytes()).expect("it can be written");
    }

    /// The words by which the device is started, and those that are usual unless others are given.
    pub fn switch_words(&self, more: &[&str]) -> Vec<OsString> {
        let log = format!("ram:{}", self.file("log.ram").display());
        let key = self.file("key");
        let mut words: Vec<OsString> = vec!["switch".into()];
        words.extend(["--log", &log].map(OsString::from));
        let given = |flag: &str| more.contains(&flag);
        let usual = [
            ("--plane", "xdp"),
            ("--device-id", "7"),
            ("--address", "10.77.0.254"),
            ("--server", "10.77.0.2"),
            ("--key-file", key.to_str().expect("it is plain")),
        ];
        for (flag, value) in usual.into_iter().filter(|(flag, _)| !given(flag)) {
            words.extend([flag, value].map(OsString::from));
        }
        if !given("--port") {
            words.extend(["--port", "to-client", "--port", "to-server"].map(OsString::from));
        }
        words.extend(more.iter().map(OsString::from));
        words
    }

    /// Starts the device and waits until it is ready.
    pub fn start_switch(&self, more: &[&str]) -> Process {
        let spec = ProcessSpec::new("switch", SCOT, self.folder.path()).args(self.switch_words(more));
        // What one before has said is not this one's.
        let _ = fs::remove_file(self.file("switch.out"));
        let process = self.supervisor.spawn(&spec).expect("it can be started");
        process.wait_for_output("ready", PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
        process
    }

    /// What a device that is not to start says.
    pub fn refused(&self, more: &[&str]) -> String {
        let output = Command::new(SCOT).args(self.switch_words(more)).output().expect("it runs");
        assert!(!output.status.success(), "it started");
        text(&output)
    }

    fn write_spec(&self, name: &str, spec: &impl serde::Serialize) -> PathBuf {
        let file = self.file(&format!("{name}.json"));
        fs::write(&file, serde_json::to_vec(spec).expect("it is JSON")).expect("it can be written");
        file
    }

    fn start_worker(&self, host: &str, name: &str, spec: &WorkerSpec) -> Process {
        let file = self.write_spec(name, spec);
        let words = ["netns", "exec", &format!("scot-{host}"), SCOT, "lab-worker"].map(OsString::from);
        let spec = ProcessSpec::new(name, "ip", self.folder.path()).args(words).args([file]);
        self.supervisor.spawn(&spec).expect("it can be started")
    }

    /// Starts a server that does nothing with updates but apply them.
    pub fn start_server(&self) -> Process {
        let spec =
            NoopSpec { devices: vec![(7, address(DEVICE))], ..NoopSpec::new(address(SERVER), CLUSTER_KEY) };
        let server = self.start_worker("server", "server", &WorkerSpec::Noop(spec));
        server.wait_for_output("ready", PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
        server
    }

    /// Starts a server that stores, under the key that the file has.
    pub fn start_kv(&self) -> Process {
        let device = format!("7={DEVICE}");
        let words = ["netns", "exec", "scot-server", SCOT, "kv", "--listen", SERVER, "--device", &device];
        let mut spec = ProcessSpec::new("kv", "ip", self.folder.path()).args(words);
        spec = spec.args(["--log".into(), self.file("kv.wal"), "--key-file".into(), self.file("key")]);
        self.supervisor.spawn(&spec).expect("it can be started")
    }

    /// Starts a client that makes so many updates, one behind the other, which a device's memory completes.
    pub fn start_calls(&self, calls: u64, interval_us: u64) -> Process {
        let spec = CallsSpec {
            server: address(SERVER),
            cluster_key: CLUSTER_KEY,
            tier: Tier::RAM,
            outstanding: 1,
            interval_us,
            payload_bytes: 64,
            calls,
            warmup_calls: 10,
            trace: None,
        };
        self.start_worker("client", "calls", &WorkerSpec::Calls(spec))
    }

    /// What the device's daemon counts.
    pub fn metrics(&self, at: &str) -> Counts {
        let file =
            self.write_spec("metrics", &worker::WorkerSpec::Metrics(MetricsSpec { address: address(at) }));
        parse_report(&run(SCOT, &["lab-worker".as_ref(), file.as_os_str()])).expect("it reports")
    }

    /// Makes updates, all of which the device must complete.
    pub fn require_early(&self, count: u64) {
        let report = report(&self.start_calls(count, 0));
        let CallsReport { completed_early, completed_stable, refused, .. } = report;
        assert_eq!((completed_early, completed_stable, refused), (count, 0, 0));
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// What a client has seen when it is through.
pub fn report(calls: &Process) -> CallsReport {
    let status = calls.wait(PATIENCE);
    assert!(status.is_some_and(|status| status.success()), "{status:?}: {}", calls.error_output());
    parse_report(&calls.output()).expect("it reports")
}

/// Runs a tool, which must succeed.
pub fn run<S: AsRef<OsStr> + std::fmt::Debug>(program: &str, words: &[S]) -> String {
    let output = Command::new(program).args(words).output().expect("it is installed");
    assert!(output.status.success(), "{program} {words:?}: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All that a program has said.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// Runs an ignored test of this file by itself, behind `words` that put it where it belongs.
pub fn run_inside(words: &[&str], test: &str, variables: &[(&str, &str)]) -> Output {
    let this = std::env::current_exe().expect("it is known");
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(this).args(["--ignored", "--exact", "--nocapture", test]);
    command.envs(variables.iter().copied()).output().expect("it is installed")
}

/// The same, which must succeed.
pub fn require_inside(words: &[&str], test: &str, variables: &[(&str, &str)]) {
    let output = run_inside(words, test, variables);
    let said = text(&output);
    assert!(output.status.success() && said.contains("1 passed"), "{words:?}: {}: {said}", output.status);
}
