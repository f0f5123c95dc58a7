//! The engine of deterministic worlds in which machines are tried: a network that loses, doubles,
//! reorders and damages, media that tear and forget, roles that crash at any step, clocks that
//! jump.
//!
//! Invariant: one seed, one run: nothing happens but through one queue, in its order, and all that
//! chance decides is drawn from streams that the seed names.
//!
//! What is tried is a [`Protocol`]: its places, as many of each role as its scenario says; its roles, which
//! start with what their media kept; what can go wrong with it beside packets, links and clocks; and its
//! model, which looks at each step and judges when all has come to rest. The engine knows none of them.
#![forbid(unsafe_code)]

mod campaign;
pub mod clock;
mod engine;
pub mod media;
pub mod network;
mod protocol;
pub mod queue;
pub mod report;
pub mod rng;
mod run;
mod simulation;
mod timing;
pub mod trace;
mod travel;

pub use campaign::{campaign, CampaignReport, Options, Progress};
pub use engine::{Alarm, Chance, Course, Engine, Event, Incarnation, Mishap, When};
pub use protocol::{EntryOf, FailureOf, HappeningOf, Outcome, Protocol};
pub use report::{Counters, Failure, Tally, Violation};
pub use run::{come_to_rest, run, STEPS_MAX};
pub use simulation::{Kind, Simulation, Told, Worlds};
pub use timing::Timing;
pub use trace::{Depth, Happening, Loss};
pub use travel::{Packet, Packets, Travel};
