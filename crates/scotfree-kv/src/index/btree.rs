//! The B-tree: the standard library's.
//!
//! Invariant: it does what its map does.

use super::Index;
use std::collections::BTreeMap;
use std::fmt::Debug;

impl<V: Debug + Send> Index<V> for BTreeMap<Vec<u8>, V> {
    fn get(&self, key: &[u8]) -> Option<&V> {
        BTreeMap::get(self, key)
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        BTreeMap::get_mut(self, key)
    }

    fn insert(&mut self, key: Vec<u8>, value: V) -> Option<V> {
        BTreeMap::insert(self, key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        BTreeMap::remove(self, key)
    }

    fn len(&self) -> usize {
        BTreeMap::len(self)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &V)> + '_> {
        Box::new(BTreeMap::iter(self).map(|(key, value)| (key.as_slice(), value)))
    }
}
