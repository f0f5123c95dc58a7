//! The plane in the kernel for who is not root: a set that root has loaded for a group, and a service with three
//! capabilities. Real traffic each time.
#![cfg(feature = "lab")]

mod wires;

use scotfree_stage::kernel_plane::try_programs;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use wires::{require_inside, run, run_inside, text, Wires, SCOT};

/// A group and users that need no entry anywhere.
const GROUP: &str = "64321";
const MEMBER: &str = "64322";
const STRANGER: &str = "64323";
/// What the service has, as packaging/scot-switch.service says.
const CAPABILITIES: &str = "-all,+bpf,+net_admin,+net_raw";
const SET: &str = "TEST_SET";

/// Whether this can be tried here; says so if it cannot.
fn can_try() -> bool {
    let stranger = ["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups", SCOT, "--version"];
    let problem = match try_programs() {
        Err(trouble) => Some(trouble.to_string()),
        Ok(()) => match Command::new("setpriv").args(stranger).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("others may not run {SCOT}: {}", text(&output))),
            Err(error) => Some(format!("setpriv: {error}")),
        },
    };
    if let Some(problem) = &problem {
        eprintln!("SKIP: {problem}");
    }
    problem.is_none()
}

/// The same where other users must have namespaces of their own, which a chroot for example denies them.
fn can_try_as_a_user() -> bool {
    if !can_try() {
        return false;
    }
    let words = [&as_user(STRANGER, "")[1..], &["true"]].concat();
    let output = Command::new("setpriv").args(words).output().expect("it has just run");
    if !output.status.success() {
        eprintln!("SKIP: others have no namespaces here: {}", text(&output));
    }
    output.status.success()
}

/// Sets for the group, removed at the end.
struct Sets(PathBuf);

impl Sets {
    fn new(name: &str) -> Sets {
        Sets(format!("/sys/fs/bpf/scot-test-{name}-{}", std::process::id()).into())
    }

    fn setup(&self, more: &[&str]) -> Output {
        let words = ["setup", "--group", GROUP, "--folder", self.0.to_str().expect("it is plain")];
        Command::new(SCOT).args(words).args(more).output().expect("it runs")
    }

    fn require_setup(&self, more: &[&str], said: &str) {
        let output = self.setup(more);
        assert!(output.status.success() && text(&output).contains(said), "{}", text(&output));
    }

    fn first(&self) -> String {
        self.0.join("0").display().to_string()
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        // A test that failed has left them.
        let _ = self.setup(&["--remove"]);
    }
}

fn as_user<'a>(user: &'a str, groups: &'a str) -> Vec<&'a str> {
    let groups = if groups.is_empty() { vec!["--clear-groups"] } else { vec!["--groups", groups] };
    [&["setpriv", "--reuid", user, "--regid", user][..], &groups, &["unshare", "-Urnm"]].concat()
}

#[test]
fn a_member_of_the_group_runs_a_device_without_root() {
    if !can_try_as_a_user() {
        return;
    }
    let sets = Sets::new("member");
    sets.require_setup(&["--slots", "16384"], "0: made");
    sets.require_setup(&[], "0: is there");
    sets.require_setup(&["--sets", "2", "--slots", "16384"], "1: made");
    let other = sets.setup(&["--slots", "64"]);
    assert!(text(&other).contains("a log of 16384 slots, not of 64"), "{}", text(&other));
    let set = sets.first();
    let variables = [(SET, set.as_str())];
    require_inside(&as_user(MEMBER, GROUP), "inside_a_device_of_a_set", &variables);
    require_inside(&as_user(MEMBER, GROUP), "inside_the_set_keeps_what_it_had", &variables);
    let stranger = run_inside(&as_user(STRANGER, ""), "inside_a_device_of_a_set", &variables);
    let said = text(&stranger);
    assert!(!stranger.status.success() && said.contains("ermission denied"), "{said}");
    assert!(
        said.contains("so may the members of its group") && said.contains("scot setup --group"),
        "{said}"
    );
    sets.require_setup(&["--remove"], "removed");
    sets.require_setup(&["--remove"], "is not there");
    assert!(!sets.0.exists());
}

fn set() -> String {
    std::env::var(SET).expect("the test outside says which")
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_a_device_of_a_set() {
    let set = set();
    let wires = Wires::up();
    let switch = wires.start_switch(&["--pin", &set]);
    assert!(switch.output().contains("with 16384 slots in the kernel"), "{}", switch.output());
    let _server = wires.start_server();
    wires.require_early(2_000);
    // The next daemon takes over what the programs keep.
    switch.kill();
    let _switch = wires.start_switch(&["--pin", &set]);
    wires.require_early(2_000);
    require_no_must_of_the_kernel_plane(&set);
}

fn require_no_must_of_the_kernel_plane(set: &str) {
    let words =
        ["doctor", "--json", "--plane", "xdp", "--port", "to-client", "--port", "to-server", "--pin", set];
    let output = Command::new(SCOT).args(words).output().expect("it runs");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    let of_plane =
        |finding: &&Value| finding["check"].as_str().is_some_and(|check| check.starts_with("kernel plane"));
    let findings: Vec<&Value> = said["findings"].as_array().into_iter().flatten().filter(of_plane).collect();
    assert!(findings.iter().all(|finding| finding["state"] != "must"), "{findings:#?}");
    let sets = findings.iter().find(|finding| finding["check"] == "kernel plane: sets for groups");
    let found = sets.and_then(|sets| sets["found"].as_str()).unwrap_or_default();
    assert!(found.contains(&format!("{set} (of device 7)")), "{findings:#?}");
}

/// In other namespaces, later: ports of the same names, another device.
#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_the_set_keeps_what_it_had() {
    let set = set();
    let wires = Wires::up();
    let refused = wires.refused(&["--pin", &set, "--device-id", "8"]);
    let gives_up = format!("scot setup --release {set}");
    assert!(refused.contains("holds the log of device 7") && refused.contains(&gives_up), "{refused}");
    let refused = wires.refused(&["--pin", &set, "--slots", "8192"]);
    assert!(refused.contains("leave --slots away"), "{refused}");
    run(SCOT, &["setup", "--release", &set]);
    let switch = wires.start_switch(&["--pin", &set]);
    let refused = Command::new(SCOT).args(["setup", "--release", &set]).output().expect("it runs");
    assert!(text(&refused).contains("is in use: process "), "{}", text(&refused));
    let _server = wires.start_server();
    wires.require_early(500);
    drop(switch);
}

// ---- without any of it

#[test]
fn who_has_no_rights_and_no_set_is_told_what_is_missing() {
    if !can_try_as_a_user() {
        return;
    }
    let folder = PathBuf::from(format!("/sys/fs/bpf/scot-test-stranger-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("this is root");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, everybody).expect("it is ours");
    let set = folder.join("device").display().to_string();
    let output = run_inside(&as_user(STRANGER, ""), "inside_without_rights", &[(SET, &set)]);
    // What the refused start has made there is gone.
    std::fs::remove_dir(&folder).expect("it is empty");
    assert!(output.status.success() && text(&output).contains("1 passed"), "{}", text(&output));
}

/// Has every capability, but in a user namespace of its own.
#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_without_rights() {
    let wires = Wires::up();
    let refused = wires.refused(&["--pin", &set()]);
    for said in [
        "loading the device's programs into the kernel failed: Operation not permitted",
        "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN in the first user namespace",
        "scot setup --help",
        "--plane user",
    ] {
        assert!(refused.contains(said), "{said}: {refused}");
    }
    let doctor = Command::new(SCOT).args(["doctor", "--json", "--plane", "xdp"]).output().expect("it runs");
    let said: Value = serde_json::from_slice(&doctor.stdout).unwrap_or_else(|_| panic!("{}", text(&doctor)));
    let is_rights = |finding: &&Value| finding["check"] == "kernel plane: rights";
    let rights = said["findings"].as_array().into_iter().flatten().find(is_rights).expect("it looks");
    assert_eq!(rights["state"], "must");
    let found = "this is a user namespace; the kernel takes programs from the first one only";
    assert_eq!(rights["found"], found);
}

// ---- the service

#[test]
fn a_service_with_three_capabilities_runs_a_device_of_a_set() {
    if !can_try() {
        return;
    }
    let sets = Sets::new("service");
    sets.require_setup(&["--slots", "16384"], "0: made");
    let set = sets.first();
    // Namespaces of the host's own, where only these capabilities count.
    let device = ["unshare", "-nm"];
    require_inside(&device, "inside_a_service", &[(SET, &set)]);
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_a_service() {
    let set = set();
    let wires = Wires::up();
    for file in ["", "key"] {
        std::os::unix::fs::chown(wires.file(file), MEMBER.parse().ok(), MEMBER.parse().ok())
            .expect("this is root");
    }
    let words = [
        "--reuid",
        MEMBER,
        "--regid",
        MEMBER,
        "--groups",
        GROUP,
        "--no-new-privs",
        "--bounding-set",
        CAPABILITIES,
        "--inh-caps",
        CAPABILITIES,
        "--ambient-caps",
        CAPABILITIES,
        SCOT,
    ];
    let spec = scotfree_stage::process::ProcessSpec::new("switch", "setpriv", wires.file(""))
        .args(words)
        .args(wires.switch_words(&["--pin", &set]));
    let switch = wires.supervisor.spawn(&spec).expect("it can be started");
    switch.wait_for_output("ready", wires::PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", switch.pid())).expect("it runs");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
    assert_eq!(effective, Some("0000008000003000"), "bpf, net_admin and net_raw, no more");
    let _server = wires.start_server();
    wires.require_early(2_000);
}

#[test]
fn the_unit_is_one_that_systemd_understands_and_grants_no_more() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/scot-switch.service");
    let said = std::fs::read_to_string(&unit).expect("it is there");
    let granted: Vec<&str> = said.lines().filter(|line| line.contains("Capabilit")).collect();
    assert_eq!(
        granted,
        [
            "AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_NET_RAW",
            "CapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN CAP_NET_RAW"
        ]
    );
    // It looks for the programs that it names, which need not be installed here.
    let folder = scotfree_stage::scratch::Scratch::new("unit").expect("temporary files can be written");
    let here = folder.path().join("scot-switch.service");
    std::fs::write(&here, said.replace("/usr/local/bin/scot", SCOT)).expect("it can be written");
    match Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&here).output() {
        Ok(output) => assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output)),
        Err(error) => eprintln!("SKIP: systemd-analyze: {error}"),
    }
}
