//! The load generator, the history checker and the applications against a real Redis, which is killed and
//! restarted, or damaged.
//!
//! Invariant: the server is our own, on loopback, with its files in a folder of ours, and ended by its pid.

use scotfree_lab::tpcc::{Release, Tpcc};
use scotfree_lab::transactions::{self, Application, Failure, Findings, LoopSpec, Store};
use scotfree_lab::twitter::pull::Pull;
use scotfree_lab::twitter::push::Push;
use scotfree_lab::twitter::Users;
use scotfree_stage::history::{History, HistoryOptions};
use scotfree_stage::load;
use scotfree_stage::process::{find_tool, Process, ProcessSpec, Socket, Supervisor};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::workload::{Random, Workload};
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

#[test]
fn twitter_finds_all_that_was_written_and_what_is_lost() {
    let Some(redis) = Redis::ready("twitter", &["--appendonly", "no"]) else { return };
    let _server = redis.start();
    let users = |prefix: &str| Users { prefix: prefix.to_owned(), count: 20 };
    assert_eq!(findings_of(&Push(users("push:")), &redis, true), Findings::default());
    assert_eq!(findings_of(&Pull(users("pull:")), &redis, false), Findings::default());
    let lost = [
        (&["DEL", "lost:post:1"][..], "the author of a post"),
        (&["INCR", "lost:next:post"], "the last number given to a post"),
        (&["SREM", "lost:followers:4", "3"], "lost:followers:4"),
    ];
    for (loss, finding) in lost {
        assert_found(&Push(users("lost:")), &redis, loss, finding);
        redis.empty();
    }
    // Whose post was lost or came twice depends on who wrote first.
    for loss in ["redis.call('LPOP', key)", "redis.call('LPUSH', key, redis.call('LINDEX', key, 0))"] {
        let script =
            format!("for _, key in ipairs(redis.call('KEYS', '*:timeline:*')) do {loss} end return 0");
        assert_found(&Push(users("lost:")), &redis, &["EVAL", &script, "0"], "lost:timeline:");
        redis.empty();
    }
    for (loss, finding) in [
        (&["SET", "lost:last:7", "0"][..], "lost:last:7"),
        (&["DEL", "lost:post:7:1"], "the author of a post"),
        (&["SET", "lost:following:7", "8"], "lost:following:7"),
    ] {
        assert_found(&Pull(users("lost:")), &redis, loss, finding);
        redis.empty();
    }
}

#[test]
fn the_books_of_tpcc_show_what_is_lost() {
    let Some(redis) = Redis::ready("tpcc", &["--appendonly", "no"]) else { return };
    let _server = redis.start();
    let tpcc = |prefix: &str, release| Tpcc { prefix: prefix.to_owned(), warehouses: 2, release };
    for release in [Release::Delete, Release::Script] {
        assert_eq!(
            findings_of(&tpcc("good:", release), &redis, release == Release::Delete),
            Findings::default()
        );
        redis.empty();
    }
    let increment = |key: &str| format!("redis.call('INCR', '{key}')");
    let any = |kind: &str, loss: &str| {
        format!("for _, key in ipairs(redis.call('KEYS', 'bad:{kind}:*')) do redis.call('{loss}', key) end")
    };
    for (loss, finding) in [
        (increment("bad:year:1"), "bad:year:1"),
        (any("balance", "INCR"), "bad:balance:"),
        (increment("bad:stock:0:3"), "bad:stock:0:3"),
        (increment("bad:next:1:9"), "bad:next:1:9"),
        (any("line", "DEL"), "the count of missing lines"),
        (any("order", "DEL"), "whether an order has lines"),
    ] {
        let script = format!("{loss} return 0");
        assert_found(&tpcc("bad:", Release::Delete), &redis, &["EVAL", &script, "0"], finding);
        redis.empty();
    }
}

#[test]
fn a_lock_that_does_not_exclude_is_found() {
    let Some(redis) = Redis::ready("lock", &["--appendonly", "no"]) else { return };
    let _server = redis.start();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut store = Store::open(redis.address, true).expect("it is there");
            while !is_over.load(Ordering::Relaxed) {
                store.call(&["DEL", "lock:0", "lock:1"]).expect("it is answered");
            }
        });
        let tpcc = Tpcc { prefix: String::new(), warehouses: 2, release: Release::Delete };
        let findings = findings_of(&tpcc, &redis, true);
        is_over.store(true, Ordering::Relaxed);
        assert!(findings.count > 0, "two held a lock at a time and nothing was found");
    });
}

/// Half of the transactions are updates, so that both kinds are run.
fn findings_of(application: &impl Application, redis: &Redis, pipelined: bool) -> Findings {
    let spec = LoopSpec {
        address: redis.address,
        clients: 4,
        updates_percent: 50,
        pipelined,
        duration_ms: 200,
        warmup_ms: 0,
        seed: 7,
    };
    let report = transactions::run(application, &spec).expect("it runs");
    assert!(report.updates > 0 && report.latency.expect("they were measured").count > report.updates);
    report.findings
}

fn assert_found<App: Application>(application: &App, redis: &Redis, loss: &[&str], finding: &str) {
    let findings = findings_of(&Damaged { application, loss }, redis, true);
    let first = findings.first.unwrap_or_default();
    assert!(first.contains(finding), "{loss:?} gave {first:?}");
}

/// An application whose state is damaged before it is checked.
struct Damaged<'a, App> {
    application: &'a App,
    loss: &'a [&'a str],
}

impl<App: Application> Application for Damaged<'_, App> {
    type Client = App::Client;

    fn set_up(&self, store: &mut Store) -> Result<(), Failure> {
        self.application.set_up(store)
    }

    fn client(&self, number: u32, count: u32, random: Random) -> App::Client {
        self.application.client(number, count, random)
    }

    fn check(&self, clients: &[App::Client], store: &mut Store) -> Result<Findings, Failure> {
        store.call(self.loss)?;
        self.application.check(clients, store)
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

    fn empty(&self) {
        let mut store = Store::open(self.address, true).expect("it is there");
        store.call(&["FLUSHALL"]).expect("it is empty");
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
