//! A device that is gone for good, whose log was saved: what it had acknowledged reaches the server, once.

mod written;

use scotfree_stage::config::Source;
use scotfree_stage::history::Verdict;
use scotfree_stage::netns::{access, Access, Lab};
use scotfree_stage::process::{wait_until, Process, ProcessSpec};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::topology::Topology;
use scotfree_stage::worker::history::HistoryControl;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use written::Written;

const PATIENCE: Duration = Duration::from_secs(60);
const SCOT: &str = env!("CARGO_BIN_EXE_scot");
const SIDECAR: &str = "127.0.0.1:6379";
const REPLAY: [&str; 8] =
    ["--server", "10.77.0.2", "--address", "10.77.0.254", "--device-id", "1", "--key-file", "key"];
const LOGS: [&str; 2] = ["ram.log", "disk.log"];
/// How many keys must have been acknowledged while the server executed nothing.
const AT_STAKE: u64 = 20;

/// A client's host, a device's and a server's, and a history that is written and judged.
struct Site {
    lab: Lab,
    folder: Scratch,
    history: Option<Written>,
}

impl Site {
    /// None where there can be no namespaces.
    fn up(name: &str) -> Option<Site> {
        if access() != Access::Direct {
            eprintln!("SKIP: this test needs namespaces that it can enter: run it as root");
            return None;
        }
        let folder = Scratch::new(name).expect("temporary files can be written");
        let text = include_str!("../../../lab/topologies/one-device.toml").replace("one-device", name);
        let topology = Topology::parse(&Source::from_text("t.toml", text)).expect("it is a topology");
        let lab = Lab::up(&topology, folder.path()).expect("it comes up");
        let site = Site { lab, folder, history: None };
        site.succeeds("device", &["key", "new", "key"]);
        Some(site)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn logs_written_at(&self) -> [SystemTime; 2] {
        LOGS.map(|log| fs::metadata(self.file(log)).and_then(|file| file.modified()).expect("it is there"))
    }

    fn scot(&self, host: &str, name: &str, words: &[&str]) -> Process {
        let mut spec = ProcessSpec::new(name, SCOT, self.folder.path()).args(words);
        spec.working_folder = Some(self.folder.path().to_owned());
        // What one before has said is not this one's.
        let _ = fs::remove_file(self.file(&format!("{name}.out")));
        self.lab.spawn(host, &spec).expect("the command runs")
    }

    fn ready(&self, host: &str, name: &str, words: &[&str]) -> Process {
        let process = self.scot(host, name, words);
        process.wait_for_output("scot: ready", PATIENCE).expect("it serves");
        process
    }

    /// What a command prints that ends well.
    fn succeeds(&self, host: &str, words: &[&str]) -> String {
        let process = self.scot(host, "command", words);
        let status = process.wait(PATIENCE);
        assert!(status.is_some_and(|status| status.success()), "{words:?}: {}", process.error_output());
        process.output()
    }

    /// What a command says that must not end well, with its exit code.
    fn fails(&self, host: &str, words: &[&str]) -> (Option<i32>, String) {
        let process = self.scot(host, "command", words);
        let status = process.wait(PATIENCE).expect("it ends");
        assert!(!status.success(), "{words:?}: {}", process.output());
        (status.code(), process.error_output())
    }

    fn start_server(&self, more: &[&str]) -> Process {
        let words = [
            "kv",
            "--listen",
            "10.77.0.2",
            "--log",
            "kv.wal",
            "--device",
            "1=10.77.0.254",
            "--key-file",
            "key",
        ];
        self.scot("server", "kv", &[&words[..], more].concat())
    }

    fn start_sidecar(&self) -> Process {
        let words = ["--listen", SIDECAR, "--server", "10.77.0.2", "--mode", "early", "--key-file", "key"];
        self.ready("client", "sidecar", &[&["sidecar", "client"][..], &words].concat())
    }

    fn written(&mut self) -> &mut Written {
        if self.history.is_none() {
            let scot = |words: &[&str]| self.scot("client", "history", words);
            self.history = Some(Written::begin(SIDECAR, self.folder.path(), scot));
        }
        self.history.as_mut().expect("it was started just now")
    }

    fn history(&mut self) -> &mut HistoryControl {
        &mut self.written().control
    }

    fn keys_acknowledged(&mut self) -> u64 {
        self.written().keys_acknowledged()
    }

    /// Server, device and client die while the device holds acknowledged keys that the server has not executed.
    fn lose_all(&mut self) {
        let server = self.start_server(&[]);
        let log = [
            "--log",
            "ram:ram.log:256M",
            "--log",
            "disk:disk.log:8M",
            "--port",
            "client0",
            "--port",
            "server0",
        ];
        let device = self.ready("device", "switch", &[&["switch"][..], &REPLAY, &log].concat());
        server.wait_for_output("scot: ready", PATIENCE).expect("it serves");
        let sidecar = self.start_sidecar();
        self.history().write().expect("it writes");
        assert!(wait_until(PATIENCE, || self.keys_acknowledged() >= AT_STAKE), "the lease has come");
        server.signal("STOP");
        let before = self.keys_acknowledged();
        assert!(wait_until(PATIENCE, || self.keys_acknowledged() >= before + AT_STAKE), "the lease runs");
        // In this order: a client that lives sends again what is not stable.
        for process in [&device, &sidecar, &server] {
            process.kill();
            assert!(process.wait(PATIENCE).is_some());
        }
        self.history().rest().expect("it stops");
        // The neighbours are connected, and this machine has the device's address.
        for words in [
            // The address that its neighbours know.
            "link add bridge address 02:5c:07:00:00:fe type bridge",
            "link set bridge up",
            "link set client0 master bridge",
            "link set server0 master bridge",
            "address add 10.77.0.254/24 dev bridge",
        ] {
            self.lab.run("device", "ip", words.split(' ')).expect("the namespace is ours");
        }
    }

    /// What became of the history, as a server says that goes on without the device.
    fn judge(&mut self, server: &Process) -> Verdict {
        server.wait_for_output("device 1 is excluded", PATIENCE).expect("the operator has said so");
        server.wait_for_output("scot: ready", PATIENCE).expect("nobody else is waited for");
        let _sidecar = self.start_sidecar();
        self.history().verify_all(PATIENCE).expect("it is read back")
    }
}

#[test]
fn what_a_lost_device_had_acknowledged_is_there_exactly_once() {
    let Some(mut site) = Site::up("t-replay") else { return };
    site.lose_all();
    let before = site.logs_written_at();
    let said = site.succeeds("device", &[&["log", "replay", "--dry-run"][..], &LOGS, &REPLAY].concat());
    assert!(
        said.contains("go to 10.77.0.2:51000 from 10.77.0.254:51000") && !said.contains(" 0 entries"),
        "{said}"
    );

    let server = site.start_server(&[]);
    let words = [&["log", "replay"][..], &LOGS, &REPLAY].concat();
    site.succeeds("device", &["key", "new", "other"]);
    for (wrong, code, expected) in [
        (["--device-id", "2"], 2, "it is the log of device 1, not of device 2"),
        (["--address", "10.77.0.253"], 3, "ip address add 10.77.0.253/24"),
        (["--key-file", "other"], 3, "does not bear this cluster's key"),
    ] {
        let words = changed(&words, wrong);
        let (found, said) = site.fails("device", &[&words[..], &["--patience-s", "2"]].concat());
        assert!(found == Some(code) && said.contains(expected), "{wrong:?}: {said}");
    }
    let said = site.succeeds("device", &words);
    assert!(said.contains(", 0 left,") && !said.starts_with("0 entries resolved"), "{said}");
    server.wait_for_output("scot: ready", PATIENCE).expect("it has what it waited for");
    let again = site.succeeds("device", &words);
    assert!(again.contains(", 0 left,"), "{again}");
    assert_eq!(site.logs_written_at(), before);

    server.kill();
    assert!(server.wait(PATIENCE).is_some());
    let server = site.start_server(&["--exclude", "1"]);
    let verdict = site.judge(&server);
    assert!(verdict.is_good() && verdict.acked >= 2 * AT_STAKE, "{verdict}");
}

/// The same words with another value behind one of the flags.
fn changed<'a>(words: &[&'a str], [flag, value]: [&'a str; 2]) -> Vec<&'a str> {
    let mut words = words.to_vec();
    let at = words.iter().position(|word| *word == flag).expect("it is given");
    words[at + 1] = value;
    words
}

/// Its sessions have ended, and what it had acknowledged is there all the same.
#[test]
fn what_was_logged_under_a_retired_epoch_of_the_key_is_replayed_too() {
    let Some(mut site) = Site::up("t-replay-key") else { return };
    site.lose_all();
    for how in ["rotate", "retire"] {
        site.succeeds("device", &["key", how, "key"]);
    }
    let server = site.start_server(&[]);
    site.succeeds("device", &[&["log", "replay"][..], &LOGS, &REPLAY].concat());
    server.kill();
    assert!(server.wait(PATIENCE).is_some());
    let server = site.start_server(&["--exclude", "1"]);
    let verdict = site.judge(&server);
    assert!(verdict.is_good() && verdict.acked >= 2 * AT_STAKE, "{verdict}");
}

/// The history tells: it is the replay that brings them.
#[test]
fn without_a_replay_they_are_lost() {
    let Some(mut site) = Site::up("t-no-replay") else { return };
    site.lose_all();
    let server = site.start_server(&["--exclude", "1"]);
    let verdict = site.judge(&server);
    // Of those that were counted first behind the stop, some were executed before it.
    assert!(verdict.lost >= AT_STAKE / 2 && verdict.doubled == 0, "{verdict}");
}
