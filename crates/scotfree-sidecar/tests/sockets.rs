//! What clients do to a connection, over real sockets: the same bytes to Redis itself and through both
//! sidecars, and the same bytes back. Each script is run twice by us:
//! once to its end, once by a client that shuts down its writing side and still wants its replies.

mod support;

use scotfree_resp::codec::{write_command, Command};
use std::io::{Read, Write};
use std::net::Shutdown;
use support::pair::Pair;
use support::{text, RedisServer};

const PERSISTENT: &[&str] = &["--appendonly yes", "--appendfsync everysec"];

/// Ends a script so that the end is known by the connection's.
const END: &[u8] = b"\r\nRESET\r\nQUIT\r\n";

/// A stream of commands.
#[derive(Default)]
struct Script(Vec<u8>);

impl Script {
    fn line(mut self, line: &str) -> Script {
        self.0.extend_from_slice(line.as_bytes());
        self.0.extend_from_slice(b"\r\n");
        self
    }

    fn command(mut self, words: &[&[u8]]) -> Script {
        write_command(&mut self.0, Command::new(words).args());
        self
    }
}

fn script() -> Script {
    Script::default()
}

/// A thousand commands of all classes, in every order that a small generator finds.
fn mixed(count: usize, seed: u32) -> Script {
    let commands = [
        "SET k:# #",
        "GET k:#",
        "INCR n:#",
        "LPUSH l:# #",
        "LRANGE l:# 0 -1",
        "SADD s:# #",
        "SPOP s:# 9",
        "HSET h:# f #",
        "HGETALL h:#",
        "ZADD z:# # m",
        "ZSCORE z:# m",
        "APPEND k:# x",
        "DEL k:#",
        "PING",
        "ECHO #",
        "SELECT #",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH k:#",
        "UNWATCH",
        "EXPIRE k:# 1000",
        "TYPE k:#",
        "EVAL \"return 1\" 0",
        "NOSUCH #",
        "GET",
        "INCR k:#",
        "MSET a # b #",
        "SETEX k:# 1000 v",
        "GETDEL k:#",
        "EXISTS k:# n:#",
        "STRLEN k:#",
        "SETRANGE k:# 3 #",
        "LPOP l:# 2",
        "RPOPLPUSH l:# l:#",
    ];
    let mut state = seed;
    let mut next = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    (0..count).fold(script(), |script, _| {
        let line = commands[next(commands.len())].replace('#', &next(4).to_string());
        script.line(&line)
    })
}

fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let large: Vec<u8> = (0..10 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let half: Vec<u8> = vec![b'h'; 512 << 10];
    let binary: &[u8] = b"\0\r\n\xff$3\r\n*1\r\n";
    let kept: Vec<u8> = vec![b'k'; 8 << 10];
    let many = script().command(&[b"SET", b"many", &kept]);
    let gets = script().command(&[b"SET", b"half", &half]);
    vec![
        ("one reply", script().line("PING").0),
        ("nothing", Vec::new()),
        ("mixed 1", mixed(1_000, 1).0),
        ("mixed 2", mixed(1_000, 2).0),
        ("mixed 3", script().line("HELLO 3").0.into_iter().chain(mixed(1_000, 3).0).collect()),
        (
            "large values",
            script().command(&[b"SET", b"k", &large]).line("STRLEN k").line("GET k").line("PING").0,
        ),
        (
            "large members",
            script().command(&[b"RPUSH", b"l", &large, b"x"]).line("LRANGE l 0 -1").line("DEL l").0,
        ),
        (
            "binary keys",
            script()
                .command(&[b"SET", binary, binary])
                .command(&[b"GET", binary])
                .command(&[b"HSET", b"h", binary, b""])
                .line("HGETALL h")
                .line("DBSIZE")
                .command(&[b"ECHO", b""])
                .command(&[b"SET", b"", b"empty"])
                .command(&[b"GET", b""])
                .0,
        ),
        (
            "inline",
            b"  set a  \"b c\"  \nget a\n\n\r\n  \r\nGET 'a'\r\nset \"\\x00\" '\\''\r\nget \"\\x00\"\r\n"
                .to_vec(),
        ),
        ("more output than is kept", (0..40).fold(gets, |script, _| script.line("GET half")).line("PING").0),
        (
            "more replies than are kept",
            (0..2_000).fold(many, |script, _| script.line("GET many")).line("PING").0,
        ),
        (
            "replies off",
            script().line("CLIENT REPLY OFF").line("SET a 1").line("CLIENT REPLY ON").line("GET a").0,
        ),
        ("replies off to the end", script().line("CLIENT REPLY OFF").line("SET a 1").line("INCR a").0),
        (
            "skipped",
            script()
                .line("CLIENT REPLY SKIP")
                .line("SET a 1")
                .line("CLIENT REPLY SKIP")
                .line("GET a")
                .line("GET a")
                .0,
        ),
        (
            "watch",
            script()
                .line("WATCH a")
                .line("SET a 1")
                .line("MULTI")
                .line("SET a 2")
                .line("EXEC")
                .line("GET a")
                .0,
        ),
        (
            "watch in RESP3",
            script()
                .line("HELLO 3")
                .line("WATCH a")
                .line("SET a 1")
                .line("MULTI")
                .line("EXEC")
                .line("GET b")
                .0,
        ),
        (
            "a wrong password",
            script().line("AUTH x").line("AUTH a b").line("HELLO 3 AUTH default x").line("PING").0,
        ),
        (
            "databases",
            script()
                .line("SELECT 3")
                .line("SET a 3")
                .line("MOVE a 4")
                .line("SELECT 4")
                .line("GET a")
                .line("SELECT 99")
                .0,
        ),
        ("a protocol error behind replies", b"GET a\r\n*1\r\n$x\r\nPING\r\n".to_vec()),
        ("an unfinished transaction", script().line("MULTI").line("SET a 1").0),
        ("quit", script().line("SET a 1").line("QUIT").line("SET a 2").0),
        (
            "debug types",
            ["string", "integer", "double", "null", "array", "set", "map", "verbatim", "true", "false"]
                .iter()
                .fold(script().line("HELLO 3"), |script, kind| script.line(&format!("DEBUG PROTOCOL {kind}")))
                .0,
        ),
        (
            "set order",
            script()
                .line("HELLO 3")
                .line("SADD s 1 2 3")
                .line("SMEMBERS s")
                .line("ZADD z 1 a 2.5 b")
                .line("ZRANGE z 0 -1 WITHSCORES")
                .line("CONFIG GET maxmemory")
                .0,
        ),
    ]
}

/// Sends from a thread of its own, so that neither side waits for the other's buffers, and ends the
/// writing side; everything that comes back.
fn exchange<S: Read + Write + Send>(
    mut reader: S,
    mut writer: S,
    end: impl FnOnce() + Send,
    bytes: &[u8],
) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A server that has hung up takes no more.
            if writer.write_all(bytes).is_ok() {
                end();
            }
        });
        let mut all = Vec::new();
        if let Err(error) = reader.read_to_end(&mut all) {
            // What has come so far says where it stopped.
            all.extend_from_slice(format!("<{error}>").as_bytes());
        }
        all
    })
}

fn clean(pair: &Pair) {
    support::pair::talk(&mut pair.connect(), b"FLUSHALL\r\n", b"+OK\r\n");
}

/// Redis forgets what it has not sent when a client has said its last; we do not. So what comes then is
/// what Redis says before the end of the script.
fn is_all_but_the_end(redis: &[u8], ours: &[u8]) -> bool {
    let end = b"+RESET\r\n+OK\r\n";
    ours == redis.strip_suffix(end).unwrap_or(redis)
}

/// HELLO names the connection.
fn masked(bytes: &[u8]) -> Vec<u8> {
    let mark = b"$2\r\nid\r\n:";
    match bytes.windows(mark.len()).position(|window| window == mark) {
        None => bytes.to_vec(),
        Some(at) => {
            let rest = &bytes[at + mark.len()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            [&bytes[..at + mark.len()], b"#", &masked(&rest[digits..])].concat()
        }
    }
}

fn shortened(bytes: &[u8]) -> String {
    let text = text(&bytes[..bytes.len().min(300)]);
    format!("{} bytes: {text}", bytes.len())
}

/// Where they begin to differ, with a little before it.
fn difference(redis: &[u8], ours: &[u8]) -> String {
    let at =
        redis.iter().zip(ours).position(|(one, other)| one != other).unwrap_or(redis.len().min(ours.len()));
    let from = at.saturating_sub(100);
    format!("at {at}:\n  redis: {}\n  ours:  {}", shortened(&redis[from..]), shortened(&ours[from..]))
}

/// Redis carries these out inside a transaction; here they make the connection a tunnel at EXEC.
const SUBSCRIBING: [&str; 7] = [
    "MULTI\r\nSUBSCRIBE a b\r\nSET k v\r\nEXEC\r\nPING\r\nGET k\r\nUNSUBSCRIBE a b\r\nGET k\r\n",
    "HELLO 3\r\nMULTI\r\nSUBSCRIBE a\r\nSET k v\r\nEXEC\r\nPING\r\nGET k\r\n",
    "MULTI\r\nUNSUBSCRIBE\r\nPSUBSCRIBE x*\r\nSSUBSCRIBE q\r\nMONITOR\r\nPING\r\nEXEC\r\nGET k\r\n",
    "SELECT 3\r\nSET k 3\r\nMULTI\r\nUNSUBSCRIBE\r\nGET k\r\nEXEC\r\nGET k\r\n",
    "CLIENT REPLY OFF\r\nSET k 1\r\nMULTI\r\nUNSUBSCRIBE\r\nEXEC\r\nCLIENT REPLY ON\r\nGET k\r\n",
    "MULTI\r\nSUBSCRIBE a\r\nNOSUCH\r\nEXEC\r\nGET k\r\n",
    "MULTI\r\nSUBSCRIBE a\r\nDISCARD\r\nGET k\r\n",
];

#[test]
fn what_subscribes_inside_a_transaction_does_so_at_exec() {
    let Some(plain) = RedisServer::start(&[]) else { return };
    let Some(behind) = RedisServer::start(PERSISTENT) else { return };
    let pair = Pair::start(&behind);
    for script in SUBSCRIBING {
        plain.connect().line("FLUSHALL");
        clean(&pair);
        let whole = [script.as_bytes(), END].concat();
        let stream = plain.connect().into_stream();
        let redis = exchange(&stream, &stream, || (), &whole);
        let stream = pair.connect();
        let ours = exchange(&stream, &stream, || (), &whole);
        assert_eq!(text(&masked(&ours)), text(&masked(&redis)), "{script}");
    }
    let mut watching = pair.connect();
    support::pair::talk(
        &mut watching,
        b"WATCH k\r\nMULTI\r\nSUBSCRIBE a\r\n",
        b"+OK\r\n+OK\r\n-ERR scotfree: SUBSCRIBE inside MULTI is not supported behind WATCH",
    );
    drop(watching);
    assert_eq!(pair.end().counters.tunnels, 5);
}

#[test]
fn the_same_bytes_come_back_as_from_redis_after_the_client_has_said_its_last() {
    let Some(plain) = RedisServer::start(&[]) else { return };
    let Some(behind) = RedisServer::start(PERSISTENT) else { return };
    let pair = Pair::start(&behind);
    let mut found = Vec::new();
    for (name, bytes) in scripts() {
        plain.connect().line("FLUSHALL");
        let whole = [&bytes, END].concat();
        let stream = plain.connect().into_stream();
        let redis = exchange(&stream, &stream, || (), &whole);
        clean(&pair);
        let stream = pair.connect();
        let ours = exchange(&stream, &stream, || (), &whole);
        if masked(&redis) != masked(&ours) {
            found.push(format!("{name} {}", difference(&masked(&redis), &masked(&ours))));
        }
        clean(&pair);
        let stream = pair.connect();
        let half_closed = || stream.shutdown(Shutdown::Write).expect("it is open");
        let ours = exchange(&stream, &stream, half_closed, &bytes);
        if !is_all_but_the_end(&masked(&redis), &masked(&ours)) {
            found.push(format!("half-closed: {name} {}", difference(&masked(&redis), &masked(&ours))));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let left = pair.end();
    assert_eq!((left.counters.tunnels, left.counters.over_limit), (0, 0));
}
