//! At the end of its memory a shard refuses or evicts, as it was told, and loses nothing else.

mod common;

use common::{answers, run, stored, with, Dice, Model};
use scotfree_store::{
    Condition, Eviction, Expiry, Op, Options, Outcome, Planted, Replies, Seed, Set, Shard, StoreError,
    StoreFault, Verb, MEMORY_MIN, SEGMENT_BYTES,
};

fn of_segments(count: usize, eviction: Eviction, planted: Planted) -> Shard {
    with(|options| {
        options.memory_max = count * SEGMENT_BYTES;
        options.eviction = eviction;
        options.planted = planted;
    })
}

/// Fills a shard to the brim and goes on, beside a map that is told what was refused. What is lost, if something is.
fn loses(shard: &mut Shard, seed: u64, steps: usize) -> Option<String> {
    let (mut dice, mut model) = (Dice::new(seed), Model::default());
    let (mut full, mut out) = (0, Replies::new());
    let lengths = [10, 48, 300, 5000, 60_000];
    for step in 0..steps {
        let key = format!("key {}", dice.below(steps / 2)).into_bytes();
        let length = lengths[dice.below(if seed.is_multiple_of(2) { 2 } else { lengths.len() })];
        let value = vec![step as u8; length + dice.below(length)];
        let (small, names) = ([(&key[..3], &value[..10])], [&key[..3]]);
        let op = match dice.below(20) {
            0 => Op::delete(&key),
            1 => Op::new(&key, Verb::Append(&value[..10], Condition::Always)),
            2 => Op::new(&key, Verb::HashSet(&small)),
            3 => Op::new(&key, Verb::HashDelete(&names)),
            4 => Op::new(&key, Verb::SetRange(100, &value[..10])),
            5..=8 => Op::get(&key),
            _ => Op::set(&key, &value),
        };
        out.clear();
        shard.run(0, &op, &mut out);
        let got = answers(&out).remove(0);
        assert!(shard.memory_used() <= shard.stats().memory_max, "the bound holds");
        if got.outcome == Outcome::Full {
            full += 1; // refused: the map stays as it was
            continue;
        }
        let expected = model.run(0, &op);
        if expected != got {
            return Some(format!("step {step}: {expected:?}, {got:?}"));
        }
    }
    assert_eq!(shard.stats().full_count, full);
    assert!(full > 0, "the shard was never full");
    (stored(shard, 0) != model.stored() || shard.len() != model.map.len() as u64)
        .then(|| "what is stored differs".to_owned())
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_full_shard_refuses_and_loses_nothing() {
    for seed in 0..6u64 {
        let mut shard =
            of_segments(if seed.is_multiple_of(2) { 5 } else { 30 }, Eviction::Never, Planted::NONE);
        assert_eq!(loses(&mut shard, seed, 120_000), None, "seed {seed}");
        let used = shard.memory_used();
        assert!(used > shard.stats().memory_max - SEGMENT_BYTES, "full means full: {used}");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn planted_faults_are_found() {
    for fault in [StoreFault::ForgetWhenFull, StoreFault::OverwriteWhenFull] {
        let found = |seed| {
            let run = || {
                let mut shard = of_segments(8, Eviction::Never, Planted::some(fault));
                loses(&mut shard, seed, 100_000).is_some()
            };
            std::panic::catch_unwind(run).unwrap_or(true)
        };
        assert!((0..4).any(found), "{fault:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn memory_of_one_size_serves_another_when_it_is_free() {
    let mut shard = of_segments(8, Eviction::Never, Planted::NONE);
    let mut out = Replies::new();
    let mut counts = Vec::new();
    for length in [40, 400, 4000, 40_000, 400_000, 40] {
        let value = vec![1; length];
        let mut count = 0u64;
        loop {
            out.clear();
            shard.run(0, &Op::set(&count.to_le_bytes(), &value), &mut out);
            if out.get(0).outcome == Outcome::Full {
                break;
            }
            count += 1;
        }
        assert!(count > 0, "values of {length} bytes find the memory of those before");
        counts.push(count);
        (0..count).for_each(|number| shard.run(0, &Op::delete(&number.to_le_bytes()), &mut out));
        assert_eq!(shard.len(), 0);
        assert_eq!(shard.stats().slot_bytes, 0);
    }
    assert!(counts[5] * 10 > counts[0] * 8, "no memory leaks: {counts:?}");
    assert!(shard.trim() > 0);
    assert!(run(&mut shard, 0, &Op::set(b"after", b"that")).outcome == Outcome::Done);
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_shard_that_evicts_takes_every_write_and_stays_within_its_memory() {
    for seed in 0..4 {
        let segments = if seed == 0 { 6 } else { 10 };
        let mut shard = of_segments(segments, Eviction::Sieve, Planted::NONE);
        let (mut dice, mut out) = (Dice::new(seed), Replies::new());
        for step in 0..300_000u64 {
            let length = match seed {
                0 => 40,
                1 => 40 + dice.below(200),
                // The sizes change: memory moves from one class to another.
                2 => [30, 150, 700][(step / 100_000) as usize],
                _ => [20, 90, 2000, 30_000][dice.below(100).min(3)],
            };
            let value = vec![step as u8; length];
            let key = (step % 200_000).to_le_bytes();
            out.clear();
            shard.run(0, &Op::set(&key, &value), &mut out);
            shard.run(0, &Op::get(&key), &mut out);
            assert_eq!(out.get(0).outcome, Outcome::Done, "seed {seed} step {step}");
            assert_eq!(out.value(1), Some(&value[..]), "seed {seed} step {step}");
            assert!(shard.memory_used() <= segments * SEGMENT_BYTES);
        }
        let stats = shard.stats();
        assert!(stats.evicted_count > 1000);
        assert_eq!(stored(&shard, 0).len() as u64, stats.keys);
        if seed == 2 {
            let latest = stats.keys * 700;
            assert!(latest > 4 * SEGMENT_BYTES as u64, "a size that is new gets its share: {stats:?}");
        }
    }
}

/// What an evicting shard answers is what was written, or that there is nothing.
#[test]
#[cfg_attr(miri, ignore)]
fn what_was_evicted_is_gone_and_all_else_is_as_it_was_written() {
    for seed in 0..6 {
        let mut shard = of_segments(9, Eviction::Sieve, Planted::NONE);
        let (mut dice, mut model) = (Dice::new(seed), Model::default());
        let mut out = Replies::new();
        for step in 0..80_000 {
            let key = format!("key {}", dice.below(30_000)).into_bytes();
            let length = [20, 100, 1000, 30_000][dice.below(40).min(3)] + dice.below(50);
            let value = vec![step as u8; if dice.chance(500) { 200_000 } else { length }];
            let op = match dice.below(10) {
                0 => Op::delete(&key),
                1 => Op::new(&key, Verb::Append(&value[..10], Condition::Always)),
                2..=5 => Op::get(&key),
                _ => Op::set(&key, &value),
            };
            // Whether it was evicted is known by asking; then the map forgets it too.
            if run(&mut shard, 0, &Op::new(&key, Verb::Exists)).outcome == Outcome::Absent {
                model.map.remove(&key);
            }
            out.clear();
            shard.run(0, &op, &mut out);
            assert_eq!(answers(&out).remove(0), model.run(0, &op), "seed {seed} step {step}");
        }
        let expected = model.stored();
        let left = stored(&shard, 0);
        assert!(left.iter().all(|(key, value)| expected.get(key) == Some(value)), "seed {seed}");
        assert!(shard.stats().evicted_count > 0 && left.len() as u64 == shard.len(), "seed {seed}");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn what_is_read_stays_longer_than_what_is_not() {
    let mut shard = of_segments(6, Eviction::Sieve, Planted::NONE);
    let mut out = Replies::new();
    let value = [5; 48];
    let hot: Vec<[u8; 8]> = (0..5000u64).map(|number| (1 << 40 | number).to_le_bytes()).collect();
    for key in &hot {
        shard.run(0, &Op::set(key, &value), &mut out);
    }
    for number in 0..1_000_000u64 {
        out.clear();
        shard.run(0, &Op::set(&number.to_le_bytes(), &value), &mut out);
        shard.run(0, &Op::get(&hot[(number % 5000) as usize]), &mut out);
    }
    let kept =
        hot.iter().filter(|key| run(&mut shard, 0, &Op::get(&key[..])).outcome == Outcome::Done).count();
    assert!(kept > 4900, "{kept} of 5000 keys that are read were kept, beside a million that are not");
}

#[test]
#[cfg_attr(miri, ignore)]
fn values_with_segments_of_their_own_are_evicted_and_refused_too() {
    for eviction in [Eviction::Never, Eviction::Sieve] {
        let mut shard = of_segments(12, eviction, Planted::NONE);
        let large = vec![7; 3 * SEGMENT_BYTES + 5];
        let outcomes: Vec<Outcome> =
            (0..6u8).map(|number| run(&mut shard, 0, &Op::set(&[number], &large)).outcome).collect();
        match eviction {
            Eviction::Never => {
                assert_eq!(outcomes[..2], [Outcome::Done; 2]);
                assert_eq!(outcomes[5], Outcome::Full);
                assert_eq!(run(&mut shard, 0, &Op::get(&[0])).value, Some(large.clone()));
            }
            Eviction::Sieve => {
                assert_eq!(outcomes, [Outcome::Done; 6]);
                assert_eq!(run(&mut shard, 0, &Op::get(&[5])).value, Some(large.clone()));
            }
        }
    }
}

#[test]
fn too_little_and_too_much_memory_are_refused_in_words() {
    let of = |memory_max| Shard::new(&Options { memory_max, ..Options::with_seed(Seed::fixed(1)) });
    assert!(of(MEMORY_MIN).is_ok());
    for memory_max in [0, MEMORY_MIN - 1, usize::MAX] {
        let error = of(memory_max).err().expect("refused");
        assert!(matches!(error, StoreError::Memory { .. }) && error.to_string().contains("use more shards"));
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn several_keys_are_set_together_or_not_at_all() {
    let mut shard = of_segments(4, Eviction::Never, Planted::NONE);
    let pairs: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")];
    assert_eq!(shard.set_all_if_absent(0, &pairs), Outcome::Done);
    assert_eq!(run(&mut shard, 0, &Op::get(b"a")).value, Some(b"3".to_vec()));
    assert_eq!(shard.set_all_if_absent(0, &[(b"c", b"1"), (b"b", b"2")]), Outcome::Unmet);
    assert_eq!(run(&mut shard, 0, &Op::get(b"c")).outcome, Outcome::Absent);
    let large = vec![0; 3 * SEGMENT_BYTES];
    assert_eq!(shard.set_all_if_absent(0, &[(b"d", b"1"), (b"e", &large)]), Outcome::Full);
    assert_eq!((run(&mut shard, 0, &Op::get(b"d")).outcome, shard.len()), (Outcome::Absent, 2));
    let expiring = Set { expiry: Expiry::At(5), ..Set::of(b"x") };
    run(&mut shard, 0, &Op::new(b"f", Verb::Set(expiring)));
    assert_eq!(shard.set_all_if_absent(5, &[(b"f", b"y")]), Outcome::Done, "what has expired is absent");
}
