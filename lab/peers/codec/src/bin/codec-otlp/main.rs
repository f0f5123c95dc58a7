//! OTLP's spans read by hand and by generated code, of which the study uses visitors: nanoseconds a span, in turns.
//!
//! Envelope: a span of 14 attributes is 520 bytes in 70 fields, of which 30 are messages; by hand a field costs two
//! numbers, 4 to 6 ns, so 350 ns. The codec makes slots of each message and reads them back: 10 to 15 ns each more.
//!
//! Invariant: all readers come to the same sum over all that the study looks at.
#![allow(clippy::unwrap_used, clippy::pedantic)]

#[allow(dead_code)]
mod wire;

#[allow(missing_docs, dead_code)]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/otlp.rs"));
}

#[allow(missing_docs, dead_code)]
mod visited {
    include!(concat!(env!("OUT_DIR"), "/visited.rs"));
    pub use otlp::*;
}

use codec_peers::requests::Class;
use messages::otlp::{
    AnyValueRef, KeyValue, KeyValueRef, Link, Parts, PartsRef, Span, SpanRef, Status, TracesData,
};
use scotfree_transform::protobuf::Part;
use scotfree_transform::{protobuf, Arena, Limits};
use std::hint::black_box;
use std::time::Instant;
use wire::{Any, Fields, Value};

const REQUESTS: u64 = 8;
/// As many as exporters send at once.
const SPANS: u64 = 512;

/// `codec-otlp [ROUNDS] [--lines]`: a table, or a line of JSON for each reader and round.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let are_lines = words.iter().any(|word| word == "--lines");
    let rounds = words.first().and_then(|word| word.parse().ok()).unwrap_or(41);
    for class in Class::ALL {
        let requests: Vec<Vec<u8>> = (1..=REQUESTS).map(|seed| class.request(SPANS, seed)).collect();
        let times = measure(&requests, rounds);
        let bytes = requests.iter().map(Vec::len).sum::<usize>() as u64 / (REQUESTS * SPANS);
        if are_lines {
            print_lines(class, bytes, &times);
        } else {
            print_table(class, bytes, times);
        }
    }
}

type Reader = fn(&[u8], &mut Arena) -> u64;
const READERS: [(&str, Reader); 5] = [
    ("by hand", by_hand),
    ("generated, a request at once", by_request),
    ("generated, a span at once", by_span),
    ("generated, an attribute at once", by_attribute),
    ("generated, visited", by_visits),
];

/// Nanoseconds a span of each reader in each round.
type Times = [Vec<f64>; READERS.len()];

fn measure(requests: &[Vec<u8>], rounds: usize) -> Times {
    let mut arena = Arena::new();
    let mut times = READERS.map(|_| Vec::new());
    let expected: Vec<u64> = requests.iter().map(|request| by_hand(request, &mut arena)).collect();
    for _ in 0..rounds {
        for ((_, reader), times) in READERS.iter().zip(&mut times) {
            let begun = Instant::now();
            let sums = requests.iter().map(|request| black_box(reader)(request, &mut arena));
            assert!(sums.eq(expected.iter().copied()));
            times.push(begun.elapsed().as_nanos() as f64 / (REQUESTS * SPANS) as f64);
        }
    }
    times
}

/// As codec-peers prints them, a span for a message.
fn print_lines(class: Class, bytes: u64, times: &Times) {
    for ((name, _), times) in READERS.iter().zip(times) {
        for (round, ns) in times.iter().enumerate() {
            println!(
                r#"{{"shape":"otlp-{}","absent":0,"work":"decode","arm":"{}","round":{round},"ns":{ns:?},"bytes":{bytes}.0,"items":1.0}}"#,
                format!("{class:?}").to_lowercase(),
                name.replace(", ", "-").replace(' ', "-"),
            );
        }
    }
}

fn print_table(class: Class, bytes: u64, times: Times) {
    println!("{class:?}: {bytes} bytes a span");
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    for ((name, _), median) in READERS.iter().zip(medians) {
        let (rate, of_hand) = (1e3 / median, medians[0] / median);
        println!("  {name:32} {median:7.1} ns  {rate:6.2} million spans/s  {of_hand:.3} x");
    }
}

/// What was read, as one number.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn number(&mut self, number: u64) {
        self.0 = self.0.wrapping_add(number);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
        self.number(bytes.len() as u64 + (u64::from(first) << 8) + (u64::from(last) << 16));
    }

    fn attribute(&mut self, key: &[u8], value: Any<'_>) {
        self.bytes(key);
        match value {
            Any::Text(text) => self.bytes(text),
            Any::Integer(integer) => self.number(integer as u64),
            Any::Double(double) => self.number(double.to_bits()),
            Any::Other => {}
        }
    }
}

/// The messages in fields of this number.
fn inner(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message).filter_map(move |field| match field.unwrap() {
        (found, Value::Bytes(bytes)) if found == number => Some(bytes),
        _ => None,
    })
}

/// The bytes of a request's spans; what resources say goes to the sum.
fn spans<'a>(request: &'a [u8], sum: &mut Sum, mut each: impl FnMut(&mut Sum, &'a [u8])) {
    for resource in inner(request, 1) {
        for attribute in inner(resource, 1).flat_map(|resource| inner(resource, 1)) {
            let (key, value) = wire::attribute(attribute).unwrap();
            sum.attribute(key, value);
        }
        for span in inner(resource, 2).flat_map(|scope| inner(scope, 2)) {
            each(sum, span);
        }
    }
}

fn by_hand(request: &[u8], _: &mut Arena) -> u64 {
    let mut sum = Sum::default();
    spans(request, &mut sum, span_by_hand);
    sum.0
}

fn span_by_hand(sum: &mut Sum, span: &[u8]) {
    for field in Fields::new(span) {
        match field.unwrap() {
            (1 | 2 | 4 | 5, Value::Bytes(bytes)) => sum.bytes(bytes),
            (6, Value::Varint(number)) | (7 | 8, Value::Fixed64(number)) => sum.number(number),
            (9, Value::Bytes(attribute)) => attribute_by_hand(sum, attribute),
            (13, Value::Bytes(link)) => {
                inner(link, 4).for_each(|attribute| attribute_by_hand(sum, attribute))
            }
            (15, Value::Bytes(status)) => status_by_hand(sum, status),
            _ => {}
        }
    }
}

fn attribute_by_hand(sum: &mut Sum, attribute: &[u8]) {
    let (key, value) = wire::attribute(attribute).unwrap();
    sum.attribute(key, value);
}

fn status_by_hand(sum: &mut Sum, status: &[u8]) {
    for field in Fields::new(status) {
        match field.unwrap() {
            (2, Value::Bytes(message)) => sum.bytes(message),
            (3, Value::Varint(code)) => sum.number(code),
            _ => {}
        }
    }
}

fn by_request(request: &[u8], arena: &mut Arena) -> u64 {
    let mut sum = Sum::default();
    arena.reset();
    let data = protobuf::decode::<TracesData>(request, arena, &Limits::default()).unwrap();
    for resource in data.resource_spans() {
        for attribute in resource.resource().into_iter().flat_map(|resource| resource.attributes()) {
            said(&mut sum, attribute);
        }
        for span in resource.scope_spans().flat_map(|scope| scope.spans()) {
            span_of(&mut sum, span);
        }
    }
    sum.0
}

fn by_span(request: &[u8], arena: &mut Arena) -> u64 {
    let mut sum = Sum::default();
    spans(request, &mut sum, |sum, span| {
        arena.reset();
        span_of(sum, protobuf::decode::<Span>(span, arena, &Limits::default()).unwrap());
    });
    sum.0
}

fn said(sum: &mut Sum, attribute: KeyValueRef<'_>) {
    sum.attribute(attribute.key(), any(attribute.value()));
}

fn any(value: Option<AnyValueRef<'_>>) -> Any<'_> {
    let Some(value) = value else { return Any::Other };
    if let Some(text) = value.string_value() {
        return Any::Text(text);
    }
    if let Some(integer) = value.int_value() {
        return Any::Integer(integer);
    }
    value.double_value().map_or(Any::Other, Any::Double)
}

/// What is the same in a span and in its parts.
macro_rules! own {
    ($sum:expr, $span:expr) => {
        for bytes in [$span.trace_id(), $span.span_id(), $span.parent_span_id(), $span.name()] {
            $sum.bytes(bytes);
        }
        for number in [$span.kind(), $span.start_time_unix_nano(), $span.end_time_unix_nano()] {
            $sum.number(number);
        }
    };
}

fn span_of(sum: &mut Sum, span: SpanRef<'_>) {
    own!(sum, span);
    span.attributes().for_each(|attribute| said(sum, attribute));
    span.links().flat_map(|link| link.attributes()).for_each(|attribute| said(sum, attribute));
    if let Some(status) = span.status() {
        sum.bytes(status.message());
        sum.number(status.code());
    }
}

fn by_attribute(request: &[u8], arena: &mut Arena) -> u64 {
    let mut sum = Sum::default();
    let mut inside = Arena::new();
    spans(request, &mut sum, |sum, span| {
        arena.reset();
        let parts = protobuf::decode::<Parts>(span, arena, &Limits::default()).unwrap();
        parts_of(sum, parts, &mut inside);
    });
    sum.0
}

fn parts_of(sum: &mut Sum, span: PartsRef<'_>, arena: &mut Arena) {
    own!(sum, span);
    let limits = Limits::default();
    for attribute in span.attributes() {
        arena.reset();
        said(sum, protobuf::decode::<KeyValue>(attribute, arena, &limits).unwrap());
    }
    for link in span.links() {
        arena.reset();
        let link = protobuf::decode::<Link>(link, arena, &limits).unwrap();
        link.attributes().for_each(|attribute| said(sum, attribute));
    }
    arena.reset();
    let status = protobuf::decode::<Status>(span.status(), arena, &limits).unwrap();
    sum.bytes(status.message());
    sum.number(status.code());
}

fn by_visits(request: &[u8], _: &mut Arena) -> u64 {
    let mut sum = Sum::default();
    visited::TracesData::visit(Part::new(request), &mut sum).unwrap();
    sum.0
}

impl<'i> visited::TracesDataVisitor<'i> for Sum {
    fn resource_spans(&mut self, message: Part<'i, visited::ResourceSpans>) {
        visited::ResourceSpans::visit(message, self).unwrap();
    }
}

impl<'i> visited::ResourceSpansVisitor<'i> for Sum {
    fn resource(&mut self, message: Part<'i, visited::Resource>) {
        visited::Resource::visit(message, self).unwrap();
    }

    fn scope_spans(&mut self, message: Part<'i, visited::ScopeSpans>) {
        visited::ScopeSpans::visit(message, self).unwrap();
    }
}

impl<'i> visited::ResourceVisitor<'i> for Sum {
    fn attributes(&mut self, message: Part<'i, visited::KeyValue>) {
        attribute_visited(self, message);
    }
}

impl<'i> visited::ScopeSpansVisitor<'i> for Sum {
    fn spans(&mut self, message: Part<'i, visited::Span>) {
        visited::Span::visit(message, self).unwrap();
    }
}

impl<'i> visited::SpanVisitor<'i> for Sum {
    fn trace_id(&mut self, value: &'i [u8]) {
        self.bytes(value);
    }

    fn span_id(&mut self, value: &'i [u8]) {
        self.bytes(value);
    }

    fn parent_span_id(&mut self, value: &'i [u8]) {
        self.bytes(value);
    }

    fn name(&mut self, value: &'i [u8]) {
        self.bytes(value);
    }

    fn kind(&mut self, value: u64) {
        self.number(value);
    }

    fn start_time_unix_nano(&mut self, value: u64) {
        self.number(value);
    }

    fn end_time_unix_nano(&mut self, value: u64) {
        self.number(value);
    }

    fn attributes(&mut self, message: Part<'i, visited::KeyValue>) {
        attribute_visited(self, message);
    }

    fn links(&mut self, message: Part<'i, visited::Link>) {
        visited::Link::visit(message, self).unwrap();
    }

    fn status(&mut self, message: Part<'i, visited::Status>) {
        visited::Status::visit(message, self).unwrap();
    }
}

impl<'i> visited::LinkVisitor<'i> for Sum {
    fn attributes(&mut self, message: Part<'i, visited::KeyValue>) {
        attribute_visited(self, message);
    }
}

impl<'i> visited::StatusVisitor<'i> for Sum {
    fn message(&mut self, value: &'i [u8]) {
        self.bytes(value);
    }

    fn code(&mut self, value: u64) {
        self.number(value);
    }
}

/// An attribute, as far as it was visited.
struct Said<'i> {
    key: &'i [u8],
    value: Any<'i>,
}

#[inline(always)]
fn attribute_visited<'i>(sum: &mut Sum, message: Part<'i, visited::KeyValue>) {
    let mut said = Said { key: &[], value: Any::Other };
    visited::KeyValue::visit(message, &mut said).unwrap();
    sum.attribute(said.key, said.value);
}

impl<'i> visited::KeyValueVisitor<'i> for Said<'i> {
    #[inline(always)]
    fn key(&mut self, value: &'i [u8]) {
        self.key = value;
    }

    #[inline(always)]
    fn value(&mut self, message: Part<'i, visited::AnyValue>) {
        visited::AnyValue::visit(message, self).unwrap();
    }
}

impl<'i> visited::AnyValueVisitor<'i> for Said<'i> {
    #[inline(always)]
    fn string_value(&mut self, value: &'i [u8]) {
        self.value = Any::Text(value);
    }

    #[inline(always)]
    fn int_value(&mut self, value: i64) {
        self.value = Any::Integer(value);
    }

    #[inline(always)]
    fn double_value(&mut self, value: f64) {
        self.value = Any::Double(value);
    }
}
