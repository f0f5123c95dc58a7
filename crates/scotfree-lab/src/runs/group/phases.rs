//! Answers in intervals of a run in which a member is killed and one is started: their rates, and what those were
//! before, between and after.
//!
//! Invariant: all moments are of one clock, in milliseconds since the run's begin, as the intervals are; what is
//! compared lies clear of both changes.

use crate::runs::Measured;
use scotfree_core::Nanos;
use scotfree_io::now_monotonic;
use std::ops::Range;
use std::thread;
use std::time::Duration;

pub(super) const INTERVAL_MS: u64 = 250;
/// How long nothing is compared after a change: after the group has a view without the victim, at the latest when its
/// lease has ended, or after the member that was started is full.
const SETTLING_MS: u64 = 1_000;

/// The time since a run's begin.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) begin: Nanos,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { begin: now_monotonic() }
    }

    pub(super) fn ms(self) -> u64 {
        now_monotonic().since(self.begin).0 / 1_000_000
    }

    pub(super) fn sleep_until(self, ms: u64) {
        thread::sleep(Duration::from_millis(ms.saturating_sub(self.ms())));
    }
}

/// When a member was killed, when one was started, and when that served.
#[derive(Default)]
pub(super) struct Moments {
    pub(super) kill: u64,
    pub(super) start: u64,
    pub(super) full: u64,
}

impl Moments {
    pub(super) fn note(&self, measured: &mut Measured) {
        for (name, ms) in [("kill_ms", self.kill), ("start_ms", self.start), ("full_ms", self.full)] {
            measured.value(name, ms as f64);
        }
    }
}

/// The times between the changes.
pub(super) struct Phases {
    before: Range<u64>,
    between: Range<u64>,
    after: Range<u64>,
    /// From the start of a member until the next change.
    pub(super) started: Range<u64>,
}

impl Phases {
    pub(super) fn of(moments: &Moments, lease_ms: u64, end: u64) -> Phases {
        let Moments { kill, start, full } = *moments;
        let (killed, full) = (kill + lease_ms + SETTLING_MS, full + SETTLING_MS);
        if kill < start {
            Phases {
                before: SETTLING_MS..kill,
                between: killed..start,
                after: full..end,
                started: start..end,
            }
        } else {
            Phases {
                before: SETTLING_MS..start,
                between: full..kill,
                after: killed..end,
                started: start..kill,
            }
        }
    }

    /// The rates of what was answered in each interval, and how they compare.
    pub(super) fn note_rates(&self, kind: &str, answered: &[u64], measured: &mut Measured) {
        for (begin_ms, answered) in (0..).step_by(INTERVAL_MS as usize).zip(answered) {
            measured.value(&format!("{kind}_per_s_at_{begin_ms}_ms"), per_s(*answered, 1));
        }
        let rates = [&self.before, &self.between, &self.after].map(|phase| rate(answered, phase));
        let [before, between, after] = rates;
        measured.value(&format!("{kind}_per_s_before"), before);
        measured.value(&format!("{kind}_between_over_before"), between / before);
        measured.value(&format!("{kind}_after_over_before"), after / before);
    }

    /// The rate of some time over that before all changes.
    pub(super) fn over_before(&self, answered: &[u64], time: &Range<u64>) -> f64 {
        rate(answered, time) / rate(answered, &self.before)
    }
}

fn per_s(answered: u64, intervals_count: u64) -> f64 {
    answered as f64 * 1e3 / (intervals_count * INTERVAL_MS) as f64
}

/// How many were answered in a second of the intervals that lie in a phase whole; none if none does.
fn rate(answered: &[u64], phase: &Range<u64>) -> f64 {
    let first = phase.start.div_ceil(INTERVAL_MS) as usize;
    let there = answered.get(first..(phase.end / INTERVAL_MS) as usize).unwrap_or_default();
    if there.is_empty() {
        return 0.0;
    }
    per_s(there.iter().sum(), there.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(kill: u64, start: u64) -> Phases {
        Phases::of(&Moments { kill, start, full: start + 500 }, 2_000, 20_000)
    }

    #[test]
    fn what_is_compared_lies_clear_of_the_changes() {
        let killed_first = phases(5_000, 12_000);
        assert_eq!(killed_first.before, 1_000..5_000);
        assert_eq!((killed_first.between, killed_first.after), (8_000..12_000, 13_500..20_000));
        assert_eq!(killed_first.started, 12_000..20_000);
        let started_first = phases(12_000, 5_000);
        assert_eq!(started_first.before, 1_000..5_000);
        assert_eq!((started_first.between, started_first.after), (6_500..12_000, 15_000..20_000));
        assert_eq!(started_first.started, 5_000..12_000);
    }

    /// Ten answers in each interval, but none for two seconds from the kill on, and then half as many until the start.
    fn seen() -> Vec<u64> {
        let answered = |index: u64| match index * INTERVAL_MS {
            5_000..7_000 => 0,
            7_000..12_000 => 5,
            _ => 10,
        };
        (0..80).map(answered).collect()
    }

    #[test]
    fn rates_are_those_of_their_phases() {
        let mut measured = Measured::default();
        phases(5_000, 12_000).note_rates("reads", &seen(), &mut measured);
        for (metric, value) in [
            ("reads_per_s_at_0_ms", 40.0),
            ("reads_per_s_at_5250_ms", 0.0),
            ("reads_per_s_at_19750_ms", 40.0),
            ("reads_per_s_before", 40.0),
            ("reads_between_over_before", 0.5),
            ("reads_after_over_before", 1.0),
        ] {
            assert!(
                (measured.values[metric] - value).abs() < 1e-9,
                "{metric} is {}",
                measured.values[metric]
            );
        }
    }

    #[test]
    fn any_time_can_be_compared_with_that_before() {
        let over_before = |time| phases(5_000, 12_000).over_before(&seen(), &time);
        assert!((over_before(7_000..9_000) - 0.5).abs() < 1e-9 && over_before(5_000..7_000).abs() < 1e-9);
    }

    #[test]
    fn a_phase_without_a_whole_interval_has_no_rate() {
        for (start, end) in [(8_000, 8_000), (8_100, 8_300), (9_000, 8_000), (30_000, 40_000)] {
            assert!(rate(&seen(), &Range { start, end }).abs() < 1e-9, "{start} to {end}");
        }
    }
}
