//! Requests under way at this member: their answers until they are stable, and up to which all are stable.
//!
//! Invariant: an answer leaves when it is stable, and no sooner; a server is told that a request is stable when all
//! before it are, too. A read waits for the writes that its session has sent before it, and for no later ones.

use scotfree_core::{SeqNum, SessionId};
use scotfree_rpc::Replies;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A request that has a ticket.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) session: SessionId,
    /// The place of a write.
    pub(crate) seq: Option<SeqNum>,
    answer: Option<Answer>,
    is_stable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    bytes: Vec<u8>,
    is_refused: bool,
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
    /// Those that have an answer and are stable.
    due: BTreeSet<u64>,
    last: u64,
    told: u64,
    /// Writes without an answer, by session, and the reads behind them.
    writes: BTreeMap<SessionId, BTreeSet<u64>>,
    held: BTreeMap<SessionId, VecDeque<Held>>,
}

impl Tickets {
    pub(crate) fn begin(&mut self, ticket: u64, session: SessionId, seq: Option<SeqNum>) {
        self.last = ticket;
        if seq.is_some() {
            self.writes.entry(session).or_default().insert(ticket);
        }
        self.begun.insert(ticket, Ticket { session, seq, answer: None, is_stable: false });
    }

    /// Whether a read of this session must wait: its own writes come first.
    pub(crate) fn must_wait(&self, session: SessionId) -> bool {
        self.writes.contains_key(&session)
    }

    pub(crate) fn hold(&mut self, session: SessionId, held: Held) {
        self.held.entry(session).or_default().push_back(held);
    }

    /// A request has its answer, which leaves when it is stable.
    pub(crate) fn answer(&mut self, ticket: u64, bytes: &[u8], is_refused: bool) {
        let Some(begun) = self.begun.get_mut(&ticket) else { return };
        begun.answer = Some(Answer { bytes: bytes.to_vec(), is_refused });
        self.note_due(ticket);
    }

    pub(crate) fn settle(&mut self, ticket: u64) {
        if let Some(begun) = self.begun.get_mut(&ticket) {
            begun.is_stable = true;
        }
        self.note_due(ticket);
    }

    fn note_due(&mut self, ticket: u64) {
        if self.begun.get(&ticket).is_some_and(|begun| begun.is_stable && begun.answer.is_some()) {
            self.due.insert(ticket);
        }
    }

    /// A request will have no answer.
    pub(crate) fn forget(&mut self, ticket: u64) -> Option<Ticket> {
        self.due.remove(&ticket);
        self.begun.remove(&ticket)
    }

    /// A write is over: the reads that waited for it and for no other write before them.
    pub(crate) fn release(&mut self, ticket: u64, session: SessionId) -> Vec<Held> {
        let Some(writes) = self.writes.get_mut(&session) else { return Vec::new() };
        writes.remove(&ticket);
        let first = writes.first().copied().unwrap_or(u64::MAX);
        if writes.is_empty() {
            self.writes.remove(&session);
        }
        let Some(held) = self.held.get_mut(&session) else { return Vec::new() };
        let count = held.iter().take_while(|held| held.ticket < first).count();
        let released = held.drain(..count).collect();
        if held.is_empty() {
            self.held.remove(&session);
        }
        released
    }

    pub(crate) fn get(&self, ticket: u64) -> Option<&Ticket> {
        self.begun.get(&ticket)
    }

    /// Whether the answer of a write can leave.
    pub(crate) fn has_due_writes(&self) -> bool {
        let is_write = |ticket: &u64| self.begun.get(ticket).is_some_and(|begun| begun.seq.is_some());
        self.due.iter().any(is_write)
    }

    /// Lets out what is stable; how far all requests are, if that is news.
    pub(crate) fn tell(&mut self, replies: &mut Replies) -> Option<u64> {
        for ticket in std::mem::take(&mut self.due) {
            let due = self.begun.remove(&ticket);
            if let Some(Answer { bytes, is_refused }) = due.and_then(|due| due.answer) {
                replies.reply(ticket, is_refused, |out| out.extend_from_slice(&bytes));
            }
        }
        let through = self.begun.keys().next().map_or(self.last, |first| first - 1);
        let is_news = through > self.told;
        self.told = self.told.max(through);
        is_news.then_some(through)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(replies: &Replies) -> Vec<u64> {
        replies.replies().iter().map(|reply| reply.ticket).collect()
    }

    #[test]
    fn an_answer_leaves_when_it_is_stable_and_all_is_stable_up_to_the_first_that_is_not() {
        let mut tickets = Tickets::default();
        let mut replies = Replies::new();
        (1..=3).for_each(|ticket| tickets.begin(ticket, SessionId(1), None));
        tickets.answer(2, b"two", false);
        assert_eq!(tickets.tell(&mut replies), None);
        assert!(replies.is_empty(), "it may be lost still");
        tickets.settle(2);
        assert_eq!(tickets.tell(&mut replies), None);
        assert_eq!(answered(&replies), [2]);
        tickets.settle(1);
        tickets.answer(1, b"one", false);
        assert_eq!(tickets.tell(&mut replies), Some(2));
        assert_eq!(answered(&replies), [2, 1]);
        tickets.answer(3, b"three", false);
        tickets.settle(3);
        assert_eq!(tickets.tell(&mut replies), Some(3));
        assert_eq!(answered(&replies), [2, 1, 3]);
    }

    #[test]
    fn a_read_waits_for_the_writes_before_it_and_for_no_later_one() {
        let mut tickets = Tickets::default();
        let session = SessionId(1);
        tickets.begin(1, session, Some(SeqNum(1)));
        assert!(tickets.must_wait(session) && !tickets.must_wait(SessionId(2)));
        tickets.begin(2, session, None);
        tickets.hold(session, Held { ticket: 2, op: vec![9] });
        tickets.begin(3, session, Some(SeqNum(3)));
        tickets.begin(4, session, None);
        tickets.hold(session, Held { ticket: 4, op: vec![9] });
        let released = |held: Vec<Held>| held.iter().map(|held| held.ticket).collect::<Vec<_>>();
        assert_eq!(released(tickets.release(1, session)), [2]);
        assert_eq!(released(tickets.release(3, session)), [4]);
        assert!(!tickets.must_wait(session));
    }

    #[test]
    fn what_is_lost_leaves_no_answer_and_holds_nothing_up() {
        let mut tickets = Tickets::default();
        let mut replies = Replies::new();
        (1..=2).for_each(|ticket| tickets.begin(ticket, SessionId(1), None));
        tickets.answer(1, b"one", false);
        assert!(tickets.forget(1).is_some());
        tickets.answer(2, b"two", false);
        tickets.settle(2);
        assert_eq!(tickets.tell(&mut replies), Some(2));
        assert_eq!(answered(&replies), [2]);
    }
}
