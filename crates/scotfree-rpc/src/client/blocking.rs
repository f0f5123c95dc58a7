//! One call at a time, for callers without a loop of their own.
//!
//! Invariant: waiting for one call loses nothing of the others: their events stay until they are taken.

use super::{CallError, ClientEvent, ClientRuntime, Reply, SessionHandle, What};
use crate::probes::CallLabel;
use scotfree_core::{Nanos, SeqNum};
use scotfree_io::{now_monotonic, Transport};
use scotfree_session::{ClosedReason, Request, SubmitError};
use std::io;
use std::time::Duration;

impl<T: Transport> ClientRuntime<T> {
    /// Submits a request and waits for its reply, at most `timeout`. Events of other requests wait
    /// until they are taken.
    pub fn call(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        label: CallLabel,
        timeout: Duration,
    ) -> Result<Reply<'_>, CallError> {
        let deadline = now_monotonic().plus(Nanos(timeout.as_nanos() as u64));
        let seq = self.submit_patiently(session, request, label, deadline)?;
        let index = loop {
            if let Some(index) = self.find_end(session, seq) {
                break index;
            }
            if !self.advance(deadline)? {
                return Err(CallError::TimedOut(Some(seq)));
            }
        };
        if let What::Closed { reason, .. } = self.events[index].what {
            return Err(CallError::Closed(Some(reason)));
        }
        let event = self.events.remove(index).expect("the event was found just now");
        match self.hand_over(event) {
            ClientEvent::Completed { reply, .. } => Ok(reply),
            ClientEvent::Opened { .. } | ClientEvent::Closed { .. } => Err(CallError::Closed(None)),
        }
    }

    /// Waits until the session is open, at most `timeout`.
    pub fn wait_open(&mut self, session: SessionHandle, timeout: Duration) -> Result<(), CallError> {
        let deadline = now_monotonic().plus(Nanos(timeout.as_nanos() as u64));
        loop {
            match self.slot(session) {
                Some(slot) if slot.client.is_open() => return Ok(()),
                Some(slot) if !slot.client.is_closed() => {}
                Some(_) | None => return Err(CallError::Closed(self.close_reason(session))),
            }
            if !self.advance(deadline)? {
                return Err(CallError::TimedOut(None));
            }
        }
    }

    fn submit_patiently(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        label: CallLabel,
        deadline: Nanos,
    ) -> Result<SeqNum, CallError> {
        loop {
            match self.submit(session, request, label) {
                Ok(seq) => return Ok(seq),
                Err(SubmitError::TooLarge) => return Err(CallError::TooLarge),
                Err(SubmitError::Closed) => return Err(CallError::Closed(self.close_reason(session))),
                Err(SubmitError::NotOpen | SubmitError::WindowFull) => {}
            }
            if !self.advance(deadline)? {
                return Err(CallError::TimedOut(None));
            }
        }
    }

    /// One turn, and if it brought nothing, a wait and another; false when the deadline has passed.
    pub(crate) fn advance(&mut self, deadline: Nanos) -> io::Result<bool> {
        let events = self.events.len();
        self.turn()?;
        if self.events.len() != events {
            return Ok(true);
        }
        let left = deadline.since(now_monotonic());
        if left == Nanos(0) {
            return Ok(false);
        }
        self.wait(Some(Duration::from_nanos(left.0)))?;
        self.turn()?;
        Ok(true)
    }

    fn find_end(&self, session: SessionHandle, wanted: SeqNum) -> Option<usize> {
        self.events.iter().position(|event| {
            event.session == session
                && match event.what {
                    What::Completed { completion, .. } => completion.seq == wanted,
                    What::Closed { .. } => true,
                    What::Opened { .. } => false,
                }
        })
    }

    pub(crate) fn close_reason(&self, session: SessionHandle) -> Option<ClosedReason> {
        self.events.iter().filter(|event| event.session == session).find_map(|event| match event.what {
            What::Closed { reason, .. } => Some(reason),
            What::Opened { .. } | What::Completed { .. } => None,
        })
    }

    pub(crate) fn has_completion(&self) -> bool {
        self.events.iter().any(|event| matches!(event.what, What::Completed { .. }))
    }

    pub(crate) fn next_is_completion(&self) -> bool {
        self.events.front().is_some_and(|event| matches!(event.what, What::Completed { .. }))
    }
}
