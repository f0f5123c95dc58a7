//! What a history is made of, and what its operations mean.
//!
//! Invariant: an operation without an answer may take effect at any time after its call, or never.

use std::fmt::Debug;
use std::hash::Hash;

/// Names a place of the state. Operations that share none cannot see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

/// One operation as its client saw it. All moments of a history are of one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation<Op, Reply> {
    /// Who called. The answered operations of one client take effect in the order of their calls.
    pub client: u64,
    /// When it was called.
    pub called: u64,
    /// What was called.
    pub op: Op,
    /// What came back, if anything did.
    pub answer: Option<Answer<Reply>>,
}

/// What came back, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<Reply> {
    /// When.
    pub at: u64,
    /// What.
    pub reply: Reply,
}

/// What operations do to a state and what they answer, one after the other.
pub trait Model {
    /// An operation.
    type Op: Clone + Debug;
    /// What it answers.
    type Reply: Clone + PartialEq + Debug;
    /// All keys with what they hold.
    type State: Clone + Eq + Hash;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// Does what `op` asks, and answers.
    fn apply(&self, state: &mut Self::State, op: &Self::Op) -> Self::Reply;

    /// Whether `op` may change the state.
    fn writes(&self, op: &Self::Op) -> bool;

    /// The keys that `op` reads or writes. It neither sees nor changes others.
    fn keys(&self, op: &Self::Op) -> Vec<Key>;

    /// Whether `reply` to `op` could be another one if `write` had never happened. "Yes" is always safe.
    fn may_show(&self, op: &Self::Op, reply: &Self::Reply, write: &Self::Op) -> bool;

    /// Whether what `op` writes could be something else if `write` had never happened: it counts up, or appends. A value
    /// read later then shows a write that it does not name. "Yes" is always safe; "no" is right where
    /// [`Model::may_show`] sees through such operations by itself.
    fn carries(&self, _op: &Self::Op, _write: &Self::Op) -> bool {
        false
    }

    /// An operation in words.
    fn describe(&self, op: &Self::Op, reply: Option<&Self::Reply>) -> String {
        match reply {
            Some(reply) => format!("{op:?} -> {reply:?}"),
            None => format!("{op:?}, never answered"),
        }
    }
}

/// The operations of a model's histories.
pub(crate) type OperationOf<M> = Operation<<M as Model>::Op, <M as Model>::Reply>;
