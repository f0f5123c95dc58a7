//! Folders for what only this process needs.
//!
//! Invariant: a scratch folder is new when it is made and gone when it is dropped.

use crate::trouble::Trouble;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new, empty folder below the system's folder for temporary files.
    pub fn new(name: &str) -> Result<Scratch, Trouble> {
        Scratch::new_in(&std::env::temp_dir(), name)
    }

    /// A new, empty folder below another.
    pub fn new_in(parent: &Path, name: &str) -> Result<Scratch, Trouble> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("scot-{}-{count}-{name}", std::process::id()));
        // Left by a dead process that had our number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|error| Trouble::file("create the folder", &path, &error))?;
        Ok(Scratch { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = fs::remove_dir_all(&self.path);
    }
}
