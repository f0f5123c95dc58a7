//! Every limit of the machine crates, a constant or field whose name ends in `_max`, is named in some
//! test: a limit that no test reaches is a hope.
//!
//! Invariant: what is said here of a test's text holds for formatted code only.

use super::{is_rust, words_of, Complaint, Files, MACHINE_CRATES};
use std::collections::BTreeSet;

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let tested = tested_words(files);
    let sources = files.iter().filter(|(path, _)| is_machine_source(path));
    let limits = sources.flat_map(|(path, text)| limits_of(text).into_iter().map(move |limit| (path, limit)));
    limits
        .filter(|(_, (_, name))| !is_named(name, &tested))
        .map(|(path, (index, name))| {
            Complaint::of_line(path, index, format!("no test names the limit `{name}`"))
        })
        .collect()
}

fn is_machine_source(path: &str) -> bool {
    is_rust(path) && MACHINE_CRATES.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")))
}

/// The lines, from 0, and names of the limits that a source declares outside its tests.
fn limits_of(text: &str) -> Vec<(usize, String)> {
    let mut in_struct = false;
    let mut limits = Vec::new();
    for (index, line) in without_tests(text).lines().enumerate() {
        let line = line.trim_start();
        let declared = without_visibility(line);
        let begins_struct = declared.starts_with("struct ") && line.ends_with('{');
        in_struct = if in_struct { line != "}" } else { begins_struct };
        let name = declared.strip_prefix("const ").unwrap_or(if in_struct { declared } else { "" });
        let name = name.split(':').next().unwrap_or_default();
        if name.to_lowercase().ends_with("_max") && words_of(name).eq([name]) {
            limits.push((index, name.to_owned()));
        }
    }
    limits
}

fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(line, |(_, declared)| declared),
        Some(rest) => rest.trim_start(),
        None => line,
    }
}

const TESTS_BEGIN: &str = "#[cfg(test)]\nmod ";

fn without_tests(text: &str) -> &str {
    text.split(TESTS_BEGIN).next().unwrap_or_default()
}

/// The words, in lower case, of all tests: folders named tests, and modules for tests. What the
/// simulator does is a test too.
fn tested_words(files: &Files) -> BTreeSet<String> {
    let tests = files.iter().filter(|(path, _)| is_rust(path)).map(|(path, text)| {
        let is_test = path.contains("/tests/")
            || path.ends_with("/tests.rs")
            || path.starts_with("crates/scotfree-sim/")
            || is_world(path);
        if is_test {
            text
        } else {
            &text[without_tests(text).len()..]
        }
    });
    tests.flat_map(words_of).map(str::to_lowercase).collect()
}

/// Whether a file is of a remedy's world.
fn is_world(path: &str) -> bool {
    let inside = path.strip_prefix("crates/remedy-").and_then(|path| path.split_once('/'));
    inside.is_some_and(|(_, inside)| inside.starts_with("world/"))
}

/// Whether a word is the limit's name, or a test's name that contains it.
fn is_named(name: &str, tested: &BTreeSet<String>) -> bool {
    let name = name.to_lowercase();
    let inside = format!("_{name}_");
    tested.contains(&name) || tested.iter().any(|word| format!("_{word}_").contains(&inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
/// Packets.
pub const PACKETS_MAX: usize = 3;
const HIDDEN_MAX: usize = 3;

pub struct Table {
    pub(crate) rows_max: usize,
    columns_max: usize,
    rows: usize,
}

fn make() -> Table {
    Table {
        other_max: 7,
    }
}
";

    fn unnamed(tests: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("crates/scotfree-wire/src/a.rs", SOURCE)];
        all.extend(tests);
        let complaints = check(&Files::of(&all)).into_iter();
        complaints.map(|complaint| format!("{}:{}", complaint.line, complaint.text)).collect()
    }

    #[test]
    fn limits_without_a_test_are_named_with_their_lines() {
        let all = [(2, "PACKETS_MAX"), (3, "HIDDEN_MAX"), (6, "rows_max"), (7, "columns_max")];
        let expected = all.map(|(line, name)| format!("{line}:no test names the limit `{name}`"));
        assert_eq!(unnamed(&[]), expected);
    }

    #[test]
    fn a_mention_in_a_test_is_enough_and_elsewhere_is_not() {
        let text = "assert_eq!(PACKETS_MAX, rows_max); fn at_hidden_max_it_stops() {} columns_maximum";
        assert_eq!(unnamed(&[("crates/scotfree-wire/tests/b.rs", text)]).len(), 1);
        assert_eq!(unnamed(&[("crates/scotfree-wire/src/b.rs", text)]).len(), 4);
        let module = format!("fn f() {{}}\n{TESTS_BEGIN}tests {{ {text} }}");
        assert_eq!(unnamed(&[("crates/scotfree-wire/src/b.rs", &module)]).len(), 1);
        assert_eq!(unnamed(&[("crates/scotfree-sim/src/b.rs", text)]).len(), 1);
        assert_eq!(unnamed(&[("crates/remedy-a/world/src/b.rs", text)]).len(), 1);
        assert_eq!(unnamed(&[("crates/remedy-a/src/world/b.rs", text)]).len(), 4);
    }

    #[test]
    fn other_crates_and_limits_in_tests_are_left_alone() {
        let own = format!("{TESTS_BEGIN}tests {{\nconst TRIES_MAX: u8 = 3;\n}}");
        let files =
            Files::of(&[("crates/scotfree-io/src/a.rs", SOURCE), ("crates/scotfree-core/src/b.rs", &own)]);
        assert_eq!(check(&files), []);
    }
}
