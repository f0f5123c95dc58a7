//! The service as a member of a group: what it says of its state, and what of it a crash leaves.
#![allow(clippy::unwrap_used)]

mod common;

use common::{apply, open, options, options_with, Driver, MemoryStorage};
use proptest::prelude::*;
use scotfree_core::{SeqNum, SessionId};
use scotfree_kv::{command, IndexKind, KvOptions};
use scotfree_resp::front::describe_request;
use scotfree_resp::payload::{parse_response, write_request, RequestFlags};
use scotfree_session::RequestKind;
use scotfree_state::{Applied, Facts, Installed, Known, Mark, Placed, State, Touches, Version};
use scotfree_wire::Identity;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

#[test]
fn members_that_apply_the_same_writes_are_alike_and_answer_as_a_service_alone() {
    let mut alone = new(&options(1 << 20));
    alone.start_session(1);
    let mut members: Vec<Driver> = [IndexKind::Hash, IndexKind::BTree, IndexKind::SkipList]
        .map(|index| new(&options_with(index, 1 << 20)))
        .into();
    for (at, line) in LINES.iter().enumerate() {
        let answer = alone.run(RequestKind::Bypass, 1, at as u64 + 1, line);
        for member in &mut members {
            assert_eq!(text(&write(member, at as u64 + 1, None, line).1), answer, "{line}");
        }
    }
    let first = snapshot(&members[0]);
    assert!(members.iter().all(|member| snapshot(member) == first));
    assert_eq!(common::content(members[0].service.store()), common::content(alone.service.store()));
    for line in ["GET a", "LRANGE list 0 -1", "MGET a text", "SET a 1", "NOSUCH"] {
        let mut reply = Vec::new();
        let is_refused = members[0].service.query(&payload(line), &mut reply);
        assert_eq!(text(&reply), alone.run(RequestKind::Read, 1, 99, line), "{line}");
        assert_eq!(is_refused, text(&reply).starts_with('-'), "{line}");
    }
}

#[test]
fn a_crash_at_every_write_of_the_log_leaves_a_state_that_was() {
    for ops_bytes_max in [1_200, 1 << 20] {
        crash_at_every_write(&options(ops_bytes_max));
    }
}

fn crash_at_every_write(options: &KvOptions) {
    let storage = MemoryStorage::of(Vec::new());
    let mut member = Driver::new(open(&storage, options).unwrap().0);
    member.start_session(1);
    member.start_session(2);
    member.settle();
    let opened = storage.write_count();
    let mut states = vec![state(&member)];
    let mut writes_when_stable = vec![opened];
    for step in 0..STEPS {
        let number = take_step(&mut member, step);
        states.push(state(&member));
        member.settle();
        assert!(member.service.stable() >= number);
        writes_when_stable.push(storage.write_count());
    }
    assert_eq!(member.service.snapshots_taken() > 1, options.limits.ops_bytes_max < 10_000);
    drop(member);
    let writes = storage.writes.lock().unwrap().clone();
    let mut image = Vec::new();
    for (count, (offset, bytes)) in writes.iter().enumerate() {
        if count >= opened {
            let floor = writes_when_stable.iter().rposition(|needed| *needed <= count).unwrap();
            check(&image, options, &states, floor);
            let mut torn = image.clone();
            apply(&mut torn, *offset, &bytes[..bytes.len() / 2]);
            check(&torn, options, &states, floor);
        }
        apply(&mut image, *offset, bytes);
    }
    check(&image, options, &states, STEPS as usize);
}

const STEPS: u64 = 24;

/// One write of any kind; its number.
fn take_step(member: &mut Driver, step: u64) -> u64 {
    let service = &mut member.service;
    let session = Some((SessionId(step % 2 + 1), SeqNum(step + 1)));
    let mark = service.mark().0 + 1;
    let applied = match step {
        7 | 15 => {
            let mut other = new(&options(1 << 20));
            let long = format!("SET long {}", "x".repeat(3_900));
            for mark in 1..=step + 20 {
                write(&mut other, mark, None, if mark == 5 { &long } else { "INCR m" });
            }
            set_version(&mut other, "gone", None, step);
            let stream = snapshot(&other);
            assert!(stream.len() > 4_000, "in several parts");
            service.read_snapshot(&stream).unwrap()
        }
        3 | 11 => service.take_place(SessionId(1), SeqNum(step + 1)),
        5 | 12 | 20 => set_version(member, "key", Some(&step.to_string()), step),
        6 => set_version(member, "other", None, step),
        _ => {
            return write(
                member,
                mark,
                session,
                ["INCR a", "RPUSH l x", "GET a extra", "DEL key"][step as usize % 4],
            )
            .0
            .number
        }
    };
    applied.number
}

/// Opens the image: the state found was one, and not before `floor`.
fn check(image: &[u8], options: &KvOptions, states: &[(Vec<u8>, Positions)], floor: usize) {
    let (service, _) = open(&MemoryStorage::of(image.to_vec()), options).unwrap();
    let found = state(&Driver::new(service));
    let at = states.iter().rposition(|state| *state == found).expect("a state that was");
    assert!(at >= floor, "{at} steps found, {floor} were stable");
}

#[test]
fn results_and_marks_are_there_again_after_a_restart() {
    let storage = MemoryStorage::of(Vec::new());
    let mut member = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
    let (applied, first) = write(&mut member, 1, None, "INCR n");
    assert_eq!(applied, Applied { number: 1, is_refused: false });
    let (applied, refused) = write(&mut member, 2, None, "SET n");
    assert_eq!(applied, Applied { number: 2, is_refused: true });
    assert_eq!(member.service.stable(), 0);
    member.settle();
    assert_eq!(member.service.stable(), 2);
    drop(member);
    let (service, _) = open(&storage, &options(1 << 20)).unwrap();
    assert_eq!((service.mark(), service.stable()), (Mark(2), 0));
    assert_eq!(service.results().look(&identity(1), 5), Known::Answered(&first));
    assert_eq!(service.results().look(&identity(2), 5), Known::Answered(&refused));
    assert_eq!(service.results().look(&identity(3), 5), Known::New);
}

#[test]
fn a_snapshot_of_one_member_is_the_state_of_another_also_after_a_restart() {
    let mut one = new(&options(1 << 20));
    let replies: Vec<Vec<u8>> =
        LINES.iter().enumerate().map(|(at, line)| write(&mut one, at as u64 + 1, None, line).1).collect();
    set_version(&mut one, "gone", None, 7);
    let stream = snapshot(&one);
    let storage = MemoryStorage::of(Vec::new());
    let mut other = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
    other.start_session(1);
    write(&mut other, 1, Some((SessionId(1), SeqNum(4))), "SET old value");
    other.service.take_place(SessionId(1), SeqNum(4));
    let before = state(&other);
    for length in 0..stream.len() {
        assert!(other.service.read_snapshot(&stream[..length]).is_err());
    }
    assert_eq!(state(&other), before, "what is damaged changes nothing");
    let number = other.service.read_snapshot(&stream).unwrap().number;
    assert!(other.service.stable() < number);
    other.settle();
    assert_eq!(other.service.stable(), number);
    drop(other);
    let (service, recovery) = open(&storage, &options(1 << 20)).unwrap();
    assert_eq!(recovery.sessions[0].position, SeqNum(4), "this member's sessions stay");
    let mut other = Driver::new(service);
    assert_eq!(snapshot(&other), stream);
    let progress = LINES.len() as u64 + 1;
    assert_eq!((one.service.progress(), other.service.progress()), (progress, progress));
    set_version(&mut other, "gone", None, 1);
    assert_eq!(other.service.progress(), progress + 1, "that it had a newer version does not matter");
    let last = LINES.len() as u64;
    assert_eq!(other.service.results().look(&identity(last), 0), Known::Answered(&replies[LINES.len() - 1]));
    assert_eq!(other.service.version(&key("gone")), Version { counter: 7, member: 2 });
}

#[test]
fn a_snapshot_is_stable_when_all_of_it_is_in_the_log() {
    let mut one = new(&options(1 << 20));
    write(&mut one, 1, None, &format!("SET long {}", "x".repeat(3_000)));
    let stream = snapshot(&one);
    let mut small = options(1 << 20);
    small.limits.chunk_bytes_max = 100;
    small.data_bytes_max += 1;
    let storage = MemoryStorage::of(Vec::new());
    let mut other = Driver::new(open(&storage, &small).unwrap().0);
    other.settle();
    let number = other.service.read_snapshot(&stream).unwrap().number;
    let deadline = Instant::now() + common::PATIENCE;
    while other.service.stable() < number {
        other.poll();
        assert!(Instant::now() < deadline, "the snapshot does not become stable");
    }
    let (service, _) = open(&MemoryStorage::of(storage.image()), &small).unwrap();
    assert_eq!(service.mark(), Mark(1));
    assert_eq!(common::content(service.store()), common::content(one.service.store()));
    assert_eq!(other.service.store().data_bytes_max(), small.data_bytes_max, "its own");
}

#[test]
fn a_snapshot_with_sessions_is_refused() {
    let mut member = new(&options(1 << 20));
    let mut stream = snapshot(&member);
    stream.pop();
    stream.extend_from_slice(&[&[1, 3][..], &[1; 52], &[0]].concat());
    assert!(member.service.read_snapshot(&stream).is_err());
}

#[test]
fn a_trial_says_what_a_write_would_do_and_changes_nothing() {
    let mut member = new(&options(1 << 20));
    ["SET a 1", "RPUSH list x"]
        .iter()
        .zip(1..)
        .for_each(|(line, mark)| drop(write(&mut member, mark, None, line)));
    for (line, touched) in [
        ("SET a 2", "a"),
        ("INCR a", "a"),
        ("INCR new", "new"),
        ("APPEND list x", "list"),
        ("RPUSH list y", "list"),
        ("DEL a a", "a"),
        ("DEL none", "none"),
        ("GET a", "a"),
    ] {
        let before = (snapshot(&member), member.service.store().data_bytes());
        let (reply, value, is_refused) = trial(&mut member, line);
        assert_eq!((snapshot(&member), member.service.store().data_bytes()), before, "{line}");
        let mut twin = new(&options(1 << 20));
        twin.service.read_snapshot(&before.0).unwrap();
        let (applied, expected) = write(&mut twin, 3, None, line);
        assert_eq!((&reply, is_refused), (&expected, applied.is_refused), "{line}");
        let mut held = Vec::new();
        let has_value = twin.service.value(&key(touched), &mut held);
        assert_eq!(value, has_value.then_some(held), "{line}");
    }
    assert_eq!(trial(&mut member, "DEL a").1, None);
    let (reply, _, is_refused) = trial(&mut member, "MSET a 1 b 2");
    assert!(is_refused && text(&reply).contains("orders each key by itself"), "{}", text(&reply));
}

#[test]
fn a_trial_refuses_what_has_no_room() {
    let mut member = new(&options(1 << 20));
    let piece = "x".repeat(2_500);
    write(&mut member, 1, None, &format!("SET a {piece}"));
    let (reply, value, is_refused) = trial(&mut member, &format!("APPEND a {piece}"));
    assert!(is_refused && text(&reply).starts_with("-ERR a key with its value"), "{}", text(&reply));
    assert_eq!(value.map(|value| value.len()), Some(2_501), "it keeps what it holds");
    write(&mut member, 2, None, &format!("SET b {piece}"));
    let (reply, _, is_refused) = trial(&mut member, &format!("SET c {piece}"));
    assert!(is_refused && text(&reply).starts_with("-OOM"), "{}", text(&reply));
    assert!(
        text(&trial(&mut member, &format!("DEL {}", "k".repeat(1_000))).0).starts_with("-OOM"),
        "no tombstone"
    );
    assert_eq!(text(&trial(&mut member, "DEL a").0), ":1\r\n");
}

#[test]
fn the_newest_version_of_a_key_stays_in_whatever_order_news_come() {
    let storage = MemoryStorage::of(Vec::new());
    let mut member = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
    set_version(&mut member, "k", Some("new"), 5);
    set_version(&mut member, "k", Some("old"), 4);
    assert_eq!(query(&mut member, "GET k"), "$3\r\nnew\r\n");
    set_version(&mut member, "k", None, 7);
    set_version(&mut member, "k", Some("old"), 6);
    assert_eq!(query(&mut member, "GET k"), "$-1\r\n", "a deleted key does not come back");
    assert_eq!(member.service.version(&key("k")), Version { counter: 7, member: 2 });
    assert_eq!(member.service.version(&key("other")), Version::default());
    let before = state(&member);
    let name = key("k");
    let damaged = Installed { value: Some(&[9]), ..news(&name, None, 9) };
    assert!(member.service.install(&damaged).is_refused);
    assert_eq!(state(&member), before);
    member.settle();
    drop(member);
    let again = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
    assert_eq!(state(&again), before);
}

#[test]
fn what_a_request_touches_is_known_before() {
    let mut member = new(&options(1 << 20));
    let one = |name: &str| Touches::One(key(name));
    for (lines, touches, is_blind) in [
        (&["SET a 1"][..], one("a"), true),
        (&["INCR a"], one("a"), false),
        (&["SET a"], Touches::Nothing, false),
        (&["PING"], Touches::Nothing, false),
        (&["MSET a 1"], one("a"), false),
        (&["MSET a 1 b 2"], Touches::Several, false),
        (&["MGET a a"], one("a"), false),
        (&["DEL a b"], Touches::Several, false),
        (&["GET a", "SET a 1"], one("a"), false),
        (&["GET a", "SET b 1"], Touches::Several, false),
        (&["PING", "SET b 1"], one("b"), false),
    ] {
        let commands: Vec<Vec<&[u8]>> =
            lines.iter().map(|line| line.split(' ').map(str::as_bytes).collect()).collect();
        let commands: Vec<&[&[u8]]> = commands.iter().map(Vec::as_slice).collect();
        let mut payload = Vec::new();
        write_request(&mut payload, RequestFlags::NONE, &commands);
        assert_eq!(member.service.facts(&payload), Facts { touches, is_blind }, "{lines:?}");
    }
    for payload in [&describe_request().payload[..], b"", &[0xFF; 40]] {
        assert_eq!(member.service.facts(payload), Facts { touches: Touches::Nothing, is_blind: false });
    }
}

#[test]
fn a_description_is_no_write() {
    let mut member = new(&options(1 << 20));
    let mut reply = Vec::new();
    assert!(member.service.apply(&placed(1, None, &describe_request().payload), &mut reply).is_refused);
    reply.clear();
    assert!(!member.service.query(&describe_request().payload, &mut reply));
    assert!(text(&reply).contains("scotfree 1\n"));
}

#[test]
fn a_write_of_no_group_ends_the_membership() {
    let storage = MemoryStorage::of(Vec::new());
    let mut member = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
    member.start_session(1);
    write(&mut member, 1, None, "SET a 1");
    set_version(&mut member, "k", None, 3);
    assert_eq!(member.run(RequestKind::Read, 1, 1, "GET a"), "$1\r\n1\r\n");
    assert!(member.run(RequestKind::Update, 1, 1, "SET a").starts_with("-ERR"));
    assert_eq!(member.service.mark(), Mark(1), "a read does not, nor what is refused");
    assert_eq!(member.run(RequestKind::Update, 1, 2, "SET a 2"), "+OK\r\n");
    let left = |member: &Driver| {
        let service = &member.service;
        (service.mark(), service.progress()) == (Mark(0), 0)
            && service.version(&key("k")) == Version::default()
            && service.results().client_count() == 0
            && service.store().data_bytes() == 64 + 3 + 1
    };
    assert!(left(&member));
    member.settle();
    drop(member);
    assert!(left(&Driver::new(open(&storage, &options(1 << 20)).unwrap().0)));
}

#[test]
fn positions_go_forward_and_a_session_that_is_gone_is_none() {
    let storage = MemoryStorage::of(Vec::new());
    let mut member = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
    member.start_session(1);
    write(&mut member, 1, Some((SessionId(1), SeqNum(5))), "INCR n");
    write(&mut member, 2, Some((SessionId(1), SeqNum(5))), "INCR n");
    write(&mut member, 3, Some((SessionId(9), SeqNum(1))), "INCR n");
    let unmoved = Positions::from([(SessionId(1), SeqNum(0))]);
    assert_eq!(state(&member).1, unmoved, "what was applied may be lost by all");
    assert_eq!(member.service.take_place(SessionId(1), SeqNum(7)).number, 4);
    assert_eq!(member.service.take_place(SessionId(1), SeqNum(6)).number, 4, "already behind");
    assert_eq!(member.service.take_place(SessionId(9), SeqNum(1)).number, 4);
    let session = Some((SessionId(9), SeqNum(3)));
    member.service.install(&Installed { session, ..news(&key("k"), None, 1) });
    let before = state(&member);
    assert_eq!(before.1, Positions::from([(SessionId(1), SeqNum(7))]));
    member.settle();
    drop(member);
    assert_eq!(state(&Driver::new(open(&storage, &options(1 << 20)).unwrap().0)), before);
}

#[test]
fn an_early_update_that_is_refused_is_a_dead_letter_where_its_client_is() {
    let mut options = options(1 << 20);
    options.dead_letters.set_extension("member");
    let mut early = Vec::new();
    write_request(&mut early, RequestFlags::EARLY, &[&[&b"INCR"[..], b"l"]]);
    let mut letters = Vec::new();
    for session in [Some((SessionId(1), SeqNum(2))), None] {
        let mut member = new(&options);
        member.start_session(1);
        write(&mut member, 1, None, "RPUSH l x");
        assert!(member.service.apply(&placed(2, session, &early), &mut Vec::new()).is_refused);
        let mut text = scotfree_rpc::metrics::MetricsText::default();
        scotfree_rpc::Handler::write_metrics(&member.service, &mut text);
        letters.push(text.as_str().contains("\nscotfree_kv_late_errors_total 1\n"));
    }
    std::fs::remove_file(&options.dead_letters).unwrap();
    assert_eq!(letters, [true, false]);
}

#[test]
fn a_log_that_cannot_keep_up_has_no_room() {
    let mut narrow = options(1 << 20);
    narrow.limits.backlog_bytes_max = 200;
    let mut member = new(&narrow);
    member.settle();
    assert!(member.service.has_room());
    (1..=3).for_each(|mark| drop(write(&mut member, mark, None, "INCR n")));
    assert!(!member.service.has_room());
    member.settle();
    assert!(member.service.has_room());
}

#[test]
fn members_with_other_bounds_have_another_fingerprint() {
    let fingerprint = |change: fn(&mut KvOptions)| {
        let mut options = options(1 << 20);
        change(&mut options);
        new(&options).service.fingerprint()
    };
    let same = fingerprint(|_| {});
    assert_eq!(fingerprint(|options| options.index = IndexKind::BTree), same);
    for change in [
        |options: &mut KvOptions| options.data_bytes_max += 1,
        |options: &mut KvOptions| options.request_bytes_max += 1,
        |options: &mut KvOptions| options.results.per_client_max += 1,
    ] {
        assert_ne!(fingerprint(change), same);
    }
}

/// An operation of random histories.
#[derive(Debug, Clone)]
enum Random {
    Set(u8, u16),
    Incr(u8),
    Append(u8, u16),
    Del(u8),
}

fn randoms() -> impl Strategy<Value = Vec<Random>> {
    let one = prop_oneof![
        (0..4_u8, any::<u16>()).prop_map(|(key, value)| Random::Set(key, value)),
        (0..4_u8).prop_map(Random::Incr),
        (0..4_u8, 0..100_u16).prop_map(|(key, value)| Random::Append(key, value)),
        (0..4_u8).prop_map(Random::Del),
    ];
    proptest::collection::vec(one, 1..60)
}

/// What a plain map of numbers makes of it, and answers.
fn run_model(model: &mut BTreeMap<u8, String>, op: &Random) -> (String, String) {
    match op {
        Random::Set(key, value) => {
            model.insert(*key, value.to_string());
            (format!("SET {key} {value}"), "+OK\r\n".to_owned())
        }
        Random::Incr(key) => {
            let held = model.get(key).map_or(Some(0), |held| held.parse::<i64>().ok());
            // A number that begins with 0 is none for Redis.
            let held = held.filter(|held| model.get(key).is_none_or(|text| *text == held.to_string()));
            let answer = match held.and_then(|held| held.checked_add(1)) {
                Some(next) => {
                    model.insert(*key, next.to_string());
                    format!(":{next}\r\n")
                }
                None if held.is_some() => "-ERR increment or decrement would overflow\r\n".to_owned(),
                None => "-ERR value is not an integer or out of range\r\n".to_owned(),
            };
            (format!("INCR {key}"), answer)
        }
        Random::Append(key, value) => {
            let held = model.entry(*key).or_default();
            held.push_str(&value.to_string());
            (format!("APPEND {key} {value}"), format!(":{}\r\n", held.len()))
        }
        Random::Del(key) => {
            let count = usize::from(model.remove(key).is_some());
            (format!("DEL {key}"), format!(":{count}\r\n"))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_writes_do_what_a_plain_map_does(ops in randoms(), restart in 0..60_usize) {
        let storage = MemoryStorage::of(Vec::new());
        let mut member = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
        let mut model = BTreeMap::new();
        for (at, op) in ops.iter().enumerate() {
            if at == restart {
                member.settle();
                member = Driver::new(open(&storage, &options(1 << 20)).unwrap().0);
            }
            let (line, answer) = run_model(&mut model, op);
            let reply = write(&mut member, at as u64 + 1, None, &line).1;
            prop_assert_eq!(text(&reply), answer, "{}", line);
            let known = member.service.results().look(&identity(at as u64 + 1), 0);
            prop_assert_eq!(known, Known::Answered(&reply));
        }
        for (name, held) in &model {
            let answer = format!("${}\r\n{held}\r\n", held.len());
            prop_assert_eq!(query(&mut member, &format!("GET {name}")), answer);
        }
        prop_assert_eq!(member.service.store().len(), model.len());
        prop_assert_eq!(member.service.mark(), Mark(ops.len() as u64));
    }

    /// Each write tried at one of two members, and its news brought to both, to one of them late.
    #[test]
    fn news_in_any_order_make_members_alike(
        ops in proptest::collection::vec((0..3_u8, 0..4_u8, any::<bool>()), 1..40),
        late in any::<u64>(),
    ) {
        let mut one = new(&options(1 << 20));
        let mut other = new(&options(1 << 20));
        let mut delayed = Vec::new();
        for (at, (name, what, is_late)) in ops.iter().enumerate() {
            let name = name.to_string();
            let line = [format!("SET {name} {at}"), format!("RPUSH {name} {at}"), format!("DEL {name}"), format!("APPEND {name} {at}")];
            let (reply, value, is_refused) = trial(&mut one, &line[usize::from(*what)]);
            if is_refused {
                continue;
            }
            let version = Version { counter: one.service.version(&key(&name)).counter + 1, member: 1 };
            let news = (key(&name), version, value, at as u64 + 1, reply);
            bring(&mut one, &news);
            if *is_late { delayed.push(news) } else { bring(&mut other, &news) }
        }
        let turn = late as usize % delayed.len().max(1);
        delayed.rotate_left(turn);
        for news in &delayed {
            bring(&mut other, news);
        }
        prop_assert_eq!(common::content(one.service.store()), common::content(other.service.store()));
        prop_assert!(one.service.store().data_bytes() == other.service.store().data_bytes());
        for name in ["0", "1", "2"] {
            prop_assert_eq!(one.service.version(&key(name)), other.service.version(&key(name)));
        }
    }
}

type News = (Vec<u8>, Version, Option<Vec<u8>>, u64, Vec<u8>);

fn bring(member: &mut Driver, (key, version, value, number, reply): &News) {
    let installed =
        Installed { version: *version, reply, identity: identity(*number), ..news(key, value.as_deref(), 1) };
    assert!(!member.service.install(&installed).is_refused);
}

const LINES: &[&str] = &[
    "SET a 1",
    "RPUSH list x",
    "INCR a",
    "APPEND text hello",
    "RPUSH list y z",
    "GET a extra",
    "INCR list",
    "DEL text none",
    "MSET a 5 b 6",
    "GET a",
    "PING",
    "SET c",
    "NOSUCH x",
    "APPEND text again",
    "INCR n",
];

type Positions = BTreeMap<SessionId, SeqNum>;

fn new(options: &KvOptions) -> Driver {
    let storage: Arc<MemoryStorage> = MemoryStorage::of(Vec::new());
    Driver::new(open(&storage, options).unwrap().0)
}

fn payload(line: &str) -> Vec<u8> {
    command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

fn key(name: &str) -> Vec<u8> {
    [&[0, 0], name.as_bytes()].concat()
}

fn identity(number: u64) -> Identity {
    Identity { client: [7; 16], number }
}

fn placed(mark: u64, session: Option<(SessionId, SeqNum)>, op: &[u8]) -> Placed<'_> {
    Placed { mark: Mark(mark), identity: identity(mark), at_ms: mark, session, op }
}

fn write(
    member: &mut Driver,
    mark: u64,
    session: Option<(SessionId, SeqNum)>,
    line: &str,
) -> (Applied, Vec<u8>) {
    let mut reply = Vec::new();
    let applied = member.service.apply(&placed(mark, session, &payload(line)), &mut reply);
    (applied, reply)
}

fn query(member: &mut Driver, line: &str) -> String {
    let mut reply = Vec::new();
    member.service.query(&payload(line), &mut reply);
    text(&reply)
}

/// Reply, value, and whether it is refused.
fn trial(member: &mut Driver, line: &str) -> (Vec<u8>, Option<Vec<u8>>, bool) {
    let (mut reply, mut value) = (Vec::new(), Vec::new());
    let (has_value, is_refused) = member.service.try_write(&payload(line), &mut reply, &mut value);
    (reply, has_value.then_some(value), is_refused)
}

fn news<'a>(key: &'a [u8], value: Option<&'a [u8]>, counter: u64) -> Installed<'a> {
    let version = Version { counter, member: 2 };
    Installed {
        key,
        version,
        value,
        identity: identity(100 + counter),
        at_ms: counter,
        reply: b"done",
        session: None,
    }
}

fn set_version(member: &mut Driver, name: &str, text: Option<&str>, counter: u64) -> Applied {
    let value = text.map(|text| [&[0], text.as_bytes()].concat());
    member.service.install(&news(&key(name), value.as_deref(), counter))
}

fn snapshot(member: &Driver) -> Vec<u8> {
    let mut stream = Vec::new();
    member.service.write_snapshot(&mut stream);
    stream
}

/// All that a crash must leave together.
fn state(member: &Driver) -> (Vec<u8>, Positions) {
    let positions = member.service.sessions().values().map(|record| (record.session, record.position));
    (snapshot(member), positions.collect())
}

/// The reply that a response bears.
fn text(response: &[u8]) -> String {
    String::from_utf8_lossy(parse_response(response).unwrap().1).into_owned()
}
