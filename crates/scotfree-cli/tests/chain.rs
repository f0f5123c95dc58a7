//! Three devices in series with real processes: who acknowledges, who dies, what is lost. What must come out
//! stands in lab/experiments/chain-failures.toml.
#![cfg(feature = "lab")]

use scotfree_stage::netns::{access, Access};
use scotfree_stage::scratch::Scratch;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

const EXPERIMENT: &str = "lab/experiments/chain-failures.toml";

#[test]
fn nothing_is_lost_and_fewer_acknowledgements_than_asked_complete_nothing() {
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return;
    }
    let output = run_in(&repository());
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("acknowledged updates lost") && said.contains("met"), "{said}");
}

/// The counters would tell: were the disk log not missing, three would acknowledge and complete.
#[test]
fn acknowledgements_that_should_not_be_are_found() {
    let Some(output) = run_planted(|text| {
        let text = text.replace("\"ram-and-disk\", \"ram\",", "\"ram-and-disk\", \"ram-and-disk\",");
        text.replace("deaths = \"one-by-one\", ", "").replace("deaths = \"all-but-followers\", ", "")
    }) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("no-disk, repetition 0: `whole_ungranted_2` is 0; allowed are 500"), "{said}");
    assert!(said.contains("no-disk, repetition 0: `whole_completed_by_devices` is "), "{said}");
}

/// The history would tell: what the head alone holds dies with it.
#[test]
fn what_no_survivor_holds_is_found_to_be_lost() {
    let Some(output) = run_planted(|text| {
        let whole =
            "durability = \"ram:3\", logs = [\"ram\", \"ram\", \"ram\"], deaths = \"all-but-followers\"";
        let alone =
            "durability = \"ram:1\", logs = [\"ram\", \"none\", \"none\"], deaths = \"all-but-followers\"";
        assert!(text.contains(whole));
        text.replace(whole, alone)
    }) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().find(|line| line.contains("dead at once: acknowledged updates lost"));
    assert!(line.is_some_and(|line| line.trim_start().to_lowercase().starts_with("missed")), "{said}");
}

/// Runs a lab of its own with a changed experiment.
fn run_planted(change: impl Fn(&str) -> String) -> Option<Output> {
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return None;
    }
    let planted = Scratch::new("chain-planted").expect("temporary files can be written");
    plant(planted.path(), change);
    Some(run_in(planted.path()))
}

/// A lab of its own whose experiment differs.
fn plant(folder: &Path, change: impl Fn(&str) -> String) {
    for name in ["lab/topologies/chain3.toml", EXPERIMENT] {
        let text = fs::read_to_string(repository().join(name)).expect("it is there");
        let file = folder.join(name);
        fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("it can be made");
        let changed = if name == EXPERIMENT { change(&text) } else { text };
        fs::write(file, changed).expect("it can be written");
    }
}

fn run_in(folder: &Path) -> Output {
    // They are all of one name, which only one lab can have.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let words = ["lab", "run", "chain-failures", "--repetitions", "1", "--no-results"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
    command.args(words).current_dir(folder).output().expect("the command runs")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
