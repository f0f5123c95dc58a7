//! Errors of the lab: an environment that cannot do it, and configuration that cannot be read.
//!
//! Invariant: each says what was tried, what went wrong, and what to do next; a configuration error names
//! file, line and key.

use std::fmt;
use std::path::{Path, PathBuf};

/// An environment that could not do what was asked of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{tried}: {problem}; {next}")]
pub struct Trouble {
    /// What was tried.
    pub tried: String,
    /// What was missing or wrong.
    pub problem: String,
    /// What to do next.
    pub next: String,
}

impl Trouble {
    /// What was tried, what went wrong, and what to do next.
    pub fn new(tried: impl Into<String>, problem: impl fmt::Display, next: impl Into<String>) -> Trouble {
        Trouble { tried: tried.into(), problem: problem.to_string(), next: next.into() }
    }

    /// A file that could not be used.
    pub fn file(verb: &str, path: &Path, error: &std::io::Error) -> Trouble {
        Trouble::new(
            format!("{verb} {}", path.display()),
            error,
            "check that the path exists, that its owner is you, and that the disk is not full",
        )
    }
}

/// A configuration file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}{problem}", file.display(), LineSuffix(*line), KeyPrefix(key))]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 where the file could not be read.
    pub line: usize,
    /// The key, where one is to blame.
    pub key: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

struct LineSuffix(usize);

impl fmt::Display for LineSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            Ok(())
        } else {
            write!(f, ":{}", self.0)
        }
    }
}

struct KeyPrefix<'a>(&'a str);

impl fmt::Display for KeyPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "`{}`: ", self.0)
        }
    }
}
