//! An append-only file that was cut inside a transaction, against a real redis-server: what the next
//! restarts make of it.

mod support;

use scotfree_core::SessionId;
use scotfree_resp::back::Ending;
use scotfree_resp::back::{BackConfig, StopReason};
use scotfree_resp::codec::{text_of, write_command, Command};
use scotfree_resp::payload::{RequestFlags, RequestHead, RequestKind};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use support::driver::BackDriver;
use support::RedisServer;

const ALWAYS: &[&str] = &["--appendonly yes", "--appendfsync always"];
const SESSION: SessionId = SessionId(1);
const UPDATES: u64 = 3;
/// The end of a transaction is shorter, so a cut of so many bytes is inside the command before it.
const CUT_BYTES: u64 = 20;

fn incremented() -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHead { flags: RequestFlags::NONE, db: 0, connection: 1 }.write(&mut bytes);
    write_command(&mut bytes, Command::new(["INCR", "n"]).args());
    bytes
}

/// Sends the session's first updates, which become one transaction.
fn update(driver: &mut BackDriver) {
    let tickets: Vec<u64> =
        (1..=UPDATES).map(|seq| driver.execute(SESSION, seq, RequestKind::Update, &incremented())).collect();
    for ticket in tickets {
        assert!(!driver.response(ticket).failed);
    }
}

fn number(redis: &RedisServer) -> u64 {
    let reply = redis.connect().line("GET n");
    text_of(&reply).map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"))
}

fn file(redis: &RedisServer) -> PathBuf {
    redis.folder.join("appendonlydir/appendonly.aof.1.incr.aof")
}

/// A server whose file was cut inside the transaction of the updates, loaded again; and the last epoch.
fn cut_server() -> Option<(RedisServer, BackConfig)> {
    let mut redis = RedisServer::start(ALWAYS)?;
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    driver.open(SESSION.0);
    update(&mut driver);
    let last_epoch = driver.started.as_ref().map(|report| report.epoch);
    redis.kill();
    let handle = OpenOptions::new().write(true).open(file(&redis)).expect("it is there");
    let bytes = handle.metadata().expect("it is there").len();
    handle.set_len(bytes - CUT_BYTES).expect("it can be cut");
    redis.restart();
    assert_eq!(number(&redis), 0, "a transaction without end was not executed");
    Some((redis, BackConfig { last_epoch, ..BackConfig::default() }))
}

/// The client sends again what was lost, and the server is restarted twice: what it counts then, and what
/// the sidecar said.
fn count_after_restarts(is_read: bool) -> Option<(u64, Vec<String>)> {
    let (mut redis, config) = cut_server()?;
    let mut driver = BackDriver::new(&redis.socket(), config);
    driver.assumed_ending = (!is_read).then_some(Ending::Whole);
    driver.until("the start", |driver| driver.started.is_some());
    update(&mut driver);
    for _ in 0..2 {
        redis.kill();
        redis.restart();
    }
    Some((number(&redis), driver.waits))
}

#[test]
fn a_transaction_without_end_is_mended_before_anything_is_served() {
    let Some((count, said)) = count_after_restarts(true) else { return };
    assert_eq!(count, UPDATES);
    assert!(said.len() == 1 && said[0].contains("appendonly.aof.1.incr.aof has a transaction without end"));
}

#[test]
fn a_server_that_is_killed_while_it_mends_its_files_starts_again() {
    let Some((mut redis, config)) = cut_server() else { return };
    redis.connect().line("CONFIG SET hz 1");
    let mut driver = BackDriver::new(&redis.socket(), config.clone());
    // It looks once a second whether there is something to begin, or to bring to an end.
    let mut connection = redis.connect();
    let mut is_mending = || {
        let info = String::from_utf8_lossy(&connection.line("INFO persistence")).into_owned();
        info.contains("aof_rewrite_scheduled:1") || info.contains("aof_rewrite_in_progress:1")
    };
    driver.until("the mend", |_| is_mending());
    redis.kill();
    redis.restart();
    assert_eq!(number(&redis), 0);
    let mut driver = BackDriver::started(&redis.socket(), BackConfig { last_epoch: None, ..config });
    update(&mut driver);
    redis.kill();
    redis.restart();
    assert_eq!(number(&redis), UPDATES);
}

#[test]
fn without_the_look_at_the_files_its_beginning_is_applied_again() {
    let Some((count, said)) = count_after_restarts(false) else { return };
    assert_eq!((count, said), (2 * UPDATES, Vec::new()));
}

#[test]
fn whole_files_are_left_as_they_are() {
    let Some(mut redis) = RedisServer::start(ALWAYS) else { return };
    for _ in 0..2 {
        let driver = BackDriver::started(&redis.socket(), BackConfig::default());
        assert_eq!(driver.waits, Vec::<String>::new());
        redis.kill();
        redis.restart();
    }
    assert!(file(&redis).exists());
}

#[test]
fn files_that_cannot_be_read_are_rewritten_to_be_sure() {
    let Some((redis, config)) = cut_server() else { return };
    let handle = OpenOptions::new().write(true).open(file(&redis)).expect("it is there");
    handle.write_all_at(b"x", 0).expect("it is ours");
    let mut driver = BackDriver::started(&redis.socket(), config);
    assert!(driver.waits[0].contains("cannot be read"), "{:?}", driver.waits);
    driver.until("the old file's end", |_| !file(&redis).exists());
}

#[test]
fn a_server_that_cannot_rewrite_its_file_is_refused_with_the_mend() {
    let Some((redis, config)) = cut_server() else { return };
    // A rewrite begins with the next file to append to: something stands in its place.
    let blocked = redis.folder.join("appendonlydir/appendonly.aof.2.incr.aof");
    std::fs::create_dir(&blocked).expect("it is ours");
    let mut driver = BackDriver::new(&redis.socket(), config);
    driver.until("the refusal", |driver| driver.stopped.is_some());
    let Some(StopReason::Unwilling(reasons)) = driver.stopped.take() else { panic!("{driver:?}") };
    let mend = format!("redis-check-aof --fix {}", file(&redis).display());
    assert!(reasons[0].contains(&mend), "{reasons:?}");
}
