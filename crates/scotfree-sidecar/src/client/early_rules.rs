//! The rules of early answers, which may be changed while the sidecar runs.
//!
//! Invariant: a connection keeps the rule that held when it was accepted.

use scotfree_resp::front::EarlyRule;
use std::sync::{Arc, Mutex, PoisonError};

/// By which the rules are changed; clones share them.
#[derive(Debug, Clone, Default)]
pub struct EarlyRules(Arc<Mutex<Option<EarlyRule>>>);

impl EarlyRules {
    /// Connections accepted from now on, at every listener, follow `rule`. Those that are open keep theirs.
    pub fn set(&self, rule: EarlyRule) {
        // A thread that panicked left a whole rule.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rule);
    }

    /// The rule that was set since the last time.
    pub(super) fn take(&self) -> Option<EarlyRule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
