//! What is known of the end of a server's append-only files, which somebody else reads.
//!
//! Invariant: files of which something could not be read are never [`Ending::Whole`].

use std::path::PathBuf;

/// What reading the files has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Every transaction is complete.
    Whole,
    /// A transaction has no end, or another begins inside it.
    Open {
        /// Where it is.
        file: PathBuf,
        /// Where it begins.
        offset: u64,
    },
    /// The file does not show it.
    Unknown {
        /// Which.
        file: PathBuf,
        /// Why not.
        reason: String,
    },
}
