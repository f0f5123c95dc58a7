//! What a front needs of whatever carries its requests to a server.
//!
//! Invariant: who implements it keeps the promises of [`ClientRuntime`]: requests of a session complete in its
//! order, each once, or are counted by the [`ClientEvent::Closed`] of their session.

use crate::client::{ClientEvent, ClientRuntime, SessionHandle, SessionOptions, StartError};
use crate::probes::CallLabel;
use scotfree_core::{KeyHash, SeqNum};
use scotfree_io::Transport;
use scotfree_session::{Request, SubmitError};

/// Sessions, requests and what becomes of them. [`ClientRuntime`] is one over any transport; a test makes one
/// without any.
pub trait Upstream {
    /// Starts a session; [`ClientEvent::Opened`] or [`ClientEvent::Closed`] says what came of it.
    fn start_session(&mut self, options: SessionOptions) -> Result<SessionHandle, StartError>;

    /// Ends a session once all its updates are stable; [`ClientEvent::Closed`] says when.
    fn end_session(&mut self, session: SessionHandle);

    /// Takes a request, or says why not now or never.
    fn submit(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError>;

    /// As [`Upstream::submit`], of a request that touches these keys beside the one that it is named by, and no others.
    /// Where that cannot be said it goes without.
    fn submit_naming(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        _further_keys: &[KeyHash],
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        self.submit(session, request, label)
    }

    /// What has happened, in order, one event after the other.
    fn next_event(&mut self) -> Option<ClientEvent<'_>>;
}

impl<T: Transport> Upstream for ClientRuntime<T> {
    fn start_session(&mut self, options: SessionOptions) -> Result<SessionHandle, StartError> {
        ClientRuntime::start_session(self, options)
    }

    fn end_session(&mut self, session: SessionHandle) {
        ClientRuntime::end_session(self, session);
    }

    fn submit(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        ClientRuntime::submit(self, session, request, label)
    }

    fn submit_naming(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        further_keys: &[KeyHash],
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        ClientRuntime::submit_naming(self, session, request, further_keys, label)
    }

    fn next_event(&mut self) -> Option<ClientEvent<'_>> {
        ClientRuntime::next_event(self)
    }
}
