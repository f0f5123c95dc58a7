//! Code that reads every field of a message, for each codec's own types: `impl Read`.
//!
//! Invariant: of all codecs the same fields are read, those of the descriptors.

use protox::prost_reflect::{FieldDescriptor, MessageDescriptor};
use std::fmt::Write;

/// How a codec's generated code names what it has.
#[derive(Clone, Copy)]
pub struct Dialect {
    /// Where its modules are.
    pub module: &'static str,
    /// A message's path within its package.
    pub path: fn(&MessageDescriptor) -> String,
    /// A field's name.
    pub field: fn(&str) -> String,
    /// The enumeration of a oneof, by message and oneof.
    pub oneof: fn(&MessageDescriptor, &str) -> String,
    /// Whether its members are named as fields are (`string_value`), not `StringValue`.
    pub is_snake: bool,
    /// Whether no member is a member of its own, and not that there is none.
    pub is_flat: bool,
}

/// Reads structs.
pub fn of_structs(messages: &[MessageDescriptor], dialect: Dialect) -> String {
    messages.iter().map(|message| of_struct(message, dialect)).collect()
}

fn of_struct(message: &MessageDescriptor, dialect: Dialect) -> String {
    let mut sums = String::new();
    for field in message.fields().filter(|field| field.containing_oneof().is_none()) {
        let _ = writeln!(sums, "        s = s.wrapping_add(self.{}.sum());", (dialect.field)(field.name()));
    }
    for oneof in message.oneofs() {
        let path = (dialect.oneof)(message, oneof.name());
        let mut arms = String::new();
        for field in oneof.fields() {
            let name = if dialect.is_snake { field.name().to_owned() } else { camel(field.name()) };
            let member = format!("{}::{path}::{name}(x)", dialect.module);
            let pattern = if dialect.is_flat { member } else { format!("Some({member})") };
            let _ = writeln!(arms, "            {pattern} => x.sum(),");
        }
        let _ = writeln!(
            sums,
            "        s = s.wrapping_add(match &self.{} {{\n{arms}            _ => 0,\n        }});",
            oneof.name()
        );
    }
    format!(
        "impl Read for {}::{}::{} {{\n    #[inline]\n    fn sum(&self) -> u64 {{\n        \
             let mut s = 0_u64;\n{sums}        s\n    }}\n}}\n",
        dialect.module,
        message.package_name(),
        (dialect.path)(message)
    )
}

/// Reads what our codec has, by its getters.
pub fn of_ours(messages: &[MessageDescriptor], module: &str) -> String {
    let mut text = String::new();
    for message in messages {
        let mut sums = String::new();
        for field in message.fields() {
            let _ = writeln!(sums, "        s = s.wrapping_add({});", ours(&field));
        }
        let _ = writeln!(
            text,
            "impl Read for {module}::{}::{}Ref<'_> {{\n    #[inline]\n    fn sum(&self) -> u64 {{\n        \
                 let mut s = 0_u64;\n{sums}        s\n    }}\n}}",
            message.package_name(),
            message.name()
        );
    }
    text
}

fn ours(field: &FieldDescriptor) -> String {
    let got = format!("self.{}()", field.name());
    if field.is_map() {
        format!("{got}.map(|x| x.key().sum().wrapping_add(x.value().sum())).fold(0, u64::wrapping_add)")
    } else if field.is_list() {
        format!("{got}.map(|x| x.sum()).fold(0, u64::wrapping_add)")
    } else {
        format!("{got}.sum()")
    }
}

fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        })
        .collect()
}
