//! What is said of many measurements: percentiles of latencies, medians and spreads of repetitions.
//!
//! Invariant: an empty set has no statistics, rather than zeros that look measured.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

// Latencies are kept to three significant digits from a nanosecond to an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Latencies, to three significant digits.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS);
        Latencies { histogram: histogram.expect("the bounds are right") }
    }
}

impl Latencies {
    /// None yet.
    pub fn new() -> Latencies {
        Latencies::default()
    }

    /// Adds one. One above an hour counts as an hour.
    pub fn record(&mut self, latency: Duration) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(latency_ns.clamp(1, LATENCY_NS_MAX));
    }

    /// Adds those of another set.
    pub fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all sets have the same bounds");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// So many of a hundred are at most this, for each of `percents`; nothing if there are none.
    pub fn percentiles(&self, percents: &[u32]) -> Option<BTreeMap<u32, u64>> {
        let at = |percent: &u32| (*percent, self.histogram.value_at_quantile(f64::from(*percent) / 100.0));
        (self.count() > 0).then(|| percents.iter().map(at).collect())
    }

    /// What to say of them; nothing if there are none.
    pub fn summary(&self) -> Option<Summary> {
        let at = |quantile: f64| self.histogram.value_at_quantile(quantile);
        (self.count() > 0).then(|| Summary {
            count: self.count(),
            deciles_ns: std::array::from_fn(|index| at((index + 1) as f64 / 10.0)),
            p50_ns: at(0.50),
            p90_ns: at(0.90),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max(),
            mean_ns: self.histogram.mean(),
        })
    }
}

/// What is said of a set of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many there are.
    pub count: u64,
    /// 10, 20 and so on to 90 of 100 are at most this: their distribution, coarsely.
    pub deciles_ns: [u64; 9],
    /// The median.
    pub p50_ns: u64,
    /// 90 of 100 are at most this.
    pub p90_ns: u64,
    /// 99 of 100 are at most this.
    pub p99_ns: u64,
    /// 999 of 1,000 are at most this.
    pub p999_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// The mean.
    pub mean_ns: f64,
}

/// How far repetitions lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// A quarter of the values is at most this.
    pub q1: f64,
    /// The middle.
    pub median: f64,
    /// Three quarters of the values are at most this.
    pub q3: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of repetitions; nothing if there are none or if one is not a number.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quantile| quantile_of(&sorted, quantile);
        Some(Spread { min: at(0.0), q1: at(0.25), median: at(0.5), q3: at(0.75), max: at(1.0) })
    }

    /// The distance of the quartiles.
    pub fn interquartile_range(&self) -> f64 {
        self.q3 - self.q1
    }
}

/// The median of repetitions.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// Between two values of a sorted list the quantile lies on the straight line.
fn quantile_of(sorted: &[f64], quantile: f64) -> f64 {
    let place = quantile * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_true_to_three_digits() {
        let mut latencies = Latencies::new();
        (1..=1_000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let summary = latencies.summary().expect("there are some");
        for (seen, wanted) in [
            (summary.deciles_ns[0], 100_000),
            (summary.deciles_ns[8], 900_000),
            (summary.p50_ns, 500_000),
            (summary.p90_ns, 900_000),
            (summary.p99_ns, 990_000),
            (summary.max_ns, 1_000_000),
        ] {
            assert!(seen.abs_diff(wanted) * 1_000 <= wanted, "{seen} for {wanted}");
        }
        let percentiles = latencies.percentiles(&[10, 75]).expect("there are some");
        assert_eq!(percentiles.keys().collect::<Vec<_>>(), [&10, &75]);
        assert!(percentiles
            .iter()
            .all(|(percent, at)| at.abs_diff(u64::from(*percent) * 10_000) * 1_000 <= *at));
        assert_eq!(summary.count, 1_000);
        assert!((summary.mean_ns - 500_500.0).abs() < 1_000.0);
    }

    #[test]
    fn nothing_has_no_statistics() {
        assert_eq!(Latencies::new().summary(), None);
        assert_eq!(Latencies::new().percentiles(&[50]), None);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn extremes_are_kept_within_the_bounds() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(1_000_000));
        let summary = latencies.summary().expect("there are two");
        assert_eq!(summary.count, 2);
        assert!(summary.max_ns.abs_diff(LATENCY_NS_MAX) * 1_000 <= LATENCY_NS_MAX);
    }

    #[test]
    fn sets_add_up() {
        let (mut all, mut other) = (Latencies::new(), Latencies::new());
        all.record(Duration::from_micros(1));
        other.record(Duration::from_micros(3));
        all.add(&other);
        assert_eq!(all.count(), 2);
    }

    #[test]
    fn quartiles_and_median() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).expect("there are four");
        let wanted = Spread { min: 1.0, q1: 1.75, median: 2.5, q3: 3.25, max: 4.0 };
        assert_eq!(spread, wanted);
        assert!((spread.interquartile_range() - 1.5).abs() < 1e-12);
        assert_eq!(median(&[7.0]), Some(7.0));
    }
}
