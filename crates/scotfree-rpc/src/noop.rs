//! A service that does nothing, for measuring everything but the service.
//!
//! Invariant: a reply is as large as its request, and everything is stable at once: what remains is
//! the runtime's own cost.

use crate::service::{DeadLetter, Execution, Replies, Service};
use scotfree_core::{Nanos, SessionId};
use scotfree_io::now_monotonic;
use scotfree_session::RecoveredSession;

/// Echoes requests, after working for a while if it is told to.
#[derive(Debug, Default)]
pub struct NoopService {
    work: Nanos,
    executed: u64,
    last_ticket: Option<u64>,
    dead_letters: u64,
}

impl NoopService {
    /// A service that answers at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// A service that keeps its processor busy for `work` before each answer.
    pub fn working(work: Nanos) -> Self {
        NoopService { work, ..Self::default() }
    }

    /// How many requests were executed.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// How many updates were never applied.
    pub fn dead_letters(&self) -> u64 {
        self.dead_letters
    }
}

impl Service for NoopService {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        if self.work > Nanos(0) {
            let until = now_monotonic().plus(self.work);
            while now_monotonic() < until {
                std::hint::spin_loop();
            }
        }
        self.executed += 1;
        self.last_ticket = Some(request.ticket);
        replies.reply(request.ticket, false, |out| out.extend_from_slice(request.payload));
    }

    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        replies.session_recorded(record.session);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        replies.session_deleted(session);
    }

    fn dead_letter(&mut self, _letter: &DeadLetter<'_>) {
        self.dead_letters += 1;
    }

    fn poll(&mut self, _wants_stable: bool, replies: &mut Replies) {
        if let Some(ticket) = self.last_ticket.take() {
            replies.stable(ticket);
        }
    }
}
