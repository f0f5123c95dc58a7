//! The skip list: sorted lists over each other, each a sample of a quarter of the one below (Pugh 1990).
//!
//! Invariant: every level is sorted by key and a part of the level below; level 0 has every node.

use super::arena::{Arena, At};
use super::Index;
use std::fmt::Debug;

/// A quarter goes up from each level, so these serve sixteen million keys.
const LEVELS_MAX: usize = 12;

#[derive(Debug)]
struct Node<V> {
    key: Vec<u8>,
    value: V,
    /// The next node on each level that this one is on.
    next: Box<[Option<At>]>,
}

/// The last node before some place on each level; the list's head if there is none.
type Before = [Option<At>; LEVELS_MAX];

/// A skip list.
#[derive(Debug)]
pub struct SkipList<V> {
    nodes: Arena<Node<V>>,
    /// The first node on each level.
    head: [Option<At>; LEVELS_MAX],
    /// What the next height is drawn from.
    random: u64,
}

impl<V> Default for SkipList<V> {
    fn default() -> Self {
        SkipList { nodes: Arena::default(), head: [None; LEVELS_MAX], random: 0x9e37_79b9_7f4a_7c15 }
    }
}

impl<V> SkipList<V> {
    fn next(&self, node: Option<At>, level: usize) -> Option<At> {
        node.map_or(self.head[level], |at| self.nodes[at].next[level])
    }

    fn link(&mut self, node: Option<At>, level: usize, next: Option<At>) {
        match node {
            Some(at) => self.nodes[at].next[level] = next,
            None => self.head[level] = next,
        }
    }

    /// What stands before a key's place on each level.
    fn before(&self, key: &[u8]) -> Before {
        let mut before = [None; LEVELS_MAX];
        let mut last = None;
        for level in (0..LEVELS_MAX).rev() {
            while let Some(next) =
                self.next(last, level).filter(|next| self.nodes[*next].key.as_slice() < key)
            {
                last = Some(next);
            }
            before[level] = last;
        }
        before
    }

    /// The node of a key, if it stands behind `before`.
    fn at(&self, before: &Before, key: &[u8]) -> Option<At> {
        self.next(before[0], 0).filter(|at| self.nodes[*at].key == key)
    }

    fn find(&self, key: &[u8]) -> Option<At> {
        self.at(&self.before(key), key)
    }

    /// On how many levels the next node is. The same in every run, which no answer depends on.
    fn draw_height(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (1 + self.random.trailing_zeros() as usize / 2).min(LEVELS_MAX)
    }
}

impl<V: Debug + Send> Index<V> for SkipList<V> {
    fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).map(|at| &self.nodes[at].value)
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.find(key).map(|at| &mut self.nodes[at].value)
    }

    fn insert(&mut self, key: Vec<u8>, value: V) -> Option<V> {
        let before = self.before(&key);
        if let Some(at) = self.at(&before, &key) {
            return Some(std::mem::replace(&mut self.nodes[at].value, value));
        }
        let height = self.draw_height();
        let next = (0..height).map(|level| self.next(before[level], level)).collect();
        let node = self.nodes.insert(Node { key, value, next });
        for (level, before) in before.into_iter().enumerate().take(height) {
            self.link(before, level, Some(node));
        }
        None
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        let before = self.before(key);
        let at = self.at(&before, key)?;
        let Node { value, next, .. } = self.nodes.remove(at);
        for (level, next) in next.iter().enumerate() {
            self.link(before[level], level, *next);
        }
        Some(value)
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &V)> + '_> {
        Box::new(self.nodes.iter().map(|node| (node.key.as_slice(), &node.value)))
    }
}

#[cfg(test)]
impl<V> SkipList<V> {
    /// The keys in their order; panics where the invariant does not hold.
    pub fn checked_keys(&self) -> Vec<Vec<u8>> {
        let mut below = self.keys_on(0);
        assert_eq!(below.len(), self.nodes.len(), "a node that is not on the lowest level");
        let keys = below.clone();
        for level in 1..LEVELS_MAX {
            let here = self.keys_on(level);
            assert!(here.iter().all(|key| below.contains(key)), "level {level} is no part of the one below");
            let tall = self.nodes.iter().filter(|node| node.next.len() > level).count();
            assert_eq!(here.len(), tall, "a node is missing on level {level}");
            below = here;
        }
        keys
    }

    /// How many nodes are on a level.
    pub fn count_on(&self, level: usize) -> usize {
        self.keys_on(level).len()
    }

    fn keys_on(&self, level: usize) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut at = self.head[level];
        while let Some(node) = at {
            keys.push(self.nodes[node].key.clone());
            at = self.nodes[node].next[level];
        }
        assert!(keys.is_sorted(), "level {level} is not sorted");
        keys
    }
}
