//! Plain structs with the names and types that prost-build gives them, and what decodes and encodes them.
//!
//! Invariant: a struct is the type of its messages too, so that `T` is the struct and `Message<T>` its slots.

mod fields;
mod shared;

use crate::emit::number;
use crate::names::{self, Name};
use crate::{Config, Defined};
use fields::{Holder, Plain};
use heck::{ToSnakeCase, ToUpperCamelCase};
use scotfree_transform::descriptor::EnumDescription;
use scotfree_transform::{Field, Kind, Shape, TypeSchema, NONE};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Where the structs come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// They are made here.
    Made,
    /// prost-build made them: the module that its files are included in, as `crate::proto`.
    Prost(String),
}

/// What is made beside views.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) source: Source,
    pub(crate) is_ordered: bool,
}

/// `FooBar` of `foo_bar`, as prost-build says it.
pub(crate) fn camel(name: &str) -> String {
    escaped(&name.to_upper_camel_case())
}

/// `foo_bar` of `fooBar`, likewise.
pub(crate) fn snake(name: &str) -> String {
    escaped(&name.to_snake_case())
}

fn escaped(name: &str) -> String {
    match name {
        "extern" => "extern_".to_owned(),
        _ if name.starts_with(char::is_numeric) => format!("_{name}"),
        _ => names::escaped(name),
    }
}

/// A message of a set of files.
#[derive(Clone, Copy)]
struct Of<'d> {
    defined: &'d Defined,
    config: &'d Config,
    owned: &'d Owned,
    index: usize,
}

impl<'d> Of<'d> {
    fn schema(self) -> &'d TypeSchema {
        &self.defined.types.types[self.index]
    }

    fn name(self) -> &'d Name {
        &self.defined.names.types[self.index]
    }

    /// Whether it is the entry of a map, which has no struct of its own.
    fn is_entry(self) -> bool {
        self.defined.messages[self.index].is_map_entry
    }

    /// The module of what lies in it.
    fn inner_modules(self) -> Vec<String> {
        inner_modules(self.defined, self.index)
    }

    /// What generated code calls.
    fn runtime(self) -> String {
        format!("{}::generated", self.config.runtime)
    }
}

/// The module of what lies in a message.
pub(crate) fn inner_modules(defined: &Defined, index: usize) -> Vec<String> {
    let mut modules = defined.names.types[index].modules.clone();
    modules.push(snake(&defined.messages[index].name));
    modules
}

/// The struct of a message, or for an entry of a map what is decoded into, and what decodes and encodes it. What lies in
/// the module of the message is `inner`.
pub(crate) fn message(defined: &Defined, config: &Config, owned: &Owned, index: usize) -> (String, String) {
    let of = Of { defined, config, owned, index };
    let plain = fields::plain(of);
    let (mut out, mut inner) = (String::new(), String::new());
    let own = &of.name().name;
    let holder = if of.is_entry() { format!("{own}Plain") } else { own.clone() };
    if of.is_entry() {
        let _ = writeln!(
            out,
            "\n/// Entries of `{}`.\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\npub enum {own} {{}}\n",
            of.schema().name
        );
    }
    match &owned.source {
        Source::Prost(root) if !of.is_entry() => {
            let path = of.name().modules.join("::");
            let path = if path.is_empty() { root.clone() } else { format!("{root}::{path}") };
            let _ = writeln!(out, "\npub use {path}::{own};\n");
            for Plain { holder, .. } in &plain {
                if let Holder::Oneof { name, .. } = holder {
                    let _ = writeln!(inner, "pub use {root}::{}::{name};", of.inner_modules().join("::"));
                }
            }
        }
        _ => {
            structure(of, &holder, &plain, &mut out);
            if !of.is_entry() {
                getters(of, &plain, &mut out);
                shared::oneofs(of, &plain, &mut inner);
            }
        }
    }
    merge(of, &holder, &plain, &mut out);
    if !of.is_entry() {
        write(of, &plain, &mut out);
    }
    (out, inner)
}

fn structure(of: Of<'_>, holder: &str, plain: &[Plain<'_>], out: &mut String) {
    let derived = shared::derived(of);
    // An entry's is named by the message that has the map, which lies in another module.
    let head = if of.is_entry() { "#[doc(hidden)]\n/// What an entry" } else { "/// A message" };
    let name = &of.schema().name;
    let _ = writeln!(out, "{head} of `{name}` holds.\n#[derive(Clone, {derived}PartialEq, Debug, Default)]\npub struct {holder} {{");
    for Plain { rust, kind, what, .. } in plain {
        let _ = writeln!(out, "    /// {what}.\n    pub {rust}: {kind},");
    }
    out.push_str("}\n\n");
}

/// Getters and setters of enumerations, and getters of defaults, as prost has them.
fn getters(of: Of<'_>, plain: &[Plain<'_>], out: &mut String) {
    let methods: String = plain.iter().map(|plain| shared::methods(of, plain)).collect();
    if !methods.is_empty() {
        let _ = writeln!(out, "impl {} {{\n{methods}}}\n", of.name().name);
    }
}

/// What comes in one look at the next field.
fn merge(of: Of<'_>, holder: &str, plain: &[Plain<'_>], out: &mut String) {
    let rt = of.runtime();
    let _ = writeln!(out, "impl {rt}::Merge for {holder} {{\n    fn merge(&mut self, message: {rt}::Part<'_>, within: &mut {rt}::Within) -> ::core::result::Result<(), {rt}::DecodeError> {{\n        let mut visit = {rt}::Visit::new(message);\n        loop {{");
    let mut straight: Vec<(u32, Step)> = Vec::new();
    if !of.config.is_cold(of.schema()) {
        for plain in plain {
            straight.extend(
                plain.fields.iter().filter_map(|field| Some((field.number, next(of, plain, field)?))),
            );
        }
    }
    straight.sort_by_key(|(number, _)| *number);
    for (_, Step { head, take }) in &straight {
        let _ = writeln!(
            out,
            "            {head} {{\n                {take}\n                if visit.is_over() {{ return Ok(()); }}\n            }}"
        );
    }
    let _ = writeln!(out, "            if visit.is_over() {{ return Ok(()); }}\n            visit = other_of_{low}(self, visit, within)?;\n        }}\n    }}\n}}\n", low = low(holder));
    let _ = writeln!(out, "/// Takes a field that is not the next one.\n#[allow(unused_variables)]\n#[inline(never)]\nfn other_of_{low}<'i>(to: &mut {holder}, mut visit: {rt}::Visit<'i>, within: &mut {rt}::Within) -> ::core::result::Result<{rt}::Visit<'i>, {rt}::DecodeError> {{\n    match {rt}::other(&mut visit, within)? {{", low = low(holder));
    for plain in plain {
        for field in &plain.fields {
            others(of, plain, field, out);
        }
    }
    out.push_str("        _ => {}\n    }\n    Ok(visit)\n}\n\n");
}

/// A name of a function.
fn low(holder: &str) -> String {
    holder.trim_start_matches("r#").to_snake_case()
}

fn is_bytes(kind: Kind) -> bool {
    matches!(kind, Kind::Message | Kind::String | Kind::Bytes | Kind::Uuid)
}

/// A field's step in the straight line: what asks for it, and what is done with it.
struct Step {
    head: String,
    take: String,
}

/// A group has none.
fn next(of: Of<'_>, plain: &Plain<'_>, field: &Field) -> Option<Step> {
    let (number, kind, rt) = (field.number, field.kind, of.runtime());
    let head = if field.shape.is_many() && field.shape != Shape::Packed { "while" } else { "if" };
    let placed = format!("{head} let Some(placed) = visit.placed::<{number}>()");
    Some(match kind {
        Kind::Group => return None,
        _ if field.shape == Shape::Packed => {
            Step { head: placed, take: many_numbers(of, plain, field, "self") }
        }
        kind if is_bytes(kind) => Step { head: placed, take: plain.take(of, field, "self", "placed") },
        kind => Step {
            head: format!("{head} let Some(value) = visit.number::<{number}>({rt}::Kind::{kind:?})"),
            take: plain.take(of, field, "self", &value(of, kind)),
        },
    })
}

/// What is done with a field that is met by its number.
fn others(of: Of<'_>, plain: &Plain<'_>, field: &Field, out: &mut String) {
    let (number, kind, rt) = (field.number, field.kind, of.runtime());
    if is_bytes(kind) {
        let take = plain.take(of, field, "to", "(at, part)");
        let _ = writeln!(out, "        ({rt}::Raw::Bytes(part), {number}, at) => {{ {take} }}");
        return;
    }
    if kind == Kind::Group {
        let take = plain.take(of, field, "to", "(at, part)");
        let _ = writeln!(out, "        ({rt}::Raw::Group(part), {number}, at) => {{ {take} }}");
        return;
    }
    let value = value(of, kind);
    let take = plain.take(of, field, "to", &value);
    let _ = writeln!(out, "        ({rt}::Raw::Number(value, wire), {number}, _) if {rt}::is_of({rt}::Kind::{kind:?}, wire) => {{ {take} }}");
    if field.shape.is_many() {
        let each = many_numbers(of, plain, field, "to");
        let _ = writeln!(
            out,
            "        ({rt}::Raw::Bytes(part), {number}, at) => {{ let placed = (at, part); {each} }}"
        );
    }
}

/// A number of the wire as its type in Rust.
fn value(of: Of<'_>, kind: Kind) -> String {
    let rt = of.runtime();
    number(kind).1.replace('$', &format!("{rt}::in_slot({rt}::Kind::{kind:?}, value)"))
}

fn many_numbers(of: Of<'_>, plain: &Plain<'_>, field: &Field, to: &str) -> String {
    let (rt, rust, number) = (of.runtime(), &plain.rust, field.number);
    let bits = crate::emit::number(field.kind).1.replace('$', "bits");
    format!(
        "within.numbers::<{number}, _>(&mut {to}.{rust}, {rt}::Kind::{:?}, placed, |bits| {bits})?;",
        field.kind
    )
}

/// What writes a message.
fn write(of: Of<'_>, plain: &[Plain<'_>], out: &mut String) {
    let (own, rt) = (&of.name().name, of.runtime());
    let is_used = if plain.is_empty() { "_" } else { "" };
    let mutable = if plain.is_empty() { "" } else { "mut " };
    let _ = writeln!(out, "impl {rt}::Plain for {own} {{\n    #[inline(always)]\n    fn write<'o, P: {rt}::Path>(&self, {is_used}path: P, writer: {rt}::Writer<'o>) -> {rt}::Writer<'o> {{\n        let {mutable}writer = writer.moved();");
    for plain in plain {
        let _ = writeln!(out, "        {}", plain.write(of));
    }
    out.push_str("        writer\n    }\n}\n");
}

/// An enumeration: of equal numbers the first name.
pub(crate) fn enumeration(of: &EnumDescription, name: &Name, owned: &Owned, out: &mut String) {
    let own = &name.name;
    if let Source::Prost(root) = &owned.source {
        let path: Vec<&str> =
            [root.as_str()].into_iter().chain(name.modules.iter().map(String::as_str)).collect();
        let _ = writeln!(out, "pub use {}::{own};", path.join("::"));
        return;
    }
    let mut seen = BTreeSet::new();
    let mut values: Vec<(String, &String, i32)> = of
        .values
        .iter()
        .filter(|(_, number)| seen.insert(*number))
        .map(|(proto, number)| (shared::variant(own, proto), proto, *number))
        .collect();
    names::distinct_values(values.iter_mut().map(|(rust, ..)| rust));
    let Some((first, ..)) = values.first() else { return };
    let first = values.iter().find(|(.., number)| *number == 0).map_or(first, |(name, ..)| name);
    let _ = writeln!(out, "\n/// Values of `{}`.\n#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i32)]\n#[allow(missing_docs)]\npub enum {own} {{", of.name);
    for (rust, _, number) in &values {
        let _ = writeln!(out, "    {rust} = {number},");
    }
    let _ = writeln!(out, "}}\n\nimpl {own} {{\n    /// Whether it has this number.\n    pub fn is_valid(value: i32) -> bool {{\n        Self::try_from(value).is_ok()\n    }}\n\n    /// The value's name in the .proto file.\n    pub fn as_str_name(&self) -> &'static str {{\n        match self {{");
    for (rust, proto, _) in &values {
        let _ = writeln!(out, "            Self::{rust} => {proto:?},");
    }
    let _ = writeln!(out, "        }}\n    }}\n\n    /// The value of this name in the .proto file.\n    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {{\n        match value {{");
    for (rust, proto, _) in &values {
        let _ = writeln!(out, "            {proto:?} => Some(Self::{rust}),");
    }
    let _ = writeln!(out, "            _ => None,\n        }}\n    }}\n}}\n\nimpl ::core::default::Default for {own} {{\n    fn default() -> Self {{\n        Self::{first}\n    }}\n}}\n\nimpl ::core::convert::From<{own}> for i32 {{\n    fn from(value: {own}) -> i32 {{\n        value as i32\n    }}\n}}\n\nimpl ::core::convert::TryFrom<i32> for {own} {{\n    type Error = i32;\n\n    fn try_from(number: i32) -> ::core::result::Result<Self, i32> {{\n        match number {{");
    for (rust, _, number) in &values {
        let _ = writeln!(out, "            {number} => Ok(Self::{rust}),");
    }
    out.push_str("            _ => Err(number),\n        }\n    }\n}\n");
}

/// Whether a message lies within one of this type without a list between them, so that a box has to.
fn reaches(defined: &Defined, from: u16, to: usize) -> bool {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from as usize]);
    while let Some(at) = left.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            let fields = defined.types.types[at].fields.iter();
            let singular = fields.filter(|field| !field.shape.is_many());
            let inner = singular.filter(|field| matches!(field.kind, Kind::Message | Kind::Group));
            left.extend(inner.map(|field| field.sub as usize));
        }
    }
    false
}

/// Whether a field is in a oneof of the file.
fn is_member(field: &Field) -> bool {
    field.oneof != NONE
}
