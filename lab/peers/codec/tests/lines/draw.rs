//! Random structs of a type by its schema, as bytes.

use codec_peers::Drawn;
use scotfree_transform::generated::Type;
use scotfree_transform::thrift::Protocol;
use scotfree_transform::{Field, Kind, Need, Shape, Types};

/// A value.
#[derive(Debug, Clone)]
pub enum Tree {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Uuid([u8; 16]),
    Struct(Vec<(i16, Tree)>),
    /// Whether it is a set, and its elements, of which there is one at least.
    List(bool, Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

/// One of each.
pub fn values() -> Vec<Tree> {
    let two = |is_set| Tree::List(is_set, vec![Tree::I16(-3), Tree::I16(300)]);
    vec![
        Tree::Bool(true),
        Tree::Bool(false),
        Tree::I8(-1),
        Tree::I16(-300),
        Tree::I32(1 << 20),
        Tree::I64(-1 << 40),
        Tree::Double(1.5),
        Tree::Bytes(b"text".to_vec()),
        Tree::Bytes(vec![0xff; 40]),
        Tree::Uuid([7; 16]),
        Tree::Struct(vec![(1, Tree::I64(5))]),
        two(false),
        two(true),
        Tree::List(false, vec![Tree::Bytes(b"a".to_vec())]),
        Tree::List(false, vec![two(false)]),
        Tree::Map(vec![(Tree::Bytes(b"k".to_vec()), Tree::Double(2.0))]),
    ]
}

/// A struct of a type: its fields there or not, their ids ascending and those below zero last, as it is written.
pub fn drawn<T: Type>(protocol: Protocol, seed: u64) -> Vec<u8> {
    let mut r = Drawn::new(seed * 31 + 7, 0);
    write(protocol, &structure(T::types(), T::INDEX, &mut r, 0))
}

fn structure(types: &Types, index: u16, r: &mut Drawn, depth: u64) -> Tree {
    let schema = &types.types[index as usize];
    let only = (!schema.oneofs.is_empty()).then(|| r.below(schema.fields.len() as u64) as usize);
    let mut fields = Vec::new();
    for (at, field) in schema.fields.iter().enumerate() {
        let is_struct = field.kind == Kind::Message && !field.shape.is_many();
        // What is written always has to be there, so that the same bytes are written again.
        let is_always = field.need != Need::Optional && !(is_struct && field.need == Need::Default);
        let is_there = match only {
            Some(only) => only == at && (depth < 6 || field.kind != Kind::Message),
            None => is_always || r.below(2 + depth * 2) == 0,
        };
        let is_deep = depth > 8 && field.kind == Kind::Message && !is_always;
        if is_there && !is_deep {
            fields.push((field.number as u16 as i16, whole(types, field, r, depth + 1)));
        }
    }
    Tree::Struct(fields)
}

fn whole(types: &Types, field: &Field, r: &mut Drawn, depth: u64) -> Tree {
    let count = if r.below(20) == 0 { 14 + r.below(4) } else { 1 + r.below(3) };
    match field.shape {
        Shape::Map => {
            let entry = &types.types[field.sub as usize].fields;
            let count = if depth > 4 { 1 } else { count.min(3) };
            Tree::Map(
                (0..count)
                    .map(|_| (one(types, &entry[0], r, depth), one(types, &entry[1], r, depth)))
                    .collect(),
            )
        }
        shape if shape.is_many() => {
            let count =
                if field.kind == Kind::Message { count.min(if depth > 4 { 1 } else { 3 }) } else { count };
            Tree::List(field.is_set, (0..count).map(|_| one(types, field, r, depth)).collect())
        }
        _ => one(types, field, r, depth),
    }
}

fn one(types: &Types, field: &Field, r: &mut Drawn, depth: u64) -> Tree {
    let number = if r.below(4) == 0 { !r.number() } else { r.number() };
    match field.kind {
        Kind::Bool => Tree::Bool(number % 2 == 0),
        Kind::Int8 => Tree::I8(number as i8),
        Kind::Int16 => Tree::I16(number as i16),
        Kind::Int64 => Tree::I64((number << r.below(30)) as i64),
        Kind::Double => Tree::Double(number as f64),
        Kind::String if r.below(6) == 0 => Tree::Bytes("äöü €".repeat(9).into_bytes()),
        Kind::String => Tree::Bytes(r.text().repeat(r.below(4) as usize).into_bytes()),
        Kind::Bytes => Tree::Bytes(vec![number as u8; r.below(300) as usize]),
        Kind::Uuid => Tree::Uuid([number as u8; 16]),
        Kind::Message => {
            let schema = &types.types[field.sub as usize];
            if schema.is_container {
                whole(types, &schema.fields[0], r, depth + 1)
            } else {
                structure(types, field.sub, r, depth + 1)
            }
        }
        _ => Tree::I32(number as i32),
    }
}

/// Its bytes, by a writer that shares nothing with the codec.
pub fn write(protocol: Protocol, tree: &Tree) -> Vec<u8> {
    let mut out = Vec::new();
    value(protocol, tree, &mut out);
    out
}

fn value(protocol: Protocol, tree: &Tree, out: &mut Vec<u8>) {
    let is_binary = protocol == Protocol::Binary;
    match tree {
        Tree::Bool(true) => out.push(1),
        Tree::Bool(false) => out.push(if is_binary { 0 } else { 2 }),
        Tree::I8(number) => out.push(*number as u8),
        Tree::I16(number) if is_binary => out.extend(number.to_be_bytes()),
        Tree::I32(number) if is_binary => out.extend(number.to_be_bytes()),
        Tree::I64(number) if is_binary => out.extend(number.to_be_bytes()),
        Tree::Double(number) if is_binary => out.extend(number.to_be_bytes()),
        Tree::I16(number) => zigzag(i64::from(*number), out),
        Tree::I32(number) => zigzag(i64::from(*number), out),
        Tree::I64(number) => zigzag(*number, out),
        Tree::Double(number) => out.extend(number.to_le_bytes()),
        Tree::Uuid(bytes) => out.extend(bytes),
        Tree::Bytes(bytes) => {
            length(protocol, bytes.len(), out);
            out.extend(bytes);
        }
        Tree::Struct(fields) => structure_bytes(protocol, fields, out),
        Tree::List(_, values) => {
            let code = code(protocol, &values[0]);
            match (is_binary, values.len()) {
                (true, count) => {
                    out.push(code);
                    length(protocol, count, out);
                }
                (false, count @ 0..15) => out.push((count as u8) << 4 | code),
                (false, count) => {
                    out.push(0xf0 | code);
                    length(protocol, count, out);
                }
            }
            values.iter().for_each(|one| value(protocol, one, out));
        }
        Tree::Map(entries) => {
            let (key, of) = (code(protocol, &entries[0].0), code(protocol, &entries[0].1));
            if is_binary {
                out.extend([key, of]);
                length(protocol, entries.len(), out);
            } else {
                length(protocol, entries.len(), out);
                out.push(key << 4 | of);
            }
            for (key, of) in entries {
                value(protocol, key, out);
                value(protocol, of, out);
            }
        }
    }
}

fn structure_bytes(protocol: Protocol, fields: &[(i16, Tree)], out: &mut Vec<u8>) {
    let mut last = 0_i16;
    for (id, field) in fields {
        if protocol == Protocol::Binary {
            out.push(code(protocol, field));
            out.extend(id.to_be_bytes());
            value(protocol, field, out);
        } else {
            let code = if let Tree::Bool(false) = field { 2 } else { code(protocol, field) };
            match i32::from(*id) - i32::from(last) {
                step @ 1..16 => out.push((step as u8) << 4 | code),
                _ => {
                    out.push(code);
                    zigzag(i64::from(*id), out);
                }
            }
            if !matches!(field, Tree::Bool(_)) {
                value(protocol, field, out);
            }
        }
        last = *id;
    }
    out.push(0);
}

fn code(protocol: Protocol, tree: &Tree) -> u8 {
    let (binary, compact) = match tree {
        Tree::Bool(_) => (2, 1),
        Tree::I8(_) => (3, 3),
        Tree::I16(_) => (6, 4),
        Tree::I32(_) => (8, 5),
        Tree::I64(_) => (10, 6),
        Tree::Double(_) => (4, 7),
        Tree::Bytes(_) => (11, 8),
        Tree::List(false, _) => (15, 9),
        Tree::List(true, _) => (14, 10),
        Tree::Map(_) => (13, 11),
        Tree::Struct(_) => (12, 12),
        Tree::Uuid(_) => (16, 13),
    };
    if protocol == Protocol::Binary {
        binary
    } else {
        compact
    }
}

fn length(protocol: Protocol, length: usize, out: &mut Vec<u8>) {
    if protocol == Protocol::Binary {
        out.extend((length as u32).to_be_bytes());
    } else {
        varint(length as u64, out);
    }
}

fn zigzag(number: i64, out: &mut Vec<u8>) {
    varint((number << 1 ^ number >> 63) as u64, out);
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
