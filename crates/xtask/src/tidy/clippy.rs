//! The machine crates ban clocks, sleeping and hash tables; clippy enforces it, if its files are there.
//!
//! Invariant: the list of what must be banned stands here once, and each ban in the files has a reason.

use super::{Complaint, Files, MACHINE_CRATES};
use toml::{Table, Value};

const METHODS: [&str; 3] = ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::sleep"];
const TYPES: [&str; 2] = ["std::collections::HashMap", "std::collections::HashSet"];

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    MACHINE_CRATES.iter().flat_map(|name| check_crate(files, name)).collect()
}

fn check_crate(files: &Files, name: &str) -> Vec<Complaint> {
    let path = format!("crates/{name}/clippy.toml");
    let faults = match files.get(&path).map(str::parse::<Table>) {
        None => vec!["is missing: a machine crate bans clocks, sleeping and hash tables".into()],
        Some(Err(error)) => vec![format!("is not TOML: {error}")],
        Some(Ok(settings)) => {
            let mut faults = missing(&settings, "disallowed-methods", &METHODS);
            faults.extend(missing(&settings, "disallowed-types", &TYPES));
            faults
        }
    };
    faults.into_iter().map(|fault| Complaint::of_file(&path, fault)).collect()
}

fn missing(settings: &Table, list: &str, wanted: &[&str]) -> Vec<String> {
    let bans = settings.get(list).and_then(Value::as_array);
    let is_banned = |path: &str| bans.is_some_and(|bans| bans.iter().any(|ban| is_ban_of(ban, path)));
    let absent = wanted.iter().filter(|path| !is_banned(path));
    absent.map(|path| format!("{list} does not ban `{path}` with a reason")).collect()
}

fn is_ban_of(ban: &Value, path: &str) -> bool {
    let text = |key: &str| ban.get(key).and_then(Value::as_str).unwrap_or_default();
    text("path") == path && !text("reason").is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(skipped: &str) -> String {
        let ban = |path: &&str| format!("  {{ path = \"{path}\", reason = \"because\" }},\n");
        let bans =
            |list: &[&str]| -> String { list.iter().filter(|path| **path != skipped).map(ban).collect() };
        format!("disallowed-methods = [\n{}]\ndisallowed-types = [\n{}]\n", bans(&METHODS), bans(&TYPES))
    }

    fn complaints(text: &str) -> Vec<String> {
        let paths = MACHINE_CRATES.map(|name| format!("crates/{name}/clippy.toml"));
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), text)).collect();
        check(&Files::of(&files)).into_iter().map(|complaint| complaint.text).collect()
    }

    #[test]
    fn all_bans_pass_and_none_may_be_left_out() {
        assert!(complaints(&settings("")).is_empty());
        for path in METHODS.iter().chain(&TYPES) {
            let complaints = complaints(&settings(path));
            assert_eq!(complaints.len(), MACHINE_CRATES.len(), "{path}");
            assert!(complaints.iter().all(|text| text.contains(path)), "{complaints:?}");
        }
    }

    #[test]
    fn the_machine_crates_have_their_bans() {
        let files = Files::read(&crate::root()).expect("the tests run in a working tree");
        assert_eq!(check(&files), []);
    }

    #[test]
    fn a_missing_file_a_ban_without_a_reason_and_bad_toml_are_refused() {
        assert_eq!(check(&Files::default()).len(), MACHINE_CRATES.len());
        let without_reasons = settings("").replace("because", "");
        assert_eq!(complaints(&without_reasons).len(), MACHINE_CRATES.len() * (METHODS.len() + TYPES.len()));
        assert!(complaints("disallowed").iter().all(|text| text.contains("not TOML")));
    }
}
