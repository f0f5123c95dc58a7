//! Descendants and ancestors of each call, in one pass over a partition (study-spec F4, F5).
//!
//! Invariant: a cycle is no tree: its members, and what hangs on them, are named and counted in nothing.
//!
//! The calls are first dealt into buckets by their trace, so that a parent is sought in what the processor's cache
//! holds. A bucket has its traces whole, and is counted by itself.

use crate::trace::{hash, TraceId};

/// Where a call stands in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Calls below it.
    pub descendants: u32,
    /// Calls above it.
    pub ancestors: u32,
    /// Whether its ancestors form a ring.
    pub is_cyclic: bool,
}

/// The calls of a partition by columns of one length; a call that is not marked in `has_parent` is a root.
#[derive(Debug, Clone, Copy)]
pub struct Calls<'a> {
    /// The trace of each, 16 bytes.
    pub trace_ids: &'a [u8],
    /// Its own id in it.
    pub span_ids: &'a [i64],
    /// Its parent's.
    pub parent_ids: &'a [i64],
    /// Not 0 where there is a parent.
    pub has_parent: &'a [u8],
}

// So many calls with their table lie in a second-level cache.
const BUCKET_CALLS: usize = 1024;
// More streams than that are written slower than they are read back.
const BUCKETS_MAX: usize = 4096;

/// The places of calls, in their order. A parent that is not there makes a call a root; of calls with one id the
/// first is the parent of those that name it.
pub fn tree(calls: Calls<'_>) -> Vec<Place> {
    let mut places = vec![Place::default(); calls.span_ids.len()];
    let (rows, ends) = buckets(calls);
    let mut work = Work::default();
    let mut start = 0;
    for end in ends {
        work.count(&rows[start..end]);
        for (row, place) in rows[start..end].iter().zip(&work.places) {
            places[row.index as usize] = *place;
        }
        start = end;
    }
    places
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    trace: TraceId,
    span: i64,
    parent: i64,
    index: u32,
    has_parent: bool,
}

/// The calls bucket by bucket, in their order within each, and where each bucket ends.
fn buckets(calls: Calls<'_>) -> (Vec<Row>, Vec<usize>) {
    let count = (calls.span_ids.len() / BUCKET_CALLS).next_power_of_two().min(BUCKETS_MAX);
    // The upper bits: the calls of one partition may agree in the lower ones.
    let bucket = |trace: &TraceId| (hash(trace) >> 32) as usize & (count - 1);
    let mut ends = vec![0_usize; count];
    for trace in traces(calls) {
        ends[bucket(&trace)] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let mut rows = vec![Row::default(); calls.span_ids.len()];
    for (index, trace) in traces(calls).enumerate() {
        let at = &mut ends[bucket(&trace)];
        rows[*at] = Row {
            trace,
            span: calls.span_ids[index],
            parent: calls.parent_ids[index],
            index: index as u32,
            has_parent: calls.has_parent[index] != 0,
        };
        *at += 1;
    }
    (rows, ends)
}

fn traces(calls: Calls<'_>) -> impl Iterator<Item = TraceId> + '_ {
    calls.trace_ids.chunks_exact(16).map(|trace| trace.try_into().expect("a chunk has the length asked for"))
}

const NONE: u32 = u32::MAX;

/// What counting one bucket needs, kept for the next.
#[derive(Debug, Default)]
struct Work {
    slots: Vec<u32>,
    parents: Vec<u32>,
    children: Vec<u32>,
    order: Vec<u32>,
    places: Vec<Place>,
}

impl Work {
    fn count(&mut self, rows: &[Row]) {
        self.find_parents(rows);
        self.peel();
        self.descend();
    }

    /// A table of the rows' ids with open addressing, half empty at least.
    fn find_parents(&mut self, rows: &[Row]) {
        let size = (rows.len() * 2).next_power_of_two();
        self.slots.clear();
        self.slots.resize(size, NONE);
        for (index, row) in rows.iter().enumerate() {
            let slot = self.slot(rows, &row.trace, row.span);
            if self.slots[slot] == NONE {
                self.slots[slot] = index as u32;
            }
        }
        self.parents.clear();
        for row in rows {
            let parent =
                if row.has_parent { self.slots[self.slot(rows, &row.trace, row.parent)] } else { NONE };
            self.parents.push(parent);
        }
    }

    /// Where the id stands, or the empty slot in which it would.
    fn slot(&self, rows: &[Row], trace: &TraceId, span: i64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = spread(hash(trace) ^ span as u64) & mask;
        loop {
            match rows.get(self.slots[at] as usize) {
                Some(row) if row.span != span || row.trace != *trace => at = (at + 1) & mask,
                _ => return at,
            }
        }
    }

    /// Counts what is below, leaves first; a ring has none, and stays marked.
    fn peel(&mut self) {
        let Work { parents, children, order, places, .. } = self;
        children.clear();
        children.resize(parents.len(), 0);
        for parent in parents.iter().filter(|parent| **parent != NONE) {
            children[*parent as usize] += 1;
        }
        places.clear();
        places.resize(parents.len(), Place { is_cyclic: true, ..Place::default() });
        order.clear();
        order.extend((0..parents.len() as u32).filter(|index| children[*index as usize] == 0));
        let mut next = 0;
        while let Some(&index) = order.get(next) {
            next += 1;
            places[index as usize].is_cyclic = false;
            let below = places[index as usize].descendants + 1;
            let parent = parents[index as usize];
            if parent != NONE {
                places[parent as usize].descendants += below;
                children[parent as usize] -= 1;
                if children[parent as usize] == 0 {
                    order.push(parent);
                }
            }
        }
    }

    /// Counts what is above, roots first.
    fn descend(&mut self) {
        for index in self.order.iter().rev() {
            let parent = self.parents[*index as usize];
            if parent != NONE {
                let above = self.places[parent as usize];
                let place = &mut self.places[*index as usize];
                place.ancestors = above.ancestors + 1;
                place.is_cyclic = above.is_cyclic;
            }
        }
        for place in self.places.iter_mut().filter(|place| place.is_cyclic) {
            *place = Place { is_cyclic: true, ..Place::default() };
        }
    }
}

fn spread(word: u64) -> usize {
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn places(traces: &[u8], spans: &[i64], parents: &[Option<i64>]) -> Vec<(u32, u32, bool)> {
        let trace_ids: Vec<u8> = traces.iter().flat_map(|trace| [*trace; 16]).collect();
        let parent_ids: Vec<i64> = parents.iter().map(|parent| parent.unwrap_or(7)).collect();
        let has_parent: Vec<u8> = parents.iter().map(|parent| u8::from(parent.is_some())).collect();
        let calls = Calls {
            trace_ids: &trace_ids,
            span_ids: spans,
            parent_ids: &parent_ids,
            has_parent: &has_parent,
        };
        tree(calls).iter().map(|place| (place.descendants, place.ancestors, place.is_cyclic)).collect()
    }

    /// By walking up from each call; who walks longer than there are calls goes round.
    fn by_walking(traces: &[u8], spans: &[i64], parents: &[Option<i64>]) -> Vec<(u32, u32, bool)> {
        let mut ids = HashMap::new();
        for (index, id) in traces.iter().zip(spans).enumerate() {
            ids.entry(id).or_insert(index);
        }
        let up = |index: usize| ids.get(&(&traces[index], &parents[index]?)).copied();
        let walks: Vec<Vec<usize>> = (0..spans.len())
            .map(|index| std::iter::successors(up(index), |above| up(*above)).take(spans.len() + 1).collect())
            .collect();
        let goes_round = |walk: &Vec<usize>| walk.len() > spans.len();
        let mut found: Vec<_> = walks
            .iter()
            .map(|walk| if goes_round(walk) { (0, 0, true) } else { (0, walk.len() as u32, false) })
            .collect();
        for above in walks.iter().filter(|walk| !goes_round(walk)).flatten() {
            found[*above].0 += 1;
        }
        found
    }

    #[test]
    fn a_chain_and_a_leaf() {
        let expected = [(3, 0, false), (1, 1, false), (0, 2, false), (0, 1, false)];
        assert_eq!(places(&[7; 4], &[0, 1, 2, 3], &[None, Some(0), Some(1), Some(0)]), expected);
    }

    #[test]
    fn a_ring_and_what_hangs_on_it_are_named_and_not_counted() {
        let round = (0, 0, true);
        let parents = [Some(1), Some(0), Some(1), None, Some(4)];
        assert_eq!(places(&[7; 5], &[0, 1, 2, 3, 4], &parents), [round, round, round, (0, 0, false), round]);
    }

    #[test]
    fn a_chain_as_deep_as_a_partition_needs_no_stack() {
        let count = 300_000;
        let spans: Vec<i64> = (0..count).rev().collect();
        let parents: Vec<Option<i64>> = spans.iter().map(|span| span.checked_sub(1)).collect();
        let found = places(&vec![1; spans.len()], &spans, &parents);
        assert_eq!(found[0], (0, 299_999, false));
        assert!(found.iter().all(|(below, above, _)| below + above == 299_999));
    }

    proptest! {
        // Few ids, so that they repeat, cross traces and close rings; enough calls for several buckets.
        #[test]
        fn as_by_walking_up(calls in proptest::collection::vec((0_u8..40, 0_i64..60, proptest::option::of(0_i64..60)), 0..200)) {
            let (traces, (spans, parents)): (Vec<_>, (Vec<_>, Vec<_>)) =
                calls.into_iter().map(|(trace, span, parent)| (trace, (span, parent))).unzip();
            prop_assert_eq!(places(&traces, &spans, &parents), by_walking(&traces, &spans, &parents));
        }

        #[test]
        fn buckets_change_nothing(seed in 0_i64..1000) {
            let count = 6 * BUCKET_CALLS as i64;
            let spans: Vec<i64> = (0..count).collect();
            let traces: Vec<u8> = spans.iter().map(|span| ((span * 31 + seed) % 97) as u8).collect();
            let parents: Vec<Option<i64>> =
                spans.iter().map(|span| (span % 7 != 0).then(|| span - 97 * (1 + (span + seed) % 3))).collect();
            prop_assert_eq!(places(&traces, &spans, &parents), by_walking(&traces, &spans, &parents));
        }
    }
}
