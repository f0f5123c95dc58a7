//! A protocol as a type, so that the straight line of each is compiled for it alone.

use super::wire::Wire;
use super::Protocol;
use crate::schema::{Field, Kind};

/// `Binary` or `Compact`.
pub trait ThriftFormat: 'static {
    /// Which it is.
    const PROTOCOL: Protocol;
}

/// `TBinary`.
pub enum Binary {}

/// `TCompact`.
pub enum Compact {}

impl ThriftFormat for Binary {
    const PROTOCOL: Protocol = Protocol::Binary;
}

impl ThriftFormat for Compact {
    const PROTOCOL: Protocol = Protocol::Compact;
}

/// A field's id.
pub(crate) const fn id_of(field: &Field) -> i32 {
    field.number as u16 as i16 as i32
}

/// What one of a field's values is, where the straight line does it: a message is a struct then.
pub(crate) const fn value_of(field: &Field) -> Wire {
    Wire::of_kind(field.kind)
}

/// What a field is, where the straight line does it.
pub(crate) const fn whole_of(field: &Field) -> Wire {
    match (field.shape.is_many(), field.is_set) {
        (true, true) => Wire::Set,
        (true, false) => Wire::List,
        (false, _) => value_of(field),
    }
}

/// The three bytes before a field's value in `TBinary`, as they lie in a word.
pub(crate) const fn binary_header(field: &Field) -> u64 {
    let id = field.number as u16;
    whole_of(field).code(Protocol::Binary) as u64 | ((id >> 8) as u64) << 8 | ((id & 0xff) as u64) << 16
}

/// What a number is on the wire; none, if it is none.
pub(crate) const fn of_numbers(kind: Kind) -> Option<Wire> {
    match Wire::of_kind(kind) {
        Wire::Bytes | Wire::Struct | Wire::Map | Wire::Set | Wire::List | Wire::Uuid => None,
        wire => Some(wire),
    }
}
