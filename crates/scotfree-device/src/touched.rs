//! What has changed, for whoever must be told: a fast path, or a table in the kernel.

use crate::sessions::SessionName;
use scotfree_core::SeqNum;
use std::collections::BTreeSet;

/// What the machine has changed since it was last asked.
#[derive(Debug, Default)]
pub struct Touched {
    /// Sessions, also such as are gone.
    pub sessions: BTreeSet<SessionName>,
    /// Slots of sessions.
    pub slots: BTreeSet<(SessionName, SeqNum)>,
}
