//! Random messages of any type, by its descriptor.
//!
//! Invariant: the same bytes on each run, so that what fails once fails again.

use codec_peers::ways::{bytes_field, tag};
use codec_peers::Drawn;
use prost_reflect::prost::Message as _;
use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};

/// Wire types.
const GROUP: u32 = 3;
const GROUP_END: u32 = 4;

/// The bytes of a random message.
pub fn draw(of: &MessageDescriptor, r: &mut Drawn) -> Vec<u8> {
    encoded(&message(of, r, 0))
}

/// A message's bytes, with the entries of a map by their keys: prost-reflect writes them in another order on each run.
fn encoded(message: &DynamicMessage) -> Vec<u8> {
    message.fields().flat_map(|(field, value)| encoded_field(&field, value)).collect()
}

fn encoded_field(field: &FieldDescriptor, value: &Value) -> Vec<u8> {
    match (value, field.kind()) {
        (Value::Map(entries), Kind::Message(of)) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            let entry = |(key, value): (&MapKey, &Value)| {
                let mut entry = DynamicMessage::new(of.clone());
                entry.set_field(&of.map_entry_key_field(), key.clone().into());
                entry.set_field(&of.map_entry_value_field(), value.clone());
                bytes_field(field.number(), &encoded(&entry))
            };
            entries.into_iter().flat_map(entry).collect()
        }
        (Value::List(values), Kind::Message(_)) => {
            values.iter().flat_map(|value| encoded_field(field, value)).collect()
        }
        (Value::Message(message), _) if field.is_group() => {
            let (begin, end) = (tag(field.number(), GROUP), tag(field.number(), GROUP_END));
            [begin, encoded(message), end].concat()
        }
        (Value::Message(message), _) => bytes_field(field.number(), &encoded(message)),
        _ => {
            let mut alone = DynamicMessage::new(field.parent_message().clone());
            alone.set_field(field, value.clone());
            alone.encode_to_vec()
        }
    }
}

/// A random message: each field there or not, deeper ones more seldom.
fn message(of: &MessageDescriptor, r: &mut Drawn, depth: u64) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields() {
        if field.cardinality() != Cardinality::Required && r.below(3 + depth) > 1 {
            continue;
        }
        let value = if field.is_map() {
            let entry = field.kind();
            let entry = entry.as_message().unwrap();
            let (key, of_value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            Value::Map(
                (0..r.below(4))
                    .map(|_| (map_key(&key.kind(), r), value(&of_value.kind(), r, depth)))
                    .collect(),
            )
        } else if field.is_list() {
            Value::List((0..r.below(6)).map(|_| value(&field.kind(), r, depth)).collect())
        } else {
            value(&field.kind(), r, depth)
        };
        message.set_field(&field, value);
    }
    message
}

/// One of few, so that messages that are put together have equal ones.
fn map_key(kind: &Kind, r: &mut Drawn) -> MapKey {
    let number = r.below(4);
    match kind {
        Kind::String => MapKey::String(["", "a", "key", "another"][number as usize].to_owned()),
        Kind::Bool => MapKey::Bool(number % 2 == 1),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => MapKey::I64(number as i64 - 1),
        Kind::Uint32 | Kind::Fixed32 => MapKey::U32(number as u32),
        Kind::Uint64 | Kind::Fixed64 => MapKey::U64(number),
        _ => MapKey::I32(number as i32 - 1),
    }
}

fn value(kind: &Kind, r: &mut Drawn, depth: u64) -> Value {
    let number = if r.below(4) == 0 { !r.number() } else { r.number() };
    match kind {
        Kind::Double => Value::F64(f64::from_bits(number << 20)),
        Kind::Float => Value::F32(number as f32),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(number as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(number as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(number),
        Kind::Bool => Value::Bool(number % 2 == 0),
        Kind::String => Value::String(if r.below(5) == 0 {
            "äöü €".repeat(1 + r.below(20) as usize)
        } else {
            r.text()
        }),
        Kind::Bytes => Value::Bytes(r.text().into_bytes().into()),
        Kind::Message(of) => Value::Message(message(of, r, depth + 3)),
        Kind::Enum(of) => {
            Value::EnumNumber(of.values().nth(r.below(of.values().len() as u64) as usize).unwrap().number())
        }
    }
}
