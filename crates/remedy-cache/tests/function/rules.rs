//! What is answered, what is passed on, and what makes the device forget.

use crate::bench::{answered, command, key_hash, value, Bench, Outcome, FOR_EVER, LEASE, SERVER};
use remedy_cache::Limits;
use scotfree_core::{DeviceId, Nanos, SeqNum, ServerIndex};
use scotfree_device::{Served, SessionName};
use scotfree_session::by_hand::{
    accept, address, client_address, cluster, device_address, header, packet, session_keys, NOW,
};
use scotfree_wire::{
    emit_extended, Direction, Extensions, Flags, HeartbeatTail, Kind, ObjectNote, ResponseTail, Stamp,
    StampKind, Tail,
};

#[test]
fn a_read_is_answered_with_what_the_server_has_answered_before_if_it_vouches_for_it() {
    let mut bench = Bench::eager();
    assert_eq!(bench.get((1, 1), "k"), Outcome::PassedOn);
    bench.reply((1, 1), &value("v"), None);
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn, "nobody vouches for it");
    bench.reply((1, 2), &value("v"), FOR_EVER);
    assert_eq!(bench.get((2, 1), "k"), answered("v"));
    assert_eq!(bench.get((2, 2), "other"), Outcome::PassedOn);
    let expected = [
        ("scotfree_cache_hits_total", "", 1),
        ("scotfree_cache_fills_total", "", 1),
        ("scotfree_cache_misses_total", "reason=\"absent\"", 3),
        ("scotfree_cache_refused_total", "reason=\"not_kept\"", 1),
    ];
    assert_eq!(bench.counted(), expected);
}

#[test]
fn a_set_is_answered_once_it_is_durable_and_until_another_write_passes() {
    let mut bench = Bench::eager();
    bench.set((1, 1), "SET k new");
    assert_eq!(bench.get((2, 1), "k"), Outcome::PassedOn, "it can still be lost");
    bench.durable(1, 1);
    assert_eq!(bench.get((2, 2), "k"), answered("new"));
    bench.set((1, 2), "SET k newer");
    bench.durable(1, 2);
    assert_eq!(bench.get((2, 3), "k"), answered("newer"));
    bench.stable(1, 1);
    assert_eq!(bench.get((2, 4), "k"), answered("newer"), "what is stable of others changes nothing");
    bench.set((1, 3), "APPEND k x");
    bench.durable(1, 3);
    bench.stable(1, 2);
    assert_eq!(bench.get((2, 5), "k"), Outcome::PassedOn);
    bench.reply((2, 1), &value("new"), FOR_EVER);
    assert_eq!(bench.get((2, 6), "k"), Outcome::PassedOn, "the read before it has not seen it");
    bench.reply((2, 5), &value("newerx"), FOR_EVER);
    assert_eq!(bench.get((2, 7), "k"), answered("newerx"));
}

#[test]
fn a_set_behind_a_write_of_its_session_that_may_be_lost_is_not_answered() {
    let mut bench = Bench::eager();
    bench.bypass((1, 1), "SETEX other 5 v");
    bench.set((1, 2), "SET k new");
    bench.durable(1, 2);
    assert_eq!(bench.get((2, 1), "k"), Outcome::PassedOn, "with the first it would be given up");
    bench.reply((1, 1), b"\x01\x00+OK\r\n", None);
    bench.set((1, 3), "SET k newer");
    bench.durable(1, 3);
    assert_eq!(bench.get((2, 2), "k"), Outcome::PassedOn, "a reply is no stability");
    bench.stable(1, 1);
    assert_eq!(bench.get((2, 3), "k"), answered("newer"));
    bench.set((1, 4), "SET other slow");
    bench.set((1, 5), "SET k newest");
    bench.durable(1, 5);
    assert_eq!(bench.get((2, 4), "k"), Outcome::PassedOn, "its elder is not durable");
    bench.durable(1, 4);
    assert_eq!(bench.get((2, 5), "k"), answered("newest"));
}

#[test]
fn a_covered_set_and_one_with_a_life_are_not_answered() {
    let mut bench = Bench::eager();
    bench.request(Kind::Update, (1, 1), Flags::NONE, "SET k covered");
    bench.durable(1, 1);
    assert_eq!(bench.get((2, 1), "k"), Outcome::PassedOn, "it may be refused, and its caller told so");
    bench.set((1, 2), "SET k v PXAT 99");
    bench.durable(1, 2);
    assert_eq!(bench.get((2, 2), "k"), Outcome::PassedOn);
}

#[test]
fn a_set_that_the_store_has_refused_after_all_is_not_answered() {
    let mut bench = Bench::eager();
    bench.set((1, 1), "SET k v");
    bench.durable(1, 1);
    assert_eq!(bench.get((2, 1), "k"), answered("v"));
    let mut refused = header(Kind::Response, 1, 1);
    refused.flags = Flags::FAILED;
    let tail = Tail::Response(ResponseTail::default());
    let bytes = packet(&refused, &tail, b"\x01\x00-OOM\r\n", &session_keys(1).server_to_client);
    bench.receive(SERVER, client_address(), &bytes);
    assert_eq!(bench.get((2, 2), "k"), Outcome::PassedOn);
}

#[test]
fn beside_a_write_that_is_not_logged_nothing_is_answered_until_it_has_been() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "k", "old");
    bench.fill((1, 2), "other", "kept");
    bench.bypass((2, 1), "SETEX k 5 new");
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn);
    assert_eq!(bench.get((1, 4), "other"), answered("kept"));
    bench.reply((2, 1), b"\x01\x00+OK\r\n", None);
    bench.reply((1, 3), &value("old"), FOR_EVER);
    assert_eq!(bench.get((1, 5), "k"), Outcome::PassedOn, "that read passed before the write was answered");
    bench.reply((1, 5), &value("new"), FOR_EVER);
    assert_eq!(bench.get((1, 6), "k"), answered("new"));
    bench.bypass((2, 2), "MSET k 1 other 2");
    assert_eq!(bench.get((1, 7), "other"), Outcome::PassedOn, "nobody has said which keys it touches");
    bench.stable(2, 2);
    bench.fill((1, 8), "other", "2");
    assert_eq!(bench.get((1, 9), "other"), answered("2"));
}

#[test]
fn what_the_extension_names_is_touched_and_nothing_else() {
    let mut bench = Bench::eager();
    for (seq, key) in [(1, "a"), (2, "b"), (3, "c")] {
        bench.fill((1, seq), key, "old");
    }
    let mut header = header(Kind::Bypass, 2, 1);
    header.key_hash = key_hash("a");
    let (key, further) = (session_keys(2).client_to_server, [key_hash("b")]);
    let extensions = Extensions { further_keys: &further, ..Extensions::NONE };
    let mut bytes = Vec::new();
    emit_extended(
        &header,
        &Tail::Stamp(Stamp::default()),
        &extensions,
        &command("MSET a 1 b 2"),
        &key,
        &mut bytes,
    );
    bench.receive(1, address(SERVER), &bytes);
    assert_eq!(bench.get((1, 4), "a"), Outcome::PassedOn);
    assert_eq!(bench.get((1, 5), "b"), Outcome::PassedOn);
    assert_eq!(bench.get((1, 6), "c"), answered("old"));
}

#[test]
fn a_relaxed_read_is_answered_and_fills_nothing() {
    let mut bench = Bench::eager();
    assert_eq!(bench.request(Kind::Read, (1, 1), Flags::RELAXED, "GET k"), Some(Outcome::PassedOn));
    bench.reply((1, 1), &value("old"), FOR_EVER);
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn, "it was executed anywhere");
    bench.reply((1, 2), &value("v"), FOR_EVER);
    assert_eq!(bench.request(Kind::Read, (1, 3), Flags::RELAXED, "GET k"), Some(answered("v")));
}

#[test]
fn what_has_a_life_is_answered_until_it_ends() {
    let mut bench = Bench::eager();
    assert_eq!(bench.get((1, 1), "k"), Outcome::PassedOn);
    bench.now = NOW.plus(Nanos::from_millis(4));
    bench.reply((1, 1), &value("v"), Some(ObjectNote { value_bytes: 1, remaining_ms: 10 }));
    bench.now = NOW.plus(Nanos::from_millis(8));
    assert_eq!(bench.get((1, 2), "k"), answered("v"));
    bench.now = NOW.plus(Nanos::from_millis(9));
    assert_eq!(
        bench.get((1, 3), "k"),
        Outcome::PassedOn,
        "counted from the passing of the read, less a margin"
    );
}

#[test]
fn what_has_a_life_is_not_answered_before_every_logged_write_is_executed() {
    let mut bench = Bench::eager();
    let lives = Some(ObjectNote { value_bytes: 1, remaining_ms: 10_000 });
    assert_eq!(bench.get((1, 1), "k"), Outcome::PassedOn);
    bench.reply((1, 1), &value("v"), lives);
    bench.fill((1, 2), "for_ever", "w");
    bench.set((2, 1), "SET other x");
    bench.set((2, 2), "SET other y");
    let is_answered = |bench: &mut Bench, seq| bench.get((1, seq), "k") == answered("v");
    assert!(!is_answered(&mut bench, 3), "the server may let it go first");
    assert_eq!(bench.get((1, 4), "for_ever"), answered("w"));
    bench.reply((2, 1), b"\x01\x00+OK\r\n", None);
    assert!(!is_answered(&mut bench, 5), "there is a newer one");
    bench.reply((2, 2), b"\x01\x00+OK\r\n", None);
    assert!(is_answered(&mut bench, 6));
    bench.set((2, 3), "SET other z");
    assert!(!is_answered(&mut bench, 7));
    bench.stable(2, 3);
    assert!(is_answered(&mut bench, 8));
    bench.set((2, 4), "SET other a");
    assert_eq!(bench.get((1, 9), "b"), Outcome::PassedOn);
    bench.reply((1, 9), &value("b"), FOR_EVER);
    assert!(is_answered(&mut bench, 10), "a read behind it was answered");
    assert_eq!(bench.count_of("scotfree_cache_misses_total", "reason=\"unexecuted\""), 3);
}

#[test]
fn a_lapse_of_the_lease_is_seen_even_if_nothing_passed_meanwhile() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "k", "v");
    assert_eq!(bench.get((1, 2), "k"), answered("v"));
    bench.now = NOW.plus(LEASE);
    bench.lease(SERVER, LEASE);
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn);
    bench.reply((1, 3), &value("w"), FOR_EVER);
    bench.now = bench.now.plus(Nanos(LEASE.0 - 1));
    bench.lease(SERVER, LEASE);
    bench.now = bench.now.plus(Nanos(2));
    assert_eq!(bench.get((1, 4), "k"), answered("w"), "it was renewed in time");
    bench.now = bench.now.plus(LEASE);
    assert_eq!(bench.get((1, 5), "k"), Outcome::PassedOn, "there is none");
}

#[test]
fn in_another_epoch_of_the_server_nothing_is_known() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "k", "v");
    bench.serve_anew();
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn);
}

#[test]
fn what_came_around_the_device_is_a_write_until_it_is_stable() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "k", "v");
    let mut drain = header(Kind::Drain, 2, 1);
    drain.set_run_last(SeqNum(1));
    drain.set_run_last_write(SeqNum(1));
    drain.flags = Flags::WRITES;
    let key = cluster().control(Direction::ServerToDevice);
    bench.receive(SERVER, device_address(), &packet(&drain, &Tail::Stamp(Stamp::default()), &[], &key));
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn);
    bench.reply((1, 2), &value("v"), FOR_EVER);
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn, "it may not have been executed");
    let stable = Tail::Heartbeat(HeartbeatTail { stable: SeqNum(1), ..HeartbeatTail::default() });
    let key = session_keys(2).server_to_client;
    bench.receive(SERVER, client_address(), &packet(&header(Kind::Heartbeat, 2, 0), &stable, &[], &key));
    bench.fill((1, 4), "k", "w");
    assert_eq!(bench.get((1, 5), "k"), answered("w"));
}

#[test]
fn a_reply_to_what_was_never_seen_tells_of_a_write() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "k", "v");
    bench.reply((1, 1), &value("v"), FOR_EVER);
    assert_eq!(bench.get((1, 2), "k"), answered("v"), "a reply that comes twice tells nothing");
    bench.reply((2, 5), b"\x01\x00+OK\r\n", None);
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn);
}

#[test]
fn nobody_without_the_key_ends_a_write_or_fills() {
    let mut bench = Bench::eager();
    let forged = |seq: u64, payload: &[u8]| {
        let (header, tail) = (header(Kind::Response, 1, seq), Tail::Response(ResponseTail::default()));
        let (mut bytes, object) = (Vec::new(), FOR_EVER);
        let key = session_keys(7).server_to_client;
        emit_extended(&header, &tail, &Extensions { object, ..Extensions::NONE }, payload, &key, &mut bytes);
        bytes
    };
    assert_eq!(bench.get((1, 1), "k"), Outcome::PassedOn);
    bench.receive(SERVER, client_address(), &forged(1, &value("forged")));
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn);
    bench.bypass((1, 3), "SETEX k 5 new");
    bench.receive(SERVER, client_address(), &forged(3, b"\x01\x00+OK\r\n"));
    assert_eq!(bench.cache().under_way_count(), 1);
}

#[test]
fn servers_share_nothing() {
    let limits = Limits { admit_reads: 0, ..Limits::default() };
    let mut bench = Bench::new(limits, |config| config.servers.push(Served::new(address(3))));
    bench.fill((1, 1), "k", "v");
    bench.lease(3, LEASE);
    bench.receive(3, client_address(), &accept(1, 16));
    let mut read = header(Kind::Read, 1, 1);
    read.key_hash = key_hash("k");
    let key = session_keys(1).client_to_server;
    let read = packet(&read, &Tail::Stamp(Stamp::default()), &command("GET k"), &key);
    assert_eq!(bench.receive(1, address(3), &read), Some(Outcome::PassedOn));
    assert_eq!(bench.get((1, 2), "k"), answered("v"));
    let name = SessionName { server: ServerIndex(1), id: scotfree_core::SessionId(1) };
    assert!(bench.device.base().sessions().find(name).is_some());
}

#[test]
fn nothing_is_answered_before_the_server_has_vouched_for_a_reply_nor_after_it_started_again() {
    let mut bench = Bench::new(Limits { admit_reads: 0, ..Limits::default() }, |_| {});
    bench.set((1, 1), "SET k v");
    bench.durable(1, 1);
    assert_eq!(bench.get((2, 1), "k"), Outcome::PassedOn, "others may write past the device");
    bench.reply((2, 1), &value("v"), None);
    assert_eq!(bench.get((2, 2), "k"), Outcome::PassedOn);
    bench.reply((2, 2), &value("v"), FOR_EVER);
    assert_eq!(bench.get((2, 3), "k"), answered("v"));
    bench.set((1, 2), "SET other w");
    bench.durable(1, 2);
    assert_eq!(bench.get((2, 4), "other"), answered("w"));
    bench.serve_anew();
    bench.set((1, 3), "SET k x");
    bench.durable(1, 3);
    assert_eq!(bench.get((2, 5), "k"), Outcome::PassedOn);
}

/// A GET of a connection whose client has the answers to everything up to `completed`.
fn get_behind(bench: &mut Bench, seq: u64, completed: u64, connection: u8, key: &str) -> Outcome {
    let mut header = header(Kind::Read, 2, seq);
    (header.completed, header.key_hash) = (SeqNum(completed), key_hash(key));
    let mut payload = command(&format!("GET {key}"));
    payload[6] = connection;
    let bytes = packet(&header, &Tail::Stamp(Stamp::default()), &payload, &session_keys(2).client_to_server);
    bench.receive(1, address(SERVER), &bytes).expect("a read goes somewhere")
}

#[test]
fn who_waits_for_what_it_asked_before_is_answered_by_the_server() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "k", "v");
    assert_eq!(get_behind(&mut bench, 1, 0, 1, "missing"), Outcome::PassedOn);
    assert_eq!(get_behind(&mut bench, 2, 0, 1, "k"), Outcome::PassedOn, "it could show what is older");
    assert_eq!(get_behind(&mut bench, 3, 0, 2, "k"), answered("v"), "another connection waits for nothing");
    assert_eq!(get_behind(&mut bench, 4, 2, 1, "k"), answered("v"));
    assert_eq!(get_behind(&mut bench, 5, 2, 1, "k"), Outcome::PassedOn);
}

#[test]
fn a_read_that_is_sent_again_fills_nothing() {
    let mut bench = Bench::eager();
    assert_eq!(bench.request(Kind::Read, (1, 1), Flags::AGAIN, "GET k"), Some(Outcome::PassedOn));
    bench.reply((1, 1), &value("old"), FOR_EVER);
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn, "it may have been executed when it was sent first");
}

#[test]
fn a_set_that_is_sent_again_is_not_answered_before_a_read_has_seen_it() {
    let mut bench = Bench::eager();
    let again = Flags::EARLY.with(Flags::AGAIN);
    assert_eq!(bench.request(Kind::Update, (1, 1), again, "SET k old"), Some(Outcome::PassedOn));
    bench.durable(1, 1);
    bench.stable(1, 1);
    assert_eq!(
        bench.get((2, 1), "k"),
        Outcome::PassedOn,
        "it may have been executed when it was sent first, before another that passed before this device began"
    );
    bench.reply((2, 1), &value("new"), FOR_EVER);
    assert_eq!(bench.get((2, 2), "k"), answered("new"));
}

/// What a device says that has logged an update; `key` is that under which it says so.
fn persist_ack(device: u16, key: &scotfree_wire::Key) -> Vec<u8> {
    let stamp = Stamp { kind: StampKind::Order, device: DeviceId(device), ..Stamp::default() };
    packet(&header(Kind::PersistAck, 1, 1), &Tail::Stamp(stamp), &[], key)
}

#[test]
fn behind_it_no_other_device_may_acknowledge() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "k", "v");
    let (theirs, forged) = (session_keys(1).device_to_client, session_keys(7).device_to_client);
    for harmless in [persist_ack(8, &forged), persist_ack(9, &theirs)] {
        bench.receive(SERVER, client_address(), &harmless);
    }
    assert_eq!(bench.get((1, 2), "k"), answered("v"));
    bench.receive(SERVER, client_address(), &persist_ack(8, &theirs));
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn);
    let mut words = Vec::new();
    bench.device.check(&mut |word| words.push(format!("{word:?}")));
    assert!(words.len() == 1 && words[0].contains("device 8 stands on the path as well"), "{words:?}");
}

#[test]
fn with_more_writes_under_way_than_it_can_remember_it_is_off_and_says_so() {
    let mut bench = Bench::new(Limits { admit_reads: 0, under_way_max: 2, ..Limits::default() }, |_| {});
    bench.fill((2, 1), "k", "v");
    (1..=2).for_each(|seq| bench.bypass((1, seq), "SETEX a 5 v"));
    assert_eq!(bench.get((2, 2), "k"), answered("v"));
    bench.bypass((1, 3), "SETEX a 5 v");
    bench.stable(1, 3);
    assert_eq!(bench.get((2, 3), "k"), Outcome::PassedOn);
    let mut words = Vec::new();
    (0..2).for_each(|_| bench.device.check(&mut |word| words.push(format!("{word:?}"))));
    assert!(words.len() == 1 && words[0].contains("the cache is off"), "{words:?}");
}
