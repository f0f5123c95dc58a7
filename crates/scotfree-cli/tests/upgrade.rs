//! A device with its plane in the kernel and the daemons that it has one after the other: replaced under load,
//! with other settings, with other ports, in the other mode.
#![cfg(feature = "lab")]

mod wires;

use scotfree_stage::kernel_plane::try_programs;
use scotfree_stage::process::wait_until;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wires::{report, require_inside, run, Wires, PATIENCE, SCOT};

const PIN: &str = "TEST_PIN";
/// How often the daemon is replaced, and how many updates are made meanwhile.
const REPLACEMENTS: usize = 4;
const ATTEMPTS_MAX: usize = 3 * REPLACEMENTS;
const CALLS: u64 = 40_000;
const INTERVAL_US: u64 = 300;
const METRICS: &str = "127.0.0.1:9102";

/// Runs a test of this file in namespaces of its own, where what it keeps is removed afterwards.
fn run_in_namespaces(test: &str) {
    if let Err(trouble) = try_programs() {
        eprintln!("SKIP: {trouble}");
        return;
    }
    let kept = Kept(format!("/sys/fs/bpf/scot-test-{test}-{}", std::process::id()).into());
    let folder = kept.0.display().to_string();
    require_inside(&["unshare", "-nm"], test, &[(PIN, &folder)]);
}

struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        // A test that was refused early has made none.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pin() -> String {
    std::env::var(PIN).expect("the test outside says where")
}

#[test]
fn a_daemon_replaced_under_load_loses_no_acknowledgement() {
    run_in_namespaces("inside_replaced_under_load");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_replaced_under_load() {
    let pin = pin();
    let wires = Wires::up();
    let words = ["--pin", &pin, "--metrics", METRICS];
    let mut switch = wires.start_switch(&words);
    let _server = wires.start_server();
    let mut calls = wires.start_calls(CALLS, INTERVAL_US);
    let (mut seen, mut replaced_count) = (Vec::new(), 0);
    for _ in 0..ATTEMPTS_MAX {
        if replaced_count == REPLACEMENTS {
            break;
        }
        if !calls.is_running() {
            seen.push(report(&calls));
            calls = wires.start_calls(CALLS, INTERVAL_US);
        }
        await_leases(&wires);
        let ended = switch.stop(PATIENCE);
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {}", switch.error_output());
        switch = wires.start_switch(&words);
        let said = switch.error_output();
        assert!(said.contains("boot epoch 1,"), "{said}");
        // On a busy machine a client may be through before the next daemon has begun: that one does not count.
        replaced_count += usize::from(calls.is_running());
    }
    assert_eq!(replaced_count, REPLACEMENTS, "clients were through before daemons began: {}", calls.output());
    seen.push(report(&calls));
    // Without a lease nothing is acknowledged, and it runs out if a replacement takes longer than it.
    let withheld = wires.metrics(METRICS)["scotfree_device_without_lease_total"];
    let stable: u64 = seen.iter().map(|report| report.completed_stable).sum();
    assert!(seen.iter().all(|report| report.completed_early + report.completed_stable == CALLS), "{seen:?}");
    assert!(stable <= withheld, "{stable} were not acknowledged, {withheld} for want of a lease: {seen:?}");
}

/// Waits until the server has renewed the lease: it covers one replacement, not two in a row. Almost all that the
/// programs pass up in the middle of a session are leases.
fn await_leases(wires: &Wires) {
    let passed_up = || wires.metrics(METRICS)["scotfree_kernel_passed_up_total"];
    let before = passed_up();
    assert!(wait_until(PATIENCE, || passed_up() >= before + 4), "the lease is not renewed");
}

#[test]
fn what_is_kept_is_taken_over_with_the_same_settings_only() {
    run_in_namespaces("inside_other_settings");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_other_settings() {
    let pin = pin();
    let wires = Wires::up();
    wires.start_switch(&["--pin", &pin, "--slots", "16384"]).stop(PATIENCE);
    wires.write_key("other", 0x5d);
    let other_key = wires.file("other").display().to_string();
    for (flag, value, found) in [
        ("--device-id", "8", "the log of device 7, this daemon needs that of device 8"),
        ("--server", "10.77.0.3", "server 10.77.0.2:51000, this daemon needs server 10.77.0.3:51000"),
        ("--address", "10.77.0.253", "control address 10.77.0.254:51000"),
        ("--key-file", &other_key, "another cluster key"),
        ("--slots", "8192", "a log of 16384 slots"),
    ] {
        let refused = wires.refused(&["--pin", &pin, flag, value]);
        assert!(refused.contains(found) && refused.contains(&format!("rm -r {pin}")), "{flag}: {refused}");
        assert!(!refused.contains("5c5c"), "a key is never shown: {refused}");
    }
    let _switch = wires.start_switch(&["--pin", &pin]);
    let _server = wires.start_server();
    wires.require_early(500);
}

#[test]
fn what_is_kept_goes_on_when_the_key_is_rotated_between_two_daemons() {
    run_in_namespaces("inside_the_key_is_rotated");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_the_key_is_rotated() {
    let pin = pin();
    let wires = Wires::up();
    let start = || {
        let switch = wires.start_switch(&["--pin", &pin]);
        assert!(switch.error_output().contains("boot epoch 1,"), "{}", switch.error_output());
        switch.stop(PATIENCE);
    };
    let change_key = |how: &[&str]| {
        let key = wires.file("key");
        run(SCOT, &[&["key"][..], how, &[key.to_str().expect("it is plain")]].concat());
    };
    start();
    change_key(&["rotate"]);
    start();
    change_key(&["retire"]);
    start();
    assert!(!said_of_retired(&wires));
    change_key(&["rotate"]);
    change_key(&["retire"]);
    start();
    assert!(said_of_retired(&wires));
}

fn said_of_retired(wires: &Wires) -> bool {
    let said = fs::read_to_string(wires.file("switch.err")).expect("it is there");
    said.contains("the key file has no more")
}

#[test]
fn what_a_retired_epoch_left_reaches_the_server() {
    run_in_namespaces("inside_the_epoch_is_retired");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_the_epoch_is_retired() {
    let pin = pin();
    let wires = Wires::up();
    let words = ["--pin", &pin, "--metrics", METRICS];
    let unsafe_entries = || wires.metrics(METRICS)["scotfree_unsafe_entries"];
    let switch = wires.start_switch(&words);
    let server = wires.start_kv();
    server.wait_for_output("scot: ready", PATIENCE).expect("it serves");
    let calls = wires.start_calls(CALLS, INTERVAL_US);
    assert!(wait_until(PATIENCE, || unsafe_entries() > 0), "the device acknowledges");
    server.signal("STOP");
    assert!(wait_until(PATIENCE, || unsafe_entries() >= 100), "the lease runs");
    // A client that lives sends again what is not stable.
    calls.kill();
    server.kill();
    assert!(switch.stop(PATIENCE).is_some_and(|status| status.success()));
    for how in ["rotate", "retire"] {
        run(SCOT, &["key".as_ref(), how.as_ref(), wires.file("key").as_os_str()]);
    }
    let _switch = wires.start_switch(&words);
    assert!(said_of_retired(&wires) && unsafe_entries() >= 100, "all of it is whole");
    let server = wires.start_kv();
    server.wait_for_output("scot: ready", PATIENCE).expect("the device says what it holds");
    assert!(wait_until(PATIENCE, || unsafe_entries() == 0), "the server has all of it");
}

#[test]
fn a_port_that_is_no_more_a_device_s_loses_its_program() {
    run_in_namespaces("inside_a_port_is_left_out");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_a_port_is_left_out() {
    let pin = pin();
    let wires = Wires::up();
    run("ip", &["link", "add", "spare", "type", "veth", "peer", "name", "spare-end"]);
    run("ip", &["link", "set", "spare", "up"]);
    let three = ["--pin", &pin, "--port", "to-client", "--port", "to-server", "--port", "spare"];
    wires.start_switch(&three).stop(PATIENCE);
    assert!(shown("spare").contains("xdp") && Path::new(&pin).join("port-spare").exists());
    let _switch = wires.start_switch(&["--pin", &pin]);
    assert!(!shown("spare").contains("xdp"), "{}", shown("spare"));
    assert!(!Path::new(&pin).join("port-spare").exists());
    assert!(shown("to-client").contains("xdp"));
    let _server = wires.start_server();
    wires.require_early(500);
}

#[test]
fn generic_mode_acknowledges_too_and_the_mode_can_be_changed() {
    run_in_namespaces("inside_generic_mode");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_generic_mode() {
    let pin = pin();
    let wires = Wires::up();
    let _server = {
        let switch = wires.start_switch(&["--pin", &pin, "--xdp-mode", "generic"]);
        assert!(shown("to-client").contains("xdpgeneric"), "{}", shown("to-client"));
        let server = wires.start_server();
        wires.require_early(1_000);
        switch.stop(Duration::from_secs(10));
        server
    };
    let _switch = wires.start_switch(&["--pin", &pin]);
    assert!(!shown("to-client").contains("xdpgeneric"), "{}", shown("to-client"));
    wires.require_early(1_000);
}

fn shown(port: &str) -> String {
    run("ip", &["link", "show", "dev", port])
}
