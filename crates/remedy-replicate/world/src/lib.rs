//! Groups in a deterministic world: members with storage, clients that go from one member to another, a membership
//! that gives leases and views; packets that are lost, doubled, late and damaged; members that crash, pause for
//! longer than their lease and have clocks that run at other rates.
//!
//! Invariant: what is judged is what clients saw, what storage holds and what members hold at the end; no machine is
//! believed.
#![forbid(unsafe_code)]

mod client;
mod device;
mod membership;
mod model;
mod scenario;
mod state;
pub mod timed;
mod world;

pub use model::{Numbers, Op, Reply};
pub use scenario::{Place, Protocol, Scenario, Trouble};
pub use state::Kept;
pub use world::{Invariant, Report, World};

use scotfree_sim::{Simulation, Timing, Worlds};

/// Groups in simulated time, for who asks for numbers by their names.
pub const TIMING: &dyn Timing = &timed::GroupTiming;

/// This world, for who runs worlds by their names.
pub const SIMULATION: &dyn Simulation = &Worlds::<World> {
    kinds: &[
        ("chain", "chain replication: the tail answers reads", Scenario::chain),
        ("chain-storm", "a chain whose views change all the time", |seed| {
            Scenario::storm(seed, Protocol::Chain)
        }),
        ("chain-behind", "a chain whose members stand behind devices", |seed| {
            Scenario::behind_devices(seed, Protocol::Chain)
        }),
        ("craq-behind", "CRAQ, whose members stand behind devices", |seed| {
            Scenario::behind_devices(seed, Protocol::Craq)
        }),
        ("craq", "CRAQ: every member answers reads", Scenario::craq),
        ("craq-storm", "CRAQ in a group whose views change all the time", |seed| {
            Scenario::storm(seed, Protocol::Craq)
        }),
        ("hermes", "Hermes: every member answers reads and coordinates writes", Scenario::hermes),
        ("hermes-stated", "a Hermes group whose views an operator writes", |seed| {
            Scenario::stated(seed, Protocol::Hermes)
        }),
        (
            "hermes-apart",
            "a Hermes group whose members do not hear a joiner that the membership hears",
            |seed| Scenario::apart(seed, Protocol::Hermes),
        ),
        ("hermes-joining", "a Hermes group whose members are started again two at a time", |seed| {
            Scenario::joining(seed, Protocol::Hermes)
        }),
        ("hermes-storm", "a Hermes group whose views change all the time", |seed| {
            Scenario::storm(seed, Protocol::Hermes)
        }),
    ],
};
