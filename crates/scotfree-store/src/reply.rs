//! What a shard answers.
//!
//! Invariant: there is one reply per operation, in their order; values are copies, so that later operations of the
//! batch do not change them.

use crate::item::Kind;

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done.
    Done,
    /// There is no such key, or no such field: nothing was changed.
    Absent,
    /// What it depends on is not so: nothing was changed.
    Unmet,
    /// There is no memory for it: nothing was changed (E3).
    Full,
    /// The value is of another kind.
    WrongKind,
    /// The value is no number.
    NotANumber,
    /// The number would be too large or too small.
    Overflow,
    /// The key, or the value that it would become, is longer than allowed.
    TooLong,
    /// The closure of an update refused.
    Refused,
}

/// In place of a value's length. Values are shorter.
const NO_VALUE: u32 = u32::MAX;

/// The answer to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// How it ended.
    pub outcome: Outcome,
    /// [`NO_VALUE`] if there is none.
    pub(crate) value_bytes: u32,
    pub(crate) value_at: usize,
    /// What it counts: a length, a number, seconds, how many.
    pub number: i64,
    /// The version of what was read or written; 0 in a shard that keeps none.
    pub version: u64,
}

impl Reply {
    #[inline(always)]
    pub(crate) fn of(outcome: Outcome) -> Reply {
        Reply { outcome, value_bytes: NO_VALUE, value_at: 0, number: 0, version: 0 }
    }

    pub(crate) fn number(number: i64) -> Reply {
        Reply { number, ..Reply::of(Outcome::Done) }
    }

    /// The kind of value that [`crate::Verb::Kind`] found.
    pub fn kind(&self) -> Kind {
        if self.number == 0 {
            Kind::String
        } else {
            Kind::Hash
        }
    }
}

/// The replies of a batch, in buffers that are used again.
#[derive(Debug, Default)]
pub struct Replies {
    replies: Vec<Reply>,
    bytes: Vec<u8>,
}

impl Replies {
    /// None yet.
    pub fn new() -> Replies {
        Replies::default()
    }

    /// Forgets all; the buffers stay.
    pub fn clear(&mut self) {
        self.replies.clear();
        self.bytes.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// The reply to the operation of that index.
    pub fn get(&self, index: usize) -> &Reply {
        &self.replies[index]
    }

    /// The value in a reply.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        let Reply { value_at, value_bytes, .. } = self.replies[index];
        (value_bytes != NO_VALUE).then(|| &self.bytes[value_at..value_at + value_bytes as usize])
    }

    /// All of them, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&Reply, Option<&[u8]>)> {
        (0..self.len()).map(|index| (self.get(index), self.value(index)))
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.replies.reserve(count);
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, reply: Reply) {
        self.replies.push(reply);
    }

    /// Says how the latest one ended.
    #[inline(always)]
    pub(crate) fn complete(&mut self, outcome: Outcome, version: u64) {
        if let Some(reply) = self.replies.last_mut() {
            (reply.outcome, reply.version) = (outcome, version);
        }
    }

    #[inline(always)]
    pub(crate) fn push_value(&mut self, reply: Reply, value: &[u8]) {
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.replies.push(Reply { value_bytes: value.len() as u32, value_at, ..reply });
    }

    /// A value that is written piece by piece.
    pub(crate) fn push_written(&mut self, reply: Reply, write: impl FnOnce(&mut Vec<u8>)) {
        let value_at = self.bytes.len();
        write(&mut self.bytes);
        let value_bytes = (self.bytes.len() - value_at) as u32;
        self.replies.push(Reply { value_bytes, value_at, ..reply });
    }
}
