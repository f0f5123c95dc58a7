//! The load generator and the history checker against a real Redis, killed and restarted.
//!
//! Invariant: the server is our own, on loopback, with its files in a folder of ours, and ended by its pid.

use scotfree_lab::history::{History, HistoryOptions};
use scotfree_lab::load;
use scotfree_lab::process::{find_tool, Process, ProcessSpec, Socket, Supervisor};
use scotfree_lab::scratch::Scratch;
use scotfree_lab::workload::Workload;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_redis_that_syncs_always_survives_kills_without_loss() {
    let Some(redis) = Redis::ready("always", &["--appendonly", "yes", "--appendfsync", "always"]) else {
        return;
    };
    let options = HistoryOptions { outstanding_max: 8, ..HistoryOptions::new(redis.address) };
    let mut history = History::new();
    for round in 1..=5 {
        write_and_kill(&redis, &mut history, &options, round * 200);
        let server = redis.start();
        let verdict = history.verify(&options, PATIENCE).expect("it recovers");
        assert!(verdict.is_good(), "round {round}: {verdict}");
        drop(server);
    }
    assert!(history.acknowledged_count() >= 1_000);
}

#[test]
fn a_redis_without_a_log_is_found_to_lose() {
    let Some(redis) = Redis::ready("none", &["--appendonly", "no"]) else { return };
    let options = HistoryOptions::new(redis.address);
    let mut history = History::new();
    write_and_kill(&redis, &mut history, &options, 200);
    let _server = redis.start();
    let verdict = history.verify(&options, PATIENCE).expect("it recovers");
    assert_eq!((verdict.lost, verdict.found), (verdict.acked, 0), "{verdict}");
}

#[test]
fn the_lab_workloads_run() {
    let Some(redis) = Redis::ready("load", &["--appendonly", "no"]) else { return };
    let _server = redis.start();
    for name in ["set-one", "mixed-open"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../lab/workloads/{name}.toml"));
        let workload =
            Workload { warmup_ms: 0, requests_max: 500, ..Workload::read(&file).expect("it is right") };
        let report = load::run(redis.address, &workload, &AtomicBool::new(false)).expect("it runs");
        assert_eq!((report.measured_count, report.refused_count, report.unanswered_count), (500, 0, 0));
    }
}

/// Writes until `count` tokens are acknowledged in all, then kills the server while writing goes on.
fn write_and_kill(redis: &Redis, history: &mut History, options: &HistoryOptions, count: u64) {
    let server = redis.start();
    let acknowledged = AtomicU64::new(history.acknowledged_count());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let is_enough = || acknowledged.load(Ordering::Relaxed) >= count;
            server.wait_until("has acknowledged enough", PATIENCE, is_enough).expect("it works");
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
        history.write(options, &stop, || {
            acknowledged.fetch_add(1, Ordering::Relaxed);
        });
    });
}

struct Redis {
    folder: Scratch,
    address: SocketAddr,
    settings: Vec<String>,
}

impl Redis {
    fn ready(name: &str, settings: &[&str]) -> Option<Redis> {
        if find_tool("redis-server").is_none() {
            eprintln!("skipped: redis-server is not installed (apt-get install redis-server)");
            return None;
        }
        let folder = Scratch::new(&format!("redis-{name}")).expect("temporary files can be written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        Some(Redis { folder, address, settings: settings.iter().map(ToString::to_string).collect() })
    }

    fn start(&self) -> Process {
        let folder = self.folder.path().to_str().expect("the folder's name is text");
        let port = self.address.port().to_string();
        let fixed = ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir", folder];
        let spec = ProcessSpec::new("redis", "redis-server", self.folder.path())
            .args(fixed)
            .args(self.settings.iter().cloned());
        let server = Supervisor::new().spawn(&spec).expect("it starts");
        server.wait_for_port(Socket::Tcp, self.address.port(), PATIENCE).expect("it listens");
        server
    }
}
