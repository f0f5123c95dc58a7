//! Sets: programs and tables that root has loaded for a group, whose members may load none themselves.
//!
//! Invariant: who finds a set's ingress program finds all of the set; members change what its tables hold and
//! keep attachments in it, but its own pins are root's.

use crate::error::{bpf, load_failed, system, KernelError};
use crate::functions::Functions;
use crate::kernel::{
    adopt_tables, lock_folder, make_bpf_folder, new_pair, open_object, pin_tables, require_bpf, table_path,
    Kernel, KernelConfig, PROGRAM_EGRESS, PROGRAM_INGRESS, TABLE_SHARED, TABLE_SLOTS,
};
use crate::links::{get_pinned, pin_descriptor};
use crate::shared::{Shared, PORTS_MAX};
use libbpf_rs::{MapCore, MapHandle, Object};
use scotfree_core::{DeviceId, Fnv1a};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// For how many servers a set has pairs of ports.
pub(crate) const SERVERS_MAX: usize = 4;
/// Where a set keeps attachments.
const LINKS: &str = "ports";
const INGRESS: &str = "program-ingress";
const EGRESS: &str = "program-egress";

/// What a set is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetConfig {
    /// How many slots its log has.
    pub slot_count: u32,
    /// The group whose members may use it.
    pub group: u32,
}

/// What had to be done for a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// All of it.
    Made,
    /// Its programs were another build's.
    Renewed,
    /// Nothing.
    There,
}

/// A set's programs.
pub(crate) struct SetPrograms {
    pub(crate) ingress: OwnedFd,
    pub(crate) egress: OwnedFd,
}

/// Whether `folder` is a set.
pub fn is_set(folder: &Path) -> bool {
    folder.join(INGRESS).exists()
}

/// How many slots the log in `folder` has, if there is one.
pub fn slot_count(folder: &Path) -> Option<u32> {
    let slots = table_path(folder, OsStr::new(TABLE_SLOTS));
    MapHandle::from_pinned_path(slots).ok().map(|slots| slots.max_entries())
}

/// Makes `folder` a set of this build; one that is there keeps its log.
pub fn prepare(folder: &Path, config: SetConfig) -> Result<Prepared, KernelError> {
    let was_set = is_set(folder);
    let is_current = was_set && build_mark(folder).is_dir() && slot_count(folder) == Some(config.slot_count);
    if was_set {
        require_slots(folder, config.slot_count)?;
    }
    if !is_current {
        load(folder, config)?;
    }
    share(folder, config.group).map_err(system(format!("giving {} to the group", folder.display())))?;
    Ok(match (was_set, is_current) {
        (_, true) => Prepared::There,
        (true, false) => Prepared::Renewed,
        (false, false) => Prepared::Made,
    })
}

fn load(folder: &Path, config: SetConfig) -> Result<(), KernelError> {
    libbpf_rs::set_print(None);
    make_bpf_folder(folder)?;
    let _lock = lock_folder(folder)?;
    let mut open = open_object(crate::OBJECT, &of_set(folder, config.slot_count), false)?;
    let adopted = adopt_tables(&mut open, folder, config.slot_count)?;
    let mut object = open.load().map_err(load_failed)?;
    if !adopted {
        pin_tables(&mut object, folder)?;
    }
    for place in (0..PORTS_MAX * SERVERS_MAX).map(|at| pair_path(folder, at)).filter(|place| !place.exists())
    {
        let pair = new_pair().map_err(bpf("making a pair of ports"))?;
        keep(pair.as_fd().as_raw_fd(), &place)?;
    }
    let links = links_folder(folder);
    if !links.exists() {
        fs::create_dir(&links).map_err(system(format!("making the folder {}", links.display())))?;
    }
    mark_build(folder).map_err(system(format!("marking {}", folder.display())))?;
    keep(program(&object, PROGRAM_EGRESS), &folder.join(EGRESS))?;
    keep(program(&object, PROGRAM_INGRESS), &folder.join(INGRESS))
}

fn of_set(folder: &Path, slot_count: u32) -> KernelConfig {
    KernelConfig { slot_count, pin: Some(folder.to_owned()), functions: Functions::of_sets() }
}

fn program(object: &Object, name: &str) -> RawFd {
    let program = object.progs().find(|program| program.name() == name);
    program.expect("the object has this program").as_fd().as_raw_fd()
}

/// Pins what a descriptor stands for, in one step where something is there.
fn keep(descriptor: RawFd, path: &Path) -> Result<(), KernelError> {
    let next = path.with_file_name("next");
    // Left by a setup that was ended meanwhile.
    let _ = fs::remove_file(&next);
    let kept = pin_descriptor(descriptor, &next).and_then(|()| fs::rename(&next, path));
    kept.map_err(system(format!("keeping {}", path.display())))
}

// ---- which build

/// FNV-1a over the compiled programs.
fn build_number() -> u64 {
    Fnv1a::of(crate::OBJECT)
}

/// A folder's name is all that a BPF file system keeps beside its objects.
fn build_mark(folder: &Path) -> PathBuf {
    folder.join(format!("build-{:016x}", build_number()))
}

fn mark_build(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("build-") {
            fs::remove_dir(entry.path())?;
        }
    }
    fs::DirBuilder::new().mode(0o750).create(build_mark(folder))
}

// ---- who may

/// Members read and write programs, tables and pairs, and make and remove attachments; the folder itself and
/// what lies in it stay their owner's.
fn share(folder: &Path, group: u32) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let mode = if path.is_dir() { 0o750 } else { 0o660 };
        give(&path, group, mode)?;
    }
    give(&links_folder(folder), group, 0o2770)?;
    give(folder, group, 0o750)
}

fn give(path: &Path, group: u32, mode: u32) -> io::Result<()> {
    std::os::unix::fs::chown(path, None, Some(group))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

// ---- its use

pub(crate) fn links_folder(folder: &Path) -> PathBuf {
    folder.join(LINKS)
}

pub(crate) fn pair_path(folder: &Path, at: usize) -> PathBuf {
    folder.join(format!("pair-{at}"))
}

/// The programs of a set, if they are this build's.
pub(crate) fn open_programs(folder: &Path, slot_count_wanted: u32) -> Result<SetPrograms, KernelError> {
    if !build_mark(folder).is_dir() {
        return Err(KernelError::OtherBuild { path: folder.to_owned() });
    }
    require_slots(folder, slot_count_wanted)?;
    let get = |name: &str| {
        let path = folder.join(name);
        get_pinned(&path).map_err(system(format!("opening {}", path.display())))
    };
    Ok(SetPrograms { ingress: get(INGRESS)?, egress: get(EGRESS)? })
}

fn require_slots(folder: &Path, wanted: u32) -> Result<(), KernelError> {
    match slot_count(folder) {
        Some(found) if found != wanted => {
            Err(KernelError::SetSlots { path: folder.to_owned(), found, wanted })
        }
        _ => Ok(()),
    }
}

/// Whose log a set of this build holds; nobody's if it is free.
pub fn owner(folder: &Path) -> Result<Option<DeviceId>, KernelError> {
    if !is_set(folder) {
        return Err(KernelError::NoSet { path: folder.to_owned() });
    }
    open_programs(folder, slot_count(folder).unwrap_or(0))?;
    let path = table_path(folder, OsStr::new(TABLE_SHARED));
    let table = MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))?;
    let shared = Shared::map(table.as_fd()).map_err(system("mapping the shared memory"))?;
    Ok(Some(shared.device()).filter(|device| *device != DeviceId(0)))
}

/// Ends the log of a set and takes its programs from all ports, so that another device can have it.
pub fn release(folder: &Path) -> Result<(), KernelError> {
    if !is_set(folder) {
        return Err(KernelError::NoSet { path: folder.to_owned() });
    }
    let slot_count = slot_count(folder).unwrap_or(0);
    Kernel::load(&of_set(folder, slot_count))?.forget()
}

/// Removes sets with everything in them: all or, if one is used or is none of a BPF file system, none.
pub fn remove_all(folders: &[PathBuf]) -> Result<(), KernelError> {
    folders.iter().try_for_each(|folder| require_bpf(folder, folder))?;
    let _locks = folders.iter().map(|folder| lock_folder(folder)).collect::<Result<Vec<_>, _>>()?;
    for folder in folders {
        fs::remove_dir_all(folder).map_err(system(format!("removing {}", folder.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_removed_together_or_not_at_all() {
        let place = PathBuf::from(format!("/sys/fs/bpf/scotfree-remove-{}", std::process::id()));
        let sets = [place.join("0"), place.join("1")];
        if let Err(trouble) = sets.iter().try_for_each(|set| make_bpf_folder(set)) {
            eprintln!("SKIP: {trouble}");
            return;
        }
        let lock = lock_folder(&sets[1]).expect("nobody has it");
        let refused = remove_all(&sets).expect_err("one is used");
        assert!(matches!(&refused, KernelError::InUse { path, .. } if *path == sets[1]), "{refused}");
        assert!(sets[0].exists(), "half of a group's sets is gone");
        drop(lock);
        remove_all(&sets).expect("nobody has them");
        assert!(sets.iter().all(|set| !set.exists()));
        fs::remove_dir(&place).expect("it is ours");
    }

    #[test]
    fn what_is_no_set_is_not_removed() {
        let folder = std::env::temp_dir().join(format!("scot-no-set-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("it can be made");
        let refused = remove_all(std::slice::from_ref(&folder)).expect_err("it is somebody's");
        assert!(matches!(refused, KernelError::NoBpfFolder { .. }), "{refused}");
        fs::remove_dir(&folder).expect("it is still there");
    }
}
