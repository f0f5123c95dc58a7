//! How long a log takes until it holds its records.
//!
//! Invariant: a record is counted once, when it is durable, whoever holds it; the clock is the loop's, which
//! is read anyway.

use scotfree_core::{Nanos, SeqNum};
use scotfree_rpc::metrics::{DurationHistogram, MetricKind, MetricsText};
use std::collections::VecDeque;

/// How many records on their way are timed; further ones are not counted.
const TIMED_MAX: usize = 65_536;
const NAME: &str = "scotfree_proxy_log_write_duration_seconds";
const HELP: &str = "From giving a record of updates to the log until the disk, or the peers, hold it";

/// The records on their way, and how long others took.
#[derive(Default)]
pub(super) struct LogTimes {
    given: VecDeque<(SeqNum, Nanos)>,
    durable: SeqNum,
    durations: DurationHistogram,
}

impl LogTimes {
    /// A record whose last update has this place is given to the log; places grow.
    pub fn give(&mut self, now: Nanos, last: SeqNum) {
        if self.given.len() < TIMED_MAX {
            self.given.push_back((last, now));
        }
    }

    /// Records up to this place are durable.
    pub fn note_durable(&mut self, through: SeqNum) {
        self.durable = self.durable.max(through);
    }

    /// What has become durable has become so until `now`.
    pub fn settle(&mut self, now: Nanos) {
        while let Some((_, given)) = self.given.front().copied().filter(|(last, _)| *last <= self.durable) {
            self.given.pop_front();
            self.durations.record(now.since(given));
        }
    }

    pub fn write_metrics(&self, text: &mut MetricsText) {
        text.family(MetricKind::Histogram, NAME, HELP);
        text.histogram(NAME, &[], &self.durations, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_counted_once_and_from_when_it_was_given() {
        let mut times = LogTimes::default();
        times.give(Nanos::from_millis(1), SeqNum(3));
        times.give(Nanos::from_millis(40), SeqNum(5));
        times.settle(Nanos::from_millis(50));
        assert_eq!(times.durations.count(), 0, "neither is durable");
        times.note_durable(SeqNum(4));
        times.settle(Nanos::from_millis(61));
        times.note_durable(SeqNum(3));
        times.settle(Nanos::from_millis(70));
        let mut expected = DurationHistogram::default();
        expected.record(Nanos::from_millis(60));
        assert_eq!(times.durations, expected);
        times.note_durable(SeqNum(5));
        times.settle(Nanos::from_millis(41));
        expected.record(Nanos::from_millis(1));
        assert_eq!(times.durations, expected);
    }

    #[test]
    fn what_a_log_that_hangs_has_on_its_way_is_bounded() {
        let mut times = LogTimes::default();
        for place in 1..=TIMED_MAX as u64 + 9 {
            times.give(Nanos(1), SeqNum(place));
        }
        times.note_durable(SeqNum(u64::MAX));
        times.settle(Nanos(2));
        assert_eq!(times.durations.count(), TIMED_MAX as u64);
    }
}
