//! Folders for what only this process needs.
//!
//! Invariant: a scratch folder is new when it is made and gone when it is dropped; one whose process was
//! killed is removed by a later sweep, and no other is.

use crate::process::{find_tool, start_ticks_of};
use crate::trouble::Trouble;
use scotfree_io::lifetime::try_lock;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    // Held while its process lives, also where process numbers are not ours to read, as in a container
    // that shares the folder for temporary files.
    _lock: File,
}

impl Scratch {
    /// A new, empty folder below the system's folder for temporary files, where sockets may be bound.
    pub fn new(name: &str) -> Result<Scratch, Trouble> {
        Scratch::new_in(folder_for_sockets(&std::env::temp_dir()), name)
    }

    /// A new, empty folder below another, which is there.
    pub fn new_in(parent: &Path, name: &str) -> Result<Scratch, Trouble> {
        let path = parent.join(new_name(name));
        // Left by a dead process that had our number.
        let _ = remove(&path);
        let make = || {
            DirBuilder::new().mode(0o700).create(&path)?;
            let lock = File::open(&path)?;
            try_lock(&lock)?;
            Ok(lock)
        };
        let lock =
            make().map_err(|error: std::io::Error| Trouble::file("create the folder", &path, &error))?;
        Ok(Scratch { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = remove(&self.path);
    }
}

/// A name that says whose it is: no other thing of a process that lives has it.
pub(crate) fn new_name(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{count}-{name}", std::process::id())
}

/// Whether a path lies in a folder that goes with its process.
pub(crate) fn is_scratch(path: &Path) -> bool {
    path.iter().any(|name| name.to_str().is_some_and(|name| name.starts_with(PREFIX)))
}

/// Removes a folder with all that lies in it, also what is mounted there.
fn remove(folder: &Path) -> std::io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|place| {
        let place = Path::new(place);
        place.starts_with(folder) && place != folder
    });
    for place in below {
        // What stays mounted makes the removal fail, which is told.
        let _ =
            Command::new(find_tool("umount").unwrap_or_else(|| "umount".into())).args(["-l", place]).output();
    }
    fs::remove_dir_all(folder)
}

const PREFIX: &str = "scot-";
// Where temporary files go if TMPDIR names no folder that will do.
const USUAL: &str = "/tmp";
// What the kernel's `sun_path` holds, less its closing zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
// Below the folder for temporary files: `scot-`, a process, a count, an experiment, a socket.
const BELOW_BYTES_MAX: usize = 64;

/// Where temporary files go: TMPDIR if it names a folder that is there from wherever one stands, else the usual one.
pub fn temporary_folder() -> PathBuf {
    folder_or_usual(&std::env::temp_dir()).to_owned()
}

fn folder_for_sockets(wanted: &Path) -> &Path {
    let is_short = wanted.as_os_str().len() <= SOCKET_PATH_BYTES_MAX - BELOW_BYTES_MAX;
    folder_or_usual(if is_short { wanted } else { Path::new(USUAL) })
}

fn folder_or_usual(wanted: &Path) -> &Path {
    // A folder that nobody made is not made: nobody would remove it.
    if wanted.is_absolute() && wanted.is_dir() {
        wanted
    } else {
        Path::new(USUAL)
    }
}

/// Removes the folders that dead processes of this user left below `parent`; says how many.
pub fn sweep(parent: &Path) -> usize {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_of_the_dead));
    folders.filter(|folder| remove_left_behind(&folder.path())).count()
}

/// Whether a name is one of [`new_name`]'s whose process is gone.
pub(crate) fn is_of_the_dead(name: &str) -> bool {
    let pid_and_count = name.strip_prefix(PREFIX).and_then(|rest| {
        let mut parts = rest.splitn(3, '-');
        let (pid, count) = (parts.next()?.parse().ok()?, parts.next()?.parse::<u32>().ok()?);
        parts.next().map(|_| (pid, count))
    });
    pid_and_count.is_some_and(|(pid, _)| start_ticks_of(pid).is_none())
}

fn remove_left_behind(folder: &Path) -> bool {
    is_left_behind(folder) && remove(folder).is_ok()
}

/// Whether a folder is this user's, and no process that lives holds it.
pub(crate) fn is_left_behind(folder: &Path) -> bool {
    let is_ours = || {
        let (found, own) = (fs::symlink_metadata(folder)?, fs::metadata("/proc/self")?);
        if !found.is_dir() || found.uid() != own.uid() {
            return Ok(false);
        }
        let lock = File::open(folder)?;
        try_lock(&lock)
    };
    is_ours().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    // Larger than any number that the kernel gives.
    const NOBODY: u32 = 1 << 30;

    #[test]
    fn a_folder_is_its_owners_alone_and_goes_with_it() {
        let folder = Scratch::new("scratch").expect("temporary files can be written");
        let path = folder.path().to_owned();
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_temporary_folder_that_will_not_do_is_replaced_and_not_made() {
        let parent = Scratch::new("scratch-tmpdir").expect("temporary files can be written");
        let missing = parent.path().join("missing");
        for wanted in [Path::new("."), Path::new(""), &missing] {
            assert_eq!(folder_or_usual(wanted), Path::new(USUAL), "{}", wanted.display());
        }
        assert_eq!(folder_or_usual(parent.path()), parent.path());
        Scratch::new_in(&missing, "x").expect_err("nobody made its parent");
        assert!(!missing.exists());
        let long = parent.path().join("l".repeat(SOCKET_PATH_BYTES_MAX));
        fs::create_dir(&long).expect("it can be made");
        assert_eq!(folder_or_usual(&long), long, "files fit there");
        assert_eq!(folder_for_sockets(&long), Path::new(USUAL));
        assert_eq!(folder_for_sockets(Path::new("/proc")), Path::new("/proc"));
    }

    #[test]
    fn a_sweep_removes_the_folders_of_the_dead_and_nothing_else() {
        let parent = Scratch::new("scratch-sweep").expect("temporary files can be written");
        let own = Scratch::new_in(parent.path(), "own").expect("it can be made");
        let make = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir_all(folder.join("inner")).expect("it can be made");
            folder
        };
        let dead = make(&format!("scot-{NOBODY}-0-demo"));
        let locked = make(&format!("scot-{NOBODY}-1-elsewhere"));
        let lock = File::open(&locked).expect("it is there");
        assert!(try_lock(&lock).expect("it can be locked"));
        let others = [make(&format!("scot-{NOBODY}")), make("scot-demo-1-client"), make("else")];
        let link = parent.path().join(format!("scot-{NOBODY}-2-link"));
        std::os::unix::fs::symlink(&others[2], &link).expect("it can be made");
        assert_eq!(sweep(parent.path()), 1);
        assert!(!dead.exists() && own.path().exists() && locked.exists());
        assert!(link.is_symlink() && others.iter().all(|folder| folder.join("inner").exists()));
    }
}
