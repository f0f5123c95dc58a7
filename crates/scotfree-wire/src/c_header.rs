//! A family's header for C, made from its layouts: of each struct, that it lies in memory as on the wire.
//!
//! Invariant: every offset and size is asserted in C too.

use crate::layout::{Field, Layout};

/// An enumeration `scot_NAME`.
pub fn enum_text<const N: usize>(name: &str, values: [(String, u32); N]) -> String {
    let value =
        |(value, code): (String, u32)| format!("\tSCOT_{}_{} = {code},\n", upper(name), upper(&value));
    format!("enum scot_{name} {{\n{}}};\n", values.map(value).concat())
}

/// A struct `scot_NAME`, with assertions about it.
pub fn struct_text(layout: &Layout) -> String {
    let name = layout.name;
    let fields: String = layout.fields.iter().map(field_text).collect();
    let asserts: String = layout.fields.iter().map(|field| assert_text(name, field)).collect();
    format!(
        "/* {} */\nstruct scot_{name} {{\n{fields}}};\n\n{asserts}\
         _Static_assert(sizeof(struct scot_{name}) == {}, \"scot_{name}\");\n\n",
        sentence(layout.about),
        layout.bytes
    )
}

fn field_text(field: &Field) -> String {
    let declaration = match (field.is_integer(), field.bytes) {
        (true, 1) => format!("__u8 {};", field.name),
        (true, bytes) => format!("__le{} {};", bytes * 8, field.name),
        (false, bytes) => format!("__u8 {}[{bytes}];", field.name),
    };
    format!("\t{declaration:<28} /* {} */\n", field.about)
}

fn assert_text(layout: &str, field: &Field) -> String {
    let Field { name, offset, bytes, .. } = field;
    format!(
        "_Static_assert(__builtin_offsetof(struct scot_{layout}, {name}) == {offset}, \"{layout}.{name}\");\n\
         _Static_assert(sizeof(((struct scot_{layout} *)0)->{name}) == {bytes}, \"{layout}.{name}\");\n"
    )
}

/// A name as C writes its constants.
pub fn upper(name: &str) -> String {
    name.to_ascii_uppercase()
}

fn sentence(about: &str) -> String {
    let mut letters = about.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
