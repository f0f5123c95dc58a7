//! Generated code that is committed, so that who builds its crate needs no compiler of .proto or .thrift files.
//!
//! Invariant: it is what the generator makes of its file today.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use scotfree_codegen::Config;

const OTLP: &str = "\
//! Visitors of the messages of proto/otlp.proto. `WRITE=1 cargo test -p scotfree-codegen --test committed` makes it anew.
";

const GOLDEN: &str = "\
//! The structs of golden.thrift. `WRITE=1 cargo test -p scotfree-codegen --test committed` makes it anew.
";

/// Whether a file is this text, which it becomes where that is asked for.
fn is_committed(path: &Path, text: &str) -> bool {
    if std::env::var_os("WRITE").is_some() {
        std::fs::write(path, text).unwrap();
    }
    std::fs::read_to_string(path).unwrap() == text
}

fn beside(folder: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder)
}

#[test]
fn the_study_reads_otlp_by_what_is_generated() {
    let study = beside("scotfree-study");
    let text = Config::new().visitors().generate(&["otlp.proto"], &[study.join("proto")]).unwrap();
    let path = study.join("src/otlp/messages.rs");
    assert!(is_committed(&path, &format!("{OTLP}{text}")), "changed: run it with WRITE=1");
}

#[test]
fn the_codec_tries_its_straight_line_by_what_is_generated() {
    let folder = beside("scotfree-transform/tests/golden");
    let text = Config::new().generate(&["golden.thrift"], &[&folder]).unwrap();
    assert!(
        is_committed(&folder.join("messages.rs"), &format!("{GOLDEN}{text}")),
        "changed: run it with WRITE=1"
    );
}
