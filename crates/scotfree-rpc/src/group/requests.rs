//! The requests that have no end yet, in the order of their numbers.
//!
//! Invariant: a number is given once, and a request leaves the table once: with its answer, or given up. So far apart as
//! [`NUMBERS_MAX`] no two of them are, since servers remember so many answers of one client.

use crate::probes::CallLabel;
use scotfree_core::{KeyHash, Nanos};
use scotfree_session::RequestKind;
use std::collections::VecDeque;

/// How far apart the numbers of unanswered requests may be.
pub(super) const NUMBERS_MAX: usize = 4_096;
/// Of an identity's number, what counts the client's requests.
pub(super) const COUNT_BITS: u32 = 40;

/// What is sent, kept as long as it may have to be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) kind: RequestKind,
    pub(super) key_hash: KeyHash,
    pub(super) label: CallLabel,
    pub(super) payload: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) kept: Kept,
    pub(super) submitted_at: Nanos,
    /// The number of its identity, once it was sent: of the first member, for ever.
    pub(super) identity: Option<u64>,
    /// Who has it.
    pub(super) member: Option<u8>,
    /// Who had it last, and did not answer.
    pub(super) avoided: Option<u8>,
    /// How often it was refused.
    pub(super) refusals: u32,
    /// Whether it went without an identity and would be another request if it were sent again.
    pub(super) is_anonymous: bool,
    /// Whether somebody may have executed it, or still may.
    pub(super) may_be_executed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The entry at the front has this number.
    first: u64,
    entries: VecDeque<Option<Entry>>,
    count: usize,
}

impl Requests {
    pub(super) fn new() -> Requests {
        Requests { first: 1, ..Requests::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether all numbers were given.
    pub(super) fn is_used_up(&self) -> bool {
        self.first + self.entries.len() as u64 >= 1 << COUNT_BITS
    }

    /// The number of the next request, if there is one that is near enough to the oldest.
    pub(super) fn next_number(&self) -> Option<u64> {
        let next = self.first + self.entries.len() as u64;
        (self.entries.len() < NUMBERS_MAX && !self.is_used_up()).then_some(next)
    }

    /// Takes a request in; its number.
    pub(super) fn push(&mut self, now: Nanos, kept: Kept) -> u64 {
        let number = self.next_number().expect("who takes a request has looked whether there is a number");
        self.count += 1;
        self.entries.push_back(Some(Entry {
            kept,
            submitted_at: now,
            identity: None,
            member: None,
            avoided: None,
            refusals: 0,
            is_anonymous: false,
            may_be_executed: false,
        }));
        number
    }

    pub(super) fn get(&self, number: u64) -> Option<&Entry> {
        self.entries.get(number.checked_sub(self.first)? as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.get_mut(number.checked_sub(self.first)? as usize)?.as_mut()
    }

    /// The request has come to its end.
    pub(super) fn take(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.get_mut(number.checked_sub(self.first)? as usize)?.take()?;
        self.count -= 1;
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        Some(entry)
    }

    /// The oldest that has no end, by its number.
    pub(super) fn oldest(&self) -> Option<(u64, &Entry)> {
        self.entries.front()?.as_ref().map(|entry| (self.first, entry))
    }
}
