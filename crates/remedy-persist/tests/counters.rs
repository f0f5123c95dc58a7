//! What persist counts: each count is added to its own, and the metrics name all of them.

use remedy_persist::PersistCounters;
use std::collections::BTreeSet;

fn counted(first: u64) -> PersistCounters {
    let [admitted_updates, logged, ungranted, persist_acks, freed, replays, reforwarded, without_lease] =
        std::array::from_fn(|at| first + at as u64);
    PersistCounters {
        admitted_updates,
        logged,
        ungranted,
        persist_acks,
        freed,
        replays,
        reforwarded,
        without_lease,
    }
}

#[test]
fn counts_of_two_are_added_each_to_its_own_and_all_are_named() {
    let mut named = Vec::new();
    counted(10).plus(&counted(20)).each(&mut |count| named.push((count.name, count.value, count.help)));
    let values: Vec<u64> = named.iter().map(|(_, value, _)| *value).collect();
    assert_eq!(values, (0..8).map(|at| 30 + 2 * at).collect::<Vec<_>>());
    let names: BTreeSet<_> = named.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names.len(), 8);
    for (name, value) in [("admitted_updates", 30), ("freed", 38), ("without_lease", 44)] {
        let name = format!("scotfree_device_{name}_total");
        assert!(named.iter().any(|found| found.0 == name && found.1 == value), "{name}");
    }
    assert!(named.iter().all(|(_, _, help)| help.ends_with('.')));
}
