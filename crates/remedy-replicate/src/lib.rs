//! Groups of servers that keep one state, as machines without I/O.
//!
//! Invariant: a machine decides by what it was told alone: views and leases come from a membership, never from a
//! silence (docs/design/groups.md; rules G1 to G12 are cited where they are enforced).
#![forbid(unsafe_code)]

mod view;

pub use view::{Member, MemberId, Standing, View, MEMBERS_MAX};
