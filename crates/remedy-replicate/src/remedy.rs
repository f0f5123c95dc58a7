//! What the remedy says of itself: which stages it takes off the critical path, and when.

use scotfree_core::{RemedyEntry, Stage, StageSet};

/// Groups of servers that keep one state.
pub const ENTRY: RemedyEntry = RemedyEntry {
    name: "replicate",
    about: "several servers keep one state: each answers reads, and the group goes on when one of them dies",
    removes,
    preconditions: &[
        "the service can be copied: it says which keys a request touches, and executes writes alike everywhere",
        "reads are a good part of the requests, or the service must outlive a host",
        "an etcd, or an operator's file, says who belongs to the group",
    ],
    covers: &[
        "crates/remedy-replicate",
        "crates/scotfree-io",
        "crates/scotfree-kv",
        "crates/scotfree-rpc",
        "crates/scotfree-session",
        "crates/scotfree-state",
        "crates/scotfree-wire",
    ],
};

/// Reads are spread over as many servers as the group has.
fn removes() -> StageSet {
    StageSet::of(&[Stage::ServerRecvQueue])
}
