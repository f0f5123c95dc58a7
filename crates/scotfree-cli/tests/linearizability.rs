//! Histories of real processes: with strict reads some order explains them, with relaxed ones none does.
#![cfg(feature = "lab")]

use scotfree_stage::netns::{access, Access};
use std::path::Path;
use std::process::Command;

#[test]
fn strict_reads_are_linearizable_and_relaxed_ones_are_seen_not_to_be() {
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let words = ["lab", "run", "linearizability", "--repetitions", "2", "--no-results"];
    let output = Command::new(env!("CARGO_BIN_EXE_scot")).args(words).current_dir(repository).output();
    let output = output.expect("the command runs");
    // It fails if a history with strict reads is unexplained, and if none with relaxed reads is.
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("no order explains these operations"), "the control says what it saw: {said}");
    assert!(said.contains(" 0 missed"), "{said}");
}
