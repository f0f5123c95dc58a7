//! The hash map: the standard library's.
//!
//! Invariant: it does what its map does.

use super::Index;
use std::collections::HashMap;
use std::fmt::Debug;

impl<V: Debug + Send> Index<V> for HashMap<Vec<u8>, V> {
    fn get(&self, key: &[u8]) -> Option<&V> {
        HashMap::get(self, key)
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        HashMap::get_mut(self, key)
    }

    fn insert(&mut self, key: Vec<u8>, value: V) -> Option<V> {
        HashMap::insert(self, key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        HashMap::remove(self, key)
    }

    fn len(&self) -> usize {
        HashMap::len(self)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &V)> + '_> {
        Box::new(HashMap::iter(self).map(|(key, value)| (key.as_slice(), value)))
    }
}
