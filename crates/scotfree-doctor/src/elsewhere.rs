//! Looks for logs of the kernel plane in all BPF file systems.
//!
//! Invariant: it follows no links, and looks at a bounded number of entries at a bounded depth.

use std::fs;
use std::path::{Path, PathBuf};

/// How deep below where a file system is mounted; a group's sets lie two folders deep.
const DEPTH_MAX: usize = 4;
const ENTRIES_MAX: usize = 4_096;
/// What is pinned last: where it lies, all of a log does.
const LOG: &str = "table-scot_slots";

/// The folders with a log below where BPF file systems are mounted.
pub(super) fn kept_elsewhere(mounts: &str) -> Vec<PathBuf> {
    let mut walk = Walk { entries_left: ENTRIES_MAX, found: Vec::new() };
    for mount in mounts.lines() {
        let mut words = mount.split(' ').skip(1);
        if let (Some(place), Some("bpf")) = (words.next(), words.next()) {
            walk.look(Path::new(place), DEPTH_MAX);
        }
    }
    walk.found.sort();
    // One may be mounted twice in a place.
    walk.found.dedup();
    walk.found
}

struct Walk {
    entries_left: usize,
    found: Vec<PathBuf>,
}

impl Walk {
    fn look(&mut self, folder: &Path, depth: usize) {
        // What may not be looked into is passed by.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if self.entries_left == 0 {
                return;
            }
            self.entries_left -= 1;
            if entry.file_name() == LOG {
                self.found.push(folder.to_owned());
            }
            if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.look(&entry.path(), depth - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::scratch::Scratch;

    #[test]
    fn logs_are_found_where_they_lie_and_the_walk_ends() {
        let scratch = Scratch::new("doctor-elsewhere").expect("temporary files can be written");
        let place = scratch.path();
        for folder in ["mine", "group/0", "a/b/c", "a/b/c/d", "empty"] {
            fs::create_dir_all(place.join(folder)).expect("it can be made");
            if folder != "empty" {
                fs::write(place.join(folder).join(LOG), "").expect("it can be written");
            }
        }
        std::os::unix::fs::symlink(place, place.join("loop")).expect("it can be made");
        let mounts =
            |kind: &str| format!("/dev/vda /none ext4 rw 0 0\nbpf {} {kind} rw 0 0\n", place.display());
        let expected = ["a/b/c", "group/0", "mine"].map(|folder| place.join(folder));
        assert_eq!(kept_elsewhere(&mounts("bpf")), expected, "a/b/c/d is too deep");
        assert_eq!(kept_elsewhere(&mounts("tmpfs")), Vec::<PathBuf>::new());
        let mut few = Walk { entries_left: 2, found: Vec::new() };
        few.look(place, DEPTH_MAX);
        assert!(few.entries_left == 0 && few.found.len() < expected.len(), "{:?}", few.found);
    }
}
