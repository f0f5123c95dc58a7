//! The remedies that this command was built with: a line each, and the only place outside their folders and tests
//! that names them.

use scotfree_core::{RemedyEntry, Stage};
use scotfree_device::Maker;
use scotfree_io::TransportMaker;
use scotfree_rpc::GroupMaker;
use scotfree_sim::{Simulation, Timing};
#[cfg(feature = "xdp")]
use scotfree_xdp::PartMaker;
use serde::Serialize;

/// A remedy, with what it hands out.
#[derive(Debug, Clone, Copy)]
pub struct Remedy {
    /// What it says of itself.
    pub entry: &'static RemedyEntry,
    /// Its function of devices, if it has one.
    pub function: Option<Maker>,
    /// The part of that in the kernel, if it has one.
    #[cfg(feature = "xdp")]
    pub part: Option<PartMaker>,
    /// Its worlds, if it has some.
    pub simulation: Option<&'static dyn Simulation>,
    /// Its protocol in simulated time, if it has that.
    pub timing: Option<&'static dyn Timing>,
}

/// A line of the registry: the remedy's crate and, if it has them, the crates of its part in the kernel, of its worlds
/// and of its protocol in simulated time.
#[allow(unused_macros)] // where there is no remedy
macro_rules! remedy {
    ($machine:ident $(, kernel = $kernel:ident)? $(, world = $world:ident)?) => {
        Remedy {
            entry: &$machine::ENTRY,
            function: Some($machine::MAKER),
            #[cfg(feature = "xdp")]
            part: remedy!(@part $($kernel)?),
            simulation: remedy!(@simulation $($world)?),
            timing: None,
        }
    };
    (service $machine:ident, world = $world:ident $(, timed = $timed:ident)?) => {
        Remedy {
            entry: &$machine::ENTRY,
            function: None,
            #[cfg(feature = "xdp")]
            part: None,
            simulation: Some($world::SIMULATION),
            timing: remedy!(@timing $($timed)?),
        }
    };
    (@part) => { None };
    (@part $kernel:ident) => { Some($kernel::PART) };
    (@timing) => { None };
    (@timing $timed:ident) => { Some($timed::TIMING) };
    (@simulation) => { None };
    (@simulation $world:ident) => { Some($world::SIMULATION) };
}

/// All of them.
pub const REMEDIES: &[Remedy] = &[
    // A line each, in the order in which packets pass their functions unless the configuration says otherwise.
    remedy!(remedy_cache, kernel = remedy_cache_kernel),
    remedy!(remedy_persist, kernel = remedy_persist_kernel, world = remedy_persist_world),
    remedy!(service remedy_replicate, world = remedy_replicate_world, timed = remedy_replicate_world),
];

/// What makes a service a member of a group.
pub const GROUPS: &[GroupMaker] = &[
    // A line each.
    remedy_replicate_service::MAKER,
];

/// What can take the place of UDP between client and server.
pub const TRANSPORTS: &[TransportMaker] = &[
    // A line each.
    remedy_ring_transport::MAKER,
];

/// Their functions of devices.
pub fn functions() -> Vec<Maker> {
    REMEDIES.iter().filter_map(|remedy| remedy.function).collect()
}

/// The parts of these in the kernel.
#[cfg(feature = "xdp")]
pub fn parts() -> Vec<PartMaker> {
    REMEDIES.iter().filter_map(|remedy| remedy.part).collect()
}

/// Worlds, by the name of their remedy.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Whose they are.
    pub name: &'static str,
    /// How they are run.
    pub simulation: &'static dyn Simulation,
    /// Their remedy in simulated time, if it has that.
    pub timing: Option<&'static dyn Timing>,
}

/// The worlds of all that have some.
pub fn worlds() -> Vec<World> {
    let one = |remedy: &Remedy| {
        let (name, simulation, timing) = (remedy.entry.name, remedy.simulation?, remedy.timing);
        Some(World { name, simulation, timing })
    };
    REMEDIES.iter().filter_map(one).collect()
}

/// What a device does whose configuration names no functions. Another remedy that is built in is not thereby on.
const DEFAULT: &str = "persist";

/// The functions of a device whose configuration names none.
pub fn functions_default() -> Vec<String> {
    functions().iter().map(|maker| maker.name.to_owned()).filter(|name| name == DEFAULT).collect()
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
    REMEDIES.iter().map(|remedy| Shown::of(remedy.entry)).collect()
}

/// The registry as JSON, ending with a line break.
pub fn json() -> String {
    let text = serde_json::to_string_pretty(&shown()).expect("names and sentences are JSON");
    text + "\n"
}

/// The registry in words.
pub fn text() -> String {
    REMEDIES.iter().map(|remedy| in_words(remedy.entry)).collect::<Vec<_>>().join("\n")
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
        let names: BTreeSet<&str> = REMEDIES.iter().map(|remedy| remedy.entry.name).collect();
        assert_eq!(names.len(), REMEDIES.len());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for path in REMEDIES.iter().flat_map(|remedy| remedy.entry.covers) {
            assert!(root.join(path).is_dir(), "{path}");
        }
    }

    /// Who adds a remedy by copying another's line and forgets a name would find one under the other's.
    #[test]
    fn a_remedy_has_one_name_and_covers_its_own_folder() {
        for Remedy { entry, function, .. } in REMEDIES {
            assert!(function.is_none_or(|maker| maker.name == entry.name), "{}: {function:?}", entry.name);
            let own = format!("/remedy-{}", entry.name);
            assert!(
                entry.covers.iter().any(|path| path.ends_with(&own)),
                "{}: {:?}",
                entry.name,
                entry.covers
            );
        }
    }

    #[test]
    fn a_device_that_names_no_functions_has_persist_alone_where_it_is_built_in() {
        let built_in = functions().iter().any(|maker| maker.name == DEFAULT);
        assert_eq!(functions_default(), vec![DEFAULT.to_owned(); usize::from(built_in)]);
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
