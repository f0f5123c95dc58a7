//! Why a record of the log was not taken over.

/// Why a record was not restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// Of a version that this build does not know.
    Version {
        /// The record's.
        found: u8,
        /// The one that this build reads.
        known: u8,
    },
    /// Shorter than its type requires, or with a value that it must not hold.
    Malformed,
    /// It does not fit this device's `sessions_max` and `window_max`.
    Layout,
    /// Of a server that this device does not serve, by its place in the list of servers.
    Server(u8),
}

impl std::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RestoreError::Version { found, known } => {
                write!(f, "log record of version {found}, this build reads {known}")
            }
            RestoreError::Malformed => f.write_str("malformed log record"),
            RestoreError::Layout => {
                f.write_str("log record outside this device's sessions_max and window_max; start with those it was written with")
            }
            RestoreError::Server(index) => write!(
                f,
                "log record of server {index} (counted from 0), and fewer are configured; start with the servers it was written with"
            ),
        }
    }
}

impl std::error::Error for RestoreError {}
