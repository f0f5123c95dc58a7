//! Visitors: of each type a trait with a method a field, and what calls them as the fields come.
//!
//! Invariant: fields that stand in their order are met by one compare each; all others by their number.

use crate::emit::{number, opening, Module};
use crate::names::{self, escaped, snake, Name, Names};
use crate::{CodegenError, Config, Defined};
use scotfree_transform::{Field, Kind, Shape, TypeSchema};
use std::fmt::Write;

/// The visitors of all types of a set of files.
pub(crate) fn file(sources: &[Defined], config: &Config) -> Result<String, CodegenError> {
    let mut root = Module::default();
    for Defined { types, names, .. } in sources {
        for (schema, name) in types.types.iter().zip(&names.types) {
            refuse(schema)?;
            message(names, schema, name, root.at(&name.modules));
        }
    }
    let mut out = opening(config);
    root.write(0, &config.runtime, &mut out);
    Ok(out)
}

fn refuse(schema: &TypeSchema) -> Result<(), CodegenError> {
    let why = |field: &Field| match (field.kind, field.shape) {
        (Kind::Group, _) => Some("a group"),
        (kind, Shape::Packed | Shape::Repeated) if !is_bytes(kind) => Some("a list of numbers"),
        _ => None,
    };
    let refused = schema.fields.iter().find_map(|field| Some((field.number, why(field)?)));
    refused.map_or(Ok(()), |(number, why)| {
        Err(CodegenError::NotVisited { field: format!("field {number} of {}", schema.name), why })
    })
}

fn is_bytes(kind: Kind) -> bool {
    matches!(kind, Kind::Message | Kind::String | Kind::Bytes)
}

fn message(names: &Names, schema: &TypeSchema, name: &Name, out: &mut String) {
    let (own, fields) = (&name.name, names::fields(schema));
    let visitor = format!("{}Visitor", own.trim_start_matches("r#"));
    let _ = writeln!(out, "\n/// Messages of `{}`.\npub enum {own} {{}}\n", schema.name);
    let _ = writeln!(out, "/// Who is handed the fields of a [`{own}`].\npub trait {visitor}<'i> {{");
    for (field, proto) in schema.fields.iter().zip(&fields) {
        let (rust, kind) = (escaped(&snake(proto)), handed(names, name, field));
        let _ = writeln!(
            out,
            "    /// Field {}.\n    #[inline(always)]\n    fn {rust}(&mut self, _: {kind}) {{}}\n",
            field.number
        );
    }
    out.push_str("}\n\n");
    let _ = writeln!(out, "impl {own} {{\n    /// Hands out the fields of a message as they come.\n    #[inline(always)]\n    pub fn visit<'i>(message: __rt::Part<'i, {own}>, to: &mut impl {visitor}<'i>) -> ::core::result::Result<(), __rt::DecodeError> {{\n        let mut visit = __rt::Visit::new(message);\n        loop {{");
    for (field, proto) in schema.fields.iter().zip(&fields) {
        let head = if field.shape == Shape::Repeated { "while" } else { "if" };
        let (next, call) = (next(field), call(field, proto));
        let _ = writeln!(out, "            {head} let Some(value) = {next} {{\n                {call};\n                if visit.is_over() {{ return Ok(()); }}\n            }}");
    }
    let _ = writeln!(out, "            if visit.is_over() {{ return Ok(()); }}\n            visit = Self::other(visit, to)?;\n        }}\n    }}\n\n    #[inline(never)]\n    fn other<'i>(mut visit: __rt::Visit<'i>, to: &mut impl {visitor}<'i>) -> ::core::result::Result<__rt::Visit<'i>, __rt::DecodeError> {{\n        match visit.other()? {{");
    for (field, proto) in schema.fields.iter().zip(&fields) {
        let (number, call) = (field.number, call(field, proto));
        let _ = if is_bytes(field.kind) {
            writeln!(out, "            (__rt::Raw::Bytes(value), {number}) => {call},")
        } else {
            let kind = field.kind;
            writeln!(out, "            (__rt::Raw::Number(value, width), {number}) if __rt::is_of(__rt::Kind::{kind:?}, width) => {call},")
        };
    }
    out.push_str("            _ => {}\n        }\n        Ok(visit)\n    }\n}\n");
}

/// The type of what is handed out.
fn handed(names: &Names, name: &Name, field: &Field) -> String {
    match field.kind {
        Kind::Message => format!("__rt::Part<'i, {}>", names.types[field.sub as usize].from(&name.modules)),
        Kind::String | Kind::Bytes => "&'i [u8]".to_owned(),
        kind => number(kind).0.to_owned(),
    }
}

/// The next field's value, if it is this one.
fn next(field: &Field) -> String {
    if is_bytes(field.kind) {
        format!("visit.bytes::<{}>()", field.number)
    } else {
        format!("visit.number::<{}>(__rt::Kind::{:?})", field.number, field.kind)
    }
}

fn call(field: &Field, proto: &str) -> String {
    let value = match field.kind {
        Kind::Message => "value.of()".to_owned(),
        Kind::String | Kind::Bytes => "value.bytes()".to_owned(),
        kind => number(kind).1.replace('$', &format!("__rt::in_slot(__rt::Kind::{kind:?}, value)")),
    };
    format!("to.{}({value})", escaped(&snake(proto)))
}
