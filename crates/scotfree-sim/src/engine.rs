//! What every world has: time, the queue, chance, the network and what is told of a run.
//!
//! Invariant: an event that stands in the queue is of the present or the future.

use crate::network::{Cuts, Quality};
use crate::protocol::{EntryOf, HappeningOf, Protocol};
use crate::queue::Queue;
use crate::report::{Counters, Violation};
use crate::rng::Rng;
use crate::trace::{Depth, Entry, Happening, Trace};
use crate::travel::{PacketId, Packets};
use scotfree_core::Nanos;

/// Something that is going to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<Place, Own> {
    /// A packet arrives.
    Arrive(Place, PacketId),
    /// A role asked to be woken.
    Wake(Place),
    /// A role comes back.
    Return(Place),
    /// A cut link is whole again.
    Heal(Place, Place),
    /// Something goes wrong.
    Mishap(usize),
    /// All faults stop.
    Calm,
    /// Something of the protocol's own.
    Own(Own),
}

/// When something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At a time.
    Time(Nanos),
    /// Before a step.
    Step(u64),
}

/// Something that goes wrong once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mishap<Trouble> {
    /// When.
    pub when: When,
    /// What.
    pub what: Trouble,
}

/// What a scenario decides of the engine's part.
#[derive(Debug, Clone)]
pub struct Course<Trouble> {
    /// How bad the network is, until all faults stop.
    pub quality: Quality,
    /// What goes wrong, and when.
    pub mishaps: Vec<Mishap<Trouble>>,
    /// When all faults stop and the network becomes calm.
    pub calm_at: Nanos,
}

/// Streams of chance, one for each concern, so that drawing more of one does not change another.
#[derive(Debug)]
pub struct Chance {
    /// What becomes of packets.
    pub network: Rng,
    /// What becomes of records, and how long it takes.
    pub media: Rng,
    /// What servers do.
    pub service: Rng,
    /// What clients do.
    pub work: Rng,
}

impl Chance {
    fn new(seed: u64) -> Chance {
        let stream = |label| Rng::new(seed, label);
        Chance { network: stream(2), media: stream(3), service: stream(4), work: stream(5) }
    }
}

/// Tells the events of a role's earlier lives from those of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Incarnation(u32);

impl Incarnation {
    /// The next life.
    #[must_use]
    pub fn next(self) -> Incarnation {
        Incarnation(self.0 + 1)
    }
}

/// The part of a world that is the same for all protocols.
pub struct Engine<P: Protocol> {
    /// The world's time.
    pub now: Nanos,
    /// What is going to happen.
    pub queue: Queue<Event<P::Place, P::Event>>,
    /// What chance decides.
    pub chance: Chance,
    /// How bad the network is.
    pub quality: Quality,
    /// The links that are cut.
    pub cuts: Cuts<P::Place>,
    /// What is under way.
    pub packets: Packets<P::Sight>,
    /// What is counted.
    pub report: P::Report,
    pub(crate) seed: u64,
    pub(crate) step: u64,
    pub(crate) trace: Trace<EntryOf<P>>,
    pub(crate) violation: Option<Violation<P::Invariant>>,
    mishaps: Vec<Mishap<P::Trouble>>,
    /// Mishaps that wait for their step, the next one last.
    at_steps: Vec<(u64, P::Trouble)>,
    calm_at: Nanos,
}

impl<P: Protocol> Engine<P> {
    /// Nothing has happened.
    pub fn new(seed: u64, depth: Depth, course: Course<P::Trouble>) -> Engine<P> {
        let mut report = P::Report::default();
        report.tally_mut().runs = 1;
        Engine {
            now: Nanos(0),
            queue: Queue::new(),
            chance: Chance::new(seed),
            quality: course.quality,
            cuts: Cuts::default(),
            packets: Packets::default(),
            report,
            seed,
            step: 0,
            trace: Trace::new(depth),
            violation: None,
            mishaps: course.mishaps,
            at_steps: Vec::new(),
            calm_at: course.calm_at,
        }
    }

    /// Something of the protocol's own happens after a while.
    pub fn after(&mut self, span: Nanos, event: P::Event) {
        self.queue.push(self.now.plus(span), Event::Own(event));
    }

    /// A role comes back after a while.
    pub fn comes_back(&mut self, span: Nanos, place: P::Place) {
        self.queue.push(self.now.plus(span), Event::Return(place));
    }

    /// Nothing passes from one place to its neighbour for a while.
    pub fn cut(&mut self, from: P::Place, to: P::Place, span: Nanos) {
        self.report.tally_mut().cuts += 1;
        self.note(from, Happening::Note("is cut off from a neighbour", span.0));
        self.cuts.cut(from, to);
        self.queue.push(self.now.plus(span), Event::Heal(from, to));
    }

    /// Tells the trace.
    pub fn note(&mut self, place: P::Place, what: HappeningOf<P>) {
        self.trace.note(Entry { at: self.now, step: self.step, place, what });
    }

    /// The first broken invariant ends the run.
    pub fn break_with(&mut self, violation: Violation<P::Invariant>) {
        self.violation.get_or_insert(violation);
    }

    /// Whether an invariant is broken.
    pub fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    /// Puts what goes wrong, and its end, into the queue.
    pub(crate) fn take_course(&mut self) {
        for (index, Mishap { when, what }) in self.mishaps.iter().enumerate() {
            match when {
                When::Time(at) => self.queue.push(*at, Event::Mishap(index)),
                When::Step(step) => self.at_steps.push((*step, *what)),
            }
        }
        // Stable and from behind: mishaps of one step befall in their order.
        self.at_steps.reverse();
        self.at_steps.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
        self.queue.push(self.calm_at, Event::Calm);
    }

    pub(crate) fn trouble_at(&self, index: usize) -> P::Trouble {
        self.mishaps[index].what
    }

    /// The next mishap that befalls before this step.
    pub(crate) fn trouble_of_this_step(&mut self) -> Option<P::Trouble> {
        let (step, _) = self.at_steps.last()?;
        (*step <= self.step).then(|| self.at_steps.pop())?.map(|(_, what)| what)
    }

    pub(crate) fn become_calm(&mut self) {
        self.quality = self.quality.calmed();
        self.cuts.heal_all();
    }
}

/// When a role wants to be woken, and for when that stands in the queue.
#[derive(Debug, Clone, Copy)]
pub struct Alarm {
    set_for: Nanos,
}

impl Alarm {
    /// Not set.
    pub const NONE: Alarm = Alarm { set_for: Nanos::MAX };

    /// Puts a wake-up into the queue unless one stands there that is as early.
    pub fn set<Place, Own>(&mut self, place: Place, at: Nanos, queue: &mut Queue<Event<Place, Own>>) {
        if at < self.set_for {
            self.set_for = at;
            queue.push(at, Event::Wake(place));
        }
    }

    /// Whether this wake-up is the one that was set.
    pub fn rings(&mut self, now: Nanos) -> bool {
        let rings = self.set_for == now;
        if rings {
            *self = Alarm::NONE;
        }
        rings
    }
}
