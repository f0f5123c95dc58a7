//! What is asked of etcd, and what it answers, without a word of how it is spoken to.

/// A question. Each is one request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// All keys of the group, as they were at one moment.
    Look,
    /// A new lease.
    Grant {
        /// etcd counts whole seconds.
        ttl_seconds: u64,
    },
    /// Prolongs a lease.
    KeepAlive { lease: i64 },
    /// Ends a lease before its time, and the keys that live by it.
    Revoke { lease: i64 },
    /// Writes a key, if nothing of what is guarded has changed.
    Swap(Swap),
}

/// A write that is done only if all guards hold, in one step of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Swap {
    pub(crate) guards: Vec<Guard>,
    /// Without the prefix.
    pub(crate) key: String,
    pub(crate) value: String,
    /// The key is gone when this lease is over.
    pub(crate) lease: Option<i64>,
}

/// What must be so of a key, by its name without the prefix. A revision of 0 is that of a key that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Guard {
    /// It has been there without a gap since it was made at this revision.
    Made { key: String, revision: i64 },
    /// It was last written at this revision.
    Written { key: String, revision: i64 },
}

/// An answer, to the question of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// To [`Request::Look`].
    Looked {
        /// All keys.
        entries: Vec<Entry>,
        /// The term of etcd's leader, or a later one.
        term: u64,
    },
    /// To [`Request::Grant`]; the time may be longer than was wished.
    Granted { lease: i64, ttl_seconds: u64 },
    /// To [`Request::KeepAlive`]: how long it lasts from when etcd got the question; 0 if it was over.
    KeptAlive { ttl_seconds: u64 },
    /// To [`Request::Revoke`], also if it was over.
    Revoked,
    /// To [`Request::Swap`]: whether it was done.
    Swapped(bool),
    /// To [`Request::Swap`]: the lease that the key was to live by is over.
    LeaseOver,
}

/// A key of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Without the prefix.
    pub(crate) key: String,
    pub(crate) value: String,
    /// At which revision it was made, and there without a gap since.
    pub(crate) made: i64,
    /// At which revision it was last written.
    pub(crate) written: i64,
    /// The lease that it lives by; 0 if none.
    pub(crate) lease: i64,
}
