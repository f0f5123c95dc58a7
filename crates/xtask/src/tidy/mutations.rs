//! Tables of mistakes that are made on purpose (`mutations.toml` beside the code): each still fits the code.
//!
//! Invariant: a mistake's text is in its file exactly once, and what stands in its place is another.

use super::{Complaint, Files};
use toml::{Table, Value};

const NAME: &str = "/mutations.toml";
/// A table with fewer says little of the tests.
const MISTAKES_MIN: usize = 40;

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let tables = files.iter().filter_map(|(path, text)| Some((path, path.strip_suffix(NAME)?, text)));
    tables.flat_map(|(path, folder, text)| check_table(files, path, folder, text)).collect()
}

fn check_table(files: &Files, path: &str, folder: &str, text: &str) -> Vec<Complaint> {
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return vec![Complaint::of_file(path, format!("is not TOML: {error}"))],
    };
    let mistakes = table.get("mutation").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut faults: Vec<String> =
        mistakes.iter().filter_map(|mistake| fault(files, folder, mistake)).collect();
    if mistakes.len() < MISTAKES_MIN {
        faults.push(format!("has {} mistakes: at least {MISTAKES_MIN}", mistakes.len()));
    }
    let names: Vec<_> = mistakes.iter().map(|mistake| mistake.get("name")).collect();
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        faults.push("has two mistakes of one name".to_owned());
    }
    faults.into_iter().map(|fault| Complaint::of_file(path, fault)).collect()
}

fn fault(files: &Files, folder: &str, mistake: &Value) -> Option<String> {
    let said = |key: &str| mistake.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(name), Some(file), Some(text), Some(_)) =
        (said("name"), said("file"), said("text"), said("breaks"))
    else {
        return Some(format!("lacks a name, a file, a text or what it breaks: {mistake}"));
    };
    let count = files.get(&format!("{folder}/{file}")).map_or(0, |code| code.matches(text).count());
    let instead = mistake.get("instead").and_then(Value::as_str);
    if count != 1 {
        return Some(format!("`{name}`: its text is {count} times in {file}, not once"));
    }
    (instead.is_none() || instead == Some(text)).then(|| format!("`{name}` changes nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(name: &str, text: &str, instead: &str) -> String {
        format!(
            "[[mutation]]\nname = \"{name}\"\nfile = \"src/a.rs\"\ntext = \"{text}\"\ninstead = \"{instead}\"\n\
             breaks = \"all\"\n"
        )
    }

    fn complaints(last: &str) -> Vec<String> {
        let many: String = (1..MISTAKES_MIN).map(|at| mistake(&at.to_string(), "one", "two")).collect();
        let table = many + last;
        let files = Files::of(&[
            ("crates/remedy-a/mutations.toml", &table),
            ("crates/remedy-a/src/a.rs", "one twice twice"),
        ]);
        check(&files).into_iter().map(|complaint| complaint.text).collect()
    }

    #[test]
    fn a_mistake_is_found_once_and_changes_something() {
        assert_eq!(complaints(&mistake("last", "one", "")), [""; 0]);
        for (last, fault) in [
            (mistake("last", "twice", "once"), "2 times"),
            (mistake("last", "never", "once"), "0 times"),
            (mistake("last", "one", "one"), "changes nothing"),
            (mistake("1", "one", "two"), "two mistakes of one name"),
            (mistake("", "one", "two"), "lacks a name"),
            (String::new(), "at least 40"),
        ] {
            let said = complaints(&last);
            assert!(said.len() == 1 && said[0].contains(fault), "{fault}: {said:?}");
        }
    }
}
