//! Sets of programs and tables that root makes for a group, whose members run `--plane xdp` without root.
//!
//! Invariant: making them again changes nothing but what is not as it was asked for, and never a log.

use crate::plane_xdp::SLOTS_DEFAULT;
use scotfree_xdp::{KernelError, Prepared, SetConfig};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSets {
    /// The folder of all sets of the group, in a BPF file system.
    pub folder: PathBuf,
    /// The group's number.
    pub group: u32,
    /// How many sets, each for one device.
    pub count: u32,
    /// How many slots each log has; those that it has if nobody says.
    pub slots: Option<u32>,
}

/// Why there are no sets.
#[derive(Debug, thiserror::Error)]
pub enum SetsError {
    /// The programs do not load, or what is there does not fit.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Members could not reach them.
    #[error(
        "only root may enter {}, so members of the group could not reach their sets: chmod o+x {}, or give another BPF \
         file system: mkdir -p /run/scotfree-bpf && mount -t bpf bpf /run/scotfree-bpf, then --folder \
         /run/scotfree-bpf/GROUP", path.display(), path.display()
    )]
    Closed {
        /// The folder that they may not enter.
        path: PathBuf,
    },
    /// A folder cannot be given to the group.
    #[error("giving {} to the group failed: {source}; it needs root", path.display())]
    Give {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl GroupSets {
    /// Makes the sets that are not there; what was done for each.
    pub fn make(&self) -> Result<Vec<(PathBuf, Prepared)>, SetsError> {
        scotfree_xdp::refuse_mount_point(&self.folder)?;
        require_open(&self.folder)?;
        let make = |number: u32| {
            let folder = self.folder.join(number.to_string());
            let slot_count =
                self.slots.or_else(|| scotfree_xdp::slot_count(&folder)).unwrap_or(SLOTS_DEFAULT);
            let done = scotfree_xdp::prepare(&folder, SetConfig { slot_count, group: self.group })?;
            // The first one has made it.
            self.give()?;
            Ok((folder, done))
        };
        (0..self.count).map(make).collect()
    }

    fn give(&self) -> Result<(), SetsError> {
        let failed = |source| SetsError::Give { path: self.folder.clone(), source };
        std::os::unix::fs::chown(&self.folder, None, Some(self.group)).map_err(failed)?;
        std::fs::set_permissions(&self.folder, PermissionsExt::from_mode(0o750)).map_err(failed)
    }
}

/// Everybody may pass through the folders above, as far as they are there.
fn require_open(folder: &Path) -> Result<(), SetsError> {
    let is_closed = |path: &&Path| path.metadata().is_ok_and(|it| it.permissions().mode() & 0o001 == 0);
    match folder.ancestors().skip(1).find(is_closed) {
        Some(path) => Err(SetsError::Closed { path: path.to_owned() }),
        None => Ok(()),
    }
}

/// Removes all sets of a group, with their logs; `false` if there are none. If a daemon uses one, all stay.
pub fn remove(folder: &Path) -> Result<bool, SetsError> {
    scotfree_xdp::refuse_mount_point(folder)?;
    let failed = |source| SetsError::Give { path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(failed)?,
    };
    let sets = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>();
    scotfree_xdp::remove_all(&sets.map_err(failed)?)?;
    std::fs::remove_dir(folder).map_err(failed)?;
    Ok(true)
}

/// Ends the log in a set, so that another device can have it.
pub fn release(folder: &Path) -> Result<(), SetsError> {
    Ok(scotfree_xdp::release(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All devices' folders would be given to the group, and removed with its sets.
    #[test]
    fn a_whole_file_system_is_no_group_s() {
        let folder = PathBuf::from("/proc");
        let sets = GroupSets { folder: folder.clone(), group: 0, count: 1, slots: None };
        for refused in [sets.make().map(drop), remove(&folder).map(drop)] {
            let refused = refused.expect_err("it is mounted there").to_string();
            assert!(refused.contains("is where a file system is mounted"), "{refused}");
        }
    }

    #[test]
    fn a_folder_that_members_cannot_reach_is_named() {
        let place = std::env::temp_dir().join(format!("scot-sets-{}", std::process::id()));
        std::fs::create_dir_all(place.join("closed")).expect("it can be made");
        let set_mode = |mode| {
            std::fs::set_permissions(place.join("closed"), PermissionsExt::from_mode(mode))
                .expect("it is ours");
        };
        set_mode(0o700);
        let refused = require_open(&place.join("closed/sets")).expect_err("nobody else may enter");
        assert!(refused.to_string().contains(&format!("chmod o+x {}", place.join("closed").display())));
        set_mode(0o711);
        require_open(&place.join("closed/sets")).expect("all may enter");
        std::fs::remove_dir_all(&place).expect("it is ours");
    }
}
