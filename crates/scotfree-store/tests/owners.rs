//! One owner for each key, whoever asks; versions; no allocation on the path of reads and writes.

mod common;

use common::{answers, run, with};
use scotfree_store::{
    Condition, Op, Outcome, Owners, Planted, Replies, Seed, Set, Shard, StoreFault, Verb, GROUPS, GROUP_MAX,
};

/// Whether two who ask agree on the owners of keys, and no shard has much more than its share.
fn agree(planted: Planted) -> bool {
    let askers = [Owners::new(Seed::fixed(3), 6).with(planted), Owners::new(Seed::fixed(3), 6).with(planted)];
    let mut counts = [0; 8];
    let keys = if cfg!(miri) { 300u32 } else { 30_000 };
    let is_same = (0..keys).all(|number| {
        let owner = askers[0].of(&number.to_le_bytes());
        counts[owner as usize] += 1;
        owner == askers[1].of(&number.to_le_bytes())
    });
    is_same && counts[..6].iter().all(|count| count * 6 > keys / 2 && count * 6 < keys * 2)
}

#[test]
fn a_key_has_one_owner_whoever_asks() {
    assert!(agree(Planted::NONE));
    assert!(!agree(Planted::some(StoreFault::TwoOwners)));
}

#[test]
fn a_shard_may_move_to_another_thread_with_all_that_it_has() {
    let mut shard = common::shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 });
    run(&mut shard, 0, &Op::set(b"k", b"v"));
    let moved = std::thread::spawn(move || run(&mut shard, 0, &Op::get(b"k"))).join().expect("no panic");
    assert_eq!(moved.value, Some(b"v".to_vec()));
}

fn version(shard: &mut Shard, op: &Op<'_>) -> (Outcome, u64) {
    let mut out = Replies::new();
    shard.run(0, op, &mut out);
    (out.get(0).outcome, out.get(0).version)
}

#[test]
fn versions_rise_with_each_write_and_guard_the_next() {
    let mut shard = with(|options| {
        options.has_versions = true;
        options.memory_max = if cfg!(miri) { 16 << 20 } else { 64 << 20 };
    });
    let (_, first) = version(&mut shard, &Op::set(b"k", b"1"));
    assert_eq!(version(&mut shard, &Op::get(b"k")), (Outcome::Done, first));
    let guarded =
        |version| Op::new(b"k", Verb::Set(Set { condition: Condition::IfVersion(version), ..Set::of(b"2") }));
    let (outcome, second) = version(&mut shard, &guarded(first));
    assert!(outcome == Outcome::Done && second > first);
    assert_eq!(version(&mut shard, &guarded(first)), (Outcome::Unmet, 0));
    for op in [
        Op::new(b"k", Verb::Append(b"3", Condition::Always)),
        Op::new(b"k", Verb::Add(1)),
        Op::new(b"h", Verb::HashSet(&[(b"f", b"v")])),
        Op::new(b"h", Verb::HashSet(&[(b"f", b"w")])),
    ] {
        let before = version(&mut shard, &Op::get(b"k")).1;
        assert!(version(&mut shard, &op).1 > before);
    }
    assert!(shard.set_meta(0, b"k", 1 << 60) && !shard.set_meta(0, b"none", 1));
    assert_eq!(version(&mut shard, &Op::get(b"k")), (Outcome::Done, 1 << 60));
    assert_eq!(version(&mut shard, &Op::new(b"none", guarded(1).verb)).0, Outcome::Absent);
}

#[test]
#[cfg_attr(miri, ignore)]
fn reads_and_writes_allocate_nothing() {
    let mut shard = common::shard(64 << 20);
    let mut out = Replies::new();
    let keys: Vec<[u8; 8]> = (0..1000u64).map(u64::to_le_bytes).collect();
    let all = |shard: &mut Shard, out: &mut Replies| {
        for batch in keys.chunks(32) {
            out.clear();
            let sets: [Op<'_>; 32] =
                std::array::from_fn(|at| Op::set(&batch[at % batch.len()], b"some value"));
            shard.run_batch(0, &sets, out);
            let gets: [Op<'_>; 32] = std::array::from_fn(|at| Op::get(&batch[at % batch.len()]));
            shard.run_batch(0, &gets, out);
            let others: [Op<'_>; 32] = std::array::from_fn(|at| {
                Op::new(&batch[at % batch.len()], Verb::Append(b"!", Condition::Always))
            });
            shard.run_batch(0, &others, out);
        }
    };
    all(&mut shard, &mut out);
    let counted = allocation_counter::measure(|| all(&mut shard, &mut out));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn groups_change_nothing_but_the_time() {
    let mut shard = common::shard(if cfg!(miri) { 16 << 20 } else { 64 << 20 });
    let keys: Vec<[u8; 8]> = (0..200u64).map(|number| (number % 50).to_le_bytes()).collect();
    let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::new(key, Verb::Add(1))).collect();
    let mut expected = Vec::new();
    for (round, group) in [1, 3, 8, 33, GROUP_MAX, 1000, 0].into_iter().enumerate() {
        shard.set_group(group);
        assert_eq!(shard.group(), group.clamp(1, GROUP_MAX));
        let mut out = Replies::new();
        shard.run_batch(0, &ops, &mut out);
        let numbers: Vec<i64> = answers(&out).iter().map(|answer| answer.number - 4 * round as i64).collect();
        expected = if round == 0 { numbers.clone() } else { expected };
        assert_eq!(numbers, expected);
    }
    let mut asked = 0;
    let best = shard.calibrate(|shard| {
        asked += 1;
        u64::from(shard.group() != GROUPS[1])
    });
    assert_eq!((best, shard.group(), asked), (GROUPS[1], GROUPS[1], 3 * GROUPS.len()));
}
