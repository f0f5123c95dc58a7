//! Where the time of each method's calls went: percentiles of the total with the stages behind them.
//!
//! Invariant: memory is bounded by `METHODS_MAX` methods of `SAMPLES_MAX` samples each, whatever the
//! file's size (about half a gigabyte if every method is busy; a method with fewer calls takes less). Up
//! to `SAMPLES_MAX` calls of a method all are kept and percentiles are exact; beyond that a uniform
//! sample is (reservoir sampling), while counts and means stay exact.
//!
//! The bar of a percentile P is the mean of the calls near it: of the calls sorted by total time, those
//! whose rank lies within half a percent of all calls on either side of P's rank. One call alone would be
//! an anecdote; stage-wise percentiles would not sum to anything. Calls that ended in an error are counted
//! but are in no bar, since their time is that of a time-out.

use crate::reader::{read_file, DamagedLine, ReadSummary};
use crate::record::MeasuredCall;
use scotfree_core::{Stage, StageSet, STAGE_COUNT};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Methods reported on their own; the calls of further ones are summed up as `(other methods)`.
pub const METHODS_MAX: usize = 64;
/// Calls kept per method.
pub const SAMPLES_MAX: usize = 100_000;

const OTHER_METHODS: &str = "(other methods)";

/// What a row of a report shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Percentile {
    /// The median.
    P50,
    /// 90 of 100 calls are faster.
    P90,
    /// 95 of 100 calls are faster.
    P95,
    /// 99 of 100 calls are faster.
    P99,
    /// The mean of all calls.
    Mean,
}

impl Percentile {
    /// All rows, in order.
    pub const ALL: [Percentile; 5] =
        [Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99, Percentile::Mean];

    /// The name shown.
    pub const fn name(self) -> &'static str {
        match self {
            Percentile::P50 => "P50",
            Percentile::P90 => "P90",
            Percentile::P95 => "P95",
            Percentile::P99 => "P99",
            Percentile::Mean => "mean",
        }
    }

    const fn per_mille(self) -> Option<usize> {
        match self {
            Percentile::P50 => Some(500),
            Percentile::P90 => Some(900),
            Percentile::P95 => Some(950),
            Percentile::P99 => Some(990),
            Percentile::Mean => None,
        }
    }
}

/// Times of one percentile, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Which percentile.
    pub percentile: Percentile,
    /// How many calls the row is the mean of.
    pub call_count: u64,
    /// The nine stages.
    pub stages_ns: StagesNs,
    /// Their sum.
    pub total_ns: f64,
    /// All but the server's application.
    pub tax_ns: f64,
    /// The tax as a share of the total.
    pub tax_share: f64,
    /// Stages 3 and 8.
    pub wire_ns: f64,
    /// Stages 2 and 7.
    pub stack_ns: f64,
    /// Stages 1, 4, 6 and 9.
    pub queue_ns: f64,
}

/// The nine stage times of a row. A stage that none of its calls had has no time; in JSON it is null.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StagesNs([Option<f64>; STAGE_COUNT]);

impl StagesNs {
    /// The time of one stage, if any call had it.
    pub fn get(&self, stage: Stage) -> Option<f64> {
        self.0[stage.index()]
    }
}

impl Serialize for StagesNs {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Stage::ALL.iter().map(|stage| (stage.name(), self.get(*stage))))
    }
}

/// What is known of one method.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MethodReport {
    /// The method.
    pub method: String,
    /// Its calls, also those that ended in an error.
    pub call_count: u64,
    /// Calls that ended in an error.
    pub error_count: u64,
    /// How many of the others the percentiles rest on.
    pub sample_count: u64,
    /// How many calls each server or device completed.
    pub answered_by: BTreeMap<String, u64>,
    /// Calls whose stages do not sum to their duration.
    pub sum_violation_count: u64,
    /// One row for each percentile; none if every call ended in an error.
    pub rows: Vec<Row>,
}

impl MethodReport {
    /// The row of a percentile.
    pub fn row(&self, percentile: Percentile) -> Option<&Row> {
        self.rows.iter().find(|row| row.percentile == percentile)
    }
}

/// A set of calls, such as those of one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Report {
    /// What the set is called: a file, or `baseline`.
    pub label: String,
    /// All calls.
    pub call_count: u64,
    /// Calls whose stages do not sum to their duration within max(1 us, 0.1 %).
    pub sum_violation_count: u64,
    /// Spans in the files that are not calls with stages.
    pub other_span_count: u64,
    /// Lines in the files that could not be read.
    pub damaged_line_count: u64,
    /// The first of them, as `FILE:LINE: PROBLEM`.
    pub damaged_lines: Vec<String>,
    /// The methods, busiest first.
    pub methods: Vec<MethodReport>,
}

impl Report {
    /// Reads the files as one set.
    pub fn from_files<P: AsRef<Path>>(label: &str, files: &[P]) -> io::Result<Report> {
        let mut builder = ReportBuilder::new(label);
        for file in files {
            builder.read(file.as_ref())?;
        }
        Ok(builder.finish())
    }

    /// The share of calls whose stages do not sum to their duration.
    pub fn sum_violation_share(&self) -> f64 {
        share(self.sum_violation_count as f64, self.call_count as f64)
    }

    /// One method's part.
    pub fn method(&self, name: &str) -> Option<&MethodReport> {
        self.methods.iter().find(|method| method.method == name)
    }
}

/// Collects calls into a report.
#[derive(Debug)]
pub struct ReportBuilder {
    report: Report,
    methods: BTreeMap<String, MethodCalls>,
    samples_max: usize,
    random: u64,
}

impl ReportBuilder {
    /// A set without calls.
    pub fn new(label: &str) -> ReportBuilder {
        ReportBuilder::with_samples_max(label, SAMPLES_MAX)
    }

    fn with_samples_max(label: &str, samples_max: usize) -> ReportBuilder {
        let report = Report { label: label.to_owned(), ..Report::default() };
        // A fixed seed: the same file always gives the same report.
        ReportBuilder { report, methods: BTreeMap::new(), samples_max, random: 1 }
    }

    /// Adds all calls of a file. The error of a file that cannot be opened or read names the file.
    pub fn read(&mut self, file: &Path) -> io::Result<()> {
        let summary = read_file(file, |call| self.add(&call))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
        self.add_summary(file, &summary);
        Ok(())
    }

    fn add_summary(&mut self, file: &Path, summary: &ReadSummary) {
        self.report.other_span_count += summary.other_span_count;
        self.report.damaged_line_count += summary.damaged_count;
        let names = summary.damaged.iter().map(|DamagedLine { line, problem }| {
            let file = file.display();
            format!("{file}:{line}: {problem}")
        });
        self.report.damaged_lines.extend(names);
    }

    /// Adds one call.
    pub fn add(&mut self, call: &MeasuredCall) {
        let is_wrong = !call.sum_is_right();
        self.report.call_count += 1;
        self.report.sum_violation_count += u64::from(is_wrong);
        let random = self.next_random();
        let samples_max = self.samples_max;
        let method = self.method_calls(&call.method);
        method.call_count += 1;
        method.sum_violation_count += u64::from(is_wrong);
        *method.answered_by.entry(call.answered_by.to_string()).or_default() += 1;
        if call.error.is_some() {
            method.error_count += 1;
        } else {
            method.keep(Sample::of(call), samples_max, random);
        }
    }

    fn method_calls(&mut self, name: &str) -> &mut MethodCalls {
        let is_new = !self.methods.contains_key(name);
        let name = if is_new && self.methods.len() >= METHODS_MAX { OTHER_METHODS } else { name };
        self.methods.entry(name.to_owned()).or_default()
    }

    // Xorshift: which calls a sample keeps needs no better randomness.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// The report on the calls added.
    pub fn finish(mut self) -> Report {
        self.report.methods = self.methods.into_iter().map(|(name, calls)| calls.into_report(name)).collect();
        self.report.methods.sort_by_key(|method| std::cmp::Reverse(method.call_count));
        self.report
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    total_ns: u64,
    stages_ns: [u64; STAGE_COUNT],
    measured: StageSet,
}

impl Sample {
    fn of(call: &MeasuredCall) -> Sample {
        let stages_ns = Stage::ALL.map(|stage| call.stages.get(stage).0);
        Sample { total_ns: call.stages.total().0, stages_ns, measured: call.measured }
    }
}

/// What calls took together, stage by stage.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    times_ns: [u128; STAGE_COUNT],
    // Whether any of them had the stage.
    is_measured: [bool; STAGE_COUNT],
}

impl Sums {
    fn add(&mut self, sample: &Sample) {
        for stage in Stage::ALL {
            self.times_ns[stage.index()] += u128::from(sample.stages_ns[stage.index()]);
            self.is_measured[stage.index()] |= sample.measured.contains(stage);
        }
    }
}

#[derive(Debug, Default)]
struct MethodCalls {
    call_count: u64,
    error_count: u64,
    sum_violation_count: u64,
    answered_by: BTreeMap<String, u64>,
    good_count: u64,
    sums: Sums,
    samples: Vec<Sample>,
}

impl MethodCalls {
    fn keep(&mut self, sample: Sample, samples_max: usize, random: u64) {
        self.good_count += 1;
        self.sums.add(&sample);
        if self.samples.len() < samples_max {
            self.samples.push(sample);
            return;
        }
        // Algorithm R: the n-th call stays with probability samples_max / n.
        let slot = random % self.good_count;
        if let Some(old) = usize::try_from(slot).ok().and_then(|slot| self.samples.get_mut(slot)) {
            *old = sample;
        }
    }

    fn into_report(mut self, method: String) -> MethodReport {
        // Stable: which of equal calls are near a percentile must not follow from how large a sample is in memory.
        self.samples.sort_by_key(|sample| sample.total_ns);
        let rows = if self.good_count == 0 {
            Vec::new()
        } else {
            Percentile::ALL.into_iter().map(|percentile| self.row(percentile)).collect()
        };
        MethodReport {
            method,
            call_count: self.call_count,
            error_count: self.error_count,
            sample_count: self.samples.len() as u64,
            answered_by: self.answered_by,
            sum_violation_count: self.sum_violation_count,
            rows,
        }
    }

    fn row(&self, percentile: Percentile) -> Row {
        match percentile.per_mille() {
            None => Row::of(percentile, self.good_count, &self.sums),
            Some(per_mille) => {
                let band = band(&self.samples, per_mille);
                let mut sums = Sums::default();
                for sample in band {
                    sums.add(sample);
                }
                Row::of(percentile, band.len() as u64, &sums)
            }
        }
    }
}

/// The samples around a percentile: half a percent of all on either side of its rank.
fn band(sorted: &[Sample], per_mille: usize) -> &[Sample] {
    let count = sorted.len();
    let rank = (count * per_mille).div_ceil(1_000).clamp(1, count) - 1;
    let half = count / 200;
    &sorted[rank.saturating_sub(half)..(rank + half + 1).min(count)]
}

impl Row {
    fn of(percentile: Percentile, call_count: u64, sums: &Sums) -> Row {
        let mean = |stage: Stage| sums.times_ns[stage.index()] as f64 / call_count as f64;
        let stages_ns =
            StagesNs(Stage::ALL.map(|stage| sums.is_measured[stage.index()].then(|| mean(stage))));
        let time_of = |stage: Stage| stages_ns.get(stage).unwrap_or(0.0);
        let sum_of = |stages: &[Stage]| stages.iter().map(|stage| time_of(*stage)).sum::<f64>();
        let total_ns = sum_of(&Stage::ALL);
        let tax_ns = total_ns - time_of(Stage::ServerApp);
        Row {
            percentile,
            call_count,
            stages_ns,
            total_ns,
            tax_ns,
            tax_share: share(tax_ns, total_ns),
            wire_ns: sum_of(&[Stage::RequestWire, Stage::ResponseWire]),
            stack_ns: sum_of(&[Stage::RequestStack, Stage::ResponseStack]),
            queue_ns: sum_of(&[
                Stage::ClientSendQueue,
                Stage::ServerRecvQueue,
                Stage::ServerSendQueue,
                Stage::ClientRecvQueue,
            ]),
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole == 0.0 {
        0.0
    } else {
        part / whole
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::AnsweredBy;
    use scotfree_core::{DeviceId, Nanos, StageTimes};

    #[test]
    fn percentiles_of_few_calls_are_exact() {
        let report = of((1..=100).map(|at| call("SET", [at * 1_000; 9], AnsweredBy::Server)));
        let method = report.method("SET").expect("SET was called");
        for (percentile, total_us) in
            [(Percentile::P50, 450.0), (Percentile::P99, 891.0), (Percentile::Mean, 454.5)]
        {
            let row = method.row(percentile).expect("every percentile has a row");
            assert!((row.total_ns / 1_000.0 - total_us).abs() < 1e-6, "{percentile:?}: {}", row.total_ns);
        }
    }

    #[test]
    fn sums_and_shares_follow_the_stages() {
        let report = of([call("SET", [1, 2, 4, 8, 16, 32, 64, 128, 256], AnsweredBy::Server)].into_iter());
        let row = report.methods[0].rows[0].clone();
        assert_eq!((row.total_ns, row.tax_ns), (511.0, 495.0));
        assert_eq!((row.wire_ns, row.stack_ns, row.queue_ns), (132.0, 66.0, 297.0));
        assert!((row.wire_ns + row.stack_ns + row.queue_ns - row.tax_ns).abs() < 1e-9);
    }

    #[test]
    fn errors_are_counted_but_are_in_no_bar() {
        let failed =
            MeasuredCall { error: Some("timed out".into()), ..call("GET", [9; 9], AnsweredBy::Server) };
        let report = of([failed].into_iter());
        assert_eq!((report.methods[0].error_count, report.methods[0].rows.len()), (1, 0));
    }

    #[test]
    fn a_call_whose_stages_miss_its_duration_is_a_violation() {
        let good = call("GET", [1_000; 9], AnsweredBy::Server);
        let within = MeasuredCall { duration: Nanos(9_999), ..good.clone() };
        let outside = MeasuredCall { duration: Nanos(10_001), ..good.clone() };
        let report = of([good, within, outside].into_iter());
        assert_eq!((report.sum_violation_count, report.methods[0].sum_violation_count), (1, 1));
    }

    #[test]
    fn the_reservoir_stays_bounded_and_its_percentiles_stay_near() {
        let mut builder = ReportBuilder::with_samples_max("big", 2_000);
        for at in 0..50_000_u64 {
            // 7,919 is coprime to 50,000: each total appears once, in no order.
            let total = (at * 7_919) % 50_000;
            builder.add(&call("SET", [0, 0, 0, 0, total, 0, 0, 0, 0], AnsweredBy::Server));
        }
        let report = builder.finish();
        let method = &report.methods[0];
        assert_eq!((method.sample_count, method.call_count), (2_000, 50_000));
        let p90 = method.row(Percentile::P90).expect("there is a P90").total_ns;
        assert!((43_500.0..46_500.0).contains(&p90), "P90 of 0..50000 by sampling is {p90}");
        let mean = method.row(Percentile::Mean).expect("there is a mean").total_ns;
        assert!((mean - 24_999.5).abs() < 1e-6);
    }

    #[test]
    fn methods_beyond_the_limit_are_summed_up() {
        let report = of((0..1_000).map(|at| call(&format!("M{at}"), [1; 9], AnsweredBy::Server)));
        assert_eq!(report.methods.len(), METHODS_MAX + 1);
        let other = report.method(OTHER_METHODS).expect("the rest is summed up");
        assert_eq!(other.call_count, 1_000 - METHODS_MAX as u64);
    }

    #[test]
    fn who_answered_is_split() {
        let by_device = call("SET", [1; 9], AnsweredBy::Device(DeviceId(2)));
        let report = of([by_device.clone(), by_device, call("SET", [1; 9], AnsweredBy::Server)].into_iter());
        let split: Vec<_> = report.methods[0].answered_by.clone().into_iter().collect();
        assert_eq!(split, [("device:2".to_owned(), 2), ("server".to_owned(), 1)]);
    }

    pub(crate) fn of(calls: impl Iterator<Item = MeasuredCall>) -> Report {
        let mut builder = ReportBuilder::new("test");
        calls.for_each(|call| builder.add(&call));
        builder.finish()
    }

    #[test]
    fn a_stage_that_was_not_there_has_no_time_and_one_of_no_length_has() {
        let mut call = call("SET", [1, 0, 4, 0, 0, 0, 0, 8, 9], AnsweredBy::Device(DeviceId(1)));
        call.measured = StageSet::of(&[Stage::ClientSendQueue, Stage::RequestStack, Stage::ResponseWire]);
        let row = of([call].into_iter()).methods[0].rows[0].clone();
        let times =
            [Stage::ClientSendQueue, Stage::RequestStack, Stage::ServerApp].map(|s| row.stages_ns.get(s));
        assert_eq!(times, [Some(1.0), Some(0.0), None]);
        let json = serde_json::to_value(row.stages_ns).expect("it is JSON");
        assert_eq!((&json["request_stack"], &json["server_app"]), (&0.0.into(), &serde_json::Value::Null));
    }

    /// A call that has the stages which took any time.
    pub(crate) fn call(method: &str, stages_ns: [u64; STAGE_COUNT], answered_by: AnsweredBy) -> MeasuredCall {
        let mut stages = StageTimes::default();
        Stage::ALL.iter().zip(stages_ns).for_each(|(stage, time)| stages.set(*stage, Nanos(time)));
        let had: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| stages.get(*stage).0 > 0).collect();
        MeasuredCall {
            method: method.to_owned(),
            start_unix_ns: 0,
            duration: stages.total(),
            stages,
            measured: StageSet::of(&had),
            source: None,
            clock_bound_ns: None,
            answered_by,
            request_bytes: None,
            response_bytes: None,
            cpu_ns: None,
            error: None,
        }
    }
}
