//! Reads that the proxy answers itself while others write its Redis: what the Redis tells of them, and that no answer
//! is older than what they have written by more than the bound.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::{Connection, Reply};
use site::{as_user, call, get, Site, PATIENCE};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// By how much answers may be older; as the proxy is told, too.
const BOUND: Duration = Duration::from_millis(20);
const BOUND_WORD: &str = "20ms";

/// A Redis, a proxy whose cache allows others, and where it says what it counts.
struct Stand {
    site: Site,
    redis: Process,
    proxy: Process,
    metrics: SocketAddr,
}

impl Stand {
    /// None where there is no Redis.
    fn new(name: &str, redis: &[&str], proxy: &[&str]) -> Option<Stand> {
        Some(Stand::at(Site::new(name)?, redis, proxy))
    }

    fn at(site: Site, redis: &[&str], proxy: &[&str]) -> Stand {
        let metrics = free_address();
        let redis = site.redis(redis);
        let at = metrics.to_string();
        let words = ["--cache", "16M", "--cache-tracking", BOUND_WORD, "--metrics", &at];
        let proxy = site.proxy(&[&words, proxy].concat());
        Stand { site, redis, proxy, metrics }
    }

    fn value_of(&self, name: &str) -> f64 {
        let text = get(self.metrics, "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }

    /// Waits until the proxy knows what a key's GET is answered; what that is.
    fn warm(&self, client: &mut Connection, direct: &mut Connection, key: &str) -> String {
        let mut found = String::new();
        let is_known = wait_until(PATIENCE, || {
            let before = gets(direct);
            found = call(client, &format!("GET {key}"));
            gets(direct) == before
        });
        assert!(is_known, "{key}: {}", get(self.metrics, "/metrics"));
        found
    }
}

/// How many GETs the Redis has executed.
fn gets(direct: &mut Connection) -> u64 {
    let all = call(direct, "INFO commandstats");
    let line = all.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Ends the connection by which the Redis tells the proxy of writes.
fn kill_teller(direct: &mut Connection) -> bool {
    let list = call(direct, "CLIENT LIST");
    let teller = list.lines().find(|line| line.contains("name=scotfree-tracking "));
    let Some(id) = teller.and_then(|line| line.strip_prefix("id=")?.split(' ').next()) else { return false };
    call(direct, &format!("CLIENT KILL ID {id}")) == "1"
}

/// What others do to `k`, known to be `v`, by lines that are sent one after the other.
const CHANGES: [&str; 47] = [
    "SET k w",
    "SET k w EX 100",
    "SETEX k 100 w",
    "APPEND k w",
    "SETRANGE k 1 w",
    "SETBIT k 7 1",
    "BITFIELD k SET u8 0 65",
    "GETSET k w",
    "GETDEL k",
    "GETEX k PXAT 1",
    "DEL k",
    "UNLINK k",
    "MSET j 1 k w",
    "DEL k;MSETNX j9 1 k w",
    "RENAME k l",
    "SET j w;RENAME j k",
    "DEL k;SET j w;RENAMENX j k",
    "SET j w;COPY j k REPLACE",
    "MOVE k 1",
    "SELECT 1;SET k w;SELECT 0;DEL k;SELECT 1;MOVE k 0;SELECT 0",
    "SET j w;BITOP OR k j",
    "RPUSH l w;SORT l ALPHA STORE k",
    "SADD s w;SUNIONSTORE k s",
    "ZADD z 1 w;ZRANGESTORE k z 0 -1",
    "GEOADD g 1 1 m;GEOSEARCHSTORE k g FROMMEMBER m BYRADIUS 1 m",
    "RPUSH l1 w;DEL k;LMOVE l1 k LEFT LEFT",
    "SADD s1 w;DEL k;SMOVE s1 k w",
    "DEL k;XADD k 1-1 f w",
    "DEL k;HSET k f w",
    "DEL k;PFADD k a;PFCOUNT k",
    "PEXPIREAT k 1",
    "EXPIRE k 0",
    "PEXPIRE k 20",
    "SET k w PXAT 1",
    "SET k w PX 20",
    "DEL k;SET k 5;INCR k",
    "SET k 5;DECRBY k 3",
    "SET k 5;INCRBYFLOAT k 0.5",
    "EVAL return(redis.call('set',KEYS[1],'w')) 1 k",
    "EVAL return(redis.call('set','k','w')) 0",
    "FLUSHDB",
    "FLUSHALL",
    "FLUSHALL ASYNC",
    "MULTI;SET k w;INCR n;EXEC",
    "MULTI;SELECT 1;SET k w;SELECT 0;SET k x;EXEC",
    "SET k2 w;DEL k;RESTORE",
    "DEBUG RELOAD",
];

/// Does what a line says; RESTORE of what `k2` is.
fn change(other: &mut Connection, line: &str) {
    if line != "RESTORE" {
        call(other, line);
        return;
    }
    let Ok(Reply::Bulk(form)) = other.call(&["DUMP", "k2"]) else { panic!("it has a form") };
    other.call::<&[u8]>(&[b"RESTORE", b"k", b"0", &form]).expect("it is answered");
}

#[test]
fn every_change_that_others_make_is_seen_within_the_bound() {
    let debug = ["--enable-debug-command", "yes"];
    let Some(stand) = Stand::new("proxy-cache-others-changes", &debug, &[]) else { return };
    let (mut reader, mut direct, mut other) =
        (stand.site.connect(), stand.site.direct(), stand.site.direct());
    for lines in CHANGES {
        for line in ["SELECT 1", "FLUSHDB", "SELECT 0", "FLUSHDB", "SET k v"] {
            assert_eq!(call(&mut other, line), "OK");
        }
        let is_there = || call(&mut reader, "GET k") == "v";
        assert!(wait_until(PATIENCE, is_there), "{lines}");
        stand.warm(&mut reader, &mut direct, "k");
        for line in lines.split(';') {
            change(&mut other, line);
        }
        let written = Instant::now();
        loop {
            // A key's time may be over just while it is read.
            let before = call(&mut direct, "GET k");
            let begun = Instant::now();
            let found = call(&mut reader, "GET k");
            let truths = [call(&mut direct, "GET k"), before];
            let may_be_old = begun.duration_since(written) <= BOUND;
            assert!(may_be_old || truths.contains(&found), "{lines}: {found}, and it is {truths:?}");
            if !may_be_old && truths[0] == found {
                break;
            }
        }
    }
    assert!(stand.value_of("scotfree_cache_hits_total") >= CHANGES.len() as f64);
    assert!(stand.value_of("scotfree_cache_stale_max_seconds") <= BOUND.as_secs_f64());
}

#[test]
fn what_the_proxy_s_own_clients_write_is_seen_at_once_as_ever() {
    let Some(stand) = Stand::new("proxy-cache-others-own", &[], &[]) else { return };
    let (mut reader, mut writer, mut direct) =
        (stand.site.connect(), stand.site.connect(), stand.site.direct());
    for round in 0..200 {
        assert_eq!(call(&mut writer, &format!("SET k {round}")), "OK");
        assert_eq!(call(&mut reader, "GET k"), round.to_string());
        if round % 20 == 0 {
            assert_eq!(stand.warm(&mut reader, &mut direct, "k"), round.to_string());
        }
    }
}

#[test]
fn who_does_not_hear_of_writes_answers_nothing_and_knows_nothing_afterwards() {
    let Some(stand) = Stand::new("proxy-cache-others-lost", &[], &[]) else { return };
    let (mut reader, mut direct) = (stand.site.connect(), stand.site.direct());
    for round in 0..10 {
        call(&mut direct, &format!("SET k {round}"));
        let is_new = || call(&mut reader, "GET k") == round.to_string();
        assert!(wait_until(PATIENCE, is_new));
        stand.warm(&mut reader, &mut direct, "k");
        let losses = stand.value_of("scotfree_cache_tracking_losses_total");
        // In one turn of the Redis: nobody is told.
        let id = call(&mut direct, "CLIENT LIST");
        let id = id.lines().find(|line| line.contains("name=scotfree-tracking ")).expect("it is there");
        let id = id.strip_prefix("id=").and_then(|line| line.split(' ').next()).expect("a number").to_owned();
        for words in [&["MULTI"][..], &["CLIENT", "KILL", "ID", &id], &["SET", "k", "unheard"], &["EXEC"]] {
            direct.push(words);
        }
        direct.flush().expect("it is sent");
        (0..4).for_each(|_| drop(direct.read().expect("it is answered")));
        let written = Instant::now();
        let is_seen = wait_until(PATIENCE, || {
            let begun = Instant::now();
            let found = call(&mut reader, "GET k");
            assert!(found == "unheard" || begun.duration_since(written) <= BOUND, "{found}");
            found == "unheard"
        });
        assert!(is_seen);
        let is_lost = || stand.value_of("scotfree_cache_tracking_losses_total") > losses;
        assert!(wait_until(PATIENCE, is_lost), "round {round}");
    }
    let said = stand.proxy.error_output();
    assert!(said.contains("ALARM: the Redis server does not tell what others write: "), "{said}");
    assert_eq!(stand.warm(&mut reader, &mut direct, "k"), "unheard", "it comes back by itself");
}

#[test]
fn a_redis_that_refuses_to_tell_is_spoken_of_and_everything_else_goes_on() {
    let Some(stand) = Stand::new("proxy-cache-others-refused", &[], &[]) else { return };
    let (mut reader, mut direct) = (stand.site.connect(), stand.site.direct());
    call(&mut direct, "SET k v");
    assert_eq!(stand.warm(&mut reader, &mut direct, "k"), "v");
    assert_eq!(call(&mut direct, "ACL SETUSER default -client|tracking"), "OK");
    assert!(kill_teller(&mut direct));
    let is_said = || stand.proxy.error_output().contains("NOPERM");
    assert!(wait_until(PATIENCE, is_said), "{}", stand.proxy.error_output());
    assert!(stand.proxy.error_output().contains("ACL SETUSER NAME +hello +client"));
    let is_untold = || stand.value_of("scotfree_cache_tracking") == 0.0;
    assert!(wait_until(PATIENCE, is_untold));
    let before = gets(&mut direct);
    for _ in 0..20 {
        assert_eq!(call(&mut reader, "GET k"), "v");
    }
    assert_eq!(gets(&mut direct), before + 20, "all of them were the Redis' own");
    assert_eq!(call(&mut direct, "ACL SETUSER default +client|tracking"), "OK");
    assert_eq!(stand.warm(&mut reader, &mut direct, "k"), "v");
}

/// How many storms there are at most until some of their reads were answered by the proxy.
const STORMS_MAX: usize = 6;

/// What the writer and the readers of a storm know.
#[derive(Default)]
struct Storm {
    /// When each value was answered, from 1 on.
    answered: Mutex<Vec<Instant>>,
    begun: AtomicU64,
    reads: AtomicU64,
    is_over: AtomicBool,
}

/// Writes 1, 2, 3 … to a key at the Redis itself, and notes when each was answered.
fn write_past(direct: &mut Connection, storm: &Storm, count: u64) {
    for value in 1..=count {
        storm.begun.store(value, Ordering::SeqCst);
        match value % 40 {
            9 => _ = call(direct, &format!("EVAL return(redis.call('set','s',{value})) 0")),
            19 => _ = call(direct, &format!("MSET s {value} t 1")),
            29 => {
                call(direct, &format!("SET s:new {value}"));
                call(direct, "RENAME s:new s");
            }
            39 => drop(kill_teller(direct)),
            _ => _ = call(direct, &format!("SET s {value}")),
        }
        storm.answered.lock().expect("nobody panics").push(Instant::now());
        // Some values stay for longer, so that they are known.
        if value % 5 == 0 {
            let before = storm.reads.load(Ordering::SeqCst);
            let are_read = || storm.reads.load(Ordering::SeqCst) > before + 100;
            assert!(wait_until(PATIENCE, are_read), "somebody reads");
        }
    }
}

fn read_past(client: &mut Connection, storm: &Storm) {
    let mut is_get = false;
    while !storm.is_over.load(Ordering::SeqCst) {
        let asked = Instant::now();
        let answered = storm.answered.lock().expect("nobody panics");
        let least = answered.iter().rposition(|at| *at + BOUND < asked).map_or(0, |index| index as u64 + 1);
        drop(answered);
        // In the place of this one nothing was written.
        let least = if least % 40 == 39 { least - 1 } else { least };
        is_get = !is_get;
        let found = call(client, if is_get { "GET s" } else { "GETRANGE s 0 -1" });
        let most = storm.begun.load(Ordering::SeqCst);
        let is_missing = found.is_empty() || found == "nil";
        let value = if is_missing { 0 } else { found.parse().expect("a number") };
        assert!((least..=most).contains(&value), "it is {value}; {least} was there for longer");
        storm.reads.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn no_read_of_a_storm_is_older_than_what_was_answered_longer_than_the_bound_before_it() {
    let Some(stand) = Stand::new("proxy-cache-others-storm", &[], &[]) else { return };
    let hits = || stand.value_of("scotfree_cache_hits_total");
    let is_enough = || hits() > 0.0 && stand.value_of("scotfree_cache_told_total") > 100.0;
    // Where the machine is slow for a while nothing is known for long enough to be answered.
    let storms = (0..STORMS_MAX).take_while(|_| {
        blow(&stand);
        !is_enough()
    });
    assert!(storms.count() < STORMS_MAX, "{} hits", hits());
    eprintln!("{} hits, the oldest {} s", hits(), stand.value_of("scotfree_cache_stale_max_seconds"));
}

/// One writer past the proxy, and three readers, before a key that is not there.
fn blow(stand: &Stand) {
    let storm = Storm::default();
    let (mut reader, mut direct) = (stand.site.connect(), stand.site.direct());
    call(&mut direct, "DEL s");
    assert!(wait_until(PATIENCE, || call(&mut reader, "GET s") == "nil"), "it is told");
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| read_past(&mut stand.site.connect(), &storm))).collect();
        let written = scope.spawn(|| write_past(&mut direct, &storm, 1_000)).join();
        storm.is_over.store(true, Ordering::SeqCst);
        assert!(readers.into_iter().all(|reader| reader.join().is_ok()));
        assert!(written.is_ok());
    });
}

#[test]
fn a_proxy_with_a_user_of_its_own_is_told_as_that_user() {
    let Some(site) = Site::new("proxy-cache-others-user") else { return };
    let proxy = as_user(&site, "scot", "secret");
    let stand = Stand::at(site, &["--user", "scot", "on", ">secret", "+@all", "~*", "&*"], &proxy);
    let (mut reader, mut direct) = (stand.site.connect(), stand.site.direct());
    call(&mut direct, "SET k v");
    assert_eq!(stand.warm(&mut reader, &mut direct, "k"), "v");
    let list = call(&mut direct, "CLIENT LIST");
    let teller = list.lines().find(|line| line.contains("name=scotfree-tracking ")).expect("it is there");
    assert!(teller.contains(" user=scot "), "{teller}");
}

#[test]
fn what_was_known_is_forgotten_when_the_redis_is_another() {
    let Some(mut stand) = Stand::new("proxy-cache-others-another", &[], &[]) else { return };
    let (mut reader, mut direct) = (stand.site.connect(), stand.site.direct());
    call(&mut direct, "SET k v");
    stand.warm(&mut reader, &mut direct, "k");
    drop(direct);
    stand.redis.kill();
    stand.redis = stand.site.redis(&[]);
    let mut direct = stand.site.direct();
    call(&mut direct, "SET k w");
    let is_new = || call(&mut reader, "GET k") == "w";
    assert!(wait_until(PATIENCE, is_new));
    assert_eq!(stand.warm(&mut reader, &mut direct, "k"), "w");
}
