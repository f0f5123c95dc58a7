//! A device in front of a member of a group: what it has acknowledged when the member dies is executed by the group once,
//! when the member is back.

mod written;

use scotfree_stage::config::Source;
use scotfree_stage::netns::{access, Access, Lab};
use scotfree_stage::process::{find_tool, wait_until, Process, ProcessSpec, Socket};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::topology::Topology;
use scotfree_stage::worker::history::HistoryControl;
use scotfree_stage::worker::metrics::{Counts, MetricsSpec};
use scotfree_stage::worker::{parse_report, WorkerSpec};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use written::Written;

const PATIENCE: Duration = Duration::from_secs(60);
const SCOT: &str = env!("CARGO_BIN_EXE_scot");
const SIDECAR: &str = "127.0.0.1:6379";
const PLACE: &str = "etcd:http://127.0.0.1:2379/scotfree/g";
const METRICS: &str = "127.0.0.1:9100";
/// How many keys must have been acknowledged while the member was dead.
const AT_STAKE: u64 = 20;

/// A client's host, a device's, and one on which three members and their etcd run; and a history that is written.
struct Site {
    lab: Lab,
    folder: Scratch,
    history: Option<Written>,
    started_count: usize,
}

impl Site {
    /// None where there can be no namespaces, or is no etcd.
    fn up(name: &str) -> Option<Site> {
        if access() != Access::Direct {
            eprintln!("SKIP: this test needs namespaces that it can enter: run it as root");
            return None;
        }
        if find_tool("etcd").is_none() {
            eprintln!("SKIP: etcd is not installed: apt-get install etcd-server");
            return None;
        }
        let folder = Scratch::new(name).expect("temporary files can be written");
        let text = include_str!("../../../lab/topologies/one-device.toml").replace("one-device", name);
        let topology = Topology::parse(&Source::from_text("t.toml", text)).expect("it is a topology");
        let lab = Lab::up(&topology, folder.path()).expect("it comes up");
        let mut site = Site { lab, folder, history: None, started_count: 0 };
        site.succeeds("device", &["key", "new", "key"]);
        let spec = WorkerSpec::Metrics(MetricsSpec { address: METRICS.parse().expect("an address") });
        let text = serde_json::to_vec(&spec).expect("it is JSON");
        fs::write(site.file("metrics.json"), text).expect("it can be written");
        Some(site)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&mut self, host: &str, program: PathBuf, words: &[&str]) -> Process {
        self.started_count += 1;
        let name = format!("process-{}", self.started_count);
        let mut spec = ProcessSpec::new(&name, program, self.folder.path()).args(words);
        spec.working_folder = Some(self.folder.path().to_owned());
        self.lab.spawn(host, &spec).expect("the command runs")
    }

    fn scot(&mut self, host: &str, words: &[&str]) -> Process {
        self.spawn(host, SCOT.into(), words)
    }

    fn ready(&mut self, host: &str, words: &[&str]) -> Process {
        let process = self.scot(host, words);
        process.wait_for_output("scot: ready", PATIENCE).expect("it serves");
        process
    }

    /// What a command prints that ends well.
    fn succeeds(&mut self, host: &str, words: &[&str]) -> String {
        let process = self.scot(host, words);
        let status = process.wait(PATIENCE);
        assert!(status.is_some_and(|status| status.success()), "{words:?}: {}", process.error_output());
        process.output()
    }

    fn start_etcd(&mut self) -> Process {
        let etcd = find_tool("etcd").expect("it was there just now");
        let process = self.spawn("server", etcd, &["--data-dir", "etcd", "--logger", "zap"]);
        process.wait_for_port(Socket::Tcp, 2379, PATIENCE).expect("etcd answers");
        process
    }

    fn make_group(&mut self) {
        let mut words = vec!["group", "init", PLACE, "--name", "g", "--lease-ms", "1000"];
        for member in [
            "1=10.77.0.2:51901,10.77.0.2:51000",
            "2=10.77.0.2:51902,10.77.0.2:51002",
            "3=10.77.0.2:51903,10.77.0.2:51003",
        ] {
            words.extend(["--member", member]);
        }
        self.succeeds("server", &words);
    }

    /// The device stands before the first.
    fn start_member(&mut self, id: u8) -> Process {
        let clients = if id == 1 { "10.77.0.2:51000".to_owned() } else { format!("10.77.0.2:5100{id}") };
        let (peers, log, member) = (format!("10.77.0.2:5190{id}"), format!("{id}.wal"), id.to_string());
        let mut words =
            vec!["kv", "--listen", &clients, "--peers", &peers, "--log", &log, "--log-size", "16M"];
        words.extend(["--key-file", "key", "--group", "g", "--member", &member, "--membership", PLACE]);
        if id == 1 {
            words.extend(["--device", "1=10.77.0.254"]);
        }
        self.scot("server", &words)
    }

    fn start_sidecar(&mut self, server: &str) -> Process {
        let words = ["--listen", SIDECAR, "--server", server, "--mode", "early", "--key-file", "key"];
        self.ready("client", &[&["sidecar", "client"][..], &words].concat())
    }

    fn begin_history(&mut self) {
        let folder = self.folder.path().to_owned();
        self.history = Some(Written::begin(SIDECAR, &folder, |words| self.scot("client", words)));
        self.history().write().expect("it writes");
    }

    fn written(&mut self) -> &mut Written {
        self.history.as_mut().expect("it was begun")
    }

    fn history(&mut self) -> &mut HistoryControl {
        &mut self.written().control
    }

    fn keys_acknowledged(&mut self) -> u64 {
        self.written().keys_acknowledged()
    }

    fn await_keys(&mut self, count: u64) {
        assert!(wait_until(PATIENCE, || self.keys_acknowledged() >= count), "{count} keys");
    }

    /// How many entries of the device's log are not stable.
    fn logged(&mut self) -> u64 {
        let printed = self.succeeds("device", &["lab-worker", "metrics.json"]);
        let counts: Counts = parse_report(&printed).expect("it has read them");
        counts["scotfree_unsafe_entries"]
    }
}

fn await_full(member: &Process) {
    let is_full = wait_until(PATIENCE, || member.error_output().contains("this one is full"));
    assert!(is_full, "{}", member.error_output());
}

fn kill(process: &Process) {
    process.kill();
    assert!(process.wait(PATIENCE).is_some());
}

#[test]
fn what_would_lose_an_acknowledged_write_is_refused_with_its_reason() {
    let folder = Scratch::new("group-refused").expect("temporary files can be written");
    fs::write(folder.path().join("key"), "09".repeat(32)).expect("the folder is ours");
    fs::set_permissions(folder.path().join("key"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    let common =
        "kv --listen 127.0.0.1 --log 1.wal --key-file key --group g --member 1 --peers 127.0.0.1:51900 \
                  --membership static:members.toml --device 1=127.0.0.1:51001";
    for (more, why) in [
        (&["--protocol", "hermes"], "what a device replays has one order"),
        (&["--answer-when", "memory"], "leave out --answer-when memory"),
        (&["--cache-device", "1"], "leave out --cache-device"),
    ] {
        let words = common.split_whitespace().chain(more.iter().copied());
        let output = Command::new(SCOT).args(words).current_dir(folder.path()).output().expect("scot runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{more:?}: {said}");
    }
    assert!(!folder.path().join("1.wal").exists(), "a start that is refused makes no file");
}

#[test]
fn what_a_device_acknowledges_for_a_member_that_dies_is_executed_once_when_it_is_back() {
    let Some(mut site) = Site::up("t-group") else { return };
    let _etcd = site.start_etcd();
    site.make_group();
    let first = site.start_member(1);
    let others = [2, 3].map(|id| site.start_member(id));
    let words = [
        "switch",
        "--server",
        "10.77.0.2",
        "--address",
        "10.77.0.254",
        "--device-id",
        "1",
        "--key-file",
        "key",
    ];
    let ports = ["--log", "ram:ram.log:256M", "--metrics", METRICS, "--port", "client0", "--port", "server0"];
    let _device = site.ready("device", &[&words[..], &ports].concat());
    [&first, &others[0], &others[1]].into_iter().for_each(await_full);
    first.wait_for_output("scot: ready", PATIENCE).expect("it has heard the device");
    let sidecar = site.start_sidecar("10.77.0.2");
    site.begin_history();
    site.await_keys(AT_STAKE);

    kill(&first);
    let before = site.keys_acknowledged();
    site.await_keys(before + AT_STAKE);
    // A client that lives sends again what is not stable.
    kill(&sidecar);
    site.history().rest().expect("it stops");
    assert!(site.logged() >= AT_STAKE, "nobody else has them");

    let first = site.start_member(1);
    await_full(&first);
    let is_empty = wait_until(PATIENCE, || site.logged() == 0);
    assert!(is_empty, "some are left: {}", first.error_output());

    // A client that lives goes on in its session.
    let sidecar = site.start_sidecar("10.77.0.2");
    site.history().write().expect("it writes");
    let before = site.keys_acknowledged();
    site.await_keys(before + AT_STAKE);
    kill(&first);
    let first = site.start_member(1);
    await_full(&first);
    let before = site.keys_acknowledged();
    site.await_keys(before + AT_STAKE);
    site.history().rest().expect("it stops");
    let is_empty = wait_until(PATIENCE, || site.logged() == 0);
    assert!(is_empty, "some are left: {}", first.error_output());
    kill(&sidecar);

    for server in ["10.77.0.2", "10.77.0.2:51002", "10.77.0.2:51003"] {
        let sidecar = site.start_sidecar(server);
        let verdict = site.history().verify_all(PATIENCE).expect("it is read back");
        assert!(verdict.is_good() && verdict.acked >= 4 * AT_STAKE, "{server}: {verdict}");
        kill(&sidecar);
    }
}
