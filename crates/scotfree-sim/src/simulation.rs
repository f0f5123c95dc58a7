//! A protocol's worlds without its types: for who runs the worlds of many protocols by their names.
//!
//! Invariant: nothing is decided here: a run is [`run`](crate::run()), many are [`campaign`], and what they say is
//! said in words.

use crate::campaign::{campaign, Options, Progress};
use crate::protocol::Protocol;
use crate::report::Violation;
use crate::run::run;
use crate::trace::Depth;
use std::fmt::{self, Debug};
use std::ops::Range;

/// A kind of scenarios, by its name and in a few words, and the scenario that a seed stands for.
pub type Kind<P> = (&'static str, &'static str, fn(u64) -> <P as Protocol>::Scenario);

/// The worlds of a protocol.
pub struct Worlds<P: Protocol + 'static> {
    /// The kinds of scenarios that there are; the first is meant where none is named.
    pub kinds: &'static [Kind<P>],
}

/// What came of many runs, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The numbers of those that passed.
    pub total: String,
    /// The seeds of those that failed, and which invariant they broke.
    pub failures: Vec<(u64, String)>,
}

/// Worlds of any protocol. A kind is named by its place among the kinds.
pub trait Simulation: Debug + Sync {
    /// The kinds of scenarios, by their names and in a few words.
    fn kinds(&self) -> Vec<(&'static str, &'static str)>;

    /// One run: its report, or how it failed.
    fn one(&self, kind: usize, seed: u64, depth: Depth) -> Result<String, String>;

    /// Many runs.
    fn many(&self, kind: usize, seeds: Range<u64>, progress: &mut (dyn FnMut(Progress) + Send)) -> Told;
}

impl<P: Protocol + 'static> Simulation for Worlds<P> {
    fn kinds(&self) -> Vec<(&'static str, &'static str)> {
        self.kinds.iter().map(|(name, about, _)| (*name, *about)).collect()
    }

    fn one(&self, kind: usize, seed: u64, depth: Depth) -> Result<String, String> {
        let (_, _, scenario) = self.kinds[kind];
        match run::<P>(seed, scenario(seed), depth) {
            Ok(report) => Ok(report.to_string()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    fn many(&self, kind: usize, seeds: Range<u64>, progress: &mut (dyn FnMut(Progress) + Send)) -> Told {
        let (_, _, scenario) = self.kinds[kind];
        let report = campaign(seeds, &Options::<P> { scenario: &scenario, ..Options::default() }, progress);
        let failures = report.failures.iter().map(|failure| (failure.seed, in_words(&failure.violation)));
        Told { total: report.total.to_string(), failures: failures.collect() }
    }
}

fn in_words<Invariant: Debug>(violation: &Violation<Invariant>) -> String {
    format!("{:?}: {}", violation.invariant, violation.detail)
}

impl<P: Protocol + 'static> Debug for Worlds<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds.iter().map(|(name, _, _)| name)).finish()
    }
}
