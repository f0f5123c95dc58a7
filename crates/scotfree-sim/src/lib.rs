//! The deterministic world in which the machines are tried: a network that loses, doubles,
//! reorders and damages, media that tear and forget, roles that crash at any step, clocks that
//! jump.
//!
//! Invariant: one seed, one run. A run is checked after every step against a small reference model
//! ([`model`]), and at its end against the whole history of what clients saw, with the order of the
//! server's storage as the witness ([`history`]) and without any ([`strict`]).
//!
//! What is promised, and hence demanded, depends on what goes wrong ([`model::Promise`]):
//!
//! - Everything, as long as no more devices lose their log than the acknowledgements asked for
//!   survive (k - 1 of k; none where memory is declared to survive and for what is on disk).
//! - Each session for itself, once more was lost than that while it was needed.
//! - No write twice and none before its elder, where a server stands alone and answers before it is
//!   stable.
//!
//! One meeting of two failures is outside of all promises and left out: an update that was executed
//! and seen while only one log had it, whose log then fails, followed by a crash of the server
//! before it is stable (see docs/design/persist-machines.md, "Reads"). The world lets one of the two
//! happen, and counts it.
#![forbid(unsafe_code)]

pub mod app;
mod campaign;
pub mod clock;
pub mod history;
pub mod made;
pub mod media;
pub mod model;
pub mod network;
pub mod queue;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod storage;
pub mod strict;
pub mod trace;
mod world;

pub use campaign::{campaign, CampaignReport, Options, Progress};
pub use report::{Failure, Report};
pub use scenario::Scenario;
pub use trace::Depth;
pub use world::{capture, run, Seen};
