//! Simulated time without a remedy's types: for who asks for numbers by the remedy's name.
//!
//! Invariant: the same words and the same seed give the same numbers on every machine.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// What a remedy can tell of its protocol in simulated time.
pub trait Timing: Debug + Sync {
    /// Measures one setup: settings `name=value` with commas between them. The numbers by their names, or what is
    /// wrong with the settings.
    fn measure(&self, settings: &str, seed: u64) -> Result<BTreeMap<String, f64>, String>;

    /// The numbers that matter most, as a text.
    fn overview(&self, seed: u64) -> String;
}
