//! A module that has modules is `x.rs` beside the folder `x/`, so that no two files of a crate have one name.
//!
//! Invariant: what lies in a crate's `tests/` is left alone: cargo would take `tests/common.rs` for a test.

use super::{Complaint, Files};

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let named_mod = files.iter().filter_map(|(path, _)| Some((path, path.strip_suffix("/mod.rs")?)));
    let in_source = named_mod.filter(|(_, folder)| folder.split('/').any(|part| part == "src"));
    in_source
        .map(|(path, folder)| Complaint::of_file(path, format!("is {folder}.rs, beside its folder")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_hides_in_its_folder_is_named_and_what_tests_share_is_not() {
        let files = Files::of(&[
            ("crates/a/src/index/mod.rs", ""),
            ("crates/remedy-a/world/src/b/c/mod.rs", ""),
            ("crates/a/src/index.rs", ""),
            ("crates/a/src/index/tree.rs", ""),
            ("crates/a/src/index/chmod.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
        ]);
        let complaints: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(
            complaints,
            [
                "crates/a/src/index/mod.rs: is crates/a/src/index.rs, beside its folder",
                "crates/remedy-a/world/src/b/c/mod.rs: is crates/remedy-a/world/src/b/c.rs, beside its folder",
            ]
        );
    }
}
