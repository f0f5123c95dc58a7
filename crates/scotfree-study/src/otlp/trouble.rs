//! What was wrong with records, counted by reason.
//!
//! Invariant: reasons are ours and keys of the attribute table, never the input's, so that there are few.

use std::collections::BTreeMap;

/// One reason and how often it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The record it was first met at.
    pub record: u64,
    /// How often.
    pub count: u64,
    /// Whether the records became rows all the same.
    pub is_kept: bool,
}

/// Reasons with what is known of each.
#[derive(Debug, Default, Clone)]
pub struct Troubles {
    reasons: BTreeMap<(String, bool), Trouble>,
}

impl Troubles {
    /// A record that became a row in spite of it.
    pub fn kept(&mut self, reason: &str, record: u64) {
        self.note(reason, record, true);
    }

    /// A record that became none.
    pub fn dropped(&mut self, reason: &str, record: u64) {
        self.note(reason, record, false);
    }

    fn note(&mut self, reason: &str, record: u64, is_kept: bool) {
        let key = (reason.to_owned(), is_kept);
        self.reasons.entry(key).or_insert(Trouble { record, count: 0, is_kept }).count += 1;
    }

    /// How many records became no row.
    pub fn dropped_count(&self) -> u64 {
        self.reasons.values().filter(|trouble| !trouble.is_kept).map(|trouble| trouble.count).sum()
    }

    /// All, in the order of their reasons; none are left.
    pub fn take(&mut self) -> Vec<(String, Trouble)> {
        std::mem::take(&mut self.reasons)
            .into_iter()
            .map(|((reason, _), trouble)| (reason, trouble))
            .collect()
    }
}
