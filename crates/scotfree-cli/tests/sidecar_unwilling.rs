//! A Redis behind sidecars that refuses what a device sends again: nothing that was acknowledged is given up for that.

mod site;

use scotfree_stage::config::Source;
use scotfree_stage::netns::{access, Access, Lab};
use scotfree_stage::process::{wait_until, Process, ProcessSpec};
use scotfree_stage::topology::Topology;
use site::{call, Site, PATIENCE, SCOT};
use std::fs;
use std::time::Duration;

/// How long an answer of the device's may take while its lease runs, which ends soon.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// A client's host, a device's and a server's. The Redis is reached at its socket.
struct Wires {
    lab: Lab,
    site: Site,
}

impl Wires {
    /// None where there can be no namespaces, or is no Redis.
    fn up(name: &str) -> Option<Wires> {
        if access() != Access::Direct {
            eprintln!("SKIP: this test needs namespaces that it can enter: run it as root");
            return None;
        }
        let site = Site::new(name)?;
        let text = include_str!("../../../lab/topologies/one-device.toml").replace("one-device", name);
        let topology = Topology::parse(&Source::from_text("t.toml", text)).expect("it is a topology");
        let lab = Lab::up(&topology, &site.file(".")).expect("it comes up");
        let wires = Wires { lab, site };
        let made = wires.spawn("device", "key", SCOT, &["key", "new", "key"]);
        assert!(made.wait(PATIENCE).is_some_and(|status| status.success()), "{}", made.error_output());
        Some(wires)
    }

    fn spawn(&self, host: &str, name: &str, program: &str, words: &[&str]) -> Process {
        let folder = self.site.file(".");
        let mut spec = ProcessSpec::new(name, program, &folder).args(words);
        spec.working_folder = Some(folder);
        for kind in ["out", "err"] {
            // What one before has said is not this one's.
            let _ = fs::remove_file(self.site.file(&format!("{name}.{kind}")));
        }
        self.lab.spawn(host, &spec).expect("the command runs")
    }

    fn start_server(&self) -> Process {
        let words = ["--listen", "10.77.0.2", "--redis", "unix:redis.sock", "--device", "1=10.77.0.254"];
        let files = ["--dead-letters", "dead.jsonl", "--key-file", "key", "--metrics", "127.0.0.1:9102"];
        self.spawn("server", "sidecar", SCOT, &[&["sidecar", "server"][..], &words, &files].concat())
    }

    fn start_switch(&self) -> Process {
        let words = ["switch", "--port", "client0", "--port", "server0", "--log", "ram:ram.log"];
        let whose = ["--server", "10.77.0.2", "--address", "10.77.0.254", "--device-id", "1"];
        self.spawn("device", "switch", SCOT, &[&words[..], &whose, &["--key-file", "key"]].concat())
    }

    fn start_client(&self) -> Process {
        let words = ["--listen", "127.0.0.1:6379", "--server", "10.77.0.2", "--mode", "early"];
        self.spawn(
            "client",
            "client",
            SCOT,
            &[&["sidecar", "client"][..], &words, &["--key-file", "key"]].concat(),
        )
    }

    /// What a client of the sidecar is answered within a time.
    fn ask(&self, line: &str, time: Duration) -> String {
        let words: Vec<&str> = ["-p", "6379"].into_iter().chain(line.split(' ')).collect();
        let asked = self.spawn("client", "asked", "redis-cli", &words);
        asked.wait(time);
        asked.output()
    }

    /// What the server's sidecar says of its health.
    fn health(&self) -> String {
        let script =
            "exec 3<>/dev/tcp/127.0.0.1/9102 && printf 'GET /healthz HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3";
        let asked = self.spawn("server", "health", "bash", &["-c", script]);
        asked.wait(PATIENCE);
        asked.output()
    }

    fn await_health(&self, expected: &str) {
        let mut last = String::new();
        let found = wait_until(PATIENCE, || {
            last = self.health();
            last.contains(expected)
        });
        assert!(found, "{expected}: {last}");
    }

    /// Writes a key that the device acknowledges and the server's sidecar, which stands still, never hears of.
    fn acknowledge_one(&self, server: &Process) -> String {
        // A lease may end in between: then the sidecar renews it, and it is tried anew.
        for attempt in 0..20 {
            let key = format!("k{attempt}");
            assert!(wait_until(PATIENCE, || self.ask("SET w 1", PATIENCE).contains("OK")), "it is served");
            server.signal("STOP");
            if self.ask(&format!("SET {key} v"), ANSWER_TIME).contains("OK") {
                return key;
            }
            server.signal("CONT");
        }
        panic!("the device acknowledges nothing by itself");
    }
}

fn await_said(process: &Process, words: &str) {
    let said = || format!("{}{}", process.output(), process.error_output());
    assert!(wait_until(PATIENCE, || said().contains(words)), "{words}: {}", said());
}

/// What only the device holds is executed when the Redis takes it, and nobody has to start anything again.
fn is_waited_for(name: &str, refuse: &str, take: &str) {
    let Some(wires) = Wires::up(name) else { return };
    let _redis = wires.site.redis(&[]);
    let (switch, server) = (wires.start_switch(), wires.start_server());
    await_said(&switch, "scot: ready");
    await_said(&server, "scot: ready");
    let client = wires.start_client();
    await_said(&client, "scot: ready");
    let key = wires.acknowledge_one(&server);
    server.kill();
    assert!(server.wait(PATIENCE).is_some());

    // The next one may begin; only then the Redis refuses, and the device is there.
    switch.signal("STOP");
    let server = wires.start_server();
    await_said(&server, "connections of predecessors ended");
    let mut direct = wires.site.direct();
    assert_eq!(call(&mut direct, refuse), "OK");
    switch.signal("CONT");
    await_said(&server, "refuses what the log holds and has to be executed anew");
    wires.await_health("takes no writes");
    assert_eq!(call(&mut direct, &format!("EXISTS {key}")), "0");

    assert_eq!(call(&mut direct, take), "OK");
    await_said(&server, "has executed anew what it had refused");
    assert_eq!(call(&mut direct, &format!("GET {key}")), "v");
    wires.await_health("200");
    let letters = fs::read_to_string(wires.site.file("dead.jsonl")).unwrap_or_default();
    assert_eq!(letters, "", "no dead letters");
}

#[test]
fn a_redis_that_lacks_replicas_is_waited_for_with_what_the_device_holds() {
    is_waited_for(
        "t-unwilling-r",
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
    );
}

#[test]
fn a_redis_whose_memory_is_used_up_is_waited_for_with_what_the_device_holds() {
    is_waited_for("t-unwilling-m", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0");
}
