//! Many seeds, on as many threads as one likes.
//!
//! Invariant: what a campaign reports does not depend on the number of threads.

use crate::protocol::{FailureOf, Outcome, Protocol};
use crate::report::Counters;
use crate::run::run;
use crate::trace::Depth;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// How a campaign is run.
pub struct Options<'a, P: Protocol> {
    /// The scenario of each seed.
    pub scenario: &'a (dyn Fn(u64) -> P::Scenario + Sync),
    /// How many threads.
    pub threads_max: usize,
    /// After how many failures it ends early.
    pub failures_max: usize,
    /// How much of a failed run is kept.
    pub depth: Depth,
}

impl<'a, P: Protocol + 'a> Default for Options<'a, P> {
    fn default() -> Self {
        Options { scenario: &P::draw, threads_max: 2, failures_max: 100, depth: Depth::Last }
    }
}

/// What a campaign came to.
#[derive(Debug)]
pub struct CampaignReport<Report, Failure> {
    /// The numbers of all runs that passed.
    pub total: Report,
    /// The runs that failed, by seed.
    pub failures: Vec<Failure>,
}

/// How far a campaign has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Runs done.
    pub done_count: u64,
    /// Of these, failed.
    pub failed_count: u64,
}

/// Runs all seeds, or until there are enough failures. `progress` is called after each run, by one
/// thread at a time.
pub fn campaign<P: Protocol>(
    seeds: Range<u64>,
    options: &Options<'_, P>,
    progress: impl FnMut(Progress) + Send,
) -> CampaignReport<P::Report, FailureOf<P>> {
    let next = AtomicU64::new(seeds.start);
    let ledger = Mutex::new(Ledger::<P, _>::new(progress));
    std::thread::scope(|scope| {
        for _ in 0..options.threads_max.max(1) {
            scope.spawn(|| work(&seeds, &next, options, &ledger));
        }
    });
    let mut report = ledger.into_inner().expect("no thread of the campaign has panicked").report;
    report.failures.sort_by_key(|failure| failure.seed);
    report
}

struct Ledger<P: Protocol, F> {
    report: CampaignReport<P::Report, FailureOf<P>>,
    progress: F,
    done_count: u64,
}

fn work<P: Protocol, F: FnMut(Progress)>(
    seeds: &Range<u64>,
    next: &AtomicU64,
    options: &Options<'_, P>,
    ledger: &Mutex<Ledger<P, F>>,
) {
    loop {
        // Only a number is shared, so no ordering with other memory is needed.
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            return;
        }
        let result = run::<P>(seed, (options.scenario)(seed), options.depth);
        let mut ledger = ledger.lock().expect("no thread of the campaign has panicked");
        ledger.note(result);
        if ledger.report.failures.len() >= options.failures_max {
            next.store(seeds.end, Ordering::Relaxed);
        }
    }
}

impl<P: Protocol, F: FnMut(Progress)> Ledger<P, F> {
    fn new(progress: F) -> Ledger<P, F> {
        let report = CampaignReport { total: P::Report::default(), failures: Vec::new() };
        Ledger { report, progress, done_count: 0 }
    }

    fn note(&mut self, result: Outcome<P>) {
        match result {
            Ok(report) => self.report.total.add(&report),
            Err(failure) => self.report.failures.push(*failure),
        }
        self.done_count += 1;
        let failed_count = self.report.failures.len() as u64;
        (self.progress)(Progress { done_count: self.done_count, failed_count });
    }
}
