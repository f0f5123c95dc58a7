//! Daemons as processes on loopback: readiness, metrics, reload, drain.

mod prometheus;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::config::Source;
use scotfree_stage::netns::{access, Access, Lab};
use scotfree_stage::process::{wait_until, Process, ProcessSpec, Socket, Supervisor};
use scotfree_stage::resp::{Connection, Reply};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::topology::Topology;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    folder: Scratch,
    supervisor: Supervisor,
    server: SocketAddr,
    clients: SocketAddr,
    metrics: SocketAddr,
}

impl World {
    fn new(name: &str) -> World {
        let folder = Scratch::new(name).expect("temporary files can be written");
        let world = World {
            folder,
            supervisor: Supervisor::new(),
            server: free_address(),
            clients: free_address(),
            metrics: free_address(),
        };
        let made = world.start("key", &["key", "new", "key"]);
        assert!(made.wait(PATIENCE).is_some_and(|status| status.success()), "{}", made.error_output());
        world
    }

    fn write_config(&self, more: &str) {
        let World { server, clients, metrics, .. } = self;
        let text = format!(
            "[cluster]\nkey_file = \"key\"\n[kv]\nlisten = \"{server}\"\nlog = \"kv.wal\"\nlog_size = \"8M\"\n\
             [client]\nlisten = \"{clients}\"\nserver = \"{server}\"\nmetrics = \"{metrics}\"\n{more}"
        );
        fs::write(self.folder.path().join("scot.toml"), text).expect("temporary files can be written");
    }

    fn start(&self, name: &str, words: &[&str]) -> Process {
        let mut spec = ProcessSpec::new(name, env!("CARGO_BIN_EXE_scot"), self.folder.path()).args(words);
        spec.working_folder = Some(self.folder.path().to_owned());
        self.supervisor.spawn(&spec).expect("the command runs")
    }

    fn serve(&self, name: &str, words: &[&str]) -> Process {
        let process = self.start(name, words);
        process.wait_for_output("scot: ready", PATIENCE).expect("it serves");
        process
    }

    fn connect(&self) -> Connection {
        Connection::open(self.clients, PATIENCE).expect("the sidecar listens")
    }

    fn get(&self, path: &str) -> String {
        get(self.metrics, path)
    }

    fn count_of(&self, name: &str) -> u64 {
        count_in(&self.get("/metrics"), name)
    }
}

fn get(metrics: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(metrics).expect("metrics are served");
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    if path == "/metrics" {
        assert_eq!(prometheus::faults(body(&text)), Vec::<String>::new());
    }
    text
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or(answer, |(_, body)| body)
}

fn count_in(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Waits until the server's file has all that it has answered: without a device it answers before. What it says
/// of itself may be older than its last answer, unless it has received something since it was asked.
fn await_stable(metrics: SocketAddr, connection: &mut Connection) {
    let received = |text: &str| count_in(text, "scotfree_server_datagrams_received_total");
    let before = received(&get(metrics, "/metrics"));
    connection.call(&["LLEN", "l"]).expect("a reply");
    let is_stable = || {
        let text = get(metrics, "/metrics");
        received(&text) > before && count_in(&text, "scotfree_server_unstable") == 0
    };
    assert!(wait_until(PATIENCE, is_stable), "{}", get(metrics, "/metrics"));
}

fn stop(process: &Process) {
    let status = process.stop(PATIENCE).expect("it has ended");
    assert!(status.success(), "{status}: {}", process.error_output());
}

/// What callers have sent is nobody else's to read.
fn is_private(log: &Path) -> bool {
    fs::metadata(log).expect("it is there").permissions().mode() & 0o777 == 0o600
}

#[test]
fn a_client_is_served_traced_reloaded_and_drained() {
    let world = World::new("daemons");
    world.write_config("trace = \"trace.jsonl\"\n");
    let kv = world.serve("kv", &["kv"]);
    let sidecar = world.serve("client", &["sidecar", "client"]);
    assert!(sidecar.output().contains(&world.clients.to_string()), "{}", sidecar.output());
    let mut connection = world.connect();
    assert_eq!(connection.call(&["SET", "a", "1"]).expect("a reply"), Reply::Simple("OK".into()));
    assert_eq!(connection.call(&["GET", "a"]).expect("a reply"), Reply::Bulk(b"1".to_vec()));
    assert!(wait_until(PATIENCE, || world.get("/healthz").contains("200 OK")));
    assert!(wait_until(PATIENCE, || world.count_of("scotfree_front_commands_total") == 2));
    assert_eq!(world.count_of("scotfree_front_early_total"), 0);

    // What can be taken over is, for new connections; the rest is named.
    world.write_config("trace = \"other.jsonl\"\nmode = \"early\"\n");
    sidecar.signal("HUP");
    sidecar.wait_for_output("reloaded: mode", PATIENCE).expect("it says what it took over");
    sidecar.wait_for_output("not reloaded, restart to take over: trace", PATIENCE).expect("and what not");
    // What needs a restart is said until there is one.
    let count = |what: &str| sidecar.error_output().matches(what).count();
    sidecar.signal("HUP");
    assert!(wait_until(PATIENCE, || count("restart to take over: trace") == 2), "{}", sidecar.error_output());
    assert_eq!(count("reloaded: mode"), 1, "{}", sidecar.error_output());
    let mut early = world.connect();
    assert_eq!(early.call(&["SET", "b", "2"]).expect("a reply"), Reply::Simple("OK".into()));
    assert!(wait_until(PATIENCE, || world.count_of("scotfree_front_early_total") == 1));
    fs::write(world.folder.path().join("scot.toml"), "[client]\nmode = 1\n").expect("it can be written");
    sidecar.signal("HUP");
    sidecar.wait_for_output("not reloaded: scot.toml:2", PATIENCE).expect("a wrong file changes nothing");

    stop(&sidecar);
    stop(&kv);
    let report = world.start("tax", &["tax", "report", "trace.jsonl"]);
    assert!(report.wait(PATIENCE).is_some_and(|status| status.success()), "{}", report.error_output());
    assert!(report.output().contains("SET"), "{}", report.output());
    let verify = world.start("verify", &["log", "verify", "kv.wal"]);
    assert!(verify.wait(PATIENCE).is_some_and(|status| status.success()), "{}", verify.error_output());
    assert!(verify.output().contains("every record holds"), "{}", verify.output());
    let list = world.start("ls", &["log", "ls", "kv.wal"]);
    assert_eq!(list.wait(PATIENCE).and_then(|status| status.code()), Some(1));
    assert!(list.error_output().contains("the log of a `scot kv`"), "{}", list.error_output());
}

#[test]
fn prometheus_takes_what_daemons_say() {
    let world = World::new("prometheus");
    world.write_config("");
    let metrics = free_address();
    let kv = world.serve("kv", &["kv", "--metrics", &metrics.to_string()]);
    let client = world.serve("client", &["sidecar", "client"]);
    for at in [metrics, world.metrics] {
        assert!(wait_until(PATIENCE, || get(at, "/healthz").contains("200 OK")));
        prometheus::check_by_promtool(body(&get(at, "/metrics")));
    }
    // It has recovered, and says how long that took.
    assert!(get(metrics, "/metrics").contains("scotfree_server_recovery_seconds "));
    stop(&client);
    stop(&kv);
}

#[test]
fn a_metric_that_prometheus_would_not_take_is_seen() {
    let page = |name: &str, kind: &str| format!("# HELP {name} Something.\n# TYPE {name} {kind}\n{name} 1\n");
    assert!(prometheus::faults(&page("scotfree_answers_total", "counter")).is_empty());
    for (name, kind) in [
        ("scotfree_server_recovery_us", "gauge"),
        ("scotfree_answers", "counter"),
        ("scotfree_open_total", "gauge"),
        ("scotfree_open_gauge", "gauge"),
        ("scotfree_Open", "gauge"),
    ] {
        assert_eq!(prometheus::faults(&page(name, kind)).len(), 1, "{name}");
    }
    let undeclared = page("scotfree_open", "gauge") + "scotfree_shut 1\n";
    assert_eq!(prometheus::faults(&undeclared), ["scotfree_shut 1 is no sample of scotfree_open"]);
    assert_eq!(prometheus::faults("# TYPE scotfree_open gauge\n"), ["scotfree_open no help text"]);
    let histogram = |few: u64, all: u64, count: u64| {
        page("x_seconds", "histogram").replace("x_seconds 1\n", "")
            + &format!(
                "x_seconds_bucket{{le=\"1.0\"}} {few}\nx_seconds_bucket{{le=\"+Inf\"}} {all}\nx_seconds_sum 1.5\n\
                 x_seconds_count {count}\n"
            )
    };
    assert!(prometheus::faults(&histogram(1, 2, 2)).is_empty());
    for wrong in [histogram(3, 2, 2), histogram(1, 2, 1), histogram(1, 2, 2).replace("+Inf", "2.0")] {
        assert_eq!(prometheus::faults(&wrong).len(), 1, "{wrong}");
    }
    assert_eq!(prometheus::faults(&histogram(1, 2, 2).replace("_seconds", "_time")).len(), 1);
    let open = "# TYPE x counter\nx_total 1\n# TYPE y_total unknown\ny_total 1\n# TYPE y gauge\ny 1\n# EOF\n";
    assert!(prometheus::open_faults(open).is_empty());
    for (from, to) in
        [("x counter", "x_total counter"), ("x_total", "x"), ("y gauge", "x gauge"), ("# EOF\n", "")]
    {
        assert!(!prometheus::open_faults(&open.replace(from, to)).is_empty(), "{from} {to}");
    }
}

#[test]
fn the_clusters_key_is_rotated_under_clients() {
    let world = World::new("rotation");
    world.write_config("");
    let kv = world.serve("kv", &["kv"]);
    let sidecar = world.serve("client", &["sidecar", "client"]);
    let daemons = [&kv, &sidecar];
    let change_key = |command: &str, said: &str| {
        let done = world.start(command, &["key", command, "key"]);
        assert!(done.wait(PATIENCE).is_some_and(|status| status.success()), "{}", done.error_output());
        assert!(done.output().contains(said), "{}", done.output());
        for daemon in daemons {
            daemon.signal("HUP");
            daemon.wait_for_output(said, PATIENCE).expect("it says what it took over");
        }
    };
    let set = |connection: &mut Connection, value: &str| connection.call(&["SET", "a", value]);
    let done = || Reply::Simple("OK".into());
    let mut old = world.connect();
    assert_eq!(set(&mut old, "1").expect("a reply"), done());

    // A session keeps the epoch of its opening as long as the file has it.
    change_key("rotate", "epochs 0, 1; new sessions get 1");
    assert_eq!(set(&mut old, "2").expect("a reply"), done());
    let mut new = world.connect();
    assert_eq!(set(&mut new, "3").expect("a reply"), done());

    change_key("retire", "epochs 1; new sessions get 1");
    assert!(wait_until(PATIENCE, || set(&mut old, "4").is_err()), "its session has ended");
    // Of what the old one sent while its session ended the outcome is not known.
    let found = new.call(&["GET", "a"]).expect("the new one's goes on");
    assert!([&b"3"[..], b"4"].map(|value| Reply::Bulk(value.to_vec())).contains(&found), "{found:?}");
    let mut newest = world.connect();
    assert_eq!(set(&mut newest, "5").expect("a reply"), done());

    let file = fs::read_to_string(world.folder.path().join("key")).expect("it is there");
    let secret = file.split_whitespace().nth(1).expect("the secret follows its epoch");
    let said = daemons.map(|daemon| daemon.output() + &daemon.error_output()).concat();
    assert!(!said.contains(&secret[..8]), "a secret is in a log");
    stop(&sidecar);
    stop(&kv);
}

#[test]
fn a_collector_that_is_not_there_is_said_at_once_and_counted() {
    let world = World::new("collector");
    let collector = free_address();
    world.write_config(&format!("trace = \"http://{collector}\"\n"));
    let kv = world.serve("kv", &["kv"]);
    let sidecar = world.serve("client", &["sidecar", "client"]);
    let set = world.connect().call(&["SET", "a", "1"]);
    assert_eq!(set.expect("a reply"), Reply::Simple("OK".into()));
    sidecar.wait_for_output("ALARM: call records cannot be written", PATIENCE).expect("while it runs");
    assert!(sidecar.error_output().contains(&collector.to_string()), "{}", sidecar.error_output());
    assert!(world.count_of("scotfree_trace_recorded_total") >= 1);
    assert!(wait_until(PATIENCE, || world.count_of("scotfree_trace_lost_total{why=\"refused\"}") >= 1));
    stop(&sidecar);
    stop(&kv);
}

#[test]
fn a_drained_server_has_kept_everything() {
    let world = World::new("daemons-drain");
    world.write_config("");
    let kv = world.serve("kv", &["kv"]);
    let sidecar = world.serve("client", &["sidecar", "client"]);
    let mut connection = world.connect();
    for count in 1..=50 {
        let reply = connection.call(&["RPUSH", "l", "x"]).expect("a reply");
        assert_eq!(reply, Reply::Integer(count));
    }
    assert!(is_private(&world.folder.path().join("kv.wal")));
    stop(&kv);
    let kv = world.serve("kv-again", &["kv"]);
    // The open connection goes on, and new ones find what there is.
    for connection in [&mut connection, &mut world.connect()] {
        let Reply::Array(items) = connection.call(&["LRANGE", "l", "0", "-1"]).expect("a reply") else {
            panic!("a list is an array");
        };
        assert_eq!(items.len(), 50);
    }
    stop(&sidecar);
    stop(&kv);
}

#[test]
fn a_killed_server_comes_back_with_every_other_structure() {
    let world = World::new("daemons-index");
    world.write_config("");
    let structures = ["skiplist", "rbtree", "btree", "ctree", "hash"];
    let metrics = free_address();
    let listen = metrics.to_string();
    let serve = |structure| world.serve(structure, &["kv", "--index", structure, "--metrics", &listen]);
    let mut kv = serve("hash");
    let sidecar = world.serve("client", &["sidecar", "client"]);
    let mut connection = world.connect();
    let mut pushed = 0;
    for structure in structures {
        for _ in 0..20 {
            pushed += 1;
            let reply = connection.call(&["RPUSH", "l", "x"]).expect("a reply");
            assert_eq!(reply, Reply::Integer(pushed), "before {structure}");
        }
        await_stable(metrics, &mut connection);
        kv.signal("KILL");
        assert!(kv.wait(PATIENCE).is_some_and(|status| !status.success()));
        kv = serve(structure);
        assert!(kv.error_output().contains(&format!("index {structure};")), "{}", kv.error_output());
    }
    let reply = connection.call(&["RPUSH", "l", "x"]).expect("a reply");
    assert_eq!(reply, Reply::Integer(pushed + 1));
    stop(&sidecar);
    stop(&kv);
}

#[test]
fn a_client_whose_server_is_not_there_says_so_and_waits_for_it() {
    let world = World::new("daemons-early");
    world.write_config("");
    let words = ["sidecar", "client", "--log-level", "alarms", "--mode", "covered"];
    let sidecar = world.start("client", &words);
    let said = format!("scot sidecar client: ALARM: nothing answers at {}", world.server);
    sidecar.wait_for_output(&said, PATIENCE).expect("it says that it waits, through the daemon's messages");
    let kv = world.serve("kv", &["kv"]);
    sidecar.wait_for_output("scot: ready", PATIENCE).expect("it has gone on trying");
    stop(&sidecar);
    stop(&kv);
}

#[test]
fn a_server_goes_on_without_a_device_that_is_excluded_and_only_then() {
    let world = World::new("exclude");
    let nobody = free_address();
    world.write_config("");
    let device = format!("7={nobody}");
    let metrics = world.metrics.to_string();
    let waiting = world.start("waiting", &["kv", "--device", &device, "--metrics", &metrics]);
    waiting.wait_for_port(Socket::Tcp, world.metrics.port(), PATIENCE).expect("it says how it is");
    let waits = || world.get("/healthz").contains("waiting for the devices");
    assert!(wait_until(PATIENCE, waits), "{}", world.get("/healthz"));
    let config = world.folder.path().join("scot.toml");
    let without = fs::read_to_string(&config).expect("it was written");
    fs::write(&config, without.replace("[kv]\n", "[kv]\nexclude = [7]\n")).expect("it can be written");
    waiting.signal("HUP");
    waiting.wait_for_output("device 7 is excluded", PATIENCE).expect("the operator has said so");
    waiting.wait_for_output("scot: ready", PATIENCE).expect("nobody else is waited for");
    assert!(waiting.error_output().contains("reloaded: exclude"), "{}", waiting.error_output());
    world.write_config("");
    waiting.signal("HUP");
    waiting.wait_for_output("restart to take over: exclude", PATIENCE).expect("it has missed updates");
    stop(&waiting);
    let refused = world.start("refused", &["kv", "--device", &device, "--exclude", "8"]);
    assert!(refused.wait(PATIENCE).is_some_and(|status| !status.success()));
    assert!(refused.error_output().contains("device 8 cannot be excluded"), "{}", refused.error_output());
    let server = world.serve("server", &["kv", "--device", &device, "--exclude", "7"]);
    assert!(server.error_output().contains("device 7 is excluded"), "{}", server.error_output());
}

#[test]
fn two_servers_do_not_share_a_file_or_a_port() {
    let world = World::new("daemons-two");
    world.write_config("");
    let kv = world.serve("kv", &["kv"]);
    let other = free_address().to_string();
    let second = world.start("second", &["kv", "--listen", &other]);
    assert_eq!(second.wait(PATIENCE).and_then(|status| status.code()), Some(3));
    assert!(
        second.error_output().contains(&format!("in use by process {}", kv.pid())),
        "{}",
        second.error_output()
    );
    let third = world.start("third", &["kv", "--log", "other.wal"]);
    assert_eq!(third.wait(PATIENCE).and_then(|status| status.code()), Some(3));
    assert!(third.error_output().contains(&world.server.to_string()), "{}", third.error_output());
    stop(&kv);
}

#[test]
fn a_device_takes_over_faults_on_purpose_and_names_the_rest() {
    if access() != Access::Direct {
        eprintln!("SKIP: this test needs a namespace for the device: run it as root");
        return;
    }
    let folder = Scratch::new("daemons-switch").expect("temporary files can be written");
    let text = include_str!("../../../lab/topologies/one-device.toml").replace("one-device", "t-cli-switch");
    let topology = Topology::parse(&Source::from_text("t.toml", text)).expect("it is a topology");
    let lab = Lab::up(&topology, folder.path()).expect("it comes up");
    let write = |settings: &str| {
        let log = folder.path().join("ram.log");
        let text = format!(
            "[cluster]\nkey_file = \"key\"\n[switch]\nports = [\"client0\", \"server0\"]\n\
             address = \"10.77.0.254\"\nserver = \"10.77.0.2\"\ndevice_id = 1\nwindow_max = 64\n\
             log = [\"ram:{}:16M\"]\n{settings}",
            log.display()
        );
        fs::write(folder.path().join("scot.toml"), text).expect("temporary files can be written");
    };
    let scot = |words: &[&str]| {
        let mut spec = ProcessSpec::new(words[0], env!("CARGO_BIN_EXE_scot"), folder.path()).args(words);
        spec.working_folder = Some(folder.path().to_owned());
        lab.spawn("device", &spec).expect("the command runs")
    };
    assert!(scot(&["key", "new", "key"]).wait(PATIENCE).is_some_and(|status| status.success()));
    write("loss = 0.5\nmetrics = \"127.0.0.1:9102\"\n");
    let switch = scot(&["switch"]);
    switch.wait_for_output("scot: ready switch 10.77.0.254:51000", PATIENCE).expect("it serves");
    let ask = "exec 3<>/dev/tcp/127.0.0.1/9102; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    let answer = lab.run("device", "bash", ["-c", ask]).expect("it answers");
    assert!(answer.contains("scotfree_device_leased "), "{answer}");
    assert_eq!(prometheus::faults(body(&answer)), Vec::<String>::new());
    prometheus::check_by_promtool(body(&answer));
    let ask_open = ask.replace("HTTP/1.0", "HTTP/1.0\\r\\nAccept: application/openmetrics-text");
    let open = lab.run("device", "bash", ["-c", &ask_open]).expect("it answers");
    assert_eq!(prometheus::open_faults(body(&open)), Vec::<String>::new());
    assert!(is_private(&folder.path().join("ram.log")));
    let second = scot(&["switch", "--metrics", "127.0.0.1:9101"]);
    assert_eq!(second.wait(PATIENCE).and_then(|status| status.code()), Some(3));
    let said = second.error_output();
    assert!(said.contains(&format!("in use by process {}", switch.pid())), "{said}");
    let pmem = scot(&["switch", "--log", "pmem:pmem.log", "--metrics", "127.0.0.1:9103"]);
    assert_eq!(
        pmem.wait(PATIENCE).and_then(|status| status.code()),
        Some(3),
        "no DAX where temporary files are"
    );
    assert!(pmem.error_output().contains("MAP_SYNC"), "{}", pmem.error_output());
    assert!(!folder.path().join("pmem.log").exists());
    write("loss = 1.5\ndelay_us = 100\nhead = false\nmetrics = \"127.0.0.1:9100\"\n");
    switch.signal("HUP");
    switch.wait_for_output("reloaded: delay_us, loss", PATIENCE).expect("it says what it took over");
    switch.wait_for_output("restart to take over: head, metrics", PATIENCE).expect("and what not");
    write("loss = 101.0\n");
    switch.signal("HUP");
    switch
        .wait_for_output("not reloaded: scot.toml:10: [switch] loss: 101", PATIENCE)
        .expect("it names the key");
    let in_use = scot(&["log", "export", "ram.log", "--to", "entries.jsonl"]);
    assert_eq!(in_use.wait(PATIENCE).and_then(|status| status.code()), Some(3));
    assert!(in_use.error_output().contains(&format!("in use by process {}", switch.pid())));
    assert!(!folder.path().join("entries.jsonl").exists());
    stop(&switch);
    let export = scot(&["log", "export", "ram.log", "--to", "entries.jsonl"]);
    assert!(export.wait(PATIENCE).is_some_and(|status| status.success()), "{}", export.error_output());
    assert_eq!(
        fs::read(folder.path().join("entries.jsonl")).expect("it is there"),
        b"",
        "nothing was logged"
    );
    let ls = scot(&["log", "ls", "ram.log"]);
    assert!(ls.wait(PATIENCE).is_some_and(|status| status.success()), "{}", ls.error_output());
    assert!(ls.output().contains("ram log of device 1"), "{}", ls.output());
    lab.remove().expect("it goes");
}
