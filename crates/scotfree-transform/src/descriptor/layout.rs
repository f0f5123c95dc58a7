//! Where fields lie in a message's slots.
//!
//! Invariant: members of a oneof share a slot, and their presence bits stand side by side; no other slots overlap.

use super::features::Features;
use super::read::{DescriptorError, EnumDescription, FieldDescription, File, MessageDescription};
use crate::kinds::may_be_registered;
use crate::schema::{EnumSchema, Field, Kind, Need, Shape, TypeSchema, Types, Utf8, NONE};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Types, and what their descriptions are.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// The types, and the enumerations that are closed or not.
    pub types: Types,
    /// The description of each type, at its place in `types`.
    pub messages: Vec<MessageDescription>,
    /// The description of each enumeration, at its place.
    pub enums: Vec<EnumDescription>,
    /// Places of types by their full names, which begin with a dot.
    pub by_name: BTreeMap<String, u16>,
}

struct Scope<'f> {
    name: String,
    of: &'f MessageDescription,
    features: Features,
}

/// All types of a set's files.
pub fn types_of(files: &[File]) -> Result<Loaded, DescriptorError> {
    let (mut scopes, mut enums) = (Vec::new(), Vec::new());
    for file in files {
        let prefix = if file.package.is_empty() { String::new() } else { format!(".{}", file.package) };
        file.enums.iter().for_each(|of| enums.push((format!("{prefix}.{}", of.name), of, file.features)));
        file.messages.iter().for_each(|of| walk(&prefix, of, file.features, &mut scopes, &mut enums));
    }
    let by_name = places(scopes.iter().map(|scope| &scope.name))?;
    let enums_by_name = places(enums.iter().map(|(name, ..)| name))?;
    let closed: Vec<bool> =
        enums.iter().map(|(_, of, features)| features.with(of.features).is_closed()).collect();
    let types = scopes
        .iter()
        .map(|scope| type_schema(scope, &by_name, &enums_by_name, &closed, &scopes))
        .collect::<Result<Vec<_>, _>>()?;
    let enum_schemas = enums.iter().map(|(name, of, _)| {
        let mut numbers: Vec<i32> = of.values.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        EnumSchema { name: Cow::Owned(name[1..].to_owned()), numbers: Cow::Owned(numbers) }
    });
    Ok(Loaded {
        types: Types { types: types.into(), enums: enum_schemas.collect() },
        messages: scopes.iter().map(|scope| scope.of.clone()).collect(),
        enums: enums.iter().map(|(_, of, _)| (*of).clone()).collect(),
        by_name,
    })
}

fn walk<'f>(
    prefix: &str,
    of: &'f MessageDescription,
    features: Features,
    scopes: &mut Vec<Scope<'f>>,
    enums: &mut Vec<(String, &'f EnumDescription, Features)>,
) {
    let name = format!("{prefix}.{}", of.name);
    let features = features.with(of.features);
    of.enums.iter().for_each(|inner| enums.push((format!("{name}.{}", inner.name), inner, features)));
    scopes.push(Scope { name: name.clone(), of, features });
    of.messages.iter().for_each(|inner| walk(&name, inner, features, scopes, enums));
}

fn places<'n>(names: impl Iterator<Item = &'n String>) -> Result<BTreeMap<String, u16>, DescriptorError> {
    names
        .enumerate()
        .map(|(place, name)| match u16::try_from(place) {
            Ok(place) if place != NONE => Ok((name.clone(), place)),
            _ => Err(DescriptorError::TooMany(name.clone())),
        })
        .collect()
}

fn type_schema(
    scope: &Scope<'_>,
    types: &BTreeMap<String, u16>,
    enums: &BTreeMap<String, u16>,
    closed: &[bool],
    scopes: &[Scope<'_>],
) -> Result<TypeSchema, DescriptorError> {
    let mut described: Vec<&FieldDescription> = scope.of.fields.iter().collect();
    described.sort_by_key(|field| field.number);
    if described.len() >= NONE as usize {
        return Err(DescriptorError::TooMany(scope.name.clone()));
    }
    let mut fields = Vec::with_capacity(described.len());
    for of in &described {
        let mut field = kind_and_shape(scope, of, types, enums, closed, scopes)?;
        check(scope, of, fields.last().map(|before: &Field| before.number), field.shape.is_many())?;
        field.oneof = if of.is_proto3_optional { NONE } else { of.oneof.map_or(NONE, |oneof| oneof as u16) };
        fields.push(field);
    }
    let oneofs = presence(&mut fields);
    let presence_words = fields.len().div_ceil(64) as u16;
    let slot_bytes = slots(&mut fields, u32::from(presence_words) * 8 + 8);
    Ok(TypeSchema {
        name: Cow::Owned(scope.name[1..].to_owned()),
        slot_bytes,
        presence_words,
        names: described.iter().map(|of| Cow::Owned(of.name.clone())).collect(),
        dense: dense(&fields).into(),
        oneofs: oneofs.into(),
        has_required: fields.iter().any(|field| field.shape == Shape::Required),
        fields: fields.into(),
        is_container: false,
    })
}

/// The highest number that a field may have.
const NUMBER_MAX: u32 = (1 << 29) - 1;

/// That a field, behind one of the number `before`, is one that a compiler would let pass.
fn check(
    scope: &Scope<'_>,
    of: &FieldDescription,
    before: Option<u32>,
    is_many: bool,
) -> Result<(), DescriptorError> {
    let name = || format!("{}.{}", &scope.name[1..], of.name);
    if of.number == 0 || of.number > NUMBER_MAX || before == Some(of.number) {
        return Err(DescriptorError::Number { of: name(), number: of.number });
    }
    match of.oneof {
        Some(oneof) if is_many || oneof >= scope.of.oneofs.len().min(NONE as usize) => {
            Err(DescriptorError::Oneof { of: name() })
        }
        _ => Ok(()),
    }
}

/// Numbers up to here are found by one look.
const DENSE_MAX: u32 = 256;

pub(crate) fn dense(fields: &[Field]) -> Vec<u16> {
    let last = fields.iter().map(|field| field.number).filter(|&number| number < DENSE_MAX).max();
    let mut dense = vec![0; last.map_or(0, |last| last as usize + 1)];
    for (place, field) in fields.iter().enumerate().filter(|(_, field)| field.number < DENSE_MAX) {
        dense[field.number as usize] = place as u16 + 1;
    }
    dense
}

fn kind_and_shape(
    scope: &Scope<'_>,
    of: &FieldDescription,
    types: &BTreeMap<String, u16>,
    enums: &BTreeMap<String, u16>,
    closed: &[bool],
    scopes: &[Scope<'_>],
) -> Result<Field, DescriptorError> {
    let features = scope.features.with(of.features);
    let named = |names: &BTreeMap<String, u16>| {
        let unknown = || DescriptorError::Unknown {
            of: format!("{}.{}", &scope.name[1..], of.name),
            name: of.type_name.clone(),
        };
        names.get(&of.type_name).copied().ok_or_else(unknown)
    };
    let mut sub = NONE;
    let kind = match of.kind {
        1 => Kind::Double,
        2 => Kind::Float,
        3 => Kind::Int64,
        4 => Kind::Uint64,
        5 => Kind::Int32,
        6 => Kind::Fixed64,
        7 => Kind::Fixed32,
        8 => Kind::Bool,
        9 => Kind::String,
        10 | 11 => {
            sub = named(types)?;
            // An edition's entries of maps have lengths whatever its messages have.
            let is_group = of.kind == 10 || features.is_delimited();
            if is_group && !scopes[sub as usize].of.is_map_entry {
                Kind::Group
            } else {
                Kind::Message
            }
        }
        12 => Kind::Bytes,
        13 => Kind::Uint32,
        14 => {
            sub = named(enums)?;
            if closed[sub as usize] {
                Kind::ClosedEnum
            } else {
                Kind::Enum
            }
        }
        15 => Kind::Sfixed32,
        16 => Kind::Sfixed64,
        17 => Kind::Sint32,
        18 => Kind::Sint64,
        number => {
            return Err(DescriptorError::NoType { of: format!("{}.{}", &scope.name[1..], of.name), number })
        }
    };
    let kind = match (of.converter, kind) {
        (0, kind) => kind,
        (registered, Kind::String | Kind::Bytes) if may_be_registered(registered) => Kind::Bytes,
        (kind, _) => {
            return Err(DescriptorError::Kind { of: format!("{}.{}", &scope.name[1..], of.name), kind })
        }
    };
    let is_number = !matches!(kind, Kind::String | Kind::Bytes | Kind::Message | Kind::Group);
    let is_entry = matches!(kind, Kind::Message) && scopes[sub as usize].of.is_map_entry;
    let shape = match of.label {
        3 if is_entry => Shape::Map,
        3 if is_number && of.packed.unwrap_or(features.is_packed()) => Shape::Packed,
        3 => Shape::Repeated,
        2 => Shape::Required,
        _ if features.is_required() => Shape::Required,
        _ if features.is_implicit() && of.oneof.is_none() && !matches!(kind, Kind::Message | Kind::Group) => {
            Shape::Implicit
        }
        _ => Shape::Explicit,
    };
    let utf8 = if features.is_verified() { Utf8::Checked } else { Utf8::Unchecked };
    Ok(Field {
        number: of.number,
        kind,
        shape,
        utf8,
        slot: 0,
        presence: 0,
        sub,
        oneof: NONE,
        need: Need::Optional,
        is_set: false,
        converter: of.converter as u8,
    })
}

/// Gives each field its bit: by number, but for members of a oneof, which stand at the first of them.
pub(crate) fn presence(fields: &mut [Field]) -> Vec<(u16, u16)> {
    let count =
        fields.iter().filter(|field| field.oneof != NONE).map(|field| field.oneof + 1).max().unwrap_or(0);
    let mut oneofs = vec![(0, 0); count as usize];
    let mut next = 0;
    for at in 0..fields.len() {
        let oneof = fields[at].oneof;
        if oneof == NONE {
            fields[at].presence = next;
            next += 1;
        } else if oneofs[oneof as usize].1 == 0 {
            let first = next;
            for member in fields.iter_mut().filter(|field| field.oneof == oneof) {
                member.presence = next;
                next += 1;
            }
            oneofs[oneof as usize] = (first, next - first);
        }
    }
    oneofs
}

/// Gives each field its slot, the widest first; returns how many bytes there are in all.
pub(crate) fn slots(fields: &mut [Field], first: u32) -> u32 {
    let mut next = first;
    let mut shared: BTreeMap<u16, u32> = BTreeMap::new();
    for size in [8, 4, 1] {
        for field in fields.iter_mut() {
            let mut place = |bytes: u32| {
                let slot = next;
                next += bytes;
                slot
            };
            if field.oneof != NONE {
                if size == 8 {
                    field.slot = *shared.entry(field.oneof).or_insert_with(|| place(8));
                }
            } else if field.slot_width() == size {
                field.slot = place(size);
            }
        }
    }
    next.next_multiple_of(8)
}
