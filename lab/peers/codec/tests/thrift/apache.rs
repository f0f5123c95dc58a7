//! Values of Thrift through the protocols of Apache's crate, which are driven by hand: no compiler of Thrift is needed.

use scotfree_transform::thrift::Protocol;
use std::panic::{catch_unwind, AssertUnwindSafe};
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol,
    TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier, TOutputProtocol, TSetIdentifier,
    TStructIdentifier, TType,
};

/// Both formats.
pub const BOTH: [Protocol; 2] = [Protocol::Binary, Protocol::Compact];

/// A value whatever its schema is.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    /// By its bits.
    Double(u64),
    Bytes(Vec<u8>),
    Struct(Vec<(i16, Tree)>),
    List(TType, Vec<Tree>),
    Set(TType, Vec<Tree>),
    Map(TType, TType, Vec<(Tree, Tree)>),
}

impl Tree {
    pub fn wire(&self) -> TType {
        match self {
            Tree::Bool(_) => TType::Bool,
            Tree::I8(_) => TType::I08,
            Tree::I16(_) => TType::I16,
            Tree::I32(_) => TType::I32,
            Tree::I64(_) => TType::I64,
            Tree::Double(_) => TType::Double,
            Tree::Bytes(_) => TType::String,
            Tree::Struct(_) => TType::Struct,
            Tree::List(..) => TType::List,
            Tree::Set(..) => TType::Set,
            Tree::Map(..) => TType::Map,
        }
    }

    fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        match self {
            Tree::Bool(truth) => to.write_bool(*truth),
            Tree::I8(number) => to.write_i8(*number),
            Tree::I16(number) => to.write_i16(*number),
            Tree::I32(number) => to.write_i32(*number),
            Tree::I64(number) => to.write_i64(*number),
            Tree::Double(bits) => to.write_double(f64::from_bits(*bits)),
            Tree::Bytes(bytes) => to.write_bytes(bytes),
            Tree::Struct(fields) => {
                to.write_struct_begin(&TStructIdentifier::new("any"))?;
                for (id, value) in fields {
                    to.write_field_begin(&TFieldIdentifier::new("any", value.wire(), *id))?;
                    value.write(to)?;
                    to.write_field_end()?;
                }
                to.write_field_stop()?;
                to.write_struct_end()
            }
            Tree::List(of, values) => {
                to.write_list_begin(&TListIdentifier::new(*of, values.len() as i32))?;
                values.iter().try_for_each(|value| value.write(to))
            }
            Tree::Set(of, values) => {
                to.write_set_begin(&TSetIdentifier::new(*of, values.len() as i32))?;
                values.iter().try_for_each(|value| value.write(to))
            }
            Tree::Map(key, value, entries) => {
                to.write_map_begin(&TMapIdentifier::new(*key, *value, entries.len() as i32))?;
                entries.iter().try_for_each(|(key, value)| key.write(to).and_then(|()| value.write(to)))
            }
        }
    }

    fn read(wire: TType, from: &mut dyn TInputProtocol) -> thrift::Result<Tree> {
        let many = |of: TType, count: i32, from: &mut dyn TInputProtocol| {
            (0..count).map(|_| Tree::read(of, from)).collect::<thrift::Result<Vec<_>>>()
        };
        Ok(match wire {
            TType::Bool => Tree::Bool(from.read_bool()?),
            TType::I08 => Tree::I8(from.read_i8()?),
            TType::I16 => Tree::I16(from.read_i16()?),
            TType::I32 => Tree::I32(from.read_i32()?),
            TType::I64 => Tree::I64(from.read_i64()?),
            TType::Double => Tree::Double(from.read_double()?.to_bits()),
            TType::String => Tree::Bytes(from.read_bytes()?),
            TType::Struct => {
                from.read_struct_begin()?;
                let mut fields = Vec::new();
                loop {
                    let field = from.read_field_begin()?;
                    if field.field_type == TType::Stop {
                        break;
                    }
                    fields.push((field.id.unwrap(), Tree::read(field.field_type, from)?));
                }
                from.read_struct_end()?;
                Tree::Struct(fields)
            }
            TType::List => {
                let list = from.read_list_begin()?;
                Tree::List(list.element_type, many(list.element_type, list.size, from)?)
            }
            TType::Set => {
                let set = from.read_set_begin()?;
                Tree::Set(set.element_type, many(set.element_type, set.size, from)?)
            }
            TType::Map => {
                let map = from.read_map_begin()?;
                let (key, value) =
                    (map.key_type.unwrap_or(TType::Stop), map.value_type.unwrap_or(TType::Stop));
                let entries = (0..map.size)
                    .map(|_| Ok((Tree::read(key, from)?, Tree::read(value, from)?)))
                    .collect::<thrift::Result<Vec<_>>>()?;
                Tree::Map(key, value, entries)
            }
            other => return Err(thrift::Error::User(format!("cannot convert {other} into TType").into())),
        })
    }

    /// As it is where nobody says what the elements of empty containers are, nor the order of fields.
    pub fn untyped(self) -> Tree {
        let all = |values: Vec<Tree>| values.into_iter().map(Tree::untyped).collect();
        match self {
            Tree::List(_, values) => Tree::List(TType::Stop, all(values)),
            Tree::Set(_, values) => Tree::Set(TType::Stop, all(values)),
            Tree::Map(_, _, entries) => Tree::Map(
                TType::Stop,
                TType::Stop,
                entries.into_iter().map(|(key, value)| (key.untyped(), value.untyped())).collect(),
            ),
            Tree::Struct(fields) => {
                let mut fields: Vec<_> =
                    fields.into_iter().map(|(id, value)| (id, value.untyped())).collect();
                fields.sort_by_key(|(id, _)| *id);
                Tree::Struct(fields)
            }
            other => other,
        }
    }
}

/// What Apache writes.
pub fn apache_writes(protocol: Protocol, tree: &Tree) -> Vec<u8> {
    let mut out = Vec::new();
    match protocol {
        Protocol::Binary => tree.write(&mut TBinaryOutputProtocol::new(&mut out, true)).unwrap(),
        Protocol::Compact => tree.write(&mut TCompactOutputProtocol::new(&mut out)).unwrap(),
    }
    out
}

/// Whether it refuses what it does not know: it has no uuid, and no 0 for a bool that is false, nor 2 for the type of a list
/// of them.
pub fn knows_not(error: &thrift::Error) -> bool {
    ["into TType", "into bool"].iter().any(|of| format!("{error:?}").contains(of))
}

/// What Apache reads, and how many bytes of the input that are; none if it panics.
pub fn apache_reads(protocol: Protocol, mut input: &[u8]) -> Option<Result<(Tree, usize), thrift::Error>> {
    let whole = input.len();
    let read = AssertUnwindSafe(|| match protocol {
        Protocol::Binary => Tree::read(TType::Struct, &mut TBinaryInputProtocol::new(&mut input, true)),
        Protocol::Compact => Tree::read(TType::Struct, &mut TCompactInputProtocol::new(&mut input)),
    });
    let tree = catch_unwind(read).ok()?;
    Some(tree.map(|tree| (tree, whole - input.len())))
}
