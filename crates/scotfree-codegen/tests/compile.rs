//! What a build.rs is told: which files were read, and what is wrong with them.

#![allow(clippy::unwrap_used)]

use scotfree_codegen::{CodegenError, Config};
use std::path::Path;

fn written(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn the_sources_are_all_files_that_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let imports = "import 'other.proto'; import 'google/protobuf/timestamp.proto'; import 'scotfree.proto';";
    written(
        &folder,
        &[
            ("a.proto", &format!("syntax = 'proto3'; {imports} message A {{ B b = 1; }}")),
            ("other.proto", "syntax = 'proto3'; message B {}"),
            ("unread.proto", "syntax = 'proto3'; message C {}"),
            ("a.thrift", "include 'other.thrift' struct A { 1: other.B b }"),
            ("other.thrift", "struct B {}"),
        ],
    );
    // Named below the folder, or within it.
    for name in [folder.join("a.proto"), "a.proto".into()] {
        let mut sources = Config::new().sources(&[&name, Path::new("a.thrift")], &[&folder]).unwrap();
        sources.sort();
        let expected = ["a.proto", "a.thrift", "other.proto", "other.thrift"].map(|name| folder.join(name));
        assert_eq!(sources, expected);
    }
}

#[test]
fn a_build_script_that_unwraps_shows_where_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &[("a.proto", "syntax = 'proto3';\nmessage A { B b = 1; }")]);
    let error = Config::new().out_dir(folder.path()).compile(&["a.proto"], &[folder.path()]).unwrap_err();
    assert!(matches!(error, CodegenError::Proto { .. }));
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(error.to_string().starts_with("compile a.proto: a.proto:2:13: "), "{error}");
}

#[test]
fn what_cannot_be_written_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &[("a.proto", "syntax = 'proto3'; message A {}"), ("file", "")]);
    // A folder of the file's name: what was written beside it is gone again.
    let out = folder.path().join("out");
    std::fs::create_dir_all(out.join("messages.rs/kept")).unwrap();
    for out in [&out, &folder.path().join("missing"), &folder.path().join("file")] {
        let error = Config::new().out_dir(out).compile(&["a.proto"], &[folder.path()]).unwrap_err();
        assert!(matches!(error, CodegenError::Write { .. }));
        let error = error.to_string();
        assert!(error.starts_with("write ") && error.contains("; its folder has to be there"), "{error}");
    }
    let left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["messages.rs"]);
}

#[test]
fn a_cold_type_that_is_none_is_said() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &[("a.proto", "syntax = 'proto3'; package shop; message Order {}")]);
    let generate = |name: &str| Config::new().cold(name).generate(&["a.proto"], &[folder.path()]);
    assert!(generate("shop.Order").is_ok());
    let error = generate("Order").unwrap_err().to_string();
    assert_eq!(error, "generate code: cold(\"Order\") names no message; the first there is: shop.Order");
}
