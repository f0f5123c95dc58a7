//! A folder of a test's own, removed when the test ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    /// A folder below the system's temporary one.
    pub fn new() -> Folder {
        Folder::below(&std::env::temp_dir()).expect("the temporary folder is writable")
    }

    /// A folder in memory, where there is one.
    #[allow(dead_code)] // Not every test binary wants one.
    pub fn in_memory() -> Option<Folder> {
        Folder::below(Path::new("/dev/shm")).ok()
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn below(parent: &Path) -> std::io::Result<Folder> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("scot-io-{}-{count}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left for the system's own cleaning of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
