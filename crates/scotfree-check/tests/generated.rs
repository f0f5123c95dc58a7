//! Histories drawn by chance: what really happened one after the other is accepted, however calls and
//! answers are spread around it; and the verdict on small ones is that of trying all orders.

use proptest::prelude::*;
use scotfree_check::{check, Answer, Key, Limits, Model, Op, Operation, Registers, Reply, Verdict};
use std::cell::Cell;

type Call = Operation<Op, Reply>;

/// One operation of a true execution, and how its call and answer are spread around it.
#[derive(Debug, Clone)]
struct Step {
    client: u64,
    op: Op,
    before: u64,
    after: u64,
    is_answered: bool,
}

/// How far apart operations are executed.
const STRIDE: u64 = 10;

fn key() -> impl Strategy<Value = Key> {
    (0_u32..3).prop_map(Key)
}

fn op() -> impl Strategy<Value = Op> {
    let keys = || prop::collection::vec(key(), 1..3);
    let set = || (key(), 1_u64..4).prop_map(|(key, value)| Op::Set { key, value });
    let get = || key().prop_map(|key| Op::Get { key });
    let pairs = prop::collection::vec((key(), 1_u64..4), 1..3);
    prop_oneof![
        3 => set(),
        3 => get(),
        1 => keys().prop_map(|keys| Op::Del { keys }),
        2 => key().prop_map(|key| Op::Incr { key }),
        2 => pairs.prop_map(|pairs| Op::MSet { pairs }),
        2 => keys().prop_map(|keys| Op::MGet { keys }),
        1 => (get(), set()).prop_map(|(get, set)| Op::Transaction(vec![get, set])),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    (0_u64..4, op(), 0_u64..40, 0_u64..40, prop::bool::weighted(0.85))
        .prop_map(|(client, op, before, after, is_answered)| Step { client, op, before, after, is_answered })
}

/// What clients see of an execution. One that was never answered may or may not be executed.
fn history(steps: &[Step]) -> Vec<Call> {
    let mut state = Registers.initial();
    let mut executed_last = [0; 4];
    let mut calls = Vec::new();
    for (step, executed) in steps.iter().zip((1..).map(|number| STRIDE * number)) {
        let client = step.client as usize;
        // The calls of a client are in the order of their execution.
        let called = executed - step.before.min(executed - executed_last[client]);
        executed_last[client] = executed;
        let is_lost = !step.is_answered && step.before % 2 == 0;
        let reply = if is_lost { Reply::Done } else { Registers.apply(&mut state, &step.op) };
        let answer = step.is_answered.then_some(Answer { at: executed + step.after, reply });
        calls.push(Operation { client: step.client, called, op: step.op.clone(), answer });
    }
    calls
}

/// The same where nobody calls before the last answer has come: who is still waiting is somebody else.
fn patient(steps: &[Step]) -> Vec<Call> {
    let mut calls = history(steps);
    for at in 1..calls.len() {
        let (before, rest) = calls.split_at_mut(at);
        let is_waiting = |call: &Call| {
            call.client == rest[0].client
                && call.answer.as_ref().is_none_or(|answer| answer.at >= rest[0].called)
        };
        if before.iter().any(is_waiting) {
            rest[0].client = 10 + at as u64;
        }
    }
    calls
}

/// Tries all orders, without any of the checker's shortcuts.
fn some_order_explains(left: &[&Call], state: &<Registers as Model>::State) -> bool {
    left.iter().all(|call| call.answer.is_none())
        || (0..left.len()).filter(|at| may_be_next(left, *at)).any(|at| {
            let mut after = state.clone();
            let reply = Registers.apply(&mut after, &left[at].op);
            let fits = left[at].answer.as_ref().is_none_or(|answer| answer.reply == reply);
            let others: Vec<&Call> = [&left[..at], &left[at + 1..]].concat();
            fits && some_order_explains(&others, &after)
        })
}

fn may_be_next(left: &[&Call], at: usize) -> bool {
    let called = left[at].called;
    left.iter().all(|other| other.answer.as_ref().is_none_or(|answer| answer.at >= called))
}

fn verdict(calls: &[Call]) -> Verdict {
    check(&Registers, calls, Limits::default())
}

fn is_accepted(calls: &[Call]) -> bool {
    match verdict(calls) {
        Verdict::Linearizable => true,
        Verdict::Violation(_) => false,
        unknown @ Verdict::Unknown { .. } => panic!("{unknown:?}: {calls:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn what_really_happened_is_accepted(steps in prop::collection::vec(step(), 0..60)) {
        let calls = history(&steps);
        prop_assert_eq!(verdict(&calls), Verdict::Linearizable, "{:?}", calls);
    }

    #[test]
    fn a_value_that_nobody_wrote_is_refused(
        steps in prop::collection::vec(step(), 1..25), read in 0_u64..60, at in 0_u64..600,
    ) {
        let mut calls = history(&steps);
        let reply = Reply::Values(vec![Some(1_000 + read)]);
        let op = Op::Get { key: Key((read % 3) as u32) };
        calls.push(Operation { client: 9, called: at, op, answer: Some(Answer { at: at + read, reply }) });
        let Verdict::Violation(violation) = verdict(&calls) else { panic!("{calls:?}") };
        prop_assert!(violation.operations.contains(&(calls.len() - 1)), "{:?}", violation);
    }
}

/// Small histories with one reply replaced by another one: the verdict is that of trying all orders, and
/// what is told of a violation is one by itself.
#[test]
fn the_verdict_is_that_of_trying_all_orders() {
    let (accepted_count, refused_count) = (Cell::new(0), Cell::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(3_000));
    let strategy = (prop::collection::vec(step(), 2..8), any::<prop::sample::Index>(), 0_u64..4);
    let result = runner.run(&strategy, |(steps, victim, value)| {
        let mut calls = patient(&steps);
        let victim = victim.index(calls.len());
        if let Some(answer) = &mut calls[victim].answer {
            answer.reply = another(&answer.reply, value);
        }
        let left: Vec<&Call> = calls.iter().collect();
        let expected = some_order_explains(&left, &Registers.initial());
        prop_assert_eq!(is_accepted(&calls), expected, "{:?}", calls);
        let count = if expected { &accepted_count } else { &refused_count };
        count.set(count.get() + 1);
        if let Verdict::Violation(violation) = verdict(&calls) {
            let told: Vec<&Call> = violation.operations.iter().map(|index| &calls[*index]).collect();
            prop_assert!(!some_order_explains(&told, &Registers.initial()), "{:?}", told);
        }
        Ok(())
    });
    result.expect("both say the same");
    let (accepted, refused) = (accepted_count.get(), refused_count.get());
    assert!(accepted > 500 && refused > 500, "{accepted} accepted, {refused} refused");
}

fn another(reply: &Reply, value: u64) -> Reply {
    match reply {
        Reply::Done => Reply::Done,
        Reply::Number(number) => Reply::Number(number + value),
        Reply::Values(values) => {
            let mut values = values.clone();
            values[0] = (value != 0).then_some(value);
            Reply::Values(values)
        }
        Reply::All(replies) => Reply::All(replies.iter().map(|reply| another(reply, value)).collect()),
    }
}
