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

/// How long a caller waits, from when it first has to: what is there at once is not timed.
pub(crate) struct Patience {
    timeout: Duration,
    until: Option<Nanos>,
}

impl Patience {
    pub(crate) fn of(timeout: Duration) -> Patience {
        Patience { timeout, until: None }
    }

    /// What is left of it; none at its end.
    fn left(&mut self) -> Option<Duration> {
        let now = now_monotonic();
        let timeout = Nanos(u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX));
        let left = self.until.get_or_insert_with(|| now.plus(timeout)).since(now);
        (left != Nanos(0)).then(|| Duration::from_nanos(left.0))
    }
}

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
        let mut patience = Patience::of(timeout);
        let seq = self.submit_patiently(session, request, label, &mut patience)?;
        let index = loop {
            if let Some(index) = self.find_end(session, seq) {
                break index;
            }
            if !self.advance(&mut patience)? {
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
        let mut patience = Patience::of(timeout);
        loop {
            match self.slot(session) {
                Some(slot) if slot.client.is_open() => return Ok(()),
                Some(slot) if !slot.client.is_closed() => {}
                Some(_) | None => return Err(CallError::Closed(self.close_reason(session))),
            }
            if !self.advance(&mut patience)? {
                return Err(CallError::TimedOut(None));
            }
        }
    }

    fn submit_patiently(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        label: CallLabel,
        patience: &mut Patience,
    ) -> Result<SeqNum, CallError> {
        loop {
            match self.submit(session, request, label) {
                Ok(seq) => return Ok(seq),
                Err(SubmitError::TooLarge) => return Err(CallError::TooLarge),
                Err(SubmitError::Closed) => return Err(CallError::Closed(self.close_reason(session))),
                Err(SubmitError::NotOpen | SubmitError::WindowFull) => {}
            }
            if !self.advance(patience)? {
                return Err(CallError::TimedOut(None));
            }
        }
    }

    /// One turn, and if it brought nothing, a wait and another; false when the patience is at its end.
    pub(crate) fn advance(&mut self, patience: &mut Patience) -> io::Result<bool> {
        let events = self.events.len();
        self.turn()?;
        if self.events.len() != events {
            return Ok(true);
        }
        let Some(left) = patience.left() else { return Ok(false) };
        self.wait(Some(left))?;
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
