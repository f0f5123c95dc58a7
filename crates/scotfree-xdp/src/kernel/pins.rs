//! The tables that outlive the daemon, in a folder of the BPF file system.
//!
//! Invariant: who finds the log's slots there finds all tables, and only one process has the folder locked.

use super::{TABLE_SHARED, TABLE_SLOTS};
use crate::error::{bpf, refused, system, KernelError};
use crate::links::c_path;
use crate::skeleton::types;
use libbpf_rs::{MapCore, MapHandle, Object, OpenObject};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// `f_type` of a BPF file system.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

// ---- what outlives the daemon

pub(crate) fn make_bpf_folder(folder: &Path) -> Result<(), KernelError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(system(format!("making the folder {}", folder.display())))?;
    let path = c_path(folder);
    let mut status = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero byte and the kernel fills the whole struct if it returns 0.
    let kind = unsafe {
        if libc::statfs(path.as_ptr(), status.as_mut_ptr()) != 0 {
            return Err(system(format!("looking at {}", folder.display()))(io::Error::last_os_error()));
        }
        status.assume_init().f_type
    };
    if kind == BPF_FS_MAGIC {
        return Ok(());
    }
    // What this call made elsewhere is of no use.
    let _ = std::fs::remove_dir(folder);
    Err(KernelError::NoBpfFolder { path: folder.to_owned() })
}

/// Two daemons behind the same programs would each believe to know what the machine has decided.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, KernelError> {
    let opened = File::open(folder).map_err(system(format!("opening {}", folder.display())))?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(opened.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(opened);
    }
    let source = io::Error::last_os_error();
    let doing =
        format!("locking {}, which another daemon has (ps -ef | grep \"scot switch\"),", folder.display());
    Err(KernelError::Io { doing, source })
}

/// Tables that are kept; the rest is made anew with every load of the programs.
fn is_kept(name: &OsStr) -> bool {
    name == TABLE_SHARED || name.as_bytes().starts_with(b"scot_")
}

pub(crate) fn table_path(folder: &Path, name: &OsStr) -> PathBuf {
    folder.join(format!("table-{}", name.to_string_lossy().trim_start_matches('.').replace('.', "-")))
}

pub(crate) fn adopt_tables(
    open: &mut OpenObject,
    folder: &Path,
    slot_count: u32,
) -> Result<bool, KernelError> {
    let slots = table_path(folder, OsStr::new(TABLE_SLOTS));
    if !slots.exists() {
        return Ok(false);
    }
    let kept = MapHandle::from_pinned_path(&slots).map_err(bpf(format!("opening {}", slots.display())))?;
    if (kept.max_entries(), kept.value_size()) != (slot_count, size_of::<types::scot_slot>() as u32) {
        let found = format!("a log of {} slots of {} bytes", kept.max_entries(), kept.value_size());
        let wanted = format!("{slot_count} slots of {} bytes", size_of::<types::scot_slot>());
        return Err(refused(folder, found, wanted));
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_owned();
        if is_kept(&name) {
            let path = table_path(folder, &name);
            map.reuse_pinned_map(&path).map_err(bpf(format!("taking over {}", path.display())))?;
        }
    }
    Ok(true)
}

pub(crate) fn pin_tables(object: &mut Object, folder: &Path) -> Result<(), KernelError> {
    // The slots last: who finds them finds all.
    let names: Vec<_> = object.maps().map(|map| map.name().to_owned()).filter(|name| is_kept(name)).collect();
    let (slots, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == TABLE_SLOTS);
    for name in others.into_iter().chain(slots) {
        let path = table_path(folder, &name);
        // Left by a daemon that died while it did this.
        let _ = std::fs::remove_file(&path);
        let mut map = object.maps_mut().find(|map| map.name() == name).expect("it was listed");
        map.pin(&path).map_err(bpf(format!("keeping the table {}", path.display())))?;
    }
    Ok(())
}
