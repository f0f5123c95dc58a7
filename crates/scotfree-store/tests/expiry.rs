//! What has expired is gone for whoever reads, and the sweeper finds what nobody reads.

mod common;

use common::{planted, run, shard, Dice};
use scotfree_store::{Expiry, Op, Outcome, Set, Shard, StoreFault, Verb};

const KEYS: u64 = if cfg!(miri) { 100 } else { 20_000 };

fn set(shard: &mut Shard, now_s: u32, number: u64, expiry: Expiry) {
    let set = Set { expiry, ..Set::of(b"value") };
    assert_eq!(run(shard, now_s, &Op::new(&number.to_le_bytes(), Verb::Set(set))).outcome, Outcome::Done);
}

/// Keys that expire at times between 10 and 1009, or never, set in no order; how many never do.
fn fill(shard: &mut Shard, seed: u64) -> (Vec<u32>, u64) {
    let mut dice = Dice::new(seed);
    let times: Vec<u32> =
        (0..KEYS).map(|_| if dice.chance(4) { 0 } else { 10 + dice.below(1000) as u32 }).collect();
    for (number, at) in times.iter().enumerate() {
        set(shard, 1, number as u64, if *at == 0 { Expiry::Never } else { Expiry::At(*at) });
    }
    let lasting = times.iter().filter(|at| **at == 0).count() as u64;
    (times, lasting)
}

/// Whether sweeps alone remove all that has expired, and nothing else.
fn sweeps_clean(shard: &mut Shard) -> bool {
    let (times, lasting) = fill(shard, 3);
    for now_s in (0..=1020).step_by(30) {
        let buckets = shard.stats().buckets;
        for _ in 0..buckets.div_ceil(100) {
            shard.sweep(now_s, 100);
        }
        let left = times.iter().filter(|at| **at == 0 || **at > now_s).count() as u64;
        if shard.len() != left {
            return false;
        }
    }
    shard.len() == lasting && shard.stats().expired_count == KEYS - lasting
}

#[test]
fn sweeps_remove_what_has_expired_and_nothing_else() {
    assert!(sweeps_clean(&mut shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 })));
}

/// Whether each key is gone from its second on, and not before.
fn reads_rightly(shard: &mut Shard) -> bool {
    let (times, _) = fill(shard, 4);
    (0..KEYS).all(|number| {
        let (at, key) = (times[number as usize], number.to_le_bytes());
        let is_there = |shard: &mut Shard, now_s| run(shard, now_s, &Op::get(&key)).outcome == Outcome::Done;
        at == 0 && is_there(shard, u32::MAX) || at != 0 && is_there(shard, at - 1) && !is_there(shard, at)
    })
}

#[test]
fn a_key_is_there_until_its_second_and_not_from_then_on() {
    assert!(reads_rightly(&mut shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 })));
}

#[test]
#[cfg_attr(miri, ignore)]
fn planted_faults_are_found() {
    assert!(!reads_rightly(&mut planted(StoreFault::IgnoreExpiry)));
    assert!(!sweeps_clean(&mut planted(StoreFault::KeepFirstExpiry)));
}

#[test]
fn a_sweep_is_bounded_and_goes_round() {
    let mut shard = shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 });
    (0..KEYS).for_each(|number| set(&mut shard, 1, number, Expiry::At(2)));
    let (mut removed, mut sweeps) = (0, 0);
    let buckets = shard.stats().buckets;
    while !shard.is_empty() {
        let now = shard.sweep(5, 10);
        assert!(now <= 10 * 40, "ten buckets' worth");
        removed += now;
        sweeps += 1;
    }
    assert_eq!(removed, KEYS);
    assert!(sweeps <= buckets.div_ceil(10));
    assert_eq!((shard.sweep(5, u64::MAX), shard.stats().slot_bytes), (0, 0));
}
