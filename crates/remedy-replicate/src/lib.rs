//! Groups of servers that keep one state, as machines without I/O.
//!
//! Invariant: a machine decides by what it was told alone: views and leases come from a membership, never from a
//! silence (docs/design/groups.md; rules G1 to G12 are cited where they are enforced).
#![forbid(unsafe_code)]

mod chain;
mod datagram;
mod desk;
mod fault;
mod hermes;
mod remedy;
mod replica;
#[cfg(test)]
mod toy;
mod transfer;
mod view;

pub use chain::{Chain, ReadsAt};
pub use datagram::{group_name_hash, open, read_head, Head, Messages, Reader, Refusal, DATAGRAM_BYTES_MAX};
pub use fault::{Fault, HermesFault, Planted};
pub use hermes::Hermes;
pub use remedy::ENTRY;
pub use replica::{Decline, Limits, MemberConfig, Replica, ReplicaCounters, ReplicaOwn, StableWhen, Write};
pub use view::{Member, MemberId, Standing, View, MEMBERS_MAX};
