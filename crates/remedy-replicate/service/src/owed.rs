//! Writes that a device before this member may have acknowledged to their clients: the group owes their execution.
//!
//! Invariant: such a write is submitted until it is stable, under one identity, and never declined for what is true for
//! a while only. What was turned away goes before all that was not submitted yet, so writes keep their order. Their
//! number is bounded by the sessions' credits.

use scotfree_core::{SeqNum, SessionId};
use scotfree_wire::Identity;
use std::collections::{BTreeMap, BTreeSet};

/// A write that is owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwedWrite {
    pub(crate) identity: Identity,
    pub(crate) place: (SessionId, SeqNum),
    pub(crate) op: Box<[u8]>,
}

/// All of them, by their tickets.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    writes: BTreeMap<u64, OwedWrite>,
    /// Those that the machine does not have.
    waiting: BTreeSet<u64>,
}

impl Owed {
    /// A write is owed from now on, and waits to be submitted.
    pub(crate) fn begin(&mut self, ticket: u64, write: OwedWrite) {
        self.writes.insert(ticket, write);
        self.waiting.insert(ticket);
    }

    /// Whether any of them waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The one that is to be submitted next.
    pub(crate) fn next(&self) -> Option<(u64, &OwedWrite)> {
        let ticket = self.waiting.first()?;
        Some((*ticket, self.writes.get(ticket)?))
    }

    /// The machine is given it.
    pub(crate) fn note_submitted(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
    }

    pub(crate) fn has(&self, ticket: u64) -> bool {
        self.writes.contains_key(&ticket)
    }

    /// The machine does not have it any more, and it may never be executed: it waits again.
    pub(crate) fn turn_away(&mut self, ticket: u64) {
        debug_assert!(self.has(ticket), "only what is owed waits");
        self.waiting.insert(ticket);
    }

    /// All up to this ticket are stable: the last place of each of their sessions.
    pub(crate) fn settle(&mut self, through: u64) -> BTreeMap<SessionId, SeqNum> {
        let later = self.writes.split_off(&(through + 1));
        let settled = std::mem::replace(&mut self.writes, later);
        settled.into_values().map(|write| write.place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(session: u64, seq: u64) -> OwedWrite {
        let identity = Identity { client: [1; 16], number: seq };
        OwedWrite { identity, place: (SessionId(session), SeqNum(seq)), op: Box::from(*b"op") }
    }

    fn next(owed: &Owed) -> Option<u64> {
        owed.next().map(|(ticket, _)| ticket)
    }

    #[test]
    fn what_was_turned_away_goes_before_what_was_not_submitted() {
        let mut owed = Owed::default();
        (1..=3).for_each(|ticket| owed.begin(ticket, write(7, ticket)));
        owed.note_submitted(1);
        owed.note_submitted(2);
        assert_eq!(next(&owed), Some(3));
        owed.turn_away(2);
        owed.turn_away(1);
        assert_eq!(next(&owed), Some(1));
    }

    #[test]
    fn what_is_stable_is_owed_no_more_and_says_where_its_sessions_are() {
        let mut owed = Owed::default();
        for (ticket, (session, seq)) in (1..).zip([(7, 1), (8, 5), (7, 3), (7, 4)]) {
            owed.begin(ticket, write(session, seq));
            owed.note_submitted(ticket);
        }
        let places = [(SessionId(7), SeqNum(3)), (SessionId(8), SeqNum(5))];
        assert_eq!(owed.settle(3), places.into());
        assert!(!owed.has(3) && owed.has(4));
        assert_eq!(owed.settle(3), BTreeMap::new());
    }
}
