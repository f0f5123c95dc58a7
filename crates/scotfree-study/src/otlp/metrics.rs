//! `MetricsData` and `ExportMetricsServiceRequest` to columns of the relation `metric`.
//!
//! Invariant: each point is one record: a row, the first of a counter (whose rate needs a second), or dropped. What
//! counts up becomes a rate per second; of a histogram or a summary it is the count that does.

use super::attribute::{attribute, Any};
use super::columns::Texts;
use super::messages::{
    ExponentialHistogramDataPoint, ExponentialHistogramDataPointVisitor, HistogramDataPoint,
    HistogramDataPointVisitor, KeyValue, NumberDataPoint, NumberDataPointVisitor, SummaryDataPoint,
    SummaryDataPointVisitor,
};
use super::table::{AttributeTable, Target};
use super::trouble::Troubles;
use super::wire::{Damage, Fields, Value};
use scotfree_transform::protobuf::Part;
use scotfree_transform::DecodeError;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The fields that lead down to the points. Source: opentelemetry-proto, metrics.proto.
mod field {
    pub const RESOURCE_METRICS: u32 = 1;
    pub const RESOURCE: u32 = 1;
    pub const RESOURCE_ATTRIBUTES: u32 = 1;
    pub const SCOPE_METRICS: u32 = 2;
    pub const METRICS: u32 = 2;
    pub const NAME: u32 = 1;
    pub const GAUGE: u32 = 5;
    pub const SUM: u32 = 7;
    pub const HISTOGRAM: u32 = 9;
    pub const EXPONENTIAL: u32 = 10;
    pub const SUMMARY: u32 = 11;
    pub const POINTS: u32 = 1;
    pub const TEMPORALITY: u32 = 2;
    pub const IS_MONOTONIC: u32 = 3;
}

/// Counters whose last point is remembered for the next one's rate.
pub const STREAMS_MAX: usize = 1_000_000;
const DELTA: u64 = 1;
const NS_PER_S: f64 = 1e9;
/// A counter of how long processors did nothing is none of how much they did.
const IDLE: [&[u8]; 2] = [b"idle", b"iowait"];
const MODES: [&[u8]; 4] = [b"cpu.mode", b"system.cpu.state", b"process.cpu.state", b"state"];

/// What a point's number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Level,
    Delta,
    Cumulative,
}

/// Rows of `metric`.
#[derive(Debug, Clone)]
pub struct MetricColumns {
    /// Names as they stand; of counts with `_count` behind.
    pub names: Texts,
    /// Since the epoch.
    pub times_ns: Vec<i64>,
    /// Levels, and rates per second.
    pub values: Vec<f64>,
    /// By the names of the table's columns.
    pub texts: Vec<(String, Texts)>,
}

/// What is the same for all points of a metric.
struct Metric<'a> {
    name: &'a [u8],
    resource: &'a [u8],
    /// Its field.
    kind: u32,
    form: Form,
    is_count: bool,
}

#[derive(Default)]
struct Point<'a> {
    start: u64,
    time: u64,
    value: Option<f64>,
    attributes: Vec<&'a [u8]>,
    is_absent: bool,
}

/// Reads messages of one input.
#[derive(Debug)]
pub struct MetricDecoder {
    table: AttributeTable,
    columns: MetricColumns,
    troubles: Troubles,
    records: u64,
    firsts: u64,
    /// Time and value of each counter's last point.
    streams: HashMap<u128, (i64, f64)>,
}

impl MetricDecoder {
    /// One for an input; of the table only texts count.
    pub fn new(table: AttributeTable) -> Self {
        let columns = empty(&table);
        let troubles = Troubles::default();
        MetricDecoder { table, columns, troubles, records: 0, firsts: 0, streams: HashMap::new() }
    }

    /// How many points were met.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// A record that cannot even be read has its number, too.
    pub fn skip_record(&mut self) {
        self.records += 1;
    }

    /// How many rows there are since the last time.
    pub fn rows(&self) -> usize {
        self.columns.values.len()
    }

    /// What was wrong since the last time.
    pub fn take_troubles(&mut self) -> Vec<(String, super::Trouble)> {
        self.troubles.take()
    }

    /// The rows since the last time, and how many points only began a counter.
    pub fn take(&mut self) -> (MetricColumns, u64) {
        let columns = std::mem::replace(&mut self.columns, empty(&self.table));
        (columns, std::mem::take(&mut self.firsts))
    }

    /// Reads a message.
    pub fn read(&mut self, message: &[u8]) {
        for resource in inner(message, field::RESOURCE_METRICS) {
            let Some(bytes) = self.or_drop(resource) else { continue };
            let resource = inner(bytes, field::RESOURCE).find_map(Result::ok).unwrap_or_default();
            for scope in inner(bytes, field::SCOPE_METRICS) {
                let Some(scope) = self.or_drop(scope) else { continue };
                for metric in inner(scope, field::METRICS) {
                    let Some(metric) = self.or_drop(metric) else { continue };
                    self.metric(metric, resource);
                }
            }
        }
    }

    fn or_drop<'a>(&mut self, read: Result<&'a [u8], Damage<'a>>) -> Option<&'a [u8]> {
        read.map_err(|damage| self.drop(reason(damage))).ok()
    }

    fn drop(&mut self, reason: &str) {
        self.troubles.dropped(reason, self.records);
        self.records += 1;
    }

    fn metric(&mut self, bytes: &[u8], resource: &[u8]) {
        let name = inner(bytes, field::NAME).find_map(Result::ok).unwrap_or_default();
        let kinds = [field::GAUGE, field::SUM, field::HISTOGRAM, field::EXPONENTIAL, field::SUMMARY];
        for kind in kinds {
            for data in inner(bytes, kind).map_while(Result::ok) {
                let metric = Metric::of(kind, data, name, resource);
                for point in Fields::new(data) {
                    match point {
                        Ok((field::POINTS, Value::Bytes(point))) => self.point(point, &metric),
                        Ok(_) => {}
                        Err(damage) => self.drop(reason(damage)),
                    }
                }
            }
        }
    }

    fn point(&mut self, bytes: &[u8], metric: &Metric<'_>) {
        match Point::of(bytes, metric).and_then(|point| self.row(&point, metric)) {
            Ok(()) => {}
            Err(reason) => self.troubles.dropped(reason, self.records),
        }
        self.records += 1;
    }

    fn row(&mut self, point: &Point<'_>, metric: &Metric<'_>) -> Result<(), &'static str> {
        if point.is_absent {
            return Err("a point says that it has no value");
        }
        let value = point.value.filter(|value| value.is_finite()).ok_or("a value is no finite number")?;
        let time = i64::try_from(point.time).ok().filter(|time| *time > 0).ok_or("a point has no time")?;
        let rate = match metric.form {
            Form::Level => Some(value),
            Form::Delta => Some(self.rate_of_delta(point, metric, time, value)?),
            Form::Cumulative => self.rate(point, metric, time, value)?,
        };
        match rate {
            Some(value) if !value.is_finite() => return Err("a rate is no finite number"),
            Some(value) => self.push(point, metric, time, value),
            None => self.firsts += 1,
        }
        Ok(())
    }

    /// Per second since the point before. A counter that fell began again at 0.
    fn rate(
        &mut self,
        point: &Point<'_>,
        metric: &Metric<'_>,
        time: i64,
        value: f64,
    ) -> Result<Option<f64>, &'static str> {
        let Some((at, before)) = self.remember(point, metric, time, value)? else { return Ok(None) };
        let grown = if value >= before { value - before } else { value };
        Ok(Some(grown / ((time - at) as f64 / NS_PER_S)))
    }

    fn rate_of_delta(
        &mut self,
        point: &Point<'_>,
        metric: &Metric<'_>,
        time: i64,
        value: f64,
    ) -> Result<f64, &'static str> {
        let begun = i64::try_from(point.start).ok().filter(|start| *start > 0 && *start < time);
        let start = match begun {
            Some(start) => start,
            None => self.remember(point, metric, time, value)?.ok_or("a delta does not say since when")?.0,
        };
        Ok(value / ((time - start) as f64 / NS_PER_S))
    }

    /// Time and value of the same counter's point before.
    fn remember(
        &mut self,
        point: &Point<'_>,
        metric: &Metric<'_>,
        time: i64,
        value: f64,
    ) -> Result<Option<(i64, f64)>, &'static str> {
        let key = point.stream(metric);
        let before = self.streams.get(&key).copied();
        match before {
            None if self.streams.len() >= STREAMS_MAX => Err("more than 1000000 series of counters"),
            Some((at, _)) if at >= time => Err("a counter's point is not later than the one before"),
            _ => {
                self.streams.insert(key, (time, value));
                Ok(before)
            }
        }
    }

    fn push(&mut self, point: &Point<'_>, metric: &Metric<'_>, time: i64, value: f64) {
        let mut found: Vec<(u16, Option<i32>)> = vec![(u16::MAX, None); self.columns.texts.len()];
        let mut is_idle = false;
        // The resource's ranks come after all of the point's own.
        let of = inner(metric.resource, field::RESOURCE_ATTRIBUTES).map_while(Result::ok);
        let own = point.attributes.iter().map(|bytes| (0, *bytes));
        for (later, bytes) in own.chain(of.map(|bytes| (u16::MAX / 2, bytes))) {
            let Ok((key, Any::Text(text))) = attribute(Part::new(bytes)) else { continue };
            is_idle |= later == 0 && MODES.contains(&key) && IDLE.contains(&text);
            if let Some(Target::Text { column, rank }) = self.table.target(key) {
                if rank + later < found[column].0 {
                    found[column] = (rank + later, Some(self.columns.texts[column].1.code(text).code));
                }
            }
        }
        let name = name(metric, is_idle);
        let code = self.columns.names.code(&name).code;
        self.columns.names.push(Some(code));
        self.columns.times_ns.push(time);
        self.columns.values.push(value);
        for ((_, column), (_, code)) in self.columns.texts.iter_mut().zip(found) {
            column.push(code);
        }
    }
}

fn empty(table: &AttributeTable) -> MetricColumns {
    let texts = table.texts.iter().map(|name| (name.clone(), Texts::default())).collect();
    MetricColumns { names: Texts::default(), times_ns: Vec::new(), values: Vec::new(), texts }
}

fn name(metric: &Metric<'_>, is_idle: bool) -> Vec<u8> {
    let behind: [&[u8]; 2] =
        [if metric.is_count { b"_count" } else { b"" }, if is_idle { b".idle" } else { b"" }];
    [metric.name, behind[0], behind[1]].concat()
}

/// The messages in fields of that number; of one that is cut off what is there.
fn inner(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], Damage<'_>>> {
    Fields::new(message).filter_map(move |field| match field {
        Ok((found, Value::Bytes(bytes))) | Err(Damage::Cut(found, bytes)) => {
            (found == number).then_some(Ok(bytes))
        }
        Ok(_) => None,
        Err(damage) => Some(Err(damage)),
    })
}

fn reason(damage: Damage<'_>) -> &'static str {
    match damage {
        Damage::Cut(..) => "ends early",
        Damage::Nonsense => "the bytes are no OTLP message",
    }
}

impl<'a> Metric<'a> {
    fn of(kind: u32, data: &[u8], name: &'a [u8], resource: &'a [u8]) -> Self {
        let (mut temporality, mut is_monotonic) = (0, false);
        for field in Fields::new(data).map_while(Result::ok) {
            match field {
                (field::TEMPORALITY, Value::Varint(found)) => temporality = found,
                (field::IS_MONOTONIC, Value::Varint(found)) => is_monotonic = found != 0,
                _ => {}
            }
        }
        let counts_up = kind != field::GAUGE && (kind != field::SUM || is_monotonic);
        let form = match (temporality, counts_up) {
            (DELTA, _) if kind != field::GAUGE => Form::Delta,
            (_, true) => Form::Cumulative,
            _ => Form::Level,
        };
        Metric { name, resource, kind, form, is_count: kind > field::SUM }
    }
}

impl<'a> Point<'a> {
    fn of(bytes: &'a [u8], metric: &Metric<'_>) -> Result<Self, &'static str> {
        let (mut point, message) = (Point::default(), Part::<()>::new(bytes));
        match metric.kind {
            field::HISTOGRAM => HistogramDataPoint::visit(message.of(), &mut point),
            field::EXPONENTIAL => ExponentialHistogramDataPoint::visit(message.of(), &mut point),
            field::SUMMARY => SummaryDataPoint::visit(message.of(), &mut point),
            _ => NumberDataPoint::visit(message.of(), &mut point),
        }
        .map_err(|error| match error {
            DecodeError::Cut { .. } => "ends early",
            _ => "the bytes are no OTLP message",
        })?;
        Ok(point)
    }

    /// Two points are of one counter if name, resource and attributes, in any order, are the same.
    fn stream(&self, metric: &Metric<'_>) -> u128 {
        let mut attributes = self.attributes.clone();
        attributes.sort_unstable();
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, metric.name, metric.resource, &attributes).hash(&mut hasher);
            hasher.finish()
        };
        u128::from(half(0)) << 64 | u128::from(half(1))
    }
}

/// What all kinds of points have.
macro_rules! said_of_a_point {
    () => {
        fn start_time_unix_nano(&mut self, time: u64) {
            self.start = time;
        }

        fn time_unix_nano(&mut self, time: u64) {
            self.time = time;
        }

        fn attributes(&mut self, message: Part<'a, KeyValue>) {
            self.attributes.push(message.bytes());
        }

        fn flags(&mut self, flags: u64) {
            self.is_absent = flags & 1 != 0;
        }
    };
}

impl<'a> NumberDataPointVisitor<'a> for Point<'a> {
    said_of_a_point!();

    fn as_double(&mut self, value: f64) {
        self.value = Some(value);
    }

    fn as_int(&mut self, value: i64) {
        self.value = Some(value as f64);
    }
}

/// Points that count, of which the number is all that is read.
macro_rules! counts {
    ($($visitor:ident),*) => {
        $(impl<'a> $visitor<'a> for Point<'a> {
            said_of_a_point!();

            fn count(&mut self, count: u64) {
                self.value = Some(count as f64);
            }
        })*
    };
}

counts!(HistogramDataPointVisitor, ExponentialHistogramDataPointVisitor, SummaryDataPointVisitor);
