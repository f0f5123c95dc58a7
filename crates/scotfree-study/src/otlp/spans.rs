//! `TracesData` and `ExportTraceServiceRequest` to columns of the relation `side`.
//!
//! Invariant: each span of a message is one record, and a record is a row or a dropped one; what of a message cannot
//! be read counts as one dropped record for each place.

use super::attribute::{attribute, Any};
use super::columns::{Bitmap, Column, Texts};
use super::messages::{
    KeyValue, Link, LinkVisitor, Resource, ResourceVisitor, Span, SpanVisitor, Status, StatusVisitor,
};
use super::row::{Own, Row};
use super::said::{better, first, pairs, Said, NO_RANK};
use super::table::{float, integer, AttributeTable, Family, Target};
use super::trouble::Troubles;
use super::wire::{Damage, Fields, Value};
use scotfree_transform::protobuf::Part;
use std::ops::Range;

/// The fields that lead down to the spans. Source: opentelemetry-proto, trace.proto.
mod field {
    pub const RESOURCE_SPANS: u32 = 1;
    pub const RESOURCE: u32 = 1;
    pub const SCOPE_SPANS: u32 = 2;
    pub const SPANS: u32 = 2;
}

const KIND_MAX: u64 = 5;
const STATUS_CODE_OK: u64 = 1;
const STATUS_CODE_ERROR: u64 = 2;

/// Rows of `side`, less what is the same in all of an input.
#[derive(Debug, Clone)]
pub struct SpanColumns {
    /// Sixteen bytes a row.
    pub trace_ids: Vec<u8>,
    /// The bytes of an id as a number, the first highest.
    pub span_ids: Vec<i64>,
    /// None at roots.
    pub parent_ids: Column<i64>,
    /// OTLP's numbers.
    pub kinds: Vec<i8>,
    /// Since the epoch.
    pub starts_ns: Vec<i64>,
    /// From its start to its end.
    pub durations_ns: Vec<i64>,
    /// Names of spans.
    pub names: Texts,
    /// `OK`, or the type of the error.
    pub statuses: Texts,
    /// Which rows are marked as hedges; of others nothing is known.
    pub hedges: Bitmap,
    /// The number of the row's record in the input.
    pub records: Vec<i64>,
    /// By the names of the table's columns.
    pub integers: Vec<(String, Column<i64>)>,
    /// By the names of the table's columns.
    pub floats: Vec<(String, Column<f64>)>,
    /// By the names of the table's columns.
    pub texts: Vec<(String, Texts)>,
}

impl SpanColumns {
    fn new(table: &AttributeTable) -> Self {
        SpanColumns {
            trace_ids: Vec::new(),
            span_ids: Vec::new(),
            parent_ids: Column::default(),
            kinds: Vec::new(),
            starts_ns: Vec::new(),
            durations_ns: Vec::new(),
            names: Texts::default(),
            statuses: Texts::default(),
            hedges: Bitmap::default(),
            records: Vec::new(),
            integers: named(&table.integers),
            floats: named(&table.floats),
            texts: named(&table.texts),
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.span_ids.len()
    }
}

fn named<T: Default>(names: &[String]) -> Vec<(String, T)> {
    names.iter().map(|name| (name.clone(), T::default())).collect()
}

/// Where in a message the reading is: the ends of the messages that it is in.
#[derive(Debug, Clone, Default)]
struct Place {
    at: usize,
    end: usize,
    resource_end: Option<usize>,
    scope_end: Option<usize>,
    /// The resource's bytes, to read them again once the dictionaries are new.
    resource: Range<usize>,
}

/// Reads messages, as many rows at a time as asked for.
#[derive(Debug, Clone)]
pub struct SpanDecoder {
    table: AttributeTable,
    columns: SpanColumns,
    troubles: Troubles,
    records: u64,
    place: Place,
    resource: Said,
    own: Said,
}

impl SpanDecoder {
    /// One for an input.
    pub fn new(table: AttributeTable) -> Self {
        SpanDecoder {
            columns: SpanColumns::new(&table),
            troubles: Troubles::default(),
            records: 0,
            place: Place::default(),
            resource: Said::nothing(&table),
            own: Said::nothing(&table),
            table,
        }
    }

    /// How many records were met, rows or not.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many rows there are since the last time.
    pub fn rows(&self) -> usize {
        self.columns.rows()
    }

    /// What was wrong since the last time.
    pub fn take_troubles(&mut self) -> Vec<(String, super::Trouble)> {
        self.troubles.take()
    }

    /// A record that cannot even be read has its number, too.
    pub fn skip_record(&mut self) {
        self.records += 1;
    }

    /// The rows since the last time.
    pub fn take(&mut self) -> SpanColumns {
        std::mem::replace(&mut self.columns, SpanColumns::new(&self.table))
    }

    /// Begins a message of so many bytes.
    pub fn start(&mut self, length: usize) {
        self.place = Place { end: length, ..Place::default() };
    }

    /// Reads on in the message that was begun, until there are so many rows. True at its end.
    pub fn decode(&mut self, message: &[u8], rows_max: usize) -> bool {
        let message = &message[..message.len().min(self.place.end)];
        self.place.end = message.len();
        if self.columns.rows() == 0 {
            self.read_resource_again(message);
        }
        while self.columns.rows() < rows_max {
            if !self.step(message) {
                return true;
            }
        }
        false
    }

    /// One field of the innermost message, or the way out of it; false at the end of all.
    fn step(&mut self, message: &[u8]) -> bool {
        let end = self.place.scope_end.or(self.place.resource_end).unwrap_or(self.place.end);
        let mut fields = Fields::new(&message[self.place.at..end]);
        match fields.next() {
            Some(field) => {
                self.place.at = end - fields.left();
                self.enter(message, field);
                true
            }
            None => self.leave(),
        }
    }

    fn leave(&mut self) -> bool {
        let inner = self.place.scope_end.take();
        let left = inner.or_else(|| self.place.resource_end.take());
        if inner.is_none() {
            self.place.resource = 0..0;
            self.resource.clear();
        }
        left.is_some()
    }

    fn enter(&mut self, message: &[u8], field: Result<(u32, Value<'_>), Damage<'_>>) {
        let (number, bytes) = match field {
            Ok((number, Value::Bytes(bytes))) => (number, bytes),
            Ok(_) => return,
            Err(Damage::Cut(number, bytes)) if self.leads_down(number) => (number, bytes),
            Err(Damage::Cut(..)) => return self.drop_record("ends early"),
            Err(Damage::Nonsense) => return self.drop_record("the bytes are no OTLP message"),
        };
        let place = &mut self.place;
        let inside = place.at - bytes.len()..place.at;
        match (place.resource_end, place.scope_end, number) {
            (None, _, field::RESOURCE_SPANS) => {
                place.resource_end = Some(inside.end);
                place.at = inside.start;
                self.find_resource(message, inside);
            }
            (Some(_), None, field::SCOPE_SPANS) => {
                place.scope_end = Some(inside.end);
                place.at = inside.start;
            }
            (Some(_), Some(_), field::SPANS) => self.span(Part::within(message, inside)),
            _ => {}
        }
    }

    /// Whether a field holds more levels, so that what is there of it can be read although it is cut off.
    fn leads_down(&self, number: u32) -> bool {
        match (self.place.resource_end, self.place.scope_end) {
            (None, _) => number == field::RESOURCE_SPANS,
            (Some(_), None) => number == field::SCOPE_SPANS,
            (Some(_), Some(_)) => false,
        }
    }

    fn find_resource(&mut self, message: &[u8], inside: Range<usize>) {
        let mut fields = Fields::new(&message[inside.clone()]);
        while let Some(Ok((number, value))) = fields.next() {
            if let (field::RESOURCE, Value::Bytes(bytes)) = (number, value) {
                let end = inside.end - fields.left();
                self.place.resource = end - bytes.len()..end;
            }
        }
        let resource = self.place.resource.clone();
        self.read_resource(Part::within(message, resource));
    }

    /// Codes are of dictionaries that `take` has taken; what was wrong is known already.
    fn read_resource_again(&mut self, message: &[u8]) {
        let known = std::mem::take(&mut self.troubles);
        let resource = self.place.resource.clone();
        self.read_resource(Part::within(message, resource));
        self.troubles = known;
    }

    fn read_resource(&mut self, resource: Part<'_, Resource>) {
        let mut said = std::mem::take(&mut self.resource);
        said.clear();
        let mut reader = Reader { decoder: self, said: &mut said, own: Own::default() };
        if Resource::visit(resource, &mut reader).is_err() {
            self.troubles.kept("a resource cannot be read", self.records);
        }
        self.resource = said;
    }

    fn read_attribute(&mut self, message: Part<'_, KeyValue>, said: &mut Said) {
        let Ok((key, value)) = attribute(message) else {
            return self.troubles.kept("an attribute cannot be read", self.records);
        };
        let Some(target) = self.table.target(key) else { return };
        match (target, value) {
            (Target::Integer { column, rank }, value) => match integer(value) {
                Some(value) => better(&mut said.integers[column], rank, value),
                None => self.wrong(key),
            },
            (Target::Float { column, rank }, value) => match float(value) {
                Some(value) => better(&mut said.floats[column], rank, value),
                None => self.wrong(key),
            },
            (Target::Text { column, rank }, Any::Text(text)) => {
                let coded = self.columns.texts[column].1.code(text);
                better(&mut said.texts[column], rank, coded.code);
                self.changed(coded.change);
            }
            (Target::Text { .. }, _) => {}
            (Target::Error { rank, family }, value) => self.read_error(rank, family, value, said),
            (Target::Hedge(index), value) => said.is_hedge |= value == Any::Text(&self.table.hedges[index]),
        }
    }

    fn read_error(&mut self, rank: u16, family: Family, value: Any<'_>, said: &mut Said) {
        let Some(error) = self.table.error(family, value) else { return };
        let coded = self.columns.statuses.code(error.as_bytes());
        better(&mut said.error, rank, coded.code);
        said.has_failed |= family != Family::Text;
        self.changed(coded.change);
    }

    fn drop_record(&mut self, reason: &str) {
        self.troubles.dropped(reason, self.records);
        self.records += 1;
    }

    fn wrong(&mut self, key: &[u8]) {
        let reason = format!("attribute {} is no such number", String::from_utf8_lossy(key));
        self.troubles.kept(&reason, self.records);
    }

    fn changed(&mut self, change: Option<&'static str>) {
        if let Some(change) = change {
            self.troubles.kept(change, self.records);
        }
    }

    fn span(&mut self, message: Part<'_, Span>) {
        let mut said = std::mem::take(&mut self.own);
        said.clear();
        match self.read_span(message, &mut said).and_then(|own| Row::of(&own).map(|row| (own, row))) {
            Ok((own, row)) => self.push(&own, &row, &said),
            Err(reason) => self.troubles.dropped(reason, self.records),
        }
        self.own = said;
        self.records += 1;
    }

    fn read_span<'a>(&mut self, message: Part<'a, Span>, said: &mut Said) -> Result<Own<'a>, &'static str> {
        let mut reader = Reader { decoder: self, said, own: Own::default() };
        Span::visit(message, &mut reader).map_err(|_| "the bytes are no OTLP span")?;
        Ok(reader.own)
    }

    fn push(&mut self, own: &Own<'_>, row: &Row, said: &Said) {
        let name = self.columns.names.code(own.name);
        self.changed(name.change);
        let status = self.status(own, said);
        if own.kind > KIND_MAX {
            self.troubles.kept("a kind is unknown", self.records);
        }
        if row.parent.is_err() {
            self.troubles.kept("a parent's id is not of 8 bytes", self.records);
        }
        let columns = &mut self.columns;
        columns.trace_ids.extend_from_slice(own.trace_id);
        columns.span_ids.push(row.span_id);
        columns.parent_ids.push(row.parent.unwrap_or_default());
        columns.kinds.push(if own.kind > KIND_MAX { 0 } else { own.kind as i8 });
        columns.starts_ns.push(row.start_ns);
        columns.durations_ns.push(row.duration_ns);
        columns.names.push(Some(name.code));
        columns.statuses.push(Some(status));
        columns.hedges.push(said.is_hedge);
        columns.records.push(self.records as i64);
        self.push_said(said);
    }

    /// What a span says goes before what its resource says.
    fn push_said(&mut self, said: &Said) {
        let (columns, resource) = (&mut self.columns, &self.resource);
        for ((_, column), (own, of)) in
            columns.integers.iter_mut().zip(pairs(&said.integers, &resource.integers))
        {
            column.push(first(*own, *of));
        }
        for ((_, column), (own, of)) in columns.floats.iter_mut().zip(pairs(&said.floats, &resource.floats)) {
            column.push(first(*own, *of));
        }
        let texts = columns.texts.iter_mut().zip(pairs(&said.texts, &resource.texts));
        for (index, ((_, column), (own, of))) in texts.enumerate() {
            let mut code = first(*own, *of);
            if code.is_none() && self.table.service == Some(index) {
                code = Some(column.code(b"unknown").code);
            }
            column.push(code);
        }
    }

    /// What the protocol's own number says goes before a flag; that somebody says it went well goes before all.
    fn status(&mut self, own: &Own<'_>, said: &Said) -> i32 {
        let is_known = said.error.0 != NO_RANK;
        let coded = match (own.status_code, own.message) {
            (STATUS_CODE_OK, _) => self.columns.statuses.code(b"OK"),
            (_, _) if said.has_failed => return said.error.1,
            (STATUS_CODE_ERROR, _) if is_known => return said.error.1,
            (STATUS_CODE_ERROR, b"") => self.columns.statuses.code(b"ERROR"),
            (STATUS_CODE_ERROR, message) => self.columns.statuses.code(message),
            _ => self.columns.statuses.code(b"OK"),
        };
        self.changed(coded.change);
        coded.code
    }
}

/// Who is handed the fields of a span, or of a resource.
struct Reader<'d, 'a> {
    decoder: &'d mut SpanDecoder,
    said: &'d mut Said,
    own: Own<'a>,
}

impl<'a> ResourceVisitor<'a> for Reader<'_, 'a> {
    fn attributes(&mut self, message: Part<'a, KeyValue>) {
        self.decoder.read_attribute(message, self.said);
    }
}

impl<'a> SpanVisitor<'a> for Reader<'_, 'a> {
    fn trace_id(&mut self, id: &'a [u8]) {
        self.own.trace_id = id;
    }

    fn span_id(&mut self, id: &'a [u8]) {
        self.own.span_id = id;
    }

    fn parent_span_id(&mut self, id: &'a [u8]) {
        self.own.parent_id = id;
    }

    fn name(&mut self, name: &'a [u8]) {
        self.own.name = name;
    }

    fn kind(&mut self, kind: u64) {
        self.own.kind = kind;
    }

    fn start_time_unix_nano(&mut self, time: u64) {
        self.own.start = time;
    }

    fn end_time_unix_nano(&mut self, time: u64) {
        self.own.end = time;
    }

    fn attributes(&mut self, message: Part<'a, KeyValue>) {
        self.decoder.read_attribute(message, self.said);
    }

    /// Of one that cannot be read on, what came before counts.
    fn links(&mut self, message: Part<'a, Link>) {
        let _ = Link::visit(message, self);
    }

    fn status(&mut self, message: Part<'a, Status>) {
        if Status::visit(message, self).is_err() {
            self.decoder.troubles.kept("a status cannot be read", self.decoder.records);
        }
    }
}

/// A link says only whether the call repeats the one that it leads to.
impl<'a> LinkVisitor<'a> for Reader<'_, 'a> {
    fn attributes(&mut self, message: Part<'a, KeyValue>) {
        let Ok((key, value)) = attribute(message) else { return };
        if let Some(Target::Hedge(index)) = self.decoder.table.target(key) {
            self.said.is_hedge |= value == Any::Text(&self.decoder.table.hedges[index]);
        }
    }
}

impl<'a> StatusVisitor<'a> for Reader<'_, 'a> {
    fn message(&mut self, message: &'a [u8]) {
        self.own.message = message;
    }

    fn code(&mut self, code: u64) {
        self.own.status_code = code;
    }
}
