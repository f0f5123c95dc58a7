//! What every protocol of a group is to its shell: requests, views and leases go in, answers and datagrams come out.
//!
//! Invariant: a write is answered once per ticket; what is declined was not answered, and may still be executed
//! under its identity: whoever sends it again elsewhere says the same identity.

use crate::datagram::Refusal;
use crate::fault::Planted;
use crate::view::{MemberId, View};
use scotfree_core::{ByteRange, Effects, Nanos, SeqNum, SessionId};
use scotfree_wire::{ControlKeys, Identity};
use std::net::SocketAddr;

/// When a write counts as stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StableWhen {
    /// Every full member has it in memory.
    InMemory,
    /// Every full member's storage has it.
    #[default]
    Stored,
}

/// The bounds of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many writes of this member's clients may be under way; more are declined.
    pub writes_max: usize,
    /// How many reads may wait for others.
    pub reads_max: usize,
    /// How many bytes may be under way to a neighbour.
    pub window_bytes_max: usize,
    /// How many bytes of writes are kept after they were committed, for members that come back.
    pub kept_bytes_max: usize,
    /// How long to wait before something is sent again, at first and at last.
    pub retry_min: Nanos,
    /// See [`Limits::retry_min`].
    pub retry_max: Nanos,
    /// In Hermes: how long a key may be invalid before its write is told anew by a member that waits for it.
    pub replay_after: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            writes_max: 8_192,
            reads_max: 8_192,
            window_bytes_max: 1 << 20,
            kept_bytes_max: 16 << 20,
            retry_min: Nanos::from_millis(4),
            retry_max: Nanos::from_millis(100),
            replay_after: Nanos::from_millis(2),
        }
    }
}

/// What a member is told at its start.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// The group, see [`crate::group_name_hash`].
    pub group: u64,
    /// Which member this is.
    pub id: MemberId,
    /// Which of its lives; 0 where views do not say.
    pub boot: u32,
    /// The address that its datagrams come from.
    pub address: SocketAddr,
    /// The keys between members.
    pub keys: ControlKeys,
    /// Real time in milliseconds when monotonic time was 0.
    pub real_ms_at_zero: u64,
    /// When a write is stable.
    pub stable_when: StableWhen,
    /// In which history of the group its storage stands, as [`Replica::lineage`] said last; none at its first start.
    pub lineage: Option<u64>,
    /// The bounds.
    pub limits: Limits,
    /// A safety rule switched off.
    pub planted: Planted,
}

/// A write as it comes from a client of this member.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Names it in what comes out.
    pub ticket: u64,
    /// Who made it.
    pub identity: Identity,
    /// The client's session and the request's place there.
    pub session: Option<(SessionId, SeqNum)>,
    /// The operation.
    pub op: &'a [u8],
}

/// Why a request is not executed by way of this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Decline {
    /// It belongs to no view, or to one that has gone on without it.
    #[error("this member is in no view of its group")]
    NoView,
    /// It has no lease.
    #[error("this member's lease is over: it cannot know whether the group has gone on without it")]
    NoLease,
    /// There is no more room.
    #[error("too many requests are under way at this member")]
    Busy,
    /// The write may have been executed, and its answer is forgotten.
    #[error("the request was sent again too late: whether it was executed is not known any more")]
    Forgotten,
    /// There are too many clients.
    #[error(
        "the group remembers as many clients as it may, and none of them has been silent for long enough"
    )]
    NoRoom,
    /// The protocol orders each key by itself.
    #[error("a request of several keys needs one order of all: only a group of the protocol chain or craq has that")]
    SeveralKeys,
    /// The answer does not fit what members send each other.
    #[error("the answer is too large to be passed from one member to another: ask for less at once")]
    TooLarge,
    /// Others' writes came between, again and again.
    #[error("others have written the key again and again while it was being changed")]
    Contended,
}

/// What a member asks of its shell beside sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaOwn {
    /// A request has its answer.
    Answer {
        /// Which.
        ticket: u64,
        /// The answer.
        reply: ByteRange,
        /// Whether the application refused it.
        is_refused: bool,
    },
    /// A request has none by way of this member.
    Decline {
        /// Which.
        ticket: u64,
        /// Why.
        why: Decline,
    },
    /// A write that has its answer is stable, as [`MemberConfig::stable_when`] says.
    Stable {
        /// Which.
        ticket: u64,
    },
    /// A request that has its answer will not be stable: the group has begun anew without it. Its answer must not
    /// leave.
    Lost {
        /// Which.
        ticket: u64,
    },
    /// A joiner has the state, and this member counts it: the membership may make it full (G8).
    Promote {
        /// Which.
        member: MemberId,
        /// In the view of this epoch.
        epoch: u64,
    },
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaCounters {
    /// Writes that this member's clients made.
    pub writes: u64,
    /// Of these, known by their identity: executed before, or under way.
    pub writes_known: u64,
    /// Writes applied.
    pub applied: u64,
    /// Reads answered from this member's state at once.
    pub reads_here: u64,
    /// Reads that asked another member first.
    pub reads_asked: u64,
    /// Requests declined.
    pub declined: u64,
    /// Messages sent again.
    pub resent: u64,
    /// Datagrams sent and received.
    pub sent: u64,
    /// See [`ReplicaCounters::sent`].
    pub received: u64,
    /// Datagrams of another epoch, which were not looked at.
    pub other_epoch: u64,
    /// Datagrams refused, by the reason.
    pub refused: std::collections::BTreeMap<Refusal, u64>,
    /// Views taken.
    pub views: u64,
    /// Snapshots given to joiners and taken.
    pub snapshots_given: u64,
    /// See [`ReplicaCounters::snapshots_given`].
    pub snapshots_taken: u64,
}

/// A member of a group, as a machine without I/O over a state.
pub trait Replica {
    /// What is replicated.
    type State;

    /// What is replicated.
    fn state(&self) -> &Self::State;

    /// The same, to be moved along.
    fn state_mut(&mut self) -> &mut Self::State;

    /// A client's read.
    fn read(&mut self, now: Nanos, ticket: u64, op: &[u8], effects: &mut Effects<ReplicaOwn>);

    /// A client's write.
    fn write(&mut self, now: Nanos, write: &Write<'_>, effects: &mut Effects<ReplicaOwn>);

    /// A datagram arrived.
    fn on_message(&mut self, now: Nanos, message: &[u8], effects: &mut Effects<ReplicaOwn>);

    /// What comes from this address does not authenticate. If it is a member's, that is sent a datagram in return: who
    /// has another key learns so from what it cannot read.
    fn greet(&mut self, address: SocketAddr);

    /// The membership has a view. One that does not come after the present one changes nothing.
    fn on_view(&mut self, now: Nanos, view: &View, effects: &mut Effects<ReplicaOwn>);

    /// Until when this member may answer reads (G1).
    fn on_lease(&mut self, until: Nanos);

    /// Storage may have gone on.
    fn on_stored(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>);

    /// The time of [`Replica::next_timer`] has come.
    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>);

    /// When to call [`Replica::on_timer`].
    fn next_timer(&self) -> Option<Nanos>;

    /// Sends what the calls since the last one have left to be sent: call it when a burst is over.
    fn flush(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>);

    /// What was counted.
    fn counters(&self) -> &ReplicaCounters;

    /// The epoch of its view; 0 without one.
    fn epoch(&self) -> u64;

    /// In which history of its group ([`View::founded`]) what its storage holds stands; none while that is being
    /// replaced. Who starts the member again tells it: a change is to be stored before the next call.
    fn lineage(&self) -> Option<u64>;

    /// Whether it answers its clients now, and if not why.
    fn is_serving(&self, now: Nanos) -> Result<(), Decline>;
}
