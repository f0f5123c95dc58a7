//! Encoding by the table.
//!
//! Invariant: fields are written by ascending number, then the unknown ones as they came.

use super::decode::wire_of;
use super::wire::Wire;
use crate::kinds;
use crate::message::{Value, View};
use crate::planted::{self, Fault};
use crate::schema::{Field, Kind, Shape};

/// A number as a varint: the bytes, and how many of them count.
pub(crate) fn encoded(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut count = 0;
    while value >= 0x80 {
        bytes[count] = value as u8 | 0x80;
        value >>= 7;
        count += 1;
    }
    bytes[count] = value as u8;
    (bytes, count + 1)
}

/// Appends the message.
pub fn encode(view: View<'_>, out: &mut Vec<u8>) {
    for field in view.schema().fields.iter().filter(|field| view.has(field)) {
        self::field(view, field, out);
    }
    for run in view.unknown() {
        out.extend_from_slice(run);
    }
}

/// Appends one field, which is there.
pub(crate) fn field(view: View<'_>, field: &Field, out: &mut Vec<u8>) {
    match field.shape {
        Shape::Packed => packed(view, field, out),
        shape if shape.is_many() => {
            for index in 0..view.count(field) {
                value(field, view.element(field, index), out);
            }
        }
        _ => value(field, view.get(field).expect("it is there"), out),
    }
}

fn varint(value: u64, out: &mut Vec<u8>) {
    let (bytes, count) = encoded(value);
    out.extend_from_slice(&bytes[..count]);
}

fn tag(number: u32, wire: Wire, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire.code(), out);
}

fn value(field: &Field, value: Value<'_>, out: &mut Vec<u8>) {
    tag(field.number, wire_of(field.kind), out);
    match value {
        Value::Number(bits) => number(field.kind, bits, out),
        Value::Bytes(bytes) if field.converter != 0 => {
            with_length(out, |out| converted(field.converter, bytes, out));
        }
        Value::Bytes(bytes) => {
            varint(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Value::Message(message) if field.kind == Kind::Group => {
            encode(message, out);
            tag(field.number, Wire::GroupEnd, out);
        }
        Value::Message(message) => with_length(out, |out| encode(message, out)),
    }
}

/// Appends a value of a registered kind; of one that nobody has registered, as it is.
fn converted(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    match kinds::converter(kind) {
        Some(converter) => (converter.encode)(value, out),
        None => out.extend_from_slice(value),
    }
}

fn packed(view: View<'_>, field: &Field, out: &mut Vec<u8>) {
    tag(field.number, Wire::Bytes, out);
    with_length(out, |out| {
        for index in 0..view.count(field) {
            if let Value::Number(bits) = view.element(field, index) {
                number(field.kind, bits, out);
            }
        }
    });
}

/// Writes what is written behind its length, for which one byte is kept; where it needs more, what was written moves.
pub(super) fn with_length(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    write(out);
    let (bytes, count) = encoded((out.len() - at - 1) as u64);
    if count > 1 && !planted::is(Fault::ShortLength) {
        out.splice(at..=at, bytes[..count].iter().copied());
    } else {
        out[at] = bytes[0];
    }
}

fn number(kind: Kind, bits: u64, out: &mut Vec<u8>) {
    match wire_of(kind) {
        Wire::Fixed32 => out.extend_from_slice(&(bits as u32).to_le_bytes()),
        Wire::Fixed64 => out.extend_from_slice(&bits.to_le_bytes()),
        _ => varint(on_wire(kind, bits), out),
    }
}

/// A number of a slot as the wire has it.
#[inline(always)]
pub(crate) const fn on_wire(kind: Kind, bits: u64) -> u64 {
    match kind {
        // Negative ones are ten bytes: so a reader of 64 bits sees the same number.
        Kind::Int32 | Kind::Enum | Kind::ClosedEnum => bits as u32 as i32 as i64 as u64,
        Kind::Sint32 => ((bits as u32) << 1 ^ ((bits as u32 as i32) >> 31) as u32) as u64,
        Kind::Sint64 => bits << 1 ^ ((bits as i64) >> 63) as u64,
        _ => bits,
    }
}
