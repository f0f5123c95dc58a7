//! A run, from the first start to the last word.
//!
//! Invariant: a run ends when its world is at rest, when an invariant breaks or when it takes too many
//! steps; it is judged in each case.

use crate::engine::Event;
use crate::protocol::{Outcome, Protocol};
use crate::report::{Counters, Failure, Violation};
use crate::trace::{Depth, Happening};

/// More steps than any run should take.
pub const STEPS_MAX: u64 = 400_000;

/// Runs a scenario with a seed.
pub fn run<P: Protocol>(seed: u64, scenario: P::Scenario, depth: Depth) -> Outcome<P> {
    let mut world = P::new(seed, scenario, depth);
    come_to_rest(&mut world);
    world.conclude();
    outcome(world)
}

/// Lets a world go on until it is at rest or an invariant is broken.
pub fn come_to_rest<P: Protocol>(world: &mut P) {
    world.begin();
    world.engine_mut().take_course();
    while !world.engine().is_broken() && !world.is_at_rest() {
        let engine = world.engine_mut();
        let Some((at, event)) = engine.queue.pop() else {
            world.must(Err(Violation::new(P::PROGRESS, "nothing is going to happen any more")));
            break;
        };
        engine.now = at;
        engine.step += 1;
        if engine.step == STEPS_MAX {
            world.must(Err(Violation::new(P::PROGRESS, "the world does not come to rest")));
        }
        while let Some(trouble) = world.engine_mut().trouble_of_this_step() {
            world.befall(trouble);
        }
        happen(world, event);
        world.stepped();
    }
}

fn happen<P: Protocol>(world: &mut P, event: Event<P::Place, P::Event>) {
    match event {
        Event::Arrive(place, packet) => {
            let packet = world.engine_mut().packets.take(packet);
            world.arrive(place, packet);
        }
        Event::Wake(place) => world.wake(place),
        Event::Return(place) => {
            world.engine_mut().note(place, Happening::Note("comes back", 0));
            world.start(place);
        }
        Event::Heal(from, to) => world.engine_mut().cuts.heal(from, to),
        Event::Mishap(index) => {
            let trouble = world.engine().trouble_at(index);
            world.befall(trouble);
        }
        Event::Calm => {
            world.engine_mut().become_calm();
            world.calmed();
        }
        Event::Own(event) => world.happen(event),
    }
}

fn outcome<P: Protocol>(mut world: P) -> Outcome<P> {
    let engine = world.engine_mut();
    let (steps, virtual_ns, trace_hash) = (engine.step, engine.now.0, engine.trace.hash());
    let tally = engine.report.tally_mut();
    (tally.steps, tally.virtual_ns, tally.trace_hash) = (steps, virtual_ns, trace_hash);
    match engine.violation.take() {
        None => Ok(engine.report.clone()),
        Some(violation) => Err(Box::new(Failure {
            seed: engine.seed,
            step: engine.step,
            at: engine.now,
            violation,
            trace: engine.trace.take(),
            scenario: format!("{:?}", world.scenario()),
        })),
    }
}
