//! Numbers by key, and what the group's clients do with them.
//!
//! Invariant: an operation's bytes are read back; others are none.

use scotfree_check::{Key, Model};
use std::collections::BTreeMap;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Sets a number.
    Set(u8, u64),
    /// Adds one, and answers the sum.
    Incr(u8),
    /// Reads a number.
    Get(u8),
    /// Sets two numbers at one instant.
    SetBoth(u8, u8, u64),
    /// Reads two numbers at one instant.
    GetBoth(u8, u8),
    /// Removes a number, and answers whether there was one.
    Del(u8),
    /// A write of a number that was refused, as histories have it: it changes nothing.
    Refused(u8),
}

/// What is answered: one number or two; 0 where there is none.
pub type Reply = Vec<u64>;

/// What a write is answered that finds no room.
pub(crate) const REFUSED: u64 = u64::MAX;

impl Op {
    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Op::Get(_) | Op::GetBoth(..) | Op::Refused(_))
    }

    /// Its keys.
    pub fn keys(self) -> Vec<u8> {
        match self {
            Op::Set(key, _) | Op::Incr(key) | Op::Get(key) | Op::Del(key) | Op::Refused(key) => vec![key],
            Op::SetBoth(one, two, _) | Op::GetBoth(one, two) => vec![one, two],
        }
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 11] {
        let (code, one, two, value) = match self {
            Op::Set(key, value) => (1, key, 0, value),
            Op::Incr(key) => (2, key, 0, 0),
            Op::Get(key) => (3, key, 0, 0),
            Op::SetBoth(one, two, value) => (4, one, two, value),
            Op::GetBoth(one, two) => (5, one, two, 0),
            Op::Del(key) => (6, key, 0, 0),
            Op::Refused(key) => (7, key, 0, 0),
        };
        let mut bytes = [code, one, two, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[3..].copy_from_slice(&u64::to_le_bytes(value));
        bytes
    }

    /// The operation of these bytes.
    pub fn read(bytes: &[u8]) -> Option<Op> {
        let (&[code, one, two], value) = bytes.split_first_chunk::<3>()?;
        let value = u64::from_le_bytes(value.try_into().ok()?);
        match code {
            1 => Some(Op::Set(one, value)),
            2 => Some(Op::Incr(one)),
            3 => Some(Op::Get(one)),
            4 => Some(Op::SetBoth(one, two, value)),
            5 => Some(Op::GetBoth(one, two)),
            6 => Some(Op::Del(one)),
            _ => None,
        }
    }

    /// What it was, given its answer.
    pub(crate) fn answered(self, reply: &[u64]) -> Op {
        match self {
            _ if reply != [REFUSED] => self,
            Op::Set(key, _) | Op::Incr(key) | Op::Get(key) | Op::Del(key) | Op::Refused(key) => {
                Op::Refused(key)
            }
            Op::SetBoth(one, ..) | Op::GetBoth(one, _) => Op::Refused(one),
        }
    }

    /// Does it if there is room, and says whether there was.
    pub(crate) fn try_run(self, numbers: &mut BTreeMap<u8, u64>) -> (Reply, bool) {
        let mut after = numbers.clone();
        let reply = self.run(&mut after);
        let takes = |numbers: &BTreeMap<u8, u64>| {
            numbers.values().map(|number| (number >> 8) % TAKES_END).sum::<u64>()
        };
        if takes(&after) > ROOM.max(takes(numbers)) {
            return (vec![REFUSED], false);
        }
        *numbers = after;
        (reply, true)
    }

    /// Does it.
    pub fn run(self, numbers: &mut BTreeMap<u8, u64>) -> Reply {
        let at = |numbers: &BTreeMap<u8, u64>, key| numbers.get(&key).copied().unwrap_or(0);
        match self {
            Op::Set(key, value) => {
                numbers.insert(key, value);
                vec![0]
            }
            Op::Incr(key) => {
                let sum = at(numbers, key) + 1;
                numbers.insert(key, sum);
                vec![sum]
            }
            Op::Get(key) => vec![at(numbers, key)],
            Op::SetBoth(one, two, value) => {
                numbers.extend([(one, value), (two, value)]);
                vec![0]
            }
            Op::GetBoth(one, two) => vec![at(numbers, one), at(numbers, two)],
            Op::Del(key) => vec![u64::from(numbers.remove(&key).is_some())],
            Op::Refused(_) => vec![REFUSED],
        }
    }
}

/// A number takes less room than this. One that takes most finds none even alone.
const TAKES_END: u64 = 6;
const ROOM: u64 = 4;

/// The model that judges.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers;

impl Model for Numbers {
    type Op = Op;
    type Reply = Reply;
    type State = BTreeMap<u8, u64>;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn apply(&self, state: &mut Self::State, op: &Op) -> Reply {
        op.run(state)
    }

    fn writes(&self, op: &Op) -> bool {
        !op.is_read()
    }

    fn keys(&self, op: &Op) -> Vec<Key> {
        op.keys().into_iter().map(|key| Key(u32::from(key))).collect()
    }

    fn may_show(&self, op: &Op, _reply: &Reply, write: &Op) -> bool {
        let written = write.keys();
        !matches!(op, Op::Set(..) | Op::SetBoth(..) | Op::Refused(_))
            && op.keys().iter().any(|key| written.contains(key))
    }
}
