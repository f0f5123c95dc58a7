//! Generated code that is committed, so that who builds its crate needs no compiler of .proto files.
//!
//! Invariant: it is what the generator makes of its .proto file today.

#![allow(clippy::unwrap_used)]

use std::path::Path;

const OPENING: &str = "\
//! Visitors of the messages of proto/otlp.proto. `WRITE=1 cargo test -p scotfree-codegen --test committed` makes it anew.
";

#[test]
fn the_study_reads_otlp_by_what_is_generated() {
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scotfree-study");
    let text =
        scotfree_codegen::Config::new().visitors().generate(&["otlp.proto"], &[study.join("proto")]).unwrap();
    let (path, text) = (study.join("src/otlp/messages.rs"), format!("{OPENING}{text}"));
    if std::env::var_os("WRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap() == text, "changed: run it with WRITE=1");
}
