//! The rules of the back half, each against a real redis-server.

mod support;

use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_io::conformance::ports::free_address;
use scotfree_resp::back::{BackConfig, BackEvents, LaneId, Method, Refusing, StopReason, OPENINGS_MAX};
use scotfree_resp::codec::{elements, text_of, write_command, Command};
use scotfree_resp::payload::{parse_response, RequestFlags, RequestHead, RequestKind, ResponseFlags};
use std::collections::BTreeMap;
use support::driver::{BackDriver, Response};
use support::proxy::{Fault, Proxy};
use support::{text, RedisServer};

const EVERYSEC: &[&str] = &["--appendonly yes", "--appendfsync everysec"];
const ALWAYS: &[&str] = &["--appendonly yes", "--appendfsync always"];

fn payload(flags: RequestFlags, lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHead { flags, db: 0, connection: 1 }.write(&mut bytes);
    for line in lines {
        write_command(&mut bytes, Command::new(line.split(' ')).args());
    }
    bytes
}

fn one(line: &str) -> Vec<u8> {
    payload(RequestFlags::NONE, &[line])
}

fn update(driver: &mut BackDriver, session: SessionId, seq: u64, line: &str) -> Response {
    driver.call(session, seq, RequestKind::Update, &one(line))
}

/// The markers as the server has them.
fn markers(redis: &RedisServer) -> BTreeMap<String, String> {
    let mut connection = redis.connect();
    connection.line("SELECT 15");
    let reply = connection.line("HGETALL scotfree:markers");
    let texts: Vec<String> = elements(&reply)
        .map(|element| String::from_utf8_lossy(text_of(element).unwrap_or_default()).into_owned())
        .collect();
    texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn position(redis: &RedisServer, session: SessionId) -> Option<u64> {
    markers(redis).get(&session.to_string()).and_then(|position| position.parse().ok())
}

#[test]
fn a_write_and_its_position_become_true_together() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(7);
    assert_eq!(position(&redis, session), Some(0));
    assert_eq!(update(&mut driver, session, 1, "INCR n").reply(), b":1\r\n");
    assert_eq!(position(&redis, session), Some(1));
    // A read has no position, a refused write has one.
    assert_eq!(driver.call(session, 2, RequestKind::Read, &one("GET n")).reply(), b"$1\r\n1\r\n");
    assert_eq!(position(&redis, session), Some(1));
    let refused = update(&mut driver, session, 3, "LPUSH n x");
    assert!(refused.failed && refused.reply().starts_with(b"-WRONGTYPE"));
    assert_eq!(position(&redis, session), Some(3));
    // In the append-only file they are one transaction.
    let file =
        std::fs::read(redis.folder.join("appendonlydir/appendonly.aof.1.incr.aof")).expect("it is there");
    let log = String::from_utf8_lossy(&file).into_owned();
    let with_write = log.split("MULTI").find(|part| part.contains("INCR")).expect("a transaction");
    let transaction = with_write.split("EXEC").next().expect("its commands");
    assert!(transaction.contains("HSET"), "{transaction}");
}

#[test]
fn many_writes_share_a_transaction_and_keep_their_order() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let sessions: Vec<SessionId> = (1..=4).map(|number| driver.open(number)).collect();
    let mut tickets = Vec::new();
    for seq in 1..=100 {
        for session in &sessions {
            let kind = if seq % 5 == 0 { RequestKind::Read } else { RequestKind::Update };
            let line = if seq % 5 == 0 { "LLEN l" } else { "RPUSH l x" };
            tickets.push(driver.execute(*session, seq, kind, &one(line)));
        }
    }
    let mut length = 0;
    for (index, ticket) in tickets.into_iter().enumerate() {
        let seq = index / 4 + 1;
        length += usize::from(seq % 5 != 0);
        assert_eq!(driver.response(ticket).reply(), format!(":{length}\r\n").as_bytes());
    }
    let counters = driver.back.counters();
    assert!(counters.batches < 30, "{counters:?}");
    assert_eq!(
        sessions.iter().map(|session| position(&redis, *session)).collect::<Vec<_>>(),
        vec![Some(99); 4]
    );
}

#[test]
fn transactions_and_pipelines_are_bounded() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let bounds = |batch_items_max, batch_bytes_max| BackConfig {
        batch_items_max,
        batch_bytes_max,
        direct_max: 2,
        ..BackConfig::default()
    };
    let request = one("INCR n");
    let cases = [(1, bounds(3, 1 << 20), 4), (2, bounds(100, 2 * request.len()), 5)];
    for (session, config, batches) in cases {
        let mut driver = BackDriver::started(&redis.socket(), config);
        let session = driver.open(session);
        let before = driver.back.counters();
        let tickets: Vec<u64> =
            (1..=10).map(|seq| driver.execute(session, seq, RequestKind::Update, &request)).collect();
        for ticket in tickets {
            driver.response(ticket);
        }
        assert_eq!(driver.back.counters().batches - before.batches, batches);
        for seq in 11..=16 {
            driver.execute(session, seq, RequestKind::Read, &one("GET n"));
        }
        driver.back.flush(driver.now(), false, &mut BackEvents::new());
        let lanes: Vec<LaneId> = driver.back.sending_lanes().collect();
        let waiting: String = lanes.iter().map(|lane| text(driver.back.output(*lane))).collect();
        assert_eq!(waiting.matches("GET").count(), 2, "{waiting}");
    }
}

/// What the server has answered on a connection it keeps while that one's script runs, perhaps for ever.
#[test]
fn a_script_waits_for_the_reads_before_it_also_where_it_follows_a_write() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let (reader, writer) = (driver.open(1), driver.open(2));
    let read = driver.execute(reader, 1, RequestKind::Read, &one("GET n"));
    driver.back.flush(driver.now(), false, &mut BackEvents::new());
    let write = driver.execute(writer, 1, RequestKind::Update, &one("INCR n"));
    let script = driver.execute(writer, 2, RequestKind::Update, &one("EVAL return(7) 0"));
    driver.back.flush(driver.now(), false, &mut BackEvents::new());
    let lanes: Vec<LaneId> = driver.back.sending_lanes().collect();
    let waiting: String = lanes.iter().map(|lane| text(driver.back.output(*lane))).collect();
    assert!(waiting.contains("GET") && waiting.contains("INCR") && !waiting.contains("EVAL"), "{waiting}");
    let replies = [read, write, script].map(|ticket| text(driver.response(ticket).reply()));
    assert_eq!(replies, [r"$-1\r\n", r":1\r\n", r":7\r\n"]);
}

#[test]
fn a_request_that_was_applied_is_not_applied_again() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    update(&mut driver, session, 5, "INCR n");
    for seq in [1, 5] {
        let again = update(&mut driver, session, seq, "INCR n");
        assert!(again.failed && again.reply().starts_with(b"-ERR scotfree: this request was applied before"));
    }
    assert_eq!(driver.call(session, 6, RequestKind::Read, &one("GET n")).reply(), b"$1\r\n1\r\n");
}

#[test]
fn a_session_without_marker_is_unknown_and_never_at_zero() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let stranger = SessionId(99);
    assert!(update(&mut driver, stranger, 1, "INCR n").failed);
    assert!(driver.failed.contains_key(&stranger));
    assert_eq!(redis.connect().line("GET n"), b"$-1\r\n");
    let session = driver.open(1);
    driver.back.delete_session(session);
    driver.until("the deletion", |driver| driver.deleted.contains(&session));
    assert_eq!(position(&redis, session), None);
    assert!(update(&mut driver, session, 1, "INCR n").failed);
}

#[test]
fn flushing_everything_keeps_the_markers() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let (one_session, other) = (driver.open(1), driver.open(2));
    update(&mut driver, other, 4, "SET a 1");
    let before = markers(&redis);
    assert_eq!(update(&mut driver, one_session, 9, "FLUSHALL").reply(), b"+OK\r\n");
    let after = markers(&redis);
    assert_eq!(after.len(), before.len(), "{after:?}");
    assert_eq!((position(&redis, one_session), position(&redis, other)), (Some(9), Some(4)));
    let transaction = payload(RequestFlags::TRANSACTION, &["SET b 1", "FLUSHALL", "SET c 1"]);
    driver.call(other, 5, RequestKind::Update, &transaction);
    assert_eq!((position(&redis, one_session), position(&redis, other)), (Some(9), Some(5)));
    assert_eq!(redis.connect().line("DBSIZE"), b":1\r\n");
}

#[test]
fn markers_that_vanish_are_written_again_from_memory() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let (one_session, other) = (driver.open(1), driver.open(2));
    update(&mut driver, other, 3, "SET a 1");
    redis.connect().line("FLUSHALL");
    update(&mut driver, one_session, 1, "SET a 2");
    driver.until("the markers", |driver| driver.back.counters().markers_rewritten == 1);
    driver.until("their writing", |driver| driver.back.backlog() == 0);
    assert_eq!((position(&redis, one_session), position(&redis, other)), (Some(1), Some(3)));
    assert!(markers(&redis).contains_key("epoch"));
}

/// Who has deleted them past the sidecar has not started another server.
#[test]
fn a_new_lane_that_finds_no_markers_has_them_written_anew() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let (watcher, other) = (driver.open(1), driver.open(2));
    update(&mut driver, other, 3, "SET a 1");
    for (seq, deletes) in [(1, "FLUSHALL"), (2, "DEL scotfree:markers")] {
        let mut connection = redis.connect();
        connection.line("SELECT 15");
        connection.line(deletes);
        let mut own = Vec::new();
        let connection = u32::try_from(seq).expect("small");
        RequestHead { flags: RequestFlags::PRIVATE, db: 0, connection }.write(&mut own);
        write_command(&mut own, Command::new(["WATCH", "a"]).args());
        let watched = driver.call(watcher, seq, RequestKind::Read, &own);
        assert_eq!((watched.reply(), &driver.stopped), (&b"+OK\r\n"[..], &None), "{deletes}");
        driver
            .until("the markers", |driver| driver.back.backlog() == 0 && position(&redis, other) == Some(3));
        assert!(markers(&redis).contains_key("epoch"));
        assert_eq!(driver.markers_gone as u64, seq, "it is said once");
    }
}

/// In another run of the server they may be gone with its data.
#[test]
fn a_new_lane_that_finds_an_older_epoch_ends_the_service() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    let mut connection = redis.connect();
    connection.line("SELECT 15");
    connection.line("HSET scotfree:markers epoch 0");
    driver.execute(session, 1, RequestKind::Read, &payload(RequestFlags::PRIVATE, &["WATCH a"]));
    driver.until("the end", |driver| driver.stopped.is_some());
    assert!(matches!(driver.stopped, Some(StopReason::Replaced { .. })), "{:?}", driver.stopped);
}

#[test]
fn clients_stay_out_of_the_reserved_database() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    let before = markers(&redis);
    for (index, line) in ["SWAPDB 0 15", "MOVE k 15", "COPY a b DB 15"].iter().enumerate() {
        let response = update(&mut driver, session, index as u64 + 1, line);
        assert!(response.reply().starts_with(b"-ERR scotfree: database 15"), "{}", text(response.reply()));
    }
    let mut inside = Vec::new();
    RequestHead { flags: RequestFlags::NONE, db: 15, connection: 1 }.write(&mut inside);
    write_command(&mut inside, Command::new(["DEL", "scotfree:markers"]).args());
    assert!(driver.call(session, 4, RequestKind::Update, &inside).failed);
    driver.until("the positions", |driver| driver.back.backlog() == 0);
    assert_eq!(markers(&redis).len(), before.len());
    assert_eq!(position(&redis, session), Some(4), "refused requests have taken their places");
}

#[test]
fn a_server_that_cannot_keep_the_promise_is_refused_with_the_mend() {
    for (options, mend) in [
        (
            &["--appendonly yes", "--maxmemory-policy allkeys-lru"][..],
            "CONFIG SET maxmemory-policy noeviction",
        ),
        (&["--appendonly no"], "CONFIG SET appendonly yes"),
        (&["--appendonly yes", "--databases 1"], "--marker-db"),
        (&["--appendonly yes", "--replicaof 127.0.0.1 1"], "REPLICAOF NO ONE"),
        (&["--appendonly yes", "--requirepass secret"], "NOAUTH"),
    ] {
        let Some(redis) = RedisServer::start(options) else { return };
        let reserved_db = Some(15).filter(|_| mend == "--marker-db");
        let config = BackConfig { reserved_db, ..BackConfig::default() };
        let mut driver = BackDriver::new(&redis.socket(), config);
        driver.until("the refusal", |driver| driver.stopped.is_some());
        let reason = driver.stopped.take().map(|reason| reason.to_string()).unwrap_or_default();
        assert!(reason.contains(mend), "{options:?}: {reason}");
    }
}

/// What is executed anew may have been acknowledged: see rule 11 of docs/design/proxy.md.
#[test]
fn that_a_server_takes_no_writes_is_an_answer_and_none_to_what_is_executed_anew() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    for replays in [false, true] {
        let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
        driver.replays = replays;
        let session = driver.open(if replays { 2 } else { 1 });
        assert_eq!(update(&mut driver, session, 1, "SET k v").reply(), b"+OK\r\n");
        let refused = update(&mut driver, session, 2, "LPUSH k x");
        assert!(refused.failed, "an error of the command is its answer");
        redis.connect().line("CONFIG SET min-replicas-to-write 1");
        let first = driver.execute(session, 3, RequestKind::Update, &one("INCR n"));
        driver.execute(session, 4, RequestKind::Update, &one("INCR n"));
        if replays {
            driver.until("the end", |driver| driver.stopped.is_some());
            assert!(driver.responses.is_empty(), "{:?}", driver.responses);
            let Some(StopReason::Unwilling(reasons)) = driver.stopped.take() else { panic!("{driver:?}") };
            assert!(reasons[0].contains("NOREPLICAS") && reasons[0].contains("min-replicas-to-write 0"));
        } else {
            assert!(driver.response(first).reply().starts_with(b"-NOREPLICAS"));
        }
        redis.connect().line("CONFIG SET min-replicas-to-write 0");
    }
}

/// Each word for itself, since a setting of several is none in quotes.
const SCOT: &[&str] = &["--user scot", "on", ">pw", "+@all", "~*", "&*"];

fn as_scot() -> BackConfig {
    let credentials = Some(("scot".to_owned(), "pw".to_owned()));
    BackConfig { credentials, health_interval: Nanos::from_millis(5), ..BackConfig::default() }
}

/// By whose rights the server judges what it loads.
#[test]
fn what_is_written_outlasts_a_restart_or_is_refused_by_the_default_users_rights() {
    let bound = [EVERYSEC, SCOT, &["--user default", "off", "-@all"]].concat();
    let Some(redis) = RedisServer::start(&bound) else { return };
    let mut driver = BackDriver::new(&redis.socket(), as_scot());
    driver.until("the refusal", |driver| driver.stopped.is_some());
    assert!(driver.stopped.as_ref().is_some_and(StopReason::is_unwilling), "{:?}", driver.stopped);
    let reason = driver.stopped.take().map(|reason| reason.to_string()).unwrap_or_default();
    assert!(reason.contains("ACL SETUSER default off +@all '~*' '&*'"), "{reason}");

    let free = [EVERYSEC, SCOT, &["--user default", "off", "+@all", "~*", "&*"]].concat();
    let Some(mut redis) = RedisServer::start(&free) else { return };
    let mut driver = BackDriver::started(&redis.socket(), as_scot());
    let session = driver.open(1);
    update(&mut driver, session, 1, "SET k v");
    driver.wants_stable = true;
    driver.until("stability", |driver| driver.stable > 0);
    redis.kill();
    redis.restart();
    let mut direct = redis.connect();
    direct.line("AUTH scot pw");
    let mut got = b"-LOADING".to_vec();
    while got.starts_with(b"-LOADING") {
        got = direct.line("GET k");
    }
    assert_eq!(text(&got), "$1\\r\\nv\\r\\n");
}

#[test]
fn writes_are_refused_while_a_restart_or_an_eviction_would_lose_them() {
    let options = [EVERYSEC, SCOT].concat();
    let Some(redis) = RedisServer::start(&options) else { return };
    let mut direct = redis.connect();
    direct.line("AUTH scot pw");
    let mut driver = BackDriver::started(&redis.socket(), as_scot());
    for (cause, cure, said) in [
        ("ACL SETUSER default off", "", ""),
        ("ACL SETUSER default -@all", "ACL SETUSER default +@all", "redis#14541"),
        ("ACL SETUSER default resetkeys", "ACL SETUSER default ~*", "ACL SETUSER default off +@all"),
        ("CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET maxmemory-policy noeviction", "evict"),
        ("CONFIG SET maxmemory-policy volatile-ttl", "CONFIG SET maxmemory-policy noeviction", "evict"),
    ] {
        assert_eq!(direct.line(cause), b"+OK\r\n", "{cause}");
        if cure.is_empty() {
            let told = driver.back.description().time_ms;
            driver.until("another look", |driver| driver.back.description().time_ms > told);
            assert!(driver.writes.is_empty(), "{cause}: {:?}", driver.writes);
            continue;
        }
        driver.until(cause, |driver| matches!(driver.writes.last(), Some(Some(_))));
        let reason = driver.describe().writes_refused.expect("clients are told");
        assert!(reason.contains(said), "{cause}: {reason}");
        assert_eq!(direct.line(cure), b"+OK\r\n", "{cure}");
        driver.until(cure, |driver| driver.writes.last() == Some(&None));
    }
    assert_eq!(driver.writes.len(), 8, "each is said once: {:?}", driver.writes);
}

/// Executes lines anew in one transaction, with a right taken away before its EXEC; the tickets.
fn execute_without_right(
    driver: &mut BackDriver,
    redis: &RedisServer,
    right: &str,
    lines: &[&str],
) -> Vec<u64> {
    let session = driver.open(1);
    let mut control = redis.connect();
    driver.replays = true;
    driver.kept_back = b"*1\r\n$4\r\nEXEC\r\n".len();
    let execute = |(index, line): (usize, &&str)| {
        driver.execute(session, index as u64 + 1, RequestKind::Update, &one(line))
    };
    let tickets = lines.iter().enumerate().map(execute).collect();
    driver.until("commands to be queued", |_| {
        let list = control.line("CLIENT LIST");
        String::from_utf8_lossy(&list)
            .lines()
            .any(|line| line.contains("shared") && !line.contains("multi=-1"))
    });
    control.line(&format!("ACL SETUSER default -{right}"));
    driver.kept_back = 0;
    tickets
}

/// Such an error is met inside EXEC only, whose other commands are executed, the marker's among them.
#[test]
fn a_right_that_is_taken_away_before_exec_gives_nothing_up_that_is_executed_anew() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = SessionId(1);
    execute_without_right(&mut driver, &redis, "set", &["INCR n", "SET a 1", "SET b 1"]);
    driver.until("the end", |driver| driver.stopped.is_some());
    assert!(matches!(driver.stopped, Some(StopReason::Unwilling(_))), "{:?}", driver.stopped);
    assert_eq!(driver.late_errors, []);
    assert_eq!(position(&redis, session), Some(1), "only the first was executed");
    redis.connect().line("ACL SETUSER default +set");
    let mut next = BackDriver::started(&redis.socket(), BackConfig::default());
    next.replays = true;
    for (seq, line) in [(2, "SET a 1"), (3, "SET b 1")] {
        assert_eq!(update(&mut next, session, seq, line).reply(), b"+OK\r\n");
    }
    assert_eq!(redis.connect().line("GET n"), b"$1\r\n1\r\n");
}

#[test]
fn what_is_refused_before_others_of_its_transaction_gets_a_letter_and_they_are_not_executed_twice() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let tickets = execute_without_right(&mut driver, &redis, "set", &["SET a 1", "INCR n"]);
    assert_eq!(driver.response(tickets[1]).reply(), b":1\r\n");
    assert!(driver.response(tickets[0]).reply().starts_with(b"-NOPERM"));
    assert_eq!((driver.late_errors.len(), &driver.stopped), (1, &None));
    driver.until("the positions", |driver| driver.back.backlog() == 0);
    assert_eq!(position(&redis, SessionId(1)), Some(2));
}

/// Whatever follows a MULTI that is refused would be executed by itself, without its marker.
#[test]
fn a_user_without_a_right_that_markers_need_is_told_so_and_nothing_is_executed() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let own = RequestFlags::PRIVATE;
    let as_user = own.with(RequestFlags::USER);
    for (number, missing) in ["multi", "exec", "select", "hset"].into_iter().enumerate() {
        redis.connect().line(&format!("ACL SETUSER bob reset on >secret ~* +@all -{missing}"));
        let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
        let session = driver.open(number as u64 + 1);
        let auth = driver.call(session, 1, RequestKind::Read, &payload(own, &["AUTH bob secret"]));
        assert_eq!(auth.reply(), b"+OK\r\n");
        let refused = driver.call(session, 2, RequestKind::Bypass, &payload(as_user, &["INCR n"]));
        let said = text(refused.reply());
        assert!(
            said.starts_with("-NOPERM") && said.contains("+multi +exec +select +hset"),
            "{missing}: {said}"
        );
        assert_eq!(redis.connect().line("EXISTS n"), b":0\r\n", "{missing}");
        // Nobody else is held up.
        assert_eq!(update(&mut driver, session, 3, "SET k v").reply(), b"+OK\r\n", "{missing}");
    }
}

/// What comes in one go shares a transaction, whose MULTI is refused before anything else is sent.
#[test]
fn who_may_not_store_its_marker_reads_behind_and_before_a_write_that_is_refused() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut control = redis.connect();
    control.line("SET few:1 old");
    control.line("ACL SETUSER few on >pw ~few:* +get +set +eval_ro");
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    let own = RequestFlags::PRIVATE;
    let as_user = own.with(RequestFlags::USER);
    let script = "EVAL_RO return(redis.call('get',KEYS[1])) 1 few:1";
    let auth = driver.call(session, 1, RequestKind::Read, &payload(own, &["AUTH few pw"]));
    assert_eq!(auth.reply(), b"+OK\r\n");
    let read = |line| (RequestKind::Read, line, "$3\r\nold\r\n");
    let write = (RequestKind::Bypass, "SET few:1 new", "-NOPERM scotfree:");
    // A script shares no transaction with a read: it begins its own.
    let asked = [write, read("GET few:1"), read(script), write, read("GET few:1"), read(script)];
    let execute = |(index, (kind, line, _)): (usize, &(RequestKind, &str, &str))| {
        driver.execute(session, index as u64 + 2, *kind, &payload(as_user, &[line]))
    };
    let tickets: Vec<u64> = asked.iter().enumerate().map(execute).collect();
    for (ticket, (_, line, expected)) in tickets.into_iter().zip(asked) {
        let response = driver.response(ticket);
        assert!(response.reply().starts_with(expected.as_bytes()), "{line}: {}", text(response.reply()));
    }
    assert_eq!(control.line("GET few:1"), b"$3\r\nold\r\n");
}

#[test]
fn a_server_with_a_password_is_served_with_credentials() {
    let Some(redis) = RedisServer::start(&["--appendonly yes", "--requirepass secret"]) else { return };
    let credentials = Some(("default".to_owned(), "secret".to_owned()));
    let mut driver =
        BackDriver::started(&redis.socket(), BackConfig { credentials, ..BackConfig::default() });
    assert!(driver.describe().auth_required);
}

#[test]
fn without_durability_on_purpose_everything_counts_as_stable() {
    let Some(redis) = RedisServer::start(&["--appendonly no"]) else { return };
    let mut driver =
        BackDriver::started(&redis.socket(), BackConfig { allow_unstable: true, ..BackConfig::default() });
    assert_eq!(driver.started.as_ref().map(|report| report.method.clone()), Some(Method::Never));
    let session = driver.open(1);
    let ticket = driver.execute(session, 1, RequestKind::Bypass, &one("SPOP s"));
    driver.until("stability", |driver| driver.stable >= ticket);
}

/// Whatever the server synced before, and although all is executed.
#[test]
fn without_append_only_files_nothing_is_stable_until_they_are_whole_again() {
    for options in [EVERYSEC, ALWAYS] {
        let Some(mut redis) = RedisServer::start(options) else { return };
        let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
        driver.wants_stable = true;
        let session = driver.open(1);
        redis.connect().line("CONFIG SET appendonly no");
        driver.until("a refusal", |driver| matches!(driver.writes.last(), Some(Some(_))));
        let reason = driver.describe().writes_refused.expect("clients are told");
        assert!(reason.contains("CONFIG SET appendonly yes"), "{reason}");
        let ticket = driver.execute(session, 1, RequestKind::Update, &one("SET k v"));
        assert_eq!(driver.response(ticket).reply(), b"+OK\r\n");
        let get = driver.call(session, 2, RequestKind::Read, &one("GET k"));
        assert_eq!(get.reply(), b"$1\r\nv\r\n");
        assert!(driver.stable < ticket, "{} of {ticket}", driver.stable);
        redis.connect().line("CONFIG SET appendonly yes");
        driver.until("writes again", |driver| driver.writes.last() == Some(&None));
        assert_eq!(driver.describe().writes_refused, None);
        driver.until("stability", |driver| driver.stable >= ticket);
        assert!(driver.stopped.is_none(), "{:?}", driver.stopped);
        driver.cut_power(&mut redis);
        assert_eq!(redis.connect().line("GET k"), b"$1\r\nv\r\n", "{options:?}");
    }
}

/// Nobody has seen that there were none.
#[test]
fn while_append_only_files_that_were_given_up_are_written_anew_nothing_is_stable() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    driver.wants_stable = true;
    let session = driver.open(1);
    let first = driver.execute(session, 1, RequestKind::Update, &one("SET k v"));
    driver.until("stability", |driver| driver.stable >= first);
    let mut admin = redis.connect();
    admin.line("DEBUG SET-ACTIVE-EXPIRE 0");
    // The rewrite lasts as long as its writer is asked to pause between keys.
    for line in ["CONFIG SET rdb-key-save-delay 200000", "DEBUG POPULATE 1000", "MULTI"] {
        assert!(!admin.line(line).starts_with(b"-"), "{line}");
    }
    for line in ["CONFIG SET appendonly no", "CONFIG SET appendonly yes"] {
        assert_eq!(admin.line(line), b"+QUEUED\r\n");
    }
    admin.line("EXEC");
    let is_rewriting = |redis: &RedisServer| {
        let info = redis.connect().line("INFO persistence");
        String::from_utf8_lossy(&info).contains("aof_rewrite_in_progress:1")
    };
    driver.until("a rewrite", |_| is_rewriting(&redis));
    let ticket = driver.execute(session, 2, RequestKind::Update, &one("SET k w"));
    assert_eq!(driver.response(ticket).reply(), b"+OK\r\n");
    // Some looks at the server, and probes between them.
    for _ in 0..3 {
        let told = driver.describe().time_ms;
        driver.until("another look", |driver| driver.back.description().time_ms != told);
    }
    assert!(is_rewriting(&redis) && driver.stable < ticket, "{} of {ticket}", driver.stable);
    admin.line("CONFIG SET rdb-key-save-delay 0");
    admin.line("CONFIG SET appendonly no");
    admin.line("CONFIG SET appendonly yes");
    driver.until("stability", |driver| driver.stable >= ticket);
}

#[test]
fn early_answers_go_on_when_the_server_gets_its_first_replica() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let replication_id = |redis: &RedisServer| {
        let info = redis.connect().line("INFO replication");
        let info = String::from_utf8_lossy(&info);
        info.lines()
            .find_map(|line| line.strip_prefix("master_replid:").map(str::to_owned))
            .expect("it says so")
    };
    let before = replication_id(&redis);
    let mut replica = redis.connect();
    replica.send(b"PSYNC ? -1\r\n");
    driver.until("another id", |_| replication_id(&redis) != before);
    // Two looks: one may have been under way.
    for _ in 0..2 {
        let told = driver.describe().time_ms;
        driver.until("another look", |driver| driver.back.description().time_ms != told);
    }
    assert!(driver.describe().early_allowed, "{:?}", driver.early);
    assert!(driver.early.iter().all(|(allowed, _)| *allowed), "{:?}", driver.early);
}

#[test]
fn a_successor_ends_its_predecessors_connections_before_it_reads_the_markers() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    for round in 1..=20 {
        let mut old = BackDriver::started(&redis.socket(), BackConfig::default());
        let session = old.open(100 + round);
        // A large batch is on its way, half of it perhaps in the server's buffer.
        let value = "x".repeat(2_000);
        for seq in 1..=100 {
            old.execute(session, seq, RequestKind::Update, &one(&format!("SET k{round} {seq}{value}")));
        }
        old.turn();
        let new = BackDriver::started(&redis.socket(), BackConfig::default());
        let report = new.started.clone().expect("it has started");
        assert!(report.killed >= 3, "{report:?}");
        let (_, marker) = report.sessions.iter().find(|(id, _)| *id == session).expect("the session");
        let value = redis.connect().line(&format!("GET k{round}"));
        let applied = text_of(&value).map_or(0, |value| {
            let digits: String =
                value.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| *byte as char).collect();
            digits.parse().expect("a number")
        });
        assert_eq!(marker.position, SeqNum(applied));
        // The old one finds out and stops; what it still had does not run.
        old.until("its end", |old| old.stopped.is_some());
        assert_eq!(redis.connect().line(&format!("GET k{round}")), value);
    }
}

#[test]
fn a_sidecar_that_was_replaced_does_not_come_back() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let first = BackDriver::started(&redis.socket(), BackConfig::default());
    let epoch = first.started.as_ref().map(|report| report.epoch);
    let _second = BackDriver::started(&redis.socket(), BackConfig::default());
    let mut again =
        BackDriver::new(&redis.socket(), BackConfig { last_epoch: epoch, ..BackConfig::default() });
    again.until("the refusal", |driver| driver.stopped.is_some());
    assert_eq!(again.stopped, Some(StopReason::Fenced));
}

#[test]
fn markers_that_somebody_changed_stop_the_start() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut connection = redis.connect();
    connection.line("SELECT 15");
    connection.line("HSET scotfree:markers 5 many");
    let mut driver = BackDriver::new(&redis.socket(), BackConfig::default());
    driver.until("the refusal", |driver| driver.stopped.is_some());
    assert!(driver.stopped.take().is_some_and(|reason| reason.to_string().contains("`5`")));
    connection.line("DEL scotfree:markers");
    connection.line("SET scotfree:markers x");
    let mut driver = BackDriver::new(&redis.socket(), BackConfig::default());
    driver.until("the refusal", |driver| driver.stopped.is_some());
    assert!(driver.stopped.take().is_some_and(|reason| reason.to_string().contains("WRONGTYPE")));
}

#[test]
fn one_refused_command_does_not_take_the_others_with_it() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut connection = redis.connect();
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let (one_session, other) = (driver.open(1), driver.open(2));
    // The sidecar's own user may not run one command, so its whole transaction is refused.
    connection.line("ACL SETUSER default -append");
    let tickets = [
        driver.execute(one_session, 1, RequestKind::Update, &one("INCR n")),
        driver.execute(other, 1, RequestKind::Update, &one("APPEND a x")),
        driver.execute(one_session, 2, RequestKind::Update, &one("INCR n")),
        driver.execute(other, 2, RequestKind::Read, &one("GET n")),
    ];
    let replies: Vec<String> = tickets.iter().map(|ticket| text(driver.response(*ticket).reply())).collect();
    assert_eq!((replies[0].as_str(), replies[2].as_str()), (":1\\r\\n", ":2\\r\\n"));
    assert!(replies[1].starts_with("-NOPERM"), "{replies:?}");
    assert_eq!(replies[3], "$1\\r\\n2\\r\\n");
    driver.until("the positions", |driver| driver.back.backlog() == 0);
    assert_eq!((position(&redis, one_session), position(&redis, other)), (Some(2), Some(1)));
    assert_eq!(driver.back.counters().aborted, 2, "the batch, and the culprit alone");
}

#[test]
fn with_memory_used_up_only_what_frees_memory_runs_and_says_that_it_is_not_durable() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut connection = redis.connect();
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    update(&mut driver, session, 1, "SET big x");
    connection.line("CONFIG SET maxmemory 1");
    let grown = update(&mut driver, session, 2, "SET more x");
    assert!(grown.reply().starts_with(b"-OOM"), "{}", text(grown.reply()));
    let freed = update(&mut driver, session, 3, "DEL big");
    assert_eq!(freed.reply(), b":1\r\n");
    let flags = parse_response(&freed.bytes).expect("a response").0;
    assert!(flags.has(ResponseFlags::DURABILITY_NONE));
    assert_eq!(driver.back.counters().bare, 1);
    let transaction = payload(RequestFlags::TRANSACTION, &["DEL big"]);
    let response = driver.call(session, 4, RequestKind::Update, &transaction);
    assert!(response.reply().starts_with(b"-EXECABORT"), "{}", text(response.reply()));
    // Nobody is left waiting for a stability that cannot come.
    let ticket = driver.execute(session, 5, RequestKind::Bypass, &one("SPOP s"));
    driver.wants_stable = true;
    driver.until("an end", |driver| driver.stable >= ticket);
    assert_eq!(position(&redis, session), Some(1));
    let late = SessionId(2);
    driver.back.record_session(late, b"opaque");
    driver.until("the refusal", |driver| driver.refused.contains_key(&late));
    assert!(driver.refused[&late].starts_with("OOM command not allowed"), "{:?}", driver.refused);
    // When there is memory again, the positions catch up.
    connection.line("CONFIG SET maxmemory 0");
    update(&mut driver, session, 6, "SET more x");
    assert_eq!(position(&redis, session), Some(6));
}

#[test]
fn a_promise_that_was_broken_is_not_silent() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    redis.connect().line("CONFIG SET maxmemory 1");
    driver.call(session, 1, RequestKind::Update, &payload(RequestFlags::EARLY, &["SET k v"]));
    assert_eq!(driver.late_errors.len(), 1);
    let error = &driver.late_errors[0];
    assert!(error.error.starts_with("OOM"), "{error:?}");
    assert_eq!(error.commands, [[b"SET".to_vec(), b"k".to_vec(), b"v".to_vec()]]);
    assert_eq!(driver.back.counters().late_errors, 1);
}

/// Whether early answers are allowed, as it was said last.
fn early(driver: &BackDriver) -> Option<bool> {
    driver.early.last().map(|(allowed, _)| *allowed)
}

#[test]
fn the_first_early_update_that_is_refused_ends_early_answers() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    // Nothing is learnt from INFO in this test.
    let config = BackConfig { health_interval: Nanos::from_secs(86_400), ..BackConfig::default() };
    let mut driver = BackDriver::started(&redis.socket(), config);
    let session = driver.open(1);
    redis.connect().line("CONFIG SET min-replicas-to-write 1");
    assert!(driver.describe().early_allowed);
    let set = payload(RequestFlags::EARLY, &["SET k v"]);
    let refused = driver.call(session, 1, RequestKind::Update, &set);
    let flags = parse_response(&refused.bytes).expect("a response").0;
    assert!(!flags.has(ResponseFlags::EARLY_ALLOWED), "its own reply says so already");
    assert_eq!(driver.late_errors.len(), 1);
    assert!(!driver.describe().early_allowed);
    let (_, reason) = driver.early.last().expect("it was said");
    assert!(reason.starts_with("the server refuses writes: NOREPLICAS"), "{reason}");
    let cause = driver.refuses.last().and_then(Option::as_ref).map(|refused| refused.cause);
    assert_eq!(cause, Some(Refusing::NoReplicas));
}

#[test]
fn early_answers_come_back_when_the_server_takes_writes_though_nobody_else_writes() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut connection = redis.connect();
    let config = BackConfig { health_interval: Nanos::from_millis(5), ..BackConfig::default() };
    let mut driver = BackDriver::started(&redis.socket(), config);
    let session = driver.open(1);
    for (seq, cause, cure) in [
        (1, "ACL SETUSER default -set", "ACL SETUSER default +set"),
        (2, "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ] {
        connection.line(cause);
        driver.call(session, seq, RequestKind::Update, &payload(RequestFlags::EARLY, &["SET k v"]));
        assert_eq!(early(&driver), Some(false), "{cause}");
        for _ in 0..3 {
            let told = driver.back.description().time_ms;
            driver.until("another look", |driver| driver.back.description().time_ms != told);
        }
        assert_eq!(early(&driver), Some(false), "{cause}");
        connection.line(cure);
        driver.until("the return", |driver| early(driver) == Some(true));
        assert_eq!(driver.back.refused(), None);
    }
    assert_eq!(driver.refuses.len(), 2, "of a right that is missing it is not said: {:?}", driver.refuses);
    // What was tried is nobody's data.
    assert_eq!(markers(&redis).len(), 3);
    assert_eq!(connection.line("DBSIZE"), b":0\r\n");
}

#[test]
fn early_answers_stop_near_the_memory_limit() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut connection = redis.connect();
    let config = BackConfig { health_interval: Nanos::from_millis(5), ..BackConfig::default() };
    let mut driver = BackDriver::started(&redis.socket(), config);
    assert!(driver.describe().early_allowed);
    for (cause, cure) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET maxmemory-policy noeviction"),
    ] {
        connection.line(cause);
        driver.until("the stop", |driver| driver.early.last().is_some_and(|(allowed, _)| !allowed));
        assert!(!driver.describe().early_allowed);
        connection.line(cure);
        driver.until("the return", |driver| driver.early.last().is_some_and(|(allowed, _)| *allowed));
    }
}

#[test]
fn a_server_that_becomes_a_replica_is_used_no_longer() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    redis.connect().line("REPLICAOF 127.0.0.1 1");
    driver.until("the end", |driver| driver.stopped.is_some());
    let Some(StopReason::Unwilling(reasons)) = &driver.stopped else { panic!("{:?}", driver.stopped) };
    assert!(reasons[0].contains("REPLICAOF NO ONE"), "{reasons:?}");
}

#[test]
fn a_server_with_another_past_is_begun_with_anew_and_one_with_its_own_goes_on() {
    let port = free_address().port();
    let listens = format!("--port {port}");
    let options = [EVERYSEC, &[&listens, "--repl-diskless-sync-delay 0"]].concat();
    let Some(other) = RedisServer::start(&options) else { return };
    other.connect().line("SET a b");
    let follow = |port: u16| format!("REPLICAOF 127.0.0.1 {port}");
    let (other_ones, nobody) = (follow(port), follow(1));
    let cases: [(&[&str], bool); 4] = [
        (&[&other_ones, "REPLICAOF NO ONE"], false),
        (&[&nobody, "REPLICAOF NO ONE"], true),
        (&["DEBUG RELOAD"], true),
        (&["DEBUG LOADAOF"], true),
    ];
    for (lines, goes_on) in cases {
        let Some(redis) = RedisServer::start(EVERYSEC) else { return };
        let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
        let session = driver.open(3);
        update(&mut driver, session, 1, "SET k v");
        let mut admin = redis.connect();
        // Nothing of it is seen while it is under way, since the driver has no turn.
        for line in lines {
            assert_eq!(admin.line(line), b"+OK\r\n", "{line}");
            let is_up = || text(&redis.connect().line("INFO replication")).contains("link_status:up");
            while *line == other_ones && !is_up() {
                std::thread::yield_now();
            }
        }
        let told = driver.back.description().time_ms;
        driver.until("another look", |driver| {
            driver.stopped.is_some() || driver.back.description().time_ms > told + 500
        });
        let said = driver.stopped.as_ref().map(ToString::to_string).unwrap_or_default();
        assert_eq!(driver.stopped.is_none(), goes_on, "{lines:?}: {said}");
        assert!(goes_on || said.contains("begun with anew"), "{said}");
    }
}

#[test]
fn a_server_with_less_than_was_stable_is_not_begun_with_and_not_changed() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(3);
    driver.wants_stable = true;
    let payload = one("SET k v");
    let ticket = driver.execute(session, 5, RequestKind::Update, &payload);
    driver.until("stability", |driver| driver.stable >= ticket);
    let kept = driver.back.kept();
    assert_eq!(kept.get(&session), Some(&SeqNum(5)));
    let last_epoch = driver.started.as_ref().map(|report| report.epoch);
    let config = BackConfig { kept: kept.clone(), last_epoch, ..BackConfig::default() };
    let mut admin = redis.connect();
    admin.line("SELECT 15");
    admin.line("HSET scotfree:markers 3 4");
    let before = markers(&redis);
    let mut older = BackDriver::new(&redis.socket(), config.clone());
    older.until("the end", |driver| driver.stopped.is_some());
    let Some(StopReason::Unwilling(reasons)) = &older.stopped else { panic!("{:?}", older.stopped) };
    assert!(reasons[0].contains("older data than it had called stable"), "{reasons:?}");
    assert_eq!(markers(&redis), before);
    admin.line("HSET scotfree:markers 3 5");
    BackDriver::started(&redis.socket(), config);
}

#[test]
fn nothing_is_stable_before_the_files_are_synced() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    driver.sync_fails = true;
    let response = update(&mut driver, session, 1, "SET a 1");
    assert_eq!(response.reply(), b"+OK\r\n");
    driver.wants_stable = true;
    let until = driver.now().plus(Nanos::from_millis(150));
    driver.until("a while", |driver| driver.now() >= until);
    assert_eq!(driver.stable, 0);
    driver.sync_fails = false;
    driver.until("stability", |driver| driver.stable > 0);
    let file = redis.folder.join("appendonlydir/appendonly.aof.1.incr.aof");
    let synced = driver.synced.iter().find(|synced| synced.path == file).expect("the file was synced");
    assert_eq!(synced.bytes, file.metadata().expect("it is there").len());
}

#[test]
fn with_appendfsync_always_an_answer_is_stability() {
    let Some(redis) = RedisServer::start(ALWAYS) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    assert_eq!(driver.started.as_ref().map(|report| report.method.clone()), Some(Method::OnReply));
    let session = driver.open(1);
    let ticket = driver.execute(session, 1, RequestKind::Update, &one("SET a 1"));
    driver.until("stability", |driver| driver.stable >= ticket);
    assert!(driver.responses.contains_key(&ticket) && driver.synced.is_empty());
}

#[test]
fn stability_survives_rewrites_of_the_file() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    driver.wants_stable = true;
    for seq in 1..=200 {
        if seq % 50 == 0 {
            redis.connect().line("BGREWRITEAOF");
        }
        let ticket = driver.execute(session, seq, RequestKind::Bypass, &one("INCR n"));
        driver.until("stability", |driver| driver.stable >= ticket);
        driver.responses.clear();
    }
}

#[test]
fn watches_and_users_live_on_connections_of_their_own() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    redis.connect().line("ACL SETUSER alice on >secret ~alice:* ~scotfree:markers +@all");
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let (alice, other) = (driver.open(1), driver.open(2));
    let own = RequestFlags::PRIVATE;
    let as_alice = own.with(RequestFlags::USER);
    // Without having authenticated herself she is nobody.
    let lost = driver.call(alice, 1, RequestKind::Read, &payload(as_alice, &["GET alice:a"]));
    assert!(lost.failed, "{}", text(lost.reply()));
    let wrong = driver.call(alice, 2, RequestKind::Read, &payload(own, &["AUTH alice wrong"]));
    assert!(wrong.reply().starts_with(b"-WRONGPASS"));
    assert!(driver.call(alice, 3, RequestKind::Read, &payload(as_alice, &["GET alice:a"])).failed);
    assert_eq!(
        driver.call(alice, 4, RequestKind::Read, &payload(own, &["AUTH alice secret"])).reply(),
        b"+OK\r\n"
    );
    let write = driver.call(alice, 5, RequestKind::Bypass, &payload(as_alice, &["SET alice:a 1"]));
    assert_eq!(write.reply(), b"+OK\r\n");
    let denied = driver.call(alice, 6, RequestKind::Bypass, &payload(as_alice, &["SET bob:a 1"]));
    assert!(denied.reply().starts_with(b"-NOPERM"), "{}", text(denied.reply()));
    driver.until("the positions", |driver| driver.back.backlog() == 0);
    assert_eq!(position(&redis, alice), Some(6));
    // A watch sees what another session writes on the shared lane in between.
    let watched = RequestFlags::TRANSACTION.with(own).with(RequestFlags::WATCHED);
    for (line, expected) in [("SET b 2", &b"*-1\r\n"[..]), ("GET b", b"*1\r\n+OK\r\n")] {
        let seq = if line == "SET b 2" { 1 } else { 10 };
        driver.call(other, seq, RequestKind::Read, &payload(own, &["WATCH b"]));
        let kind = if line == "GET b" { RequestKind::Read } else { RequestKind::Update };
        update_as(&mut driver, alice, 6 + seq, kind, line);
        let exec = driver.call(other, seq + 1, RequestKind::Bypass, &payload(watched, &["SET c 1"]));
        assert_eq!(text(exec.reply()), text(expected));
    }
    driver.until("the positions", |driver| driver.back.backlog() == 0);
    assert_eq!(position(&redis, other), Some(11), "a failed watch has taken its place too");
    // A watch that was never set has failed.
    let exec = driver.call(alice, 30, RequestKind::Bypass, &payload(watched, &["SET c 2"]));
    assert_eq!(text(exec.reply()), text(b"*-1\r\n"));
}

fn update_as(driver: &mut BackDriver, session: SessionId, seq: u64, kind: RequestKind, line: &str) {
    driver.call(session, seq, kind, &one(line));
}

#[test]
fn clients_own_connections_are_bounded() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let config = BackConfig { private_lanes_max: 2, ..BackConfig::default() };
    let mut driver = BackDriver::started(&redis.socket(), config);
    let sessions: Vec<SessionId> = (1..=4).map(|number| driver.open(number)).collect();
    let own = RequestFlags::PRIVATE;
    // Those without state make room for others.
    for session in &sessions {
        assert!(!driver.call(*session, 1, RequestKind::Read, &payload(own, &["CLIENT ID"])).failed);
    }
    for session in &sessions[..2] {
        assert!(!driver.call(*session, 2, RequestKind::Read, &payload(own, &["WATCH k"])).failed);
    }
    let third = driver.call(sessions[2], 2, RequestKind::Read, &payload(own, &["WATCH k"]));
    assert!(third.reply().starts_with(b"-ERR scotfree: 2 client connections"), "{}", text(third.reply()));
    let release = payload(own.with(RequestFlags::RELEASE), &[]);
    driver.call(sessions[0], 3, RequestKind::Read, &release);
    assert!(!driver.call(sessions[2], 3, RequestKind::Read, &payload(own, &["WATCH k"])).failed);
}

#[test]
fn a_reply_over_the_limit_becomes_an_error() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let config = BackConfig { reply_bytes_max: 1_000, parts_bytes_max: 1_500, ..BackConfig::default() };
    let mut driver = BackDriver::started(&redis.socket(), config);
    let session = driver.open(1);
    update(&mut driver, session, 1, &format!("SET a {}", "x".repeat(2_000)));
    let response = driver.call(session, 2, RequestKind::Read, &one("GET a"));
    assert!(
        response.reply().starts_with(b"-ERR scotfree: the reply has 2009 bytes"),
        "{}",
        text(response.reply())
    );
    // What EXEC answers is one reply.
    update(&mut driver, session, 2, &format!("SET b {}", "x".repeat(900)));
    let both = payload(RequestFlags::TRANSACTION, &["GET b", "GET b"]);
    let response = driver.call(session, 3, RequestKind::Read, &both);
    let said = "-ERR scotfree: the replies of this transaction have 1820 bytes; 1500 can be kept";
    assert!(text(response.reply()).starts_with(said), "{}", text(response.reply()));
}

/// What a run of kills has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Toll {
    lost: u64,
    doubled: u64,
}

/// Kills the server again and again, cuts its file back to what was synced, and looks what is left.
fn kill_rounds(rounds: u32, sync_lies: bool) -> Option<Toll> {
    let mut redis = RedisServer::start(EVERYSEC)?;
    let session = SessionId(1);
    let mut last_epoch = None;
    let mut done = 0;
    let mut toll = Toll::default();
    for round in 0..rounds {
        let mut driver =
            BackDriver::started(&redis.socket(), BackConfig { last_epoch, ..BackConfig::default() });
        let report = driver.started.clone().expect("it has started");
        last_epoch = Some(report.epoch);
        if round == 0 {
            driver.open(1);
        }
        driver.sync_lies = sync_lies;
        let found =
            report.sessions.iter().find(|(id, _)| *id == session).map_or(0, |(_, marker)| marker.position.0);
        let value = redis.connect().line("GET n");
        let value: u64 =
            text_of(&value).map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"));
        toll.doubled += value.abs_diff(found);
        toll.lost += u64::saturating_sub(done, found);
        driver.wants_stable = true;
        let mut tickets = BTreeMap::new();
        for seq in found + 1..=found + 300 {
            tickets.insert(driver.execute(session, seq, RequestKind::Update, &one("INCR n")), seq);
        }
        let goal = found + 20 + 13 * u64::from(round);
        driver.until("some stability", |driver| tickets.get(&driver.stable).is_some_and(|seq| *seq >= goal));
        driver.cut_power(&mut redis);
        done = tickets[&driver.stable];
    }
    Some(toll)
}

#[test]
fn what_was_stable_survives_kills_and_power_failures_and_is_applied_once() {
    let Some(toll) = kill_rounds(12, false) else { return };
    assert_eq!(toll, Toll::default());
}

#[test]
fn the_rounds_of_kills_would_notice_a_sync_that_lies() {
    let Some(toll) = kill_rounds(3, true) else { return };
    assert!(toll.lost > 0, "{toll:?}");
    assert_eq!(toll.doubled, 0);
}

#[test]
fn work_on_a_connection_that_breaks_is_done_once_and_other_sessions_go_on() {
    for fault in [Fault::DropBefore, Fault::DropAfter, Fault::Nonsense] {
        let Some(redis) = RedisServer::start(EVERYSEC) else { return };
        let proxy = Proxy::start(&redis.socket());
        let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
        let (one_session, other) = (driver.open(1), driver.open(2));
        update(&mut driver, one_session, 1, "RPUSH l before");
        proxy.plant("culprit", fault);
        let tickets = [
            driver.execute(one_session, 2, RequestKind::Update, &one("RPUSH l culprit")),
            driver.execute(other, 1, RequestKind::Update, &one("RPUSH l behind")),
            driver.execute(other, 2, RequestKind::Read, &one("LLEN l")),
        ];
        let replies: Vec<Response> = tickets.iter().map(|ticket| driver.response(*ticket)).collect();
        // What was executed and not answered cannot be answered; what was not executed is executed now.
        let lost = fault != Fault::DropBefore;
        for (reply, expected) in replies.iter().zip([&b":2\r\n"[..], b":3\r\n"]) {
            assert_eq!(
                (reply.failed, reply.reply() == expected),
                (lost, !lost),
                "{fault:?} {}",
                text(reply.reply())
            );
        }
        assert_eq!(replies[2].reply(), b":3\r\n", "what only reads is read again");
        assert_eq!(update(&mut driver, one_session, 3, "RPUSH l after").reply(), b":4\r\n");
        assert_eq!(update(&mut driver, other, 3, "LLEN l").reply(), b":4\r\n");
        assert_eq!((position(&redis, one_session), position(&redis, other)), (Some(3), Some(3)));
        assert_eq!((driver.stopped.clone(), driver.failed.len()), (None, 0));
    }
}

#[test]
fn nonsense_ends_the_session_that_it_answers_and_no_other() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let proxy = Proxy::start(&redis.socket());
    let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
    let sessions: Vec<SessionId> = (1..=7).map(|number| driver.open(number)).collect();
    let (asker, reader, only_reads, writers) = (sessions[0], sessions[1], sessions[2], &sessions[3..]);
    // The lane is in the right database from here on, so what is answered first is the request.
    driver.call(asker, 0, RequestKind::Read, &one("PING"));
    proxy.plant("culprit", Fault::Nonsense);
    let culprit = driver.execute(asker, 1, RequestKind::Read, &one("GET culprit"));
    let behind = driver.execute(only_reads, 1, RequestKind::Read, &one("ECHO hello"));
    let outrun = driver.execute(writers[0], 1, RequestKind::Read, &one("GET k"));
    let early = payload(RequestFlags::EARLY, &["SET k v"]);
    let writes: Vec<u64> =
        writers.iter().map(|writer| driver.execute(*writer, 2, RequestKind::Update, &early)).collect();
    let covered = driver.execute(reader, 2, RequestKind::Update, &one("SET covered v"));
    let last = driver.execute(reader, 3, RequestKind::Read, &one("GET k"));
    let said = driver.response(culprit);
    let (flags, _) = parse_response(&said.bytes).expect("a response of ours");
    assert!(said.failed && flags.has(ResponseFlags::CLOSE), "{}", text(said.reply()));
    for ticket in writes.into_iter().chain([covered]) {
        assert_eq!(driver.response(ticket).reply(), b"+OK\r\n", "what was executed is known");
    }
    assert_eq!(driver.response(behind).reply(), b"$5\r\nhello\r\n");
    assert_eq!(driver.response(last).reply(), b"$1\r\nv\r\n");
    assert_ne!(driver.response(outrun).reply(), b"$1\r\nv\r\n", "a read before its session's own write");
    assert!(driver.late_errors.is_empty(), "{:?}", driver.late_errors);
    assert!(writers.iter().chain([&reader]).all(|session| position(&redis, *session) == Some(2)));
    assert_eq!((driver.stopped.clone(), driver.failed.len()), (None, 0));
    let counters = driver.back.counters();
    assert_eq!((counters.nonsense, counters.lanes_broken), (1, 1), "nobody asks for the nonsense again");
    assert!(driver.nonsense[0].contains("shared: byte 0x48 begins no RESP reply: `HTTP/1.1 400"));
}

#[test]
fn a_read_that_always_breaks_the_connection_is_given_up() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let proxy = Proxy::start(&redis.socket());
    let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
    let (one_session, other) = (driver.open(1), driver.open(2));
    for _ in 0..3 {
        proxy.plant("culprit", Fault::Nonsense);
    }
    let culprit = driver.execute(one_session, 1, RequestKind::Read, &one("GET culprit"));
    let innocent = driver.execute(other, 1, RequestKind::Read, &one("ECHO hello"));
    assert!(driver.response(culprit).failed);
    assert_eq!(driver.response(innocent).reply(), b"$5\r\nhello\r\n");
    assert_eq!(driver.stopped, None);
}

#[test]
fn a_broken_connection_of_a_clients_own_ends_only_its_session() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let proxy = Proxy::start(&redis.socket());
    let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
    let (one_session, other) = (driver.open(1), driver.open(2));
    let own = RequestFlags::PRIVATE;
    driver.call(one_session, 1, RequestKind::Read, &payload(own, &["WATCH k"]));
    proxy.plant("culprit", Fault::DropAfter);
    let watched = RequestFlags::TRANSACTION.with(own).with(RequestFlags::WATCHED);
    let lost = driver.call(one_session, 2, RequestKind::Bypass, &payload(watched, &["SET culprit 1"]));
    assert!(lost.failed && driver.failed.contains_key(&one_session));
    assert_eq!(update(&mut driver, other, 1, "INCR n").reply(), b":1\r\n");
}

#[test]
fn a_connection_of_a_clients_own_that_cannot_be_opened_holds_nobody_up() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let proxy = Proxy::start(&redis.socket());
    let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
    let (one_session, other) = (driver.open(1), driver.open(2));
    let watch = payload(RequestFlags::PRIVATE, &["WATCH k"]);
    proxy.plant("private", Fault::DropBefore);
    let reply = driver.call(one_session, 1, RequestKind::Read, &watch);
    assert_eq!(reply.reply(), b"+OK\r\n", "once may be chance");
    for _ in 0..OPENINGS_MAX {
        proxy.plant("private", Fault::DropBefore);
    }
    let watch = driver.execute(other, 1, RequestKind::Read, &watch);
    let behind = driver.execute(one_session, 2, RequestKind::Update, &one("INCR n"));
    let reply = driver.response(watch);
    let said = text(reply.reply());
    assert!(said.starts_with("-ERR scotfree:") && said.contains("did not run"), "{said}");
    assert!(said.contains(&format!("closed {OPENINGS_MAX} times")), "{said}");
    assert_eq!(driver.response(behind).reply(), b":1\r\n");
    assert!(driver.lanes.is_empty() && driver.failed.is_empty() && driver.stopped.is_none());
}

#[test]
fn a_server_that_takes_no_more_connections_is_said_once_and_tried_until_it_does() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    let mut admin = redis.connect();
    admin.line("CONFIG SET maxclients 1");
    let watch = payload(RequestFlags::PRIVATE, &["WATCH k"]);
    let reply = driver.call(session, 1, RequestKind::Read, &watch);
    assert!(text(reply.reply()).starts_with("-ERR "), "{}", text(reply.reply()));
    assert_eq!(update(&mut driver, session, 2, "INCR n").reply(), b":1\r\n");
    admin.line("CONFIG SET maxclients 100");
    driver.until("new lanes", |driver| driver.back.lanes_allowed());
    let reply = driver.call(session, 3, RequestKind::Read, &watch);
    assert_eq!(reply.reply(), b"+OK\r\n");
    assert!(driver.lanes.len() <= 2, "{:?}", driver.lanes);
}

#[test]
fn a_probe_that_breaks_is_tried_again() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let proxy = Proxy::start(&redis.socket());
    let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
    let session = driver.open(1);
    proxy.plant("persistence", Fault::Nonsense);
    let ticket = driver.execute(session, 1, RequestKind::Bypass, &one("SPOP s"));
    driver.wants_stable = true;
    driver.until("stability", |driver| driver.stable >= ticket);
    assert_eq!(driver.stopped, None);
}

#[test]
fn what_depends_on_a_time_to_live_is_answered_when_no_replay_can_contradict_it() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let config = BackConfig { health_interval: Nanos::from_millis(5), ..BackConfig::default() };
    let mut driver = BackDriver::started(&redis.socket(), config);
    let session = driver.open(1);
    driver.sync_fails = true;
    assert_eq!(update(&mut driver, session, 1, "INCR steady").reply(), b":1\r\n");
    assert_eq!(update(&mut driver, session, 2, "SET brief 5 PXAT 99999999999999").reply(), b"+OK\r\n");
    assert_eq!(update(&mut driver, session, 3, "INCR steady").reply(), b":2\r\n");
    let held = [
        driver.execute(session, 4, RequestKind::Update, &one("INCR brief")),
        driver.execute(session, 5, RequestKind::Read, &one("GET brief")),
        driver.execute(
            session,
            6,
            RequestKind::Update,
            &payload(RequestFlags::TRANSACTION, &["INCR brief", "PING"]),
        ),
    ];
    let until = driver.now().plus(Nanos::from_millis(150));
    driver.until("a while", |driver| driver.now() >= until);
    assert!(driver.responses.is_empty(), "nothing is said before it is stable");
    driver.sync_fails = false;
    for (ticket, expected) in held.into_iter().zip([&b":6\r\n"[..], b"$1\r\n6\r\n", b"*2\r\n:7\r\n+PONG\r\n"])
    {
        assert_eq!(text(driver.response(ticket).reply()), text(expected));
    }
    // Once no key has a time to live, nobody asks for it any more.
    update(&mut driver, session, 7, "DEL brief");
    let at = driver.now().plus(Nanos::from_millis(50));
    driver.until("some looks at the server", |driver| driver.now() >= at);
    redis.connect().line("CONFIG RESETSTAT");
    update(&mut driver, session, 8, "INCR steady");
    let statistics = text(&redis.connect().line("INFO commandstats"));
    assert!(statistics.contains("cmdstat_incr") && !statistics.contains("cmdstat_pttl"), "{statistics}");
}

#[test]
fn a_client_that_turns_syncing_off_does_not_make_answers_stable() {
    let Some(redis) = RedisServer::start(ALWAYS) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    driver.sync_fails = true;
    let setting = driver.execute(session, 1, RequestKind::Bypass, &one("CONFIG SET appendfsync no"));
    let write = driver.execute(session, 2, RequestKind::Update, &one("SET a 1"));
    driver.wants_stable = true;
    driver.response(write);
    let until = driver.now().plus(Nanos::from_millis(50));
    driver.until("a while", |driver| driver.now() >= until);
    assert!(driver.stable < setting, "{} is said to be stable", driver.stable);
    driver.sync_fails = false;
    driver.until("stability", |driver| driver.stable >= write);
    assert!(!driver.synced.is_empty());
}

#[test]
fn a_newer_server_is_asked_when_it_has_synced() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let proxy = Proxy::newer(&redis.socket());
    let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
    assert_eq!(driver.started.as_ref().map(|report| report.method.clone()), Some(Method::WaitAof));
    let session = driver.open(1);
    let ticket = driver.execute(session, 1, RequestKind::Bypass, &one("SPOP s"));
    driver.wants_stable = true;
    driver.until("stability", |driver| driver.stable >= ticket);
    // With memory used up as well.
    redis.connect().line("CONFIG SET maxmemory 1");
    let ticket = driver.execute(session, 2, RequestKind::Bypass, &one("SPOP s"));
    driver.until("stability", |driver| driver.stable >= ticket);
    assert_eq!((driver.synced.len(), driver.back.counters().lanes_broken), (0, 0));
}

#[test]
fn a_server_on_another_host_says_itself_what_it_has_synced_and_its_files_are_not_looked_for_here() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let config = || BackConfig { same_host: false, ..BackConfig::default() };
    let mut old = BackDriver::new(&redis.socket(), config());
    old.until("the refusal", |driver| driver.stopped.is_some());
    let said = old.stopped.as_ref().map(StopReason::to_string).unwrap_or_default();
    assert!(said.contains("has no WAITAOF"), "{said}");
    let proxy = Proxy::newer(&redis.socket());
    // Files of the same name are whole here, and say nothing of those there.
    let mut driver = BackDriver::started(&proxy.path, config());
    assert_eq!(driver.started.as_ref().map(|report| report.method.clone()), Some(Method::WaitAof));
    assert!(driver.waits.iter().any(|what| what.contains("it is on another host")), "{:?}", driver.waits);
    let session = driver.open(1);
    let ticket = driver.execute(session, 1, RequestKind::Bypass, &one("SPOP s"));
    driver.wants_stable = true;
    driver.until("stability", |driver| driver.stable >= ticket);
    assert!(driver.synced.is_empty());
    // It syncs no more by itself: WAITAOF would wait for ever.
    redis.connect().line("CONFIG SET appendfsync no");
    driver.until("the refusal of writes", |driver| driver.writes.len() == 1);
    redis.connect().line("CONFIG SET appendfsync everysec");
    driver.until("writes again", |driver| driver.writes.len() == 2);
    assert!(driver.writes[0].as_ref().is_some_and(|reason| reason.contains("appendfsync is `no`")));
    assert_eq!(driver.writes[1], None);
}
