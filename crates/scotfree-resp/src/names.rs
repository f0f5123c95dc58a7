//! A table of names, for what is asked several times of every command.
//!
//! Invariant: a name is found if and only if it was put in, byte for byte.

use scotfree_core::Fnv1a;

/// Values under names: open addressing, at most half full.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameTable<T> {
    slots: Vec<Option<Slot<T>>>,
}

#[derive(Debug, Clone)]
struct Slot<T> {
    head: Head,
    name: Box<[u8]>,
    value: T,
}

/// The first eight bytes of a name, which most are no longer than, and its length: two comparisons instead of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    bytes: u64,
    len: usize,
}

impl Head {
    fn of(name: &[u8]) -> Head {
        let bytes = match name.first_chunk() {
            Some(first) => u64::from_le_bytes(*first),
            None => name.iter().rev().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte)),
        };
        Head { bytes, len: name.len() }
    }
}

impl<T: Copy> NameTable<T> {
    /// A table of these; of equal names the first one counts.
    pub fn of<'a>(entries: impl ExactSizeIterator<Item = (&'a [u8], T)>) -> NameTable<T> {
        let count = (entries.len() * 2 + 1).next_power_of_two();
        let mut table = NameTable { slots: vec![None; count] };
        for (name, value) in entries {
            let at = table.place(name);
            if table.slots[at].is_none() {
                table.slots[at] = Some(Slot { head: Head::of(name), name: name.into(), value });
            }
        }
        table
    }

    /// The value under a name.
    pub fn get(&self, name: &[u8]) -> Option<T> {
        if self.slots.is_empty() {
            return None;
        }
        self.slots[self.place(name)].as_ref().map(|slot| slot.value)
    }

    /// Where a name is, or would be. A slot is always free.
    fn place(&self, name: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let head = Head::of(name);
        let is_other =
            |slot: &Slot<T>| slot.head != head || head.len > size_of::<u64>() && *slot.name != *name;
        let mut at = hash(head, name) as usize & mask;
        while self.slots[at].as_ref().is_some_and(is_other) {
            at = (at + 1) & mask;
        }
        at
    }
}

fn hash(head: Head, name: &[u8]) -> u64 {
    let rest = name.get(size_of::<u64>()..).map_or(0, Fnv1a::of);
    let hash = (head.bytes ^ rest).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
        // Equal in their first eight bytes, or but for their lengths.
        let alike = ["GEORADIUSBYMEMBER", "GEORADIUS", "GEORADIU", "G", "G\0"];
        let table = NameTable::of(alike.iter().enumerate().map(|(at, name)| (name.as_bytes(), at)));
        for (at, name) in alike.iter().enumerate() {
            assert_eq!(table.get(name.as_bytes()), Some(at), "{name}");
        }
        assert_eq!(NameTable::<u8>::default().get(b"x"), None);
        let twice = NameTable::of([(&b"a"[..], 1), (b"a", 2)].into_iter());
        assert_eq!(twice.get(b"a"), Some(1));
    }
}
