//! A `FileDescriptorSet` as far as types follow from it (google/protobuf/descriptor.proto).

use super::features::Features;
use crate::error::DecodeError;
use crate::limits::DEPTH_MAX;
use crate::protobuf::wire::{Bytes, Tag, Wire};
use thiserror::Error;

/// Why a set of descriptors gives no types.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DescriptorError {
    /// It is no `FileDescriptorSet`.
    #[error("read a set of descriptors: {0}")]
    Damaged(#[from] DecodeError),
    /// A name that it refers to is not in it.
    #[error("{of}: there is no {name} in the set; have the compiler include what files import")]
    Unknown {
        /// The field that refers to it.
        of: String,
        /// The name.
        name: String,
    },
    /// More than fits: 65,534 types or enumerations, or fields of one type.
    #[error("{0}: more types or fields than 65,534")]
    TooMany(String),
    /// A field of a number that no field may have, or that another one of its message has.
    #[error("{of}: its number is {number}, which no field may have, or which another one has")]
    Number {
        /// The field.
        of: String,
        /// The number.
        number: u32,
    },
    /// A field of a oneof that its message does not have, or of many values, which none may have.
    #[error("{of}: it is in a oneof that its message does not have, or that may not hold many values")]
    Oneof {
        /// The field.
        of: String,
    },
    /// A registered kind that there cannot be, or of a field that is neither a string nor bytes.
    #[error("{of}: (scotfree.kind) = {kind}; give a string or bytes one of 32 to 127")]
    Kind {
        /// The field.
        of: String,
        /// The kind.
        kind: u64,
    },
    /// A field of a type that there is not.
    #[error("{of}: its type is {number}, which Protobuf does not have")]
    NoType {
        /// The field.
        of: String,
        /// The number.
        number: u64,
    },
}

/// A file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct File {
    /// As it was given to the compiler.
    pub name: String,
    /// Its package, which may be empty.
    pub package: String,
    /// Messages at its top.
    pub messages: Vec<MessageDescription>,
    /// Enumerations at its top.
    pub enums: Vec<EnumDescription>,
    pub(super) features: Features,
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageDescription {
    /// Without what it lies in.
    pub name: String,
    /// By the order of the file.
    pub fields: Vec<FieldDescription>,
    /// Messages within it.
    pub messages: Vec<MessageDescription>,
    /// Enumerations within it.
    pub enums: Vec<EnumDescription>,
    /// The names of its oneofs, those that the compiler made for optional fields among them.
    pub oneofs: Vec<String>,
    /// Whether it is the entry of a map.
    pub is_map_entry: bool,
    pub(super) features: Features,
}

/// A field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldDescription {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// The name of its message or enumeration, with a dot in front.
    pub type_name: String,
    /// Its default as descriptor.proto says it, if the file does.
    pub default: Option<String>,
    /// The oneof that it is in, by its place.
    pub oneof: Option<usize>,
    /// Whether that oneof is there for this field alone (`optional` of proto3).
    pub is_proto3_optional: bool,
    pub(super) label: u64,
    pub(super) kind: u64,
    pub(super) packed: Option<bool>,
    /// The registered kind that it says, or 0.
    pub(super) converter: u64,
    pub(super) features: Features,
}

/// An enumeration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnumDescription {
    /// Without what it lies in.
    pub name: String,
    /// Names and numbers, in the order of the file.
    pub values: Vec<(String, i32)>,
    pub(super) features: Features,
}

/// The number of `(scotfree.kind)`, as scotfree.proto of scotfree-codegen says it.
const OPTION_KIND: u32 = 50_340;

/// Reads a set.
pub fn read(set: &[u8]) -> Result<Vec<File>, DescriptorError> {
    let mut files = Vec::new();
    each(set, |field| {
        if let (1, Value::Bytes(bytes)) = field {
            files.push(file(bytes)?);
        }
        Ok(())
    })?;
    Ok(files)
}

pub(super) enum Value<'i> {
    Number(u64),
    Bytes(&'i [u8]),
}

/// Calls `of` with each field of a message.
pub(super) fn each<'i>(
    message: &'i [u8],
    mut of: impl FnMut((u32, Value<'i>)) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let (mut bytes, end) = (Bytes { input: message, at: 0 }, message.len());
    while bytes.at < end {
        let tag @ Tag { number, wire } = bytes.tag(end)?;
        match wire {
            Wire::Varint => of((number, Value::Number(bytes.varint(end)?)))?,
            Wire::Bytes => {
                let until = bytes.length(end)?;
                let value = &message[bytes.at..until];
                bytes.at = until;
                of((number, Value::Bytes(value)))?;
            }
            Wire::Fixed64 | Wire::Fixed32 | Wire::GroupBegin | Wire::GroupEnd => bytes.skip(tag, end, 100)?,
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn file(bytes: &[u8]) -> Result<File, DecodeError> {
    let mut file = File::default();
    let (mut syntax, mut edition) = (String::new(), 0);
    let mut options = Features::default();
    each(bytes, |field| {
        match field {
            (1, Value::Bytes(name)) => file.name = text(name),
            (2, Value::Bytes(package)) => file.package = text(package),
            (4, Value::Bytes(bytes)) => file.messages.push(message(bytes, DEPTH_MAX)?),
            (5, Value::Bytes(bytes)) => file.enums.push(enumeration(bytes)?),
            (8, Value::Bytes(bytes)) => options = Features::in_options(bytes, 50)?,
            (12, Value::Bytes(name)) => syntax = text(name),
            (14, Value::Number(number)) => edition = number,
            _ => {}
        }
        Ok(())
    })?;
    file.features = Features::of_edition(&syntax, edition).with(options);
    Ok(file)
}

fn message(bytes: &[u8], depth_left: u16) -> Result<MessageDescription, DecodeError> {
    let depth_left = depth_left.checked_sub(1).ok_or(DecodeError::TooDeep { at: 0 })?;
    let mut is = MessageDescription::default();
    each(bytes, |field| {
        match field {
            (1, Value::Bytes(name)) => is.name = text(name),
            (2, Value::Bytes(bytes)) => is.fields.push(self::field(bytes)?),
            (3, Value::Bytes(bytes)) => is.messages.push(message(bytes, depth_left)?),
            (4, Value::Bytes(bytes)) => is.enums.push(enumeration(bytes)?),
            (7, Value::Bytes(bytes)) => {
                is.features = Features::in_options(bytes, 12)?;
                each(bytes, |option| {
                    if let (7, Value::Number(number)) = option {
                        is.is_map_entry = number != 0;
                    }
                    Ok(())
                })?;
            }
            (8, Value::Bytes(bytes)) => each(bytes, |oneof| {
                if let (1, Value::Bytes(name)) = oneof {
                    is.oneofs.push(text(name));
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(is)
}

fn field(bytes: &[u8]) -> Result<FieldDescription, DecodeError> {
    let mut is = FieldDescription::default();
    each(bytes, |field| {
        match field {
            (1, Value::Bytes(name)) => is.name = text(name),
            // What is beyond 32 bits stays a number that no field may have.
            (3, Value::Number(number)) => is.number = u32::try_from(number).unwrap_or(u32::MAX),
            (4, Value::Number(number)) => is.label = number,
            (5, Value::Number(number)) => is.kind = number,
            (6, Value::Bytes(name)) => is.type_name = text(name),
            (7, Value::Bytes(default)) => is.default = Some(text(default)),
            (8, Value::Bytes(bytes)) => {
                is.features = Features::in_options(bytes, 21)?;
                each(bytes, |option| {
                    match option {
                        (2, Value::Number(number)) => is.packed = Some(number != 0),
                        (OPTION_KIND, Value::Number(number)) => is.converter = number,
                        _ => {}
                    }
                    Ok(())
                })?;
            }
            (9, Value::Number(number)) => is.oneof = Some(number as usize),
            (17, Value::Number(number)) => is.is_proto3_optional = number != 0,
            _ => {}
        }
        Ok(())
    })?;
    Ok(is)
}

fn enumeration(bytes: &[u8]) -> Result<EnumDescription, DecodeError> {
    let mut is = EnumDescription::default();
    each(bytes, |field| {
        match field {
            (1, Value::Bytes(name)) => is.name = text(name),
            (2, Value::Bytes(bytes)) => {
                let mut value = (String::new(), 0);
                each(bytes, |of| {
                    match of {
                        (1, Value::Bytes(name)) => value.0 = text(name),
                        (2, Value::Number(number)) => value.1 = number as i32,
                        _ => {}
                    }
                    Ok(())
                })?;
                is.values.push(value);
            }
            (3, Value::Bytes(bytes)) => is.features = Features::in_options(bytes, 7)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(is)
}
