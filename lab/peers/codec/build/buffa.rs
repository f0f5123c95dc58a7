//! What buffa-build makes of the random .proto files.

use std::path::Path;

/// Structs of those that it takes, for tests/buffa.rs: it makes no Rust of messages whose names are `Self` and `match`.
pub fn random(out: &Path, files: &[String]) {
    let folder = out.join("buffa-random");
    std::fs::create_dir_all(&folder).unwrap();
    let is_taken = |file: &&String| {
        let text = std::fs::read_to_string(out.join(file)).unwrap();
        !text.contains("message Self ") && !text.contains("message match ")
    };
    buffa_build::Config::new()
        .descriptor_set(out.join("schemata.bin"))
        .files(&files.iter().filter(is_taken).collect::<Vec<_>>())
        .generate_views(false)
        .out_dir(folder)
        .include_file("all.rs")
        .compile()
        .unwrap();
}
