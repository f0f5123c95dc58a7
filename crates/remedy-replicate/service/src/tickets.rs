//! Requests under way at this member, and up to which all are stable.
//!
//! Invariant: a server is told that a request is stable when all before it are, too.

use scotfree_core::{SeqNum, SessionId};
use scotfree_rpc::Replies;
use std::collections::{BTreeMap, VecDeque};

/// A request that has a ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) session: SessionId,
    /// The place of a write.
    pub(crate) seq: Option<SeqNum>,
    is_answered: bool,
    is_stable: bool,
    /// So many writes must be stored here before it is stable.
    pub(crate) after: u64,
}

/// A read that waits for the writes of its session.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) ticket: u64,
    pub(crate) op: Vec<u8>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    begun: BTreeMap<u64, Ticket>,
    last: u64,
    told: u64,
    /// Writes without an answer, by session, and the reads behind them.
    writes: BTreeMap<SessionId, u32>,
    held: BTreeMap<SessionId, VecDeque<Held>>,
}

impl Tickets {
    pub(crate) fn begin(&mut self, ticket: u64, session: SessionId, seq: Option<SeqNum>) {
        self.last = ticket;
        *self.writes.entry(session).or_default() += u32::from(seq.is_some());
        let begun = Ticket { session, seq, is_answered: false, is_stable: false, after: 0 };
        self.begun.insert(ticket, begun);
    }

    /// Whether a read of this session must wait: its own writes come first.
    pub(crate) fn must_wait(&self, session: SessionId) -> bool {
        self.writes.get(&session).is_some_and(|writes| *writes > 0)
    }

    pub(crate) fn hold(&mut self, session: SessionId, held: Held) {
        self.held.entry(session).or_default().push_back(held);
    }

    /// A request has its answer. The reads that it held up.
    pub(crate) fn answer(&mut self, ticket: u64, after: u64) -> VecDeque<Held> {
        let Some(begun) = self.begun.get_mut(&ticket).filter(|begun| !begun.is_answered) else {
            return VecDeque::new();
        };
        begun.is_answered = true;
        begun.after = after;
        let session = begun.session;
        if begun.seq.is_some() {
            let writes = self.writes.get_mut(&session).expect("the write was counted");
            *writes -= 1;
            if *writes == 0 {
                self.writes.remove(&session);
                return self.held.remove(&session).unwrap_or_default();
            }
        }
        VecDeque::new()
    }

    pub(crate) fn get(&self, ticket: u64) -> Option<Ticket> {
        self.begun.get(&ticket).copied()
    }

    pub(crate) fn settle(&mut self, ticket: u64) {
        if let Some(begun) = self.begun.get_mut(&ticket) {
            begun.is_stable = true;
        }
    }

    /// Tells how far all are stable, given that so many writes are stored here.
    pub(crate) fn tell(&mut self, stored: u64, replies: &mut Replies) {
        while let Some(first) = self.begun.first_entry() {
            let begun = first.get();
            if !(begun.is_answered && begun.is_stable && begun.after <= stored) {
                break;
            }
            first.remove();
        }
        let through = self.begun.keys().next().map_or(self.last, |first| first - 1);
        if through > self.told {
            self.told = through;
            replies.stable(through);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_stable_up_to_the_first_that_is_not() {
        let mut tickets = Tickets::default();
        let mut replies = Replies::new();
        (1..=3).for_each(|ticket| tickets.begin(ticket, SessionId(1), None));
        for ticket in [2, 1] {
            tickets.answer(ticket, 0);
            tickets.settle(ticket);
        }
        tickets.tell(0, &mut replies);
        assert_eq!(replies.stable_through(), Some(2));
        tickets.answer(3, 7);
        tickets.settle(3);
        tickets.tell(6, &mut replies);
        assert_eq!(replies.stable_through(), Some(2), "its place is not stored");
        tickets.tell(7, &mut replies);
        assert_eq!(replies.stable_through(), Some(3));
    }

    #[test]
    fn reads_wait_for_the_writes_of_their_session_and_for_no_other() {
        let mut tickets = Tickets::default();
        tickets.begin(1, SessionId(1), Some(SeqNum(1)));
        assert!(tickets.must_wait(SessionId(1)) && !tickets.must_wait(SessionId(2)));
        tickets.begin(2, SessionId(1), None);
        tickets.hold(SessionId(1), Held { ticket: 2, op: vec![9] });
        assert_eq!(tickets.answer(1, 0).pop_front().map(|held| held.ticket), Some(2));
        assert!(!tickets.must_wait(SessionId(1)));
    }
}
