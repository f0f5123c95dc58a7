//! The tables that outlive the daemon, in a folder of the BPF file system.
//!
//! Invariant: who finds the shared memory there finds all tables, and only one process has the folder locked.

use super::holder::holder_of;
use super::{TABLE_SHARED, TABLE_SLOTS};
use crate::error::{bpf, other_layout, refused, shut_out, system, KernelError};
use crate::links::{c_path, kept_links, remove_link};
use crate::shared::{layout_of, VERSION};
use libbpf_rs::{MapCore, MapHandle, Object, OpenObject};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// `f_type` of a BPF file system.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
/// How the names of tables begin.
const TABLE_PREFIX: &str = "table-";

// ---- what outlives the daemon

pub(crate) fn make_bpf_folder(folder: &Path) -> Result<(), KernelError> {
    // Looked at before anything is made: elsewhere a folder is of no use, and the place where a BPF file system
    // belongs takes none.
    let whole = std::path::absolute(folder).map_err(system(format!("finding {}", folder.display())))?;
    let there = whole.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    require_bpf(folder, there)?;
    refuse_mount_point(folder)?;
    refuse_dots(folder, whole.strip_prefix(there).expect("it is an ancestor"))?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(shut_out(folder, format!("making the folder {}", folder.display())))
}

/// Refuses a folder on which a file system is mounted: it is not one set's or device's, and nobody can remove it.
pub fn refuse_mount_point(folder: &Path) -> Result<(), KernelError> {
    // The folder above it, wherever links lead.
    let device_of = |place: &Path| place.metadata().map(|found| found.dev()).ok();
    let (inside, above) = (device_of(folder), device_of(&folder.join("..")));
    if inside.is_some() && inside != above {
        return Err(KernelError::MountPoint { path: folder.to_owned() });
    }
    Ok(())
}

/// The kernel says of them only that making them is not permitted.
fn refuse_dots(folder: &Path, new: &Path) -> Result<(), KernelError> {
    let names = new.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    match names.into_iter().find(|name| name.contains('.')) {
        Some(name) => Err(KernelError::Dot { path: folder.to_owned(), name }),
        None => Ok(()),
    }
}

/// Refuses `folder` if `there`, as much of it as there is, is on another file system.
pub(crate) fn require_bpf(folder: &Path, there: &Path) -> Result<(), KernelError> {
    if file_system_of(there)? == BPF_FS_MAGIC {
        Ok(())
    } else {
        Err(KernelError::NoBpfFolder { path: folder.to_owned() })
    }
}

fn file_system_of(place: &Path) -> Result<i64, KernelError> {
    let path = c_path(place);
    let mut status = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero byte and the kernel fills the whole struct if it returns 0.
    unsafe {
        if libc::statfs(path.as_ptr(), status.as_mut_ptr()) != 0 {
            return Err(system(format!("looking at {}", place.display()))(io::Error::last_os_error()));
        }
        Ok(status.assume_init().f_type)
    }
}

/// Two daemons behind the same programs would each believe to know what the machine has decided.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, KernelError> {
    let opened = File::open(folder).map_err(shut_out(folder, format!("opening {}", folder.display())))?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(opened.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(opened);
    }
    let source = io::Error::last_os_error();
    if source.kind() == io::ErrorKind::WouldBlock {
        return Err(KernelError::InUse { path: folder.to_owned(), holder: holder_of(&opened) });
    }
    Err(system(format!("locking {}", folder.display()))(source))
}

/// Tables that are kept; the rest is made anew with every load of the programs.
fn is_kept(name: &OsStr) -> bool {
    name == TABLE_SHARED || name.as_bytes().starts_with(b"scot_")
}

/// Whether tables lie there that no daemon has ever used.
pub(super) fn is_unused(folder: &Path) -> Result<bool, KernelError> {
    let path = table_path(folder, OsStr::new(TABLE_SHARED));
    if !path.exists() {
        return Ok(false);
    }
    let table = MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))?;
    let layout = layout_of(table.as_fd(), table.value_size() as usize);
    Ok(layout.map_err(system(format!("mapping {}", path.display())))? == 0)
}

/// A log that is begun in a folder: unless it is kept, what was pinned for it goes with this value, since no
/// daemon would run behind programs of a start that failed.
pub(super) struct NewLog {
    folder: PathBuf,
    is_kept: AtomicBool,
}

impl NewLog {
    pub(super) fn begin(folder: &Path) -> NewLog {
        NewLog { folder: folder.to_path_buf(), is_kept: AtomicBool::new(false) }
    }

    pub(super) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for NewLog {
    fn drop(&mut self) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        for link in kept_links(&self.folder).unwrap_or_default() {
            remove_link(&link);
        }
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(TABLE_PREFIX.as_bytes()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        // It goes only if it is empty: what somebody else has put there stays.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

pub(crate) fn table_path(folder: &Path, name: &OsStr) -> PathBuf {
    folder.join(format!("{TABLE_PREFIX}{}", name.to_string_lossy().trim_start_matches('.').replace('.', "-")))
}

pub(crate) fn adopt_tables(
    open: &mut OpenObject,
    folder: &Path,
    slot_count: u32,
) -> Result<bool, KernelError> {
    if !table_path(folder, OsStr::new(TABLE_SHARED)).exists() {
        return Ok(false);
    }
    require_layout(folder)?;
    if let Some(bytes) = open.maps().find(|map| map.name() == TABLE_SLOTS).map(|map| map.value_size()) {
        require_slots(folder, slot_count, bytes)?;
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

/// Refuses tables of another layout, by the number that stands in each.
pub(crate) fn require_layout(folder: &Path) -> Result<(), KernelError> {
    let path = table_path(folder, OsStr::new(TABLE_SHARED));
    let table = MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))?;
    let layout = layout_of(table.as_fd(), table.value_size() as usize);
    let layout = layout.map_err(system(format!("mapping {}", path.display())))?;
    // A log that nobody has begun has none.
    if layout == VERSION || layout == 0 {
        return Ok(());
    }
    Err(other_layout(folder, layout, VERSION))
}

fn require_slots(folder: &Path, count: u32, bytes: u32) -> Result<(), KernelError> {
    let path = table_path(folder, OsStr::new(TABLE_SLOTS));
    let kept = MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))?;
    if (kept.max_entries(), kept.value_size()) == (count, bytes) {
        return Ok(());
    }
    let found = format!("a log of {} slots of {} bytes", kept.max_entries(), kept.value_size());
    Err(refused(folder, found, format!("{count} slots of {bytes} bytes")))
}

pub(crate) fn pin_tables(object: &mut Object, folder: &Path) -> Result<(), KernelError> {
    // The shared memory last: who finds it finds all.
    let names: Vec<_> = object.maps().map(|map| map.name().to_owned()).filter(|name| is_kept(name)).collect();
    let (shared, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == TABLE_SHARED);
    for name in others.into_iter().chain(shared) {
        let path = table_path(folder, &name);
        // Left by a daemon that died while it did this.
        let _ = std::fs::remove_file(&path);
        let mut map = object.maps_mut().find(|map| map.name() == name).expect("it was listed");
        map.pin(&path).map_err(bpf(format!("keeping the table {}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        bpf, lock_folder, make_bpf_folder, refuse_dots, refuse_mount_point, table_path, TABLE_SHARED,
        TABLE_SLOTS, VERSION,
    };
    use crate::{Functions, Kernel, KernelConfig, KernelError};
    use libbpf_rs::{libbpf_sys, MapCore, MapFlags, MapHandle, MapType};
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};

    #[test]
    fn a_name_with_a_dot_is_refused_with_one_that_can_be_made() {
        let refused =
            |new| refuse_dots(Path::new("/sys/fs/bpf/x"), Path::new(new)).map_err(|error| error.to_string());
        let said = refused("a.b/c").expect_err("the kernel makes none");
        assert!(said.contains("`a.b` has a dot") && said.ends_with("name it `a-b`"), "{said}");
        assert_eq!(refused("../a-b/c"), Ok(()), "these are no names");
    }

    #[test]
    fn a_file_system_is_no_folder_of_it() {
        let refused = refuse_mount_point(Path::new("/proc")).expect_err("every machine has it there");
        assert!(refused.to_string().ends_with("name one below it: /proc/scotfree-NAME"), "{refused}");
        refuse_mount_point(Path::new("/proc/self")).expect("it is a folder");
        refuse_mount_point(Path::new("/proc/none")).expect("what is not there is none");
    }

    #[test]
    fn who_has_a_folder_is_named() {
        let folder = std::env::temp_dir().join(format!("scot-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be made");
        let lock = lock_folder(&folder).expect("nobody has it");
        let refused = lock_folder(&folder).expect_err("this process has it").to_string();
        let pid = std::process::id();
        assert!(refused.contains(&format!("is in use: process {pid} has it")), "{refused}");
        assert!(refused.contains(&format!("(kill {pid})")), "{refused}");
        drop(lock);
        lock_folder(&folder).expect("nobody has it any more");
        std::fs::remove_dir(&folder).expect("it is ours");
    }

    fn config_of(folder: &Path, slot_count: u32) -> KernelConfig {
        KernelConfig { slot_count, pin: Some(folder.to_owned()), functions: Functions::ALL }
    }

    /// Tables as another layout's daemon has left them: of another size, with its number where every layout has it.
    fn leave_old_tables(folder: &Path, layout: u32) -> Result<(), KernelError> {
        make_bpf_folder(folder)?;
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..libbpf_sys::bpf_map_create_opts::default()
        };
        let failed = |doing: &'static str| bpf(doing);
        for (name, bytes) in [(TABLE_SHARED, 4_264), (TABLE_SLOTS, 1_536)] {
            let made = MapHandle::create(MapType::Array, Some("old"), 4, bytes, 1, &options);
            let mut table = made.map_err(failed("making an old table"))?;
            if name == TABLE_SHARED {
                let mut value = vec![0; bytes as usize];
                value[16..20].copy_from_slice(&layout.to_ne_bytes());
                table.update(&[0; 4], &value, MapFlags::ANY).map_err(failed("filling an old table"))?;
            }
            table.pin(table_path(folder, OsStr::new(name))).map_err(failed("keeping an old table"))?;
        }
        Ok(())
    }

    #[test]
    fn tables_of_another_layout_are_refused_by_its_number() {
        let folder = PathBuf::from(format!("/sys/fs/bpf/scotfree-old-{}", std::process::id()));
        if let Err(trouble) = leave_old_tables(&folder, 2) {
            eprintln!("SKIP: {trouble}");
            return;
        }
        let refusals = [
            Kernel::load(&config_of(&folder, 1)).map(drop).expect_err("it is of another layout"),
            crate::Kept::open(&folder).map(drop).expect_err("it is of another layout"),
        ];
        for refused in refusals.map(|refused| refused.to_string()) {
            let wanted = format!("holds tables of layout 2, this daemon needs layout {VERSION};");
            assert!(refused.contains(&wanted), "{refused}");
            assert!(refused.ends_with(&format!("give it up: rm -r {}", folder.display())), "{refused}");
        }
        // A set's log cannot be ended by a build that cannot read it: the set goes.
        std::fs::create_dir(folder.join("program-ingress")).expect("it can be made");
        let refused = super::require_layout(&folder).expect_err("it is of another layout").to_string();
        assert!(refused.contains("scot setup --group GROUP --remove, then"), "{refused}");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    /// A daemon that is killed between loading and attaching leaves such.
    #[test]
    fn tables_that_no_daemon_has_used_are_made_anew() {
        let folder = PathBuf::from(format!("/sys/fs/bpf/scotfree-unused-{}", std::process::id()));
        let load = |slot_count| Kernel::load(&config_of(&folder, slot_count));
        let killed = match load(64) {
            Ok(kernel) => kernel,
            Err(trouble @ (KernelError::Load { .. } | KernelError::NoBpfFolder { .. })) => {
                eprintln!("SKIP: {trouble}");
                return;
            }
            Err(trouble) => panic!("{trouble}"),
        };
        killed.new_log.as_ref().expect("the folder was empty").keep();
        drop(killed);
        let next = load(128).expect("nothing in these tables is needed");
        assert!(!next.adopted());
        drop(next);
        assert!(!folder.exists(), "what failed before it was attached leaves nothing");
    }
}
