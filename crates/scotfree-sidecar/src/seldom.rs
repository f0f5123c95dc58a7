//! Says seldom what happens often: at once the first time, then with a count, at most once an interval.

use scotfree_core::Nanos;

/// How often the same thing is said at most.
pub(crate) const REPEAT_INTERVAL: Nanos = Nanos::from_secs(10);

/// One thing that happens, and how often it has happened unsaid.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    unsaid: u64,
    said_at: Option<Nanos>,
}

impl Seldom {
    /// It happened so many times.
    pub fn happened(&mut self, count: u64) {
        self.unsaid += count;
    }

    /// How many times to speak of now, if it is time.
    pub fn due(&mut self, now: Nanos) -> Option<u64> {
        let too_soon = self.said_at.is_some_and(|said| now < said.plus(REPEAT_INTERVAL));
        if self.unsaid == 0 || too_soon {
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_is_said_at_once_and_the_others_with_their_count() {
        let mut seldom = Seldom::default();
        let at = Nanos::from_secs;
        assert_eq!(seldom.due(at(1)), None);
        seldom.happened(1);
        assert_eq!((seldom.due(at(1)), seldom.due(at(1))), (Some(1), None));
        for _ in 0..1_000 {
            seldom.happened(1);
            assert_eq!(seldom.due(at(10)), None);
        }
        assert_eq!((seldom.due(at(11)), seldom.due(at(30))), (Some(1_000), None));
    }
}
