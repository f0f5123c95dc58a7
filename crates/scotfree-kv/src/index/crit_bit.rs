//! The crit-bit tree: a binary trie that branches only where two of its keys differ.
//!
//! A key is read as a sequence of nine-bit symbols, one for each byte, with the highest bit set, and zeros
//! behind the end; so no key is the beginning of another, and the order is that of the bytes.
//!
//! Invariant: on the way down the places of the branches grow, and all keys below a branch are alike before
//! its place; those on its first side have a 0 there, those on its second a 1.

use super::arena::{Arena, At};
use super::Index;
use std::fmt::Debug;

/// Behind the bits of a byte: there is one.
const IS_BYTE: u16 = 1 << 8;

/// A bit of a key: the symbol's index, and within it a mask of one bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bit {
    index: u32,
    mask: u16,
}

impl Bit {
    /// The first one in which two keys differ.
    fn where_differ(one: &[u8], other: &[u8]) -> Option<Bit> {
        let index = one.iter().zip(other).take_while(|(one, other)| one == other).count();
        let highest = (symbol(one, index) ^ symbol(other, index)).checked_ilog2()?;
        Some(Bit { index: index as u32, mask: 1 << highest })
    }

    fn is_before(self, other: Bit) -> bool {
        (self.index, other.mask) < (other.index, self.mask)
    }

    /// The side of a branch at this bit on which a key lies.
    fn side(self, key: &[u8]) -> usize {
        usize::from(symbol(key, self.index as usize) & self.mask != 0)
    }
}

fn symbol(key: &[u8], index: usize) -> u16 {
    key.get(index).map_or(0, |byte| IS_BYTE | u16::from(*byte))
}

#[derive(Debug, Clone, Copy)]
enum Child {
    Leaf(At),
    Branch(At),
}

#[derive(Debug)]
struct Branch {
    bit: Bit,
    sides: [Child; 2],
}

#[derive(Debug)]
struct Leaf<V> {
    key: Vec<u8>,
    value: V,
}

/// Where a child hangs: at a side of a branch, or at the root.
type Link = Option<(At, usize)>;

/// A crit-bit tree.
#[derive(Debug)]
pub struct CritBitTree<V> {
    branches: Arena<Branch>,
    leaves: Arena<Leaf<V>>,
    root: Option<Child>,
}

impl<V> Default for CritBitTree<V> {
    fn default() -> Self {
        CritBitTree { branches: Arena::default(), leaves: Arena::default(), root: None }
    }
}

impl<V> CritBitTree<V> {
    /// The only leaf that may be a key's.
    fn candidate(&self, key: &[u8]) -> Option<At> {
        let mut child = self.root?;
        loop {
            match child {
                Child::Leaf(leaf) => return Some(leaf),
                Child::Branch(at) => {
                    let branch = &self.branches[at];
                    child = branch.sides[branch.bit.side(key)];
                }
            }
        }
    }

    fn find(&self, key: &[u8]) -> Option<At> {
        self.candidate(key).filter(|leaf| self.leaves[*leaf].key == key)
    }

    /// Where a branch at a bit belongs, and what hangs there now.
    fn place_of(&self, bit: Bit, key: &[u8]) -> (Link, Child) {
        let (mut link, mut child) = (None, self.root.expect("there is a leaf that differs"));
        while let Child::Branch(at) = child {
            let branch = &self.branches[at];
            if bit.is_before(branch.bit) {
                break;
            }
            let side = branch.bit.side(key);
            (link, child) = (Some((at, side)), branch.sides[side]);
        }
        (link, child)
    }

    fn hang(&mut self, link: Link, child: Child) {
        match link {
            Some((at, side)) => self.branches[at].sides[side] = child,
            None => self.root = Some(child),
        }
    }
}

impl<V: Debug + Send> Index<V> for CritBitTree<V> {
    fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).map(|leaf| &self.leaves[leaf].value)
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.find(key).map(|leaf| &mut self.leaves[leaf].value)
    }

    fn insert(&mut self, key: Vec<u8>, value: V) -> Option<V> {
        let Some(candidate) = self.candidate(&key) else {
            self.root = Some(Child::Leaf(self.leaves.insert(Leaf { key, value })));
            return None;
        };
        let Some(bit) = Bit::where_differ(&key, &self.leaves[candidate].key) else {
            return Some(std::mem::replace(&mut self.leaves[candidate].value, value));
        };
        let (link, other) = self.place_of(bit, &key);
        let is_second = bit.side(&key) == 1;
        let leaf = Child::Leaf(self.leaves.insert(Leaf { key, value }));
        let sides = if is_second { [other, leaf] } else { [leaf, other] };
        let branch = self.branches.insert(Branch { bit, sides });
        self.hang(link, Child::Branch(branch));
        None
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        let (mut above, mut link, mut child) = (None, None, self.root?);
        let leaf = loop {
            match child {
                Child::Leaf(leaf) => break leaf,
                Child::Branch(at) => {
                    let branch = &self.branches[at];
                    let side = branch.bit.side(key);
                    (above, link, child) = (link, Some((at, side)), branch.sides[side]);
                }
            }
        };
        if self.leaves[leaf].key != key {
            return None;
        }
        match link {
            None => self.root = None,
            Some((branch, side)) => {
                let Branch { sides, .. } = self.branches.remove(branch);
                self.hang(above, sides[1 - side]);
            }
        }
        Some(self.leaves.remove(leaf).value)
    }

    fn len(&self) -> usize {
        self.leaves.len()
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &V)> + '_> {
        Box::new(self.leaves.iter().map(|leaf| (leaf.key.as_slice(), &leaf.value)))
    }
}

#[cfg(test)]
impl<V> CritBitTree<V> {
    /// The keys in their order; panics where the invariant does not hold.
    pub fn checked_keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        self.check(self.root, None, &mut keys);
        assert_eq!(self.branches.len(), self.leaves.len().saturating_sub(1), "a branch too many or too few");
        keys
    }

    fn check(&self, child: Option<Child>, above: Option<Bit>, keys: &mut Vec<Vec<u8>>) {
        match child {
            None => {}
            Some(Child::Leaf(leaf)) => keys.push(self.leaves[leaf].key.clone()),
            Some(Child::Branch(at)) => {
                let Branch { bit, sides } = &self.branches[at];
                assert!(above.is_none_or(|above| above.is_before(*bit)), "{above:?} above {bit:?}");
                let first = keys.len();
                for (side, child) in sides.iter().enumerate() {
                    let from = keys.len();
                    self.check(Some(*child), Some(*bit), keys);
                    assert!(keys[from..].iter().all(|key| bit.side(key) == side), "a key on the wrong side");
                }
                let alike = |key: &Vec<u8>| {
                    Bit::where_differ(key, &keys[first]).is_none_or(|differ| !differ.is_before(*bit))
                };
                assert!(keys[first..].iter().all(alike), "keys differ before {bit:?}");
            }
        }
    }
}
