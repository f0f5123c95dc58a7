//! Reads that the proxy answers itself, before a real Redis: that it does, and that no answer is older than what is
//! there.

mod site;

use scotfree_check::{check, Answer, Key, Limits, Op, Operation, Registers, Reply as Answered, Verdict};
use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::{Connection, Reply};
use site::{call, get, text, Site, PATIENCE};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// How often a value is written in a storm, by each writer.
const STORM_WRITES: u64 = 1_500;
const STORM_KEYS: usize = 3;
const STORM_READERS: usize = 4;

/// What is said of others who write.
const NOBODY: &[&str] = &["--cache-only-writer"];
const WHOEVER: &[&str] = &["--cache-tracking", "50ms"];

fn with_cache(site: &Site, more: &[&str]) -> Process {
    with_others(site, NOBODY, more)
}

fn with_others(site: &Site, others: &[&str], more: &[&str]) -> Process {
    site.proxy(&[&["--cache", "16M"], others, more].concat())
}

/// How many of these the Redis has executed.
fn executed(direct: &mut Connection, command: &str) -> u64 {
    let all = call(direct, "INFO commandstats");
    let line = all
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
        .map(str::to_owned);
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Reads a key until the proxy answers by itself.
fn warm(client: &mut Connection, direct: &mut Connection, key: &str) -> String {
    let mut found = String::new();
    let is_known = wait_until(PATIENCE, || {
        let before = executed(direct, "get");
        found = call(client, &format!("GET {key}"));
        executed(direct, "get") == before
    });
    assert!(is_known, "{key} is read often enough to be known");
    found
}

/// The sum of a counter's samples.
fn value_of(metrics: SocketAddr, name: &str) -> u64 {
    let text = get(metrics, "/metrics");
    let of_name =
        |line: &&str| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"));
    text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn what_is_known_is_answered_without_the_redis_and_counted() {
    let Some(site) = Site::new("proxy-cache-hits") else { return };
    let metrics = free_address();
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &["--metrics", &metrics.to_string()]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k v"), "OK");
    assert_eq!(warm(&mut client, &mut direct, "k"), "v");
    let before = executed(&mut direct, "get");
    let mut others: Vec<Connection> = (0..4).map(|_| site.connect()).collect();
    assert!(call(&mut others[0], "HELLO 3").starts_with("Array"));
    for round in 0..100 {
        assert_eq!(call(&mut others[round % 4], "GET k"), "v");
    }
    // A plain SET of what is known replaces it.
    assert_eq!(call(&mut client, "SET k w"), "OK");
    for other in &mut others {
        assert_eq!(call(other, "GET k"), "w");
    }
    assert_eq!(executed(&mut direct, "get"), before, "the Redis was asked for nothing");
    let is_said = || {
        value_of(metrics, "scotfree_cache_hits_total") >= 104
            && value_of(metrics, "scotfree_proxy_known_total") >= 104
            && value_of(metrics, "scotfree_cache_fills_total") >= 1
            && value_of(metrics, "scotfree_cache_overwrites_total") == 1
            && value_of(metrics, "scotfree_cache_entries") == 1
    };
    assert!(wait_until(PATIENCE, is_said), "{}", get(metrics, "/metrics"));
}

#[test]
fn without_the_flag_every_read_is_the_redis_own_and_without_the_word_a_start_is_refused() {
    let Some(site) = Site::new("proxy-cache-off") else { return };
    let _redis = site.redis(&[]);
    let (code, said) = site.refused(&["--cache", "16M"]);
    assert!(code == Some(2) && said.contains("--cache-only-writer"), "{said}");
    let proxy = site.proxy(&[]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k v"), "OK");
    let before = executed(&mut direct, "get");
    for _ in 0..20 {
        assert_eq!(call(&mut client, "GET k"), "v");
    }
    assert_eq!((executed(&mut direct, "get") - before, executed(&mut direct, "pttl")), (20, 0));
    drop(proxy);
}

/// What is done to `k`, known to be `v`, by lines that are sent one after the other; what it is then.
const CHANGES: [(&str, &str); 42] = [
    ("SET k w", "w"),
    ("SET k w XX", "w"),
    ("SET k w NX", "v"),
    ("SET k w GET", "w"),
    ("SET k w KEEPTTL", "w"),
    ("SET k w EX 100", "w"),
    ("SETEX k 100 w", "w"),
    ("SETNX k w", "v"),
    ("APPEND k w", "vw"),
    ("SETRANGE k 1 w", "vw"),
    ("SETBIT k 7 1", "w"),
    ("GETSET k w", "w"),
    ("GETDEL k", "nil"),
    ("DEL k", "nil"),
    ("UNLINK j k", "nil"),
    ("MSET j 1 k w", "w"),
    ("MSETNX j 1 k w", "v"),
    ("RENAME k l", "nil"),
    ("SET j w;RENAME j k", "w"),
    ("SET j w;RENAMENX j k", "v"),
    ("SET j w;COPY j k REPLACE", "w"),
    ("MOVE k 1", "nil"),
    ("SET j w;BITOP OR k j", "w"),
    ("RPUSH l w;SORT l ALPHA STORE k", "WRONGTYPE"),
    ("SADD s w;SUNIONSTORE k s", "WRONGTYPE"),
    ("PEXPIREAT k 1", "nil"),
    ("EXPIRE k 0", "nil"),
    ("GETEX k PXAT 1", "nil"),
    ("SET k w PXAT 1", "nil"),
    ("SET k 5;INCR k", "6"),
    ("SET k 5;DECRBY k 3", "2"),
    ("SET k 5;INCRBYFLOAT k 0.5", "5.5"),
    ("DEL k;PFADD k a;PFCOUNT k", "HYLL"),
    ("EVAL return(redis.call('set',KEYS[1],'w')) 1 k", "w"),
    ("EVAL return(redis.call('set','k','w')) 0", "w"),
    ("FLUSHDB", "nil"),
    ("FLUSHALL", "nil"),
    ("SWAPDB 0 1", "nil"),
    ("MULTI;SET k w;INCR n;EXEC", "w"),
    ("MULTI;SELECT 1;SET k w;SELECT 0;SET k x;EXEC", "x"),
    ("WATCH k;MULTI;SET k w;EXEC", "w"),
    ("SELECT 1;SET k w;SELECT 0", "v"),
];

fn every_change_is_seen(mode: &str, others: &[&str]) {
    let Some(site) = Site::new(&format!("proxy-cache-changes-{mode}{}", others[0])) else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_others(&site, others, &["--mode", mode]);
    let (mut writer, mut reader, mut direct) = (site.connect(), site.connect(), site.direct());
    for (lines, expected) in CHANGES {
        assert_eq!(call(&mut writer, "FLUSHALL"), "OK");
        assert_eq!(call(&mut writer, "SET k v"), "OK");
        assert_eq!(warm(&mut reader, &mut direct, "k"), "v", "{lines}");
        for line in lines.split(';') {
            call(&mut writer, line);
        }
        for client in [&mut reader, &mut writer] {
            for _ in 0..4 {
                let found = call(client, "GET k");
                assert!(
                    found == expected || expected.len() > 3 && found.starts_with(expected),
                    "{lines}: {found}"
                );
            }
        }
        let truth = call(&mut direct, "GET k");
        assert_eq!(call(&mut reader, "GET k"), truth, "{lines}");
    }
}

#[test]
fn every_change_is_seen_at_once_where_the_redis_answers() {
    every_change_is_seen("covered", NOBODY);
}

#[test]
fn every_change_is_seen_at_once_where_others_may_write_too() {
    every_change_is_seen("early", WHOEVER);
}

#[test]
fn every_change_is_seen_at_once_where_the_log_answers() {
    every_change_is_seen("early", NOBODY);
}

#[test]
fn a_key_with_a_time_to_live_is_not_kept() {
    let Some(site) = Site::new("proxy-cache-mortal") else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &[]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k v PX 700"), "OK");
    let mut asked = 0;
    let before = executed(&mut direct, "get");
    let is_over = wait_until(PATIENCE, || {
        let is_there = call(&mut direct, "EXISTS k") == "1";
        let found = call(&mut client, "GET k");
        asked += 1;
        assert!(is_there || found == "nil", "{found} outlived its key");
        !is_there
    });
    assert!(is_over && asked > 2);
    assert_eq!(executed(&mut direct, "get") - before, asked, "all of them were the Redis' own");
    // One that gets a time to live when it is known is known no more.
    assert_eq!(call(&mut client, "SET k v"), "OK");
    assert_eq!(warm(&mut client, &mut direct, "k"), "v");
    assert_eq!(call(&mut client, "PEXPIRE k 50"), "1");
    assert!(wait_until(PATIENCE, || call(&mut direct, "EXISTS k") == "0"));
    assert_eq!(call(&mut client, "GET k"), "nil");
}

#[test]
fn a_user_without_the_right_is_not_answered_and_databases_are_told_apart() {
    let Some(site) = Site::new("proxy-cache-users") else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &[]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "ACL SETUSER app on >pw ~app:* ~scotfree:markers &* +@all"), "OK");
    assert_eq!(call(&mut client, "SET k v"), "OK");
    assert_eq!(call(&mut client, "SET app:k 1"), "OK");
    assert_eq!(warm(&mut client, &mut direct, "k"), "v");
    assert_eq!(warm(&mut client, &mut direct, "app:k"), "1");
    let mut app = site.connect();
    assert_eq!(call(&mut app, "AUTH app pw"), "OK");
    let refused = call(&mut app, "GET k");
    assert!(refused.starts_with("NOPERM"), "{refused}");
    // What that user writes is seen by everybody.
    assert_eq!(call(&mut app, "INCR app:k"), "2");
    assert_eq!((call(&mut client, "GET app:k"), call(&mut app, "GET app:k")), ("2".into(), "2".into()));
    assert_eq!(warm(&mut client, &mut direct, "k"), "v");
    for (line, expected) in [("SELECT 1", "OK"), ("GET k", "nil"), ("SET k other", "OK"), ("GET k", "other")]
    {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    assert_eq!(warm(&mut client, &mut direct, "k"), "other");
    assert_eq!((call(&mut client, "SELECT 0"), call(&mut client, "GET k")), ("OK".into(), "v".into()));
}

#[test]
fn who_tracks_reads_at_the_redis_and_what_goes_through_tunnels_is_seen() {
    let Some(site) = Site::new("proxy-cache-tracks") else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &[]);
    let (mut client, mut tracker, mut direct) = (site.connect(), site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k v"), "OK");
    assert_eq!(warm(&mut client, &mut direct, "k"), "v");
    let mut listener = site.connect();
    let id = call(&mut listener, "CLIENT ID");
    assert!(call(&mut listener, "SUBSCRIBE __redis__:invalidate").contains("Integer(1)"));
    assert_eq!(call(&mut tracker, &format!("CLIENT TRACKING ON REDIRECT {id}")), "OK");
    let before = executed(&mut direct, "get");
    assert_eq!(call(&mut tracker, "GET k"), "v");
    assert_eq!(executed(&mut direct, "get"), before + 1, "the Redis has to know who has read it");
    assert_eq!(call(&mut client, "SET k w"), "OK");
    let told = format!("{:?}", listener.read().expect("the client is told"));
    assert!(told.contains("Array([Bulk([107])])"), "{told}");
    // And what the tracker writes goes past the order of all others.
    for round in 0..40 {
        warm(&mut client, &mut direct, "k");
        let line = match round % 3 {
            0 => format!("SET k {round}"),
            1 => format!("GETSET k {round}"),
            _ => format!("EVAL return(redis.call('set','k','{round}')) 0"),
        };
        call(&mut tracker, &line);
        assert_eq!(call(&mut client, "GET k"), round.to_string(), "{line}");
    }
    for line in ["MULTI", "SET k last", "EXEC"] {
        warm(&mut client, &mut direct, "k");
        call(&mut tracker, line);
    }
    assert_eq!(call(&mut client, "GET k"), "last");
    // Who waits for an element holds nothing up.
    let mut waiting = site.connect();
    waiting.push(&["BLPOP", "l", "0"]);
    waiting.flush().expect("it is sent");
    assert!(wait_until(PATIENCE, || call(&mut direct, "CLIENT LIST").contains("cmd=blpop")));
    assert_eq!(warm(&mut client, &mut direct, "k"), "last");
}

#[test]
fn a_connections_answers_are_in_its_order_and_show_what_it_wrote() {
    let Some(site) = Site::new("proxy-cache-order") else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &[]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k 0"), "OK");
    warm(&mut client, &mut direct, "k");
    let lines = [
        "GET k",
        "INCR k",
        "GET k",
        "GET k",
        "SET k 7",
        "GET k",
        "EVAL return(1) 0",
        "GET k",
        "MGET k",
        "GET k",
    ];
    let expected = ["0", "1", "1", "1", "OK", "7", "1", "7", "Array([Bulk([55])])", "7"];
    for round in 0..50 {
        assert_eq!(call(&mut client, "SET k 0"), "OK");
        for line in lines {
            client.push(&line.split(' ').collect::<Vec<_>>());
        }
        client.flush().expect("it is sent");
        for (line, expected) in lines.iter().zip(expected) {
            assert_eq!(text(&client.read().expect("it answers")), expected, "{line} in round {round}");
        }
    }
    for (line, expected) in [("MULTI", "OK"), ("GET k", "QUEUED"), ("INCR k", "QUEUED"), ("GET k", "QUEUED")]
    {
        assert_eq!(call(&mut client, line), expected);
    }
    assert_eq!(call(&mut client, "EXEC"), "Array([Bulk([55]), Integer(8), Bulk([56])])");
    assert_eq!(call(&mut client, "GET k"), "8");
}

#[test]
fn what_was_known_is_forgotten_when_the_redis_is_another() {
    let Some(site) = Site::new("proxy-cache-losses") else { return };
    let metrics = free_address();
    let redis = site.redis(&[]);
    let proxy = with_cache(&site, &["--metrics", &metrics.to_string()]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k v"), "OK");
    assert_eq!(warm(&mut client, &mut direct, "k"), "v");
    drop(direct);
    redis.kill();
    drop(redis);
    let redis = site.redis(&[]);
    let mut direct = site.direct();
    let losses = || value_of(metrics, "scotfree_proxy_server_losses_total");
    assert!(wait_until(PATIENCE, || losses() == 1), "what was answered until then was safe");
    // Whoever asks now waits for the Redis, and hears what it has.
    assert_eq!(call(&mut client, "GET k"), "v");
    assert!(executed(&mut direct, "get") >= 1, "it was read there");
    assert_eq!(warm(&mut client, &mut direct, "k"), "v");
    // And a new proxy knows nothing.
    proxy.kill();
    drop(proxy);
    let _proxy = with_cache(&site, &[]);
    let mut client = site.connect();
    let before = executed(&mut direct, "get");
    assert_eq!(call(&mut client, "GET k"), "v");
    assert_eq!(executed(&mut direct, "get"), before + 1);
    drop(redis);
}

#[test]
fn bytes_are_bounded_and_large_values_are_read_at_the_redis() {
    let Some(site) = Site::new("proxy-cache-bounds") else { return };
    let metrics = free_address();
    let _redis = site.redis(&[]);
    let metrics_at = metrics.to_string();
    let _proxy = site.proxy(&["--cache", "64K", "--cache-only-writer", "--metrics", &metrics_at]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    let value = "x".repeat(4_000);
    for key in 0..60 {
        assert_eq!(call(&mut client, &format!("SET k{key} {value}")), "OK");
        assert_eq!(warm(&mut client, &mut direct, &format!("k{key}")), value);
    }
    let large = "x".repeat(10_000);
    assert_eq!(call(&mut client, &format!("SET large {large}")), "OK");
    let before = executed(&mut direct, "get");
    for _ in 0..10 {
        assert_eq!(call(&mut client, "GET large"), large);
    }
    assert_eq!(executed(&mut direct, "get"), before + 10);
    let is_bounded = || {
        let bytes = value_of(metrics, "scotfree_cache_bytes");
        (1..=64 << 10).contains(&bytes) && value_of(metrics, "scotfree_cache_evicted_total") > 30
    };
    assert!(wait_until(PATIENCE, is_bounded), "{}", get(metrics, "/metrics"));
}

/// Writes 1, 2, 3 … to a key by all kinds of commands; what was answered is known to all before the next.
fn write_storm(site: &Site, key: usize, begun: &AtomicU64, answered: &AtomicU64) {
    let (mut client, mut tracker) = (site.connect(), site.connect());
    assert_eq!(call(&mut tracker, "CLIENT TRACKING ON"), "OK");
    for value in 1..=STORM_WRITES {
        begun.store(value, Ordering::SeqCst);
        let name = format!("s{key}");
        match value % 50 {
            7 => _ = call(&mut client, &format!("INCR {name}")),
            13 => _ = call(&mut client, &format!("MSET {name} {value} other{key} 1")),
            19 => _ = call(&mut client, &format!("GETSET {name} {value}")),
            23 => _ = call(&mut client, &format!("EVAL return(redis.call('set','{name}',{value})) 0")),
            29 | 39 => {
                // What the log has answered may not be executed yet, and would come behind what goes past the order,
                // with a cache or without.
                call(&mut client, &format!("PTTL {name}"));
                call(&mut tracker, &format!("SET {name} {value}"));
            }
            31 => {
                for line in ["MULTI", &format!("DEL {name}"), &format!("SET {name} {value}"), "EXEC"] {
                    call(&mut client, line);
                }
            }
            37 => _ = call(&mut client, &format!("SET {name} {value} EX 1000")),
            41 => {
                call(&mut client, &format!("SET {name}:new {value}"));
                call(&mut client, &format!("RENAME {name}:new {name}"));
            }
            _ => assert_eq!(call(&mut client, &format!("SET {name} {value}")), "OK"),
        }
        answered.store(value, Ordering::SeqCst);
    }
}

/// Reads the keys in turn: an answer is no older than what was answered before it was asked, and nothing that was not
/// written.
fn read_storm(site: &Site, state: &[(AtomicU64, AtomicU64)], is_over: &AtomicBool, reads: &AtomicU64) {
    let mut client = site.connect();
    let (mut seen, mut is_get) = ([0_u64; STORM_KEYS], false);
    while !is_over.load(Ordering::SeqCst) {
        for (key, (begun, answered)) in state.iter().enumerate() {
            let least = answered.load(Ordering::SeqCst).max(seen[key]);
            // Two reads that say the same.
            is_get = !is_get;
            let line = if is_get { format!("GET s{key}") } else { format!("GETRANGE s{key} 0 -1") };
            let found = call(&mut client, &line);
            let most = begun.load(Ordering::SeqCst);
            let is_missing = found.is_empty() || found == "nil";
            let value: u64 = if is_missing { 0 } else { found.parse().expect("a number") };
            assert!(
                (least..=most).contains(&value),
                "s{key} is {value}, {least} was there and {most} is the last"
            );
            seen[key] = value;
            reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn storm(mode: &str) {
    let Some(site) = Site::new(&format!("proxy-cache-storm-{mode}")) else { return };
    let metrics = free_address();
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &["--mode", mode, "--metrics", &metrics.to_string()]);
    let state: Vec<(AtomicU64, AtomicU64)> = (0..STORM_KEYS).map(|_| Default::default()).collect();
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..STORM_KEYS)
            .map(|key| {
                let (site, (begun, answered)) = (&site, &state[key]);
                scope.spawn(move || write_storm(site, key, begun, answered))
            })
            .collect();
        let readers: Vec<_> =
            (0..STORM_READERS).map(|_| scope.spawn(|| read_storm(&site, &state, &is_over, &reads))).collect();
        let written: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::SeqCst);
        assert!(written.into_iter().all(|writer| writer.is_ok()));
        assert!(readers.into_iter().all(|reader| reader.join().is_ok()));
    });
    let hits = || value_of(metrics, "scotfree_cache_hits_total");
    assert!(wait_until(PATIENCE, || hits() > 0), "{} reads, {} hits", reads.load(Ordering::Relaxed), hits());
    eprintln!("{mode}: {} reads, {} of them answered by the proxy", reads.load(Ordering::Relaxed), hits());
}

#[test]
fn no_read_of_a_storm_is_older_than_what_was_answered_before_it() {
    storm("covered");
}

#[test]
fn no_read_of_a_storm_is_older_where_the_log_answers() {
    storm("early");
}

/// How many operations each client of a history makes, and on how many keys.
const HISTORY_OPERATIONS: u64 = 1_000;
const HISTORY_CLIENTS: u64 = 6;
const HISTORY_KEYS: u64 = 4;

type Seen = Operation<Op, Answered>;

/// The same for every run.
fn draw(chance: &mut u64, below: u64) -> u64 {
    *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*chance >> 33) % below
}

/// What a client does next; values are nobody else's.
fn draw_op(chance: &mut u64, value: u64) -> Op {
    let key = Key(draw(chance, HISTORY_KEYS) as u32);
    let other = Key((key.0 + 1) % HISTORY_KEYS as u32);
    match draw(chance, 40) {
        0..=4 => Op::Set { key, value },
        5 => Op::Del { keys: vec![key] },
        6 => Op::MSet { pairs: vec![(key, value), (other, value)] },
        7 | 8 => Op::MGet { keys: vec![key, other] },
        9 => Op::Transaction(vec![Op::Get { key }, Op::Set { key, value }, Op::Get { key: other }]),
        _ => Op::Get { key },
    }
}

fn words_of(op: &Op) -> Vec<String> {
    let name = |key: &Key| format!("h{}", key.0);
    let several = |command: &str, keys: &[Key]| {
        std::iter::once(command.to_owned()).chain(keys.iter().map(name)).collect()
    };
    match op {
        Op::Set { key, value } => vec!["SET".into(), name(key), value.to_string()],
        Op::Get { key } => several("GET", &[*key]),
        Op::Del { keys } => several("DEL", keys),
        Op::Incr { key } => several("INCR", &[*key]),
        Op::MGet { keys } => several("MGET", keys),
        Op::MSet { pairs } => {
            let pairs = pairs.iter().flat_map(|(key, value)| [name(key), value.to_string()]);
            std::iter::once("MSET".to_owned()).chain(pairs).collect()
        }
        Op::Transaction(_) => vec!["EXEC".into()],
    }
}

fn answer_of(op: &Op, reply: &Reply) -> Answered {
    let value = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).parse().ok(),
        _ => None,
    };
    match (op, reply) {
        (Op::Set { .. } | Op::MSet { .. }, Reply::Simple(_)) => Answered::Done,
        (Op::Get { .. }, Reply::Bulk(_) | Reply::Null) => Answered::Values(vec![value(reply)]),
        (Op::Del { .. } | Op::Incr { .. }, Reply::Integer(count)) => Answered::Number(count.unsigned_abs()),
        (Op::MGet { .. }, Reply::Array(all)) => Answered::Values(all.iter().map(value).collect()),
        (Op::Transaction(ops), Reply::Array(all)) => {
            Answered::All(ops.iter().zip(all).map(|(op, reply)| answer_of(op, reply)).collect())
        }
        other => panic!("no answer to it: {other:?}"),
    }
}

/// What one client does, and sees. Every third goes past the order, through a tunnel.
fn write_history(site: &Site, client: u64, begin: Instant) -> Vec<Seen> {
    let now = || begin.elapsed().as_nanos() as u64;
    let mut connection = site.connect();
    if client.is_multiple_of(3) {
        assert_eq!(call(&mut connection, "CLIENT TRACKING ON BCAST PREFIX none"), "OK");
    }
    let mut chance = client + 1;
    let mut seen = Vec::new();
    for number in 0..HISTORY_OPERATIONS {
        let op = draw_op(&mut chance, 1 + client * HISTORY_OPERATIONS + number);
        let called = now();
        if let Op::Transaction(ops) = &op {
            connection.push(&["MULTI"]);
            for op in ops {
                connection.push(&words_of(op));
            }
        }
        connection.push(&words_of(&op));
        connection.flush().expect("it is sent");
        if let Op::Transaction(ops) = &op {
            (0..=ops.len()).for_each(|_| drop(connection.read().expect("it is queued")));
        }
        let reply = answer_of(&op, &connection.read().expect("it is answered"));
        seen.push(Operation { client, called, op, answer: Some(Answer { at: now(), reply }) });
    }
    seen
}

#[test]
fn some_order_explains_all_that_clients_see() {
    some_order_explains_all(NOBODY);
}

#[test]
fn some_order_explains_all_that_clients_see_where_others_may_write_and_do_not() {
    some_order_explains_all(WHOEVER);
}

fn some_order_explains_all(others: &[&str]) {
    let Some(site) = Site::new(&format!("proxy-cache-history{}", others[0])) else { return };
    let metrics = free_address();
    let _redis = site.redis(&["--appendfsync", "always"]);
    let _proxy = with_others(&site, others, &["--metrics", &metrics.to_string()]);
    let begin = Instant::now();
    let history: Vec<Seen> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..HISTORY_CLIENTS)
            .map(|client| {
                let site = &site;
                scope.spawn(move || write_history(site, client, begin))
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("it is answered")).collect()
    });
    let limits = Limits { steps_max: 50_000_000, ..Limits::default() };
    match check(&Registers, &history, limits) {
        Verdict::Linearizable => {}
        Verdict::Violation(violation) => panic!("{}", violation.describe(&Registers, &history)),
        unknown @ Verdict::Unknown { .. } => panic!("{unknown:?}"),
    }
    let hits = || value_of(metrics, "scotfree_cache_hits_total");
    assert!(wait_until(PATIENCE, || hits() > 0), "some of it was answered by the proxy");
    eprintln!("{} operations, {} answered by the proxy", history.len(), hits());
}

/// Asks until there is an answer that says what was done: where the proxy's connection to the Redis breaks, or the Redis
/// itself, an outcome may be unknown, and the client's connection is closed.
fn insist(site: &Site, client: &mut Connection, words: &[&str]) -> String {
    let mut found = String::new();
    let is_answered = wait_until(PATIENCE, || {
        found =
            client.call(words).map_or_else(|error| format!("ERR scotfree: {error}"), |reply| text(&reply));
        let is_said = !found.starts_with("ERR scotfree");
        if !is_said {
            *client = site.connect();
        }
        is_said
    });
    assert!(is_answered, "{words:?}: {found}");
    found
}

/// Ends the proxy's connection for requests once.
fn break_lane(direct: &mut Connection) {
    let mut id = String::new();
    let is_there = wait_until(PATIENCE, || {
        let list = call(direct, "CLIENT LIST");
        let lane = list.lines().find(|line| line.contains("name=scotfree-shared "));
        let found = lane.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
        found.unwrap_or_default().clone_into(&mut id);
        !id.is_empty()
    });
    assert!(is_there, "the proxy has one");
    call(direct, &format!("CLIENT KILL ID {id}"));
}

#[test]
fn no_read_is_older_when_connections_to_the_redis_or_the_redis_itself_break() {
    let Some(site) = Site::new("proxy-cache-breaks") else { return };
    let mut redis = Some(site.redis(&["--appendfsync", "always"]));
    let _proxy = with_cache(&site, &[]);
    let (begun, answered, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut client, mut seen, mut is_get) = (site.connect(), 0, false);
                while !is_over.load(Ordering::SeqCst) {
                    let least = answered.load(Ordering::SeqCst).max(seen);
                    is_get = !is_get;
                    let words: &[&str] = if is_get { &["GET", "k"] } else { &["GETRANGE", "k", "0", "-1"] };
                    let found = insist(&site, &mut client, words);
                    seen =
                        if found.is_empty() || found == "nil" { 0 } else { found.parse().expect("a number") };
                    let most = begun.load(Ordering::SeqCst);
                    assert!((least..=most).contains(&seen), "it is {seen}, {least} was there");
                }
            });
        }
        let writer = scope.spawn(|| {
            let mut client = site.connect();
            for value in 1..=600_u64 {
                begun.store(value, Ordering::SeqCst);
                let text = value.to_string();
                let words: &[&str] = match value % 9 {
                    4 => &["EVAL", "return(redis.call('set',KEYS[1],ARGV[1]))", "1", "k", &text],
                    7 => &["MSET", "k", &text, "other", "1"],
                    _ => &["SET", "k", &text],
                };
                insist(&site, &mut client, words);
                answered.store(value, Ordering::SeqCst);
                if value % 150 == 0 {
                    redis.take().expect("it runs").kill();
                    redis = Some(site.redis(&["--appendfsync", "always"]));
                } else if value % 20 == 0 {
                    break_lane(&mut site.direct());
                }
            }
        });
        let written = writer.join();
        is_over.store(true, Ordering::SeqCst);
        assert!(written.is_ok());
    });
    assert_eq!(call(&mut site.direct(), "GET k"), "600");
}
