//! What a client's runtime tells its caller: events, replies, errors and counters.
//!
//! Invariant: an event borrows from the runtime, so it is used before the next one is taken.

use super::SessionHandle;
use scotfree_core::{SeqNum, SessionId};
use scotfree_session::{ClientCounters, ClosedReason, CompletedBy};
use scotfree_trace::{SpanId, TraceId};
use scotfree_wire::WIRE_ERROR_COUNT;
use std::io;

/// Why a session could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// As many sessions exist as are allowed.
    #[error("{sessions_max} sessions exist already; end one or raise sessions_max")]
    TooMany {
        /// The limit.
        sessions_max: usize,
    },
    /// The system gave no random numbers for the session's keys.
    #[error("no random numbers for the session's keys: {0}")]
    Random(getrandom::Error),
}

/// What happened, in order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClientEvent<'a> {
    /// A session is open.
    Opened {
        /// Which.
        session: SessionHandle,
        /// Its name in the cluster.
        id: SessionId,
        /// How many requests may be outstanding or not yet stable.
        window: u32,
    },
    /// A request is complete. Completions of a session come in its order.
    Completed {
        /// Whose.
        session: SessionHandle,
        /// The reply.
        reply: Reply<'a>,
    },
    /// A session has ended; its handle is dead.
    Closed {
        /// Which.
        session: SessionHandle,
        /// Why.
        reason: ClosedReason,
        /// How many requests had not completed: their outcome is unknown.
        unknown_count: u64,
    },
}

/// A completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The request's place in its session.
    pub seq: SeqNum,
    /// Who completed it.
    pub answered_by: CompletedBy,
    /// The server's reply; `None` where the caller knows it, because a device or stability answered.
    pub bytes: Option<&'a [u8]>,
    /// The application refused the request.
    pub failed: bool,
    /// What it is called in the trace, if it is one that is recorded.
    pub recorded: Option<Recorded>,
}

/// What the record of a call is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Its trace.
    pub trace_id: TraceId,
    /// The call.
    pub span_id: SpanId,
}

/// Why [`super::ClientRuntime::call`] gave no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The session has ended; the outcome of the call is unknown if it had been sent.
    #[error("the session has ended: {0:?}")]
    Closed(Option<ClosedReason>),
    /// The request is larger than any may be.
    #[error("the request is larger than any may be")]
    TooLarge,
    /// No reply in time. The request goes on; its completion will come as an event.
    #[error("no reply in time")]
    TimedOut(Option<SeqNum>),
    /// The transport broke.
    #[error("the transport broke: {0}")]
    Io(#[from] io::Error),
}

/// What a client runtime has counted, beyond its sessions' counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientRuntimeCounters {
    /// Sessions started.
    pub sessions_started: u64,
    /// Sessions ended.
    pub sessions_ended: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that are of no session of this runtime.
    pub unclaimed: u64,
    /// Datagrams refused, by reason.
    pub refused: [u64; WIRE_ERROR_COUNT],
    /// Times when a stalled transport made us drop what was unsent.
    pub unsent_dropped: u64,
    /// Call records dropped because nobody took them.
    pub records_dropped: u64,
    /// The counters of the sessions that have ended.
    pub ended: ClientTotals,
}

/// The counters of sessions, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientTotals {
    /// Requests taken.
    pub submitted: u64,
    /// Requests completed.
    pub completed: u64,
    /// Of these, by a device's acknowledgement alone.
    pub completed_early: u64,
    /// Of these, updates that too few devices had acknowledged: complete because they were stable.
    pub completed_stable: u64,
    /// Acknowledgements of devices.
    pub device_acks: u64,
    /// Requests sent again.
    pub retransmitted: u64,
    /// Packets refused by sessions, for whatever reason.
    pub refused: u64,
}

impl ClientTotals {
    pub(super) fn add(&mut self, counters: &ClientCounters) {
        self.submitted += counters.submitted;
        self.completed += counters.completed;
        self.completed_early += counters.completed_early;
        self.completed_stable += counters.completed_stable;
        self.device_acks += counters.device_acks;
        self.retransmitted += counters.retransmitted;
        self.refused += counters.refused.iter().sum::<u64>();
    }
}
