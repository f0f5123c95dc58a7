//! What a remedy says of itself, so that a what-if needs no cluster.

use crate::{Nanos, StageSet, StageTimes};

/// What a remedy would do to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// The completion time expected with the remedy.
    pub completion_time: Nanos,
    /// The completion time without it.
    pub baseline: Nanos,
}

impl Forecast {
    /// The time saved; zero when the remedy does not pay.
    pub fn saving(&self) -> Nanos {
        self.baseline.since(self.completion_time)
    }
}

/// A way to take stages off a request's critical path. Pure: it forecasts, it does not act.
pub trait Remedy {
    /// The folder's name without its prefix.
    fn name(&self) -> &'static str;

    /// The stages it takes off the critical path.
    fn removes(&self) -> StageSet;

    /// What must hold for it to apply, in words for the operator.
    fn preconditions(&self) -> &'static [&'static str];

    /// What it would do to a call with these stage times.
    fn forecast(&self, times: &StageTimes) -> Forecast;
}
