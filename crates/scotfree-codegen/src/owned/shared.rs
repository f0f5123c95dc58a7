//! What prost-build gives structs beside their fields: derived traits, enumerations of oneofs, getters.

use super::fields::{is_boxed, member, value_type, Holder, Plain};
use super::{camel, is_member, reaches, Of};
use crate::emit::number;
use scotfree_transform::{Field, Kind};
use std::fmt::Write;

/// What a struct derives beside `Clone` and `PartialEq`.
pub(super) fn derived(of: Of<'_>) -> String {
    if of.is_entry() {
        return String::new();
    }
    list(is_copied(of, of.index), is_hashed(of, of.index))
}

fn list(is_copied: bool, is_hashed: bool) -> String {
    format!("{}{}", if is_copied { "Copy, " } else { "" }, if is_hashed { "Eq, Hash, " } else { "" })
}

fn is_copied(of: Of<'_>, index: usize) -> bool {
    of.defined.types.types[index].fields.iter().all(|field| is_field_copied(of, index, field))
}

fn is_field_copied(of: Of<'_>, index: usize, field: &Field) -> bool {
    !field.shape.is_many()
        && match field.kind {
            Kind::Message => !reaches(of.defined, field.sub, index) && is_copied(of, field.sub as usize),
            Kind::String | Kind::Bytes | Kind::Uuid | Kind::Group => false,
            _ => true,
        }
}

fn is_hashed(of: Of<'_>, index: usize) -> bool {
    of.defined.types.types[index].fields.iter().all(|field| is_field_hashed(of, index, field))
}

fn is_field_hashed(of: Of<'_>, index: usize, field: &Field) -> bool {
    match field.kind {
        Kind::Message => {
            !field.shape.is_many()
                && !reaches(of.defined, field.sub, index)
                && is_hashed(of, field.sub as usize)
        }
        Kind::Float | Kind::Double | Kind::Group => false,
        _ => true,
    }
}

/// The enumerations of oneofs, for the module of what lies in the message.
pub(super) fn oneofs(of: Of<'_>, plain: &[Plain<'_>], out: &mut String) {
    let modules = of.inner_modules();
    for Plain { holder, fields, rust, .. } in plain {
        let Holder::Oneof { name, .. } = holder else { continue };
        let is_copied = fields.iter().all(|field| is_field_copied(of, of.index, field));
        let is_hashed = fields.iter().all(|field| is_field_hashed(of, of.index, field));
        let derived = list(is_copied, is_hashed);
        let _ = writeln!(
            out,
            "\n/// What `{rust}` may be.\n#[derive(Clone, {derived}PartialEq, Debug)]\npub enum {name} {{"
        );
        for field in fields {
            let value = value_type(of, field, &modules);
            let value = if is_boxed(of, field) { format!("::std::boxed::Box<{value}>") } else { value };
            let _ = writeln!(out, "    /// Field {}.\n    {}({value}),", field.number, member(of, field));
        }
        out.push_str("}\n");
    }
}

/// The name of a value of an enumeration.
pub(super) fn variant(own: &str, proto: &str) -> String {
    let whole = camel(proto);
    let own = own.trim_start_matches("r#");
    let short = whole.strip_prefix(own).filter(|rest| rest.starts_with(char::is_uppercase));
    short.map_or(whole.clone(), super::escaped)
}

/// A field's getter and setter, if prost has any: of enumerations, and of scalars that may be absent.
pub(super) fn methods(of: Of<'_>, plain: &Plain<'_>) -> String {
    let (field, rust) = (plain.fields[0], &plain.rust);
    let is_enum = matches!(field.kind, Kind::Enum | Kind::ClosedEnum);
    match plain.holder {
        Holder::One if is_enum => {
            let of = enum_name(of, field);
            let name = rust.trim_start_matches("r#");
            format!("    /// The value of `{rust}`, or the first one if it has none of this number.\n    pub fn {rust}(&self) -> {of} {{\n        {of}::try_from(self.{rust}).unwrap_or_default()\n    }}\n\n    /// Sets `{rust}`.\n    pub fn set_{name}(&mut self, value: {of}) {{\n        self.{rust} = value as i32;\n    }}\n")
        }
        Holder::Optional if is_enum => {
            let default = default(of, field);
            let of = enum_name(of, field);
            let name = rust.trim_start_matches("r#");
            let otherwise = default.map_or("unwrap_or_default()".to_owned(), |name| {
                format!("unwrap_or({of}::{})", variant(of.rsplit("::").next().unwrap_or(&of), &name))
            });
            format!("    /// The value of `{rust}`, or its default if it is absent or has none of this number.\n    pub fn {rust}(&self) -> {of} {{\n        self.{rust}.and_then(|value| {of}::try_from(value).ok()).{otherwise}\n    }}\n\n    /// Sets `{rust}`.\n    pub fn set_{name}(&mut self, value: {of}) {{\n        self.{rust} = Some(value as i32);\n    }}\n")
        }
        Holder::Many if is_enum => {
            let of = enum_name(of, field);
            let name = rust.trim_start_matches("r#");
            format!("    /// The values of `{rust}`, without those that it has none of.\n    pub fn {rust}(&self) -> impl Iterator<Item = {of}> + '_ {{\n        self.{rust}.iter().filter_map(|value| {of}::try_from(*value).ok())\n    }}\n\n    /// Adds to `{rust}`.\n    pub fn push_{name}(&mut self, value: {of}) {{\n        self.{rust}.push(value as i32);\n    }}\n")
        }
        Holder::Optional if !is_member(field) => optional(of, field, rust).unwrap_or_default(),
        _ => String::new(),
    }
}

/// The getter of a number or a text that may be absent.
fn optional(of: Of<'_>, field: &Field, rust: &str) -> Option<String> {
    let default = default(of, field);
    let (kind, body) = match field.kind {
        Kind::Message | Kind::Group | Kind::Uuid => return None,
        // The compiler gives them escaped as those of C are.
        Kind::Bytes if default.is_some() => return None,
        Kind::Bytes => ("&[u8]", format!("self.{rust}.as_deref().unwrap_or_default()")),
        Kind::String => {
            ("&str", format!("self.{rust}.as_deref().unwrap_or({:?})", default.unwrap_or_default()))
        }
        kind => {
            let rust_kind = number(kind).0;
            let default = match default.as_deref() {
                None => return Some(getter(rust, rust_kind, &format!("self.{rust}.unwrap_or_default()"))),
                Some("inf") => format!("{rust_kind}::INFINITY"),
                Some("-inf") => format!("{rust_kind}::NEG_INFINITY"),
                Some("nan") => format!("{rust_kind}::NAN"),
                Some(said) if matches!(kind, Kind::Float | Kind::Double) && !said.contains(['.', 'e']) => {
                    format!("{said}.0")
                }
                Some(said) => said.to_owned(),
            };
            (rust_kind, format!("self.{rust}.unwrap_or({default})"))
        }
    };
    Some(getter(rust, kind, &body))
}

fn getter(rust: &str, kind: &str, body: &str) -> String {
    format!("    /// The value of `{rust}`, or its default if it is absent.\n    pub fn {rust}(&self) -> {kind} {{\n        {body}\n    }}\n")
}

fn enum_name(of: Of<'_>, field: &Field) -> String {
    of.defined.names.enums[field.sub as usize].from(&of.name().modules)
}

/// The default that the file says.
fn default(of: Of<'_>, field: &Field) -> Option<String> {
    let fields = &of.defined.messages[of.index].fields;
    fields.iter().find(|known| known.number == field.number)?.default.clone()
}
