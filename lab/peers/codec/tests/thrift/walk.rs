//! What a view of a struct is, by its own accessors.

use crate::apache::Tree;
use scotfree_transform::{Field, Kind, Shape, Value, View};
use thrift::protocol::TType;

/// What of it is there.
pub fn walk(view: View<'_>) -> Tree {
    let fields = view.schema().fields.iter().filter(|field| view.has(field));
    Tree::Struct(fields.map(|field| (field.number as u16 as i16, walk_field(view, field))).collect())
}

fn walk_field(view: View<'_>, field: &Field) -> Tree {
    let each = || (0..view.count(field)).map(|index| view.element(field, index));
    match field.shape {
        Shape::Map => {
            let entries = each().map(|entry| {
                let Value::Message(entry) = entry else { panic!("an entry is a message") };
                let part = |field| walk_value(field, entry.get(field).expect("it was read"));
                (part(&entry.schema().fields[0]), part(&entry.schema().fields[1]))
            });
            Tree::Map(TType::Stop, TType::Stop, entries.collect())
        }
        Shape::Repeated | Shape::Packed => {
            let values = each().map(|value| walk_value(field, value)).collect();
            if field.is_set {
                Tree::Set(TType::Stop, values)
            } else {
                Tree::List(TType::Stop, values)
            }
        }
        Shape::Implicit | Shape::Explicit | Shape::Required => walk_value(field, view.get(field).unwrap()),
    }
}

fn walk_value(field: &Field, value: Value<'_>) -> Tree {
    match (value, field.kind) {
        (Value::Number(bits), Kind::Bool) => Tree::Bool(bits == 1),
        (Value::Number(bits), Kind::Int8) => Tree::I8(bits as i8),
        (Value::Number(bits), Kind::Int16) => Tree::I16(bits as i16),
        (Value::Number(bits), Kind::Int64) => Tree::I64(bits as i64),
        (Value::Number(bits), Kind::Double) => Tree::Double(bits),
        (Value::Number(bits), _) => Tree::I32(bits as i32),
        (Value::Bytes(bytes), _) => Tree::Bytes(bytes.to_vec()),
        (Value::Message(view), _) if view.schema().is_container => walk_field(view, &view.schema().fields[0]),
        (Value::Message(view), _) => walk(view),
    }
}
