//! What must be written of a struct that was read: this codec's rules, by the file's values and on trees alone.

use crate::apache::Tree;
use crate::draw::wire;
use crate::schemata::{Field, File, Kind, Need, Struct};
use thrift::protocol::TType;

/// What is asked for of a struct that was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// What of it is there.
    Read,
    /// What is written of it by the protocol that it came by.
    Same,
    /// And by the other one, which leaves out what is not known.
    Other,
}

/// A struct after it was read: of what came twice the last, of a union's members the last; what is written always; and
/// behind them what is not known.
pub fn expected(file: &File, of: &Struct, tree: &Tree, what: What) -> Tree {
    let Tree::Struct(fields) = tree else { panic!("it is a struct") };
    let (mut known, mut others) = (Vec::<(i16, Tree)>::new(), Vec::new());
    for (id, value) in fields {
        match of.fields.iter().find(|field| field.id == *id && fits(&field.of, value)) {
            Some(field) => {
                known.retain(|(other, _)| !of.is_union && other != id);
                known.push((*id, within(file, &field.of, value, what)));
            }
            None => others.push((*id, value.clone())),
        }
    }
    for field in of.fields.iter().filter(|field| what != What::Read && is_always(field)) {
        if known.iter().all(|(id, _)| *id != field.id) {
            known.push((field.id, zero(&field.of)));
        }
    }
    if what == What::Same {
        known.extend(others);
    }
    Tree::Struct(known)
}

fn within(file: &File, of: &Kind, value: &Tree, what: What) -> Tree {
    let all = |of: &Kind, values: &[Tree]| values.iter().map(|value| within(file, of, value, what)).collect();
    match (of, value) {
        (Kind::Struct(at), _) => expected(file, &file.structs[*at], value, what),
        (Kind::List(of), Tree::List(_, values)) => Tree::List(wire(of), all(of, values)),
        (Kind::Set(of), Tree::Set(_, values)) => Tree::Set(wire(of), all(of, values)),
        (Kind::Map(of_key, of), Tree::Map(_, _, entries)) => {
            let entry = |(key, value): &(Tree, Tree)| {
                (within(file, of_key, key, what), within(file, of, value, what))
            };
            Tree::Map(wire(of_key), wire(of), entries.iter().map(entry).collect())
        }
        _ => value.clone(),
    }
}

/// Whether a field of the id is the known one: its type is, and that of its elements, if it has any.
fn fits(of: &Kind, value: &Tree) -> bool {
    let is_of = |of: &Kind, other: &TType, values: usize| values == 0 || wire(of) == *other;
    match (of, value) {
        (Kind::List(of), Tree::List(other, values)) | (Kind::Set(of), Tree::Set(other, values)) => {
            is_of(of, other, values.len())
        }
        (Kind::Map(key, of), Tree::Map(other_key, other, entries)) => {
            is_of(key, other_key, entries.len()) && is_of(of, other, entries.len())
        }
        _ => wire(of) == value.wire(),
    }
}

/// Whether a field is written even if nobody has set it.
fn is_always(field: &Field) -> bool {
    field.need == Need::Usual && !field.has_default && !matches!(field.of, Kind::Struct(_))
}

fn zero(of: &Kind) -> Tree {
    match of {
        Kind::Bool => Tree::Bool(false),
        Kind::I8 => Tree::I8(0),
        Kind::I16 => Tree::I16(0),
        Kind::I32 | Kind::Enum => Tree::I32(0),
        Kind::I64 => Tree::I64(0),
        Kind::Double => Tree::Double(0),
        Kind::String | Kind::Binary => Tree::Bytes(Vec::new()),
        Kind::List(of) => Tree::List(wire(of), Vec::new()),
        Kind::Set(of) => Tree::Set(wire(of), Vec::new()),
        Kind::Map(key, of) => Tree::Map(wire(key), wire(of), Vec::new()),
        Kind::Struct(_) => panic!("a struct is not written unasked"),
    }
}
