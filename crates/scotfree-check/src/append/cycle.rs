//! Finds a small circle of transactions, and names it.
//!
//! Invariant: a circle is found if there is one, and by the narrowest kinds of edges that make one: those that are told
//! first need least. Only between one and several reads before an append may the name be the wider one, if the steps
//! do not suffice.

use super::graph::{Edge, Graph};
use super::{Anomaly, AnomalyKind, Link};
use std::collections::VecDeque;

/// Looks for a circle.
pub(super) fn find(graph: &Graph, steps_max: u64) -> Option<Anomaly> {
    if !components(graph, Allowed::of(AnomalyKind::G2, true)).has_circle() {
        return None;
    }
    let mut search = Search::new(graph, steps_max);
    for has_time in [false, true] {
        if let Some(circle) = search.any_circle(AnomalyKind::G0, has_time) {
            return Some(circle);
        }
        if let Some(circle) = search.any_circle(AnomalyKind::G1c, has_time) {
            return Some(circle);
        }
        if let Some(circle) = search.circle_with_one_read_before(has_time) {
            return Some(circle);
        }
        if let Some(circle) = search.any_circle(AnomalyKind::G2, has_time) {
            return Some(circle);
        }
    }
    None
}

/// Which edges may be used.
#[derive(Debug, Clone, Copy)]
struct Allowed {
    was_read: bool,
    read_before: bool,
    returned: bool,
}

impl Allowed {
    fn of(kind: AnomalyKind, has_time: bool) -> Allowed {
        let was_read = kind > AnomalyKind::G0;
        Allowed { was_read, read_before: kind > AnomalyKind::GSingle, returned: has_time }
    }

    fn has(self, edge: &Edge) -> bool {
        match edge.link {
            None | Some(Link::Appended(_)) => true,
            Some(Link::WasRead(_)) => self.was_read,
            Some(Link::ReadBefore(_)) => self.read_before,
            Some(Link::Returned) => self.returned,
        }
    }
}

/// A way through the graph: nodes with the edges that leave them.
type Path = Vec<(usize, Edge)>;

struct Search<'g> {
    graph: &'g Graph,
    steps_left: u64,
    /// How each node was reached in the latest round, and which round that was.
    reached: Vec<Reached>,
    round: u64,
}

#[derive(Clone, Copy)]
struct Reached {
    round: u64,
    from: Option<(usize, Edge)>,
}

impl<'g> Search<'g> {
    fn new(graph: &'g Graph, steps_left: u64) -> Search<'g> {
        let nowhere = Reached { round: 0, from: None };
        Search { graph, steps_left, reached: vec![nowhere; graph.edges.len()], round: 0 }
    }

    /// The smallest circle of these edges; a larger one if the steps do not suffice, but none only if there is none.
    fn any_circle(&mut self, kind: AnomalyKind, has_time: bool) -> Option<Anomaly> {
        let allowed = Allowed::of(kind, has_time);
        let components = components(self.graph, allowed);
        let mut best: Option<Path> = None;
        for node in 0..self.graph.transaction_count {
            if !components.is_in_circle(node) || (best.is_some() && self.steps_left == 0) {
                continue;
            }
            let bound = best.as_ref().map_or(usize::MAX, |path| self.transactions_in(path));
            let is_inside = |other: usize| components.same(node, other);
            best = self.shortest(node, node, allowed, bound, is_inside).or(best);
        }
        best.map(|path| named(kind, has_time, path))
    }

    /// The smallest circle with exactly one read of a list before something was appended to it.
    fn circle_with_one_read_before(&mut self, has_time: bool) -> Option<Anomaly> {
        let components = components(self.graph, Allowed::of(AnomalyKind::G2, has_time));
        let allowed = Allowed { read_before: false, ..Allowed::of(AnomalyKind::G2, has_time) };
        let mut best: Option<Path> = None;
        for node in 0..self.graph.transaction_count {
            for edge in &self.graph.edges[node] {
                let is_read_before = matches!(edge.link, Some(Link::ReadBefore(_)));
                if !is_read_before || !components.same(node, edge.to) || self.steps_left == 0 {
                    continue;
                }
                let bound = best.as_ref().map_or(usize::MAX, |path| self.transactions_in(path));
                let is_inside = |other: usize| components.same(node, other);
                if let Some(back) = self.shortest(edge.to, node, allowed, bound, is_inside) {
                    best = Some(std::iter::once((node, *edge)).chain(back).collect());
                }
            }
        }
        best.map(|path| named(AnomalyKind::GSingle, has_time, path))
    }

    /// The way with the fewest transactions, if it has fewer than `bound`.
    fn shortest(
        &mut self,
        start: usize,
        goal: usize,
        allowed: Allowed,
        bound: usize,
        is_inside: impl Fn(usize) -> bool,
    ) -> Option<Path> {
        self.round += 1;
        let mut waiting = VecDeque::from([(start, 0, None)]);
        while let Some((node, transactions, from)) = waiting.pop_front() {
            if transactions >= bound {
                continue;
            }
            if node == goal && from.is_some() {
                return Some(self.way_back(start, from));
            }
            if self.reached[node].round == self.round {
                continue;
            }
            self.reached[node] = Reached { round: self.round, from };
            for edge in self.graph.edges[node].iter().filter(|edge| allowed.has(edge) && is_inside(edge.to)) {
                self.steps_left = self.steps_left.saturating_sub(1);
                // Helpers cost nothing, so what they lead to is looked at first.
                if self.graph.is_transaction(edge.to) {
                    waiting.push_back((edge.to, transactions + 1, Some((node, *edge))));
                } else {
                    waiting.push_front((edge.to, transactions, Some((node, *edge))));
                }
            }
        }
        None
    }

    fn way_back(&self, start: usize, last: Option<(usize, Edge)>) -> Path {
        let mut path = Vec::new();
        let mut next = last;
        while let Some((node, edge)) = next {
            path.push((node, edge));
            next = if node == start { None } else { self.reached[node].from };
        }
        path.reverse();
        path
    }

    fn transactions_in(&self, path: &Path) -> usize {
        path.iter().filter(|(node, _)| self.graph.is_transaction(*node)).count()
    }
}

/// The circle without its helpers.
fn named(kind: AnomalyKind, needs_time: bool, path: Path) -> Anomaly {
    let (transactions, links) = path.into_iter().filter_map(|(node, edge)| Some((node, edge.link?))).unzip();
    Anomaly { kind, needs_time, transactions, links, key: None }
}

/// Which nodes can reach each other.
struct Components {
    of: Vec<usize>,
    sizes: Vec<usize>,
}

impl Components {
    fn same(&self, one: usize, other: usize) -> bool {
        self.of[one] == self.of[other]
    }

    fn has_circle(&self) -> bool {
        self.sizes.iter().any(|size| *size > 1)
    }

    fn is_in_circle(&self, node: usize) -> bool {
        self.sizes[self.of[node]] > 1
    }
}

/// Strongly connected components (Tarjan), without recursion: a history may be long.
fn components(graph: &Graph, allowed: Allowed) -> Components {
    let mut walk = Walk::new(graph.edges.len());
    for root in 0..graph.edges.len() {
        if walk.numbers[root] == UNSEEN {
            walk.from(root, graph, allowed);
        }
    }
    Components { of: walk.component_of, sizes: walk.sizes }
}

const UNSEEN: usize = usize::MAX;

struct Walk {
    /// In which order nodes were seen, and the earliest one that each can reach.
    numbers: Vec<usize>,
    lowest: Vec<usize>,
    component_of: Vec<usize>,
    sizes: Vec<usize>,
    seen_count: usize,
    /// Nodes that have no component yet.
    open: Vec<usize>,
}

impl Walk {
    fn new(count: usize) -> Walk {
        Walk {
            numbers: vec![UNSEEN; count],
            lowest: vec![UNSEEN; count],
            component_of: vec![UNSEEN; count],
            sizes: Vec::new(),
            seen_count: 0,
            open: Vec::new(),
        }
    }

    fn from(&mut self, root: usize, graph: &Graph, allowed: Allowed) {
        let mut path = vec![(root, 0)];
        self.see(root);
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let Some(edge) = graph.edges[node].get(*next) else {
                path.pop();
                self.leave(node, path.last().map(|(above, _)| *above));
                continue;
            };
            *next += 1;
            if !allowed.has(edge) {
                continue;
            }
            if self.numbers[edge.to] == UNSEEN {
                self.see(edge.to);
                path.push((edge.to, 0));
            } else if self.component_of[edge.to] == UNSEEN {
                self.lowest[node] = self.lowest[node].min(self.numbers[edge.to]);
            }
        }
    }

    fn see(&mut self, node: usize) {
        (self.numbers[node], self.lowest[node]) = (self.seen_count, self.seen_count);
        self.seen_count += 1;
        self.open.push(node);
    }

    fn leave(&mut self, node: usize, above: Option<usize>) {
        if let Some(above) = above {
            self.lowest[above] = self.lowest[above].min(self.lowest[node]);
        }
        if self.lowest[node] < self.numbers[node] {
            return;
        }
        let first = self.open.iter().rposition(|open| *open == node).expect("it has no component yet");
        self.sizes.push(self.open.len() - first);
        for member in self.open.drain(first..) {
            self.component_of[member] = self.sizes.len() - 1;
        }
    }
}
