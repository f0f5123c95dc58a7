//! Histories made by hand, each named for what it shows, with the verdict that a person would give.

use scotfree_check::{check, Answer, Key, Limits, Model, Op, Operation, Registers, Reply, Verdict};

type History = Vec<Operation<Op, Reply>>;

const X: Key = Key(1);
const Y: Key = Key(2);

fn done(client: u64, called: u64, at: u64, op: Op, reply: Reply) -> Operation<Op, Reply> {
    Operation { client, called, op, answer: Some(Answer { at, reply }) }
}

/// Never answered.
fn cut(client: u64, called: u64, op: Op) -> Operation<Op, Reply> {
    Operation { client, called, op, answer: None }
}

fn to(key: Key, value: u64) -> Op {
    Op::Set { key, value }
}

fn both(x: u64, y: u64) -> Op {
    Op::MSet { pairs: vec![(X, x), (Y, y)] }
}

fn set(client: u64, called: u64, at: u64, key: Key, value: u64) -> Operation<Op, Reply> {
    done(client, called, at, to(key, value), Reply::Done)
}

fn set_both(client: u64, called: u64, at: u64, x: u64, y: u64) -> Operation<Op, Reply> {
    done(client, called, at, both(x, y), Reply::Done)
}

/// A read; 0 stands for nothing.
fn get(client: u64, called: u64, at: u64, key: Key, value: u64) -> Operation<Op, Reply> {
    done(client, called, at, Op::Get { key }, found(&[value]))
}

fn get_both(client: u64, called: u64, at: u64, x: u64, y: u64) -> Operation<Op, Reply> {
    done(client, called, at, Op::MGet { keys: vec![X, Y] }, found(&[x, y]))
}

fn found(values: &[u64]) -> Reply {
    Reply::Values(values.iter().map(|value| (*value != 0).then_some(*value)).collect())
}

fn del(client: u64, called: u64, at: u64, key: Key, count: u64) -> Operation<Op, Reply> {
    done(client, called, at, Op::Del { keys: vec![key] }, Reply::Number(count))
}

/// Reads one and writes it anew at one instant.
fn exchange(client: u64, called: u64, at: u64, key: Key, old: u64, new: u64) -> Operation<Op, Reply> {
    let op = Op::Transaction(vec![Op::Get { key }, to(key, new)]);
    done(client, called, at, op, Reply::All(vec![found(&[old]), Reply::Done]))
}

fn swap_in(new: u64) -> Op {
    Op::Transaction(vec![Op::Get { key: X }, to(X, new)])
}

fn good() -> Vec<(&'static str, History)> {
    vec![
        ("nothing happened", vec![]),
        ("one after the other", vec![set(1, 0, 1, X, 5), get(2, 2, 3, X, 5)]),
        ("what is not there is read as nothing", vec![get(1, 0, 1, X, 0), del(1, 2, 3, X, 0)]),
        ("a read during a write may see the new value", vec![set(1, 0, 9, X, 5), get(2, 1, 2, X, 5)]),
        ("a read during a write may see the old value", vec![set(1, 0, 9, X, 5), get(2, 1, 2, X, 0)]),
        (
            "two writes at once may come in either order",
            vec![set(1, 0, 9, X, 5), set(2, 0, 9, X, 6), get(3, 10, 11, X, 5)],
        ),
        (
            "called at the moment when another returns is not after it",
            vec![set(1, 0, 5, X, 5), get(2, 5, 6, X, 0)],
        ),
        ("a write without an answer takes effect late", {
            vec![cut(1, 0, to(X, 5)), get(2, 1, 2, X, 0), set(2, 3, 4, X, 6), get(2, 5, 6, X, 5)]
        }),
        ("a write without an answer never takes effect", vec![cut(1, 0, to(X, 5)), get(2, 1, 2, X, 0)]),
        ("a read without an answer says nothing", vec![cut(1, 0, Op::Get { key: X }), set(2, 1, 2, X, 5)]),
        ("two writes without answers take effect in the order not of their calls", {
            vec![cut(1, 0, to(X, 5)), cut(2, 1, to(X, 6)), get(3, 2, 3, X, 6), get(3, 4, 5, X, 5)]
        }),
        ("a deletion without an answer explains that something is gone", {
            vec![
                set(1, 0, 1, X, 5),
                cut(2, 2, Op::Del { keys: vec![X] }),
                get(1, 3, 4, X, 5),
                get(1, 5, 6, X, 0),
            ]
        }),
        (
            "an MSET is seen whole",
            vec![set_both(1, 0, 9, 5, 6), get_both(2, 1, 2, 0, 0), get_both(2, 3, 4, 5, 6)],
        ),
        ("single reads around the instant of an MSET", {
            vec![set_both(1, 0, 9, 5, 6), get(2, 1, 2, X, 0), get(3, 3, 4, Y, 6), get(2, 5, 6, X, 5)]
        }),
        ("an MSET without an answer is seen whole, late", {
            vec![cut(1, 0, both(5, 6)), get_both(2, 1, 2, 0, 0), get_both(2, 3, 4, 5, 6)]
        }),
        (
            "an exchange without an answer has happened",
            vec![cut(1, 0, swap_in(5)), exchange(2, 1, 2, X, 5, 6)],
        ),
        ("exchanges hand the value on", vec![exchange(1, 0, 9, X, 6, 5), exchange(2, 0, 9, X, 0, 6)]),
        ("a client may have several calls under way", {
            vec![set(1, 0, 9, X, 5), set(1, 1, 9, X, 6), get(1, 2, 9, X, 6), get(2, 10, 11, X, 6)]
        }),
    ]
}

fn bad() -> Vec<(&'static str, History, usize)> {
    vec![
        ("stale read", vec![set(1, 0, 1, X, 5), set(1, 2, 3, X, 6), get(2, 4, 5, X, 5)], 3),
        ("a completed write is lost", vec![set(1, 0, 1, X, 5), get(2, 2, 3, X, 0)], 2),
        ("a read from the future", vec![get(2, 0, 1, X, 5), set(1, 2, 3, X, 5)], 1),
        ("a value that nobody wrote", vec![set(1, 0, 1, X, 5), get(2, 2, 3, X, 7)], 1),
        ("lost update", vec![exchange(1, 0, 9, X, 0, 5), exchange(2, 0, 9, X, 0, 6)], 2),
        (
            "lost update by an exchange",
            { vec![set(1, 0, 1, X, 4), exchange(1, 2, 9, X, 4, 5), exchange(2, 2, 9, X, 4, 6)] },
            3,
        ),
        (
            "two reads in contradictory order by one client",
            { vec![set(1, 0, 9, X, 5), get(2, 1, 2, X, 5), get(2, 3, 4, X, 0)] },
            3,
        ),
        (
            "two reads in contradictory order by two clients",
            { vec![set(1, 0, 9, X, 5), get(2, 1, 2, X, 5), get(3, 3, 4, X, 0)] },
            3,
        ),
        (
            "two clients see two writes in opposite orders",
            {
                vec![
                    set(1, 0, 9, X, 5),
                    set(2, 0, 9, X, 6),
                    get(3, 1, 2, X, 5),
                    get(3, 3, 7, X, 6),
                    get(4, 1, 2, X, 6),
                    get(4, 3, 7, X, 5),
                ]
            },
            6,
        ),
        ("an MGET sees half an MSET", vec![set_both(1, 0, 9, 5, 6), get_both(2, 1, 2, 5, 0)], 2),
        (
            "an MGET sees half an MSET that was never answered",
            { vec![cut(1, 0, both(5, 6)), get_both(2, 1, 2, 0, 6)] },
            2,
        ),
        (
            "single reads see half an MSET",
            { vec![set_both(1, 0, 9, 5, 6), get(2, 1, 2, X, 5), get(2, 3, 4, Y, 0)] },
            3,
        ),
        (
            "two snapshots split over two keys",
            {
                vec![set(1, 0, 9, X, 5), set(2, 0, 9, Y, 6), get_both(3, 1, 2, 5, 0), get_both(4, 1, 2, 0, 6)]
            },
            4,
        ),
        (
            "write skew: each reads the key that the other one writes",
            {
                let skew = |client, read: Key, written: Key| {
                    let op = Op::Transaction(vec![Op::Get { key: read }, to(written, 7)]);
                    done(client, 0, 9, op, Reply::All(vec![found(&[0]), Reply::Done]))
                };
                vec![skew(1, X, Y), skew(2, Y, X)]
            },
            2,
        ),
        (
            "a write without an answer takes effect twice",
            { vec![cut(1, 0, to(X, 5)), get(2, 1, 2, X, 5), set(2, 3, 4, X, 6), get(2, 5, 6, X, 5)] },
            4,
        ),
        (
            "a write without an answer takes effect before it was called",
            { vec![get(2, 0, 1, X, 5), cut(1, 2, to(X, 5))] },
            1,
        ),
        (
            "an exchange finds what was exchanged before",
            { vec![exchange(1, 0, 1, X, 0, 5), exchange(1, 2, 3, X, 5, 6), exchange(2, 4, 5, X, 5, 7)] },
            3,
        ),
        ("a deleted key comes back", { vec![set(1, 0, 1, X, 5), del(1, 2, 3, X, 1), get(2, 4, 5, X, 5)] }, 3),
        ("a deletion answers that there was nothing", vec![set(1, 0, 1, X, 5), del(2, 2, 3, X, 0)], 2),
        ("one key is deleted twice", { vec![set(1, 0, 1, X, 5), del(1, 2, 9, X, 1), del(2, 2, 9, X, 1)] }, 3),
        (
            "calls of one client take effect out of their order",
            { vec![set(1, 0, 9, X, 5), set(1, 1, 9, X, 6), get(2, 10, 11, X, 5)] },
            3,
        ),
        (
            "a strict read behind an early answer is stale",
            {
                // The device answered the SET at once; the server had not executed it yet.
                vec![set(1, 0, 1, X, 5), set_both(1, 2, 3, 8, 9), get_both(2, 4, 5, 5, 0)]
            },
            3,
        ),
    ]
}

#[test]
fn good_histories_are_accepted() {
    for (name, history) in good() {
        assert_eq!(check(&Registers, &history, Limits::default()), Verdict::Linearizable, "{name}");
    }
}

#[test]
fn bad_histories_are_refused_with_what_is_wrong_in_them() {
    for (name, history, concerned_count) in bad() {
        let verdict = check(&Registers, &history, Limits::default());
        let Verdict::Violation(violation) = verdict else { panic!("{name}: {verdict:?}") };
        let told = violation.describe(&Registers, &history);
        assert_eq!(violation.operations.len(), concerned_count, "{name}: {told}");
    }
}

/// A bad history hidden among much that is in order: only what is wrong is told.
#[test]
fn what_is_wrong_is_found_among_much_that_is_not() {
    for (name, bad, concerned_count) in bad() {
        let mut history: History = Vec::new();
        for at in 0..100 {
            let (key, value) = (Key(3 + (at % 2) as u32), 1_000 + at);
            history.push(set(9, 10 * at, 10 * at + 3, key, value));
            history.push(get(8, 10 * at + 4, 10 * at + 8, key, value));
            // All keys hang together.
            let op = Op::MGet { keys: vec![X, Y, key] };
            history.push(done(7, 10 * at + 4, 10 * at + 8, op, found(&[0, 0, value])));
        }
        let moved = |moment: u64| moment + 3_000;
        history.extend(bad.into_iter().map(|mut operation| {
            operation.called = moved(operation.called);
            operation.answer = operation.answer.map(|answer| Answer { at: moved(answer.at), ..answer });
            operation
        }));
        let verdict = check(&Registers, &history, Limits::default());
        let Verdict::Violation(violation) = verdict else { panic!("{name}: {verdict:?}") };
        let told = violation.describe(&Registers, &history);
        assert_eq!(violation.operations.len(), concerned_count, "{name}: {told}");
        assert!(violation.keys.iter().all(|key| [X, Y].contains(key)), "{name}: {told}");
    }
}

#[test]
fn a_violation_is_told_with_its_moments() {
    let history = vec![set(1, 100, 110, X, 5), set(1, 120, 130, X, 6), get(2, 140, 150, X, 5)];
    let Verdict::Violation(violation) = check(&Registers, &history, Limits::default()) else {
        panic!("it is stale");
    };
    let told = violation.describe(&Registers, &history);
    let lines: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "no order explains these operations on the keys 1:");
    assert_eq!(lines[1].join(" "), "0 .. 10 client 1: SET k1 5 -> OK");
    assert_eq!(lines[3].join(" "), "40 .. 50 client 2: GET k1 -> 5");
}

/// Eight writers at once, and a reader who saw none of them last.
fn hard() -> History {
    let mut history: History = (0..8).map(|at| set(at, 0, 100, X, at + 1)).collect();
    history.extend((0..8).map(|at| get(20 + at, 0, 100, X, at + 1)));
    history.push(get(50, 101, 102, X, 99));
    history.push(cut(51, 0, to(X, 99)));
    history.push(get(50, 103, 104, X, 1));
    history
}

#[test]
fn at_steps_max_the_verdict_is_unknown_and_never_that_all_is_well() {
    for steps_max in [0, 1, 10, 100] {
        let limits = Limits { steps_max, smallest_steps_max: 0 };
        let verdict = check(&Registers, &hard(), limits);
        assert_eq!(verdict, Verdict::Unknown { keys: vec![X], operation_count: 19 }, "{steps_max}");
    }
    // A violation elsewhere is one all the same.
    let mut history = hard();
    history.extend([set(1, 0, 1, Y, 5), get(2, 2, 3, Y, 0)]);
    let limits = Limits { steps_max: 100, smallest_steps_max: 0 };
    assert!(matches!(check(&Registers, &history, limits), Verdict::Violation(_)));
    let limits = Limits { steps_max: 50_000, smallest_steps_max: 0 };
    assert!(matches!(check(&Registers, &hard(), limits), Verdict::Violation(_)));
}

#[test]
fn at_smallest_steps_max_the_smallest_so_far_is_told() {
    let history = vec![set(1, 0, 1, X, 5), get(1, 2, 3, X, 5), set(1, 4, 5, X, 6), get(2, 6, 7, X, 5)];
    let told_count = |smallest_steps_max| {
        let limits = Limits { smallest_steps_max, ..Limits::default() };
        match check(&Registers, &history, limits) {
            Verdict::Violation(violation) => violation.operations.len(),
            verdict => panic!("{verdict:?}"),
        }
    };
    assert_eq!((told_count(0), told_count(1_000)), (4, 3));
}

#[test]
fn a_long_history_takes_a_step_for_each_operation() {
    let mut history: History = Vec::new();
    for at in 0..2_000 {
        let (client, called) = (at % 4, 10 * at);
        // Each overlaps with the next three.
        history.push(set(client, called, called + 35, Key(at as u32 % 3), at + 1));
        let keys = (0..3).map(Key).collect();
        let op = Op::MGet { keys };
        let mut state = Registers.initial();
        for operation in &history {
            Registers.apply(&mut state, &operation.op);
        }
        let reply = Registers.apply(&mut state, &op);
        history.push(done(10 + client, called + 5, called + 7, op, reply));
    }
    let limits = Limits { steps_max: 20_000, smallest_steps_max: 0 };
    assert_eq!(check(&Registers, &history[..1_000], limits), Verdict::Linearizable);
}

#[test]
fn an_increment_that_is_lost_or_doubled_is_found() {
    let incr =
        |client, called, at, count| done(client, called, at, Op::Incr { key: X }, Reply::Number(count));
    let good = vec![incr(1, 0, 10, 2), incr(2, 5, 15, 1), get(3, 20, 25, X, 2)];
    assert_eq!(check(&Registers, &good, Limits::default()), Verdict::Linearizable);
    let lost = vec![incr(1, 0, 10, 1), incr(2, 5, 15, 1)];
    assert!(matches!(check(&Registers, &lost, Limits::default()), Verdict::Violation(_)));
    let doubled = vec![incr(1, 0, 10, 1), get(2, 20, 25, X, 2)];
    assert!(matches!(check(&Registers, &doubled, Limits::default()), Verdict::Violation(_)));
    // One that was never answered may have happened, once.
    let mut once = vec![cut(1, 0, Op::Incr { key: X }), incr(2, 5, 10, 2)];
    assert_eq!(check(&Registers, &once, Limits::default()), Verdict::Linearizable);
    once.push(get(3, 20, 25, X, 3));
    assert!(matches!(check(&Registers, &once, Limits::default()), Verdict::Violation(_)));
}
