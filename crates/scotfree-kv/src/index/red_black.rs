//! The red-black tree: a binary search tree that stays balanced by the colours of its nodes (Guibas and
//! Sedgewick 1978, with the repairs of Cormen and others).
//!
//! Invariant: keys to the first side of a node are smaller, those to the second larger; no red node has a
//! red child, the root is black, and every way down from a node passes as many black ones.

use super::arena::{Arena, At};
use super::Index;
use std::cmp::Ordering;
use std::fmt::Debug;

#[derive(Debug)]
struct Node<V> {
    key: Vec<u8>,
    value: V,
    is_red: bool,
    parent: Option<At>,
    sides: [Option<At>; 2],
}

/// Where a node hangs: at a side of another, or at the root.
type Link = Option<(At, usize)>;

/// A red-black tree.
#[derive(Debug)]
pub struct RedBlackTree<V> {
    nodes: Arena<Node<V>>,
    root: Option<At>,
}

impl<V> Default for RedBlackTree<V> {
    fn default() -> Self {
        RedBlackTree { nodes: Arena::default(), root: None }
    }
}

impl<V> RedBlackTree<V> {
    /// The node of a key, or else where it belongs.
    fn find(&self, key: &[u8]) -> Result<At, Link> {
        let (mut link, mut next) = (None, self.root);
        while let Some(at) = next {
            let node = &self.nodes[at];
            let side = match key.cmp(&node.key) {
                Ordering::Less => 0,
                Ordering::Equal => return Ok(at),
                Ordering::Greater => 1,
            };
            (link, next) = (Some((at, side)), node.sides[side]);
        }
        Err(link)
    }

    fn is_red(&self, at: Option<At>) -> bool {
        at.is_some_and(|at| self.nodes[at].is_red)
    }

    /// Where a node hangs.
    fn link_of(&self, at: At) -> Link {
        let parent = self.nodes[at].parent?;
        Some((parent, usize::from(self.nodes[parent].sides[1] == Some(at))))
    }

    fn hang(&mut self, link: Link, child: Option<At>) {
        match link {
            Some((parent, side)) => self.nodes[parent].sides[side] = child,
            None => self.root = child,
        }
        if let Some(child) = child {
            self.nodes[child].parent = link.map(|(parent, _)| parent);
        }
    }

    /// Turns a node down to `side`: its child on the other side takes its place.
    fn rotate(&mut self, down: At, side: usize) {
        let up = self.nodes[down].sides[1 - side].expect("a rotation has a child to raise");
        let (link, inner) = (self.link_of(down), self.nodes[up].sides[side]);
        self.hang(Some((down, 1 - side)), inner);
        self.hang(link, Some(up));
        self.hang(Some((up, side)), Some(down));
    }

    /// A red node has come in: it may have a red parent, and the root may be red.
    fn repair_red(&mut self, mut at: At) {
        while let Some((parent, side)) = self.link_of(at).filter(|(parent, _)| self.nodes[*parent].is_red) {
            // A red node is not the root.
            let Some((above, parent_side)) = self.link_of(parent) else { break };
            let uncle = self.nodes[above].sides[1 - parent_side].filter(|uncle| self.nodes[*uncle].is_red);
            self.nodes[above].is_red = true;
            if let Some(uncle) = uncle {
                self.nodes[parent].is_red = false;
                self.nodes[uncle].is_red = false;
                at = above;
                continue;
            }
            let raised = if side == parent_side {
                parent
            } else {
                self.rotate(parent, parent_side);
                at
            };
            self.nodes[raised].is_red = false;
            self.rotate(above, 1 - parent_side);
            break;
        }
        self.blacken_root();
    }

    /// Every way down passes the root, so its colour is free.
    fn blacken_root(&mut self) {
        if let Some(root) = self.root {
            self.nodes[root].is_red = false;
        }
    }

    /// Below this link, every way down passes one black node too few.
    fn repair_black(&mut self, mut link: Link) {
        while let Some((parent, side)) = link {
            let child = self.nodes[parent].sides[side];
            if let Some(child) = child.filter(|child| self.nodes[*child].is_red) {
                self.nodes[child].is_red = false;
                return;
            }
            let sibling = self.sibling_to_repair(parent, side);
            let [near, far] = self.nephews(sibling, side);
            if !self.is_red(near) && !self.is_red(far) {
                self.nodes[sibling].is_red = true;
                link = self.link_of(parent);
                continue;
            }
            if !self.is_red(far) {
                self.rotate(sibling, 1 - side);
            }
            let raised = self.nodes[parent].sides[1 - side].expect("it has just been raised, or was there");
            self.nodes[raised].is_red = self.nodes[parent].is_red;
            self.nodes[parent].is_red = false;
            if let Some(far) = self.nodes[raised].sides[1 - side] {
                self.nodes[far].is_red = false;
            }
            self.rotate(parent, side);
            return;
        }
    }

    /// The black sibling of the side that lacks a black node; a red one is turned away first.
    fn sibling_to_repair(&mut self, parent: At, side: usize) -> At {
        let sibling = self.nodes[parent].sides[1 - side];
        let sibling = sibling.expect("the other side has a black node more");
        if !self.nodes[sibling].is_red {
            return sibling;
        }
        self.nodes[sibling].is_red = false;
        self.nodes[parent].is_red = true;
        self.rotate(parent, side);
        self.nodes[parent].sides[1 - side].expect("a red node's children were black nodes")
    }

    /// The children of a sibling: towards `side`, and away from it.
    fn nephews(&self, sibling: At, side: usize) -> [Option<At>; 2] {
        let sides = self.nodes[sibling].sides;
        [sides[side], sides[1 - side]]
    }

    /// The node that leaves the tree when this one's content does: itself, or if it has two children the
    /// one with the next larger key, which has no smaller child.
    fn leaving_for(&self, at: At) -> At {
        let [Some(_), Some(mut next)] = self.nodes[at].sides else { return at };
        while let Some(smaller) = self.nodes[next].sides[0] {
            next = smaller;
        }
        next
    }
}

impl<V: Debug + Send> Index<V> for RedBlackTree<V> {
    fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).ok().map(|at| &self.nodes[at].value)
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.nodes[at].value)
    }

    fn insert(&mut self, key: Vec<u8>, value: V) -> Option<V> {
        let link = match self.find(&key) {
            Ok(at) => return Some(std::mem::replace(&mut self.nodes[at].value, value)),
            Err(link) => link,
        };
        let node = Node { key, value, is_red: true, parent: None, sides: [None; 2] };
        let at = self.nodes.insert(node);
        self.hang(link, Some(at));
        self.repair_red(at);
        None
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        let at = self.find(key).ok()?;
        let leaving = self.leaving_for(at);
        let link = self.link_of(leaving);
        let Node { key, value, is_red, sides: [first, second], .. } = self.nodes.remove(leaving);
        self.hang(link, first.or(second));
        if !is_red {
            self.repair_black(link);
        }
        self.blacken_root();
        if leaving == at {
            return Some(value);
        }
        let node = &mut self.nodes[at];
        node.key = key;
        Some(std::mem::replace(&mut node.value, value))
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &V)> + '_> {
        Box::new(self.nodes.iter().map(|node| (node.key.as_slice(), &node.value)))
    }
}

#[cfg(test)]
impl<V> RedBlackTree<V> {
    /// The keys in their order; panics where the invariant does not hold.
    pub fn checked_keys(&self) -> Vec<Vec<u8>> {
        assert!(!self.is_red(self.root), "the root is red");
        let mut keys = Vec::new();
        self.check(self.root, None, &mut keys);
        assert!(keys.is_sorted(), "the keys are out of their order");
        keys
    }

    /// How many black nodes every way down passes.
    fn check(&self, at: Option<At>, parent: Option<At>, keys: &mut Vec<Vec<u8>>) -> usize {
        let Some(at) = at else { return 0 };
        let node = &self.nodes[at];
        assert_eq!(node.parent, parent, "a node does not know its parent");
        let has_red_child = node.sides.iter().any(|child| self.is_red(*child));
        assert!(!node.is_red || !has_red_child, "a red node has a red child");
        let first = self.check(node.sides[0], Some(at), keys);
        keys.push(node.key.clone());
        let second = self.check(node.sides[1], Some(at), keys);
        assert_eq!(first, second, "one way passes more black nodes than another");
        first + usize::from(!node.is_red)
    }
}
