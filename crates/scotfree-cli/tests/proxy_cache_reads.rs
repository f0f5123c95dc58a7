//! Whole replies of all kinds of reads that the proxy gives itself, before a real Redis: whatever is done to a key,
//! each read of it is answered as the Redis answers it then.

mod site;

use scotfree_cache::{ReadCommand, READS};
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::{Connection, Reply};
use site::{call, Site, PATIENCE};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn with_cache(site: &Site, more: &[&str]) -> Process {
    site.proxy(&[&["--cache", "16M", "--cache-only-writer"], more].concat())
}

fn ask(client: &mut Connection, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    client.call(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// How many reads of the table the Redis has executed.
fn executed(direct: &mut Connection) -> u64 {
    let all = call(direct, "INFO commandstats");
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        ReadCommand::named(name.as_bytes())?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    all.lines().filter_map(calls).sum()
}

/// Reads until the proxy answers all of it by itself.
fn warm(clients: &mut [Connection; 2], direct: &mut Connection, reads: &[&str]) {
    let is_known = wait_until(PATIENCE, || {
        let before = executed(direct);
        for client in &mut *clients {
            for read in reads {
                ask(client, read);
            }
        }
        executed(direct) == before
    });
    assert!(is_known, "{reads:?} are read often enough to be known");
}

/// One that speaks each version of the protocol.
fn in_both(open: impl Fn() -> Connection) -> [Connection; 2] {
    let mut both = [open(), open()];
    assert!(call(&mut both[1], "HELLO 3").starts_with("Array"));
    both
}

/// Keys of one type: how `k` and `m` are made, how they are read, and what can be done to `k` alone because of it.
struct Kind {
    made: &'static [&'static str],
    reads: &'static [&'static str],
    changes: &'static [&'static str],
}

/// Reads of whatever there is.
const READS_OF_ALL: [&str; 4] = ["EXISTS k", "TYPE k", "EXPIRETIME k", "PEXPIRETIME k"];

/// What can be done to `k`, whatever it is: lines that are sent one after the other. Behind `PEXPIRE k 1` its end is
/// awaited.
const CHANGES_OF_ALL: [&str; 38] = [
    "DEL k",
    "UNLINK j k",
    "RENAME k n",
    "RENAME m k",
    "RENAMENX k n",
    "COPY m k REPLACE",
    "MOVE k 1",
    "EXPIRE k 0",
    "EXPIRE k 100",
    "EXPIREAT k 1",
    "PEXPIREAT k 1",
    "PEXPIRE k 1",
    "PEXPIRE k 100000",
    "EXPIRE k 100;PERSIST k",
    "SET k w",
    "SET k w EX 100",
    "SETEX k 100 w",
    "PSETEX k 1000 w",
    "SETNX k w",
    "MSET j 1 k w",
    "MSETNX j 1 k w",
    "FLUSHDB",
    "FLUSHALL",
    "SWAPDB 0 1",
    "SELECT 1;DEL k;SELECT 0",
    "SELECT 1;SET k w;SWAPDB 1 0;SELECT 0",
    "SET j w;BITOP NOT k j",
    "RPUSH j b a;SORT j ALPHA STORE k",
    "SADD j a b;SUNIONSTORE k j",
    "ZADD j 1 a;ZUNIONSTORE k 1 j",
    "EVAL return(redis.call('del',KEYS[1])) 1 k",
    "EVAL return(redis.call('del','k')) 0",
    "EVAL return(redis.call('restore','k',0,redis.call('dump','m'),'replace')) 0",
    "MULTI;DEL k;EXEC",
    "MULTI;RENAME m k;EXEC",
    "MULTI;SET j 1;DEL k;SET k v;EXEC",
    "WATCH k;MULTI;DEL k;EXEC",
    "MULTI;SELECT 1;COPY k j DB 0;SELECT 0;DEL k;EXEC",
];

const KINDS: [Kind; 8] = [
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
            "BITCOUNT k 0 1",
            "BITPOS k 1",
            "BITFIELD_RO k GET u8 0",
        ],
        changes: &[
            "SET k w XX",
            "SET k w NX",
            "SET k w GET",
            "SET k w KEEPTTL",
            "APPEND k w",
            "SETRANGE k 1 w",
            "SETBIT k 7 0",
            "BITFIELD k SET u8 0 65",
            "GETSET k w",
            "GETDEL k",
            "GETEX k PXAT 1",
            "GETEX k EX 100",
            "SET k 5;INCR k",
            "SET k 5;DECR k",
            "SET k 5;INCRBY k 3",
            "SET k 5;DECRBY k 3",
            "SET k 5;INCRBYFLOAT k 0.5",
            "BITOP OR k k m",
            "MULTI;APPEND k w;EXEC",
            "EVAL return(redis.call('append',KEYS[1],'w')) 1 k",
        ],
    },
    // What is counted is kept in the value.
    Kind {
        made: &["PFADD k a b", "PFADD m c"],
        reads: &["GET k", "STRLEN k", "GETRANGE k 0 15", "BITCOUNT k"],
        changes: &[
            "PFCOUNT k",
            "PFCOUNT m k",
            "PFADD k c",
            "PFMERGE k m",
            "MULTI;PFCOUNT k;EXEC",
            "EVAL return(redis.call('pfcount',KEYS[1])) 1 k",
        ],
    },
    Kind {
        made: &["RPUSH k a b c d", "RPUSH m x y"],
        reads: &["LLEN k", "LRANGE k 0 -1", "LRANGE k 0 0", "LINDEX k 0", "LINDEX k 9", "LPOS k b"],
        changes: &[
            "LPUSH k z",
            "RPUSH k z",
            "LPUSHX k z",
            "RPUSHX k z",
            "LPOP k",
            "RPOP k 2",
            "LSET k 0 z",
            "LINSERT k BEFORE b z",
            "LREM k 1 a",
            "LTRIM k 1 2",
            "LMOVE k m LEFT LEFT",
            "LMOVE m k LEFT LEFT",
            "RPOPLPUSH m k",
            "LMPOP 2 j k LEFT",
            "BLPOP j k 0",
            "BRPOP k 0",
            "BLMOVE m k LEFT LEFT 0",
            "BLMOVE k m LEFT LEFT 0",
            "BRPOPLPUSH m k 0",
            "BLMPOP 0 2 j k LEFT",
            "SORT k ALPHA DESC STORE k",
            "MULTI;BLPOP k 0;EXEC",
            "EVAL return(redis.call('lpop',KEYS[1])) 1 k",
        ],
    },
    Kind {
        made: &["HSET k a 1 b 2 c 3.5", "HSET m a x"],
        reads: &[
            "HGET k a",
            "HGET k none",
            "HMGET k a none c",
            "HGETALL k",
            "HKEYS k",
            "HVALS k",
            "HLEN k",
            "HEXISTS k a",
            "HSTRLEN k c",
        ],
        changes: &[
            "HSET k a 9 d 4",
            "HMSET k a 9",
            "HSETNX k none 1",
            "HSETNX k a 9",
            "HDEL k a",
            "HDEL k a b c",
            "HINCRBY k a 5",
            "HINCRBYFLOAT k c 0.25",
            "MULTI;HSET k a 9;EXEC",
            "EVAL return(redis.call('hset',KEYS[1],'a',9)) 1 k",
        ],
    },
    Kind {
        made: &["SADD k 1 2 3", "SADD m 3 4"],
        reads: &["SCARD k", "SMEMBERS k", "SISMEMBER k 1", "SMISMEMBER k 1 4"],
        changes: &[
            "SADD k 4",
            "SREM k 1",
            "SREM k 1 2 3",
            "SPOP k",
            "SPOP k 3",
            "SMOVE k m 1",
            "SMOVE m k 4",
            "SUNIONSTORE k k m",
            "SINTERSTORE k k m",
            "SDIFFSTORE k k m",
            "MULTI;SREM k 1;EXEC",
            "EVAL return(redis.call('srem',KEYS[1],1)) 1 k",
        ],
    },
    Kind {
        made: &["ZADD k 1 a 2 b 3.5 c", "ZADD m 5 a 6 z"],
        reads: &[
            "ZCARD k",
            "ZSCORE k c",
            "ZSCORE k none",
            "ZMSCORE k a none",
            "ZCOUNT k 1 2",
            "ZLEXCOUNT k - +",
            "ZRANK k b",
            "ZREVRANK k b",
            "ZRANGE k 0 -1",
            "ZRANGE k 0 -1 WITHSCORES",
            "ZREVRANGE k 0 0",
            "ZRANGEBYSCORE k 1 2",
            "ZREVRANGEBYSCORE k +inf 2",
            "ZRANGEBYLEX k - +",
            "ZREVRANGEBYLEX k + -",
        ],
        changes: &[
            "ZADD k 9 a",
            "ZADD k NX 9 a 4 d",
            "ZREM k a",
            "ZINCRBY k 5 a",
            "ZPOPMIN k",
            "ZPOPMAX k 2",
            "ZMPOP 2 j k MIN",
            "BZPOPMIN j k 0",
            "BZPOPMAX k 0",
            "BZMPOP 0 2 j k MAX",
            "ZREMRANGEBYRANK k 0 0",
            "ZREMRANGEBYSCORE k 2 9",
            "ZREMRANGEBYLEX k [a [b",
            "ZUNIONSTORE k 2 k m",
            "ZINTERSTORE k 2 k m",
            "ZDIFFSTORE k 2 k m",
            "ZRANGESTORE k m 0 0",
            "MULTI;ZADD k 9 a;EXEC",
            "EVAL return(redis.call('zincrby',KEYS[1],5,'a')) 1 k",
        ],
    },
    Kind {
        made: &["XADD k 1-1 f 1", "XADD k 2-1 f 2", "XGROUP CREATE k g 0", "XADD m 7-1 f 7"],
        reads: &["XLEN k", "XRANGE k - +", "XREVRANGE k + - COUNT 1"],
        changes: &[
            "XADD k 3-1 f 3",
            "XADD k MAXLEN 1 3-1 f 3",
            "XADD k * f 3",
            "XDEL k 1-1",
            "XTRIM k MAXLEN 1",
            "XSETID k 9-1",
            "XGROUP CREATE k other 0",
            "XGROUP CREATECONSUMER k g c",
            "XGROUP SETID k g 1-1",
            "XGROUP DELCONSUMER k g c",
            "XGROUP DESTROY k g",
            "XREADGROUP GROUP g c STREAMS k >",
            "XREADGROUP GROUP g c BLOCK 0 STREAMS k >;XACK k g 1-1;XCLAIM k g d 0 2-1;XAUTOCLAIM k g e 0 0",
            "MULTI;XADD k 3-1 f 3;EXEC",
            "EVAL return(redis.call('xdel',KEYS[1],'1-1')) 1 k",
        ],
    },
    Kind {
        made: &["GEOADD k 13.3 38.1 a 15 37.5 b", "GEOADD m 2.3 48.8 c"],
        reads: &[
            "GEODIST k a b km",
            "GEOHASH k a",
            "GEOPOS k a none",
            "GEOSEARCH k FROMLONLAT 14 38 BYRADIUS 300 km ASC",
            "GEORADIUS_RO k 14 38 300 km WITHDIST ASC",
            "GEORADIUSBYMEMBER_RO k a 300 km ASC",
        ],
        changes: &[
            "GEOADD k 14 38 c",
            "GEOADD k XX 14 38 a",
            "ZREM k a",
            "GEOSEARCHSTORE k m FROMLONLAT 2 48 BYRADIUS 300 km",
            "GEORADIUS m 2 48 300 km STORE k",
            "GEORADIUSBYMEMBER m c 300 km STOREDIST k",
        ],
    },
];

/// Write commands of the Redis that are done to no key here: RESTORE by a script alone, since what it takes is no text;
/// these others are not for clients.
const NOT_DONE: [&str; 4] = ["MIGRATE", "PFDEBUG", "RESTORE", "RESTORE-ASKING"];

/// Does a change, and waits until the Redis has it.
fn change(writer: &mut Connection, direct: &mut Connection, lines: &str) {
    for line in lines.split(';') {
        call(writer, line);
    }
    if lines.ends_with("PEXPIRE k 1") {
        assert!(wait_until(PATIENCE, || call(direct, "EXISTS k") == "0"));
    }
    // Where the log has answered the Redis may not have executed it; no answer to this one is known.
    call(writer, "PTTL k");
}

/// Of one kind of key every change, done by this connection, shows in every read.
fn every_change_shows(site: &Site, kind: &Kind, tracks: bool) {
    let mut clients = in_both(|| site.connect());
    let mut truths = in_both(|| site.direct());
    let (mut writer, mut direct) = (site.connect(), site.direct());
    let reads = [&READS_OF_ALL[..], kind.reads].concat();
    if tracks {
        assert_eq!(call(&mut writer, "CLIENT TRACKING ON BCAST PREFIX none"), "OK");
    }
    for lines in CHANGES_OF_ALL.iter().chain(kind.changes) {
        assert_eq!(call(&mut clients[0], "FLUSHALL"), "OK");
        for line in kind.made {
            call(&mut clients[0], line);
        }
        warm(&mut clients, &mut direct, &reads);
        change(&mut writer, &mut direct, lines);
        for read in &reads {
            for (client, truth) in clients.iter_mut().zip(&mut truths) {
                let truth = ask(truth, read);
                for _ in 0..2 {
                    assert_eq!(ask(client, read), truth, "{read} behind {lines}");
                }
            }
        }
    }
}

fn every_change_of_every_kind_shows(mode: &str, tracks: bool) {
    let Some(site) = Site::new(&format!("proxy-cache-reads-{mode}-{tracks}")) else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &["--mode", mode]);
    for kind in &KINDS {
        every_change_shows(&site, kind, tracks);
    }
}

#[test]
fn every_read_shows_every_change_at_once_where_the_redis_answers() {
    every_change_of_every_kind_shows("covered", false);
}

#[test]
fn every_read_shows_every_change_at_once_where_the_log_answers() {
    every_change_of_every_kind_shows("early", false);
}

#[test]
fn every_read_shows_what_goes_past_the_order() {
    every_change_of_every_kind_shows("covered", true);
}

fn texts(reply: &Reply) -> Vec<&str> {
    let Reply::Array(all) = reply else { return Vec::new() };
    all.iter()
        .filter_map(|part| if let Reply::Simple(text) = part { Some(text.as_str()) } else { None })
        .collect()
}

fn bulks(reply: &Reply) -> Vec<String> {
    let Reply::Array(all) = reply else { return Vec::new() };
    all.iter()
        .filter_map(|part| match part {
            Reply::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        })
        .collect()
}

#[test]
fn the_redis_itself_says_that_the_table_s_commands_read_one_key_and_nothing_else() {
    let Some(site) = Site::new("proxy-cache-reads-table") else { return };
    let _redis = site.redis(&[]);
    let mut direct = site.direct();
    for read in &READS {
        let Reply::Array(told) = ask(&mut direct, &format!("COMMAND INFO {}", read.name)) else { panic!() };
        let [Reply::Array(info)] = &told[..] else { panic!("{} is no command there: {told:?}", read.name) };
        let flags = texts(&info[2]);
        let is_one_of = |names: &[&str]| names.iter().any(|name| flags.contains(name));
        assert!(is_one_of(&["readonly"]), "{}: {flags:?}", read.name);
        assert!(!is_one_of(&["random", "blocking", "write", "movablekeys"]), "{}: {flags:?}", read.name);
        let last = if read.takes_keys { -1 } else { 1 };
        assert_eq!(info[3..=5], [1, last, 1].map(Reply::Integer), "{}", read.name);
        // Where an order is none of the value's the Redis may give it as it likes.
        let tips = bulks(&info[7]);
        assert!(!tips.iter().any(|tip| tip == "nondeterministic_output"), "{}: {tips:?}", read.name);
    }
}

#[test]
fn every_read_of_the_table_and_every_write_of_the_redis_is_tried() {
    let Some(site) = Site::new("proxy-cache-reads-all") else { return };
    let _redis = site.redis(&[]);
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let reads = KINDS.iter().flat_map(|kind| kind.reads).chain(&READS_OF_ALL).map(|line| name(line));
    let reads: BTreeSet<String> = reads.collect();
    assert_eq!(reads, READS.iter().map(|read| read.name.to_owned()).collect());
    let changes = KINDS.iter().flat_map(|kind| kind.changes).chain(&CHANGES_OF_ALL);
    let changes: BTreeSet<String> = changes.flat_map(|lines| lines.split(';')).map(name).collect();
    let Reply::Array(all) = ask(&mut site.direct(), "COMMAND") else { panic!() };
    for info in &all {
        let Reply::Array(info) = info else { panic!("{info:?}") };
        let Reply::Bulk(name) = &info[0] else { panic!("{info:?}") };
        let name = String::from_utf8_lossy(name).to_uppercase();
        let writes_keys = texts(&info[2]).contains(&"write") && info[8] != Reply::Array(Vec::new());
        let is_tried = changes.contains(&name) || NOT_DONE.contains(&name.as_str());
        assert!(!writes_keys || is_tried, "{name} writes and is tried nowhere here");
    }
}

#[test]
fn what_is_known_is_answered_by_the_case_of_no_name_and_to_nobody_without_the_right() {
    let Some(site) = Site::new("proxy-cache-reads-users") else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &[]);
    let (mut clients, mut direct) = (in_both(|| site.connect()), site.direct());
    assert_eq!(call(&mut clients[0], "ACL SETUSER app on >pw ~* &* +@all -hgetall"), "OK");
    assert_eq!(call(&mut clients[0], "HSET k a 1"), "1");
    warm(&mut clients, &mut direct, &["HGETALL k", "HLEN k"]);
    let mut app = site.connect();
    assert_eq!(call(&mut app, "AUTH app pw"), "OK");
    let before = executed(&mut direct);
    for client in &mut clients {
        assert_eq!(call(client, "hgetall k"), "Array([Bulk([97]), Bulk([49])])");
    }
    assert_eq!(executed(&mut direct), before, "the Redis was asked for nothing");
    let refused = call(&mut app, "HGETALL k");
    assert!(refused.starts_with("NOPERM"), "{refused}");
    assert_eq!(call(&mut app, "HSET k a 2"), "0");
    assert_eq!(call(&mut clients[0], "HGETALL k"), "Array([Bulk([97]), Bulk([50])])");
}

#[test]
fn who_waits_for_an_element_changes_its_keys_alone() {
    let Some(site) = Site::new("proxy-cache-reads-waiting") else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &[]);
    let (mut clients, mut direct) = (in_both(|| site.connect()), site.direct());
    assert_eq!(call(&mut clients[0], "RPUSH k a"), "1");
    assert_eq!(call(&mut clients[0], "HSET h a 1"), "1");
    let (of_list, of_hash) = (["LRANGE k 0 -1", "LLEN k"], ["HGETALL h", "GET s"]);
    assert_eq!(call(&mut clients[0], "SET s v"), "OK");
    warm(&mut clients, &mut direct, &[&of_list[..], &of_hash].concat());
    let mut waiting = site.connect();
    waiting.push(&["BLMOVE", "q", "k", "LEFT", "RIGHT", "0"]);
    waiting.flush().expect("it is sent");
    assert!(wait_until(PATIENCE, || call(&mut direct, "CLIENT LIST").contains("cmd=blmove")));
    let before = executed(&mut direct);
    for line in of_hash {
        call(&mut clients[0], line);
    }
    assert_eq!(executed(&mut direct), before, "other keys' reads are answered as before");
    for line in of_list {
        call(&mut clients[0], line);
    }
    assert_eq!(executed(&mut direct), before + 2, "of these the next push may change what there is");
    // That one names the other key.
    assert_eq!(call(&mut clients[0], "RPUSH q b"), "1");
    assert_eq!(call(&mut clients[0], "LLEN k"), "2");
    waiting.read().expect("it is answered");
    warm(&mut clients, &mut direct, &of_list);
    assert_eq!(call(&mut clients[0], "LRANGE k 0 -1"), "Array([Bulk([97]), Bulk([98])])");
}

#[test]
fn no_length_of_a_list_is_older_than_what_was_moved_there() {
    const MOVES: u64 = 600;
    let Some(site) = Site::new("proxy-cache-reads-moves") else { return };
    let _redis = site.redis(&[]);
    let _proxy = with_cache(&site, &[]);
    let (begun, moved, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut client, mut seen) = (site.connect(), 0);
                while !is_over.load(Ordering::SeqCst) {
                    let least = moved.load(Ordering::SeqCst).max(seen);
                    seen = call(&mut client, "LLEN k").parse().expect("a number");
                    let most = begun.load(Ordering::SeqCst);
                    assert!((least..=most).contains(&seen), "it is {seen}, {least} were there");
                }
            });
        }
        scope.spawn(|| {
            let mut client = site.connect();
            for number in 1..=MOVES {
                begun.store(number, Ordering::SeqCst);
                call(&mut client, &format!("RPUSH q {number}"));
                // Now and then there is something before anybody waits.
                let is_ahead = number % 3 == 0;
                wait_until(PATIENCE, || is_ahead || moved.load(Ordering::SeqCst) == number);
            }
        });
        let mover = scope.spawn(|| {
            let mut client = site.connect();
            for _ in 0..MOVES {
                call(&mut client, "BLMOVE q k LEFT RIGHT 0");
                moved.fetch_add(1, Ordering::SeqCst);
            }
        });
        let is_moved = mover.join().is_ok();
        is_over.store(true, Ordering::SeqCst);
        assert!(is_moved);
    });
    assert_eq!(call(&mut site.direct(), "LLEN k"), MOVES.to_string());
}
