//! The OTLP JSON form of a call: one `ExportTraceServiceRequest` per line, as OTLP's file format has it.
//!
//! Invariant: what is written can be read back without loss of a nanosecond (64-bit integers travel as
//! strings), and a line that cannot be read is a typed error, never a panic.

use crate::record::{AnsweredBy, CallRecord, MeasuredCall};
use scotfree_core::{Nanos, Stage, StageSet, StageTimes, STAGE_COUNT};
use serde::{Deserialize, Deserializer};
use std::io::Write;

const KIND_CLIENT: u8 = 3;
const STATUS_ERROR: i64 = 2;
const STAGE_PREFIX: &str = "rpc.stage.";

/// Whose calls these are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// `service.name`.
    pub service: String,
    /// `service.instance.id`, where there is more than one.
    pub instance: Option<String>,
    /// Whom they call, where that is one: `peer.service` of each.
    pub peer: Option<String>,
}

/// Appends one call as one line with its newline.
pub fn encode_line(resource: &Resource, record: &CallRecord, out: &mut Vec<u8>) {
    encode_request(resource, std::slice::from_ref(record), out);
    out.push(b'\n');
}

/// Appends the calls as one `ExportTraceServiceRequest`, without a newline.
pub fn encode_request(resource: &Resource, records: &[CallRecord], out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"resourceSpans":[{"resource":{"attributes":["#);
    let mut attributes = Attributes { out, separator: b"" };
    attributes.text("service.name", &resource.service);
    if let Some(instance) = &resource.instance {
        attributes.text("service.instance.id", instance);
    }
    out.extend_from_slice(br#"]},"scopeSpans":[{"scope":{"name":"scotfree","version":""#);
    out.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
    out.extend_from_slice(br#""},"spans":["#);
    for (index, record) in records.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode_span(resource, record, out);
    }
    out.extend_from_slice(b"]}]}]}");
}

fn encode_span(resource: &Resource, record: &CallRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"traceId":""#);
    push_hex(&record.trace_id.0, out);
    out.extend_from_slice(br#"","spanId":""#);
    push_hex(&record.span_id.0, out);
    if let Some(parent) = record.parent_span_id {
        out.extend_from_slice(br#"","parentSpanId":""#);
        push_hex(&parent.0, out);
    }
    out.extend_from_slice(br#"","name":"#);
    push_string(&record.method, out);
    out.extend_from_slice(br#","kind":"#);
    push_integer(u64::from(KIND_CLIENT), out);
    out.extend_from_slice(br#","startTimeUnixNano":""#);
    push_integer(record.start_unix_ns, out);
    out.extend_from_slice(br#"","endTimeUnixNano":""#);
    push_integer(record.start_unix_ns.saturating_add(record.duration().0), out);
    out.extend_from_slice(br#"","attributes":["#);
    encode_attributes(resource, record, out);
    out.push(b']');
    if let Some(error) = &record.error {
        out.extend_from_slice(br#","status":{"code":"#);
        push_integer(STATUS_ERROR.unsigned_abs(), out);
        out.extend_from_slice(br#","message":"#);
        push_string(error, out);
        out.push(b'}');
    }
    out.push(b'}');
}

fn encode_attributes(resource: &Resource, record: &CallRecord, out: &mut Vec<u8>) {
    let mut attributes = Attributes { out, separator: b"" };
    attributes.text("rpc.method", &record.method);
    if let Some(peer) = &resource.peer {
        attributes.text("peer.service", peer);
    }
    let (stages, clock_bound_ns) = record.measured_stages();
    for (stage, time) in stages {
        attributes.integer(STAGE_KEYS[stage.index()], time.0);
    }
    let sources = record.source_set();
    attributes.shown("rpc.stage.source", sources);
    if sources.is_mixed() {
        let letters = record.source_letters();
        attributes.text("rpc.stage.boundary_sources", &String::from_utf8_lossy(&letters));
    }
    if let Some(bound) = clock_bound_ns {
        attributes.integer("rpc.stage.clock_bound", bound);
    }
    attributes.shown("rpc.stage.answered_by", record.answered_by);
    if let Some(key) = record.key {
        attributes.integer("rpc.key.hash", key.hash);
        // For how many calls it stands.
        attributes.number("sampling.weight", key.one_in);
    }
    attributes.integer("rpc.request.size", record.request_bytes);
    attributes.integer("rpc.response.size", record.response_bytes);
    if let Some(cpu_ns) = record.cpu_ns {
        attributes.integer("rpc.cpu.ns", cpu_ns);
    }
}

/// The stages' keys, in the order of [`Stage::ALL`].
const STAGE_KEYS: [&str; STAGE_COUNT] = [
    "rpc.stage.client_send_queue",
    "rpc.stage.request_stack",
    "rpc.stage.request_wire",
    "rpc.stage.server_recv_queue",
    "rpc.stage.server_app",
    "rpc.stage.server_send_queue",
    "rpc.stage.response_stack",
    "rpc.stage.response_wire",
    "rpc.stage.client_recv_queue",
];

/// Writes the elements of an OTLP attribute list. Keys are our own and need no escaping.
struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    separator: &'static [u8],
}

impl Attributes<'_> {
    fn key(&mut self, key: &str) {
        self.out.extend_from_slice(self.separator);
        self.separator = b",";
        self.out.extend_from_slice(br#"{"key":""#);
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(br#"","value":{"#);
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.out.extend_from_slice(br#""stringValue":"#);
        push_string(value, self.out);
        self.out.extend_from_slice(b"}}");
    }

    /// A text of ours that needs no escaping.
    fn shown(&mut self, key: &str, value: impl std::fmt::Display) {
        self.key(key);
        write!(self.out, r#""stringValue":"{value}"}}}}"#).expect("writing to memory does not fail");
    }

    fn number(&mut self, key: &str, value: u32) {
        self.key(key);
        self.out.extend_from_slice(br#""doubleValue":"#);
        push_integer(u64::from(value), self.out);
        self.out.extend_from_slice(b"}}");
    }

    fn integer(&mut self, key: &str, value: u64) {
        self.key(key);
        self.out.extend_from_slice(br#""intValue":""#);
        // The protocol's integers are signed; a time above 292 years would not fit.
        push_integer(value.min(i64::MAX as u64), self.out);
        self.out.extend_from_slice(br#""}}"#);
    }
}

/// Decimal digits. Formatting a call's dozen integers by the standard library was the larger part of what a
/// line cost; by this a line takes 0.3 us.
fn push_integer(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut begin = digits.len();
    loop {
        begin -= 1;
        digits[begin] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[begin..]);
}

fn push_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("writing to memory does not fail");
}

fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Why a line is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, or not of OTLP's shape.
    #[error("not an OTLP trace object: {0}")]
    Shape(#[from] serde_json::Error),
    /// A span that says something impossible.
    #[error("span `{span}`: {problem}")]
    Span {
        /// The span's name.
        span: String,
        /// What is impossible.
        problem: String,
    },
}

/// What one line held.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The calls with stages.
    pub calls: Vec<MeasuredCall>,
    /// Spans that are not client spans with stages: other programs' spans in the same file.
    pub other_span_count: u64,
}

/// Reads one line.
pub fn decode_line(line: &[u8]) -> Result<Decoded, DecodeError> {
    let request: Request = serde_json::from_slice(line)?;
    let mut decoded = Decoded::default();
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    for span in scopes.flat_map(|scope| scope.spans) {
        match span.measured()? {
            Some(call) => decoded.calls.push(call),
            None => decoded.other_span_count += 1,
        }
    }
    Ok(decoded)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    #[serde(default)]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
struct ScopeSpans {
    #[serde(default)]
    spans: Vec<Span>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: serde_json::Value,
    #[serde(default, deserialize_with = "integer")]
    start_time_unix_nano: i128,
    #[serde(default, deserialize_with = "integer")]
    end_time_unix_nano: i128,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Attribute {
    key: String,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Value {
    string_value: Option<String>,
    #[serde(default, deserialize_with = "optional_integer")]
    int_value: Option<i128>,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    code: serde_json::Value,
    #[serde(default)]
    message: String,
}

impl Span {
    /// The call that this span describes; nothing if it is no client span with stages.
    fn measured(self) -> Result<Option<MeasuredCall>, DecodeError> {
        if !is_enum(&self.kind, i64::from(KIND_CLIENT), "SPAN_KIND_CLIENT") {
            return Ok(None);
        }
        let name = self.name.clone();
        self.into_call().map_err(|problem| DecodeError::Span { span: name, problem })
    }

    fn into_call(self) -> Result<Option<MeasuredCall>, String> {
        let start_unix_ns = unsigned("startTimeUnixNano", self.start_time_unix_nano)?;
        let end_unix_ns = unsigned("endTimeUnixNano", self.end_time_unix_nano)?;
        if end_unix_ns < start_unix_ns {
            return Err(format!("it ends at {end_unix_ns}, before it starts at {start_unix_ns}"));
        }
        let mut call = MeasuredCall {
            method: self.name,
            start_unix_ns,
            duration: Nanos(end_unix_ns - start_unix_ns),
            stages: StageTimes::default(),
            measured: StageSet::EMPTY,
            source: None,
            clock_bound_ns: None,
            answered_by: AnsweredBy::Server,
            request_bytes: None,
            response_bytes: None,
            cpu_ns: None,
            error: is_enum(&self.status.code, STATUS_ERROR, "STATUS_CODE_ERROR")
                .then_some(self.status.message),
        };
        let mut measured = Vec::new();
        for attribute in self.attributes {
            take_attribute(&mut call, &mut measured, attribute)?;
        }
        call.measured = StageSet::of(&measured);
        Ok((!measured.is_empty()).then_some(call))
    }
}

fn take_attribute(
    call: &mut MeasuredCall,
    measured: &mut Vec<Stage>,
    attribute: Attribute,
) -> Result<(), String> {
    let key = attribute.key.as_str();
    let number = |value: &Value| match value.int_value {
        Some(number) => unsigned(key, number).map(Some),
        None => Ok(None),
    };
    match key {
        "rpc.method" => call.method = attribute.value.string_value.unwrap_or_default(),
        "rpc.stage.source" => call.source = attribute.value.string_value,
        "rpc.stage.clock_bound" => call.clock_bound_ns = number(&attribute.value)?,
        "rpc.stage.answered_by" => {
            call.answered_by = attribute.value.string_value.unwrap_or_default().parse()?;
        }
        "rpc.request.size" => call.request_bytes = number(&attribute.value)?,
        "rpc.response.size" => call.response_bytes = number(&attribute.value)?,
        "rpc.cpu.ns" => call.cpu_ns = number(&attribute.value)?,
        other => {
            let Some(stage) = stage_of(other) else { return Ok(()) };
            let time_ns = number(&attribute.value)?.ok_or_else(|| format!("`{other}` is not an integer"))?;
            call.stages.set(stage, Nanos(time_ns));
            measured.push(stage);
        }
    }
    Ok(())
}

fn stage_of(key: &str) -> Option<Stage> {
    let name = key.strip_prefix(STAGE_PREFIX)?;
    Stage::ALL.into_iter().find(|stage| stage.name() == name)
}

fn unsigned(key: &str, value: i128) -> Result<u64, String> {
    // Times are bounded by what the sum of nine of them can hold.
    u64::try_from(value)
        .ok()
        .filter(|value| *value <= u64::MAX / 16 || !key.starts_with(STAGE_PREFIX))
        .ok_or_else(|| format!("`{key}` = {value} is out of range"))
}

// OTLP JSON writes enums as numbers; some writers use the names.
fn is_enum(value: &serde_json::Value, number: i64, name: &str) -> bool {
    value.as_i64() == Some(number) || value.as_str() == Some(name)
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i128, D::Error> {
    optional_integer(deserializer).map(Option::unwrap_or_default)
}

fn optional_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i128>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Signed(i64),
        Unsigned(u64),
    }
    match Option::<Form>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Form::Signed(number)) => Ok(Some(i128::from(number))),
        Some(Form::Unsigned(number)) => Ok(Some(i128::from(number))),
        Some(Form::Text(text)) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordedKey, Sources, SpanId, TraceId};
    use scotfree_core::{Boundaries, Boundary, DeviceId, StampSource};

    #[test]
    fn a_full_call_has_exactly_this_form() {
        let mut line = Vec::new();
        encode_line(&resource(), &full_call(), &mut line);
        let text = String::from_utf8(line).expect("the line is UTF-8");
        assert_eq!(text, include_str!("../tests/expected/full_call.jsonl"));
    }

    #[test]
    fn a_call_says_who_is_called_where_that_is_known() {
        let mut line = Vec::new();
        let resource = Resource { peer: Some("cart \"2\"".into()), ..resource() };
        encode_line(&resource, &full_call(), &mut line);
        let parsed: serde_json::Value = serde_json::from_slice(&line).expect("the line is JSON");
        let attributes = &parsed["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"];
        let peer = serde_json::json!({"key": "peer.service", "value": {"stringValue": "cart \"2\""}});
        assert!(attributes.as_array().is_some_and(|each| each.contains(&peer)), "{attributes}");
    }

    #[test]
    fn keys_and_integers_are_written_as_the_library_would() {
        for stage in Stage::ALL {
            assert_eq!(STAGE_KEYS[stage.index()], format!("{STAGE_PREFIX}{stage}"));
        }
        for value in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            push_integer(value, &mut out);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }

    #[test]
    fn a_call_round_trips_to_the_nanosecond() {
        let mut line = Vec::new();
        let record = full_call();
        encode_line(&resource(), &record, &mut line);
        let decoded = decode_line(&line).expect("our own line reads back");
        let call = decoded.calls.first().expect("one call was written");
        assert_eq!(call.stages, record.boundaries.stages().0);
        assert_eq!(call.duration, record.duration());
        assert_eq!(call.clock_bound_ns, Some(250));
        assert_eq!(call.cpu_ns, Some(4_200));
        assert_eq!(call.method, "SET");
        assert!(call.sum_is_right());
        assert_eq!(call.error, None);
    }

    #[test]
    fn a_device_answer_omits_what_was_not_measured() {
        let mut boundaries = Boundaries::default();
        boundaries.stamp(Boundary::Called, Nanos(1_000));
        boundaries.stamp(Boundary::ResponseReceived, Nanos(8_000));
        boundaries.stamp(Boundary::Resumed, Nanos(9_000));
        let record = CallRecord {
            boundaries,
            answered_by: AnsweredBy::Device(DeviceId(1)),
            clock_bound_ns: None,
            cpu_ns: None,
            error: Some("it \"failed\"\n".into()),
            ..full_call()
        };
        let mut line = Vec::new();
        encode_line(&resource(), &record, &mut line);
        let text = String::from_utf8(line.clone()).expect("the line is UTF-8");
        for absent in ["server_app", "request_wire", "clock_bound", "rpc.cpu"] {
            assert!(!text.contains(absent), "{absent} was not measured: {text}");
        }
        let call = decode_line(&line).expect("our own line reads back").calls.remove(0);
        assert_eq!(call.answered_by, AnsweredBy::Device(DeviceId(1)));
        assert_eq!(call.error.as_deref(), Some("it \"failed\"\n"));
        assert!(!call.measured.contains(Stage::ServerApp));
        assert!(call.sum_is_right());
    }

    #[test]
    fn a_key_is_written_as_a_hash_and_how_many_keys_it_stands_for() {
        let key = Some(RecordedKey { hash: u64::MAX >> 1, one_in: 16 });
        let mut line = Vec::new();
        encode_line(&resource(), &CallRecord { key, ..full_call() }, &mut line);
        let text = String::from_utf8(line).expect("the line is UTF-8");
        assert!(
            text.contains(r#"{"key":"rpc.key.hash","value":{"intValue":"9223372036854775807"}}"#),
            "{text}"
        );
        assert!(text.contains(r#"{"key":"sampling.weight","value":{"doubleValue":16}}"#), "{text}");
        assert_eq!(decode_line(text.as_bytes()).expect("it reads back").calls.len(), 1);
    }

    #[test]
    fn integers_are_read_as_strings_and_as_numbers() {
        let line = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"GET","kind":"SPAN_KIND_CLIENT",
            "startTimeUnixNano":5,"endTimeUnixNano":"2005","attributes":[
            {"key":"rpc.stage.server_app","value":{"intValue":2000}},{"key":"x","value":{"boolValue":true}}]}]}]}]}"#;
        let call = decode_line(line).expect("both forms are OTLP").calls.remove(0);
        assert_eq!(call.stages.get(Stage::ServerApp), Nanos(2_000));
    }

    #[test]
    fn other_spans_are_counted_and_left_alone() {
        let line = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a","kind":2},{"name":"b","kind":3}]}]}]}"#;
        let decoded = decode_line(line).expect("the line is OTLP");
        assert_eq!((decoded.calls.len(), decoded.other_span_count), (0, 2));
    }

    #[test]
    fn nonsense_is_an_error_not_a_panic() {
        let negative = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a","kind":3,
            "attributes":[{"key":"rpc.stage.server_app","value":{"intValue":"-1"}}]}]}]}]}"#;
        let backwards = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a","kind":3,
            "startTimeUnixNano":"9","endTimeUnixNano":"8"}]}]}]}"#;
        let huge = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a","kind":3,
            "attributes":[{"key":"rpc.stage.server_app","value":{"intValue":"18446744073709551615"}}]}]}]}]}"#;
        let lines: [&[u8]; 7] = [b"", b"{", b"[]", b"{\"a\":1}", negative, backwards, huge];
        for line in lines {
            assert!(decode_line(line).is_err(), "{}", String::from_utf8_lossy(line));
        }
    }

    pub(super) fn resource() -> Resource {
        Resource { service: "redis".into(), instance: None, peer: None }
    }

    fn full_call() -> CallRecord {
        let mut boundaries = Boundaries::default();
        let mut sources = Sources::all(StampSource::Lib);
        for (boundary, at) in [
            (Boundary::Called, 10_000),
            (Boundary::RequestDequeued, 11_000),
            (Boundary::RequestSent, 14_000),
            (Boundary::RequestReceived, 20_000),
            (Boundary::HandlerStarted, 25_000),
            (Boundary::HandlerEnded, 55_000),
            (Boundary::ResponseDequeued, 56_000),
            (Boundary::ResponseSent, 60_000),
            (Boundary::ResponseReceived, 66_001),
            (Boundary::Resumed, 70_000),
        ] {
            boundaries.stamp(boundary, Nanos(at));
        }
        sources.set(Boundary::RequestReceived, StampSource::Kernel);
        CallRecord {
            trace_id: TraceId([0xab; 16]),
            span_id: SpanId([1, 2, 3, 4, 5, 6, 7, 8]),
            parent_span_id: None,
            method: "SET".into(),
            start_unix_ns: 1_700_000_000_123_456_789,
            boundaries,
            sources,
            clock_bound_ns: Some(250),
            answered_by: AnsweredBy::Server,
            key: None,
            request_bytes: 64,
            response_bytes: 5,
            cpu_ns: Some(4_200),
            error: None,
        }
    }
}
