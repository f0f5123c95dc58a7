//! Random structs of a random file's types.

use crate::apache::Tree;
use crate::schemata::{Field, File, Kind, Need, Struct};
use codec_peers::Drawn;
use thrift::protocol::TType;

/// What a value is on the wire.
pub fn wire(of: &Kind) -> TType {
    match of {
        Kind::Bool => TType::Bool,
        Kind::I8 => TType::I08,
        Kind::I16 => TType::I16,
        Kind::I32 | Kind::Enum => TType::I32,
        Kind::I64 => TType::I64,
        Kind::Double => TType::Double,
        Kind::String | Kind::Binary => TType::String,
        Kind::Struct(_) => TType::Struct,
        Kind::List(_) => TType::List,
        Kind::Set(_) => TType::Set,
        Kind::Map(..) => TType::Map,
    }
}

/// A struct: each field there or not, deeper ones more seldom. Ids ascend, those below zero last, as they are written.
pub fn structure(file: &File, of: &Struct, r: &mut Drawn, depth: u64) -> Tree {
    let only = if of.fields.is_empty() { 0 } else { r.below(of.fields.len() as u64) as usize };
    let is_there = |at: usize, field: &Field, r: &mut Drawn| {
        if of.is_union {
            at == only && depth < 6
        } else {
            field.need == Need::Required || r.below(2 + depth * 3) == 0
        }
    };
    let mut fields = Vec::new();
    for (at, field) in of.fields.iter().enumerate() {
        if is_there(at, field, r) {
            fields.push((field.id, value(file, &field.of, r, depth + 1)));
        }
    }
    fields.sort_by_key(|(id, _)| *id as u16);
    Tree::Struct(fields)
}

fn value(file: &File, of: &Kind, r: &mut Drawn, depth: u64) -> Tree {
    let number = if r.below(4) == 0 { !r.number() } else { r.number() };
    let count = match r.below(40) {
        _ if depth > 4 => r.below(2),
        0 => 14 + r.below(4),
        _ => r.below(4),
    };
    let many = |of: &Kind, r: &mut Drawn| (0..count).map(|_| value(file, of, r, depth + 1)).collect();
    match of {
        Kind::Bool => Tree::Bool(number % 2 == 0),
        Kind::I8 => Tree::I8(number as i8),
        Kind::I16 => Tree::I16(number as i16),
        Kind::I32 | Kind::Enum => Tree::I32(number as i32),
        Kind::I64 => Tree::I64((number << r.below(30)) as i64),
        // Infinite ones and such that are no number among them.
        Kind::Double => Tree::Double(number << r.below(30) | number << 52),
        Kind::String if r.below(5) == 0 => Tree::Bytes("äöü €".repeat(r.below(10) as usize).into_bytes()),
        Kind::String => Tree::Bytes(r.text_below(90).into_bytes()),
        Kind::Binary => Tree::Bytes(vec![number as u8; r.below(300) as usize]),
        Kind::Struct(at) => structure(file, &file.structs[*at], r, depth),
        Kind::List(of) => Tree::List(wire(of), many(of, r)),
        Kind::Set(of) => Tree::Set(wire(of), many(of, r)),
        Kind::Map(key, of) => {
            let entry = |_| (value(file, key, r, depth + 1), value(file, of, r, depth + 1));
            Tree::Map(wire(key), wire(of), (0..count).map(entry).collect())
        }
    }
}

/// The same with its fields in another order, in structs within it too.
pub fn shuffled(tree: &Tree, r: &mut Drawn) -> Tree {
    let all = |values: &[Tree], r: &mut Drawn| values.iter().map(|value| shuffled(value, r)).collect();
    match tree {
        Tree::Struct(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(id, value)| (*id, shuffled(value, r))).collect();
            for at in (1..fields.len()).rev() {
                fields.swap(at, r.below(at as u64 + 1) as usize);
            }
            Tree::Struct(fields)
        }
        Tree::List(of, values) => Tree::List(*of, all(values, r)),
        Tree::Set(of, values) => Tree::Set(*of, all(values, r)),
        Tree::Map(key, value, entries) => {
            let entry = |(key, value): &(Tree, Tree)| (shuffled(key, r), shuffled(value, r));
            Tree::Map(*key, *value, entries.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}

/// The same with fields that a struct does not know, or knows of another type, anywhere among its own and its structs'.
pub fn with_unknown(file: &File, of: &Struct, tree: Tree, r: &mut Drawn) -> Tree {
    let Tree::Struct(mut fields) = tree else { panic!("it is a struct") };
    for (id, value) in &mut fields {
        let of = &of.fields.iter().find(|field| field.id == *id).expect("it was drawn").of;
        if let Kind::Struct(at) = of {
            let inner = std::mem::replace(value, Tree::Bool(true));
            *value = with_unknown(file, &file.structs[*at], inner, r);
        }
    }
    for _ in 0..r.below(4) {
        // Not so far from the others that Apache's crate would panic.
        let is_far = |far: fn(i16) -> bool| of.fields.iter().any(|field| far(field.id));
        let id = match r.below(3) {
            0 if !of.fields.is_empty() => of.fields[r.below(of.fields.len() as u64) as usize].id,
            0..=1 if !is_far(|id| id > i16::MAX / 2) => -150 - r.below(30) as i16,
            _ if !is_far(|id| id < i16::MIN / 2) => 40 + r.below(300) as i16,
            _ => -150 - r.below(30) as i16,
        };
        let strange = strange(r);
        let known = of.fields.iter().find(|field| field.id == id);
        // A field of default requiredness that came as something else is written as zero, too: then two have its id.
        let may_be =
            known.is_none_or(|field| field.need == Need::Optional && wire(&field.of) != strange.wire());
        if may_be && fields.iter().all(|(other, _)| *other != id) {
            fields.insert(r.below(fields.len() as u64 + 1) as usize, (id, strange));
        }
    }
    Tree::Struct(fields)
}

/// A value that nobody asks for.
fn strange(r: &mut Drawn) -> Tree {
    let number = r.number();
    let text = Tree::Bytes(r.text().into_bytes());
    match r.below(11) {
        0 => Tree::Bool(number % 2 == 0),
        1 => Tree::I8(number as i8),
        2 => Tree::I16(number as i16),
        3 => Tree::I32(number as i32),
        4 => Tree::I64(number as i64),
        5 => Tree::Double(number << 30),
        6 => text,
        7 => Tree::Struct(vec![(3, Tree::Bool(true)), (-4, text)]),
        8 => Tree::List(TType::Bool, vec![Tree::Bool(true), Tree::Bool(false)]),
        9 => Tree::Set(TType::List, vec![Tree::List(TType::String, vec![text; 2]); 2]),
        _ => Tree::Map(TType::String, TType::Double, vec![(text, Tree::Double(number))]),
    }
}
