//! Types from what a .thrift file says of its structs.
//!
//! Invariant: a type that is a container has one field, and a map's entry two, the key's first.

use crate::descriptor::{dense, presence, slots};
use crate::schema::{Field, Kind, Need, Shape, TypeSchema, Types, Utf8, NONE};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// What a value is, as a file says it; typedefs are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Thrift's own names.
pub enum Of {
    Bool,
    I8,
    I16,
    I32,
    I64,
    Double,
    String,
    Binary,
    Uuid,
    /// A number of an enumeration, whether it knows it or not.
    Enum,
    /// A struct, union or exception of this full name.
    Struct(String),
    List(Box<Of>),
    Set(Box<Of>),
    Map(Box<Of>, Box<Of>),
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDescription {
    /// Its id.
    pub id: i16,
    /// Its name.
    pub name: String,
    /// Whether it must be there.
    pub need: Need,
    /// Whether the file says what it is where it is not there: then it is not written unless it was set, whatever `need` is.
    pub has_default: bool,
    /// What it is.
    pub of: Of,
}

/// A struct, union or exception; a method's arguments, and what it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructDescription {
    /// Its full name.
    pub name: String,
    /// Its fields, in any order.
    pub fields: Vec<FieldDescription>,
    /// Whether at most one of them is there.
    pub is_union: bool,
}

/// Types of structs.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// The structs in their order, then what their containers need.
    pub types: Types,
    /// Places of structs by their full names.
    pub by_name: BTreeMap<String, u16>,
    /// Of each type the struct that it is of: itself, or the one in which the container lies.
    pub owners: Vec<u16>,
}

/// Why descriptions give no types.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// There is no such struct.
    #[error("{of}: there is no struct {name}")]
    Unknown {
        /// The field.
        of: String,
        /// The name.
        name: String,
    },
    /// Two structs of one name, or two fields of one id or name.
    #[error("{name}: said twice")]
    Twice {
        /// Whose.
        name: String,
    },
    /// More than fits: 65,534 types, or fields of one.
    #[error("{name}: more types or fields than 65,534")]
    TooMany {
        /// What is one too many.
        name: String,
    },
}

/// The types of structs.
pub fn types_of(structs: &[StructDescription]) -> Result<Loaded, LayoutError> {
    let mut layout = Layout::default();
    for (at, of) in structs.iter().enumerate() {
        let place = place(at, &of.name)?;
        if layout.by_name.insert(of.name.clone(), place).is_some() {
            return Err(LayoutError::Twice { name: of.name.clone() });
        }
        layout.taken.insert(of.name.clone());
        layout.types.push(TypeSchema::default());
        layout.owners.push(place);
    }
    for (at, of) in structs.iter().enumerate() {
        layout.types[at] = layout.structure(at as u16, of)?;
    }
    Ok(Loaded {
        types: Types { types: layout.types.into(), enums: Cow::default() },
        by_name: layout.by_name,
        owners: layout.owners,
    })
}

fn place(at: usize, name: &str) -> Result<u16, LayoutError> {
    let place = u16::try_from(at).ok().filter(|place| *place != NONE);
    place.ok_or_else(|| LayoutError::TooMany { name: name.to_owned() })
}

#[derive(Default)]
struct Layout {
    types: Vec<TypeSchema>,
    by_name: BTreeMap<String, u16>,
    owners: Vec<u16>,
    taken: BTreeSet<String>,
}

/// Where a type is said: the struct, and the name that a type of its container gets.
struct At<'d> {
    owner: u16,
    path: &'d str,
}

impl Layout {
    fn structure(&mut self, owner: u16, of: &StructDescription) -> Result<TypeSchema, LayoutError> {
        let twice = |what: &str| LayoutError::Twice { name: format!("{}: {what}", of.name) };
        let mut described: Vec<&FieldDescription> = of.fields.iter().collect();
        described.sort_by_key(|field| number(field.id));
        place(described.len(), &of.name)?;
        if let Some(pair) = described.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(twice(&format!("field {}", pair[1].id)));
        }
        let mut names = BTreeSet::new();
        if let Some(field) = described.iter().find(|field| !names.insert(&field.name)) {
            return Err(twice(&field.name));
        }
        let mut fields = Vec::with_capacity(described.len());
        for field in &described {
            let path = format!("{}.{}", of.name, field.name);
            let mut laid = self.field(&At { owner, path: &path }, &field.of, of.is_union)?;
            laid.number = number(field.id);
            laid.need =
                if field.has_default && field.need == Need::Default { Need::Optional } else { field.need };
            if of.is_union {
                (laid.need, laid.oneof) = (Need::Optional, 0);
            }
            laid.shape = shape(&laid);
            fields.push(laid);
        }
        let names = described.iter().map(|field| field.name.clone()).collect();
        Ok(finished(of.name.clone(), fields, names))
    }

    /// A field, its number and requiredness left out. In a union a container is a type of its own: there is one slot for
    /// all members.
    fn field(&mut self, at: &At<'_>, of: &Of, is_in_union: bool) -> Result<Field, LayoutError> {
        match of {
            Of::List(inner) | Of::Set(inner) if !is_in_union => {
                let (kind, sub) = self.one(at, inner)?;
                Ok(Field { is_set: matches!(of, Of::Set(_)), ..blank(kind, sub, Shape::Repeated) })
            }
            Of::Map(key, value) if !is_in_union => {
                Ok(blank(Kind::Message, self.entry(at, key, value)?, Shape::Map))
            }
            of => {
                let (kind, sub) = self.one(at, of)?;
                Ok(blank(kind, sub, Shape::Explicit))
            }
        }
    }

    /// What one value is: a container is a type of its own.
    fn one(&mut self, at: &At<'_>, of: &Of) -> Result<(Kind, u16), LayoutError> {
        Ok(match of {
            Of::Bool => (Kind::Bool, NONE),
            Of::I8 => (Kind::Int8, NONE),
            Of::I16 => (Kind::Int16, NONE),
            Of::I32 => (Kind::Int32, NONE),
            Of::I64 => (Kind::Int64, NONE),
            Of::Double => (Kind::Double, NONE),
            Of::String => (Kind::String, NONE),
            Of::Binary => (Kind::Bytes, NONE),
            Of::Uuid => (Kind::Uuid, NONE),
            Of::Enum => (Kind::Enum, NONE),
            Of::Struct(name) => {
                let unknown = || LayoutError::Unknown { of: at.path.to_owned(), name: name.clone() };
                (Kind::Message, *self.by_name.get(name).ok_or_else(unknown)?)
            }
            Of::List(_) => (Kind::Message, self.container(at, "List", of)?),
            Of::Set(_) => (Kind::Message, self.container(at, "Set", of)?),
            Of::Map(..) => (Kind::Message, self.container(at, "Map", of)?),
        })
    }

    fn container(&mut self, at: &At<'_>, suffix: &str, of: &Of) -> Result<u16, LayoutError> {
        let (place, name) = self.reserve(at, suffix)?;
        let mut field = self.field(&At { path: &name, ..*at }, of, false)?;
        field.number = 1;
        let mut schema = finished(name, vec![field], vec!["values".to_owned()]);
        schema.is_container = true;
        self.types[place as usize] = schema;
        Ok(place)
    }

    fn entry(&mut self, at: &At<'_>, key: &Of, value: &Of) -> Result<u16, LayoutError> {
        let (place, name) = self.reserve(at, "Entry")?;
        let mut fields = Vec::new();
        for (number, part, of) in [(1, "Key", key), (2, "Value", value)] {
            let path = format!("{}{part}", at.path);
            let (kind, sub) = self.one(&At { path: &path, ..*at }, of)?;
            let mut field = Field { number, ..blank(kind, sub, Shape::Explicit) };
            field.shape = shape(&field);
            fields.push(field);
        }
        self.types[place as usize] = finished(name, fields, vec!["key".to_owned(), "value".to_owned()]);
        Ok(place)
    }

    /// A place for a type that no file names, and its name.
    fn reserve(&mut self, at: &At<'_>, suffix: &str) -> Result<(u16, String), LayoutError> {
        let mut name = format!("{}{suffix}", at.path);
        while !self.taken.insert(name.clone()) {
            name.push('2');
        }
        let place = place(self.types.len(), &name)?;
        self.types.push(TypeSchema::default());
        self.owners.push(at.owner);
        Ok((place, name))
    }
}

/// A field that has neither number nor place yet.
fn blank(kind: Kind, sub: u16, shape: Shape) -> Field {
    Field {
        number: 0,
        kind,
        shape,
        utf8: Utf8::Checked,
        slot: 0,
        presence: 0,
        sub,
        oneof: NONE,
        need: Need::Default,
        is_set: false,
        converter: 0,
    }
}

/// An id as a field's number: those below zero behind all others.
fn number(id: i16) -> u32 {
    u32::from(id as u16)
}

/// How a field is read follows from whether it must be there.
fn shape(field: &Field) -> Shape {
    match (field.shape, field.need) {
        (shape @ (Shape::Repeated | Shape::Packed | Shape::Map), _) => shape,
        (_, Need::Required) => Shape::Required,
        (_, Need::Default) if field.kind != Kind::Message => Shape::Implicit,
        (_, Need::Default | Need::Optional) => Shape::Explicit,
    }
}

fn finished(name: String, mut fields: Vec<Field>, names: Vec<String>) -> TypeSchema {
    let oneofs = presence(&mut fields);
    let presence_words = fields.len().div_ceil(64) as u16;
    let slot_bytes = slots(&mut fields, u32::from(presence_words) * 8 + 8);
    TypeSchema {
        name: Cow::Owned(name),
        slot_bytes,
        presence_words,
        dense: dense(&fields).into(),
        names: names.into_iter().map(Cow::Owned).collect(),
        oneofs: oneofs.into(),
        has_required: fields.iter().any(|field| field.need == Need::Required),
        is_container: false,
        fields: fields.into(),
    }
}
