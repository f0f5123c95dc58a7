//! Whether transactions that append to lists and read them are strictly serializable: whether they could have come one
//! after the other, each at a moment between its call and its return.
//!
//! Values are unique, so a list that was read says who appended what, and in which order. From that follow which
//! transaction came before which; a circle of these is a proof that there was no order.
//!
//! Invariant: exact. "Strictly serializable" means that an order exists, an anomaly that none does. Time grows with
//! what was read, and n log n with the number of transactions; only making a circle small may take longer, and
//! is bounded.

mod cycle;
mod graph;
mod reads;
mod words;

use crate::model::Key;
use graph::Graph;
use reads::Lists;

/// A part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Appends a value to a list. No other step of a history appends the same value to it.
    Append {
        /// Which list.
        key: Key,
        /// What.
        value: u64,
    },
    /// Reads a list.
    Read {
        /// Which list.
        key: Key,
        /// What was found; of a transaction that did not commit it means nothing.
        values: Vec<u64>,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its client knows that it happened.
    Committed {
        /// When it knew.
        at: u64,
    },
    /// Its client knows that it did not happen.
    Aborted,
    /// It may have happened, at any time after its call.
    Unknown,
}

/// A transaction as its client saw it. All moments of a history are of one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Who called.
    pub client: u64,
    /// When.
    pub called: u64,
    /// How it ended.
    pub ended: Ended,
    /// What it did, in order.
    pub steps: Vec<Step>,
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendLimits {
    /// A history of more transactions is not judged.
    pub transactions_max: usize,
    /// How many steps may be taken to find a small circle and the name that fits it best; beyond, the best so far is told.
    pub smallest_steps_max: u64,
}

impl Default for AppendLimits {
    fn default() -> Self {
        AppendLimits { transactions_max: 1_000_000, smallest_steps_max: 10_000_000 }
    }
}

/// Whether a history is strictly serializable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendVerdict {
    /// Some order explains all reads.
    StrictlySerializable,
    /// None does.
    Anomaly(Anomaly),
    /// There are more transactions than are looked at.
    TooMany,
}

/// What kind of anomaly it is. Circles have the names that Adya gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// A value was read that nobody appended.
    Unwritten,
    /// A value stands twice in a list.
    Doubled,
    /// A transaction contradicts itself: it misses what it appended, or reads something else the second time.
    Internal,
    /// What one transaction appended to a list stands there in another order, or with holes.
    Reordered,
    /// G1a: a value was read whose transaction was aborted.
    AbortedRead,
    /// G1b: a transaction was read in the middle.
    IntermediateRead,
    /// Two reads of a list of which neither continues the other.
    Incompatible,
    /// G0: appends in a circle.
    G0,
    /// G1c: appends and reads of them in a circle.
    G1c,
    /// G-single: a circle with one read of a list before something was appended to it. A lost update is one.
    GSingle,
    /// G2: a circle with several of these. Write skew and a long fork are such.
    G2,
}

/// Why there is no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// Of what kind.
    pub kind: AnomalyKind,
    /// Without what clients know of time there would be an order: the history is serializable, but not strictly.
    pub needs_time: bool,
    /// The transactions that show it, as indices of the history; of a circle, each before the next one.
    pub transactions: Vec<usize>,
    /// Of a circle: why each comes before the next one, and the last one before the first.
    pub links: Vec<Link>,
    /// Whose list it is about, if it is no circle.
    pub key: Option<Key>,
}

/// Why one transaction comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// It appended to the list first.
    Appended(Key),
    /// The other one read what it appended.
    WasRead(Key),
    /// It read the list before the other one appended to it.
    ReadBefore(Key),
    /// It had returned when the other one was called.
    Returned,
}

/// Judges a history.
pub fn check_appends(history: &[Transaction], limits: AppendLimits) -> AppendVerdict {
    if history.len() > limits.transactions_max {
        return AppendVerdict::TooMany;
    }
    let found = Lists::read(history).and_then(|lists| {
        let graph = Graph::new(history, &lists);
        cycle::find(&graph, limits.smallest_steps_max).map_or(Ok(()), Err)
    });
    match found {
        Ok(()) => AppendVerdict::StrictlySerializable,
        Err(anomaly) => AppendVerdict::Anomaly(anomaly),
    }
}

impl Transaction {
    /// Its reads, if they mean something.
    fn reads(&self) -> impl Iterator<Item = (Key, &[u64])> + '_ {
        let means_something = matches!(self.ended, Ended::Committed { .. });
        self.steps.iter().filter(move |_| means_something).filter_map(|step| match step {
            Step::Read { key, values } => Some((*key, values.as_slice())),
            Step::Append { .. } => None,
        })
    }

    /// Its appends.
    fn appends(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        self.steps.iter().filter_map(|step| match step {
            Step::Append { key, value } => Some((*key, *value)),
            Step::Read { .. } => None,
        })
    }
}
