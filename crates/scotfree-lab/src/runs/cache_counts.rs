//! What a cache has counted, a device's or a proxy's.
//!
//! Invariant: a read that a cache was asked for is a hit or a miss, never both.

use scotfree_stage::site::await_condition;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;

const HITS: &str = "scotfree_cache_hits_total";
/// Each reason is counted by itself.
const MISSES: &str = "scotfree_cache_misses_total{";

/// Reads that it has answered.
pub(super) fn hits(counts: &Counts) -> u64 {
    counts.get(HITS).copied().unwrap_or(0)
}

/// Reads that it was asked for.
fn asked(counts: &Counts) -> u64 {
    let misses = counts.iter().filter(|(name, _)| name.starts_with(MISSES));
    hits(counts) + misses.map(|(_, count)| count).sum::<u64>()
}

/// What is counted once so many reads more than `before` have been: daemons say what they have counted a moment later.
pub(super) fn counts_after(
    before: &Counts,
    reads: u64,
    counts: impl Fn() -> Result<Counts, Trouble>,
) -> Result<Counts, Trouble> {
    let wanted = asked(before) + reads;
    let is_there = || counts().is_ok_and(|now| asked(&now) >= wanted);
    await_condition(&format!("a cache has counted {reads} reads more"), is_there)?;
    counts()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn counted(hits: u64, absent: u64, off: u64) -> Counts {
        let counts = [
            ("hits_total", hits),
            ("misses_total{reason=\"absent\"}", absent),
            ("misses_total{reason=\"off\"}", off),
            ("refused_total{reason=\"size\"}", 9),
        ];
        counts.into_iter().map(|(name, count)| (format!("scotfree_cache_{name}"), count)).collect()
    }

    #[test]
    fn what_a_daemon_counts_later_is_waited_for_misses_of_all_reasons_with_it() {
        let asked = Cell::new(0);
        let counts = || {
            asked.set(asked.get() + 1);
            Ok(counted(5, 2, asked.get()))
        };
        let before = counted(3, 1, 0);
        assert_eq!(hits(&before), 3);
        let after = counts_after(&before, 6, counts).expect("they come");
        assert_eq!((hits(&after), asked.get()), (5, 4), "asked until they are there, and once more");
    }
}
