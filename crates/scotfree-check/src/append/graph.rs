//! Which transaction comes before which.
//!
//! Nodes are the transactions and, behind them, helpers that stand for many edges: one "has returned by now" for each
//! return, and for each list chains over those who appended what nobody has read.
//!
//! Invariant: there is a path from one transaction to another by way of helpers only if the first one comes before the
//! other; none leads from a transaction to itself by helpers alone. The number of edges grows with that of the steps.

use super::reads::Lists;
use super::{Ended, Link, Transaction};
use crate::model::Key;
use std::collections::{BTreeMap, BTreeSet};

/// A way from one node to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub to: usize,
    /// `None` on the way from a helper.
    pub link: Option<Link>,
}

/// The graph.
pub(super) struct Graph {
    pub transaction_count: usize,
    pub edges: Vec<Vec<Edge>>,
}

impl Graph {
    /// Draws the edges of a history.
    pub fn new(history: &[Transaction], lists: &Lists) -> Graph {
        let mut graph = Graph { transaction_count: history.len(), edges: vec![Vec::new(); history.len()] };
        let mut at_end = graph.add_appends(lists);
        graph.add_reads(history, lists, &mut at_end);
        for (key, unread) in lists.unread() {
            let before = at_end.remove(&key).unwrap_or_default();
            graph.add_unread(&before, &unread.into_iter().collect::<Vec<_>>());
        }
        graph.add_time(history, lists);
        graph
    }

    /// Whether a node is a transaction.
    pub fn is_transaction(&self, node: usize) -> bool {
        node < self.transaction_count
    }

    fn add(&mut self, from: usize, to: usize, link: Option<Link>) {
        if from != to {
            self.edges[from].push(Edge { to, link });
        }
    }

    fn add_helper(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    /// Appends in their order. Who appended the last value of each list comes before whatever is appended later.
    fn add_appends(&mut self, lists: &Lists) -> BTreeMap<Key, Vec<(usize, Link)>> {
        let mut at_end = BTreeMap::new();
        for (key, order) in lists.orders() {
            for pair in order.windows(2) {
                let (from, to) = (lists.writer(key, pair[0]), lists.writer(key, pair[1]));
                self.add(from, to, Some(Link::Appended(key)));
            }
            let last = order.last().map(|value| (lists.writer(key, *value), Link::Appended(key)));
            at_end.insert(key, last.into_iter().collect());
        }
        at_end
    }

    /// Who reads a list comes behind its last value, and before the next one.
    fn add_reads(
        &mut self,
        history: &[Transaction],
        lists: &Lists,
        at_end: &mut BTreeMap<Key, Vec<(usize, Link)>>,
    ) {
        for (reader, transaction) in history.iter().enumerate() {
            for (key, values) in transaction.reads() {
                if let Some(last) = values.last() {
                    self.add(lists.writer(key, *last), reader, Some(Link::WasRead(key)));
                }
                match lists.order(key).get(values.len()) {
                    Some(next) => self.add(reader, lists.writer(key, *next), Some(Link::ReadBefore(key))),
                    None => at_end.entry(key).or_default().push((reader, Link::ReadBefore(key))),
                }
            }
        }
    }

    /// Each of `before` comes before all of `unread` but itself: by a chain over those up to each place, and one over
    /// those from each place on.
    fn add_unread(&mut self, before: &[(usize, Link)], unread: &[usize]) {
        if before.is_empty() {
            return;
        }
        let up_to = self.add_chain(unread.iter());
        let from = self.add_chain(unread.iter().rev());
        for (node, link) in before {
            match unread.binary_search(node) {
                Ok(place) => {
                    let after = unread.len() - 1 - place;
                    let around =
                        [place.checked_sub(1).map(|at| up_to[at]), after.checked_sub(1).map(|at| from[at])];
                    around.into_iter().flatten().for_each(|helper| self.add(*node, helper, Some(*link)));
                }
                Err(_) => self.add(*node, up_to[unread.len() - 1], Some(*link)),
            }
        }
    }

    /// Helpers, each before one of the nodes and before the helper of the node that precedes it.
    fn add_chain<'n>(&mut self, nodes: impl Iterator<Item = &'n usize>) -> Vec<usize> {
        let mut chain: Vec<usize> = Vec::new();
        for node in nodes {
            let helper = self.add_helper();
            self.add(helper, *node, None);
            if let Some(before) = chain.last() {
                self.add(helper, *before, None);
            }
            chain.push(helper);
        }
        chain
    }

    /// What had returned comes before what is called later.
    fn add_time(&mut self, history: &[Transaction], lists: &Lists) {
        let returned = |(index, one): (usize, &Transaction)| match one.ended {
            Ended::Committed { at } => Some((at, index)),
            Ended::Aborted | Ended::Unknown => None,
        };
        let returns: BTreeSet<(u64, usize)> = history.iter().enumerate().filter_map(returned).collect();
        let mut moments: Vec<(u64, usize)> = Vec::new();
        for (at, index) in returns {
            let helper = self.add_helper();
            self.add(index, helper, Some(Link::Returned));
            if let Some((_, before)) = moments.last() {
                self.add(*before, helper, None);
            }
            moments.push((at, helper));
        }
        for (index, transaction) in history.iter().enumerate().filter(|(index, _)| lists.has_happened(*index))
        {
            let earlier = moments.partition_point(|(at, _)| *at < transaction.called);
            if let Some(last) = earlier.checked_sub(1) {
                self.add(moments[last].1, index, None);
            }
        }
    }
}
