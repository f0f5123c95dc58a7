//! What a remedy says of itself: one line of the command line's registry, and all that others know of it.

use crate::StageSet;

/// A way to take stages off a request's critical path.
#[derive(Debug, Clone, Copy)]
pub struct RemedyEntry {
    /// Its folder's name without `remedy-`.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// The stages that it takes off the critical path.
    pub removes: fn() -> StageSet,
    /// What must hold for it to apply, in words for the operator.
    pub preconditions: &'static [&'static str],
    /// The folders that an answer's time depends on: what was fitted before they changed says nothing any more.
    pub covers: &'static [&'static str],
}
