//! Removes what runs left that were killed before they could tidy up.
//!
//! Invariant: nothing of a process that lives is touched, and nothing that somebody asked to keep.

use crate::confined;
use crate::netns::Lab;
use crate::scratch;
use crate::trouble::Trouble;
use scotfree_io::stderr;
use std::path::Path;

/// What a sweep has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Labs that are gone now.
    pub labs: Vec<String>,
    /// Groups of programs under limits that are gone now.
    pub groups: Vec<String>,
    /// How many folders are gone now.
    pub folders_count: usize,
    /// What could not be removed.
    pub troubles: Vec<Trouble>,
}

/// Removes the labs, the groups and the folders of dead processes of this user.
pub fn sweep(run_folder: &Path, lab_folder: &Path) -> Swept {
    // The folders last: whatever still runs in namespaces and groups may be writing to them.
    let (labs, mut troubles) = Lab::sweep(run_folder);
    let (groups, troubles_of_groups) = confined::sweep();
    troubles.extend(troubles_of_groups);
    // A run took one of two: TMPDIR, or what stands in for one that will not do.
    let temporary = std::env::temp_dir();
    let usual = ["/tmp", "/dev/shm", "/var/tmp"].map(Path::new);
    let mut parents = vec![temporary.as_path(), lab_folder];
    parents.extend(usual);
    parents.sort();
    parents.dedup();
    let folders_count = parents.into_iter().map(scratch::sweep).sum();
    Swept { labs, groups, folders_count, troubles }
}

/// The same at the beginning of a run, which goes on whatever comes of it.
pub fn sweep_before_run(run_folder: &Path, lab_folder: &Path) {
    for trouble in sweep(run_folder, lab_folder).troubles {
        stderr::line(format_args!("warning: {trouble}"));
    }
}
