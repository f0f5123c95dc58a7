//! Random messages of any type, by its descriptor.

use codec_peers::Drawn;
use prost_reflect::{Cardinality, DynamicMessage, Kind, MapKey, MessageDescriptor, Value};

/// A random message: each field there or not, deeper ones more seldom.
pub fn draw(of: &MessageDescriptor, r: &mut Drawn, depth: u64) -> DynamicMessage {
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
        Kind::Message(of) => Value::Message(draw(of, r, depth + 3)),
        Kind::Enum(of) => {
            Value::EnumNumber(of.values().nth(r.below(of.values().len() as u64) as usize).unwrap().number())
        }
    }
}
