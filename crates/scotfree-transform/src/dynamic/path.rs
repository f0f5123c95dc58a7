//! Where in a message something is, in the words of its schema: for errors, and therefore cold.

use crate::message::{Value, View};
use crate::protobuf::wire::{Bytes, Wire};
use crate::schema::{Field, Kind, TypeSchema, Types};
use std::fmt::Write as _;

/// The field that byte `at` of a message is in, as `a.b[3].c`; what is before that may be read.
pub fn path_at(types: &Types, index: u16, input: &[u8], at: usize) -> String {
    let mut path = String::new();
    let mut schema = &types.types[index as usize];
    let (mut bytes, mut end) = (Bytes { input, at: 0 }, input.len());
    let mut counts = vec![0_u32; schema.fields.len()];
    while bytes.at < end && bytes.at <= at {
        let Ok(tag) = bytes.tag(end) else { break };
        let place = schema.place(tag.number);
        let mut behind = bytes;
        let is_before = behind.skip(tag, end, u16::from(u8::MAX)).is_ok() && behind.at <= at;
        if is_before {
            if let Some(place) = place {
                counts[place] += 1;
            }
            bytes = behind;
            continue;
        }
        let Some(place) = place else {
            step(&mut path, &tag.number.to_string(), None);
            break;
        };
        let field = &schema.fields[place];
        step(&mut path, name(schema, place), field.shape.is_many().then_some(counts[place]));
        match within(types, field, tag.wire) {
            Some(inner) => schema = inner,
            None => break,
        }
        if tag.wire == Wire::Bytes {
            match bytes.length(end) {
                Ok(until) => end = until,
                Err(_) => break,
            }
        }
        counts = vec![0; schema.fields.len()];
    }
    path
}

fn within<'t>(types: &'t Types, field: &Field, wire: Wire) -> Option<&'t TypeSchema> {
    let is_message =
        matches!((field.kind, wire), (Kind::Message, Wire::Bytes) | (Kind::Group, Wire::GroupBegin));
    is_message.then(|| &types.types[field.sub as usize])
}

/// The first required field that is not there (proto2), in the message or in one within it.
pub fn missing(view: View<'_>) -> Option<String> {
    let schema = view.schema();
    let own = schema.fields.iter().position(|field| field.is_required() && !view.has(field));
    if let Some(place) = own {
        return Some(name(schema, place).to_owned());
    }
    let messages = |field: &&Field| matches!(field.kind, Kind::Message | Kind::Group) && view.has(field);
    schema.fields.iter().filter(messages).find_map(|field| {
        let count = if field.shape.is_many() { view.count(field) } else { 1 };
        (0..count).find_map(|index| missing_within(view, field, index))
    })
}

fn missing_within(view: View<'_>, field: &Field, index: usize) -> Option<String> {
    let is_many = field.shape.is_many();
    let value = if is_many { view.element(field, index) } else { view.get(field)? };
    let Value::Message(message) = value else { return None };
    let inner = missing(message)?;
    let schema = view.schema();
    let mut path = String::new();
    step(&mut path, name(schema, schema.place(field.number)?), is_many.then_some(index as u32));
    Some(path + "." + &inner)
}

fn name(schema: &TypeSchema, place: usize) -> &str {
    schema.names.get(place).map_or("", |name| name)
}

fn step(path: &mut String, name: &str, index: Option<u32>) {
    let dot = if path.is_empty() { "" } else { "." };
    // To a string nothing fails to be written.
    let _ = match index {
        Some(index) => write!(path, "{dot}{name}[{index}]"),
        None => write!(path, "{dot}{name}"),
    };
}
