//! The verdict on a history.
//!
//! Invariant: a history is called linearizable only if an order was found for each of its parts.

use crate::model::{Key, Model, OperationOf};
use crate::parts::parts_of;
use crate::search::{find_order, Found};
use crate::smallest::smallest_part;
use std::fmt::Write;

/// How long a verdict may take. A step looks at one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For each part of a history; beyond, its verdict is "unknown".
    pub steps_max: u64,
    /// For finding a small part of a violation; beyond, the smallest so far is told.
    pub smallest_steps_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps_max: 1_000_000, smallest_steps_max: 1_000_000 }
    }
}

/// Whether a history is linearizable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Some order explains all answers.
    Linearizable,
    /// None does.
    Violation(Violation),
    /// The search for an order was given up: too many operations overlap, or were never answered.
    Unknown {
        /// The keys whose operations it was about.
        keys: Vec<Key>,
        /// How many operations.
        operation_count: usize,
    },
}

/// Operations that no order explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The keys concerned.
    pub keys: Vec<Key>,
    /// The operations, as indices of the history, in the order of their calls: no order explains these,
    /// whether or not any of the others took effect, and whenever.
    pub operations: Vec<usize>,
}

/// Judges a history; the order in which operations stand in it does not matter, but for those of one
/// client that were called at the same moment.
pub fn check<M: Model>(model: &M, history: &[OperationOf<M>], limits: Limits) -> Verdict {
    for operation in history {
        let returned = operation.answer.as_ref().map_or(u64::MAX, |answer| answer.at);
        assert!(operation.called <= returned, "nothing returns before it is called: {operation:?}");
    }
    let mut verdict = Verdict::Linearizable;
    for part in parts_of(model, history) {
        let mut steps_left = limits.steps_max;
        match find_order(model, part.iter().map(|index| &history[*index]), &mut steps_left) {
            Found::Order => {}
            Found::NoOrder => {
                let operations = smallest_part(model, history, &part, limits.smallest_steps_max);
                let keys = keys_of(model, history, &operations);
                return Verdict::Violation(Violation { keys, operations });
            }
            Found::TooManySteps => {
                let keys = keys_of(model, history, &part);
                verdict = Verdict::Unknown { keys, operation_count: part.len() };
            }
        }
    }
    verdict
}

fn keys_of<M: Model>(model: &M, history: &[OperationOf<M>], operations: &[usize]) -> Vec<Key> {
    let mut keys: Vec<Key> = operations.iter().flat_map(|index| model.keys(&history[*index].op)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Violation {
    /// A line for each operation, with moments counted from the first call.
    pub fn describe<M: Model>(&self, model: &M, history: &[OperationOf<M>]) -> String {
        let keys: Vec<String> = self.keys.iter().map(|key| key.0.to_string()).collect();
        let mut text = format!("no order explains these operations on the keys {}:", keys.join(", "));
        let concerned = || self.operations.iter().map(|index| &history[*index]);
        let begin = concerned().map(|operation| operation.called).min().unwrap_or(0);
        for operation in concerned() {
            let called = operation.called - begin;
            let returned =
                operation.answer.as_ref().map_or("…".to_owned(), |answer| (answer.at - begin).to_string());
            let reply = operation.answer.as_ref().map(|answer| &answer.reply);
            let what = model.describe(&operation.op, reply);
            write!(text, "\n  {called:>12} .. {returned:<12} client {}: {what}", operation.client)
                .expect("a string takes all text");
        }
        text
    }
}
