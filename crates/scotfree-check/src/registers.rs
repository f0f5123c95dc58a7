//! The commands of a key-value store: strings by key, read, written and counted up, one or several at a time.
//!
//! Invariant: as `scot kv` and Redis execute them; a transaction is one operation.

use crate::model::{Key, Model};
use std::collections::BTreeMap;

/// The model of a key-value store, empty at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// SET.
    Set {
        /// Which.
        key: Key,
        /// To what.
        value: u64,
    },
    /// GET.
    Get {
        /// Which.
        key: Key,
    },
    /// DEL; answers how many there were.
    Del {
        /// Which.
        keys: Vec<Key>,
    },
    /// MSET, all at one instant.
    MSet {
        /// Which, and to what.
        pairs: Vec<(Key, u64)>,
    },
    /// MGET, all at one instant.
    MGet {
        /// Which.
        keys: Vec<Key>,
    },
    /// INCR: one more than there was, and 1 where there was nothing; answers with it.
    Incr {
        /// Which.
        key: Key,
    },
    /// Several commands at one instant.
    Transaction(Vec<Op>),
}

/// What a command answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Done,
    /// What was found, by key; `None` where there was nothing.
    Values(Vec<Option<u64>>),
    /// A number.
    Number(u64),
    /// The replies of a transaction's commands.
    All(Vec<Reply>),
}

impl Model for Registers {
    type Op = Op;
    type Reply = Reply;
    type State = BTreeMap<Key, u64>;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn apply(&self, state: &mut Self::State, op: &Op) -> Reply {
        match op {
            Op::Set { key, value } => {
                state.insert(*key, *value);
                Reply::Done
            }
            Op::Get { key } => Reply::Values(vec![state.get(key).copied()]),
            Op::Del { keys } => Reply::Number(keys.iter().filter_map(|key| state.remove(key)).count() as u64),
            Op::MSet { pairs } => {
                state.extend(pairs.iter().copied());
                Reply::Done
            }
            Op::MGet { keys } => Reply::Values(keys.iter().map(|key| state.get(key).copied()).collect()),
            Op::Incr { key } => {
                let value = state.entry(*key).or_default();
                *value = value.saturating_add(1);
                Reply::Number(*value)
            }
            Op::Transaction(ops) => Reply::All(ops.iter().map(|op| self.apply(state, op)).collect()),
        }
    }

    fn writes(&self, op: &Op) -> bool {
        match op {
            Op::Set { .. } | Op::Del { .. } | Op::MSet { .. } | Op::Incr { .. } => true,
            Op::Get { .. } | Op::MGet { .. } => false,
            Op::Transaction(ops) => ops.iter().any(|op| self.writes(op)),
        }
    }

    fn keys(&self, op: &Op) -> Vec<Key> {
        match op {
            Op::Set { key, .. } | Op::Get { key } | Op::Incr { key } => vec![*key],
            Op::Del { keys } | Op::MGet { keys } => keys.clone(),
            Op::MSet { pairs } => pairs.iter().map(|(key, _)| *key).collect(),
            Op::Transaction(ops) => ops.iter().flat_map(|op| self.keys(op)).collect(),
        }
    }

    fn may_show(&self, op: &Op, reply: &Reply, write: &Op) -> bool {
        match (op, reply) {
            (Op::Set { .. } | Op::MSet { .. }, _) => false,
            (Op::Get { key }, Reply::Values(values)) => shows(&[*key], values, write),
            (Op::MGet { keys }, Reply::Values(values)) => shows(keys, values, write),
            (Op::Transaction(ops), Reply::All(replies)) => {
                ops.iter().zip(replies).any(|(op, reply)| self.may_show(op, reply, write))
            }
            // How many there were, and what was counted up, depends on every write.
            (Op::Get { .. } | Op::MGet { .. } | Op::Del { .. } | Op::Incr { .. } | Op::Transaction(_), _) => {
                let written = self.keys(write);
                self.keys(op).iter().any(|key| written.contains(key))
            }
        }
    }

    fn carries(&self, op: &Op, write: &Op) -> bool {
        match op {
            Op::Incr { key } => self.keys(write).contains(key),
            Op::Transaction(ops) => ops.iter().any(|op| self.carries(op, write)),
            Op::Set { .. } | Op::Get { .. } | Op::Del { .. } | Op::MSet { .. } | Op::MGet { .. } => false,
        }
    }

    fn describe(&self, op: &Op, reply: Option<&Reply>) -> String {
        let reply = reply.map_or("never answered".to_owned(), words_of_reply);
        format!("{} -> {reply}", words_of(op))
    }
}

/// Whether a value read may come from a write.
fn shows(keys: &[Key], values: &[Option<u64>], write: &Op) -> bool {
    keys.iter().zip(values).any(|(key, value)| match write {
        Op::Set { key: written, value: new } => key == written && *value == Some(*new),
        Op::MSet { pairs } => pairs.iter().any(|(written, new)| key == written && *value == Some(*new)),
        Op::Del { keys: deleted } => deleted.contains(key) && value.is_none(),
        Op::Incr { key: counted } => key == counted && value.is_some(),
        Op::Transaction(ops) => ops.iter().any(|op| shows(&[*key], &[*value], op)),
        Op::Get { .. } | Op::MGet { .. } => false,
    })
}

fn words_of(op: &Op) -> String {
    let list = |keys: &[Key]| keys.iter().fold(String::new(), |text, key| format!("{text} k{}", key.0));
    match op {
        Op::Set { key, value } => format!("SET k{} {value}", key.0),
        Op::Get { key } => format!("GET k{}", key.0),
        Op::Del { keys } => format!("DEL{}", list(keys)),
        Op::MSet { pairs } => {
            pairs.iter().fold("MSET".to_owned(), |text, (key, value)| format!("{text} k{} {value}", key.0))
        }
        Op::MGet { keys } => format!("MGET{}", list(keys)),
        Op::Incr { key } => format!("INCR k{}", key.0),
        Op::Transaction(ops) => format!("[{}]", ops.iter().map(words_of).collect::<Vec<_>>().join("; ")),
    }
}

fn words_of_reply(reply: &Reply) -> String {
    let value = |value: &Option<u64>| value.map_or("nothing".to_owned(), |value| value.to_string());
    match reply {
        Reply::Done => "OK".to_owned(),
        Reply::Values(values) => values.iter().map(value).collect::<Vec<_>>().join(" "),
        Reply::Number(number) => number.to_string(),
        Reply::All(replies) => {
            format!("[{}]", replies.iter().map(words_of_reply).collect::<Vec<_>>().join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_do_what_they_do_in_a_store() {
        let (one, two) = (Key(1), Key(2));
        let mut state = Registers.initial();
        let mut run = |op| Registers.apply(&mut state, &op);
        assert_eq!(run(Op::Get { key: one }), Reply::Values(vec![None]));
        assert_eq!(run(Op::MSet { pairs: vec![(one, 5), (two, 6)] }), Reply::Done);
        let swap = Op::Transaction(vec![Op::Get { key: one }, Op::Set { key: one, value: 9 }]);
        assert_eq!(run(swap), Reply::All(vec![Reply::Values(vec![Some(5)]), Reply::Done]));
        assert_eq!(run(Op::MGet { keys: vec![two, one] }), Reply::Values(vec![Some(6), Some(9)]));
        assert_eq!(run(Op::Incr { key: one }), Reply::Number(10));
        assert_eq!(run(Op::Del { keys: vec![one, two, one] }), Reply::Number(2));
        assert_eq!(run(Op::Incr { key: one }), Reply::Number(1));
    }

    #[test]
    fn operations_are_told_as_commands() {
        let op =
            Op::Transaction(vec![Op::MGet { keys: vec![Key(1), Key(2)] }, Op::Del { keys: vec![Key(1)] }]);
        let reply = Reply::All(vec![Reply::Values(vec![Some(5), None]), Reply::Number(1)]);
        assert_eq!(Registers.describe(&op, Some(&reply)), "[MGET k1 k2; DEL k1] -> [5 nothing; 1]");
        let op = Op::MSet { pairs: vec![(Key(1), 5)] };
        assert_eq!(Registers.describe(&op, None), "MSET k1 5 -> never answered");
    }
}
