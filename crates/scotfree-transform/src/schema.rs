//! What is the same of all messages of one type: the type schema (Optimus Prime, 5.4).
//!
//! Invariant: a field's slot and presence bit lie within its type's slots, and `sub` names a type of the same set; that
//! of generated types is asserted where they are compiled.

use crate::slots::width;
use std::borrow::Cow;

/// What a field's values are, on the wire and in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // Protobuf's own names; of Thrift's, `Int32` is i32, `Bytes` binary, `Message` a struct, union or exception.
pub enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    /// Whose unknown numbers are kept as they are (proto3).
    Enum,
    /// Whose unknown numbers are unknown fields (proto2).
    ClosedEnum,
    String,
    Bytes,
    Message,
    Group,
    /// Thrift's i8.
    Int8,
    /// Thrift's i16.
    Int16,
    /// Thrift's uuid: 16 bytes.
    Uuid,
}

/// How many values a field has, and when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Shape {
    /// One, written unless it is zero or empty (proto3).
    Implicit,
    /// One, written if it was set.
    Explicit,
    /// One that must be there (proto2).
    Required,
    /// Many, each behind a tag of its own.
    Repeated,
    /// Many, together behind one tag.
    Packed,
    /// Many messages of a key (field 1) and a value (field 2); of equal keys the last counts.
    Map,
}

impl Shape {
    /// Whether a field has many values.
    #[inline(always)]
    pub const fn is_many(self) -> bool {
        match self {
            Shape::Repeated | Shape::Packed | Shape::Map => true,
            Shape::Implicit | Shape::Explicit | Shape::Required => false,
        }
    }
}

/// Whether a string's bytes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Utf8 {
    /// Refused, if they are not UTF-8 (proto3).
    Checked,
    /// Taken as they are (proto2): a reader sees replacement characters where they are not UTF-8.
    Unchecked,
}

/// Whether a field of Thrift must be there, and whether it is written where nobody has set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Need {
    /// Written if it was set. Protobuf's fields, whose shape says all of that, are so.
    Optional,
    /// Written always, as zero or empty where it was not set; only a struct that is not there is not. A reader does
    /// without it.
    Default,
    /// Written as those of `Default`; without it a message is refused.
    Required,
}

/// No type, enumeration or group of fields.
pub const NONE: u16 = u16::MAX;

/// One field of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its number on the wire.
    pub number: u32,
    /// What its values are.
    pub kind: Kind,
    /// How many there are.
    pub shape: Shape,
    /// Whether a string is looked at.
    pub utf8: Utf8,
    /// Where its slot begins, in bytes from the beginning of the slots.
    pub slot: u32,
    /// The bit that says that it is there.
    pub presence: u16,
    /// The type of a message, group or map entry, or the enumeration of a closed enum, in its set; or `NONE`.
    pub sub: u16,
    /// The fields of which at most one is there, in the type's `oneofs`; or `NONE`.
    pub oneof: u16,
    /// Whether it must be there (Thrift).
    pub need: Need,
    /// Whether many values are a set, and not a list (Thrift).
    pub is_set: bool,
    /// The registered kind of its values, which are bytes in a message whatever they are on the wire; 0 is none.
    pub converter: u8,
}

impl Field {
    /// How many bytes its slot takes: of many values a place and a count.
    #[inline(always)]
    pub(crate) const fn slot_width(&self) -> u32 {
        if self.shape.is_many() {
            8
        } else {
            width(self.kind)
        }
    }

    /// Whether it must be there: of Protobuf by its shape, of Thrift whatever that is.
    pub(crate) const fn is_required(&self) -> bool {
        matches!(self.shape, Shape::Required) || matches!(self.need, Need::Required)
    }
}

/// The value of a map's entry, by the entry's fields, if it is of a closed enumeration: then an entry may be none.
pub(crate) const fn closed_value(entry: &[Field]) -> Option<&Field> {
    let mut index = 0;
    while index < entry.len() {
        let field = &entry[index];
        if field.number == 2 && matches!(field.kind, Kind::ClosedEnum) {
            return Some(field);
        }
        index += 1;
    }
    None
}

/// A type of messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeSchema {
    /// Its full name.
    pub name: Cow<'static, str>,
    /// How many bytes its slots take: words of presence, the unknown fields' slot, then the fields'.
    pub slot_bytes: u32,
    /// How many words of 64 bits say which fields are there.
    pub presence_words: u16,
    /// By ascending number.
    pub fields: Cow<'static, [Field]>,
    /// Their names, in the same order.
    pub names: Cow<'static, [Cow<'static, str>]>,
    /// For numbers below its length: 1 + the place of the field of that number, or 0.
    pub dense: Cow<'static, [u16]>,
    /// Presence bits of the fields of which at most one is there: a first bit and how many.
    pub oneofs: Cow<'static, [(u16, u16)]>,
    /// Whether a field is required.
    pub has_required: bool,
    /// Whether it is no message, but a container that lies in another one or in a union: its one field (Thrift). On the
    /// wire the container stands by itself.
    pub is_container: bool,
}

impl TypeSchema {
    /// The place of the field of this number.
    #[inline]
    pub fn place(&self, number: u32) -> Option<usize> {
        match self.dense.get(number as usize) {
            Some(&place) => (place as usize).checked_sub(1),
            None => self.fields.binary_search_by_key(&number, |field| field.number).ok(),
        }
    }

    /// The field of this name.
    pub fn named(&self, name: &str) -> Option<&Field> {
        self.names.iter().zip(&*self.fields).find(|(its, _)| *its == name).map(|(_, field)| field)
    }
}

/// The numbers that an enumeration knows, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumSchema {
    /// Its full name.
    pub name: Cow<'static, str>,
    /// Its numbers.
    pub numbers: Cow<'static, [i32]>,
}

/// A set of types that name each other by their places in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Types {
    /// The types.
    pub types: Cow<'static, [TypeSchema]>,
    /// The enumerations.
    pub enums: Cow<'static, [EnumSchema]>,
}

impl Types {
    /// Whether a field of one of the types is a map whose values are of a closed enumeration.
    pub fn has_closed_values(&self, field: &Field) -> bool {
        field.shape == Shape::Map && closed_value(&self.types[field.sub as usize].fields).is_some()
    }
}
