//! A handler that does nothing, for measuring everything but the handler.
//!
//! Invariant: a reply is as large as its request: what remains is the runtime's own cost.

use crate::service::{Execution, Handler, Replies};
use scotfree_core::Nanos;
use scotfree_io::now_monotonic;

/// Echoes requests, after working for a while if it is told to.
#[derive(Debug, Default)]
pub struct NoopHandler {
    work: Nanos,
    executed: u64,
}

impl NoopHandler {
    /// A handler that answers at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handler that keeps its processor busy for `work` before each answer.
    pub fn working(work: Nanos) -> Self {
        NoopHandler { work, ..Self::default() }
    }

    /// How many requests were executed.
    pub fn executed(&self) -> u64 {
        self.executed
    }
}

impl Handler for NoopHandler {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        if self.work > Nanos(0) {
            let until = now_monotonic().plus(self.work);
            while now_monotonic() < until {
                std::hint::spin_loop();
            }
        }
        self.executed += 1;
        replies.reply(request.ticket, false, |out| out.extend_from_slice(request.payload));
    }
}
