//! What the remedy says of itself: which stages it takes off the critical path, and when.

use scotfree_core::{RemedyEntry, Stage, StageSet};

/// In-network persistence.
pub const ENTRY: RemedyEntry = RemedyEntry {
    name: "persist",
    about: "a device on the path logs updates durably and acknowledges them before the server has seen them",
    removes,
    preconditions: &[
        "the request is an update whose reply is known in advance (early), or its caller waits for durability (covered)",
        "a device is on the path and holds a lease from the server",
        "the server's storage reports when an update is stable",
    ],
    covers: &[
        "crates/remedy-persist",
        "crates/scotfree-device",
        "crates/scotfree-io",
        "crates/scotfree-rpc",
        "crates/scotfree-session",
        "crates/scotfree-switch",
        "crates/scotfree-wire",
    ],
};

/// The stages beyond the device fall away; both wires stay, since the device stands beside the server.
fn removes() -> StageSet {
    StageSet::of(&[Stage::ServerRecvQueue, Stage::ServerApp, Stage::ServerSendQueue, Stage::ResponseStack])
}
