//! How a service becomes a member of a group, said without naming what makes it one.
//!
//! Invariant: nothing is decided here; a registry hands out a [`GroupMaker`], and who runs a service calls it.

use crate::metrics::MetricsText;
use crate::service::{DeadLetter, Execution, Handler, Replies, Service, Watch};
use scotfree_core::{Nanos, SessionId};
use scotfree_io::Waker;
use scotfree_session::RecoveredSession;
use scotfree_state::State;
use scotfree_wire::ClusterKey;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// A service whose state can be kept at several members.
pub trait StatefulService: Service + State {}

impl<S: Service + State> StatefulService for S {}

/// What a member is told.
pub struct GroupPlan {
    /// The group's name.
    pub group: String,
    /// Its number in it, from 1 to 255.
    pub id: u8,
    /// How the members agree; one of [`GroupMaker::protocols`].
    pub protocol: String,
    /// Who says who belongs to it: `etcd:http://HOST:PORT/PREFIX` or `static:FILE`.
    pub membership: String,
    /// Where other members reach this one.
    pub peers: SocketAddr,
    /// Where clients reach it.
    pub clients: SocketAddr,
    /// Which of its lives this is: another number than that of each earlier one, and not 0.
    pub boot: u32,
    /// The group's key.
    pub key: ClusterKey,
    /// Whether a write is answered only when every member's storage has it, or when their memory does.
    pub is_stored_first: bool,
    /// Whether a device before it acknowledges writes: then what this member is given is not declined for a while.
    pub is_behind_device: bool,
    /// Sessions of its earlier lives that go on.
    pub sessions: Vec<RecoveredSession>,
    /// Where this member keeps which history of the group it has.
    pub kept: PathBuf,
    /// Names the log: one that is put in its place has another.
    pub log: u64,
    /// Whether the log holds data, of the group or not.
    pub holds_data: bool,
    /// By how much clocks go wrong at most, in parts of a million.
    pub drift_ppm_max: u32,
    /// Woken when the operator says that the membership is to be read again.
    pub read_again: Arc<Waker>,
    /// Makes an answer of the reason why a request is declined.
    pub decline: fn(&str) -> Vec<u8>,
}

/// Says something to the operator.
pub type Say = Box<dyn FnMut(&str) + Send>;

/// What an operator asks of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupCommand {
    /// Makes it.
    Init {
        /// Its name.
        group: String,
        /// How its members agree.
        protocol: String,
        /// How long a lease is.
        lease_ms: u64,
        /// The first members: number, where members reach it, where clients do.
        members: Vec<(u8, SocketAddr, SocketAddr)>,
    },
    /// Who is alive, and how far.
    Status,
    /// The view, as JSON.
    View,
    /// Writes an operator's file in which a member joins, or has its state.
    Add {
        /// Which.
        id: u8,
        /// Where members and clients reach it, if the file does not say so yet.
        at: Option<(SocketAddr, SocketAddr)>,
        /// Whether it was given the state.
        has_state: bool,
    },
    /// Leaves a member out, whose lease is over.
    Remove {
        /// Which.
        id: u8,
    },
    /// Goes on with what a member holds, though others that are lost have answered more.
    Recover {
        /// Which.
        id: u8,
    },
}

/// Makes a service a member.
pub type MakeMember = fn(GroupPlan, Box<dyn StatefulService>, Say) -> Result<Box<dyn Service>, String>;

/// Makes services members of a group.
#[derive(Clone, Copy)]
pub struct GroupMaker {
    /// The protocols that there are.
    pub protocols: &'static [&'static str],
    /// Makes a service a member.
    pub member: MakeMember,
    /// Does what an operator asks, of the group whose membership is named so; what to print.
    pub command: fn(membership: &str, &GroupCommand) -> Result<String, String>,
}

impl std::fmt::Debug for GroupMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GroupMaker").field(&self.protocols).finish()
    }
}

impl<S: Handler + ?Sized> Handler for Box<S> {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        (**self).execute(request, replies);
    }

    fn hear(&mut self, is_ready: bool) {
        (**self).hear(is_ready);
    }

    fn poll(&mut self, wants_stable: bool, replies: &mut Replies) {
        (**self).poll(wants_stable, replies);
    }

    fn watches(&self, out: &mut Vec<Watch>) {
        (**self).watches(out);
    }

    fn next_poll(&self) -> Option<Nanos> {
        (**self).next_poll()
    }

    fn write_metrics(&self, text: &mut MetricsText) {
        (**self).write_metrics(text);
    }

    fn not_serving(&self) -> Option<&'static str> {
        (**self).not_serving()
    }

    fn broken(&self) -> Option<String> {
        (**self).broken()
    }
}

impl<S: Service + ?Sized> Service for Box<S> {
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        (**self).record_session(record, replies);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        (**self).delete_session(session, replies);
    }

    fn dead_letter(&mut self, letter: &DeadLetter<'_>) {
        (**self).dead_letter(letter);
    }
}
