//! The vocabulary that every other crate speaks: stages, machines, effects, identifiers.
//!
//! Invariant: nothing here performs I/O, reads a clock or draws randomness, and nothing here has a
//! dependency.
#![forbid(unsafe_code)]

mod count;
mod durability;
mod effect;
mod fnv;
mod hex;
mod ids;
mod machine;
mod remedy;
mod stage;
mod tier;

pub use count::Count;
pub use durability::{Durability, Survives};
pub use effect::{ByteRange, Effect, Effects, Token};
pub use fnv::Fnv1a;
pub use hex::{from_hex, to_hex};
pub use ids::{
    BootEpoch, DeviceId, Epoch, KeyHash, Nanos, OrderKey, OrderNumber, SeqNum, ServerIndex, SessionId,
    SessionName, SlotIndex, SERVERS_MAX,
};
pub use machine::Machine;
pub use remedy::RemedyEntry;
pub use stage::{
    Boundaries, Boundary, Stage, StageSet, StageTimes, StampSource, BOUNDARY_COUNT, STAGE_COUNT,
};
pub use tier::{Tier, TierError, TIER_DEVICES_MAX};
