//! Arms in turns.
//!
//! Invariant: in each round every arm does its work once, forwards in even rounds and backwards in odd ones, so that
//! what the machine does meanwhile falls on all alike; time is that of this thread on its processor.

use super::{Bench, Work};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use rustix::time::{clock_gettime, ClockId};

/// What one arm took in one round.
#[derive(Debug)]
pub struct Round {
    /// The codec, and what of it.
    pub arm: &'static str,
    /// Which way.
    pub work: Work,
    /// From 0.
    pub round: u32,
    /// Nanoseconds a message.
    pub ns: f64,
}

/// So many rounds of all arms, or of those that are wanted.
pub fn measure(bench: &mut Bench<'_>, rounds: u32, each: &mut dyn FnMut(Round)) {
    let messages = bench.messages as f64;
    let arms = bench.arms();
    for round in 0..=rounds {
        for place in 0..arms.len() {
            let index = if round % 2 == 0 { place } else { arms.len() - 1 - place };
            let arm = &mut arms[index];
            let begun = spent_ns();
            let got = std::hint::black_box((arm.run)());
            let ns = (spent_ns() - begun) as f64 / messages;
            assert_eq!(got, arm.expected, "{} {}", arm.name, arm.work.name());
            // The first warms caches and predictors.
            if let Some(round) = round.checked_sub(1) {
                each(Round { arm: arm.name, work: arm.work, round, ns });
            }
        }
    }
}

/// Processor time of this thread.
fn spent_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Stays on one processor: the last that it may run on. Where the system refuses, it moves about.
pub fn pin() {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let last = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).last();
    let mut one = CpuSet::new();
    last.into_iter().for_each(|cpu| one.set(cpu));
    let _ = sched_setaffinity(None, &one);
}
