//! Transactions that append to lists: histories made by hand for every anomaly and for those that are known by name,
//! what really happened one after the other, the same with something planted, and small ones against all orders.

use proptest::prelude::*;
use scotfree_check::{
    check_appends, Anomaly, AnomalyKind, AppendLimits, AppendVerdict, Ended, Key, Link, Step, Transaction,
};
use std::cell::Cell;
use std::collections::BTreeMap;

const X: Key = Key(1);
const Y: Key = Key(2);

fn append(key: Key, value: u64) -> Step {
    Step::Append { key, value }
}

fn read(key: Key, values: &[u64]) -> Step {
    Step::Read { key, values: values.to_vec() }
}

/// Committed, and at the same time as all others that are made so.
fn done(steps: &[Step]) -> Transaction {
    during(0, 100, steps)
}

fn during(called: u64, at: u64, steps: &[Step]) -> Transaction {
    Transaction { client: called, called, ended: Ended::Committed { at }, steps: steps.to_vec() }
}

fn aborted(steps: &[Step]) -> Transaction {
    Transaction { client: 0, called: 0, ended: Ended::Aborted, steps: steps.to_vec() }
}

/// Never answered.
fn cut(called: u64, steps: &[Step]) -> Transaction {
    Transaction { client: 0, called, ended: Ended::Unknown, steps: steps.to_vec() }
}

fn verdict(history: &[Transaction]) -> AppendVerdict {
    check_appends(history, AppendLimits::default())
}

#[track_caller]
fn anomaly(history: &[Transaction]) -> Anomaly {
    match verdict(history) {
        AppendVerdict::Anomaly(anomaly) => anomaly,
        other => panic!("{other:?}: {history:?}"),
    }
}

#[track_caller]
fn assert_kind(kind: AnomalyKind, needs_time: bool, transactions: &[usize], history: &[Transaction]) {
    let mut found = anomaly(history);
    found.transactions.sort_unstable();
    assert_eq!((found.kind, found.needs_time, &found.transactions[..]), (kind, needs_time, transactions));
}

#[track_caller]
fn assert_good(history: &[Transaction]) {
    assert_eq!(verdict(history), AppendVerdict::StrictlySerializable, "{history:?}");
}

#[test]
fn good_histories_are_accepted() {
    assert_good(&[]);
    assert_good(&[done(&[]), done(&[read(X, &[])])]);
    assert_good(&[during(0, 1, &[append(X, 1)]), during(2, 3, &[read(X, &[1])])]);
    // They overlap: either may have come first.
    assert_good(&[during(0, 10, &[append(X, 1)]), during(5, 8, &[read(X, &[])])]);
    // At the very moment of the return is not behind it.
    assert_good(&[during(0, 10, &[append(X, 1)]), during(10, 12, &[read(X, &[])])]);
    // What nobody has read has some place.
    assert_good(&[
        done(&[read(X, &[]), append(X, 1)]),
        done(&[append(X, 2)]),
        done(&[append(X, 3), append(X, 4)]),
    ]);
    // It sees itself.
    assert_good(&[done(&[append(X, 1), read(X, &[1]), append(X, 2), read(X, &[1, 2])])]);
    // It may have happened, late, or never.
    assert_good(&[cut(0, &[append(X, 1)]), during(5, 6, &[read(X, &[])]), during(7, 8, &[read(X, &[1])])]);
    assert_good(&[
        cut(0, &[append(X, 1), append(Y, 1)]),
        during(5, 6, &[read(X, &[])]),
        aborted(&[append(X, 2)]),
    ]);
}

#[test]
fn appends_in_a_circle() {
    // A dirty write: the two lists have the two transactions in different orders.
    let history = [
        done(&[append(X, 1), append(Y, 1)]),
        done(&[append(X, 2), append(Y, 2)]),
        done(&[read(X, &[1, 2])]),
        done(&[read(Y, &[2, 1])]),
    ];
    assert_kind(AnomalyKind::G0, false, &[0, 1], &history);
    assert_eq!(anomaly(&history).links, [Link::Appended(X), Link::Appended(Y)]);
    // One comes between the appends of another.
    let torn = [done(&[append(X, 1), append(X, 2)]), done(&[append(X, 3)]), done(&[read(X, &[1, 3, 2])])];
    assert_kind(AnomalyKind::G0, false, &[0, 1], &torn);
    let unread = [done(&[append(X, 1), append(X, 2)]), done(&[append(X, 3)]), done(&[read(X, &[1, 3])])];
    assert_kind(AnomalyKind::G0, false, &[0, 1], &unread);
}

#[test]
fn a_dirty_read_of_what_was_aborted() {
    assert_kind(
        AnomalyKind::AbortedRead,
        false,
        &[0, 1],
        &[aborted(&[append(X, 1)]), done(&[read(X, &[1])])],
    );
}

#[test]
fn a_dirty_read_in_the_middle_of_a_transaction() {
    let writer = done(&[append(X, 1), append(X, 2)]);
    let history = [writer, done(&[read(X, &[1])]), done(&[read(X, &[1, 2])])];
    assert_kind(AnomalyKind::IntermediateRead, false, &[0, 1], &history);
    let unanswered = [cut(0, &[append(X, 1), append(X, 2)]), done(&[read(X, &[1])])];
    assert_kind(AnomalyKind::IntermediateRead, false, &[0, 1], &unanswered);
}

#[test]
fn information_in_a_circle() {
    let history = [done(&[append(X, 1), read(Y, &[1])]), done(&[append(Y, 1), read(X, &[1])])];
    assert_kind(AnomalyKind::G1c, false, &[0, 1], &history);
    assert_eq!(anomaly(&history).links, [Link::WasRead(X), Link::WasRead(Y)]);
}

#[test]
fn a_lost_update() {
    let both = [done(&[read(X, &[]), append(X, 1)]), done(&[read(X, &[]), append(X, 2)])];
    assert_kind(AnomalyKind::G2, false, &[0, 1], &both);
    let and_seen = [both.as_slice(), &[done(&[read(X, &[1, 2])])]].concat();
    assert_kind(AnomalyKind::GSingle, false, &[0, 1], &and_seen);
    // The one is overwritten as if it had never been.
    let gone = [both.as_slice(), &[done(&[read(X, &[2])])]].concat();
    assert_kind(AnomalyKind::GSingle, false, &[0, 1], &gone);
}

#[test]
fn read_skew() {
    let history = [done(&[append(X, 1), append(Y, 1)]), done(&[read(X, &[]), read(Y, &[1])])];
    assert_kind(AnomalyKind::GSingle, false, &[0, 1], &history);
    // Also of one that was never answered: it is known to have happened.
    let unanswered = [cut(0, &[append(X, 1), append(Y, 1)]), done(&[read(X, &[]), read(Y, &[1])])];
    assert_kind(AnomalyKind::GSingle, false, &[0, 1], &unanswered);
}

#[test]
fn write_skew() {
    let history = [
        done(&[read(X, &[]), read(Y, &[]), append(X, 1)]),
        done(&[read(X, &[]), read(Y, &[]), append(Y, 2)]),
    ];
    assert_kind(AnomalyKind::G2, false, &[0, 1], &history);
    assert_eq!(anomaly(&history).links, [Link::ReadBefore(Y), Link::ReadBefore(X)]);
}

#[test]
fn a_long_fork() {
    let history = [
        done(&[append(X, 1)]),
        done(&[append(Y, 1)]),
        done(&[read(X, &[1]), read(Y, &[])]),
        done(&[read(X, &[]), read(Y, &[1])]),
    ];
    assert_kind(AnomalyKind::G2, false, &[0, 1, 2, 3], &history);
}

#[test]
fn a_stale_read() {
    let history = [during(0, 10, &[append(X, 1)]), during(11, 12, &[read(X, &[])])];
    assert_kind(AnomalyKind::GSingle, true, &[0, 1], &history);
    assert_eq!(
        anomaly(&history).describe(&history),
        "G-single, a circle with one read before an append, as clients know from the time\n  \
         T1 client 11, 11 .. 12: read k1 -> []\n  \
         T0 client 0, 0 .. 10: append k1 1\n  \
         T1 before T0: T1 read k1 before T0 appended to it\n  \
         T0 before T1: T0 had returned when T1 was called"
    );
}

#[test]
fn appends_and_reads_against_the_time() {
    let order =
        [during(0, 1, &[append(X, 1)]), during(2, 3, &[append(X, 2)]), during(4, 5, &[read(X, &[2, 1])])];
    assert_kind(AnomalyKind::G0, true, &[0, 1], &order);
    let future = [during(0, 1, &[read(X, &[1])]), during(2, 3, &[append(X, 1)])];
    assert_kind(AnomalyKind::G1c, true, &[0, 1], &future);
    // Two reads that each miss something, of which the time says that it was there.
    let fork = [
        during(0, 50, &[append(X, 1)]),
        during(0, 50, &[append(Y, 1)]),
        during(10, 20, &[read(X, &[1])]),
        during(21, 30, &[read(X, &[1]), read(Y, &[])]),
        during(10, 20, &[read(Y, &[1])]),
        during(31, 40, &[read(X, &[1])]),
    ];
    assert_eq!(anomaly(&fork).kind, AnomalyKind::GSingle);
    let several = [
        during(0, 90, &[append(X, 1)]),
        during(0, 90, &[append(Y, 1)]),
        during(10, 20, &[read(X, &[1])]),
        during(30, 40, &[read(Y, &[])]),
        during(10, 20, &[read(Y, &[1])]),
        during(30, 40, &[read(X, &[])]),
    ];
    assert!(anomaly(&several).needs_time);
}

#[test]
fn lists_that_cannot_be() {
    let one = done(&[append(X, 1)]);
    assert_kind(AnomalyKind::Unwritten, false, &[1], &[one.clone(), done(&[read(X, &[9])])]);
    assert_kind(AnomalyKind::Unwritten, false, &[1], &[one.clone(), done(&[read(Y, &[1])])]);
    assert_kind(AnomalyKind::Doubled, false, &[0, 1], &[one.clone(), done(&[read(X, &[1, 1])])]);
    let two = done(&[append(X, 2)]);
    let split = [one.clone(), two.clone(), done(&[read(X, &[1, 2])]), done(&[read(X, &[2])])];
    assert_kind(AnomalyKind::Incompatible, false, &[2, 3], &split);
    for order in [&[4, 3, 1][..], &[1, 4]] {
        let history = [done(&[append(X, 3), append(X, 4)]), one.clone(), done(&[read(X, order)])];
        assert_kind(AnomalyKind::Reordered, false, &[0, 2], &history);
    }
    for contradiction in [
        vec![append(X, 3), read(X, &[1])],
        vec![append(X, 3), read(X, &[3, 1])],
        vec![read(X, &[3]), append(X, 3)],
        vec![read(X, &[1]), read(X, &[1, 2])],
        vec![read(X, &[1, 2]), read(X, &[1])],
        vec![read(X, &[1]), append(X, 3), read(X, &[1])],
        vec![read(X, &[1]), append(X, 3), read(X, &[1, 2, 3])],
    ] {
        let history = [one.clone(), two.clone(), done(&contradiction)];
        assert_kind(AnomalyKind::Internal, false, &[2], &history);
    }
}

#[test]
fn the_smallest_circle_is_told() {
    // A circle of five, and one of two that comes later.
    let ring = |key: u32| Key(10 + key);
    let mut history: Vec<Transaction> =
        (0..5).map(|at| done(&[append(ring(at), 1), read(ring((at + 1) % 5), &[1])])).collect();
    history.push(done(&[append(X, 1), read(Y, &[1])]));
    history.push(done(&[append(Y, 1), read(X, &[1])]));
    assert_kind(AnomalyKind::G1c, false, &[5, 6], &history);
    // Without steps a circle is told all the same.
    let hurried = AppendLimits { smallest_steps_max: 0, ..AppendLimits::default() };
    let AppendVerdict::Anomaly(found) = check_appends(&history, hurried) else { panic!("none found") };
    assert_eq!((found.kind, found.transactions.len(), found.links.len()), (AnomalyKind::G1c, 5, 5));
}

#[test]
fn how_long_ago_something_returned_does_not_make_a_circle_larger() {
    let mut history = vec![during(0, 1, &[append(X, 1)]), during(2, 4, &[append(Y, 1)])];
    history.extend((0..20).map(|at| during(5 + at * 2, 6 + at * 2, &[])));
    history.push(during(90, 91, &[read(Y, &[1]), read(X, &[])]));
    assert_kind(AnomalyKind::GSingle, true, &[0, 22], &history);
}

#[test]
fn more_transactions_than_are_looked_at_are_not_judged() {
    let limits = AppendLimits { transactions_max: 1, ..AppendLimits::default() };
    assert_eq!(check_appends(&[done(&[]), done(&[])], limits), AppendVerdict::TooMany);
}

#[test]
fn a_long_history_is_judged() {
    let mut values: Vec<u64> = Vec::new();
    let history: Vec<Transaction> = (0..20_000)
        .map(|at| {
            let (key, at_ms) = (Key(at as u32 / 50), at * 10);
            if at % 50 == 0 {
                values.clear();
            }
            let steps = [read(key, &values), append(key, at)];
            values.push(at);
            during(at_ms, at_ms + 25, &steps)
        })
        .collect();
    assert_good(&history);
}

/// What happens in a true execution.
#[derive(Debug, Clone)]
struct Draw {
    client: u64,
    /// Key and whether it is appended to.
    steps: Vec<(u32, bool)>,
    before: u64,
    after: u64,
    fate: u8,
}

const STRIDE: u64 = 10;

fn draws(count: std::ops::Range<usize>, keys: u32) -> impl Strategy<Value = Vec<Draw>> {
    let steps = prop::collection::vec((0..keys, any::<bool>()), 1..4);
    let draw = (0_u64..4, steps, 0_u64..40, 0_u64..40, 0_u8..12)
        .prop_map(|(client, steps, before, after, fate)| Draw { client, steps, before, after, fate });
    prop::collection::vec(draw, count)
}

/// What clients see of it, and the lists at the end.
fn execute(draws: &[Draw]) -> (Vec<Transaction>, BTreeMap<Key, Vec<u64>>) {
    let mut lists: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
    let mut value = 0;
    let mut history = Vec::new();
    for (draw, executed) in draws.iter().zip((10..).map(|number| STRIDE * number)) {
        let (ended, happens) = match draw.fate {
            0 => (Ended::Aborted, false),
            1 => (Ended::Unknown, false),
            2 => (Ended::Unknown, true),
            _ => (Ended::Committed { at: executed + draw.after }, true),
        };
        let mut state = lists.clone();
        let steps = draw.steps.iter().map(|(key, appends)| {
            let list = state.entry(Key(*key)).or_default();
            if *appends {
                value += 1;
                list.push(value);
                append(Key(*key), value)
            } else {
                read(Key(*key), list)
            }
        });
        let steps = steps.collect();
        if happens {
            lists = state;
        }
        history.push(Transaction { client: draw.client, called: executed - draw.before, ended, steps });
    }
    (history, lists)
}

/// What is planted behind a good history, whose lists hold `x` and `y`, at `now`; of which kind it is, and whether it
/// takes the time to see it.
type Plant = fn(x: &[u64], y: &[u64], now: u64) -> (Vec<Transaction>, AnomalyKind, bool);

const A: u64 = 1_000_000;
const B: u64 = 1_000_001;
const C: u64 = 1_000_002;

fn with(list: &[u64], more: &[u64]) -> Vec<u64> {
    [list, more].concat()
}

const PLANTS: [Plant; 9] = [
    |x, _, now| {
        let stale =
            [during(now, now + 1, &[append(Key(0), A)]), during(now + 2, now + 3, &[read(Key(0), x)])];
        (stale.to_vec(), AnomalyKind::GSingle, true)
    },
    |x, _, now| {
        let one = |value| during(now, now + 9, &[read(Key(0), x), append(Key(0), value)]);
        let seen = during(now, now + 9, &[read(Key(0), &with(x, &[A, B]))]);
        (vec![one(A), one(B), seen], AnomalyKind::GSingle, false)
    },
    |x, y, now| {
        let one = |key, value| during(now, now + 9, &[read(Key(0), x), read(Key(1), y), append(key, value)]);
        (vec![one(Key(0), A), one(Key(1), B)], AnomalyKind::G2, false)
    },
    |x, y, now| {
        let at_once = |steps: &[Step]| during(now, now + 9, steps);
        let fork = [
            at_once(&[append(Key(0), A)]),
            at_once(&[append(Key(1), B)]),
            at_once(&[read(Key(0), &with(x, &[A])), read(Key(1), y)]),
            at_once(&[read(Key(0), x), read(Key(1), &with(y, &[B]))]),
        ];
        (fork.to_vec(), AnomalyKind::G2, false)
    },
    |x, _, now| {
        let dirty = [aborted(&[append(Key(0), A)]), during(now, now + 9, &[read(Key(0), &with(x, &[A]))])];
        (dirty.to_vec(), AnomalyKind::AbortedRead, false)
    },
    |x, _, now| {
        let middle = [
            during(now, now + 9, &[append(Key(0), A), append(Key(0), B)]),
            during(now, now + 9, &[read(Key(0), &with(x, &[A]))]),
        ];
        (middle.to_vec(), AnomalyKind::IntermediateRead, false)
    },
    |x, y, now| {
        let circle = [
            during(now, now + 9, &[append(Key(0), A), read(Key(1), &with(y, &[B]))]),
            during(now, now + 9, &[append(Key(1), B), read(Key(0), &with(x, &[A]))]),
        ];
        (circle.to_vec(), AnomalyKind::G1c, false)
    },
    |x, y, now| {
        let crossed = [
            during(now, now + 9, &[append(Key(0), A), append(Key(1), A)]),
            during(now, now + 9, &[append(Key(0), B), append(Key(1), B)]),
            during(now, now + 9, &[read(Key(0), &with(x, &[A, B]))]),
            during(now, now + 9, &[read(Key(1), &with(y, &[B, A]))]),
        ];
        (crossed.to_vec(), AnomalyKind::G0, false)
    },
    |x, _, now| {
        let split = [
            during(now, now + 9, &[append(Key(0), A)]),
            during(now, now + 9, &[append(Key(0), B)]),
            during(now, now + 9, &[read(Key(0), &with(x, &[A, C]))]),
            during(now, now + 9, &[read(Key(0), &with(x, &[B]))]),
            during(now, now + 9, &[append(Key(0), C)]),
        ];
        (split.to_vec(), AnomalyKind::Incompatible, false)
    },
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn what_really_happened_is_accepted(draws in draws(0..80, 4)) {
        let (history, _) = execute(&draws);
        prop_assert_eq!(verdict(&history), AppendVerdict::StrictlySerializable, "{:?}", history);
    }

    #[test]
    fn what_is_planted_is_found_and_named(draws in draws(0..60, 3), plant in 0..PLANTS.len()) {
        let (mut history, lists) = execute(&draws);
        let list = |key| lists.get(&Key(key)).cloned().unwrap_or_default();
        let first = history.len();
        let (planted, kind, needs_time) = PLANTS[plant](&list(0), &list(1), 100_000);
        history.extend(planted);
        let found = anomaly(&history);
        prop_assert_eq!((found.kind, found.needs_time), (kind, needs_time), "{}", found.describe(&history));
        prop_assert!(found.transactions.iter().all(|index| *index >= first), "{}", found.describe(&history));
    }
}

/// Tries all orders, without any of the checker's shortcuts. Those that may have happened may be left out.
fn some_order_explains(left: &[&Transaction], lists: &BTreeMap<Key, Vec<u64>>) -> bool {
    left.iter().all(|one| returned(one).is_none())
        || (0..left.len()).any(|at| {
            let may_be_next =
                left.iter().all(|other| returned(other).is_none_or(|moment| moment >= left[at].called));
            let others: Vec<&Transaction> = [&left[..at], &left[at + 1..]].concat();
            may_be_next && after(left[at], lists).is_some_and(|lists| some_order_explains(&others, &lists))
        })
}

fn returned(one: &Transaction) -> Option<u64> {
    match one.ended {
        Ended::Committed { at } => Some(at),
        Ended::Aborted | Ended::Unknown => None,
    }
}

/// The lists behind a transaction, if it reads what it did.
fn after(one: &Transaction, lists: &BTreeMap<Key, Vec<u64>>) -> Option<BTreeMap<Key, Vec<u64>>> {
    let mut lists = lists.clone();
    for step in &one.steps {
        match step {
            Step::Append { key, value } => lists.entry(*key).or_default().push(*value),
            Step::Read { key, values } => {
                let fits = lists.get(key).map_or(&[][..], Vec::as_slice) == values.as_slice();
                if !fits && returned(one).is_some() {
                    return None;
                }
            }
        }
    }
    Some(lists)
}

/// Small histories with one read replaced by another one.
#[test]
fn the_verdict_is_that_of_trying_all_orders() {
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let strategy = (draws(2..7, 2), any::<prop::sample::Index>(), 0_u8..4, 1_u64..8);
    let result = runner.run(&strategy, |(draws, victim, change, value)| {
        let (mut history, _) = execute(&draws);
        let mut reads: Vec<&mut Vec<u64>> =
            history.iter_mut().flat_map(|one| &mut one.steps).filter_map(values_of).collect();
        if !reads.is_empty() {
            let victim = victim.index(reads.len());
            alter(reads[victim], change, value);
        }
        let happening: Vec<&Transaction> = history.iter().filter(|one| one.ended != Ended::Aborted).collect();
        let expected = some_order_explains(&happening, &BTreeMap::new());
        let found = verdict(&history);
        prop_assert_eq!(found == AppendVerdict::StrictlySerializable, expected, "{:?}: {:?}", found, history);
        let count = if expected { &accepted } else { &refused };
        count.set(count.get() + 1);
        Ok(())
    });
    result.expect("both say the same");
    assert!(
        accepted.get() > 500 && refused.get() > 500,
        "{} accepted, {} refused",
        accepted.get(),
        refused.get()
    );
}

fn values_of(step: &mut Step) -> Option<&mut Vec<u64>> {
    match step {
        Step::Read { values, .. } => Some(values),
        Step::Append { .. } => None,
    }
}

fn alter(values: &mut Vec<u64>, change: u8, value: u64) {
    match change {
        0 => drop(values.pop()),
        1 => values.push(value),
        2 => values.reverse(),
        _ => values.clear(),
    }
}
