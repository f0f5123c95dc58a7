//! Words that must not stand in the repository: paths of one machine, names of registries, and
//! promises of code that is not there.
//!
//! Invariant: the words are put together from halves, so that this file does not contain them.

use super::{words_of, Complaint, Files};

/// Paths that exist on one machine only.
const MACHINE_PATHS: [[&str; 2]; 4] = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/Us", "ers/"]];
/// Hosts of package registries: which one is used is the user's affair.
const REGISTRIES: [[&str; 2]; 10] = [
    ["crates", ".io"],
    ["pypi", ".org"],
    ["files.pythonhosted", ".org"],
    ["registry.npmjs", ".org"],
    ["docker", ".io"],
    ["ghcr", ".io"],
    ["quay", ".io"],
    ["proxy.golang", ".org"],
    ["repo1.maven", ".org"],
    ["rubygems", ".org"],
];
/// Words that say that something is missing.
const PROMISES: [[&str; 2]; 5] =
    [["to", "do"], ["fix", "me"], ["st", "ub"], ["unimple", "mented"], ["x", "xx"]];

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    files.iter().flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Complaint> {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(index, line)| faults(path, line).map(move |fault| (index, fault)))
        .map(|(index, fault)| Complaint::of_line(path, index, fault))
        .collect()
}

fn faults<'t>(path: &'t str, line: &'t str) -> impl Iterator<Item = String> + 't {
    let is_lock = path.ends_with("Cargo.lock");
    let path_fault = find_path(line).map(|found| format!("`{found}` is a path of one machine"));
    let registry = find_in(&REGISTRIES, line).filter(|_| !is_lock);
    let registry_fault = registry.map(|found| format!("`{found}` names a registry"));
    let promise_fault = find_promise(path, line).map(|found| format!("`{found}` promises what is not there"));
    path_fault.into_iter().chain(registry_fault).chain(promise_fault)
}

/// A path of one machine, at its beginning and not inside another path.
fn find_path(line: &str) -> Option<String> {
    let begins =
        |at: usize| !line[..at].ends_with(|letter: char| letter.is_alphanumeric() || "._-}".contains(letter));
    let is_there = |path: &String| line.match_indices(path.as_str()).any(|(at, _)| begins(at));
    MACHINE_PATHS.iter().map(|halves| halves.concat()).find(is_there)
}

fn find_in(list: &[[&str; 2]], line: &str) -> Option<String> {
    list.iter().map(|halves| halves.concat()).find(|word| line.contains(word.as_str()))
}

fn find_promise(path: &str, line: &str) -> Option<String> {
    if !path.starts_with("crates/") {
        return None;
    }
    let promises = PROMISES.map(|halves| halves.concat());
    words_of(line).map(str::to_lowercase).find(|word| promises.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&Files::of(&[(path, text)])).len()
    }

    #[test]
    fn every_machine_path_is_found() {
        for halves in MACHINE_PATHS {
            assert_eq!(complaints("docs/a.md", &format!("see `{}x`", halves.concat())), 1, "{halves:?}");
        }
        // In halves as well: whoever else looks for such paths finds none here.
        let harmless = ["a path inside: net/wo", "rk/on, $DIR/ro", "ot/x, the /ho", "me folder"].concat();
        assert_eq!(complaints("docs/a.md", &harmless), 0);
    }

    #[test]
    fn every_registry_is_found_but_in_lock_files() {
        for halves in REGISTRIES {
            let text = format!("https://{}/x", halves.concat());
            assert_eq!(complaints("deny.toml", &text), 1, "{halves:?}");
            assert_eq!(complaints("fuzz/Cargo.lock", &text), 0, "{halves:?}");
        }
    }

    #[test]
    fn every_promise_is_found_in_crates_and_only_as_a_word() {
        for halves in PROMISES {
            let word = halves.concat();
            assert_eq!(complaints("crates/a/src/lib.rs", &format!("// {}: later", word.to_uppercase())), 1);
            assert_eq!(complaints("crates/a/src/lib.rs", &format!("{word}!()")), 1);
            assert_eq!(complaints("crates/a/src/lib.rs", &format!("{word}born")), 0);
            assert_eq!(complaints("docs/a.md", &word), 0);
        }
    }

    #[test]
    fn the_line_is_named() {
        let text = format!("one\ntwo {}\n", PROMISES[0].concat());
        assert_eq!(check(&Files::of(&[("crates/a/x.rs", &text)]))[0].line, 2);
    }
}
