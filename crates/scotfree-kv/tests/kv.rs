//! The service as its server sees it: replies, stability, limits, and a restart in the middle.

mod common;

use common::{open, options, Driver, MemoryStorage};
use scotfree_core::{Nanos, SessionId};
use scotfree_io::disk::{DiskConfig, DiskDomain};
use scotfree_io::storage::Storage;
use scotfree_kv::{KvOptions, KvService};
use scotfree_resp::front::describe_request;
use scotfree_resp::payload::{write_request, RequestFlags};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::Handler;
use scotfree_session::RequestKind;
use std::path::Path;
use std::sync::Arc;

#[test]
fn replies_come_at_once_and_stability_follows() {
    let storage = MemoryStorage::of(Vec::new());
    let (service, recovery) = open(&storage, &options(1 << 20)).expect("a new log");
    assert_eq!((recovery.epoch.0, recovery.key_count, recovery.op_count), (1, 0, 0));
    let mut driver = Driver::new(service);
    driver.start_session(1);
    assert_eq!(driver.run(RequestKind::Update, 1, 1, "SET k v"), "+OK\r\n");
    assert_eq!(driver.run(RequestKind::Read, 1, 2, "GET k"), "$1\r\nv\r\n");
    assert_eq!(driver.run(RequestKind::Bypass, 1, 3, "INCR n"), ":1\r\n");
    assert_eq!(driver.stable, 0);
    driver.settle();
    assert_eq!(driver.stable, 3);
    // Nothing of a read goes to the log: it is stable as soon as what it saw is.
    driver.run(RequestKind::Read, 1, 4, "GET k");
    driver.poll();
    assert_eq!(driver.stable, 4);
}

#[test]
fn a_restart_knows_keys_positions_and_sessions() {
    let storage = MemoryStorage::of(Vec::new());
    let (service, _) = open(&storage, &options(1 << 20)).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    driver.start_session(2);
    driver.run(RequestKind::Update, 1, 1, "INCR n");
    driver.run(RequestKind::Update, 1, 2, "SET n not-a-number");
    // Refused, and yet it takes its place.
    assert!(driver.run(RequestKind::Update, 1, 3, "INCR n").starts_with('-'));
    driver.service_delete(2);
    driver.settle();
    drop(driver);
    let (service, recovery) = open(&storage, &options(1 << 20)).expect("our own log");
    assert_eq!((recovery.epoch.0, recovery.key_count), (2, 1));
    let sessions: Vec<(SessionId, u64)> =
        recovery.sessions.iter().map(|record| (record.session, record.position.0)).collect();
    assert_eq!(sessions, [(SessionId(1), 3)]);
    let mut driver = Driver::new(service);
    assert_eq!(driver.run(RequestKind::Read, 1, 4, "GET n"), "$12\r\nnot-a-number\r\n");
}

#[test]
fn the_log_is_bounded_by_snapshots() {
    const INCREMENTS: u64 = 20_000;
    let storage = MemoryStorage::of(Vec::new());
    let (service, _) = open(&storage, &options(12_000)).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    for seq in 1..=INCREMENTS {
        driver.run(RequestKind::Update, 1, seq, "INCR n");
        if seq % 16 == 0 {
            driver.poll();
        }
    }
    driver.settle();
    assert!(driver.service.snapshots_taken() > 50, "{}", driver.service.snapshots_taken());
    drop(driver);
    let (service, recovery) = open(&storage, &options(12_000)).expect("our own log");
    assert!(recovery.op_count < 200, "{} ops on top of the snapshot", recovery.op_count);
    assert_eq!(recovery.sessions[0].position.0, INCREMENTS);
    let mut driver = Driver::new(service);
    let reply = driver.run(RequestKind::Read, 1, INCREMENTS + 1, "GET n");
    assert_eq!(reply, format!("$5\r\n{INCREMENTS}\r\n"));
}

#[test]
fn a_log_that_cannot_keep_up_makes_requests_wait_in_order() {
    let storage = MemoryStorage::of(Vec::new());
    let mut narrow = options(1 << 20);
    narrow.limits.backlog_bytes_max = 200;
    let (service, _) = open(&storage, &narrow).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    let mut replies = Vec::new();
    for seq in 1..=50 {
        replies.push(driver.run(RequestKind::Update, 1, seq, "INCR n"));
    }
    assert!(replies.last().is_some_and(String::is_empty), "the last ones wait");
    driver.settle();
    assert_eq!(driver.stable, 50);
    assert_eq!(driver.run(RequestKind::Read, 1, 51, "GET n"), "$2\r\n50\r\n");
}

#[test]
fn a_smaller_limit_after_a_restart_does_not_change_what_was() {
    let storage = MemoryStorage::of(Vec::new());
    let (service, _) = open(&storage, &options(1 << 20)).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    let long = "x".repeat(3_000);
    assert_eq!(driver.run(RequestKind::Update, 1, 1, &format!("SET a {long}")), "+OK\r\n");
    driver.settle();
    let before = driver.service.store().data_bytes();
    drop(driver);
    let mut smaller = options(1 << 20);
    smaller.data_bytes_max = 1_000;
    let (service, _) = open(&storage, &smaller).expect("our own log");
    let mut driver = Driver::new(service);
    assert_eq!(driver.service.store().data_bytes(), before);
    assert!(driver.run(RequestKind::Update, 1, 2, "SET b y").starts_with("-OOM"));
    driver.settle();
    drop(driver);
    let (service, _) = open(&storage, &options(1 << 20)).expect("our own log");
    assert_eq!(service.store().len(), 1);
}

#[test]
fn what_is_no_command_is_refused_and_takes_its_place() {
    let storage = MemoryStorage::of(Vec::new());
    let (service, _) = open(&storage, &options(1 << 20)).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    assert!(driver.run_payload(RequestKind::Update, 1, 1, b"").starts_with("-ERR scotfree"));
    assert!(driver.run_payload(RequestKind::Update, 1, 2, &[0xFF; 300]).starts_with("-ERR scotfree"));
    assert!(driver.run(RequestKind::Read, 1, 3, "SET k v").starts_with("-ERR"));
    let long = format!("SET k {}", "x".repeat(4_000));
    assert!(driver.run(RequestKind::Update, 1, 4, &long).starts_with("-ERR the request is larger"));
    driver.settle();
    assert!(driver.service.store().is_empty());
    assert_eq!(driver.service.sessions()[&SessionId(1)].position.0, 4);
}

#[test]
fn a_sidecar_gets_its_description() {
    let storage = MemoryStorage::of(Vec::new());
    let (service, _) = open(&storage, &options(1 << 20)).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    let text = driver.run_payload(RequestKind::Read, 1, 1, &describe_request().payload);
    assert!(text.contains("\r\nscotfree 1\n") && text.contains("\ncommand set 3 write|denyoom\n"), "{text}");
    assert!(text.contains("\ndevices 1\n"), "{text}");
}

#[test]
fn a_transaction_is_answered_by_one_array() {
    let storage = MemoryStorage::of(Vec::new());
    let (service, _) = open(&storage, &options(1 << 20)).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    let mut payload = Vec::new();
    let commands: [&[&[u8]]; 3] = [&[b"SET", b"k", b"1"], &[b"INCR", b"k"], &[b"NOSUCH"]];
    write_request(&mut payload, RequestFlags::NONE, &commands);
    let reply = driver.run_payload(RequestKind::Update, 1, 1, &payload);
    assert_eq!(reply, "*3\r\n+OK\r\n:2\r\n-ERR unknown command 'NOSUCH'\r\n");
}

#[test]
fn the_limit_of_the_data_is_told_before_it_is_met_and_when_there_is_room_again() {
    let storage = MemoryStorage::of(Vec::new());
    let (mut service, _) = open(&storage, &options(1 << 20)).expect("a new log");
    let (sender, told) = std::sync::mpsc::channel();
    service.tell(move |line| sender.send(line.to_owned()).expect("the test listens"));
    let mut driver = Driver::new(service);
    driver.start_session(1);
    let mut seq = 0;
    let mut run = |driver: &mut Driver, line: &str| {
        seq += 1;
        let reply = driver.run(RequestKind::Update, 1, seq, line);
        driver.poll();
        reply
    };
    let set = |key: u32| format!("SET key{key} {}", "v".repeat(200));
    let mut key = 0;
    while run(&mut driver, &set(key)) == "+OK\r\n" {
        key += 1;
    }
    assert!(run(&mut driver, &set(key)).starts_with("-OOM the data may take 6000 bytes"));
    let lines: Vec<String> = told.try_iter().collect();
    assert_eq!(lines.len(), 2, "each once: {lines:?}");
    assert!(lines[0].contains("at the limit") && lines[1].contains("are refused"), "{lines:?}");
    assert_eq!(driver.service.store().refused_count(), 2);
    for key in 0..key {
        run(&mut driver, &format!("DEL key{key}"));
    }
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["the data has room again"]);
    run(&mut driver, &set(0));
    assert_eq!(told.try_iter().next(), None);
}

#[test]
fn an_early_update_that_is_refused_is_a_dead_letter_and_a_covered_one_is_not() {
    let storage = MemoryStorage::of(Vec::new());
    let mut options = options(1 << 20);
    options.dead_letters = std::env::temp_dir().join(format!("scot-kv-late-{}", std::process::id()));
    options.data_bytes_max = 1_000;
    let (mut service, _) = open(&storage, &options).expect("a new log");
    let (sender, told) = std::sync::mpsc::channel();
    service.tell(move |line| sender.send(line.to_owned()).expect("the test listens"));
    let mut driver = Driver::new(service);
    driver.start_session(7);
    let long = "x".repeat(1_000);
    let mut early = Vec::new();
    write_request(&mut early, RequestFlags::EARLY, &[&[&b"SET"[..], b"k", long.as_bytes()]]);
    assert!(driver.run(RequestKind::Update, 7, 1, &format!("SET k {long}")).starts_with("-OOM"));
    assert!(!options.dead_letters.exists(), "whoever waits for the reply sees the error");
    assert!(driver.run_payload(RequestKind::Update, 7, 2, &early).starts_with("-OOM"));
    assert!(driver.run_payload(RequestKind::Update, 7, 3, &early).starts_with("-OOM"));
    driver.settle();
    let letters = std::fs::read_to_string(&options.dead_letters).expect("the letters");
    std::fs::remove_file(&options.dead_letters).expect("it is ours");
    let payload = early.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let lines: Vec<&str> = letters.lines().collect();
    assert_eq!(lines.len(), 2, "{letters}");
    assert!(lines[0].contains(&format!(" 7 2 late_error {payload} OOM the data may take 1000 bytes")));
    assert!(lines[1].contains(" 7 3 late_error "), "{letters}");
    let mut text = MetricsText::new();
    driver.service.write_metrics(&mut text);
    assert!(text.as_str().contains("\nscotfree_kv_late_errors_total 2\n"), "{}", text.as_str());
    let alarms: Vec<String> = told.try_iter().filter(|line| line.contains("answered early")).collect();
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    assert!(alarms[0].starts_with("ALARM: 2 updates"), "{alarms:?}");
}

#[test]
fn early_answers_stop_at_nine_tenths_of_the_limit() {
    let storage = MemoryStorage::of(Vec::new());
    let (service, _) = open(&storage, &options(1 << 20)).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    let describe = describe_request().payload;
    for seq in (1..).step_by(2) {
        let line = format!("SET key{seq} {}", "v".repeat(100));
        assert_eq!(driver.run(RequestKind::Update, 1, seq, &line), "+OK\r\n", "before anything is refused");
        let store = driver.service.store();
        let is_near = store.data_bytes() >= store.data_bytes_max() / 10 * 9;
        let told = driver.run_payload(RequestKind::Read, 1, seq + 1, &describe);
        assert!(told.contains(&format!("\nearly_allowed {}\n", u8::from(!is_near))), "{told}");
        if is_near {
            break;
        }
    }
}

#[test]
fn a_large_snapshot_is_handed_over_in_slices_between_requests() {
    const SLICE_BYTES: usize = 16 * (32 << 10);
    let config = DiskConfig { log_bytes: 32 << 20, ..DiskConfig::default() };
    let storage: Arc<dyn Storage> = MemoryStorage::of(Vec::new());
    let mut options = options(4 << 20);
    options.data_bytes_max = 4 << 20;
    let open = || DiskDomain::open_on(Arc::clone(&storage), Path::new("memory"), &config).expect("a log");
    let (service, _) = KvService::open(open(), &options).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    let mut left = Vec::new();
    for seq in 1..=2_000 {
        driver.run(RequestKind::Update, 1, seq, &format!("SET key{seq} {}", "v".repeat(1_500)));
        driver.poll();
        left.push(driver.service.snapshot_left_bytes());
    }
    assert!(left.iter().filter(|left| **left > 0).count() > 2, "requests ran while it was under way");
    assert!(left.windows(2).all(|pair| pair[0] <= pair[1] + SLICE_BYTES), "no slice was larger");
    driver.settle();
    assert!(driver.service.snapshots_taken() > 0);
    drop(driver);
    let (_, recovery) = KvService::open(open(), &options).expect("our own log");
    assert_eq!(recovery.key_count, 2_000);
}

/// How long the reply to a read is said to be true.
fn noted(driver: &mut Driver, flags: RequestFlags, kind: RequestKind, lines: &[&str]) -> Option<u64> {
    let commands: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    let mut payload = Vec::new();
    write_request(&mut payload, flags, &commands);
    driver.lives(kind, &payload)
}

#[test]
fn a_value_is_vouched_for_to_whoever_takes_the_note_if_the_operator_has_said_so() {
    const NOTED: RequestFlags = RequestFlags::NOTED;
    for vouches in [false, true] {
        let storage = MemoryStorage::of(Vec::new());
        let options = KvOptions { vouches, ..options(1 << 20) };
        let (service, _) = open(&storage, &options).expect("a new log");
        let mut driver = Driver::new(service);
        driver.start_session(1);
        driver.run(RequestKind::Update, 1, 1, "MSET k v n 1");
        let for_ever = vouches.then_some(u64::MAX);
        let mut read = |flags, lines: &[&str]| noted(&mut driver, flags, RequestKind::Read, lines);
        assert_eq!(read(NOTED, &["GET k"]), for_ever);
        assert_eq!(read(RequestFlags::NONE, &["GET k"]), None, "nobody takes the note");
        assert_eq!(read(NOTED, &["GET missing"]), None, "it is no value");
        assert_eq!(read(NOTED, &["PING k"]), None, "it reads nothing");
        assert_eq!(read(NOTED, &["GET k n"]), None, "an error is no value");
        assert_eq!(read(NOTED.with(RequestFlags::TRANSACTION), &["GET k"]), None, "it is in an array");
        assert_eq!(read(NOTED, &["get n"]), for_ever);
        assert_eq!(noted(&mut driver, NOTED, RequestKind::Bypass, &["GET k"]), None, "it may write");
        let description = driver.run_payload(RequestKind::Read, 1, 2, &describe_request().payload);
        assert_eq!(description.contains("cached 1\n"), vouches, "{description}");
    }
}

#[test]
fn what_gathers_is_written_together_and_at_the_end() {
    let storage = MemoryStorage::of(Vec::new());
    let mut options = options(1 << 20);
    options.limits.gather_time = Nanos::from_secs(3_600);
    let (service, _) = open(&storage, &options).expect("a new log");
    let mut driver = Driver::new(service);
    driver.start_session(1);
    driver.poll();
    let before = storage.write_count();
    for seq in 1..=5 {
        driver.run(RequestKind::Update, 1, seq, "INCR n");
        driver.poll();
    }
    assert_eq!((storage.write_count(), driver.stable), (before, 0), "the hour is not over");
    assert!(driver.service.next_poll().is_some(), "but it will be");
    drop(driver);
    let (service, recovery) = open(&storage, &options).expect("our own log");
    // The limit of the data, the session, and the five.
    assert_eq!((recovery.op_count, recovery.sessions[0].position.0), (7, 5));
    assert_eq!(service.store().len(), 1);
}
