//! Requests of several commands, each rule against a real redis-server.

mod support;

use scotfree_core::SessionId;
use scotfree_resp::back::BackConfig;
use scotfree_resp::codec::{elements, text_of, write_command, Command};
use scotfree_resp::payload::pack::{unpack, PackBuilder};
use scotfree_resp::payload::{
    parse_part, parse_response, RequestFlags, RequestHead, RequestKind, ResponseFlags,
};
use std::collections::BTreeMap;
use support::driver::{BackDriver, Response};
use support::proxy::{Fault, Proxy};
use support::{text, RedisServer};

const EVERYSEC: &[&str] = &["--appendonly yes", "--appendfsync everysec"];

/// The parts of different connections, each in a database.
fn pack_in(flags: RequestFlags, parts: &[(u16, &str)]) -> Vec<u8> {
    let mut pack = PackBuilder::default();
    for (connection, (db, line)) in (1..).zip(parts) {
        let mut request = Vec::new();
        RequestHead { flags, db: *db, connection }.write(&mut request);
        write_command(&mut request, Command::new(line.split(' ')).args());
        assert!(pack.add(&request, 1 << 20), "{line}");
    }
    pack.payload().to_vec()
}

fn pack(lines: &[&str]) -> Vec<u8> {
    pack_in(RequestFlags::NONE, &lines.iter().map(|line| (0, *line)).collect::<Vec<_>>())
}

fn single(line: &str) -> Vec<u8> {
    let mut request = Vec::new();
    RequestHead::default().write(&mut request);
    write_command(&mut request, Command::new(line.split(' ')).args());
    request
}

/// What each part is answered.
fn replies(response: &Response, count: usize) -> Vec<String> {
    let parts = unpack(&response.bytes, count).expect("a response to a pack");
    parts.iter().map(|part| text(parse_response(part).expect("a response").1)).collect()
}

fn flags(response: &Response, count: usize) -> Vec<ResponseFlags> {
    let parts = unpack(&response.bytes, count).expect("a response to a pack");
    parts.iter().map(|part| parse_response(part).expect("a response").0).collect()
}

fn position(redis: &RedisServer, session: SessionId) -> Option<u64> {
    let mut connection = redis.connect();
    connection.line("SELECT 15");
    let reply = connection.line(&format!("HGET scotfree:markers {session}"));
    String::from_utf8_lossy(text_of(&reply)?).parse().ok()
}

#[test]
fn a_pack_is_executed_in_order_with_one_position_and_each_part_has_its_reply() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    assert!(driver.describe().packs, "clients are told that packs are taken");
    let session = driver.open(1);
    let before = driver.back.counters();
    let parts = [(0, "INCR n"), (3, "INCR n"), (0, "INCR n"), (3, "RPUSH l a")];
    let payload = pack_in(RequestFlags::NONE, &parts);
    let done = driver.call(session, 1, RequestKind::Update, &payload);
    assert!(!done.failed);
    assert_eq!(replies(&done, 4), [":1\\r\\n", ":1\\r\\n", ":2\\r\\n", ":1\\r\\n"]);
    assert_eq!(position(&redis, session), Some(1));
    let read = driver.call(
        session,
        2,
        RequestKind::Read,
        &pack_in(RequestFlags::NONE, &[(3, "GET n"), (0, "GET n")]),
    );
    assert_eq!(replies(&read, 2), ["$1\\r\\n1\\r\\n", "$1\\r\\n2\\r\\n"]);
    let counters = driver.back.counters();
    assert_eq!((counters.batches - before.batches, counters.packed - before.packed), (1, 6));
    let again = driver.call(session, 1, RequestKind::Update, &payload);
    assert!(replies(&again, 4).iter().all(|reply| reply.contains("applied before")), "{again:?}");
    assert_eq!(redis.connect().line("GET n"), b"$1\r\n2\r\n", "and nothing of it is executed again");
}

#[test]
fn an_error_is_that_part_s_alone() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut connection = redis.connect();
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    let mixed = driver.call(session, 1, RequestKind::Update, &pack(&["INCR n", "LPUSH n x", "INCR n"]));
    let said = replies(&mixed, 3);
    assert!(mixed.failed && said[1].starts_with("-WRONGTYPE"), "{said:?}");
    assert_eq!((said[0].as_str(), said[2].as_str()), (":1\\r\\n", ":2\\r\\n"));
    // What the server does not even queue takes the whole transaction with it, which then runs without it.
    connection.line("ACL SETUSER default -append");
    for (seq, culprit, error) in [(2, "APPEND a x", "-NOPERM"), (3, "NOSUCH x", "-ERR unknown command")] {
        let mixed = driver.call(session, seq, RequestKind::Update, &pack(&["INCR n", culprit, "INCR n"]));
        let said = replies(&mixed, 3);
        assert!(said[1].starts_with(error), "{said:?}");
        let count = 2 * seq - 1;
        assert_eq!((&said[0], &said[2]), (&format!(":{count}\\r\\n"), &format!(":{}\\r\\n", count + 1)));
        assert_eq!(position(&redis, session), Some(seq));
    }
    let none = driver.call(session, 4, RequestKind::Update, &pack(&["APPEND a x", "APPEND b x"]));
    assert!(replies(&none, 2).iter().all(|reply| reply.starts_with("-NOPERM")), "{none:?}");
    assert_eq!(driver.call(session, 5, RequestKind::Update, &single("INCR n")).reply(), b":7\r\n");
    assert_eq!(position(&redis, session), Some(5));
}

#[test]
fn packs_share_transactions_with_others_and_a_refused_part_takes_nobody_with_it() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let sessions = [driver.open(1), driver.open(2), driver.open(3)];
    redis.connect().line("ACL SETUSER default -append");
    let before = driver.back.counters();
    let tickets = [
        driver.execute(sessions[0], 1, RequestKind::Update, &pack(&["INCR n", "INCR n"])),
        driver.execute(sessions[1], 1, RequestKind::Update, &pack(&["INCR n", "APPEND a x"])),
        driver.execute(sessions[2], 1, RequestKind::Update, &single("INCR n")),
        driver.execute(sessions[2], 2, RequestKind::Read, &pack(&["GET n", "LLEN l"])),
    ];
    let responses: Vec<Response> = tickets.iter().map(|ticket| driver.response(*ticket)).collect();
    assert_eq!(replies(&responses[0], 2), [":1\\r\\n", ":2\\r\\n"]);
    let mixed = replies(&responses[1], 2);
    assert!(mixed[0] == ":3\\r\\n" && mixed[1].starts_with("-NOPERM"), "{mixed:?}");
    assert_eq!(responses[2].reply(), b":4\r\n");
    assert_eq!(replies(&responses[3], 2), ["$1\\r\\n4\\r\\n", ":0\\r\\n"]);
    assert!(sessions.iter().all(|session| position(&redis, *session) == Some(1)));
    assert_eq!(driver.back.counters().aborted - before.aborted, 2, "all together, and the culprit's pack");
}

#[test]
fn with_memory_used_up_what_frees_memory_runs_beside_what_is_refused() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    driver.call(session, 1, RequestKind::Update, &pack(&["SET big x", "SET other x"]));
    redis.connect().line("CONFIG SET maxmemory 1");
    let payload = pack(&["SET more x", "DEL big", "DEL other"]);
    let mixed = driver.call(session, 2, RequestKind::Update, &payload);
    let said = replies(&mixed, 3);
    assert!(said[0].starts_with("-OOM"), "{said:?}");
    assert_eq!(said[1..], [":1\\r\\n", ":1\\r\\n"]);
    let durable =
        flags(&mixed, 3).iter().map(|flags| !flags.has(ResponseFlags::DURABILITY_NONE)).collect::<Vec<_>>();
    assert_eq!(durable, [true, false, false]);
    redis.connect().line("CONFIG SET maxmemory 0");
    assert_eq!(driver.call(session, 3, RequestKind::Update, &single("EXISTS big more")).reply(), b":0\r\n");
    assert_eq!(position(&redis, session), Some(3));
}

#[test]
fn of_an_early_pack_the_broken_promises_are_noted_and_no_others() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    redis.connect().line("ACL SETUSER default -setex");
    let parts = [(0, "SET a 1"), (0, "SETEX b 100 1"), (0, "SET c 1")];
    let done = driver.call(session, 1, RequestKind::Update, &pack_in(RequestFlags::EARLY, &parts));
    assert_eq!(replies(&done, 3)[0], "+OK\\r\\n");
    let noted: Vec<String> =
        driver.late_errors.iter().map(|late| text(&late.commands[0].join(&b' '))).collect();
    assert_eq!(noted, ["SETEX b 100 1"]);
    assert_eq!(driver.late_errors[0].commands.len(), 1);
    // What is said to all is said of each.
    driver.call(session, 1, RequestKind::Update, &pack_in(RequestFlags::EARLY, &parts));
    assert_eq!(driver.late_errors.len(), 4);
}

#[test]
fn replies_for_which_a_packet_has_no_room_are_asked_for() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let config = BackConfig { reply_bytes_max: 2_000, parts_bytes_max: 5_000, ..BackConfig::default() };
    let mut driver = BackDriver::started(&redis.socket(), config);
    let session = driver.open(1);
    let value = |letter: &str, count: usize| letter.repeat(count);
    for (seq, key, value) in
        [(1, "a", value("a", 900)), (2, "b", value("b", 1_500)), (3, "c", value("c", 6_000))]
    {
        driver.call(session, seq, RequestKind::Update, &single(&format!("SET {key} {value}")));
    }
    let response =
        driver.call(session, 4, RequestKind::Read, &pack(&["GET a", "GET b", "GET c", "ECHO hello"]));
    assert!(response.bytes.len() <= 2_000, "what is said in place of a reply has room, too");
    let said = replies(&response, 4);
    assert_eq!(said[0], format!("$900\\r\\n{}\\r\\n", value("a", 900)));
    assert!(said[2].starts_with("-ERR scotfree: the reply has 6009 bytes"), "{said:?}");
    assert_eq!(said[3], "$5\\r\\nhello\\r\\n");
    let parts = unpack(&response.bytes, 4).expect("parts");
    let (flags, rest) = parse_response(parts[1]).expect("a response");
    let (name, begun) = parse_part(rest).filter(|_| flags.has(ResponseFlags::MORE)).expect("more is to come");
    let rest_of = |name: u64| {
        let mut request = Vec::new();
        RequestHead { flags: RequestFlags::REST, db: 0, connection: 2 }.write(&mut request);
        request.extend_from_slice(&name.to_le_bytes());
        request
    };
    let (mut whole, mut more) = (begun.to_vec(), true);
    while more {
        let response = driver.call(session, 4, RequestKind::Read, &rest_of(name));
        let (flags, part) = parse_response(&response.bytes).expect("a response");
        more = flags.has(ResponseFlags::MORE);
        whole.extend_from_slice(if more { parse_part(part).expect("named").1 } else { part });
    }
    assert_eq!(text(&whole), format!("$1500\\r\\n{}\\r\\n", value("b", 1_500)));
    // A connection that is gone leaves nothing, and takes nothing of the others'.
    for (gone, is_kept) in [(1, true), (2, false)] {
        let response = driver.call(session, 5, RequestKind::Read, &pack(&["GET a", "GET b"]));
        let part = unpack(&response.bytes, 2).expect("parts")[1];
        let (name, _) = parse_part(parse_response(part).expect("a response").1).expect("more is to come");
        let mut release = Vec::new();
        let flags = RequestFlags::PRIVATE.with(RequestFlags::RELEASE);
        RequestHead { flags, db: 0, connection: gone }.write(&mut release);
        driver.call(session, 6, RequestKind::Read, &release);
        let rest = driver.call(session, 7, RequestKind::Read, &rest_of(name));
        assert_eq!(!text(rest.reply()).contains("is forgotten"), is_kept, "connection {gone}");
    }
}

#[test]
fn what_cannot_be_packed_is_refused_and_nothing_of_it_is_executed() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut driver = BackDriver::started(&redis.socket(), BackConfig::default());
    let session = driver.open(1);
    for (kind, payload) in [
        (RequestKind::Update, pack(&["SET k v", "AUTH x"])),
        (RequestKind::Update, pack(&["SET k v", "SUBSCRIBE c"])),
        (RequestKind::Update, pack_in(RequestFlags::NONE, &[(0, "SET k v"), (15, "SET k v")])),
        (RequestKind::Update, pack_in(RequestFlags::NONE, &[(0, "SET k v"), (77, "SET k v")])),
        (RequestKind::Read, pack(&["GET k", "SET k v"])),
        (RequestKind::Update, pack(&["SET k v", "SET l w"])[..40].to_vec()),
    ] {
        let refused = driver.call(session, 1, kind, &payload);
        assert!(refused.failed, "{}", text(&refused.bytes));
        assert_eq!(unpack(&refused.bytes, 2), Ok(vec![&refused.bytes[..]; 2]), "it is said to all");
    }
    assert_eq!(redis.connect().line("GET k"), b"$-1\r\n");
}

#[test]
fn a_pack_on_a_connection_that_breaks_is_done_once() {
    for fault in [Fault::DropBefore, Fault::DropAfter, Fault::Nonsense] {
        let Some(redis) = RedisServer::start(EVERYSEC) else { return };
        let proxy = Proxy::start(&redis.socket());
        let mut driver = BackDriver::started(&proxy.path, BackConfig::default());
        let (one, other) = (driver.open(1), driver.open(2));
        driver.call(one, 1, RequestKind::Update, &single("RPUSH l before"));
        proxy.plant("culprit", fault);
        let tickets = [
            driver.execute(one, 2, RequestKind::Update, &pack(&["RPUSH l culprit", "RPUSH l too"])),
            driver.execute(other, 1, RequestKind::Update, &pack(&["SET k v", "SET l2 w"])),
            driver.execute(other, 2, RequestKind::Read, &pack(&["LLEN l", "GET k"])),
        ];
        let responses: Vec<Response> = tickets.iter().map(|ticket| driver.response(*ticket)).collect();
        let said = replies(&responses[0], 2);
        if fault == Fault::DropBefore {
            assert_eq!(said, [":2\\r\\n", ":3\\r\\n"]);
        } else {
            assert!(said.iter().all(|reply| reply.contains("can be seen in the data")), "{fault:?} {said:?}");
            assert!(flags(&responses[0], 2).iter().all(|flags| flags.has(ResponseFlags::CLOSE)));
        }
        assert_eq!(replies(&responses[1], 2), ["+OK\\r\\n", "+OK\\r\\n"], "what was executed is known");
        assert_eq!(
            replies(&responses[2], 2),
            [":3\\r\\n", "$1\\r\\nv\\r\\n"],
            "what only reads is read again"
        );
        assert_eq!((position(&redis, one), position(&redis, other)), (Some(2), Some(1)));
        assert_eq!((driver.stopped.clone(), driver.failed.len()), (None, 0));
    }
}

#[test]
fn packs_survive_kills_and_power_failures_whole_and_are_applied_once() {
    let Some(mut redis) = RedisServer::start(EVERYSEC) else { return };
    let session = SessionId(1);
    let (mut last_epoch, mut done) = (None, 0);
    for round in 0..8 {
        let config = BackConfig { last_epoch, ..BackConfig::default() };
        let mut driver = BackDriver::started(&redis.socket(), config);
        let report = driver.started.clone().expect("it has started");
        last_epoch = Some(report.epoch);
        if round == 0 {
            driver.open(1);
        }
        let found =
            report.sessions.iter().find(|(id, _)| *id == session).map_or(0, |(_, marker)| marker.position.0);
        let values = redis.connect().line("MGET a b c");
        let number = |value: &[u8]| -> u64 {
            text_of(value).map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"))
        };
        let values: Vec<u64> = elements(&values).map(number).collect();
        assert_eq!(values, [found; 3], "a part was lost or doubled in round {round}");
        assert!(found >= done, "round {round} lost {done} behind {found}");
        driver.wants_stable = true;
        let parts = pack(&["INCR a", "INCR b", "INCR c"]);
        let mut tickets = BTreeMap::new();
        for seq in found + 1..=found + 300 {
            tickets.insert(driver.execute(session, seq, RequestKind::Update, &parts), seq);
        }
        let goal = found + 20 + 13 * round;
        driver.until("some stability", |driver| tickets.get(&driver.stable).is_some_and(|seq| *seq >= goal));
        driver.cut_power(&mut redis);
        done = tickets[&driver.stable];
    }
}
