//! Checks that no compiler makes, on the text of the repository.
//!
//! Invariant: each check is a pure function from the files to complaints, and a test shows it
//! complaining.

mod clippy;
mod dependencies;
mod edges;
mod ignored;
mod limits;
mod modules;
mod mutations;
mod opening;
mod plots;
mod words;

use anyhow::{bail, ensure, Context, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// The crates whose code must be a function of its arguments.
const MACHINE_CRATES: [&str; 11] = [
    "scotfree-core",
    "scotfree-wire",
    "scotfree-cache",
    "scotfree-session",
    "scotfree-device",
    "scotfree-resp",
    "remedy-persist",
    "remedy-cache",
    "scotfree-state",
    "remedy-replicate",
    "remedy-ring",
];
/// Files that are longer than this are named in the report.
const LINES_COMFORTABLE: usize = 400;

/// The repository's text files, by their paths from its root, and the marks of its plots.
#[derive(Debug, Default)]
pub struct Files {
    texts: BTreeMap<String, String>,
    /// What a picture says of its making.
    marks: BTreeMap<String, String>,
}

impl Files {
    /// The files that git knows or would take. What is not text is left out.
    pub fn read(root: &Path) -> Result<Files> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("asking git for the files; tidy needs git and a working tree: install git")?;
        ensure!(listed.status.success(), "git: {}", String::from_utf8_lossy(&listed.stderr).trim());
        let paths = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
        let mut files = Files::default();
        for path in paths.split_terminator('\0') {
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            if let Some(mark) = plots::mark_of(&bytes) {
                files.marks.insert(path.to_owned(), mark);
            } else if let Ok(text) = String::from_utf8(bytes) {
                files.texts.insert(path.to_owned(), text);
            }
        }
        Ok(files)
    }

    /// Files of known text.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Files {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Files { texts, marks: BTreeMap::new() }
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Complaint {
    path: String,
    /// From 1; 0 if it is about the whole file.
    line: usize,
    text: String,
}

impl Complaint {
    fn of_file(path: &str, text: impl Into<String>) -> Complaint {
        Complaint { path: path.into(), line: 0, text: text.into() }
    }

    fn of_line(path: &str, index: usize, text: impl Into<String>) -> Complaint {
        Complaint { path: path.into(), line: index + 1, text: text.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// Runs every check and refuses if one complains. With `is_verbose` the long files are named.
pub fn run(root: &Path, is_verbose: bool) -> Result<()> {
    let files = Files::read(root)?;
    print!("{}", report_lengths(&files, is_verbose));
    let complaints = check(&files);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    match complaints.len() {
        0 => Ok(()),
        count => bail!("{count} complaint(s)"),
    }
}

fn check(files: &Files) -> Vec<Complaint> {
    let checks = [
        opening::check,
        words::check,
        dependencies::check,
        edges::check,
        limits::check,
        modules::check,
        mutations::check,
        ignored::check,
        clippy::check,
        plots::check,
    ];
    checks.iter().flat_map(|check| check(files)).collect()
}

/// Counts the files that one does not read in one sitting, or names them, longest first. Length alone is no fault.
fn report_lengths(files: &Files, is_verbose: bool) -> String {
    let rust = files.iter().filter(|(path, _)| is_rust(path));
    let mut lengths: Vec<(usize, &str)> = rust.map(|(path, text)| (text.lines().count(), path)).collect();
    lengths.sort_unstable_by(|left, right| right.cmp(left));
    let total: usize = lengths.iter().map(|(lines, _)| lines).sum();
    let long: Vec<_> = lengths.iter().filter(|(lines, _)| *lines > LINES_COMFORTABLE).collect();
    let found = format!("{total} lines of Rust in {} files", lengths.len());
    if !is_verbose {
        return format!("{found}, {} longer than {LINES_COMFORTABLE} (named with --verbose)\n", long.len());
    }
    let list: Vec<String> = long.iter().map(|(lines, path)| format!("  {lines:>5} {path}\n")).collect();
    format!("{found}; longer than {LINES_COMFORTABLE}:\n{}", list.concat())
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// The words of a text: runs of letters, digits and underscores.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_read() {
        let files = Files::read(&crate::root()).expect("the tests run in a working tree");
        assert!(files.get("Cargo.toml").is_some_and(|text| text.contains("[workspace]")));
        assert!(files.get("crates/xtask/src/tidy.rs").is_some());
        assert!(files.iter().all(|(path, _)| !path.starts_with("target/")));
    }

    #[test]
    fn a_folder_that_git_does_not_know_is_refused() {
        let error = Files::read(Path::new("/")).expect_err("the root folder is no working tree");
        assert!(error.to_string().contains("git"), "{error}");
    }

    #[test]
    fn long_files_are_reported_and_short_ones_are_not() {
        let long = "//! x\n".repeat(LINES_COMFORTABLE + 1);
        let files = Files::of(&[("a.rs", &long), ("b.rs", "//! x\n"), ("c.md", &long)]);
        let named = "402 lines of Rust in 2 files; longer than 400:\n    401 a.rs\n";
        assert_eq!(report_lengths(&files, true), named);
        let counted = "402 lines of Rust in 2 files, 1 longer than 400 (named with --verbose)\n";
        assert_eq!(report_lengths(&files, false), counted);
    }

    #[test]
    fn a_complaint_names_its_place() {
        assert_eq!(Complaint::of_line("a.rs", 6, "bad").to_string(), "a.rs:7: bad");
        assert_eq!(Complaint::of_file("a.rs", "bad").to_string(), "a.rs: bad");
    }
}
