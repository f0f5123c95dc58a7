//! Which names things have in Rust.
//!
//! Invariant: the order of types and enumerations is that of `descriptor::types_of`.

use scotfree_transform::descriptor::{EnumDescription, File, MessageDescription};

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
    pub(crate) fn of(files: &[File]) -> Names {
        let mut names = Names::default();
        for file in files {
            let modules: Vec<String> = file
                .package
                .split('.')
                .filter(|part| !part.is_empty())
                .map(|part| escaped(&snake(part)))
                .collect();
            file.enums.iter().for_each(|of| names.enums.push(name(&modules, &of.name)));
            file.messages.iter().for_each(|of| names.walk(&modules, of));
        }
        names
    }

    fn walk(&mut self, modules: &[String], of: &MessageDescription) {
        let inner: Vec<String> = modules.iter().cloned().chain([escaped(&snake(&of.name))]).collect();
        of.enums.iter().for_each(|of: &EnumDescription| self.enums.push(name(&inner, &of.name)));
        self.types.push(name(modules, &of.name));
        of.messages.iter().for_each(|of| self.walk(&inner, of));
    }
}

fn name(modules: &[String], name: &str) -> Name {
    Name { modules: modules.to_vec(), name: escaped(&camel(name)) }
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

    #[test]
    fn names_are_rusts() {
        for (proto, rust) in
            [("FooBar", "foo_bar"), ("HTTPServer", "http_server"), ("V2Message", "v2_message"), ("a", "a")]
        {
            assert_eq!(snake(proto), rust);
        }
        for (proto, rust) in [("foo_bar", "FooBar"), ("Person", "Person"), ("__x", "X")] {
            assert_eq!(camel(proto), rust);
        }
        for (proto, rust) in [("type", "r#type"), ("self", "self_"), ("kind", "kind")] {
            assert_eq!(escaped(proto), rust);
        }
    }
}
