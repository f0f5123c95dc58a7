//! When to try again: exponential backoff with jitter. Randomness comes in as a seed.

use scotfree_core::Nanos;

/// A small deterministic generator (splitmix64) for jitter; not for secrets.
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Jitter {
    /// The generator that follows from `seed`.
    pub fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// `span`, plus up to a quarter of it.
    pub fn around(&mut self, span: Nanos) -> Nanos {
        Nanos(span.0.saturating_add(self.draw() % (span.0 / 4).max(1)))
    }

    /// A number below `count`, which is not 0.
    pub fn below(&mut self, count: u64) -> u64 {
        self.draw() % count
    }
}

/// The span before try number `tries` (from 0): `first` doubled each time, at most `most`.
pub fn backoff(first: Nanos, most: Nanos, tries: u32) -> Nanos {
    Nanos(first.0.saturating_mul(1 << tries.min(20)).min(most.0))
}

/// An estimate of the round trip, and from it how long to wait for an answer.
#[derive(Debug, Clone)]
pub struct RoundTrip {
    smoothed: u64,
    deviation: u64,
    measured: bool,
}

impl RoundTrip {
    /// Before the first measurement `guess` is what is waited.
    pub fn new(guess: Nanos) -> RoundTrip {
        RoundTrip { smoothed: guess.0, deviation: 0, measured: false }
    }

    /// Takes a measured round trip in.
    pub fn measure(&mut self, sample: Nanos) {
        if self.measured {
            self.deviation = (3 * self.deviation + self.smoothed.abs_diff(sample.0)) / 4;
            self.smoothed = (7 * self.smoothed + sample.0) / 8;
        } else {
            *self = RoundTrip { smoothed: sample.0, deviation: sample.0 / 2, measured: true };
        }
    }

    /// The smoothed round trip, once one has been measured.
    pub fn smoothed(&self) -> Option<Nanos> {
        self.measured.then_some(Nanos(self.smoothed))
    }

    /// How long to wait for an answer, within these bounds.
    pub fn timeout(&self, least: Nanos, most: Nanos) -> Nanos {
        Nanos((self.smoothed + 4 * self.deviation).clamp(least.0, most.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_below_a_number_is_each_of_those_and_nothing_else() {
        let mut jitter = Jitter::new(1);
        let drawn: std::collections::BTreeSet<u64> = (0..100).map(|_| jitter.below(3)).collect();
        assert_eq!(drawn, [0, 1, 2].into());
    }

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let spans: Vec<u64> = (0..5).map(|tries| backoff(Nanos(10), Nanos(65), tries).0).collect();
        assert_eq!(spans, [10, 20, 40, 65, 65]);
    }

    #[test]
    fn jitter_adds_at_most_a_quarter_and_follows_its_seed() {
        let spans = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..100).map(|_| jitter.around(Nanos(1_000)).0).collect::<Vec<_>>()
        };
        assert!(spans(1).iter().all(|span| (1_000..1_250).contains(span)));
        assert_eq!(spans(1), spans(1));
        assert_ne!(spans(1), spans(2));
    }

    /// splitmix64's published answers.
    #[test]
    fn jitter_draws_what_its_algorithm_draws() {
        let mut jitter = Jitter::new(0);
        let drawn = [(); 3].map(|()| jitter.draw());
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn jitter_reaches_a_quarter_and_a_backoff_its_limit_without_overflow() {
        let mut jitter = Jitter::new(1);
        let most = (0..1_000).map(|_| jitter.around(Nanos(1_000)).0).max();
        assert!(most > Some(1_240));
        assert_eq!(jitter.around(Nanos(3)), Nanos(3), "a quarter of it is less than one");
        assert_eq!(backoff(Nanos(10), Nanos::MAX, 99), Nanos(10 << 20));
    }

    /// RFC 6298 with its weights of an eighth and a quarter, and four deviations.
    #[test]
    fn the_timeout_is_that_of_tcp() {
        let mut trip = RoundTrip::new(Nanos(500));
        for (sample, timeout) in [(800, 800 + 4 * 400), (1_600, 900 + 4 * 500), (900, 900 + 4 * 375)] {
            trip.measure(Nanos(sample));
            assert_eq!(trip.timeout(Nanos(1), Nanos(10_000)), Nanos(timeout), "after {sample}");
        }
        assert_eq!(trip.timeout(Nanos(1), Nanos(2_000)), Nanos(2_000));
    }

    #[test]
    fn the_timeout_follows_what_was_measured() {
        let mut trip = RoundTrip::new(Nanos(500));
        assert_eq!(trip.timeout(Nanos(1), Nanos(10_000)), Nanos(500));
        for _ in 0..50 {
            trip.measure(Nanos(100));
        }
        assert!(trip.timeout(Nanos(1), Nanos(10_000)).0 < 110);
        assert_eq!(trip.timeout(Nanos(200), Nanos(10_000)), Nanos(200));
    }

    #[test]
    fn backoff_never_overflows() {
        assert_eq!(backoff(Nanos(1), Nanos::MAX, 64), Nanos(1 << 20));
        assert_eq!(backoff(Nanos(1 << 60), Nanos::MAX, 20), Nanos::MAX);
    }

    /// The published numbers of splitmix64 from seed 0, as far as a quarter of the span shows them.
    #[test]
    fn jitter_is_splitmix64() {
        let span = Nanos(1 << 62);
        let mut jitter = Jitter::new(0);
        let drawn: [u64; 3] = std::array::from_fn(|_| jitter.around(span).0 - span.0);
        let published: [u64; 3] = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(drawn, published.map(|number| number % (1 << 60)));
        assert_eq!(jitter.around(Nanos(0)), Nanos(0), "there is no quarter of nothing");
        assert_eq!(jitter.around(Nanos::MAX), Nanos::MAX);
    }

    #[test]
    fn the_timeout_is_the_smoothed_round_trip_and_four_deviations() {
        let mut trip = RoundTrip::new(Nanos(500));
        let mut timeout_after = |sample| {
            trip.measure(Nanos(sample));
            trip.timeout(Nanos(1), Nanos(10_000)).0
        };
        // The first counts whole, with half of it as deviation; a later one an eighth, its distance a quarter.
        assert_eq!([100, 200, 40].map(&mut timeout_after), [100 + 4 * 50, 112 + 4 * 62, 103 + 4 * 64]);
        assert_eq!(trip.timeout(Nanos(1), Nanos(300)), Nanos(300));
    }
}
