//! What values are on the wire, and the numbers that the two protocols have for that.

use super::Protocol;
use crate::schema::{Field, Kind, Shape, Types};

/// What a value is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Bool,
    I8,
    I16,
    I32,
    I64,
    Double,
    /// A string or binary.
    Bytes,
    Struct,
    Map,
    Set,
    List,
    Uuid,
}

use Wire::{Bool, Bytes, Double, List, Map, Set, Struct, Uuid, I16, I32, I64, I8};

/// What ends a struct's fields, in place of a type.
pub(crate) const STOP: u8 = 0;
/// In the header of a field of `TCompact`: a bool that is true, and that is false.
pub(crate) const TRUE: u8 = 1;
pub(crate) const FALSE: u8 = 2;

/// All of them.
const ALL: [Wire; 12] = [Bool, I8, I16, I32, I64, Double, Bytes, Struct, Map, Set, List, Uuid];

impl Wire {
    /// Its number in a protocol; of `TCompact`'s bools that in the header of a list.
    pub(crate) const fn code(self, protocol: Protocol) -> u8 {
        let (binary, compact) = match self {
            Bool => (2, TRUE),
            I8 => (3, 3),
            I16 => (6, 4),
            I32 => (8, 5),
            I64 => (10, 6),
            Double => (4, 7),
            Bytes => (11, 8),
            List => (15, 9),
            Set => (14, 10),
            Map => (13, 11),
            Struct => (12, 12),
            Uuid => (16, 13),
        };
        match protocol {
            Protocol::Binary => binary,
            Protocol::Compact => compact,
        }
    }

    /// What has this number.
    pub(crate) fn of(code: u8, protocol: Protocol) -> Option<Wire> {
        if protocol == Protocol::Compact && code == FALSE {
            return Some(Bool);
        }
        ALL.into_iter().find(|wire| wire.code(protocol) == code)
    }

    /// What a value of this kind is; a container that is a type of its own is a struct here.
    pub(crate) const fn of_kind(kind: Kind) -> Wire {
        match kind {
            Kind::Message | Kind::Group => Struct,
            Kind::Bool => Bool,
            Kind::Int8 => I8,
            Kind::Int16 => I16,
            Kind::Double => Double,
            Kind::String | Kind::Bytes => Bytes,
            Kind::Uuid => Uuid,
            Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => I64,
            // Of these Thrift has but `Int32` and `Enum`.
            Kind::Int32
            | Kind::Enum
            | Kind::ClosedEnum
            | Kind::Uint32
            | Kind::Sint32
            | Kind::Fixed32
            | Kind::Sfixed32
            | Kind::Float => I32,
        }
    }

    /// How many bytes such a value takes, if that is the same of all.
    pub(crate) const fn fixed_bytes(self, protocol: Protocol) -> Option<u64> {
        match (self, protocol) {
            (Bool | I8, _) => Some(1),
            (Double, _) | (I64, Protocol::Binary) => Some(8),
            (Uuid, _) => Some(16),
            (I16, Protocol::Binary) => Some(2),
            (I32, Protocol::Binary) => Some(4),
            _ => None,
        }
    }

    /// How many it takes at least: so a count is refused for which there are too few bytes.
    pub(crate) const fn least_bytes(self, protocol: Protocol) -> u64 {
        match (self, protocol) {
            (Bytes, Protocol::Binary) => 4,
            (List | Set, Protocol::Binary) => 5,
            (Map, Protocol::Binary) => 6,
            _ => match self.fixed_bytes(protocol) {
                Some(bytes) => bytes,
                None => 1,
            },
        }
    }
}

/// What a field is: a container, if it has many values or if its type is one.
pub(crate) fn wire_of(types: &Types, field: &Field) -> Wire {
    match field.shape {
        Shape::Map => Map,
        Shape::Repeated | Shape::Packed if field.is_set => Set,
        Shape::Repeated | Shape::Packed => List,
        Shape::Implicit | Shape::Explicit | Shape::Required => wire_of_one(types, field),
    }
}

/// What one of a field's values is.
pub(crate) fn wire_of_one(types: &Types, field: &Field) -> Wire {
    match Wire::of_kind(field.kind) {
        Struct => {
            let schema = &types.types[field.sub as usize];
            if schema.is_container {
                wire_of(types, &schema.fields[0])
            } else {
                Struct
            }
        }
        wire => wire,
    }
}

/// Whether a field is one that the straight line does: no map, no container within another one, no uuid.
pub(crate) fn has_line(types: &Types, field: &Field) -> bool {
    match wire_of_one(types, field) {
        Map | Set | List | Uuid => false,
        Bool | I8 | I16 | I32 | I64 | Double | Bytes | Struct => field.shape != Shape::Map,
    }
}
