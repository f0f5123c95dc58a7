//! The class table, derived again by observing a real redis-server.
//!
//! Every form of every write command is run on a key in many states. Its reply is fixed if no state
//! changes it; a covered command gives the same reply and leaves the same state when it is run again from
//! the same state; a command whose expiry was made absolute answers what the original answers; a read
//! changes nothing.

mod support;

use scotfree_resp::classes::{classify, rows, Class, Flags};
use scotfree_resp::codec::{is_error, Command};
use scotfree_resp::expiry::{make_absolute, Expiry};
use std::collections::BTreeSet;
use support::{text, Connection, RedisServer};

/// States of the keys k and m, each made by commands divided by "|".
const STATES: &[(&str, &str)] = &[
    ("missing", ""),
    ("string", "SET k hello|SET m world"),
    ("number", "SET k 10|SET m 20"),
    ("empty string", "SETRANGE k 0 a|SETRANGE m 0 b|SET k |SET m "),
    ("list", "RPUSH k a b c|RPUSH m d"),
    ("set", "SADD k a b|SADD m b c"),
    ("set of numbers", "SADD k 1 2 3|SADD m 2"),
    ("hash", "HSET k f 1 g x|HSET m f 2"),
    ("sorted set", "ZADD k 1 a 2 b|ZADD m 5 c"),
    ("places", "GEOADD k 13.361389 38.115556 a|GEOADD m 15.087269 37.502669 b"),
    ("stream", "XADD k 1-1 f v|XGROUP CREATE k g 0|XADD m 1-1 f v"),
    ("counter", "PFADD k a b|PFADD m c"),
    ("bits", "SETBIT k 7 1|SETBIT m 3 1"),
    ("volatile string", "SET k hello EX 1000|SET m world EX 1000"),
    ("volatile list", "RPUSH k a b|EXPIRE k 1000"),
    ("expired string", "SET k hello PXAT 1|SET m world PXAT 1"),
    ("only the source", "SET k hello"),
    ("only the destination", "SET m hello"),
];

/// A line or more for every form of every write command.
const WRITES: &[&str] = &[
    "APPEND k x",
    "BITFIELD k INCRBY u8 0 1",
    "BITOP AND m k k",
    "BITOP NOT k m",
    "COPY k m",
    "COPY k m REPLACE",
    "DECR k",
    "DECRBY k 3",
    "DEL k",
    "DEL k m",
    "EXPIRE k 100",
    "EXPIRE k 100 NX",
    "EXPIREAT k 99999999999",
    "FLUSHALL",
    "FLUSHALL ASYNC",
    "FLUSHDB",
    "GEOADD k 1 2 a",
    "GEORADIUS k 15 37 200 km STORE m",
    "GEORADIUS k 15 37 200 km COUNT 1 ANY STOREDIST m",
    "GEORADIUS k 15 37 200 km",
    "GEORADIUSBYMEMBER k a 200 km STORE m",
    "GEORADIUSBYMEMBER k a 200 km COUNT 1 ANY STORE m",
    "GEORADIUSBYMEMBER k a 200 km",
    "GEOSEARCHSTORE m k FROMLONLAT 15 37 BYRADIUS 200 km",
    "GEOSEARCHSTORE m k FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1 ANY",
    "GETDEL k",
    "GETEX k EX 100",
    "GETEX k PERSIST",
    "GETSET k x",
    "HDEL k f",
    "HINCRBY k f 1",
    "HINCRBYFLOAT k f 1.5",
    "HMSET k f x",
    "HSET k f x",
    "HSETNX k f x",
    "INCR k",
    "INCRBY k 2",
    "INCRBYFLOAT k 0.5",
    "LINSERT k BEFORE a x",
    "LMOVE k m LEFT RIGHT",
    "LMPOP 1 k LEFT",
    "LPOP k",
    "LPOP k 2",
    "LPUSH k x",
    "LPUSHX k x",
    "LREM k 1 a",
    "LSET k 0 x",
    "LTRIM k 0 0",
    "MOVE k 3",
    "MSET k x m y",
    "MSETNX k x m y",
    "PERSIST k",
    "PEXPIRE k 100000",
    "PEXPIREAT k 9999999999999",
    "PFADD k x",
    "PFMERGE m k",
    "PSETEX k 100000 v",
    "RENAME k m",
    "RENAMENX k m",
    "RESTORE k 0 {dump}",
    "RESTORE k 100000 {dump} REPLACE",
    "RPOP k",
    "RPOPLPUSH k m",
    "RPUSH k x",
    "RPUSHX k x",
    "SADD k x",
    "SDIFFSTORE m k",
    "SET k v",
    "SET k v EX 100",
    "SET k v PX 100000",
    "SET k v EXAT 99999999999",
    "SET k v PXAT 9999999999999",
    "SET k v NX",
    "SET k v XX",
    "SET k v GET",
    "SET k v KEEPTTL",
    "SETBIT k 3 1",
    "SETEX k 100 v",
    "SETNX k v",
    "SETRANGE k 2 xx",
    "SINTERSTORE m k",
    "SMOVE k m a",
    "SORT k ALPHA STORE m",
    "SORT k ALPHA",
    "SPOP k",
    "SREM k a",
    "SUNIONSTORE m k",
    "SWAPDB 0 3",
    "UNLINK k",
    "XACK k g 1-1",
    "XADD k * f v",
    "XADD k 5-1 f v",
    "XADD k MAXLEN ~ 5 6-1 f v",
    "XAUTOCLAIM k g c 0 0",
    "XCLAIM k g c 0 1-1",
    "XDEL k 1-1",
    "XGROUP CREATE k h 0",
    "XGROUP CREATECONSUMER k g c",
    "XGROUP DELCONSUMER k g c",
    "XGROUP DESTROY k g",
    "XGROUP SETID k g 0",
    "XREADGROUP GROUP g c STREAMS k >",
    "XREADGROUP GROUP g c BLOCK 1 STREAMS k 0",
    "XSETID k 9-1",
    "XTRIM k MAXLEN 0",
    "XTRIM k MAXLEN ~ 0",
    "ZADD k 3 x",
    "ZDIFFSTORE m 1 k",
    "ZINCRBY k 1 a",
    "ZINTERSTORE m 1 k",
    "ZMPOP 1 k MIN",
    "ZPOPMAX k",
    "ZPOPMIN k",
    "ZRANGESTORE m k 0 -1",
    "ZREM k a",
    "ZREMRANGEBYLEX k - +",
    "ZREMRANGEBYRANK k 0 0",
    "ZREMRANGEBYSCORE k 0 9",
    "ZUNIONSTORE m 1 k",
];

/// Write commands that are not observed: blocking ones, and those that need another server or scripts.
const NOT_OBSERVED: &[&str] = &[
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "FUNCTION DELETE",
    "FUNCTION FLUSH",
    "FUNCTION LOAD",
    "FUNCTION RESTORE",
    "MIGRATE",
    "PFDEBUG",
    "RESTORE-ASKING",
];

/// Reads whose samples need no more than a key.
const READS: &[&str] = &[
    "GET k",
    "EXISTS k",
    "TYPE k",
    "LRANGE k 0 -1",
    "HGETALL k",
    "SMEMBERS k",
    "ZRANGE k 0 -1",
    "XRANGE k - +",
    "TTL k",
    "PING",
    "ECHO x",
    "DBSIZE",
    "INFO server",
    "TIME",
    "OBJECT ENCODING k",
    "STRLEN k",
    "MGET k m",
    "SCAN 0",
    "KEYS *",
    "EVAL_RO return(1) 0",
    "SCRIPT EXISTS x",
    "CONFIG GET dir",
    "MEMORY USAGE k",
    "XREAD STREAMS k 0",
    "BITCOUNT k",
    "GEODIST k a b",
    "SRANDMEMBER k",
    "LOLWUT",
    "ROLE",
    "LASTSAVE",
];

struct Observer {
    connection: Connection,
    dump: Vec<u8>,
}

impl Observer {
    fn new(server: &RedisServer) -> Observer {
        let mut connection = server.connect();
        // What has expired stays until a command touches it, or its digest would depend on the moment.
        assert_eq!(connection.line("DEBUG SET-ACTIVE-EXPIRE 0"), b"+OK\r\n");
        connection.line("SET k dumped");
        let dump = connection.line("DUMP k");
        let dump = scotfree_resp::codec::text_of(&dump).expect("a dump is a string").to_vec();
        Observer { connection, dump }
    }

    fn command(&self, line: &str) -> Command {
        Command::new(
            line.split(' ').map(|word| if word == "{dump}" { &self.dump[..] } else { word.as_bytes() }),
        )
    }

    fn prepare(&mut self, state: &str) {
        for line in
            ["FLUSHALL", "SELECT 0"].into_iter().chain(state.split('|').filter(|line| !line.is_empty()))
        {
            let reply = self.connection.line(line);
            assert!(!is_error(&reply), "{line}: {}", text(&reply));
        }
    }

    fn run(&mut self, command: &Command) -> Vec<u8> {
        let words: Vec<&[u8]> = command.args().iter().collect();
        self.connection.call(&words)
    }

    /// The reply of a command in a state, and a digest of all data behind it.
    fn outcome(&mut self, state: &str, command: &Command) -> (Vec<u8>, Vec<u8>) {
        self.prepare(state);
        let reply = self.run(command);
        (reply, self.connection.line("DEBUG DIGEST"))
    }
}

#[test]
fn the_table_is_what_a_real_server_shows() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut observer = Observer::new(&server);
    let mut wrong = Vec::new();
    for line in WRITES {
        let command = observer.command(line);
        let verdict = classify(command.args());
        let replies: BTreeSet<Vec<u8>> =
            STATES.iter().map(|(_, state)| observer.outcome(state, &command).0).collect();
        let fixed = if replies.len() == 1 { replies.first().filter(|reply| !is_error(reply)) } else { None };
        if fixed.map(Vec::as_slice) != verdict.fixed_reply {
            wrong.push(format!(
                "{line}: observed {:?}, table {:?}",
                fixed.map(|r| text(r)),
                verdict.fixed_reply
            ));
        }
        if verdict.class == Class::Early && fixed.is_none() {
            wrong.push(format!("{line}: early without a fixed reply"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_covered_command_does_the_same_again_from_the_same_state() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut observer = Observer::new(&server);
    for line in WRITES {
        let command = observer.command(line);
        if !matches!(classify(command.args()).class, Class::Early | Class::Covered) {
            continue;
        }
        for (name, state) in STATES {
            let first = observer.outcome(state, &command);
            assert_eq!(first, observer.outcome(state, &command), "{line} on {name}");
        }
    }
}

#[test]
fn an_absolute_expiry_answers_what_the_relative_one_answers() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut observer = Observer::new(&server);
    let mut rewritten = 0;
    for line in WRITES {
        let command = observer.command(line);
        let now_ms = server_time_ms(&mut observer.connection);
        let Expiry::Absolute(absolute) = make_absolute(command.args(), now_ms) else { continue };
        rewritten += 1;
        for (name, state) in STATES {
            let original = observer.outcome(state, &command);
            assert_eq!(original, observer.outcome(state, &absolute), "{line} on {name}");
        }
    }
    assert!(rewritten >= 8, "only {rewritten} samples have a relative expiry");
}

#[test]
fn a_read_changes_nothing() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut observer = Observer::new(&server);
    for line in READS {
        let command = observer.command(line);
        assert_eq!(classify(command.args()).class, Class::Read, "{line}");
        // Whoever touches an expired key removes it, a reader too.
        for (name, state) in STATES.iter().filter(|(name, _)| *name != "expired string") {
            observer.prepare(state);
            let before = observer.connection.line("DEBUG DIGEST");
            observer.run(&command);
            assert_eq!(before, observer.connection.line("DEBUG DIGEST"), "{line} on {name}");
        }
    }
}

#[test]
fn the_server_agrees_with_arguments_that_are_refused_before_an_acknowledgement() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut connection = server.connect();
    let values =
        ["0", "-1", "1", "x", "", "+5", "05", "9223372036854775807", "9223372036854775", "1.5", "NX"];
    let mut refused = 0;
    for value in values {
        for form in [
            "SETEX k {} v",
            "PSETEX k {} v",
            "SET k v EX {}",
            "SET k v PX {}",
            "SET k v EXAT {}",
            "SET k v PXAT {}",
            "SET k v {}",
            "SET k v EX 5 {}",
            "SET k v EX 5 PX {}",
            "SETEX k {}",
            "SET k v PX {} EX",
        ] {
            let line = form.replace("{}", value);
            let command = Command::new(line.split(' '));
            let reply = connection.line(&line);
            let verdict = classify(command.args());
            let agreed = is_error(&reply) == (verdict.class == Class::Bypass);
            assert!(agreed || reply == b"$-1\r\n", "{line}: {} but {:?}", text(&reply), verdict.class);
            refused += usize::from(is_error(&reply));
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn every_write_form_of_this_server_is_observed() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let observer = Observer::new(&server);
    let observed: BTreeSet<(&str, &str)> = WRITES
        .iter()
        .filter_map(|line| classify(observer.command(line).args()).row)
        .map(|row| (row.command.as_str(), row.form.text()))
        .collect();
    let known = known_commands(&mut server.connect());
    for row in rows().iter().filter(|row| row.flags.has(Flags::WRITE)) {
        let is_observed = observed.contains(&(row.command.as_str(), row.form.text()));
        let is_here = known.contains(&row.command.to_ascii_lowercase().replace(' ', "|"));
        let is_excused = NOT_OBSERVED.contains(&row.command.as_str());
        assert!(is_observed || !is_here || is_excused, "{} {}", row.command, row.form.text());
    }
}

#[test]
fn the_table_knows_every_command_of_this_server_with_its_arity() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut connection = server.connect();
    for name in known_commands(&mut connection) {
        let words: Vec<&str> = name.split('|').collect();
        let row = classify(Command::new(&words).args()).row;
        assert_eq!(row.map(|row| row.command.to_ascii_lowercase().replace(' ', "|")), Some(name.clone()));
        let info = connection.call(&["COMMAND", "INFO", &name]);
        let text = String::from_utf8_lossy(&info).into_owned();
        let arity: i32 =
            text.split(':').nth(1).and_then(|rest| rest.split('\r').next()?.parse().ok()).expect("an arity");
        assert_eq!(row.map(|row| row.arity), Some(arity), "{name}");
    }
}

fn known_commands(connection: &mut Connection) -> BTreeSet<String> {
    let list = connection.line("COMMAND LIST");
    let commands = scotfree_resp::codec::elements(&list)
        .filter_map(scotfree_resp::codec::text_of)
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect::<Vec<_>>();
    assert!(commands.len() > 200, "{}", text(&list));
    commands.into_iter().filter(|name| name != "debug" && name != "function|help").collect()
}

fn server_time_ms(connection: &mut Connection) -> i64 {
    let reply = connection.line("TIME");
    let mut parts = scotfree_resp::codec::elements(&reply)
        .filter_map(scotfree_resp::codec::text_of)
        .filter_map(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
    let (seconds, micros) = (parts.next().expect("seconds"), parts.next().expect("microseconds"));
    seconds * 1_000 + micros / 1_000
}
