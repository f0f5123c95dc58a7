//! What a sidecar tells its operator, line by line.
//!
//! Invariant: every line passes here, so whoever runs the sidecar decides which are told and how.

use std::fmt;
use std::sync::Arc;

/// Takes a sidecar's lines; clones share it.
#[derive(Clone)]
pub struct Notices(Arc<dyn Fn(&str) + Send + Sync>);

impl Notices {
    /// Lines go to `sink`.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Notices {
        Notices(Arc::new(sink))
    }

    /// A line that is good to know.
    pub fn say(&self, line: &str) {
        (self.0)(line);
    }

    /// A line that somebody should act on.
    pub fn alarm(&self, line: &str) {
        (self.0)(&format!("ALARM: {line}"));
    }
}

impl Default for Notices {
    /// Lines go to standard error.
    fn default() -> Notices {
        Notices::new(|line| eprintln!("sidecar: {line}"))
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}
