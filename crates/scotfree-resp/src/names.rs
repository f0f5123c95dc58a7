//! A table of names, for what is asked several times of every command.
//!
//! Invariant: a name is found if and only if it was put in, byte for byte.

use scotfree_core::Fnv1a;

/// Values under names: open addressing, at most half full.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameTable<T> {
    slots: Vec<Option<(Box<[u8]>, T)>>,
}

impl<T: Copy> NameTable<T> {
    /// A table of these; of equal names the first one counts.
    pub fn of<'a>(entries: impl ExactSizeIterator<Item = (&'a [u8], T)>) -> NameTable<T> {
        let count = (entries.len() * 2 + 1).next_power_of_two();
        let mut table = NameTable { slots: vec![None; count] };
        for (name, value) in entries {
            let at = table.place(name);
            if table.slots[at].is_none() {
                table.slots[at] = Some((name.into(), value));
            }
        }
        table
    }

    /// The value under a name.
    pub fn get(&self, name: &[u8]) -> Option<T> {
        if self.slots.is_empty() {
            return None;
        }
        self.slots[self.place(name)].as_ref().map(|(_, value)| *value)
    }

    /// Where a name is, or would be. A slot is always free.
    fn place(&self, name: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash(name) as usize & mask;
        while self.slots[at].as_ref().is_some_and(|(found, _)| **found != *name) {
            at = (at + 1) & mask;
        }
        at
    }
}

fn hash(name: &[u8]) -> u64 {
    let hash = Fnv1a::of(name);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_no_other() {
        let names: Vec<String> = (0..500).map(|number| format!("name {number}")).collect();
        let table = NameTable::of(names.iter().enumerate().map(|(at, name)| (name.as_bytes(), at)));
        for (at, name) in names.iter().enumerate() {
            assert_eq!(table.get(name.as_bytes()), Some(at));
            assert_eq!(table.get(&name.as_bytes()[1..]), None);
        }
        assert_eq!(table.get(b""), None);
        assert_eq!(NameTable::<u8>::default().get(b"x"), None);
        let twice = NameTable::of([(&b"a"[..], 1), (b"a", 2)].into_iter());
        assert_eq!(twice.get(b"a"), Some(1));
    }
}
