//! What the remedy says of itself, and how its function is made.

use crate::cache::Limits;
use crate::fault::Planted;
use crate::function::ReadCache;
use crate::language::Redis;
use scotfree_core::{RemedyEntry, Stage, StageSet};
use scotfree_device::{Function, Maker, Settings};

/// Reads answered by the device.
pub const ENTRY: RemedyEntry = RemedyEntry {
    name: "cache",
    about: "the last device before a server answers reads of what it has seen pass",
    removes,
    preconditions: &[
        "the request is a GET whose key was read or set through the device",
        "the device is the last before the server, on every way to it, and holds its lease",
        "nobody writes the store in another way",
        "the server says of its replies how long they are true; without that only plain early SETs are answered",
    ],
    covers: &[
        "crates/remedy-cache",
        "crates/scotfree-device",
        "crates/scotfree-io",
        "crates/scotfree-session",
        "crates/scotfree-switch",
        "crates/scotfree-wire",
    ],
};

/// The stages beyond the device fall away.
fn removes() -> StageSet {
    StageSet::of(&[Stage::ServerRecvQueue, Stage::ServerApp, Stage::ServerSendQueue, Stage::ResponseStack])
}

/// How its function is made.
pub const MAKER: Maker = Maker { name: "cache", make };

fn make(_settings: &Settings) -> Box<dyn Function> {
    Box::new(ReadCache::new(Limits::default(), Box::new(Redis), Planted::NONE))
}
