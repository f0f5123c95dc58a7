//! Which names things have in Rust.
//!
//! Invariant: the order of types and enumerations is that of `descriptor::types_of`.

use scotfree_transform::descriptor::{EnumDescription, File, MessageDescription};
use scotfree_transform::TypeSchema;
use std::collections::BTreeSet;

/// Where something is: modules from the root, and its name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) modules: Vec<String>,
    pub(crate) name: String,
}

impl Name {
    /// As it is said in a module.
    pub(crate) fn from(&self, modules: &[String]) -> String {
        self.with_suffix(modules, "")
    }

    pub(crate) fn with_suffix(&self, modules: &[String], suffix: &str) -> String {
        let mut path = "super::".repeat(modules.len());
        for module in &self.modules {
            path.push_str(module);
            path.push_str("::");
        }
        path + &self.name + suffix
    }
}

/// Those of all types and enumerations.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) types: Vec<Name>,
    pub(crate) enums: Vec<Name>,
}

impl Names {
    pub(crate) fn of(files: &[File], case: Case) -> Names {
        let mut names = Names::default();
        for file in files {
            let modules: Vec<String> =
                file.package.split('.').filter(|part| !part.is_empty()).map(case.snake).collect();
            file.enums.iter().for_each(|of| names.enums.push(case.name(&modules, &of.name)));
            file.messages.iter().for_each(|of| names.walk(&modules, of, case));
        }
        names.distinct()
    }

    /// Has no two of one module be the same, readers and editors of messages among them, nor one be a word of Rust that
    /// cannot be a name.
    pub(crate) fn distinct(mut self) -> Names {
        let mut taken = BTreeSet::new();
        let types = self.types.iter_mut().map(|name| (name, "Message", &["", "Ref", "Mut"][..]));
        for (name, more, suffixes) in types.chain(self.enums.iter_mut().map(|name| (name, "Enum", &[""][..])))
        {
            let with = |name: &Name, suffix: &str| (name.modules.clone(), format!("{}{suffix}", name.name));
            while name.name == "Self" || suffixes.iter().any(|suffix| taken.contains(&with(name, suffix))) {
                name.name.push_str(more);
            }
            taken.extend(suffixes.iter().map(|suffix| with(name, suffix)));
        }
        self
    }

    fn walk(&mut self, modules: &[String], of: &MessageDescription, case: Case) {
        let inner: Vec<String> = modules.iter().cloned().chain([(case.snake)(&of.name)]).collect();
        of.enums.iter().for_each(|of: &EnumDescription| self.enums.push(case.name(&inner, &of.name)));
        self.types.push(case.name(modules, &of.name));
        of.messages.iter().for_each(|of| self.walk(&inner, of, case));
    }
}

/// How names of types and modules are said.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) camel: fn(&str) -> String,
    pub(crate) snake: fn(&str) -> String,
}

impl Default for Case {
    fn default() -> Self {
        Case { camel, snake: module }
    }
}

impl Case {
    fn name(self, modules: &[String], name: &str) -> Name {
        Name { modules: modules.to_vec(), name: (self.camel)(name) }
    }
}

/// Has no two values of an enumeration be the same, as `a_b` and `A_B` would.
pub(crate) fn distinct_values<'v>(values: impl Iterator<Item = &'v mut String>) {
    let mut taken = BTreeSet::new();
    for value in values {
        while taken.contains(value) {
            value.push('_');
        }
        taken.insert(value.clone());
    }
}

/// `FooBar` of `foo_bar`.
pub(crate) fn camel(name: &str) -> String {
    let mut camel = String::new();
    let mut is_first = true;
    for letter in name.chars() {
        if letter == '_' {
            is_first = true;
        } else if is_first {
            camel.extend(letter.to_uppercase());
            is_first = false;
        } else {
            camel.push(letter);
        }
    }
    if !camel.starts_with(char::is_alphabetic) {
        // Of `_` nothing is left, which takes one more.
        camel.insert_str(0, if camel.is_empty() { "__" } else { "_" });
    }
    camel
}

/// `foo_bar` of `FooBar`, `http_server` of `HTTPServer`.
pub(crate) fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after = at.checked_sub(1).map(|before| letters[before]);
        let before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase()
            && after.is_some_and(|after| {
                after.is_lowercase() || after.is_numeric() || after.is_uppercase() && before_small
            });
        if begins {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// The method that reads a field: not that of all readers.
pub(crate) fn getter(proto: &str) -> String {
    match snake(proto).as_str() {
        "slots" => "slots_".to_owned(),
        name => escaped(name),
    }
}

/// Fields' names, of which no two are the same in Rust, as `fooBar` and `foo_bar` would be.
pub(crate) fn fields(schema: &TypeSchema) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let distinct = schema.names.iter().map(|proto| {
        let mut name = proto.to_string();
        while !taken.insert(getter(&name)) {
            name.push('_');
        }
        name
    });
    distinct.collect()
}

/// The name of a module: none of Rust's own words, nor of its types that generated code names. What a file's name has
/// and no name in Rust may have is a stroke.
pub(crate) fn module(proto: &str) -> String {
    const PRIMITIVE: &[&str] =
        &["__rt", "bool", "f32", "f64", "i16", "i32", "i64", "i8", "str", "u16", "u32", "u64", "u8", "usize"];
    let mut name = snake(&proto.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_"));
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    match name.as_str() {
        name if PRIMITIVE.contains(&name) => format!("{name}_"),
        name => escaped(name),
    }
}

/// A name that is none of Rust's own words.
pub(crate) fn escaped(name: &str) -> String {
    const RAW: &[&str] = &[
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
        "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
        "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static",
        "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where",
        "while", "yield",
    ];
    // These cannot be raw.
    const NEVER: &[&str] = &["self", "Self", "super", "crate", "_"];
    if NEVER.contains(&name) {
        format!("{name}_")
    } else if RAW.contains(&name) {
        format!("r#{name}")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Name> {
        names.iter().map(|of| Case::default().name(&[], of)).collect()
    }

    #[test]
    fn no_two_names_are_the_same() {
        let names =
            Names { types: named(&["Foo", "FooRef", "foo", "Self"]), enums: named(&["FooMut", "Bar"]) };
        let names = names.distinct();
        assert_eq!(
            names.types.iter().map(|name| &*name.name).collect::<Vec<_>>(),
            ["Foo", "FooRefMessage", "FooMessage", "SelfMessage"]
        );
        assert_eq!(names.enums.iter().map(|name| &*name.name).collect::<Vec<_>>(), ["FooMutEnum", "Bar"]);
        assert_eq!(
            (getter("slots"), getter("type"), module("Str")),
            ("slots_".into(), "r#type".into(), "str_".into())
        );
    }

    #[test]
    fn no_two_values_are_the_same() {
        let mut values = ["Self_", "A", "Self_", "Self__"].map(str::to_owned);
        distinct_values(values.iter_mut());
        assert_eq!(values, ["Self_", "A", "Self__", "Self___"]);
    }

    #[test]
    fn names_are_rusts() {
        for (proto, rust) in
            [("FooBar", "foo_bar"), ("HTTPServer", "http_server"), ("V2Message", "v2_message"), ("a", "a")]
        {
            assert_eq!(snake(proto), rust);
        }
        for (proto, rust) in
            [("foo_bar", "FooBar"), ("Person", "Person"), ("__x", "X"), ("_", "__"), ("_1", "_1")]
        {
            assert_eq!(camel(proto), rust);
        }
        for (file, rust) in
            [("my-file", "my_file"), ("2 things", "_2_things"), ("a.b", "a_b"), ("type", "r#type")]
        {
            assert_eq!(module(file), rust);
        }
        for (proto, rust) in [("type", "r#type"), ("self", "self_"), ("kind", "kind")] {
            assert_eq!(escaped(proto), rust);
        }
    }
}
