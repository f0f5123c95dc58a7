//! What each rule says, and what happens at each limit.

use super::*;
use scotfree_core::{BootEpoch, OrderNumber, ServerIndex, SessionId};

const NOW: Nanos = Nanos::from_secs(1);

fn name(session: u64, seq: u64) -> RequestName {
    (SessionName { server: ServerIndex(0), id: SessionId(session) }, SeqNum(seq))
}

fn order(number: u64) -> OrderKey {
    (BootEpoch(1), OrderNumber(number))
}

fn eager(change: impl FnOnce(&mut Limits)) -> Cache {
    let mut limits = Limits { admit_reads: 0, bucket_count: 4, needs_word: false, ..Limits::default() };
    change(&mut limits);
    Cache::new(limits, Planted::NONE)
}

fn read(of: RequestName, key: &[u8], barrier: u64) -> Read<'_> {
    let key_hash = KeyHash(u64::from(key[0]));
    Read { name: of, key_hash, key, barrier: Some(order(barrier)), answerable: true, has_elders: false }
}

fn kept(value: &[u8]) -> Reply<'_> {
    Reply::Kept(Kept { value, lives: Nanos::MAX })
}

fn fill(cache: &mut Cache, of: RequestName, key: &[u8], value: &[u8], barrier: u64) -> ReplyTo {
    cache.on_read_passed(NOW, &read(of, key, barrier), SeqNum(0));
    cache.on_reply(NOW, of, &kept(value))
}

fn value_of(cache: &mut Cache, key: &[u8]) -> Option<Vec<u8>> {
    match cache.on_read(NOW, &read(name(99, 1), key, 0)) {
        Look::Hit(slot) => Some(cache.value(slot).to_vec()),
        Look::Unsure(_) | Look::Miss(_) => None,
    }
}

fn set(cache: &mut Cache, of: RequestName, number: u64, key: &[u8], value: &[u8]) {
    let scope = Scope::Keys(KeyHash(u64::from(key[0])), &[]);
    cache.on_logged(&Logged { name: of, order: order(number), scope, overwrite: Some((key, value)) });
}

#[test]
fn two_keys_of_one_hash_are_two_keys() {
    let mut cache = eager(|_| {});
    assert_eq!(fill(&mut cache, name(1, 1), b"a", b"1", 0), ReplyTo::Read(Ok(())));
    assert_eq!(fill(&mut cache, name(1, 2), b"ab", b"2", 0), ReplyTo::Read(Ok(())));
    assert_eq!(
        (value_of(&mut cache, b"a"), value_of(&mut cache, b"ab")),
        (Some(b"1".to_vec()), Some(b"2".to_vec()))
    );
    set(&mut cache, name(1, 3), 1, b"a", b"3");
    assert_eq!(value_of(&mut cache, b"ab"), None, "which of them was written the hash does not say");
}

#[test]
fn a_neighbour_in_the_bucket_costs_a_fill_and_no_answer() {
    let mut cache = eager(|_| {});
    fill(&mut cache, name(1, 1), &[1], b"1", 0);
    cache.on_read_passed(NOW, &read(name(1, 2), &[1], 0), SeqNum(0));
    set(&mut cache, name(2, 1), 1, &[5], b"5");
    assert_eq!(value_of(&mut cache, &[1]), Some(b"1".to_vec()));
    assert_eq!(cache.on_reply(NOW, name(1, 2), &kept(b"1")), ReplyTo::Read(Err(Refused::Version)));
    assert_eq!(fill(&mut cache, name(1, 3), &[1], b"1", 1), ReplyTo::Read(Ok(())));
}

/// The published T6 in its own words: three updates, the first acknowledged.
#[test]
fn with_three_updates_under_way_the_first_acknowledgement_lets_nothing_in() {
    let mut cache = eager(|_| {});
    let increment = |number| Logged {
        name: name(1, number),
        order: order(number),
        scope: Scope::Keys(KeyHash(1), &[]),
        overwrite: None,
    };
    (1..=2).for_each(|number| cache.on_logged(&increment(number)));
    cache.on_read_passed(NOW, &read(name(2, 1), &[1], 2), SeqNum(0));
    cache.on_logged(&increment(3));
    cache.on_stable(name(1, 1).0, SeqNum(1));
    assert_eq!(cache.on_reply(NOW, name(2, 1), &kept(b"2")), ReplyTo::Read(Err(Refused::Version)));
    cache.on_stable(name(1, 1).0, SeqNum(3));
    assert_eq!(value_of(&mut cache, &[1]), None);
}

#[test]
fn writes_that_come_out_of_order_leave_the_newest() {
    let mut cache = eager(|_| {});
    set(&mut cache, name(2, 1), 2, &[1], b"new");
    set(&mut cache, name(1, 1), 1, &[1], b"old");
    cache.on_durable(name(2, 1));
    cache.on_durable(name(1, 1));
    assert_eq!(value_of(&mut cache, &[1]), Some(b"new".to_vec()));
    // It passes again, under its place and then, behind a head that has forgotten it, under a later one.
    set(&mut cache, name(1, 1), 1, &[1], b"old");
    assert_eq!(value_of(&mut cache, &[1]), Some(b"new".to_vec()));
    set(&mut cache, name(1, 1), 3, &[1], b"old");
    assert_eq!(value_of(&mut cache, &[1]), None);
}

#[test]
fn a_write_to_all_keys_is_one_to_each() {
    let mut cache = eager(|_| {});
    fill(&mut cache, name(1, 1), &[1], b"1", 0);
    cache.on_logged(&Logged { name: name(2, 1), order: order(4), scope: Scope::All, overwrite: None });
    assert_eq!(value_of(&mut cache, &[1]), None);
    assert_eq!(fill(&mut cache, name(1, 2), &[1], b"1", 3), ReplyTo::Read(Err(Refused::Version)));
    assert_eq!(fill(&mut cache, name(1, 3), &[1], b"2", 4), ReplyTo::Read(Ok(())));
    cache.on_unlogged(name(2, 2), &Scope::All);
    assert_eq!(value_of(&mut cache, &[1]), None);
    assert_eq!(fill(&mut cache, name(1, 4), &[1], b"2", 4), ReplyTo::Read(Err(Refused::UnderWay)));
    cache.on_reply(NOW, name(2, 2), &Reply::Passing);
    assert_eq!(fill(&mut cache, name(1, 5), &[1], b"3", 4), ReplyTo::Read(Ok(())));
    set(&mut cache, name(2, 3), 3, &[1], b"old");
    assert_eq!(value_of(&mut cache, &[1]), Some(b"3".to_vec()), "older than what all have seen");
}

#[test]
fn of_a_session_that_has_ended_what_is_under_way_is_waited_for_and_then_no_more() {
    let mut cache = eager(|limits| limits.orphan_wait = Nanos(100));
    cache.on_unlogged(name(1, 1), &Scope::Keys(KeyHash(1), &[]));
    cache.on_unlogged(name(3, 1), &Scope::Keys(KeyHash(2), &[]));
    cache.on_ended(NOW, name(1, 1).0);
    cache.on_ended(NOW, name(3, 1).0);
    cache.on_opened(name(3, 1).0);
    let later = NOW.plus(Nanos(99));
    assert_eq!(cache.on_read(later, &read(name(2, 1), &[1], 0)), Look::Miss(Missed::UnderWay));
    let later = NOW.plus(Nanos(100));
    assert_eq!(cache.on_read(later, &read(name(2, 1), &[1], 0)), Look::Miss(Missed::Absent));
    assert_eq!(
        cache.on_read(later, &read(name(2, 1), &[2], 0)),
        Look::Miss(Missed::UnderWay),
        "it lives again"
    );
}

#[test]
fn a_reply_is_kept_for_what_is_read_again_and_not_for_what_is_mostly_written() {
    let mut cache =
        Cache::new(Limits { bucket_count: 4, needs_word: false, ..Limits::default() }, Planted::NONE);
    assert_eq!(fill(&mut cache, name(1, 1), &[1], b"1", 0), ReplyTo::Other, "it is not even noted");
    assert_eq!(fill(&mut cache, name(1, 2), &[1], b"1", 0), ReplyTo::Read(Ok(())));
    (1..=19).for_each(|number| set(&mut cache, name(2, number), number, &[1], b"2"));
    assert_eq!(fill(&mut cache, name(1, 3), &[1], b"2", 19), ReplyTo::Other);
    assert_eq!(cache.len(), 0);
}

#[test]
fn every_limit_holds() {
    let mut cache = eager(|limits| {
        (limits.bytes_max, limits.entries_max, limits.reads_max) = (1_000, 5, 3);
        (limits.key_bytes_max, limits.value_bytes_max) = (2, 300);
    });
    for round in 0..200_u64 {
        let value = vec![0; (round * 53 % 400) as usize];
        let filled = fill(&mut cache, name(1, round + 1), &[round as u8], &value, 0);
        assert_eq!(filled == ReplyTo::Read(Err(Refused::Size)), value.len() > 300, "{filled:?}");
        assert!(cache.bytes() <= 1_000 && cache.len() <= 5);
    }
    assert!(cache.counters().evicted > 100);
    assert_eq!(fill(&mut cache, name(2, 1), b"key", b"", 0), ReplyTo::Other, "a key too long is not noted");
    (1..=5).for_each(|seq| cache.on_read_passed(NOW, &read(name(3, seq), &[1], 0), SeqNum(0)));
    assert_eq!(cache.reads.len(), 3);
    cache.on_read_passed(NOW, &read(name(3, 6), &[1], 0), SeqNum(3));
    assert_eq!(cache.reads.len(), 2, "what is a window behind gives way");
    let tiny = &mut eager(|limits| limits.bytes_max = 20);
    assert_eq!(fill(tiny, name(1, 1), &[1], b"", 0), ReplyTo::Read(Err(Refused::Size)));
}

#[test]
fn nothing_that_was_noted_before_a_reset_fills_after_it() {
    let mut cache = eager(|_| {});
    cache.on_read_passed(NOW, &read(name(1, 1), &[1], 0), SeqNum(0));
    set(&mut cache, name(2, 1), 1, &[2], b"2");
    cache.reset(Cause::Lapse);
    cache.on_durable(name(2, 1));
    assert_eq!(cache.on_reply(NOW, name(1, 1), &kept(b"1")), ReplyTo::Other);
    assert_eq!((value_of(&mut cache, &[1]), value_of(&mut cache, &[2])), (None, None));
    assert_eq!(cache.len(), 0, "what is dead goes when it is met");
}

#[test]
fn what_is_known_and_what_may_fill_can_be_asked() {
    let mut cache = eager(|_| {});
    cache.on_read_passed(NOW, &read(name(1, 1), b"a", 0), SeqNum(0));
    assert!(cache.awaits(name(1, 1)) && !cache.awaits(name(1, 2)) && !cache.knows(KeyHash(97), b"a"));
    cache.on_reply(NOW, name(1, 1), &kept(b"1"));
    assert!(cache.knows(KeyHash(97), b"a") && !cache.knows(KeyHash(97), b"ab") && !cache.awaits(name(1, 1)));
    set(&mut cache, name(1, 3), 1, b"a", b"3");
    assert!(cache.knows(KeyHash(97), b"a"), "whether or not it may be said");
    cache.reset(Cause::Epoch);
    assert!(!cache.knows(KeyHash(97), b"a"));
}
