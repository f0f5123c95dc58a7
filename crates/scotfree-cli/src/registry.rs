//! The remedies that this command was built with: a line each, and the only place outside their folders and tests
//! that names them.

use scotfree_core::{RemedyEntry, Stage};
use scotfree_device::Maker;
use serde::Serialize;

/// All of them, in the order in which they are shown.
pub const REMEDIES: &[&RemedyEntry] = &[&remedy_persist::ENTRY];

/// Their functions of devices.
pub const FUNCTIONS: &[Maker] = &[remedy_persist::MAKER];

/// The parts of these in the kernel.
#[cfg(feature = "xdp")]
pub const PARTS: &[scotfree_xdp::PartMaker] = &[remedy_persist_kernel::PART];

/// The functions of a device whose configuration names none: all, in the order in which they stand here.
pub fn functions_default() -> Vec<String> {
    FUNCTIONS.iter().map(|maker| maker.name.to_owned()).collect()
}

/// A remedy as `scot remedies --json` prints it and the planner reads it.
#[derive(Debug, Serialize)]
pub struct Shown {
    name: &'static str,
    about: &'static str,
    removes: Vec<&'static str>,
    preconditions: &'static [&'static str],
    covers: &'static [&'static str],
}

impl Shown {
    fn of(entry: &RemedyEntry) -> Shown {
        let removes = (entry.removes)();
        Shown {
            name: entry.name,
            about: entry.about,
            removes: Stage::ALL
                .into_iter()
                .filter(|stage| removes.contains(*stage))
                .map(Stage::name)
                .collect(),
            preconditions: entry.preconditions,
            covers: entry.covers,
        }
    }
}

/// The registry, for others to read.
pub fn shown() -> Vec<Shown> {
    REMEDIES.iter().map(|entry| Shown::of(entry)).collect()
}

/// The registry as JSON, ending with a line break.
pub fn json() -> String {
    let text = serde_json::to_string_pretty(&shown()).expect("names and sentences are JSON");
    text + "\n"
}

/// The registry in words.
pub fn text() -> String {
    REMEDIES.iter().map(|entry| in_words(entry)).collect::<Vec<_>>().join("\n")
}

fn in_words(entry: &RemedyEntry) -> String {
    let removes = Shown::of(entry).removes.join(", ");
    let head = format!("{}: {}", entry.name, entry.about);
    let mut lines = vec![head, format!("  takes off the critical path: {removes}"), "  needs:".to_owned()];
    lines.extend(entry.preconditions.iter().map(|needed| format!("    - {needed}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn no_two_remedies_have_one_name_and_each_covers_folders_that_are_there() {
        let names: BTreeSet<&str> = REMEDIES.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), REMEDIES.len());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for path in REMEDIES.iter().flat_map(|entry| entry.covers) {
            assert!(root.join(path).is_dir(), "{path}");
        }
    }

    /// The Python package has no `scot` to ask: it carries what `scot remedies --json` prints.
    #[test]
    fn the_planner_reads_this_registry() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/src/scotfree/study/plan/registry.json");
        let read = std::fs::read_to_string(&path).expect("the planner's copy is there");
        assert_eq!(
            read,
            json(),
            "write it anew: scot remedies --json >python/src/scotfree/study/plan/registry.json"
        );
    }
}
