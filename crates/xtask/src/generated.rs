//! Generated files: written by one command, compared by the tests.
//!
//! Invariant: checking changes nothing.

use anyhow::{bail, Context, Result};
use std::path::Path;

/// A file that the code determines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Its path from the repository's root.
    pub path: String,
    /// What stands in it.
    pub text: String,
}

/// Writes the files.
pub fn write(root: &Path, files: &[Generated]) -> Result<()> {
    for file in files {
        let path = root.join(&file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("making the folder of {}", file.path))?;
        }
        std::fs::write(&path, &file.text).with_context(|| format!("writing {}", file.path))?;
    }
    Ok(())
}

/// Refuses files that are not what the code determines; `command` makes them anew.
pub fn check(root: &Path, files: &[Generated], command: &str) -> Result<()> {
    for file in files {
        let found = std::fs::read_to_string(root.join(&file.path))
            .with_context(|| format!("{} is missing: run `cargo run -p xtask -- {command}`", file.path))?;
        if found != file.text {
            bail!("{} is not what the code says: run `cargo run -p xtask -- {command}`", file.path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_passes_and_a_changed_or_missing_file_does_not() {
        let root = std::env::temp_dir().join(format!("xtask-generated-{}", std::process::id()));
        let files = [Generated { path: "a/b.txt".into(), text: "one\n".into() }];
        assert!(check(&root, &files, "x").is_err_and(|error| error.to_string().contains("missing")));
        write(&root, &files).expect("the temporary folder is writable");
        assert!(check(&root, &files, "x").is_ok());
        std::fs::write(root.join("a/b.txt"), "two\n").expect("the temporary folder is writable");
        assert!(check(&root, &files, "x").is_err_and(|error| error.to_string().contains("not what")));
        std::fs::remove_dir_all(&root).expect("our own folder can be removed");
    }
}
