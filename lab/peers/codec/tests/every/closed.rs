//! Entries of maps whose values are of a closed enumeration.

use codec_peers::ways::{bytes_field, varint};
use prost_reflect::{Kind, MessageDescriptor, Syntax};

/// Some of one map, all of the same key. Those that end with a number that the enumeration does not have are no entries.
pub struct Entries {
    pub known: Vec<u8>,
    pub unknown: Vec<u8>,
    /// With two numbers, of which the last one counts.
    pub known_last: Vec<u8>,
    pub unknown_last: Vec<u8>,
}

/// Those of each such map of a message.
pub fn entries(of: &MessageDescriptor) -> Vec<Entries> {
    let is_closed = of.parent_file().syntax() == Syntax::Proto2;
    let maps = of.fields().filter(|field| field.is_map() && is_closed);
    let of_map = |field: prost_reflect::FieldDescriptor| {
        let Kind::Enum(of) = field.kind().as_message()?.map_entry_value_field().kind() else { return None };
        let other = (1..).find(|&number| of.get_value(number).is_none())?;
        let value = |number: i32| [vec![2 << 3], varint(number as u64)].concat();
        let (known, unknown) = (value(of.values().last()?.number()), value(other));
        let entry = |values: &[&[u8]]| bytes_field(field.number(), &values.concat());
        Some(Entries {
            known: entry(&[&known]),
            unknown: entry(&[&unknown]),
            known_last: entry(&[&unknown, &known]),
            unknown_last: entry(&[&known, &unknown]),
        })
    };
    maps.filter_map(of_map).collect()
}
