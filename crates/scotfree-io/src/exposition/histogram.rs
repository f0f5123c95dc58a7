//! Durations counted in fixed buckets, for loops that count their own: no lock, no allocation.
//!
//! Invariant: what is written is cumulative, and `_count` is the last bucket: both come from the same counts.

use scotfree_core::Nanos;
use std::fmt::Write;

/// How many buckets there are, the unbounded one included.
pub const BUCKETS: usize = 20;

/// What the buckets hold at most, in nanoseconds, and as `OpenMetrics` writes it in seconds: the same in both
/// texts, so a series stays the same whichever was scraped.
const BOUNDS: [(u64, &str); BUCKETS - 1] = [
    (10_000, "1e-05"),
    (25_000, "2.5e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
];

/// The bucket of a duration.
fn bucket_of(duration: Nanos) -> usize {
    BOUNDS.partition_point(|(bound, _)| *bound < duration.0)
}

/// How many durations were in each bucket, and their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurationHistogram {
    counts: [u64; BUCKETS],
    sum_ns: u64,
}

impl DurationHistogram {
    /// Counts one.
    pub fn record(&mut self, duration: Nanos) {
        self.record_many(duration, 1);
    }

    /// Counts so many that took as long.
    pub fn record_many(&mut self, duration: Nanos, count: u64) {
        self.counts[bucket_of(duration)] += count;
        // 584 years of waiting fit.
        self.sum_ns = self.sum_ns.wrapping_add(duration.0.wrapping_mul(count));
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// One measured request, by which a bucket's requests can be looked at in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exemplar {
    /// Its trace.
    pub trace_id: [u8; 16],
    /// Its span.
    pub span_id: [u8; 8],
    /// How long it took.
    pub duration: Nanos,
    /// When it ended, since 1970.
    pub at: Nanos,
}

/// The last exemplar of each bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exemplars([Option<Exemplar>; BUCKETS]);

impl Exemplars {
    /// Replaces that of its bucket.
    pub fn note(&mut self, exemplar: Exemplar) {
        self.0[bucket_of(exemplar.duration)] = Some(exemplar);
    }
}

/// Appends the samples of a histogram; its family has begun. `labels` are `name="value"` pairs with commas,
/// escaped already, or empty.
pub fn write_histogram(
    out: &mut String,
    name: &str,
    labels: &str,
    histogram: &DurationHistogram,
    exemplars: Option<&Exemplars>,
) {
    let (comma, braced) = match labels {
        "" => ("", String::new()),
        labels => (",", format!("{{{labels}}}")),
    };
    let mut count = 0;
    let bounds = BOUNDS.iter().map(|(_, text)| *text).chain(std::iter::once("+Inf"));
    for (bucket, bound) in bounds.enumerate() {
        count += histogram.counts[bucket];
        // Writing to a String cannot fail.
        let _ = write!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        if let Some(exemplar) = exemplars.and_then(|exemplars| exemplars.0[bucket]) {
            write_exemplar(out, &exemplar);
        }
        out.push('\n');
    }
    let sum = histogram.sum_ns as f64 / 1e9;
    let _ = write!(out, "{name}_sum{braced} {sum}\n{name}_count{braced} {count}\n");
}

fn write_exemplar(out: &mut String, exemplar: &Exemplar) {
    let hex = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(out, "{byte:02x}");
        }
    };
    out.push_str(" # {trace_id=\"");
    hex(out, &exemplar.trace_id);
    out.push_str("\",span_id=\"");
    hex(out, &exemplar.span_id);
    let (at_s, at_ms) = (exemplar.at.0 / 1_000_000_000, exemplar.at.0 / 1_000_000 % 1_000);
    let _ = write!(out, "\"}} {} {at_s}.{at_ms:03}", exemplar.duration.0 as f64 / 1e9);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_what_their_texts_say_and_grow_by_two_or_a_little_more() {
        for (bound, text) in BOUNDS {
            let seconds: f64 = text.parse().expect("a number");
            assert_eq!((seconds * 1e9).round() as u64, bound, "{text}");
        }
        let grows = |pair: &[(u64, &str)]| (2 * pair[0].0..=5 * pair[0].0 / 2).contains(&pair[1].0);
        assert!(BOUNDS.windows(2).all(grows));
    }

    #[test]
    fn a_duration_is_in_every_bucket_that_may_hold_it_and_in_no_other() {
        for (duration, first) in [
            (0, 0),
            (10_000, 0),
            (10_001, 1),
            (1_000_000, 6),
            (1_000_001, 7),
            (10_000_000_000, 18),
            (10_000_000_001, 19),
            (u64::MAX, 19),
        ] {
            let mut histogram = DurationHistogram::default();
            histogram.record(Nanos(duration));
            let mut text = String::new();
            write_histogram(&mut text, "x", "", &histogram, None);
            let counts: Vec<&str> =
                text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(_, n)| n).collect();
            let expected = |bucket| if bucket < first { "0" } else { "1" };
            assert!((0..BUCKETS).all(|bucket| counts[bucket] == expected(bucket)), "{duration}: {text}");
            assert_eq!(counts[BUCKETS + 1], "1");
        }
    }

    #[test]
    fn buckets_are_cumulative_and_the_last_is_the_count() {
        let mut histogram = DurationHistogram::default();
        for ns in [20_000, 30_000, 2_000_000_000] {
            histogram.record(Nanos(ns));
        }
        histogram.record_many(Nanos(20_000_000_000), 2);
        assert_eq!(histogram.count(), 5);
        let mut text = String::new();
        write_histogram(&mut text, "x_seconds", "kind=\"read\"", &histogram, None);
        for line in [
            "x_seconds_bucket{kind=\"read\",le=\"1e-05\"} 0\n",
            "x_seconds_bucket{kind=\"read\",le=\"2.5e-05\"} 1\n",
            "x_seconds_bucket{kind=\"read\",le=\"1.0\"} 2\n",
            "x_seconds_bucket{kind=\"read\",le=\"2.5\"} 3\n",
            "x_seconds_bucket{kind=\"read\",le=\"+Inf\"} 5\n",
            "x_seconds_sum{kind=\"read\"} 42.00005\nx_seconds_count{kind=\"read\"} 5\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn an_exemplar_stands_in_its_own_bucket_and_the_newest_stays() {
        let (mut histogram, mut exemplars) = (DurationHistogram::default(), Exemplars::default());
        for (span, duration) in [(1, 600_000), (2, 700_000), (3, 3_000)] {
            let duration = Nanos(duration);
            histogram.record(duration);
            let at = Nanos(1_700_000_000_007_000_000 + span);
            exemplars.note(Exemplar { trace_id: [0xab; 16], span_id: span.to_be_bytes(), duration, at });
        }
        let mut text = String::new();
        write_histogram(&mut text, "x", "", &histogram, Some(&exemplars));
        let traced: Vec<&str> = text.lines().filter(|line| line.contains('#')).collect();
        let trace = "ab".repeat(16);
        assert_eq!(
            traced,
            [
                format!(
                    "x_bucket{{le=\"1e-05\"}} 1 # {{trace_id=\"{trace}\",span_id=\"0000000000000003\"}} 0.000003 \
                     1700000000.007"
                ),
                format!(
                    "x_bucket{{le=\"0.001\"}} 3 # {{trace_id=\"{trace}\",span_id=\"0000000000000002\"}} 0.0007 \
                     1700000000.007"
                ),
            ]
        );
    }
}
