//! What finds a key's value: five structures behind one trait, of which a store has one.
//!
//! Invariant: all of them hold the same after the same calls, so a log that was written over one is
//! read back into any other.
//!
//! B-tree and hash map are the standard library's. The others are written here: none of the maintained
//! crates gives its owner a `&mut` to a value (skip list and red-black tree are made for sharing, and for
//! nodes that lie elsewhere), and none has a binary crit-bit tree for keys of any bytes.

mod arena;
mod btree;
mod crit_bit;
mod hash;
mod red_black;
mod skip_list;
#[cfg(test)]
mod tests;

use crit_bit::CritBitTree;
use red_black::RedBlackTree;
use skip_list::SkipList;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

/// Keys with their values.
pub trait Index<V>: Debug + Send {
    /// A key's value.
    fn get(&self, key: &[u8]) -> Option<&V>;

    /// A key's value, to be changed in its place.
    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V>;

    /// Gives a key its value, and gives back the one that it had.
    fn insert(&mut self, key: Vec<u8>, value: V) -> Option<V>;

    /// Takes a key out with its value.
    fn remove(&mut self, key: &[u8]) -> Option<V>;

    /// How many keys there are.
    fn len(&self) -> usize;

    /// All keys with their values, in no order.
    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &V)> + '_>;
}

/// The structures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// B-tree.
    BTree,
    /// Crit-bit tree, also called C-tree.
    CTree,
    /// Red-black tree.
    RedBlack,
    /// Hash map.
    #[default]
    Hash,
    /// Skip list.
    SkipList,
}

impl IndexKind {
    /// All of them.
    pub const ALL: [IndexKind; 5] =
        [IndexKind::BTree, IndexKind::CTree, IndexKind::RedBlack, IndexKind::Hash, IndexKind::SkipList];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            IndexKind::BTree => "btree",
            IndexKind::CTree => "ctree",
            IndexKind::RedBlack => "rbtree",
            IndexKind::Hash => "hash",
            IndexKind::SkipList => "skiplist",
        }
    }

    /// One without keys.
    pub fn empty<V: Debug + Send + 'static>(self) -> Box<dyn Index<V>> {
        match self {
            IndexKind::BTree => Box::new(BTreeMap::new()),
            IndexKind::CTree => Box::new(CritBitTree::default()),
            IndexKind::RedBlack => Box::new(RedBlackTree::default()),
            IndexKind::Hash => Box::new(HashMap::new()),
            IndexKind::SkipList => Box::new(SkipList::default()),
        }
    }
}
