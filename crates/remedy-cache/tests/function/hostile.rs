//! Bad input: whatever comes, nothing stale is answered, nothing is lost, and it is counted.

use crate::bench::{answered, command, key_hash, response, value, Bench, Outcome, FOR_EVER, LEASE, SERVER};
use remedy_cache::Limits;
use scotfree_core::{BootEpoch, Nanos, SeqNum};
use scotfree_session::by_hand::{address, client_address, header, packet, session_keys, NOW};
use scotfree_wire::{
    emit_fragments, fragments, Kind, ObjectNote, ResponseTail, Stamp, Tail, HEADER_BYTES, REQUEST_BYTES_MAX,
};

const SMALL: Limits = Limits {
    bytes_max: 64 << 20,
    entries_max: 1 << 18,
    key_bytes_max: 64,
    value_bytes_max: 16,
    under_way_max: 1 << 16,
    reads_max: 8,
    bucket_count: 1 << 8,
    admit_reads: 0,
    deadline_margin: Nanos::from_millis(1),
    orphan_wait: Nanos::from_secs(600),
    needs_word: false,
};

fn refused(bench: &Bench, reason: &str) -> u64 {
    bench.count_of("scotfree_cache_refused_total", &format!("reason=\"{reason}\""))
}

#[test]
fn a_value_that_is_too_large_is_passed_on_and_takes_the_place_of_none() {
    let mut bench = Bench::new(SMALL, |_| {});
    bench.fill((1, 1), "k", "small");
    assert_eq!(bench.get((1, 2), "k"), answered("small"));
    let large = "a-value-of-more-bytes-than-may-be-kept";
    bench.set((2, 1), &format!("SET k {large}"));
    bench.durable(2, 1);
    bench.stable(2, 1);
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn, "what was there before is gone");
    bench.reply((1, 3), &value(large), FOR_EVER);
    assert_eq!(bench.get((1, 4), "k"), Outcome::PassedOn);
    assert_eq!((refused(&bench, "size"), bench.cache().len()), (1, 0));
}

/// A GET in as many packets as it needs; what the last of them came to.
fn get_in_parts(bench: &mut Bench, seq: u64, key: &str) -> Option<Outcome> {
    let mut header = header(Kind::Read, 1, seq);
    (header.completed, header.key_hash) = (SeqNum(seq - 1), key_hash(key));
    let (client, mut parts) = (session_keys(1).client_to_server, Vec::new());
    let payload = command(&format!("GET {key}"));
    let stamp = Tail::Stamp(Stamp::default());
    emit_fragments(&header, &stamp, &payload, &client, |part| parts.push(part.to_vec()))
        .expect("it is not too large");
    parts.iter().map(|part| bench.receive(1, address(SERVER), part)).last().flatten()
}

#[test]
fn a_key_of_many_packets_is_passed_on_and_not_kept() {
    let mut bench = Bench::eager();
    let key = "k".repeat(40_000);
    assert_eq!(get_in_parts(&mut bench, 1, &key), Some(Outcome::PassedOn));
    bench.reply((1, 1), &value("v"), FOR_EVER);
    assert_eq!(get_in_parts(&mut bench, 2, &key), Some(Outcome::PassedOn));
    assert_eq!((refused(&bench, "size"), bench.cache().len()), (2, 0));
    bench.fill((1, 3), "k", "v");
    assert_eq!(bench.get((1, 4), "k"), answered("v"), "and others are kept as before");
}

#[test]
fn a_key_of_64_kib_is_no_request() {
    let payload = command(&format!("GET {}", "k".repeat(64 << 10)));
    assert!(payload.len() > REQUEST_BYTES_MAX && fragments(&header(Kind::Read, 1, 1), &payload).is_err());
    // Whoever sends its parts all the same gets nowhere, and nobody else is held up.
    let mut bench = Bench::eager();
    let (client, part_bytes) = (session_keys(1).client_to_server, Kind::Read.payload_bytes_max());
    let fragment_count = payload.len().div_ceil(part_bytes) as u16;
    for (fragment_index, part) in (0..).zip(payload.chunks(part_bytes)) {
        let mut header = header(Kind::Read, 1, 1);
        (header.fragment_index, header.fragment_count) = (fragment_index, fragment_count);
        header.key_hash = key_hash("k");
        let bytes = packet(&header, &Tail::Stamp(Stamp::default()), part, &client);
        bench.receive(1, address(SERVER), &bytes);
    }
    assert_eq!(bench.cache().len(), 0);
    bench.fill((2, 1), "k", "v");
    assert_eq!(bench.get((2, 2), "k"), answered("v"));
}

#[test]
fn a_response_without_or_with_a_damaged_mac_fills_nothing() {
    let good = response((1, 1), &value("v"), FOR_EVER);
    let mut bench = Bench::eager();
    assert_eq!(bench.get((1, 1), "k"), Outcome::PassedOn);
    let keyless = {
        let tail = Tail::Response(ResponseTail::default());
        packet(&header(Kind::Response, 1, 1), &tail, &value("v"), &scotfree_wire::Key::from_bytes([0; 16]))
    };
    bench.receive(SERVER, client_address(), &keyless);
    bench.receive(SERVER, client_address(), &good[..HEADER_BYTES - 1]);
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 1 << (at % 8);
        bench.receive(SERVER, client_address(), &damaged);
    }
    assert!(bench.cache().is_empty(), "nothing of that is what the server said");
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn);
    bench.reply((1, 2), &value("v"), FOR_EVER);
    assert_eq!(bench.get((1, 3), "k"), answered("v"), "and what it says afterwards counts");
}

#[test]
fn a_response_fills_the_key_of_its_own_request_alone() {
    let mut bench = Bench::eager();
    assert_eq!(bench.get((1, 1), "a"), Outcome::PassedOn);
    assert_eq!(bench.get((2, 1), "b"), Outcome::PassedOn);
    bench.reply((2, 1), &value("of b"), FOR_EVER);
    assert_eq!(bench.get((1, 2), "b"), answered("of b"));
    // What the server has said to one session is nothing that another waits for, in the same place though it be.
    let tail = Tail::Response(ResponseTail::default());
    let mut crossed = header(Kind::Response, 1, 1);
    crossed.key_hash = key_hash("a");
    let crossed = packet(&crossed, &tail, &value("of b"), &session_keys(2).server_to_client);
    bench.receive(SERVER, client_address(), &crossed);
    assert_eq!(bench.get((1, 3), "b"), Outcome::PassedOn, "who cannot be believed may hide a write");
    assert_eq!(bench.get((1, 4), "a"), Outcome::PassedOn);
    bench.reply((1, 4), &value("of a"), FOR_EVER);
    assert_eq!(bench.get((1, 5), "a"), answered("of a"));
}

#[test]
fn a_response_that_is_seen_again_fills_nothing_again() {
    let mut bench = Bench::eager();
    let old = response((1, 1), &value("old"), FOR_EVER);
    assert_eq!(bench.get((1, 1), "k"), Outcome::PassedOn);
    bench.receive(SERVER, client_address(), &old);
    bench.receive(SERVER, client_address(), &old);
    assert_eq!(bench.get((1, 2), "k"), answered("old"));
    assert_eq!(bench.count_of("scotfree_cache_fills_total", ""), 1);
    bench.bypass((2, 1), "SET k new");
    bench.receive(SERVER, client_address(), &old);
    bench.reply((2, 1), b"\x01\x00+OK\r\n", None);
    bench.receive(SERVER, client_address(), &old);
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn);
    // Not in the place of the response that is waited for, either.
    bench.receive(SERVER, client_address(), &old);
    assert_eq!(bench.get((1, 4), "k"), Outcome::PassedOn);
    bench.reply((1, 3), &value("new"), FOR_EVER);
    assert_eq!(bench.get((1, 5), "k"), answered("new"));
    bench.receive(SERVER, client_address(), &old);
    assert_eq!(bench.get((1, 6), "k"), answered("new"));
}

#[test]
fn a_device_that_starts_again_with_a_full_cache_knows_nothing() {
    let limits = Limits { bytes_max: 4_000, ..SMALL };
    let mut before = Bench::new(limits, |_| {});
    for seq in 1..=40 {
        before.fill((1, seq), &format!("key-{seq}"), "v");
        before.stable(1, seq);
    }
    assert!(before.count_of("scotfree_cache_evicted_total", "") > 0, "it is full");
    assert_eq!(before.get((1, 41), "key-1"), Outcome::PassedOn);
    let mut after = Bench::new(limits, |config| config.boot_epoch = BootEpoch(2));
    assert!(after.cache().is_empty());
    // The answer to what its predecessor passed on is none to anything that it knows.
    after.reply((1, 41), &value("old"), FOR_EVER);
    assert!(after.cache().is_empty());
    assert_eq!(after.get((2, 1), "key-40"), Outcome::PassedOn);
    after.reply((2, 1), &value("new"), FOR_EVER);
    assert_eq!(after.get((2, 2), "key-40"), answered("new"));
}

#[test]
fn a_clock_that_is_set_forward_and_back_brings_nothing_back() {
    let mut bench = Bench::eager();
    bench.fill((1, 1), "for_ever", "v");
    assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn);
    bench.reply((1, 2), &value("v"), Some(ObjectNote { value_bytes: 1, remaining_ms: 10 }));
    assert_eq!(bench.get((1, 3), "k"), answered("v"));
    bench.now = NOW.plus(Nanos::from_secs(1));
    assert_eq!(bench.get((1, 4), "k"), Outcome::PassedOn, "it has lived out");
    bench.now = NOW;
    assert_eq!(bench.get((1, 5), "k"), Outcome::PassedOn, "and does not live again");
    assert_eq!(bench.count_of("scotfree_cache_misses_total", "reason=\"expired\""), 1);
    assert_eq!(bench.get((1, 6), "for_ever"), answered("v"));
    bench.fill((1, 7), "w", "v");
    bench.now = NOW.plus(LEASE);
    assert_eq!(bench.get((1, 8), "w"), Outcome::PassedOn, "there is no lease");
    bench.now = NOW;
    assert_eq!(bench.get((1, 9), "w"), Outcome::PassedOn, "what is known has not survived that");
}

#[test]
fn with_every_key_another_it_keeps_within_its_bound_and_counts_what_goes() {
    let limits = Limits { bytes_max: 10_000, ..SMALL };
    let mut bench = Bench::new(limits, |_| {});
    let mut hits = 0;
    for number in 0..5_000_u64 {
        let (text, seq) = (format!("v{number}"), 3 * number);
        bench.fill((1, seq + 1), &format!("key-{number}"), &text);
        assert!(bench.cache().bytes() <= 10_000, "{}", bench.cache().bytes());
        assert_eq!(bench.get((1, seq + 2), &format!("key-{number}")), answered(&text));
        // Some that are still there, most that are not.
        let old = number.saturating_sub(number % 100);
        match bench.get((1, seq + 3), &format!("key-{old}")) {
            Outcome::PassedOn => bench.reply((1, seq + 3), &value(&format!("v{old}")), FOR_EVER),
            hit @ Outcome::Answered(_) => {
                assert_eq!(hit, answered(&format!("v{old}")));
                hits += 1;
            }
        }
    }
    let count = |name| bench.count_of(name, "");
    assert!(hits > 500, "{hits}");
    assert_eq!(count("scotfree_cache_hits_total"), 5_000 + hits);
    assert_eq!(count("scotfree_cache_fills_total"), 10_000 - hits);
    assert_eq!(count("scotfree_cache_evicted_total") + bench.cache().len() as u64, 10_000 - hits);
}

#[test]
fn reads_that_are_never_answered_take_no_more_than_their_room() {
    let mut bench = Bench::new(SMALL, |_| {});
    for seq in 1..=12 {
        assert_eq!(bench.get((1, seq), &format!("key-{seq}")), Outcome::PassedOn);
    }
    assert_eq!(refused(&bench, "many_reads"), 4);
    bench.reply((1, 12), &value("v"), FOR_EVER);
    assert_eq!(bench.get((1, 13), "key-12"), Outcome::PassedOn);
    bench.reply((1, 8), &value("v"), FOR_EVER);
    assert_eq!(bench.get((1, 14), "key-8"), answered("v"));
}
