//! Descendants and ancestors of each call, in one pass over a partition (study-spec F4, F5).
//!
//! Invariant: a cycle is no tree: its members, and what hangs on them, are named and counted in nothing.

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

/// The places of calls, in their order. A parent that is not there makes a call a root.
pub fn tree(trace_ids: &[[u8; 16]], span_ids: &[i64], parent_ids: &[Option<i64>]) -> Vec<Place> {
    let parents = parents(trace_ids, span_ids, parent_ids);
    let mut children = vec![0_u32; parents.len()];
    for parent in parents.iter().flatten() {
        children[*parent] += 1;
    }
    let mut places = vec![Place { is_cyclic: true, ..Place::default() }; parents.len()];
    // Leaves first; a ring has none.
    let mut order: Vec<usize> = (0..parents.len()).filter(|index| children[*index] == 0).collect();
    let mut next = 0;
    while let Some(&index) = order.get(next) {
        next += 1;
        places[index].is_cyclic = false;
        if let Some(parent) = parents[index] {
            places[parent].descendants += places[index].descendants + 1;
            children[parent] -= 1;
            if children[parent] == 0 {
                order.push(parent);
            }
        }
    }
    for index in order.into_iter().rev() {
        if let Some(parent) = parents[index] {
            places[index].ancestors = places[parent].ancestors + 1;
            places[index].is_cyclic = places[parent].is_cyclic;
        }
    }
    places
}

fn parents(trace_ids: &[[u8; 16]], span_ids: &[i64], parent_ids: &[Option<i64>]) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..span_ids.len()).collect();
    let key = |index: usize| (trace_ids[index], span_ids[index]);
    order.sort_unstable_by_key(|index| key(*index));
    let find = |trace: [u8; 16], span: i64| {
        let at = order.partition_point(|index| key(*index) < (trace, span));
        order.get(at).copied().filter(|index| key(*index) == (trace, span))
    };
    (0..span_ids.len()).map(|index| find(trace_ids[index], parent_ids[index]?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(parents: &[Option<i64>]) -> Vec<(u32, u32, bool)> {
        let ids: Vec<i64> = (0..parents.len() as i64).collect();
        let found = tree(&vec![[7; 16]; parents.len()], &ids, parents);
        found.iter().map(|place| (place.descendants, place.ancestors, place.is_cyclic)).collect()
    }

    #[test]
    fn a_chain_and_a_leaf() {
        let expected = [(3, 0, false), (1, 1, false), (0, 2, false), (0, 1, false)];
        assert_eq!(places(&[None, Some(0), Some(1), Some(0)]), expected);
    }

    #[test]
    fn a_ring_and_what_hangs_on_it_are_named() {
        let cyclic: Vec<bool> =
            places(&[Some(1), Some(0), Some(1), None]).iter().map(|(_, _, cyclic)| *cyclic).collect();
        assert_eq!(cyclic, [true, true, true, false]);
    }
}
