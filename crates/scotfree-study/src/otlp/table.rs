//! Which attribute of a record says what: the table of python/src/scotfree/study/ingest/attributes.py, for look-ups.
//!
//! Invariant: a key has one meaning; columns are in the order in which the table names them first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What an attribute's value is for. Of those of one column the lowest rank wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Integer {
        column: usize,
        rank: u16,
    },
    Float {
        column: usize,
        rank: u16,
    },
    Text {
        column: usize,
        rank: u16,
    },
    /// The type of an error; small integers may be gRPC's codes.
    Error {
        rank: u16,
        is_rpc: bool,
    },
    /// The call is a hedge if the value is that of `AttributeTable::hedges`.
    Hedge(usize),
}

/// The table as it comes from Python: pairs of a key and its column, by the kind of value.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// Integers that are not negative.
    pub integers: Vec<(String, String)>,
    /// Numbers that are not negative.
    pub floats: Vec<(String, String)>,
    /// Texts.
    pub texts: Vec<(String, String)>,
    /// Keys that give an error's type.
    pub errors: Vec<String>,
    /// Keys, also of links, with the value that marks a hedge.
    pub hedges: Vec<(String, String)>,
    /// Names of gRPC's codes.
    pub codes: Vec<String>,
}

/// The table, ready for use.
#[derive(Debug, Clone)]
pub struct AttributeTable {
    pub(super) integers: Vec<String>,
    pub(super) floats: Vec<String>,
    pub(super) texts: Vec<String>,
    pub(super) hedges: Vec<Vec<u8>>,
    pub(super) codes: Vec<String>,
    /// The column that must have a text.
    pub(super) service: Option<usize>,
    keys: HashMap<Box<[u8]>, Target, BuildHasherDefault<Quick>>,
}

impl AttributeTable {
    /// From pairs. An error names a key that has two meanings.
    pub fn new(pairs: &Pairs) -> Result<Self, String> {
        let mut keys = HashMap::default();
        let mut add = |key: &str, target: Target| match keys.insert(key.as_bytes().into(), target) {
            None => Ok(()),
            Some(_) => Err(format!("the attribute {key} has two meanings")),
        };
        let integers =
            columns(&pairs.integers, |key, column, rank| add(key, Target::Integer { column, rank }))?;
        let floats = columns(&pairs.floats, |key, column, rank| add(key, Target::Float { column, rank }))?;
        let texts = columns(&pairs.texts, |key, column, rank| add(key, Target::Text { column, rank }))?;
        for (rank, key) in pairs.errors.iter().enumerate() {
            add(key, Target::Error { rank: rank as u16, is_rpc: key.starts_with("rpc.") })?;
        }
        for (index, (key, _)) in pairs.hedges.iter().enumerate() {
            add(key, Target::Hedge(index))?;
        }
        let hedges = pairs.hedges.iter().map(|(_, value)| value.as_bytes().to_vec()).collect();
        let service = texts.iter().position(|column| column == "service");
        Ok(AttributeTable { integers, floats, texts, hedges, codes: pairs.codes.clone(), service, keys })
    }

    #[inline]
    pub(super) fn target(&self, key: &[u8]) -> Option<Target> {
        self.keys.get(key).copied()
    }
}

fn columns(
    pairs: &[(String, String)],
    mut add: impl FnMut(&str, usize, u16) -> Result<(), String>,
) -> Result<Vec<String>, String> {
    let mut columns: Vec<String> = Vec::new();
    for (rank, (key, name)) in pairs.iter().enumerate() {
        let column = columns.iter().position(|known| known == name).unwrap_or(columns.len());
        if column == columns.len() {
            columns.push(name.clone());
        }
        add(key, column, rank as u16)?;
    }
    Ok(columns)
}

/// Quick and easy to outwit: only for maps whose keys are ours, so that no input can make them slow.
#[derive(Debug, Default, Clone, Copy)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("a chunk has the length asked for")));
        }
        let rest =
            chunks.remainder().iter().fold(bytes.len() as u64, |rest, byte| (rest << 8) | u64::from(*byte));
        self.mix(rest);
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

impl Quick {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(key, column)| ((*key).to_owned(), (*column).to_owned())).collect()
    }

    #[test]
    fn two_keys_share_a_column_and_the_first_wins() {
        let integers = pairs(&[("rpc.request.size", "req_bytes"), ("size", "req_bytes"), ("cpu", "cpu_ns")]);
        let table = AttributeTable::new(&Pairs { integers, ..Pairs::default() }).expect("it is one");
        assert_eq!(table.integers, ["req_bytes", "cpu_ns"]);
        assert_eq!(table.target(b"size"), Some(Target::Integer { column: 0, rank: 1 }));
        assert_eq!(table.target(b"cpu"), Some(Target::Integer { column: 1, rank: 2 }));
        assert_eq!(table.target(b"cp"), None);
    }

    #[test]
    fn a_key_of_two_meanings_is_refused() {
        let (integers, texts) = (pairs(&[("a", "x")]), pairs(&[("a", "y")]));
        let error = AttributeTable::new(&Pairs { integers, texts, ..Pairs::default() }).err();
        assert_eq!(error.as_deref(), Some("the attribute a has two meanings"));
    }
}
