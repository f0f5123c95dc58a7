//! Answers by when they came.
//!
//! Invariant: each answer counts in one interval: that in which it came, or the last if it came later.

use scotfree_core::Nanos;
use serde::{Deserialize, Serialize};

/// Intervals of one timeline.
pub const INTERVALS_MAX: usize = 1_000;

/// Which intervals to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intervals {
    /// When the first begins, of `CLOCK_MONOTONIC`, which all processes of a host share.
    pub since_ns: u64,
    /// How long each is.
    pub each_ms: u64,
    /// How many there are, of at most [`INTERVALS_MAX`].
    pub count: usize,
}

/// What came in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Answers.
    pub answered: u64,
    /// The longest time without one that ended here.
    pub gap_max_ms: f64,
}

/// The intervals of one kind of requests; none if nobody wants any.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    since: Nanos,
    each: Nanos,
    intervals: Vec<Interval>,
}

impl Timeline {
    pub(super) fn new(wanted: Option<Intervals>) -> Timeline {
        let Some(Intervals { since_ns, each_ms, count }) = wanted else { return Timeline::default() };
        let intervals = vec![Interval::default(); count.clamp(1, INTERVALS_MAX)];
        Timeline { since: Nanos(since_ns), each: Nanos::from_millis(each_ms.max(1)), intervals }
    }

    /// An answer, so long behind the one before.
    pub(super) fn on_answer(&mut self, now: Nanos, gap: Nanos) {
        let Some(last) = self.intervals.len().checked_sub(1) else { return };
        let index = (now.since(self.since).0 / self.each.0).min(last as u64) as usize;
        let interval = &mut self.intervals[index];
        interval.answered += 1;
        interval.gap_max_ms = interval.gap_max_ms.max(gap.0 as f64 / 1e6);
    }

    pub(super) fn into_intervals(self) -> Vec<Interval> {
        self.intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(count: usize) -> Timeline {
        Timeline::new(Some(Intervals { since_ns: Nanos::from_millis(5_000).0, each_ms: 100, count }))
    }

    #[test]
    fn an_answer_counts_where_it_came_with_the_time_before_it() {
        let mut timeline = timeline(3);
        for (ms, gap_ms) in [(5_000, 0), (5_090, 90), (5_250, 160), (5_255, 5), (9_000, 10)] {
            timeline.on_answer(Nanos::from_millis(ms), Nanos::from_millis(gap_ms));
        }
        let told = timeline.into_intervals().into_iter().map(|one| (one.answered, one.gap_max_ms));
        assert_eq!(told.collect::<Vec<_>>(), [(2, 90.0), (0, 0.0), (3, 160.0)]);
    }

    #[test]
    fn there_are_as_many_as_are_wanted_and_allowed() {
        assert_eq!(timeline(INTERVALS_MAX + 1).into_intervals().len(), INTERVALS_MAX);
        let mut none = Timeline::new(None);
        none.on_answer(Nanos::from_millis(1), Nanos(0));
        assert_eq!(none.into_intervals(), []);
    }
}
