//! What a protocol brings to the engine.
//!
//! Invariant: a protocol's world changes only in the calls below, and draws all chance from its engine.

use crate::engine::Engine;
use crate::report::{Counters, Failure, Violation};
use crate::trace::{Depth, Entry, Happening};
use crate::travel::Packet;
use std::fmt::{Debug, Display};
use std::net::SocketAddr;

/// A protocol with the world of one run: its roles, at any number of places, and the model that judges them.
pub trait Protocol: Sized {
    /// All that is decided before a run begins, but for the seed.
    type Scenario: Clone + Debug;
    /// Where a role can be: an index for each role of which there are several.
    type Place: Copy + Eq + Debug + Display + Send;
    /// A packet's outside, as the trace shows it.
    type Sight: Copy + Eq + Debug + Display + Send;
    /// What roles do beside sending and waking, as the trace shows it.
    type Deed: Copy + Eq + Debug + Display + Send;
    /// What is going to happen beside packets, timers and mishaps.
    type Event;
    /// What can go wrong.
    type Trouble: Copy + Debug;
    /// What must hold, by name.
    type Invariant: Copy + Eq + Debug + Send;
    /// What is counted.
    type Report: Counters;

    /// What is broken where nothing goes on any more.
    const PROGRESS: Self::Invariant;

    /// The scenario that a seed stands for.
    fn draw(seed: u64) -> Self::Scenario;

    /// The world of a run, before anybody has started.
    fn new(seed: u64, scenario: Self::Scenario, depth: Depth) -> Self;

    /// The engine of this world.
    fn engine(&self) -> &Engine<Self>;

    /// The same, to be changed.
    fn engine_mut(&mut self) -> &mut Engine<Self>;

    /// The scenario of this run.
    fn scenario(&self) -> &Self::Scenario;

    // ---- the network

    /// Looks at a packet.
    fn sight(bytes: &[u8]) -> Self::Sight;

    /// Whose address it is.
    fn place_of(address: SocketAddr) -> Option<Self::Place>;

    /// The way from one place towards another.
    fn next_place(&self, at: Self::Place, target: Self::Place) -> Self::Place;

    /// Whether packets between two places may go around those between them.
    fn has_detour(&self, _at: Self::Place, _target: Self::Place) -> bool {
        false
    }

    /// Whether the scenario wants this very packet to vanish as it is sent.
    fn vanishes(&mut self, _at: Self::Place, _sight: &Self::Sight) -> bool {
        false
    }

    /// Whether the scenario wants this very packet to vanish on a link.
    fn vanishes_between(&mut self, _at: Self::Place, _next: Self::Place, _sight: &Self::Sight) -> bool {
        false
    }

    // ---- what happens

    /// Roles start, or are asked to come by [`Engine::comes_back`].
    fn begin(&mut self);

    /// The role at `place` comes back, with what its media kept.
    fn start(&mut self, place: Self::Place);

    /// A packet has come to `place`, its receiver or one on the way.
    fn arrive(&mut self, place: Self::Place, packet: Packet<Self::Sight>);

    /// A wake-up that an [`Alarm`](crate::Alarm) of `place` has set, perhaps for an earlier wish.
    fn wake(&mut self, place: Self::Place);

    /// Something of the protocol's own.
    fn happen(&mut self, event: Self::Event);

    /// Something goes wrong.
    fn befall(&mut self, trouble: Self::Trouble);

    /// All faults have stopped: the network is calm, and every link whole.
    fn calmed(&mut self);

    // ---- what must hold

    /// The model looks at what a role sends.
    fn saw(&mut self, _at: Self::Place, _to: SocketAddr, _sight: &Self::Sight, _bytes: &[u8]) {}

    /// A step is done.
    fn stepped(&mut self) {}

    /// Whether nothing is left to do.
    fn is_at_rest(&self) -> bool;

    /// The run has ended, at rest or by a violation: the model judges the whole, and roles are counted.
    fn conclude(&mut self);

    /// Records the first broken invariant, which ends the run.
    fn must(&mut self, verdict: Result<(), Violation<Self::Invariant>>) {
        if let Err(violation) = verdict {
            self.engine_mut().break_with(violation);
        }
    }
}

/// What happens in a protocol's world.
pub type HappeningOf<P> = Happening<<P as Protocol>::Sight, <P as Protocol>::Deed>;
/// The same with its time and place.
pub type EntryOf<P> = Entry<<P as Protocol>::Place, HappeningOf<P>>;
/// A run that broke an invariant of the protocol.
pub type FailureOf<P> = Failure<<P as Protocol>::Invariant, EntryOf<P>>;
/// What a run came to.
pub type Outcome<P> = Result<<P as Protocol>::Report, Box<FailureOf<P>>>;
