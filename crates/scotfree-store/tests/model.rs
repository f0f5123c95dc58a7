//! A shard does what a map does: all operations, at random, in batches and one by one.

mod common;

use common::{answers, run, stored, Answer, Dice, Model};
use scotfree_store::{
    Change, Condition, Eviction, ExpireIf, Expiry, Kind, Old, Op, Replies, Set, Shard, StoreFault, Verb,
};

/// What an operation is made of, so that it can be made again.
#[derive(Debug, Clone)]
struct Plan {
    key: Vec<u8>,
    other: Vec<u8>,
    bytes: Vec<u8>,
    verb: usize,
    detail: usize,
}

const VERBS: usize = 26;

fn plan(dice: &mut Dice, keys: usize) -> Plan {
    let number = dice.below(keys);
    let mut key = format!("k{number}").into_bytes();
    if number % 11 == 3 {
        key.resize(200 + number % 200, b'.'); // around the longest key of a short head
    }
    let length = match dice.below(12) {
        0..=6 => dice.below(40),
        7..=9 => dice.below(600),
        10 => 65_500 + dice.below(80),
        _ => dice.below(20_000),
    };
    let length = if cfg!(miri) { length % 300 } else { length };
    let bytes = if dice.chance(3) {
        (dice.next() as i64 >> dice.below(60)).to_string().into_bytes()
    } else {
        (0..length).map(|at| (at % 251) as u8 ^ number as u8).collect()
    };
    let other = format!("f{}", dice.below(6)).into_bytes();
    Plan { key, other, bytes, verb: dice.below(VERBS), detail: dice.below(1000) }
}

fn expiry(plan: &Plan) -> Expiry {
    match plan.detail % 7 {
        0 | 1 => Expiry::Keep,
        2 | 3 => Expiry::Never,
        4 => Expiry::At(plan.detail as u32 % 90),
        _ => Expiry::In(plan.detail as u32 % 30),
    }
}

fn condition(plan: &Plan) -> Condition {
    match plan.detail % 5 {
        0 => Condition::IfAbsent,
        1 => Condition::IfPresent,
        _ => Condition::Always,
    }
}

fn expire_if(plan: &Plan) -> ExpireIf {
    match plan.detail % 9 {
        0 => ExpireIf::None,
        1 => ExpireIf::Some,
        2 => ExpireIf::Later,
        3 => ExpireIf::Earlier,
        _ => ExpireIf::Always,
    }
}

/// Turns a value round, removes what begins with an `a`, refuses hashes.
fn turn(old: Option<Old<'_>>, new: &mut Vec<u8>) -> Change {
    match old {
        None => Change::Keep,
        Some(old) if old.kind == Kind::Hash => Change::Refuse(7),
        Some(old) if old.value.first().is_some_and(|first| first % 5 == 0) => Change::Delete,
        Some(old) => {
            new.extend(old.value.iter().rev());
            Change::Write(Kind::String, Expiry::Keep)
        }
    }
}

fn with_op<T>(plan: &Plan, use_it: impl FnOnce(Op<'_>) -> T) -> T {
    let (bytes, other) = (plan.bytes.as_slice(), plan.other.as_slice());
    let small = &bytes[..bytes.len().min(100)];
    let pair = [(other, small), (b"f2", b"22")];
    let names = [other, b"f1".as_slice(), b"f9"];
    let from = plan.detail as i64 % 60 - 30;
    let verb = match plan.verb {
        0..=3 => Verb::Get,
        4 => Verb::GetExpire(expiry(plan)),
        5 => Verb::GetDelete,
        6 => Verb::GetRange(from, plan.detail as i64 % 70 - 35),
        7 => [Verb::Exists, Verb::Length, Verb::Kind, Verb::Ttl][plan.detail % 4],
        8 => Verb::HashLength,
        9..=12 => Verb::Set(Set {
            value: bytes,
            expiry: expiry(plan),
            condition: condition(plan),
            returns_old: plan.detail.is_multiple_of(4),
        }),
        13 => Verb::Append(bytes, condition(plan)),
        14 => Verb::Prepend(small, condition(plan)),
        15 => Verb::SetRange(plan.detail % 200, small),
        16 => Verb::Add(plan.detail as i64 - 500),
        17 => Verb::AddUnsigned(plan.detail as u64),
        18 => Verb::SubtractUnsigned(plan.detail as u64),
        19 => Verb::Delete(condition(plan)),
        20 => Verb::Expire(expiry(plan), expire_if(plan)),
        21 => Verb::Update(&turn),
        22 => Verb::HashSet(&pair[..=(plan.detail % 2)]),
        23 => [Verb::HashSetNew(pair[0]), Verb::HashAdd(other, from)][plan.detail % 2],
        24 => [Verb::HashGet(other), Verb::HashGetMany(&names), Verb::HashGetAll, Verb::HashExists(other)]
            [plan.detail % 4],
        _ => Verb::HashDelete(&names[..=(plan.detail % 3)]),
    };
    use_it(Op::new(&plan.key, verb))
}

/// Runs plans in one batch.
fn run_batch(shard: &mut Shard, now_s: u32, plans: &[Plan], out: &mut Replies) {
    fn collect(shard: &mut Shard, now_s: u32, plans: &[Plan], ops: &mut Vec<Op<'_>>, out: &mut Replies) {
        match plans.split_first() {
            None => shard.run_batch(now_s, ops, out),
            Some((plan, rest)) => with_op(plan, |op| {
                let mut all: Vec<Op<'_>> = ops.clone();
                all.push(op);
                collect(shard, now_s, rest, &mut all, out);
            }),
        }
    }
    collect(shard, now_s, plans, &mut Vec::new(), out);
}

/// Where the shard first differs from the map; none if it never does.
fn difference(seed: u64, steps: usize, shard: &mut Shard) -> Option<String> {
    let mut dice = Dice::new(seed);
    let mut model = Model::default();
    let keys = [3, 20, 300, 5000][seed as usize % 4];
    let (mut now_s, mut out) = (1, Replies::new());
    for step in 0..steps {
        now_s += u32::from(dice.chance(4));
        let plans: Vec<Plan> = (0..=dice.below(40)).map(|_| plan(&mut dice, keys)).collect();
        let expected: Vec<Answer> =
            plans.iter().map(|plan| with_op(plan, |op| model.run(now_s, &op))).collect();
        let got = if dice.chance(3) {
            plans.iter().map(|plan| with_op(plan, |op| run(shard, now_s, &op))).collect()
        } else {
            out.clear();
            run_batch(shard, now_s, &plans, &mut out);
            answers(&out)
        };
        for ((plan, expected), got) in plans.iter().zip(&expected).zip(&got) {
            if expected != got {
                return Some(format!(
                    "seed {seed} step {step} second {now_s}: {plan:?}\n{expected:?}\n{got:?}"
                ));
            }
        }
        if dice.chance(8) {
            shard.sweep(now_s, 1 + dice.below(100) as u64);
        }
        if step % 64 == 63 || step + 1 == steps {
            model.expire(now_s);
            if stored(shard, now_s) != model.stored() {
                return Some(format!("seed {seed} step {step}: what is stored differs"));
            }
        }
    }
    None
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if cfg!(miri) => 0..3,
        None => 0..60,
    }
}

const STEPS: usize = if cfg!(miri) { 12 } else { 300 };
const MEMORY: usize = if cfg!(miri) { 24 << 20 } else { 1 << 30 };

#[test]
fn a_shard_does_what_a_map_does() {
    for seed in seeds() {
        let mut shard = common::with(|options| {
            options.memory_max = MEMORY;
            options.has_versions = seed % 2 == 0;
            // With plenty of memory nothing is evicted: the order must do no harm.
            options.eviction = if seed % 3 == 0 { Eviction::Sieve } else { Eviction::Never };
        });
        if let Some(difference) = difference(seed, STEPS, &mut shard) {
            panic!("{difference}");
        }
        let mut out = Replies::new();
        let keys: Vec<Vec<u8>> = stored(&shard, 0).into_keys().collect();
        for key in &keys {
            shard.run(0, &Op::delete(key), &mut out);
        }
        let stats = shard.stats();
        assert_eq!((stats.keys, stats.slot_bytes, stats.overflow_lines), (0, 0, 0), "nothing is left over");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn planted_faults_are_found() {
    let found = |fault| {
        seeds().any(|seed| {
            let run = std::panic::AssertUnwindSafe(|| {
                let mut shard = common::planted(fault);
                difference(seed, 120, &mut shard).is_some()
            });
            std::panic::catch_unwind(run).unwrap_or(true)
        })
    };
    for fault in [StoreFault::IgnoreExpiry, StoreFault::TrustProbe, StoreFault::SplitWithoutMoving] {
        assert!(found(fault), "{fault:?}");
    }
}
