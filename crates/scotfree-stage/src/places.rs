//! Where the files of a run lie: those of a log in memory, and those that must be on a disk.
//!
//! Invariant: what is measured as a disk is no file system in memory.

use crate::scratch::{temporary_folder, Scratch};
use crate::trouble::Trouble;
use std::fs;
use std::path::{Path, PathBuf};

// File systems on which a synchronous write reaches nothing that outlives the power.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// A folder on a disk: the first of the folder for temporary files and `other` that is on one.
pub fn on_disk(name: &str, other: &Path) -> Result<Scratch, Trouble> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let candidates = [temporary_folder(), absolute(other)];
    let on_disk = candidates.iter().find(|folder| !is_in_memory(&mounts, &absolute(folder)));
    let folder = on_disk.ok_or_else(|| {
        let shown = [0, 1].map(|at: usize| candidates[at].display().to_string()).join(" and ");
        let next = "set TMPDIR to a folder on a disk";
        Trouble::new("find a folder on a disk", format!("{shown} are file systems in memory"), next)
    })?;
    Scratch::new_in(folder, name)
}

/// A folder in memory where there is one; else one for temporary files.
pub fn in_memory(name: &str) -> Result<Scratch, Trouble> {
    Scratch::new_in(Path::new("/dev/shm"), name).or_else(|_| Scratch::new(name))
}

fn absolute(folder: &Path) -> PathBuf {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}

/// Whether the mount under which `folder` lies is a file system in memory.
fn is_in_memory(mounts: &str, folder: &Path) -> bool {
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let at = Path::new(words.next()?);
        folder.starts_with(at).then_some((at.components().count(), words.next()?))
    });
    // The last of equals lies on top.
    let nearest = mounted.max_by_key(|(depth, _)| *depth);
    nearest.is_some_and(|(_, kind)| IN_MEMORY.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk xfs rw 0 0\n";
        for (folder, wanted) in
            [("/var", false), ("/tmp", true), ("/tmp/x", true), ("/tmp/disk/y", false), ("/tmpfoo", false)]
        {
            assert_eq!(is_in_memory(mounts, Path::new(folder)), wanted, "{folder}");
        }
        assert!(!is_in_memory("", Path::new("/var")), "what is not known is taken for a disk");
    }

    #[test]
    fn folders_are_made() {
        let other = std::env::temp_dir();
        if let Ok(folder) = on_disk("places", &other) {
            assert!(folder.path().is_dir());
        }
        assert!(in_memory("places").expect("temporary files can be written").path().is_dir());
    }
}
