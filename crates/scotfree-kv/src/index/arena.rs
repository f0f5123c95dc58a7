//! Nodes in one piece of memory, named by small numbers: what the linked structures are made of.
//!
//! Invariant: a number names the same node from its insertion until its removal, and no other meanwhile.

use std::ops::{Index, IndexMut};

/// Names a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At(u32);

/// The nodes of one structure.
#[derive(Debug)]
pub struct Arena<T> {
    slots: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Arena<T> {
    /// Takes a node in.
    pub fn insert(&mut self, node: T) -> At {
        if let Some(slot) = self.vacant.pop() {
            self.slots[slot as usize] = Some(node);
            return At(slot);
        }
        let slot = u32::try_from(self.slots.len()).expect("the store's limit comes before four billion keys");
        self.slots.push(Some(node));
        At(slot)
    }

    /// Takes a node out.
    pub fn remove(&mut self, at: At) -> T {
        let node = self.slots[at.0 as usize].take().expect("a link leads to a node");
        self.vacant.push(at.0);
        node
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// All nodes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}

impl<T> Index<At> for Arena<T> {
    type Output = T;

    fn index(&self, at: At) -> &T {
        self.slots[at.0 as usize].as_ref().expect("a link leads to a node")
    }
}

impl<T> IndexMut<At> for Arena<T> {
    fn index_mut(&mut self, at: At) -> &mut T {
        self.slots[at.0 as usize].as_mut().expect("a link leads to a node")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_left_makes_room_and_the_others_keep_their_names() {
        let mut arena = Arena::default();
        let stays = arena.insert(0);
        for number in 1..100 {
            let at = arena.insert(number);
            assert_eq!((arena[stays], arena[at], arena.len()), (0, number, 2));
            assert_eq!(arena.remove(at), number);
        }
        assert_eq!((arena.slots.len(), arena.iter().count()), (2, 1));
    }
}
