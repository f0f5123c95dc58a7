//! The fields of a plain struct: their types, and how each is taken and written.
//!
//! Invariant: they are in the order in which they are written: by the lowest number that each has.

use super::{camel, is_member, reaches, snake, Of};
use crate::emit::{number, to_bits};
use scotfree_transform::{Field, Kind, Shape};

/// A field of a struct: of a oneof, all that may be in it.
pub(super) struct Plain<'d> {
    /// Its name.
    pub(super) rust: String,
    /// Its type.
    pub(super) kind: String,
    /// What it is of.
    pub(super) what: String,
    pub(super) holder: Holder,
    pub(super) fields: Vec<&'d Field>,
}

/// How a field is held.
pub(super) enum Holder {
    /// As it is.
    One,
    Optional,
    Many,
    Map,
    Oneof {
        /// The enumeration's name.
        name: String,
        /// The same from where the struct is.
        path: String,
    },
}

/// Those of a message.
pub(super) fn plain(of: Of<'_>) -> Vec<Plain<'_>> {
    let schema = of.schema();
    let mut plain: Vec<Plain<'_>> = Vec::new();
    for (field, proto) in schema.fields.iter().zip(&*schema.names) {
        if !is_member(field) {
            plain.push(alone(of, field, proto));
            continue;
        }
        let proto = &of.defined.messages[of.index].oneofs[field.oneof as usize];
        let rust = snake(proto);
        let known =
            plain.iter_mut().find(|known| is_member(known.fields[0]) && known.fields[0].oneof == field.oneof);
        match known {
            Some(known) => known.fields.push(field),
            None => plain.push(oneof(of, field, proto, rust)),
        }
    }
    plain
}

fn alone<'d>(of: Of<'_>, field: &'d Field, proto: &str) -> Plain<'d> {
    let value = value_type(of, field, &of.name().modules);
    let value = if is_boxed(of, field) { format!("::std::boxed::Box<{value}>") } else { value };
    let (holder, kind) = match field.shape {
        _ if of.is_entry() => (Holder::One, value),
        Shape::Implicit | Shape::Required => (Holder::One, value),
        Shape::Explicit => (Holder::Optional, format!("::core::option::Option<{value}>")),
        Shape::Repeated | Shape::Packed => (Holder::Many, format!("::std::vec::Vec<{value}>")),
        Shape::Map => {
            let entry = Of { index: field.sub as usize, ..of };
            let [key, value] =
                [0, 1].map(|at| value_type(entry, &entry.schema().fields[at], &of.name().modules));
            let map = if of.owned.is_ordered { "BTreeMap" } else { "HashMap" };
            (Holder::Map, format!("::std::collections::{map}<{key}, {value}>"))
        }
    };
    Plain { rust: snake(proto), kind, what: format!("Field {}", field.number), holder, fields: vec![field] }
}

fn oneof<'d>(of: Of<'_>, field: &'d Field, proto: &str, rust: String) -> Plain<'d> {
    let description = &of.defined.messages[of.index];
    let mut name = camel(proto);
    let inner =
        description.messages.iter().map(|of| &of.name).chain(description.enums.iter().map(|of| &of.name));
    if inner.map(|inner| camel(inner)).any(|inner| inner == name) {
        name.push_str("OneOf");
    }
    let module = snake(&description.name);
    let path = format!("{module}::{name}");
    Plain {
        rust,
        kind: format!("::core::option::Option<{path}>"),
        what: "One of several".to_owned(),
        holder: Holder::Oneof { name, path },
        fields: vec![field],
    }
}

/// The type of one value, as it is said in a module.
pub(super) fn value_type(of: Of<'_>, field: &Field, modules: &[String]) -> String {
    match field.kind {
        Kind::String => "::std::string::String".to_owned(),
        Kind::Bytes | Kind::Uuid => "::std::vec::Vec<u8>".to_owned(),
        Kind::Message | Kind::Group => of.defined.names.types[field.sub as usize].from(modules),
        kind => number(kind).0.to_owned(),
    }
}

/// Whether a message would hold itself without a box.
pub(super) fn is_boxed(of: Of<'_>, field: &Field) -> bool {
    is_message(field) && !field.shape.is_many() && reaches(of.defined, field.sub, of.index)
}

fn is_message(field: &Field) -> bool {
    matches!(field.kind, Kind::Message | Kind::Group)
}

/// The name of a member of a oneof.
pub(super) fn member(of: Of<'_>, field: &Field) -> String {
    let schema = of.schema();
    let names = schema.fields.iter().zip(&*schema.names);
    let proto = names.filter(|(known, _)| known.number == field.number).map(|(_, proto)| proto).next();
    camel(proto.expect("it is a field of this type"))
}

impl Plain<'_> {
    /// Takes a value: a number as it is, all else as where it lies.
    pub(super) fn take(&self, of: Of<'_>, field: &Field, to: &str, value: &str) -> String {
        let place = format!("{to}.{}", self.rust);
        let value = match field.kind {
            Kind::String => format!("within.text::<{}>({value})?", field.number),
            Kind::Bytes | Kind::Uuid => format!("within.bytes({value})?"),
            _ => value.to_owned(),
        };
        let (is_message, is_boxed) = (is_message(field), is_boxed(of, field));
        match &self.holder {
            Holder::One if is_message => format!("within.message(&mut {place}, {value})?;"),
            Holder::One => format!("{place} = {value};"),
            Holder::Optional if is_boxed => format!("within.boxed(&mut {place}, {value})?;"),
            Holder::Optional if is_message => {
                format!("within.message({place}.get_or_insert_with(::core::default::Default::default), {value})?;")
            }
            Holder::Optional => format!("{place} = Some({value});"),
            Holder::Many if is_message => format!("within.element(&mut {place}, {value})?;"),
            Holder::Many => format!("let value = {value}; within.push(&mut {place}, value)?;"),
            Holder::Map => {
                let entry =
                    of.defined.names.types[field.sub as usize].with_suffix(&of.name().modules, "Plain");
                format!(
                    "let entry: {entry} = within.entry({value})?; {place}.insert(entry.key, entry.value);"
                )
            }
            Holder::Oneof { path, .. } => {
                let member = member(of, field);
                if !is_message {
                    return format!("{place} = Some({path}::{member}({value}));");
                }
                let (inner, made) = if is_boxed {
                    ("&mut **inner", "::std::boxed::Box::new(inner)")
                } else {
                    ("inner", "inner")
                };
                let make = if is_boxed { "entry" } else { "made" };
                format!("if let Some({path}::{member}(inner)) = &mut {place} {{ within.message({inner}, {value})?; }} else {{ let inner = within.{make}({value})?; {place} = Some({path}::{member}({made})); }}")
            }
        }
    }

    /// Writes it.
    pub(super) fn write(&self, of: Of<'_>) -> String {
        let (rust, field) = (&self.rust, self.fields[0]);
        let place = format!("self.{rust}");
        match &self.holder {
            Holder::One => one(of, field, &place, field.shape == Shape::Implicit),
            Holder::Optional => {
                let value = value_write(of, field, "value", is_boxed(of, field));
                format!("if let Some(value) = &{place} {{ {value} }}")
            }
            Holder::Many => many(of, field, &place),
            Holder::Map => {
                let entry = Of { index: field.sub as usize, ..of };
                let [key, value] = [(0, "key"), (1, "value")]
                    .map(|(at, name)| value_write(entry, &entry.schema().fields[at], name, false));
                let tag = tag(field);
                format!("for (key, value) in &{place} {{ writer = writer.plain_entry::<{tag}>(|mut writer| {{ {key} {value} writer }}); }}")
            }
            Holder::Oneof { path, .. } => {
                let arms = self.fields.iter().map(|field| {
                    let value = value_write(of, field, "value", is_boxed(of, field));
                    format!("Some({path}::{}(value)) => {{ {value} }} ", member(of, field))
                });
                let arms = arms.collect::<Vec<_>>().concat();
                format!("match &{place} {{ {arms}None => {{}} }}")
            }
        }
    }
}

/// Writes a field that holds its value: an implicit one, unless it is zero or empty.
fn one(of: Of<'_>, field: &Field, place: &str, is_implicit: bool) -> String {
    match field.kind {
        Kind::String | Kind::Bytes | Kind::Uuid if is_implicit => {
            format!("if !{place}.is_empty() {{ {} }}", value_write(of, field, &format!("&{place}"), false))
        }
        Kind::String | Kind::Bytes | Kind::Uuid | Kind::Message | Kind::Group => {
            value_write(of, field, &format!("&{place}"), false)
        }
        kind => {
            let (rt, tag, bits) = (of.runtime(), tag(field), to_bits(kind));
            let is_there = if is_implicit { "bits != 0" } else { "true" };
            format!("{{ let value = {place}; let bits = {bits}; writer = writer.plain_number::<{tag}, P>(path, {rt}::Kind::{kind:?}, bits, {is_there}); }}")
        }
    }
}

/// Writes a value that is there, by a reference to it.
fn value_write(of: Of<'_>, field: &Field, value: &str, is_boxed: bool) -> String {
    let (rt, tag) = (of.runtime(), tag(field));
    let inner = if is_boxed { format!("&**{value}") } else { value.to_owned() };
    match field.kind {
        Kind::String => format!("writer = writer.plain_text::<{tag}, P>(path, ({value}).as_bytes());"),
        Kind::Bytes | Kind::Uuid => format!("writer = writer.plain_text::<{tag}, P>(path, {value});"),
        Kind::Message => format!("writer = writer.plain_message::<{tag}, P>(path, {inner});"),
        Kind::Group => {
            let (begin, end) = (field.number << 3 | 3, field.number << 3 | 4);
            format!("writer = writer.plain_group::<{begin}, {end}, P>(path, {inner});")
        }
        kind => {
            let bits = to_bits(kind);
            format!("{{ let value = *{value}; writer = writer.plain_number::<{tag}, P>(path, {rt}::Kind::{kind:?}, {bits}, true); }}")
        }
    }
}

fn many(of: Of<'_>, field: &Field, place: &str) -> String {
    let (rt, tag) = (of.runtime(), tag(field));
    match field.kind {
        Kind::String | Kind::Bytes | Kind::Uuid | Kind::Message | Kind::Group => {
            format!("for value in &{place} {{ {} }}", value_write(of, field, "value", false))
        }
        kind => {
            let verb = if field.shape == Shape::Packed { "packed" } else { "numbers" };
            let bits = to_bits(kind);
            format!("writer = writer.plain_{verb}::<{tag}, P>(path, {rt}::Kind::{kind:?}, {place}.iter().map(|&value| {bits}));")
        }
    }
}

/// The tag of a value: of a packed field, that of all.
fn tag(field: &Field) -> u32 {
    let wire = match field.kind {
        _ if field.shape == Shape::Packed => 2,
        Kind::String | Kind::Bytes | Kind::Uuid | Kind::Message => 2,
        Kind::Group => 3,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => 5,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => 1,
        _ => 0,
    };
    field.number << 3 | wire
}
