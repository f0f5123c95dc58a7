//! A history falls into parts that share no key, each of which is judged alone (Herlihy and Wing:
//! linearizability is local).
//!
//! Invariant: every answered operation is in exactly one part; one that was never answered and whose
//! effect nobody can have seen is in none, since it may as well never have happened.

use crate::model::{Answer, Key, Model, OperationOf};
use std::collections::BTreeMap;

/// The operations of each part, as indices of the history in the order of their calls.
pub(crate) fn parts_of<M: Model>(model: &M, history: &[OperationOf<M>]) -> Vec<Vec<usize>> {
    let mut relevant: Vec<usize> = (0..history.len())
        .filter(|index| history[*index].answer.is_some() || leaves_trace(model, history, *index))
        .collect();
    relevant.sort_by_key(|index| history[*index].called);
    let mut groups = Groups::default();
    for index in &relevant {
        groups.join(&model.keys(&history[*index].op));
    }
    let mut parts: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for index in relevant {
        // One without keys sees nothing of the others.
        let first = model.keys(&history[index].op).first().copied().unwrap_or(Key(u32::MAX));
        parts.entry(groups.root(first)).or_default().push(index);
    }
    parts.into_values().collect()
}

/// Whether an answer could be another one if this operation had never happened.
pub(crate) fn leaves_trace<M: Model>(model: &M, history: &[OperationOf<M>], index: usize) -> bool {
    let write = &history[index].op;
    let shows = |(at, operation): (usize, &OperationOf<M>)| {
        let may_show = |answer: &Answer<M::Reply>| model.may_show(&operation.op, &answer.reply, write);
        at != index && model.carries(&operation.op, write) || operation.answer.as_ref().is_some_and(may_show)
    };
    model.writes(write) && history.iter().enumerate().any(shows)
}

/// Which keys belong together: each points towards the one that stands for its group.
#[derive(Default)]
struct Groups(BTreeMap<Key, Key>);

impl Groups {
    fn root(&self, mut key: Key) -> Key {
        while let Some(above) = self.0.get(&key) {
            key = *above;
        }
        key
    }

    fn join(&mut self, keys: &[Key]) {
        for pair in keys.windows(2) {
            let (one, other) = (self.root(pair[0]), self.root(pair[1]));
            // Towards the smaller, so that there is no circle.
            if one != other {
                self.0.insert(one.max(other), one.min(other));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Operation, Registers, Reply};

    fn parts(ops: &[(Op, Option<Reply>)]) -> Vec<Vec<usize>> {
        let operation = |(at, (op, reply)): (usize, &(Op, Option<Reply>))| {
            let answer = reply.clone().map(|reply| Answer { at: at as u64, reply });
            Operation { client: at as u64, called: at as u64, op: op.clone(), answer }
        };
        parts_of(&Registers, &ops.iter().enumerate().map(operation).collect::<Vec<_>>())
    }

    fn set(key: u32) -> (Op, Option<Reply>) {
        (Op::Set { key: Key(key), value: 1 }, Some(Reply::Done))
    }

    fn read(keys: &[u32], values: &[Option<u64>]) -> (Op, Option<Reply>) {
        let keys = keys.iter().map(|key| Key(*key)).collect();
        (Op::MGet { keys }, Some(Reply::Values(values.to_vec())))
    }

    #[test]
    fn operations_on_different_keys_are_apart_and_a_common_one_joins_them() {
        assert_eq!(parts(&[set(1), set(2), set(1)]), [vec![0, 2], vec![1]]);
        let chain = [set(1), set(2), set(3), read(&[1, 2], &[None; 2]), read(&[2, 3], &[None; 2]), set(4)];
        assert_eq!(parts(&chain), [vec![0, 1, 2, 3, 4], vec![5]]);
    }

    #[test]
    fn what_was_never_answered_joins_nothing_unless_it_was_seen() {
        let pending = (Op::MSet { pairs: vec![(Key(1), 7), (Key(2), 7)] }, None);
        assert_eq!(parts(&[set(1), set(2), pending.clone()]), [vec![0], vec![1]]);
        assert_eq!(parts(&[set(1), set(2), pending, read(&[2], &[Some(7)])]), [vec![0, 1, 2, 3]]);
        assert_eq!(parts(&[(Op::Get { key: Key(1) }, None)]), Vec::<Vec<usize>>::new());
        // What was counted up shows a write that it does not name.
        let (incr, lost) = ((Op::Incr { key: Key(1) }, None), (Op::Set { key: Key(1), value: 4 }, None));
        assert_eq!(parts(&[lost.clone(), read(&[1], &[Some(5)])]), [vec![1]]);
        assert_eq!(parts(&[lost, incr.clone(), read(&[1], &[Some(5)])]), [vec![0, 1, 2]]);
        assert_eq!(parts(&[incr, read(&[1], &[None])]), [vec![1]]);
    }
}
