//! Every Rust file says what it is before it does anything.
//!
//! Invariant: a file passes only if its first line is a sentence of documentation.

use super::{is_rust, Complaint, Files};

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let bad = files.iter().filter(|(path, text)| is_rust(path) && !opens_well(text));
    bad.map(|(path, _)| Complaint::of_file(path, "does not open with `//!` and what it is")).collect()
}

fn opens_well(text: &str) -> bool {
    text.strip_prefix("//! ")
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_alphanumeric() || first == '`'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_opening_are_named() {
        let files = Files::of(&[
            ("good.rs", "//! What it is.\n"),
            ("code.rs", "//! `main`, and what it is.\n"),
            ("late.rs", "use core::fmt;\n//! What it is.\n"),
            ("empty.rs", ""),
            ("bare.rs", "//!\n"),
            ("outer.rs", "/// What it is.\n"),
            ("notes.md", "no Rust\n"),
        ]);
        let named: Vec<String> = check(&files).into_iter().map(|complaint| complaint.path).collect();
        assert_eq!(named, ["bare.rs", "empty.rs", "late.rs", "outer.rs"]);
    }
}
