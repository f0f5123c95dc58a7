//! Real sockets all the way: Redis clients over TCP, both sidecars over UDP, a real redis-server behind.

mod support;

use scotfree_resp::codec::{elements, text_of};
use scotfree_resp::front::EarlyRule;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;
use support::pair::{talk, Left, Pair};
use support::{RedisServer, PATIENCE};

#[test]
fn a_client_talks_to_redis_through_both_sidecars() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start(&redis);
    let mut stream = pair.connect();
    talk(&mut stream, b"SET a 1\r\nINCR a\r\nGET a\r\n", b"+OK\r\n:2\r\n$1\r\n2\r\n");
    talk(
        &mut stream,
        b"MULTI\r\nINCR a\r\nSPOP s\r\nEXEC\r\n",
        b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:3\r\n$-1\r\n",
    );
    talk(&mut stream, b"SELECT 15\r\n", b"-ERR scotfree: database 15");
    // A tunnel, and what happens on another connection is seen through it.
    let mut subscriber = pair.connect();
    talk(&mut subscriber, b"SUBSCRIBE c\r\n", b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    let mut publisher = pair.connect();
    talk(&mut publisher, b"PUBLISH c hello\r\n", b":1\r\n");
    talk(
        &mut subscriber,
        b"PING\r\n",
        b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n",
    );
    drop((stream, subscriber, publisher));
    let Left { counters, records, .. } = pair.end();
    assert_eq!(counters.tunnels, 1);
    // SET and INCR came together, and went so.
    for method in ["pack", "EXEC"] {
        assert!(records.iter().any(|record| record.method == method && record.is_complete()), "{method}");
    }
}

#[test]
fn blocking_commands_work_through_a_tunnel_that_keeps_the_connections_state() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start(&redis);
    let mut worker = pair.connect();
    talk(&mut worker, b"SELECT 3\r\nSET a 1\r\n", b"+OK\r\n+OK\r\n");
    worker.write_all(b"BLPOP queue 0\r\nGET a\r\n").expect("it reads");
    let mut other = pair.connect();
    talk(&mut other, b"SELECT 3\r\n", b"+OK\r\n");
    talk(&mut other, b"RPUSH queue job\r\n", b":1\r\n");
    talk(&mut worker, b"", b"*2\r\n$5\r\nqueue\r\n$3\r\njob\r\n$1\r\n1\r\n");
    // Behind the answer the connection takes the usual way again.
    worker.write_all(b"SELECT 15\r\n").expect("it reads");
    let mut said = String::new();
    let mut reader = BufReader::new(worker.try_clone().expect("a second handle"));
    reader.read_line(&mut said).expect("it is answered");
    assert!(said.starts_with("-ERR scotfree: database 15"), "{said}");
    talk(&mut worker, b"GET a\r\n", b"$1\r\n1\r\n");
    drop(other);
    assert_eq!(pair.end().counters.tunnels, 1);
}

#[test]
fn hundreds_subscribe_and_one_too_many_is_told_the_setting() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start_with(&redis, |config| config.tunnels_max = 200);
    let subscribed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    let mut subscribers: Vec<TcpStream> = (0..200).map(|_| pair.connect()).collect();
    for stream in &mut subscribers {
        talk(stream, b"SUBSCRIBE c\r\n", subscribed);
    }
    let refused = "-ERR scotfree: 200 connections are tunnels already, which is tunnels_max";
    until_answered(&mut pair.connect(), b"SUBSCRIBE c\r\n", refused);
    talk(&mut pair.connect(), b"PUBLISH c hello\r\n", b":200\r\n");
    for stream in &mut subscribers {
        talk(stream, b"", b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
    }
    // Their end is seen at once, however many they are.
    drop(pair.end());
    for stream in &mut subscribers {
        assert_eq!(stream.read(&mut [0; 8]).expect("it ends"), 0);
    }
}

#[test]
fn a_broken_early_promise_is_in_the_dead_letter_file() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start_with(&redis, |config| config.listeners[0].early = EarlyRule::Always);
    let mut stream = pair.connect();
    talk(&mut stream, b"SET k v\r\n", b"+OK\r\n");
    redis.connect().line("CONFIG SET maxmemory 1");
    stream.write_all(b"SET k \"two words\"\r\n").expect("it reads");
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("an answer in time");
    drop(stream);
    assert_eq!(pair.end().counters.early, 2);
    let letters = std::fs::read_to_string(redis.folder.join("dead-letters")).expect("a letter was written");
    assert!(letters.contains("\"reason\":\"late_error\",\"error\":\"OOM"), "{letters}");
    assert!(letters.contains("[[\"SET\",\"k\",\"two words\"]]"), "{letters}");
}

#[test]
fn a_client_too_many_is_told_so() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start_with(&redis, |config| config.connections_max = 1);
    let mut first = pair.connect();
    talk(&mut first, b"PING\r\n", b"+PONG\r\n");
    let mut second = pair.connect();
    talk(&mut second, b"", b"-ERR max number of clients reached\r\n");
    drop((first, second));
    pair.end();
}

#[test]
fn a_client_that_finds_the_servers_memory_used_up_is_told_so() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let mut admin = redis.connect();
    admin.line(&format!("SET pad {}", "x".repeat(1 << 20)));
    let pair = Pair::start_with(&redis, |config| config.connections_per_session = 1);
    admin.line("CONFIG SET maxmemory 1mb");
    let mut first = pair.connect();
    talk(&mut first, b"STRLEN pad\r\n", b":1048576\r\n");
    // It has the session that was opened at the start.
    let error = b"-OOM scotfree: no session can be opened: the server is over maxmemory\r\n";
    for command in ["PING", "GET pad", "DEL pad"] {
        talk(&mut pair.connect(), format!("{command}\r\n").as_bytes(), error);
    }
    admin.line("CONFIG SET maxmemory 0");
    talk(&mut pair.connect(), b"DEL pad\r\n", b":1\r\n");
    drop(first);
    pair.end();
}

#[test]
fn with_the_servers_memory_used_up_new_connections_read_and_delete() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let mut admin = redis.connect();
    admin.line(&format!("SET pad {}", "x".repeat(1 << 20)));
    let pair = Pair::start(&redis);
    admin.line("CONFIG SET maxmemory 1mb");
    talk(&mut pair.connect(), b"STRLEN pad\r\n", b":1048576\r\n");
    talk(
        &mut pair.connect(),
        b"SET k v\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    );
    talk(&mut pair.connect(), b"DEL pad\r\n", b":1\r\n");
    admin.line("CONFIG SET maxmemory 0");
    talk(&mut pair.connect(), b"SET k v\r\n", b"+OK\r\n");
    pair.end();
}

#[test]
fn while_the_server_keeps_no_append_only_file_writes_are_refused_and_reads_go_on() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start(&redis);
    let mut stream = pair.connect();
    talk(&mut stream, b"SET k v\r\n", b"+OK\r\n");
    let refused =
        b"-ERR scotfree: without append-only files no write would last; appendonly can be set to no at the \
                    server itself\r\n";
    talk(&mut stream, b"CONFIG SET appendonly no\r\n", refused);
    redis.connect().line("CONFIG SET appendonly no");
    until_answered(
        &mut stream,
        b"SET k w\r\n",
        "-ERR scotfree: writes are refused at present: the server no longer",
    );
    talk(&mut stream, b"MULTI\r\nGET k\r\nSET k x\r\n", b"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    until_answered(&mut stream, b"EXEC\r\n", "-EXECABORT Transaction discarded because of: scotfree: writes");
    let get = reply(&mut stream, b"STRLEN k\r\n");
    assert_eq!(get, ":1");
    redis.connect().line("CONFIG SET appendonly yes");
    until_answered(&mut stream, b"SET k y\r\n", "+OK");
    talk(&mut stream, b"GET k\r\n", b"$1\r\ny\r\n");
    pair.end();
}

/// The first line of the answer to a command.
fn reply(stream: &mut TcpStream, command: &[u8]) -> String {
    stream.write_all(command).expect("it reads");
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).expect("a reply in time");
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// Says a command until it is answered so.
fn until_answered(stream: &mut TcpStream, command: &[u8], beginning: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let line = reply(stream, command);
        if line.starts_with(beginning) {
            return;
        }
        assert!(Instant::now() < deadline, "{line}");
    }
}

#[test]
fn many_connections_use_few_sessions_one_after_the_other() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start(&redis);
    for number in 1..=50 {
        let mut stream = pair.connect();
        talk(&mut stream, b"WATCH w\r\nINCR n\r\n", format!("+OK\r\n:{number}\r\n").as_bytes());
    }
    let mut connection = redis.connect();
    connection.line("SELECT 15");
    let fields = connection.line("HLEN scotfree:markers");
    let fields: usize =
        text_of(&fields).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).expect("a number");
    assert!(fields < 20, "{fields} fields");
    pair.end();
}

#[test]
fn the_default_tests_of_redis_benchmark_need_no_tunnel() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let pair = Pair::start(&redis);
    let port = pair.address.port().to_string();
    for (pipeline, count) in [("1", "400"), ("16", "2000")] {
        let arguments = ["-p", &port, "-n", count, "-P", pipeline, "-c", "8", "-q", "--csv"];
        let Ok(output) = Command::new("redis-benchmark").args(arguments).output() else {
            eprintln!("skipped: redis-benchmark is not installed (apt-get install redis-tools)");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !errors.contains("Error"), "{text}\n{errors}");
        for test in BENCHMARK_TESTS {
            assert!(text.contains(&format!("\"{test}")), "{test} is missing in\n{text}\n{errors}");
        }
    }
    let Left { counters, .. } = pair.end();
    assert_eq!((counters.tunnels, counters.over_limit), (0, 0));
    assert!(counters.commands > 17 * 2_400, "{counters:?}");
}

const BENCHMARK_TESTS: [&str; 17] = [
    "PING_INLINE",
    "PING_MBULK",
    "SET",
    "GET",
    "INCR",
    "LPUSH",
    "RPUSH",
    "LPOP",
    "RPOP",
    "SADD",
    "HSET",
    "SPOP",
    "ZADD",
    "ZPOPMIN",
    "LRANGE_100",
    "LRANGE_600",
    "MSET",
];

/// Reads one line; none if the connection ends or the outcome of a command is unknown.
fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let count = stream.read_line(&mut line).expect("a reply in time");
    (count > 0 && !line.starts_with("-ERR scotfree")).then_some(line)
}

#[test]
fn clients_survive_kills_of_the_server_and_nothing_is_lost_or_applied_twice() {
    let Some(mut redis) = RedisServer::start(&["--appendonly yes", "--appendfsync always"]) else { return };
    let pair = Pair::start(&redis);
    let mut stream = BufReader::new(pair.connect());
    let (mut sent, mut ended) = (0_u64, 0);
    let mut answered = Vec::new();
    for _ in 0..6 {
        // A burst is on its way when the server dies.
        let burst = sent..sent + 300;
        sent = burst.end;
        let commands: Vec<String> = burst.clone().map(|id| format!("RPUSH list {id}\r\n")).collect();
        stream.get_mut().write_all(commands.concat().as_bytes()).expect("it reads");
        for id in burst.clone() {
            if line(&mut stream).is_none() {
                // What the server had done when it died and had not said: the connection ends with an error.
                ended += 1;
                stream = BufReader::new(pair.connect());
                break;
            }
            answered.push(id);
            if id == burst.start + 40 {
                redis.kill();
                redis.restart();
            }
        }
    }
    println!("{ended} of 6 connections ended with an error");
    drop(stream);
    pair.end();
    let reply = redis.connect().line("LRANGE list 0 -1");
    let found: Vec<u64> = elements(&reply)
        .filter_map(|element| std::str::from_utf8(text_of(element)?).ok()?.parse().ok())
        .collect();
    let lost: Vec<&u64> = answered.iter().filter(|id| !found.contains(id)).collect();
    let distinct: BTreeSet<&u64> = found.iter().collect();
    assert_eq!((lost.as_slice(), found.len() - distinct.len()), (&[][..], 0), "lost, and applied twice");
    // What one connection sent stands in its order; a later connection's may come in between.
    for burst in 0..6 {
        let of_burst: Vec<&u64> = found.iter().filter(|id| **id / 300 == burst).collect();
        assert!(of_burst.is_sorted(), "{found:?}");
    }
}
