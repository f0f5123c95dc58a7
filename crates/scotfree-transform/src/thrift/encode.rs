//! Encoding by the table.
//!
//! Invariant: fields are written by ascending number, then the unknown ones as they came, if they came by the same protocol.

use super::read::Header;
use super::wire::{wire_of, wire_of_one, Wire};
use super::write::Writer;
use super::Protocol;
use crate::message::{Value, View};
use crate::schema::{Field, Kind, Need, Shape, TypeSchema, Types};
use crate::slots::IN_ARENA;

/// Appends the message as a struct.
pub fn encode(protocol: Protocol, view: View<'_>, out: &mut Vec<u8>) {
    Structs::new(view.types, protocol, out).fields(view);
}

/// Structs that are encoded, one within the other.
pub(crate) struct Structs<'m, 'o> {
    types: &'m Types,
    writer: Writer<'o>,
}

impl<'m, 'o> Structs<'m, 'o> {
    pub(crate) fn new(types: &'m Types, protocol: Protocol, out: &'o mut Vec<u8>) -> Self {
        Structs { types, writer: Writer::new(protocol, out) }
    }

    /// All fields, and the end.
    pub(crate) fn fields(&mut self, view: View<'_>) {
        let mut last = 0;
        for field in view.schema().fields.iter().filter(|field| is_written(view, field)) {
            last = self.field(view, field, last);
        }
        self.end(view);
    }

    /// The fields that the schema does not know, and the end.
    pub(crate) fn end(&mut self, view: View<'_>) {
        let is_compact = self.writer.protocol == Protocol::Compact;
        for run in view.unknown_runs().filter(|run| (run.at & IN_ARENA != 0) == is_compact) {
            self.writer.out.extend_from_slice(view.bytes(run));
        }
        self.writer.stop();
    }

    /// One field, of which `last` was the one before; returns its id.
    pub(crate) fn field(&mut self, view: View<'_>, field: &Field, last: i16) -> i16 {
        let (wire, id) = (wire_of(self.types, field), field.number as u16 as i16);
        let value = if field.shape.is_many() { None } else { view.get(field) };
        let truth = match value {
            Some(Value::Number(bits)) => bits != 0,
            _ => false,
        };
        let truth = (wire == Wire::Bool).then_some(truth);
        self.writer.header(Header { wire, id, truth }, last);
        if field.shape.is_many() {
            self.container(view, field);
        } else if truth.is_none() || self.writer.protocol == Protocol::Binary {
            self.value(field, value);
        }
        id
    }

    fn container(&mut self, view: View<'_>, field: &Field) {
        let count = view.count(field);
        self.container_header(field, count);
        for index in 0..count {
            match view.element(field, index) {
                Value::Message(entry) if field.shape == Shape::Map => {
                    entry.schema().fields.iter().for_each(|field| self.value(field, entry.get(field)));
                }
                value => self.value(field, Some(value)),
            }
        }
    }

    fn container_header(&mut self, field: &Field, count: usize) {
        if field.shape == Shape::Map {
            let entry = &self.types.types[field.sub as usize];
            let [key, value] = [0, 1].map(|place| wire_of_one(self.types, &entry.fields[place]));
            self.writer.entries(key, value, count);
        } else {
            self.writer.elements(wire_of_one(self.types, field), count);
        }
    }

    /// A value; one that was not set is zero or empty.
    fn value(&mut self, field: &Field, value: Option<Value<'_>>) {
        match value {
            Some(Value::Number(bits)) => self.number(field, bits),
            Some(Value::Bytes(bytes)) => self.bytes(field.kind, bytes),
            Some(Value::Message(view)) if view.schema().is_container => {
                self.container(view, &view.schema().fields[0]);
            }
            Some(Value::Message(view)) => self.fields(view),
            None => match field.kind {
                Kind::String | Kind::Bytes | Kind::Uuid => self.bytes(field.kind, &[]),
                Kind::Message | Kind::Group => self.empty(field.sub),
                _ => self.number(field, 0),
            },
        }
    }

    /// A struct or container of a type that nobody has filled.
    fn empty(&mut self, index: u16) {
        let types = self.types;
        let schema: &TypeSchema = &types.types[index as usize];
        if schema.is_container {
            self.container_header(&schema.fields[0], 0);
        } else {
            self.writer.stop();
        }
    }

    fn number(&mut self, field: &Field, bits: u64) {
        match wire_of_one(self.types, field) {
            Wire::Bool => self.writer.truth(bits != 0),
            Wire::I8 => self.writer.byte(bits as u8),
            Wire::I16 => self.writer.i16(bits as i16),
            Wire::I64 => self.writer.i64(bits as i64),
            Wire::Double => self.writer.double(bits),
            _ => self.writer.i32(bits as i32),
        }
    }

    fn bytes(&mut self, kind: Kind, bytes: &[u8]) {
        if kind == Kind::Uuid {
            // One that was not set is all zero.
            let mut uuid = [0; 16];
            uuid[..bytes.len().min(16)].copy_from_slice(&bytes[..bytes.len().min(16)]);
            self.writer.out.extend_from_slice(&uuid);
        } else {
            self.writer.text(bytes);
        }
    }
}

/// Whether a field is written: it was set, or it is one that is written always. Of a struct that is not there nobody can
/// say what it would be.
fn is_written(view: View<'_>, field: &Field) -> bool {
    let is_struct = matches!(field.kind, Kind::Message | Kind::Group) && !field.shape.is_many();
    view.has(field) || field.need != Need::Optional && !is_struct
}
