//! The plane in the kernel with real processes: what the doctor says of it, and its daemon's deaths. What must
//! come out of these stands in lab/experiments/kernel-deaths.toml.
#![cfg(feature = "lab")]

use scotfree_stage::kernel_plane::try_programs;
use scotfree_stage::process::{wait_until, Process, ProcessSpec, Supervisor};
use scotfree_stage::scratch::Scratch;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Whether programs can be loaded; says so if they cannot.
fn can_load() -> bool {
    let tried = try_programs();
    if let Err(trouble) = &tried {
        eprintln!("SKIP: {trouble}");
    }
    tried.is_ok()
}

// ---- deaths

const EXPERIMENT: &str = "lab/experiments/kernel-deaths.toml";

#[test]
fn ten_deaths_of_the_daemon_lose_nothing_and_the_programs_go_on() {
    if !can_load() {
        return;
    }
    let output = run_deaths(&repository());
    let said = text(&output);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("acknowledged updates lost") && said.contains("met"), "{said}");
}

#[test]
fn ten_upgrades_of_the_daemon_lose_nothing() {
    if !can_load() {
        return;
    }
    let output = run_deaths(planted("rounds = 10, orderly = true").path());
    let said = text(&output);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("acknowledged updates lost") && said.contains("met"), "{said}");
}

/// What the programs keep is removed while there is no daemon: then they acknowledge nothing, and the next
/// daemon is another incarnation.
#[test]
fn a_log_that_does_not_outlive_its_daemon_is_found() {
    if !can_load() {
        return;
    }
    let output = run_deaths(planted("rounds = 2, forget = true").path());
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("`deaths_with_acks` is 0; allowed are 10"), "{said}");
}

/// The experiment with other settings.
fn planted(settings: &str) -> Scratch {
    let planted = Scratch::new("deaths-planted").expect("temporary files can be written");
    for name in ["lab/topologies/one-device.toml", EXPERIMENT] {
        let text = fs::read_to_string(repository().join(name)).expect("it is there");
        let file = planted.path().join(name);
        fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("it can be made");
        fs::write(file, text.replace("rounds = 10", settings)).expect("it can be written");
    }
    planted
}

fn run_deaths(folder: &Path) -> Output {
    // They are all of one name, which only one lab can have.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let words = ["lab", "run", "kernel-deaths", "--repetitions", "1", "--no-results"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
    command.args(words).current_dir(folder).output().expect("the command runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

// ---- the doctor

/// A namespace with two ports whose other ends lie in it, too, and a BPF file system.
struct Ports {
    namespace: String,
    folder: Scratch,
}

impl Ports {
    fn up() -> Ports {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("scot-kernel-doctor-{}-{count}", std::process::id());
        let folder = Scratch::new("kernel-doctor").expect("temporary files can be written");
        ip(&["netns", "add", &namespace]);
        for (port, peer) in [("p0", "h0"), ("p1", "h1")] {
            ip(&["-n", &namespace, "link", "add", "name", port, "type", "veth", "peer", "name", peer]);
            ip(&["-n", &namespace, "link", "set", port, "up"]);
            ip(&["-n", &namespace, "link", "set", peer, "up"]);
        }
        fs::create_dir(folder.path().join("bpf")).expect("it can be made");
        let bpf = folder.path().join("bpf");
        run("mount", &["-t".as_ref(), "bpf".as_ref(), "bpf".as_ref(), bpf.as_os_str()]);
        let key = folder.path().join("key");
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(key).expect("it can be made");
        file.write_all("5c".repeat(32).as_bytes()).expect("it can be written");
        Ports { namespace, folder }
    }

    fn pin(&self) -> PathBuf {
        self.folder.path().join("bpf/scotfree-device-7")
    }

    fn offload(&self, interface: &str, feature: &str, value: &str) {
        let words = ["netns", "exec", &self.namespace, "ethtool", "-K", interface, feature, value];
        ip(&words);
    }

    /// What the doctor says of the check, from inside.
    fn doctor(&self, check: &str) -> Value {
        let words = ["doctor", "--json", "--plane", "xdp", "--port", "p0", "--port", "p1"];
        let output = Command::new("ip")
            .args(["netns", "exec", &self.namespace, env!("CARGO_BIN_EXE_scot")])
            .args(words)
            .env("SCOT_SWITCH_PIN", self.pin())
            .current_dir(self.folder.path())
            .output()
            .expect("ip is installed");
        let said: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
        let findings = said["findings"].as_array().expect("a list");
        let has_it = |finding: &&Value| finding["check"].as_str().is_some_and(|name| name.contains(check));
        findings.iter().find(has_it).unwrap_or_else(|| panic!("no {check} in {said}")).clone()
    }

    /// A start that is refused; what it says.
    fn refused(&self, ports: [&str; 2], pin: &Path, log: &str) -> String {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.namespace, env!("CARGO_BIN_EXE_scot"), "switch", "--plane", "xdp"])
            .args(["--port", ports[0], "--port", ports[1], "--device-id", "7", "--address", "10.77.0.254"])
            .args(["--server", "10.77.0.2:51001", "--slots", "64", "--window-max", "8", "--log", log])
            .args(["--pin".as_ref(), pin.as_os_str()])
            .args(["--key-file".as_ref(), self.folder.path().join("key").as_os_str()])
            .output()
            .expect("ip is installed");
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        text(&output)
    }

    fn start_device(&self, supervisor: &Supervisor) -> Process {
        let log = format!("ram:{}", self.folder.path().join("log.ram").display());
        let switch =
            ["netns", "exec", &self.namespace, env!("CARGO_BIN_EXE_scot"), "switch", "--plane", "xdp"];
        let spec = ProcessSpec::new("switch", "ip", self.folder.path())
            .args(switch)
            .args(["--port", "p0", "--port", "p1", "--device-id", "7", "--address", "10.77.0.254"])
            .args(["--server", "10.77.0.2:51001", "--slots", "64", "--window-max", "8", "--log", &log])
            .args(["--pin".as_ref(), self.pin().as_os_str()])
            .args(["--key-file".as_ref(), self.folder.path().join("key").as_os_str()]);
        let process = supervisor.spawn(&spec).expect("it can be started");
        process.wait_for_output("ready", PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
        process
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        // What is left is told by the next run, which cannot make it again.
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

fn ip(words: &[&str]) -> String {
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    run("ip", &words)
}

fn run(program: &str, words: &[&OsStr]) -> String {
    let output = Command::new(program).args(words).output().expect("it is installed");
    assert!(output.status.success(), "{program} {words:?}: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_doctor_sees_what_real_ports_lack_and_that_its_mend_mends_it() {
    if !can_load() {
        return;
    }
    let ports = Ports::up();
    assert_eq!(ports.doctor("kernel plane: features")["state"], "ok");
    assert_eq!(ports.doctor("BPF file system")["state"], "ok");
    assert_eq!(ports.doctor("mode of p0")["state"], "ok");
    for (value, state) in [("off", "must"), ("on", "ok")] {
        ports.offload("h0", "gro", value);
        let finding = ports.doctor("GRO at the other end of p0");
        assert_eq!(finding["state"], state, "{finding}");
    }
    for (value, state) in [("on", "should"), ("off", "ok")] {
        ports.offload("h0", "tx", value);
        let finding = ports.doctor("checksums from the other end of p0");
        assert_eq!(finding["state"], state, "{finding}");
    }
}

#[test]
fn the_doctor_tells_a_device_that_runs_from_one_that_was_left() {
    if !can_load() {
        return;
    }
    let ports = Ports::up();
    assert_eq!(ports.doctor("kept devices")["state"], "ok");
    let supervisor = Supervisor::new();
    let switch = ports.start_device(&supervisor);
    let running = ports.doctor("kept in");
    assert_eq!(running["state"], "ok", "{running}");
    assert!(running["found"]
        .as_str()
        .is_some_and(|found| found.contains("device 7") && found.contains("p0, p1")));
    assert_eq!(ports.doctor("program at p0")["state"], "ok");
    switch.kill();
    let left = ports.doctor("kept in");
    assert_eq!(left["state"], "should", "{left}");
    let mend = left["mend"].as_str().expect("a mend");
    let remove = format!("rm -r {}", ports.pin().display());
    assert!(mend.ends_with(&remove), "{mend}");
    fs::remove_dir_all(ports.pin()).expect("what the doctor names can be removed");
    assert_eq!(ports.doctor("kept devices")["state"], "ok");
    // The kernel detaches them a moment later.
    let is_bare = || !shown(&ports, "p0").contains("xdp");
    assert!(wait_until(PATIENCE, is_bare), "{}", shown(&ports, "p0"));
}

fn shown(ports: &Ports, port: &str) -> String {
    ip(&["-n", &ports.namespace, "link", "show", "dev", port])
}

#[test]
fn a_start_that_fails_leaves_no_programs_and_the_next_one_works() {
    if !can_load() {
        return;
    }
    let ports = Ports::up();
    let log = format!("ram:{}", ports.folder.path().join("other.ram").display());
    ip(&["-n", &ports.namespace, "link", "add", "bridge", "type", "bridge"]);
    let said = ports.refused(["p0", "bridge"], &ports.pin(), &log);
    assert!(said.contains("attaching to bridge failed") && said.contains("--xdp-mode generic"), "{said}");
    assert!(!ports.pin().exists());
    let is_bare = || !shown(&ports, "p0").contains("xdp");
    assert!(wait_until(PATIENCE, is_bare), "{}", shown(&ports, "p0"));
    // Loaded before the log is opened.
    let said = ports.refused(["p0", "p1"], &ports.pin(), "ram:/nowhere/log.ram");
    assert!(said.contains("/nowhere/log.ram"), "{said}");
    assert!(!ports.pin().exists());
    // The namespace's own view of /sys has no BPF file system.
    let said = ports.refused(["p0", "p1"], Path::new("/sys/fs/bpf/scotfree-device-7"), &log);
    assert!(said.contains("mount -t bpf bpf /sys/fs/bpf") && said.contains("--plane user"), "{said}");
    ports.start_device(&Supervisor::new()).kill();
}

#[test]
fn a_port_whose_other_end_takes_nothing_from_programs_is_named_until_it_does() {
    if !can_load() {
        return;
    }
    let ports = Ports::up();
    ports.offload("h0", "gro", "off");
    ports.offload("h1", "gro", "on");
    let supervisor = Supervisor::new();
    let device = ports.start_device(&supervisor);
    let said = device.error_output();
    assert!(said.contains("port p0 takes no frames from programs"), "{said}");
    assert!(!said.contains("port p1 takes no frames"), "{said}");
    let is_told = |line| device.wait_for_output(line, PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
    is_told("ALARM: port p0 takes no frames from programs");
    ports.offload("h0", "gro", "on");
    is_told("port p0 takes frames from programs again");
    ports.offload("h1", "gro", "off");
    is_told("ALARM: port p1 takes no frames from programs");
}
