//! Any handler as a service of which nothing survives its process.
//!
//! Invariant: what is answered is stable at once, and that promises nothing: sessions and their positions
//! are in the server's memory only, and the metrics say so.

use crate::metrics::MetricsText;
use crate::service::{DeadLetter, Execution, Handler, Replies, Service, Watch};
use scotfree_core::{Nanos, SessionId};
use scotfree_session::RecoveredSession;

/// Serves a handler that keeps no records of sessions.
///
/// Within one life of the process each request is executed once and in order, as with any service. After
/// its end nothing is left: sessions are unknown to the next server, and devices have forgotten their
/// updates, since they were told that these are stable. An update that is never applied is counted and
/// dropped. For what has to outlive a crash, be a [`Service`].
#[derive(Debug, Clone, Default)]
pub struct Volatile<H>(pub H);

impl<H: Handler> Handler for Volatile<H> {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.0.execute(request, replies);
    }

    fn hear(&mut self, is_ready: bool) {
        self.0.hear(is_ready);
    }

    fn poll(&mut self, wants_stable: bool, replies: &mut Replies) {
        self.0.poll(wants_stable, replies);
        replies.stable_as_answered();
    }

    fn watches(&self, out: &mut Vec<Watch>) {
        self.0.watches(out);
    }

    fn next_poll(&self) -> Option<Nanos> {
        self.0.next_poll()
    }

    fn write_metrics(&self, text: &mut MetricsText) {
        let help =
            "Nothing survives this process: neither data nor sessions nor updates that were never applied.";
        text.gauge("scotfree_service_volatile", help, 1);
        self.0.write_metrics(text);
    }

    fn broken(&self) -> Option<String> {
        self.0.broken()
    }
}

impl<H: Handler> Service for Volatile<H> {
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        replies.session_recorded(record.session);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        replies.session_deleted(session);
    }

    /// Drops the update: there is no place where an operator could find it. The server counts it.
    fn dead_letter(&mut self, _letter: &DeadLetter<'_>) {}
}
