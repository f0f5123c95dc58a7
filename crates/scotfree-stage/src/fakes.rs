//! What tests are made of, here and in the crates above.
//!
//! Invariant: nothing but tests is built with it.

use crate::config::Source;
use crate::environment::git;
use crate::scratch::Scratch;
use crate::workload::Workload;
use std::fs;

/// The text of a small workload: a thousand SETs.
pub(crate) const WORKLOAD: &str =
    "name = \"example\"\nconnections = 2\nduration_ms_max = 5000\nvalue_bytes = 8\n\
    keys = 10\nrequests_max = 1000\n[mix]\nSET = 3\n[closed]\noutstanding = 1\n";

/// The same with GETs.
pub fn example_workload() -> Workload {
    let text = WORKLOAD.replace("SET = 3", "SET = 3\nGET = 1");
    Workload::parse(&Source::from_text("w.toml", text)).expect("it is a workload")
}

/// A repository of git.
#[derive(Debug)]
pub struct Repository {
    /// Where it lies.
    pub folder: Scratch,
}

impl Repository {
    /// An empty one; says so where there is no git.
    pub fn new() -> Option<Repository> {
        let folder = Scratch::new("repository").expect("temporary files can be written");
        match git(folder.path(), &["init", "-q"]) {
            Ok(_) => Some(Repository { folder }),
            Err(problem) => {
                eprintln!("skipped: {problem}");
                None
            }
        }
    }

    /// Writes a file with this text.
    pub fn write(&self, file: &str, text: &str) {
        let file = self.folder.path().join(file);
        fs::create_dir_all(file.parent().expect("it has one")).expect("it can be written");
        fs::write(file, text).expect("it can be written");
    }

    /// Commits a file with this text.
    pub fn commit(&self, file: &str, text: &str) {
        self.write(file, text);
        git(self.folder.path(), &["add", "-A"]).expect("git adds");
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
        let words = [&who[..], &["commit", "-q", "-m", "x"]].concat();
        git(self.folder.path(), &words).expect("git commits");
    }
}
