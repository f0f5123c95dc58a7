//! A table that grows loses nothing, and a scan beside it misses nothing.

mod common;

use common::{planted, run, shard, stored, Answer, Dice};
use scotfree_store::{Op, Outcome, Replies, Shard, StoreFault};
use std::collections::{BTreeMap, BTreeSet};

/// More than 2^14 buckets, so that hash bits are used up twice (at 2^8 and 2^16 buckets).
const KEYS: u64 = if cfg!(miri) { 400 } else { 400_000 };

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Whether all of `KEYS` are there after they were set, one by one.
fn grows_without_loss(shard: &mut Shard) -> bool {
    let mut out = Replies::new();
    for number in 0..KEYS {
        shard.run(0, &Op::set(&key(number), &key(!number)), &mut out);
        out.clear();
    }
    let is_there = |number| run(shard, 0, &Op::get(&key(number))).value.as_deref() == Some(&key(!number)[..]);
    (0..KEYS).all(is_there) && shard.len() == KEYS
}

#[test]
fn a_table_grows_bucket_by_bucket_and_loses_nothing() {
    let mut shard = shard(if cfg!(miri) { 16 << 20 } else { 256 << 20 });
    let mut out = Replies::new();
    let mut before = shard.stats().buckets;
    for number in 0..KEYS {
        shard.run(0, &Op::set(&key(number), b""), &mut out);
        let buckets = shard.stats().buckets;
        assert!(buckets - before <= 1, "one bucket per insert at most (E2)");
        before = buckets;
        out.clear();
    }
    assert!(KEYS / before <= 5 && KEYS / before >= 4, "the table keeps pace: {before} buckets");
    let mut shard = common::shard(if cfg!(miri) { 16 << 20 } else { 256 << 20 });
    assert!(grows_without_loss(&mut shard));
    let lines = u64::from(shard.stats().overflow_lines);
    assert!(lines < shard.stats().buckets / 4, "{lines} lines of chains");
}

#[test]
#[cfg_attr(miri, ignore)]
fn planted_faults_are_found() {
    for fault in [
        StoreFault::SplitWithoutMoving,
        StoreFault::KeepUsedBits,
        StoreFault::OverwriteWhenFull,
        StoreFault::CompareTagOnly,
    ] {
        let mut shard = planted(fault);
        let run = std::panic::AssertUnwindSafe(|| grows_without_loss(&mut shard));
        assert!(!std::panic::catch_unwind(run).unwrap_or(false), "{fault:?}");
    }
}

#[test]
fn a_scan_returns_what_is_there_from_its_beginning_to_its_end() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let mut dice = Dice::new(seed);
        let mut shard = shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 });
        let count = if cfg!(miri) { 100 } else { 1000 + dice.below(5000) };
        let mut out = Replies::new();
        let mut next = 0;
        let mut insert = |shard: &mut Shard, out: &mut Replies| {
            shard.run(0, &Op::set(&key(next), b"v"), out);
            next += 1;
        };
        (0..count).for_each(|_| insert(&mut shard, &mut out));
        let mut staying: BTreeSet<u64> = (0..count as u64).collect();
        let (mut seen, mut cursor, mut calls) = (BTreeSet::new(), 0, 0);
        loop {
            cursor = shard.scan(0, cursor, 1 + dice.below(30), |stored| {
                seen.insert(u64::from_le_bytes(stored.key.try_into().expect("eight bytes")));
            });
            calls += 1;
            if cursor == 0 {
                break;
            }
            // The table grows while it is scanned, and keys come and go.
            (0..dice.below(40)).for_each(|_| insert(&mut shard, &mut out));
            for _ in 0..dice.below(20) {
                let gone = dice.below(count) as u64;
                shard.run(0, &Op::delete(&key(gone)), &mut out);
                staying.remove(&gone);
            }
        }
        assert!(staying.is_subset(&seen), "seed {seed}: {:?}", staying.difference(&seen).next());
        assert!(calls > 1 && calls < 20 * count, "it ends");
    }
}

#[test]
fn a_shard_that_is_cleared_is_as_new_and_goes_on() {
    let mut shard = shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 });
    assert_eq!(shard.any(0, 7), None);
    let used = shard.memory_used();
    let mut out = Replies::new();
    (0..200).for_each(|number| shard.run(0, &Op::set(&key(number), &key(number)), &mut out));
    for number in 0..100 {
        let any = shard.any(0, number).expect("there are keys");
        assert_eq!(any.key, any.value);
    }
    assert!(shard.clear().is_ok());
    assert_eq!((shard.len(), shard.memory_used(), shard.any(0, 7)), (0, used, None));
    assert_eq!(run(&mut shard, 0, &Op::get(&key(1))).outcome, Outcome::Absent);
    assert_eq!(run(&mut shard, 0, &Op::set(&key(1), b"v")).outcome, Outcome::Done);
    assert_eq!(shard.any(0, 99).map(|stored| stored.value), Some(&b"v"[..]));
}

#[test]
fn a_scan_of_a_table_at_rest_returns_each_key_once() {
    let mut shard = shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 });
    let keys = KEYS.min(20_000);
    let mut out = Replies::new();
    (0..keys).for_each(|number| shard.run(0, &Op::set(&key(number), &key(number)), &mut out));
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = shard.scan(0, cursor, 10, |stored| {
            *seen.entry(stored.key.to_vec()).or_insert(0) += 1;
            assert_eq!(stored.key, stored.value);
        });
        if cursor == 0 {
            break;
        }
    }
    assert!(seen.len() as u64 == keys && seen.values().all(|times| *times == 1));
    assert_eq!(stored(&shard, 0).len() as u64, keys);
    assert_eq!(
        run(&mut shard, 0, &Op::get(b"")),
        Answer { outcome: Outcome::Absent, value: None, number: 0 }
    );
}
