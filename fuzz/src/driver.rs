//! Runs a target on mutated seeds until its time is over or it panics.
//!
//! Invariant: a finding names the target, the seed and the place, which are enough to make it again.

use crate::{mutate, Target};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// How often the clock is read: after so many inputs.
const INPUTS_PER_LOOK: u64 = 64;

/// What a run is bounded by and begins with.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Determines every input.
    pub seed: u64,
    /// The first place to run.
    pub first: u64,
    /// How many inputs to run at most.
    pub inputs_max: u64,
    /// How long to run at most.
    pub time_max: Duration,
}

/// An input on which a target panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its place in the run.
    pub place: u64,
    /// The input.
    pub input: Vec<u8>,
}

/// Runs `target`; the count of inputs that it took, or the first that it did not.
pub fn drive(target: &Target, plan: &Plan) -> Result<u64, Finding> {
    let corpus = (target.seeds)();
    let start = Instant::now();
    for count in 0..plan.inputs_max {
        if count % INPUTS_PER_LOOK == 0 && start.elapsed() >= plan.time_max {
            return Ok(count);
        }
        let place = plan.first + count;
        let input = mutate::input(plan.seed, place, &corpus);
        if !holds(target, &input) {
            return Err(Finding { place, input });
        }
    }
    Ok(plan.inputs_max)
}

/// Whether `target` takes `input`.
pub fn holds(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    const SHORT: Plan = Plan { seed: 1, first: 0, inputs_max: 2_000, time_max: Duration::from_secs(60) };

    #[test]
    fn every_target_holds_on_mutated_seeds() {
        for target in TARGETS {
            assert_eq!(drive(target, &SHORT), Ok(2_000), "{}", target.name);
        }
    }

    fn planted(input: &[u8]) {
        assert!(!input.starts_with(b"SCOT\x02"), "the plant");
    }

    /// A driver that finds nothing may be one that does not look: it must find a plant one byte away
    /// from its seed, and find it again from what it reports.
    #[test]
    fn a_planted_panic_is_found_and_found_again() {
        let target = Target { name: "planted", run: planted, seeds: || vec![b"SCOT\x01 and more".to_vec()] };
        let plan = Plan { inputs_max: 200_000, ..SHORT };
        let finding = drive(&target, &plan).expect_err("the plant is found");
        assert!(!holds(&target, &finding.input));
        let again = Plan { first: finding.place, inputs_max: 1, ..SHORT };
        assert_eq!(drive(&target, &again), Err(finding));
    }

    #[test]
    fn time_is_a_bound() {
        let target = Target { name: "idle", run: |_| {}, seeds: Vec::new };
        let plan = Plan { inputs_max: u64::MAX, time_max: Duration::ZERO, ..SHORT };
        assert_eq!(drive(&target, &plan), Ok(0));
    }
}
