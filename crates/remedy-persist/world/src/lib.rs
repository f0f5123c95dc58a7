//! The deterministic world of persist: clients, devices and a server with an application and its storage,
//! what goes wrong with them, and the model that judges each step.
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
pub mod history;
pub mod made;
pub mod media;
pub mod model;
pub mod place;
mod report;
pub mod scenario;
pub mod storage;
pub mod strict;
mod trace;
mod world;

use scotfree_sim::{Simulation, Worlds};

pub use place::Place;
pub use report::{Failure, Report};
pub use scenario::Scenario;
pub use scotfree_sim::{campaign, rng, Depth, Progress};
pub use trace::{Deed, Happening, Sight};
pub use world::{capture, run, Seen, World};

/// How a campaign of this world is run.
pub type Options<'a> = scotfree_sim::Options<'a, World>;
/// What a campaign of this world came to.
pub type CampaignReport = scotfree_sim::CampaignReport<Report, Failure>;

/// This world, for who runs worlds by their names.
pub const SIMULATION: &dyn Simulation = &Worlds::<World> {
    kinds: &[
        ("random", "any number of roles, and a few mishaps", Scenario::random),
        ("storm", "worlds in which everything goes wrong at once", Scenario::storm),
        ("several", "several servers behind one chain of devices", Scenario::several),
    ],
};
