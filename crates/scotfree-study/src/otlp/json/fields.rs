//! Which member of OTLP's JSON is which field of its protobuf, of those that the study reads.
//!
//! Source: opentelemetry-proto, and the specification's section on JSON. Both spellings of protobuf's JSON are
//! taken, `startTimeUnixNano` and `start_time_unix_nano`.

/// How a field is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Message(&'static Message),
    Text,
    /// So many bytes, hexadecimal or in base64.
    Id(usize),
    /// A number, or a name with a number.
    Enumeration(&'static [(&'static str, u64)]),
    Truth,
    /// `intValue` of an attribute: what is no integer is handed on as what it is.
    AttributeInteger,
    /// Eight bytes.
    Fixed,
    Double,
}

#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    pub number: u32,
    pub kind: Kind,
}

#[derive(Debug)]
pub(super) struct Message {
    fields: &'static [Field],
    /// Whether it is of use only if it is whole.
    pub is_record: bool,
}

impl Message {
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| is_spelled(name, field.name))
    }
}

/// Whether a name is this one, with or without `_` between words.
fn is_spelled(name: &str, known: &str) -> bool {
    name == known
        || (name.contains('_')
            && name
                .bytes()
                .filter(|byte| *byte != b'_')
                .eq(known.bytes().map(|byte| byte.to_ascii_lowercase())))
}

const fn field(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind }
}

const fn level(fields: &'static [Field]) -> Message {
    Message { fields, is_record: false }
}

const fn record(fields: &'static [Field]) -> Message {
    Message { fields, is_record: true }
}

pub(super) static TRACES: Message = level(&[field("resourceSpans", 1, Kind::Message(&RESOURCE_SPANS))]);
pub(super) static METRICS: Message = level(&[field("resourceMetrics", 1, Kind::Message(&RESOURCE_METRICS))]);

static ANY_VALUE: Message = level(&[
    field("stringValue", 1, Kind::Text),
    field("boolValue", 2, Kind::Truth),
    field("intValue", 3, Kind::AttributeInteger),
    field("doubleValue", 4, Kind::Double),
]);
static KEY_VALUE: Message =
    level(&[field("key", 1, Kind::Text), field("value", 2, Kind::Message(&ANY_VALUE))]);
static RESOURCE: Message = level(&[field("attributes", 1, Kind::Message(&KEY_VALUE))]);

static RESOURCE_SPANS: Message = level(&[
    field("resource", 1, Kind::Message(&RESOURCE)),
    field("scopeSpans", 2, Kind::Message(&SCOPE_SPANS)),
    // As it was called before version 0.15 of the protocol.
    field("instrumentationLibrarySpans", 2, Kind::Message(&SCOPE_SPANS)),
]);
static SCOPE_SPANS: Message = level(&[field("spans", 2, Kind::Message(&SPAN))]);
static SPAN: Message = record(&[
    field("traceId", 1, Kind::Id(16)),
    field("spanId", 2, Kind::Id(8)),
    field("parentSpanId", 4, Kind::Id(8)),
    field("name", 5, Kind::Text),
    field("kind", 6, Kind::Enumeration(KINDS)),
    field("startTimeUnixNano", 7, Kind::Fixed),
    field("endTimeUnixNano", 8, Kind::Fixed),
    field("attributes", 9, Kind::Message(&KEY_VALUE)),
    field("links", 13, Kind::Message(&LINK)),
    field("status", 15, Kind::Message(&STATUS)),
]);
static LINK: Message = level(&[field("attributes", 4, Kind::Message(&KEY_VALUE))]);
static STATUS: Message =
    level(&[field("message", 2, Kind::Text), field("code", 3, Kind::Enumeration(STATUS_CODES))]);

const KINDS: &[(&str, u64)] = &[
    ("SPAN_KIND_UNSPECIFIED", 0),
    ("SPAN_KIND_INTERNAL", 1),
    ("SPAN_KIND_SERVER", 2),
    ("SPAN_KIND_CLIENT", 3),
    ("SPAN_KIND_PRODUCER", 4),
    ("SPAN_KIND_CONSUMER", 5),
];
const STATUS_CODES: &[(&str, u64)] =
    &[("STATUS_CODE_UNSET", 0), ("STATUS_CODE_OK", 1), ("STATUS_CODE_ERROR", 2)];

static RESOURCE_METRICS: Message = level(&[
    field("resource", 1, Kind::Message(&RESOURCE)),
    field("scopeMetrics", 2, Kind::Message(&SCOPE_METRICS)),
]);
static SCOPE_METRICS: Message = level(&[field("metrics", 2, Kind::Message(&METRIC))]);
static METRIC: Message = level(&[
    field("name", 1, Kind::Text),
    field("unit", 3, Kind::Text),
    field("gauge", 5, Kind::Message(&SUM)),
    field("sum", 7, Kind::Message(&SUM)),
    field("histogram", 9, Kind::Message(&HISTOGRAM)),
    field("exponentialHistogram", 10, Kind::Message(&EXPONENTIAL)),
    field("summary", 11, Kind::Message(&SUMMARY)),
]);
static SUM: Message = level(&[
    field("dataPoints", 1, Kind::Message(&NUMBER_POINT)),
    field("aggregationTemporality", 2, Kind::Enumeration(TEMPORALITIES)),
    field("isMonotonic", 3, Kind::Truth),
]);
static HISTOGRAM: Message = level(&[
    field("dataPoints", 1, Kind::Message(&HISTOGRAM_POINT)),
    field("aggregationTemporality", 2, Kind::Enumeration(TEMPORALITIES)),
]);
static EXPONENTIAL: Message = level(&[
    field("dataPoints", 1, Kind::Message(&EXPONENTIAL_POINT)),
    field("aggregationTemporality", 2, Kind::Enumeration(TEMPORALITIES)),
]);
static SUMMARY: Message = level(&[field("dataPoints", 1, Kind::Message(&NUMBER_POINT_COUNTED))]);
static NUMBER_POINT: Message = record(&[
    field("startTimeUnixNano", 2, Kind::Fixed),
    field("timeUnixNano", 3, Kind::Fixed),
    field("asDouble", 4, Kind::Double),
    field("asInt", 6, Kind::Fixed),
    field("attributes", 7, Kind::Message(&KEY_VALUE)),
]);
static HISTOGRAM_POINT: Message = record(&[
    field("startTimeUnixNano", 2, Kind::Fixed),
    field("timeUnixNano", 3, Kind::Fixed),
    field("count", 4, Kind::Fixed),
    field("attributes", 9, Kind::Message(&KEY_VALUE)),
]);
static EXPONENTIAL_POINT: Message = record(&[
    field("attributes", 1, Kind::Message(&KEY_VALUE)),
    field("startTimeUnixNano", 2, Kind::Fixed),
    field("timeUnixNano", 3, Kind::Fixed),
    field("count", 4, Kind::Fixed),
]);
static NUMBER_POINT_COUNTED: Message = record(&[
    field("startTimeUnixNano", 2, Kind::Fixed),
    field("timeUnixNano", 3, Kind::Fixed),
    field("count", 4, Kind::Fixed),
    field("attributes", 7, Kind::Message(&KEY_VALUE)),
]);

const TEMPORALITIES: &[(&str, u64)] = &[
    ("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0),
    ("AGGREGATION_TEMPORALITY_DELTA", 1),
    ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2),
];
