//! Reads of a real Redis that a device answers: client's sidecar, device with `cache` and `persist`, server's sidecar.
//! Whatever changes a value, however, nobody is answered with what was there before.
//! That is the strict guarantee of docs/cache.md.
#![cfg(feature = "lab")]

mod wires;

use scotfree_stage::kernel_plane::try_programs;
use scotfree_stage::netns::{access, Access};
use scotfree_stage::process::{wait_until, Process, ProcessSpec};
use scotfree_stage::resp::{Connection, Place, Reply};
use scotfree_stage::worker::metrics::{read, MetricsSpec};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use wires::{require_inside, run, Wires, PATIENCE, SCOT};

const METRICS: &str = "127.0.0.1:9102";
/// Where the client's sidecar listens, on a cable of its own to where the test runs.
const CLIENTS: &str = "10.78.0.2:6379";
const WRITES: u64 = 3_000;

/// What says which plane the device of a test has.
const PLANE: &str = "PLANE_OF_TEST";

/// Runs a test of this file in namespaces of its own, with a device in either plane.
fn run_in_namespaces(test: &str) {
    if access() != Access::Direct {
        return eprintln!("SKIP: this test needs namespaces: run it as root");
    }
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        return eprintln!("SKIP: redis-server is not installed: apt-get install redis-server");
    }
    for plane in ["user", "xdp"] {
        if let (Err(trouble), "xdp") = (try_programs(), plane) {
            eprintln!("SKIP: the plane in the kernel: {trouble}");
            continue;
        }
        require_inside(&["unshare", "-nm"], test, &[(PLANE, plane)]);
    }
}

fn is_in_kernel() -> bool {
    std::env::var(PLANE).is_ok_and(|plane| plane == "xdp")
}

/// A folder of a BPF file system of the test's own.
fn pin(wires: &Wires) -> String {
    let place = path(wires, "bpf");
    std::fs::create_dir(&place).expect("it can be made");
    run("mount", &["-t", "bpf", "bpf", &place]);
    format!("{place}/device")
}

/// All that stands between a client and its Redis.
struct World {
    wires: Wires,
    redis: Option<Process>,
    server: Option<Process>,
    _switch: Process,
    _client: Process,
}

impl World {
    fn up(more: &[&str]) -> World {
        let wires = Wires::up();
        run(
            "ip",
            &["link", "add", "clients", "type", "veth", "peer", "name", "eth1", "netns", "scot-client"],
        );
        for (words, address) in [(&["-n", "scot-client"][..], "10.78.0.2/24"), (&[], "10.78.0.1/24")] {
            let device = if words.is_empty() { "clients" } else { "eth1" };
            run("ip", &[words, &["address", "add", address, "dev", device]].concat());
            run("ip", &[words, &["link", "set", device, "up"]].concat());
        }
        let redis = start_redis(&wires);
        let words = ["--metrics", METRICS, "--function", "cache", "--function", "persist"];
        let words = [&words[..], &["--option", "cache.admit_reads=0"]].concat();
        let switch = if is_in_kernel() {
            wires.start_switch(&[&words[..], &["--plane", "xdp", "--pin", &pin(&wires)]].concat())
        } else {
            wires.start_switch(&[&words[..], &["--plane", "user"]].concat())
        };
        let server = start_server(&wires, more);
        let client = ["sidecar", "client", "--listen", CLIENTS, "--server", "10.77.0.2", "--mode", "early"];
        let client = start(&wires, "client", &client);
        World { wires, redis: Some(redis), server: Some(server), _switch: switch, _client: client }
    }

    /// Past scot.
    fn directly(&self) -> Connection {
        Connection::open_at(&Place::Unix(self.wires.file("redis.sock")), PATIENCE).expect("it listens")
    }
}

fn connect() -> Connection {
    Connection::open(CLIENTS.parse().expect("an address"), PATIENCE).expect("the sidecar listens")
}

fn hits() -> u64 {
    count("scotfree_cache_hits_total")
}

/// Reads a key until the device answers it; every answer must be this.
fn warm(reader: &mut Connection, key: &str, value: &str) {
    let before = hits();
    let answered = || {
        assert_eq!(get(reader, key), Some(value.to_owned()));
        hits() > before
    };
    assert!(wait_until(PATIENCE, answered), "the device answers {key}: {:?}", counts());
}

fn counts() -> Vec<(String, u64)> {
    let address: SocketAddr = METRICS.parse().expect("an address");
    let counts = read(&MetricsSpec { address }).expect("it answers");
    counts.into_iter().filter(|(name, _)| name.starts_with("scotfree_cache")).collect()
}

fn count(name: &str) -> u64 {
    counts().into_iter().find(|(known, _)| known == name).map_or(0, |(_, value)| value)
}

fn start(wires: &Wires, host: &str, words: &[&str]) -> Process {
    let (namespace, key) = (format!("scot-{host}"), wires.file("key"));
    let folder = key.parent().expect("it lies in a folder").to_owned();
    let before = ["netns", "exec", &namespace, SCOT];
    let spec = ProcessSpec::new(host, "ip", &folder).args(before).args(words.iter().copied());
    let _ = std::fs::remove_file(wires.file(&format!("{host}.out")));
    let process = wires.supervisor.spawn(&spec.args(["--key-file".into(), key])).expect("it can be started");
    process.wait_for_output("scot: ready", PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
    process
}

fn start_server(wires: &Wires, more: &[&str]) -> Process {
    let (socket, dead) = (format!("unix:{}", path(wires, "redis.sock")), path(wires, "dead.jsonl"));
    let words = ["sidecar", "server", "--listen", "10.77.0.2", "--redis", &socket, "--dead-letters", &dead];
    start(wires, "server", &[&words[..], &["--device", "7=10.77.0.254"], more].concat())
}

fn path(wires: &Wires, name: &str) -> String {
    wires.file(name).to_str().expect("it is plain").to_owned()
}

fn start_redis(wires: &Wires) -> Process {
    let socket: PathBuf = wires.file("redis.sock");
    let _ = std::fs::remove_file(&socket);
    let folder = socket.parent().expect("it lies in a folder").to_owned();
    let words = ["--port", "0", "--unixsocket", "redis.sock", "--save", ""];
    let aof = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let mut spec = ProcessSpec::new("redis", "redis-server", &folder).args(words).args(aof);
    spec.working_folder = Some(folder);
    let redis = wires.supervisor.spawn(&spec).expect("it starts");
    let is_up = || {
        let asked = Connection::open_at(&Place::Unix(socket.clone()), PATIENCE);
        asked.is_ok_and(|mut asked| matches!(asked.call(&["PING"]), Ok(Reply::Simple(_))))
    };
    assert!(wait_until(PATIENCE, is_up), "{}", redis.output());
    redis
}

fn call(connection: &mut Connection, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    connection.call(&words).unwrap_or_else(|trouble| panic!("{line}: {trouble}"))
}

fn get(connection: &mut Connection, key: &str) -> Option<String> {
    match call(connection, &format!("GET {key}")) {
        Reply::Bulk(value) => Some(String::from_utf8(value).expect("it is text")),
        Reply::Null => None,
        other => panic!("GET {key}: {other:?}"),
    }
}

#[test]
fn whatever_changes_a_value_nobody_is_answered_with_what_was_there_before() {
    run_in_namespaces("inside_whatever_changes");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_whatever_changes() {
    let world = World::up(&["--cache-device", "7"]);
    let (mut writer, mut reader) = (connect(), connect());
    // Each finds k = old, answered by the device, and leaves this.
    let changes: [(&[&str], Option<&str>); 17] = [
        (&["SET k new"], Some("new")),
        (&["SET k new PX 90000"], Some("new")),
        (&["SETEX k 90 new"], Some("new")),
        (&["APPEND k er"], Some("older")),
        (&["GETSET k new"], Some("new")),
        (&["DEL k"], None),
        (&["UNLINK other k"], None),
        (&["GETDEL k"], None),
        (&["PEXPIREAT k 1"], None),
        (&["RENAME k other"], None),
        (&["SET other new", "RENAME other k"], Some("new")),
        (&["SET other new", "COPY other k REPLACE"], Some("new")),
        (&["MSET a 1 k new b 2"], Some("new")),
        (&["EVAL return(redis.call('set',KEYS[1],'new')) 1 k"], Some("new")),
        (&["MULTI", "INCR n", "SET k new", "EXEC"], Some("new")),
        (&["SWAPDB 0 1"], None),
        (&["FLUSHALL"], None),
    ];
    for (lines, left) in changes {
        call(&mut writer, "SET k old");
        warm(&mut reader, "k", "old");
        for line in lines {
            let reply = call(&mut writer, line);
            assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        }
        assert_eq!(get(&mut reader, "k").as_deref(), left, "{lines:?}");
        assert_eq!(get(&mut reader, "k").as_deref(), left, "{lines:?}");
        // Programs answer nothing that has an end.
        let has_end = lines.iter().any(|line| line.contains(" PX ") || line.starts_with("SETEX"));
        if let Some(left) = left.filter(|_| !(has_end && is_in_kernel())) {
            warm(&mut reader, "k", left);
        }
    }
    of_any_size(&mut writer, &mut reader);
    expires(&world, &mut writer, &mut reader);
    is_shut_to_tunnels(&mut reader);
}

/// Keys of one type: how `k` and `m` are made, how `k` is read, and what can be done to it because of its type.
struct Kind {
    made: &'static [&'static str],
    reads: &'static [&'static str],
    changes: &'static [&'static str],
}

const KINDS: [Kind; 4] = [
    Kind {
        made: &["SET k value", "SET m other"],
        reads: &[
            "GET k",
            "MGET k",
            "STRLEN k",
            "GETRANGE k 1 3",
            "SUBSTR k 0 1",
            "GETBIT k 7",
            "BITCOUNT k",
            "BITPOS k 1",
            "BITFIELD_RO k GET u8 0",
        ],
        changes: &["APPEND k w", "SETRANGE k 1 w", "SETBIT k 7 0", "BITFIELD k SET u8 0 65", "GETDEL k"],
    },
    // What is counted is kept in the value.
    Kind {
        made: &["PFADD k a b", "PFADD m c"],
        reads: &["GET k", "GETRANGE k 0 15", "BITCOUNT k"],
        changes: &["PFCOUNT k", "MULTI;PFCOUNT k;EXEC", "PFADD k z", "PFMERGE k m"],
    },
    Kind {
        made: &["HSET k f v g w", "HSET m f x"],
        reads: &[
            "HGET k f",
            "HGET k missing",
            "HMGET k f missing",
            "HGETALL k",
            "HKEYS k",
            "HVALS k",
            "HLEN k",
            "HEXISTS k f",
            "HSTRLEN k f",
        ],
        changes: &["HSET k f z", "HDEL k f", "HDEL k f g", "HINCRBY k n 1", "HSETNX k n 1", "HMSET k f y"],
    },
    Kind {
        made: &["SADD k a b", "SADD m b c"],
        reads: &["SMEMBERS k", "SCARD k", "SISMEMBER k a", "SISMEMBER k z", "SMISMEMBER k a z"],
        changes: &["SREM k a", "SPOP k", "SADD k z", "SMOVE k m a", "SMOVE m k c", "SINTERSTORE k k m"],
    },
];

/// What can be done to `k`, whatever it is.
const CHANGES_OF_ALL: [&str; 14] = [
    "DEL k",
    "RENAME k n",
    "RENAME m k",
    "COPY m k REPLACE",
    "MOVE k 1",
    "PEXPIREAT k 1",
    "SET k w",
    "MSET j 1 k w",
    "FLUSHDB",
    "SWAPDB 0 1",
    "RPUSH j b;SORT j ALPHA STORE k",
    "EVAL return(redis.call('del','k')) 0",
    "MULTI;DEL k;EXEC",
    "DEL k;RPUSH l x;BLMOVE l k LEFT LEFT 1",
];

#[test]
fn whole_replies_are_answered_as_the_redis_answers_them_whatever_is_done_to_their_key() {
    run_in_namespaces("inside_whole_replies");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_whole_replies() {
    let world = World::up(&["--cache-device", "7"]);
    let (mut writer, mut directly) = (connect(), world.directly());
    let mut readers = [connect(), connect()];
    for client in [&mut readers[1], &mut directly] {
        call(client, "HELLO 3");
    }
    let mut in_2 = world.directly();
    for kind in &KINDS {
        for change in kind.changes.iter().chain(&CHANGES_OF_ALL) {
            call(&mut writer, "FLUSHALL");
            for line in kind.made {
                call(&mut writer, line);
            }
            warm_all(&mut readers, kind.reads);
            for line in change.split(';') {
                let reply = call(&mut writer, line);
                assert!(!matches!(reply, Reply::Error(_)), "{change}: {reply:?}");
            }
            let said: Vec<[Reply; 2]> =
                kind.reads.iter().map(|read| readers.each_mut().map(|reader| call(reader, read))).collect();
            // A SET may have been acknowledged early: behind this, the Redis has executed it.
            call(&mut writer, "EVAL return(1) 0");
            for (read, said) in kind.reads.iter().zip(said) {
                let expected = [call(&mut in_2, read), call(&mut directly, read)];
                assert_eq!(said, expected, "{change}, {read}");
            }
        }
    }
}

/// Reads until the device answers all of it.
fn warm_all(readers: &mut [Connection; 2], reads: &[&str]) {
    // Programs in the kernel know GETs alone.
    let known = reads.iter().filter(|read| !is_in_kernel() || read.starts_with("GET ")).count();
    let all = (readers.len() * known) as u64;
    let are_known = wait_until(PATIENCE, || {
        let before = hits();
        for reader in &mut *readers {
            for read in reads {
                call(reader, read);
            }
        }
        hits() - before == all
    });
    assert!(are_known, "the device answers {reads:?}: {:?}", counts());
}

/// An answer may be far longer than its request. Where a driver leaves no room for it in the frame the read goes on.
fn of_any_size(writer: &mut Connection, reader: &mut Connection) {
    let before = hits();
    for bytes in [0, 1, 7, 8, 100, 150, 300, 1_000, 1_290, 1_400] {
        let value = "x".repeat(bytes);
        assert!(!matches!(writer.call(&["SET", "sized", &value]), Ok(Reply::Error(_))));
        for _ in 0..5 {
            assert_eq!(get(reader, "sized").as_ref(), Some(&value), "{bytes} bytes");
        }
        if bytes <= 150 {
            warm(reader, "sized", &value);
        }
    }
    assert!(hits() > before + 6);
}

/// What has a life is answered while it lasts, and not when the server has it no longer.
fn expires(world: &World, writer: &mut Connection, reader: &mut Connection) {
    let mut directly = world.directly();
    for _ in 0..3 {
        call(writer, "SET short v PX 400");
        // It was answered early: until the Redis has executed it, it is not there yet.
        let is_there = || call(&mut directly, "EXISTS short") == Reply::Integer(1);
        assert!(wait_until(PATIENCE, is_there), "the Redis executes it");
        let before = hits();
        loop {
            let is_gone = call(&mut directly, "EXISTS short") == Reply::Integer(0);
            let value = get(reader, "short");
            if is_gone {
                assert_eq!(value, None);
                break;
            }
        }
        // Programs answer nothing that has an end.
        assert!(is_in_kernel() || hits() > before, "it was answered by the device while it lasted");
    }
}

/// A connection that tracks goes past the device: it may read and not write.
fn is_shut_to_tunnels(reader: &mut Connection) {
    let mut tracking = connect();
    call(&mut tracking, "SET k old");
    warm(reader, "k", "old");
    call(&mut tracking, "HELLO 3");
    call(&mut tracking, "CLIENT TRACKING ON");
    let refused = call(&mut tracking, "SET k new");
    assert!(matches!(&refused, Reply::Error(text) if text.contains("cache_device")), "{refused:?}");
    assert_eq!(get(&mut tracking, "k").as_deref(), Some("old"));
    assert_eq!(get(reader, "k").as_deref(), Some("old"));
}

#[test]
fn behind_another_start_of_the_server_nothing_is_known() {
    run_in_namespaces("inside_another_start");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_another_start() {
    let mut world = World::up(&["--cache-device", "7"]);
    let (mut writer, mut reader) = (connect(), connect());
    for round in 0..3 {
        call(&mut writer, "SET k old");
        warm(&mut reader, "k", "old");
        if round == 0 {
            // The Redis dies and comes back with its files; what stands before it begins anew.
            world.redis.take().expect("it runs").kill();
            world.redis = Some(start_redis(&world.wires));
            assert_eq!(get(&mut reader, "k").as_deref(), Some("old"));
        } else {
            // Nobody stands before it, and somebody else writes.
            let server = world.server.take().expect("it runs");
            assert!(server.stop(PATIENCE).is_some(), "it ends");
            call(&mut world.directly(), "SET k another");
            world.server = Some(start_server(&world.wires, &["--cache-device", "7"]));
            assert_eq!(get(&mut reader, "k").as_deref(), Some("another"));
        }
        // It answers again.
        call(&mut writer, "SET k fresh");
        warm(&mut reader, "k", "fresh");
    }
}

#[test]
fn a_reader_never_sees_less_than_what_was_acknowledged_or_seen_before() {
    run_in_namespaces("inside_never_less");
}

/// One writes numbers that grow, acknowledged by the device; others read. Between a read's beginning and its end the
/// value was that number, and who asks several things at once gets them in that order.
#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_never_less() {
    let _world = World::up(&["--cache-device", "7"]);
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut writer = connect();
    call(&mut writer, "SET n 0");
    let number = |reply: Reply| match reply {
        Reply::Bulk(text) => String::from_utf8_lossy(&text).parse::<u64>().expect("it is a number"),
        reply => panic!("{reply:?}"),
    };
    std::thread::scope(|scope| {
        // One asks one thing at a time, one asks several; beside that one programs would hardly ever answer.
        for at_once in if is_in_kernel() { vec![1] } else { vec![1, 4] } {
            let (begun, done) = (&begun, &done);
            scope.spawn(move || {
                let (mut reader, mut last) = (connect(), 0);
                while done.load(Ordering::SeqCst) < WRITES {
                    last = done.load(Ordering::SeqCst).max(last);
                    (0..at_once).for_each(|_| reader.push(&["GET", "n"]));
                    reader.flush().expect("it is sent");
                    for _ in 0..at_once {
                        let (least, read) = (last, number(reader.read().expect("it is answered")));
                        let most = begun.load(Ordering::SeqCst);
                        assert!((least..=most).contains(&read), "{read} is not within {least} and {most}");
                        last = read;
                    }
                }
            });
        }
        for next in 1..=WRITES {
            begun.store(next, Ordering::SeqCst);
            // Some are not logged, some have a life, some come with others.
            let line = match next % 7 {
                0 => format!("MSET n {next} m 1"),
                3 => format!("SET n {next} PX 900000"),
                5 => format!("EVAL return(redis.call('set','n','{next}')) 0"),
                _ => format!("SET n {next}"),
            };
            let reply = call(&mut writer, &line);
            assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
            done.store(next, Ordering::SeqCst);
            // Programs answer between writes: a SET has its key asked for again, and what is not logged is under way until it
            // is stable. This was a SET of a value without an end.
            if is_in_kernel() && next % 490 == 1 {
                let before = hits();
                assert!(wait_until(PATIENCE, || hits() > before), "{:?}", counts());
            }
        }
    });
    let answered = hits();
    assert!(answered > 0, "the device has answered some: {:?}", counts());
    let said = run(SCOT, &["cache", "stats", "--metrics", METRICS]);
    assert!(said.starts_with(&format!("answered: {answered} of ")), "{said}");
    println!("{said}");
}

#[test]
fn without_the_servers_word_the_device_answers_nothing() {
    run_in_namespaces("inside_without_word");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_without_word() {
    let _world = World::up(&[]);
    let (mut writer, mut reader) = (connect(), connect());
    call(&mut writer, "SET k v");
    (0..20).for_each(|_| assert_eq!(get(&mut reader, "k").as_deref(), Some("v")));
    assert_eq!((hits(), count("scotfree_cache_fills_total")), (0, 0));
}

#[test]
fn an_operator_asks_what_is_kept_and_why_and_has_it_forgotten() {
    run_in_namespaces("inside_asked");
}

#[test]
#[ignore = "run by another test, in namespaces"]
fn inside_asked() {
    let world = World::up(&["--cache-device", "7"]);
    let (mut writer, mut reader) = (connect(), connect());
    call(&mut writer, "SET k value");
    call(&mut writer, "SELECT 3");
    call(&mut writer, "SET other 1");
    warm(&mut reader, "k", "value");
    let key_file = path(&world.wires, "key");
    let ask = |words: &[&str]| {
        let whom = ["--metrics", METRICS, "--key-file", &key_file];
        let output = std::process::Command::new(SCOT).arg("cache").args(words).args(whom).output();
        let output = output.expect("it is built");
        (output.status.code(), wires::text(&output))
    };
    let (code, said) = ask(&["why", "k"]);
    assert!(code == Some(0) && said.starts_with("server 0: it is answered here: "), "{said}");
    let (_, said) = ask(&["why", "k", "--database", "3"]);
    assert!(said.starts_with("server 0: it is not kept: nothing is known of it"), "{said}");
    let (code, said) = ask(&["ls"]);
    assert!(code == Some(0) && said.lines().any(|line| line.starts_with("k: ")), "{said}");
    let (_, said) = ask(&["ls", "--json"]);
    let kept: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    assert!(kept.as_array().expect("a list").iter().any(|one| one["key"] == "k"), "{said}");

    assert_eq!(ask(&["drop", "k"]), (Some(0), "server 0: forgotten\n".to_owned()));
    assert_eq!(ask(&["drop", "k"]), (Some(1), "server 0: nothing was known of it\n".to_owned()));
    warm(&mut reader, "k", "value");
    let (code, said) = ask(&["drop", "--all"]);
    assert!(code == Some(0) && said.contains("values forgotten"), "{said}");
    let (_, said) = ask(&["ls"]);
    assert!(said.starts_with("nothing is kept"), "{said}");

    // Keys are told to who has the secret alone.
    let other = path(&world.wires, "other.key");
    run(SCOT, &["key", "new", &other]);
    let output = std::process::Command::new(SCOT)
        .args(["cache", "ls", "--metrics", METRICS, "--key-file", &other])
        .output()
        .expect("it is built");
    assert_eq!(output.status.code(), Some(3));
    assert!(wires::text(&output).contains("not signed with this cluster's key"), "{}", wires::text(&output));
}
