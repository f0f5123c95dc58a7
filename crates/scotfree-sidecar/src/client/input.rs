//! What all connections together hold of their clients' requests.
//!
//! Invariant: behind `input_bytes_max` only connections that hold little are read, so the bound is passed by
//! no more than [`LITTLE_BYTES_MAX`] for each connection; and there is always one that can go on, or that is
//! refused.

use super::sessions::ConnectionKey;
use std::collections::BTreeSet;

/// A connection that holds no more than this is read in any case: small requests go on.
pub(super) const LITTLE_BYTES_MAX: usize = 64 << 10;

/// The sum, and who waits for it to fall.
#[derive(Debug)]
pub(super) struct InputBudget {
    bytes_max: usize,
    held: usize,
    paused: BTreeSet<ConnectionKey>,
    refused: u64,
}

impl InputBudget {
    pub fn new(bytes_max: usize) -> InputBudget {
        InputBudget { bytes_max, held: 0, paused: BTreeSet::new(), refused: 0 }
    }

    /// A connection holds `after` bytes now, and held `before`.
    pub fn change(&mut self, before: usize, after: usize) {
        self.held = self.held - before + after;
    }

    /// Whether a connection that holds so much may be read.
    pub fn admits(&self, held: usize) -> bool {
        held <= LITTLE_BYTES_MAX || self.held < self.bytes_max
    }

    /// The connection is not read until there is room.
    pub fn pause(&mut self, key: ConnectionKey) {
        self.paused.insert(key);
    }

    /// The connection is gone.
    pub fn forget(&mut self, key: ConnectionKey, held: usize) {
        self.change(held, 0);
        self.paused.remove(&key);
    }

    /// Those that may be read again.
    pub fn take_resumed(&mut self) -> BTreeSet<ConnectionKey> {
        if self.held < self.bytes_max {
            std::mem::take(&mut self.paused)
        } else {
            BTreeSet::new()
        }
    }

    /// Whether somebody waits for room.
    pub fn is_short(&self) -> bool {
        self.held >= self.bytes_max && !self.paused.is_empty()
    }

    /// A connection is refused; what it is told.
    pub fn refuse(&mut self, held: usize) -> String {
        self.refused += 1;
        format!(
            "the clients of this sidecar have sent {} bytes of requests that are not complete, and there is room for \
             input_bytes_max = {}; this connection holds the most, {held}; send less at once, or smaller values",
            self.held, self.bytes_max
        )
    }

    pub fn held(&self) -> usize {
        self.held
    }

    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_bound_only_those_that_hold_little_are_read() {
        let (much, key) = (LITTLE_BYTES_MAX + 1, ConnectionKey(9));
        let mut budget = InputBudget::new(2 * much);
        budget.change(0, much);
        assert!(budget.admits(much) && !budget.is_short());
        budget.change(0, much);
        assert!(!budget.admits(much) && budget.admits(LITTLE_BYTES_MAX));
        budget.pause(key);
        assert!(budget.is_short() && budget.take_resumed().is_empty());
        budget.change(much, much - 1);
        assert_eq!(budget.take_resumed(), BTreeSet::from([key]));
        assert!(!budget.is_short());
    }

    #[test]
    fn a_connection_that_is_gone_holds_nothing() {
        let mut budget = InputBudget::new(10);
        budget.change(0, 20);
        budget.pause(ConnectionKey(9));
        budget.forget(ConnectionKey(9), 20);
        assert_eq!((budget.held(), budget.is_short()), (0, false));
        assert!(budget.take_resumed().is_empty());
    }
}
