//! Who belongs to a group, under which epoch, and until when this member may answer reads.
//!
//! Invariant: the epochs that a membership tells only grow, and it never tells a lease that could outlast this
//! member's place in the view: while the lease lasts, nobody may write a view without it (G7).
#![forbid(unsafe_code)]

mod etcd;
mod form;
mod stated;

pub use etcd::commands::{init, recover, remove, status, view, Done, MemberStatus, Status};
pub use etcd::endpoint::Endpoint;
pub use etcd::{EtcdMembership, EtcdSettings};
pub use form::{Group, Listed, Live};
pub use stated::file;
pub use stated::{Gives, StaticMembership};

use remedy_replicate::{MemberId, View};
use scotfree_core::Nanos;
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// What a membership has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipEvent {
    /// The members from now on. It need not name this member, or may name an earlier life of it.
    View(View),
    /// Reads may be answered before this moment, by a clock that goes on while the host is suspended, if the last view told names this member's life as one
    /// that has the state. A moment that is over takes back what was told.
    Lease {
        /// The moment.
        until: Nanos,
    },
    /// Something hinders this member. It is said once, until it changes.
    Trouble(String),
    /// What hindered does no more.
    Well(String),
    /// This member cannot take part as it is configured; nothing more will come.
    Refused(String),
}

/// Where views and leases come from.
pub trait Membership: Send {
    /// Adds what is new to `out`; never waits. A view stands before the lease that was held under it.
    fn poll(&mut self, out: &mut Vec<MembershipEvent>);

    /// Readable when there is something to poll; nothing if that only follows a call.
    fn poll_fd(&self) -> Option<RawFd>;

    /// `member`, which is joining, has the whole state: it gets its full standing if the view is still that of
    /// `epoch`.
    fn promote(&mut self, member: MemberId, epoch: u64);

    /// How many writes this member has applied: shown in the status, and who is ahead when all were down.
    fn tell_progress(&mut self, applied: u64);

    /// Whoever calls this answers no reads any more, and will not: the others go on at once instead of waiting for
    /// the lease's end. Nothing is told after it.
    fn leave(&mut self);
}

/// This member, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Myself {
    /// The group's name.
    pub group: String,
    /// Its name in the group.
    pub id: MemberId,
    /// Which of its lives this is: another number than that of each earlier one, and not 0.
    pub boot: u32,
    /// Where other members reach it.
    pub peers: SocketAddr,
    /// Where clients reach it.
    pub clients: SocketAddr,
    /// Of everything that has to be equal in all members for their states to be equal.
    pub fingerprint: u64,
}
