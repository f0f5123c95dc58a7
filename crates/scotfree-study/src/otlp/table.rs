//! Which attribute of a record says what: the table of python/src/scotfree/study/ingest/attributes.py, for look-ups.
//!
//! Invariant: a key has one meaning; columns are in the order in which the table names them first.

use super::attribute::Any;
use std::borrow::Cow;
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
    /// The type of an error.
    Error {
        rank: u16,
        family: Family,
    },
    /// The call is a hedge if the value is that of `AttributeTable::hedges`.
    Hedge(usize),
}

/// Whose words an error's type is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// A number or a name of gRPC: it says by itself whether the call failed.
    Grpc,
    /// A status of HTTP, likewise.
    Http,
    /// Any text, of use if the record's own status is an error.
    Text,
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
    /// Keys with gRPC's codes, with statuses of HTTP, and with texts: each goes before the next.
    pub errors: [Vec<String>; 3],
    /// Keys, also of links, with the value that marks a hedge.
    pub hedges: Vec<(String, String)>,
    /// Names of gRPC's codes; the first is no error.
    pub grpc: Vec<String>,
    /// What statuses of HTTP are called; others from 400 on are `HTTP_` and their number.
    pub http: Vec<(i64, String)>,
}

/// The table, ready for use.
#[derive(Debug, Clone)]
pub struct AttributeTable {
    pub(super) integers: Vec<String>,
    pub(super) floats: Vec<String>,
    pub(super) texts: Vec<String>,
    pub(super) hedges: Vec<Vec<u8>>,
    pub(super) grpc: Vec<String>,
    pub(super) http: Vec<(i64, String)>,
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
        let families = [Family::Grpc, Family::Http, Family::Text].into_iter().zip(&pairs.errors);
        let errors = families.flat_map(|(family, keys)| keys.iter().map(move |key| (family, key)));
        for (rank, (family, key)) in errors.enumerate() {
            add(key, Target::Error { rank: rank as u16, family })?;
        }
        for (index, (key, _)) in pairs.hedges.iter().enumerate() {
            add(key, Target::Hedge(index))?;
        }
        let hedges = pairs.hedges.iter().map(|(_, value)| value.as_bytes().to_vec()).collect();
        let service = texts.iter().position(|column| column == "service");
        let (grpc, http) = (pairs.grpc.clone(), pairs.http.clone());
        Ok(AttributeTable { integers, floats, texts, hedges, grpc, http, service, keys })
    }

    /// What an attribute calls the error, if it says that there is one.
    pub(super) fn error<'a>(&'a self, family: Family, value: Any<'a>) -> Option<Cow<'a, str>> {
        match (family, value) {
            (Family::Text, Any::Text(text)) if !text.is_empty() => Some(String::from_utf8_lossy(text)),
            (Family::Text, Any::Integer(number)) => Some(number.to_string().into()),
            (Family::Text, _) | (_, Any::Double(_)) => None,
            (Family::Grpc, Any::Text(text)) if integer(value).is_none() => {
                let name = self.grpc.iter().skip(1).find(|name| name.as_bytes().eq_ignore_ascii_case(text));
                name.map(|name| name.as_str().into())
            }
            (Family::Grpc, value) => {
                let code = usize::try_from(integer(value)?).ok().filter(|code| *code > 0)?;
                self.grpc.get(code).map(|name| name.as_str().into())
            }
            (Family::Http, value) => {
                let code = integer(value).filter(|code| (400..600).contains(code))?;
                let name = self.http.iter().find(|(known, _)| *known == code);
                Some(name.map_or_else(|| format!("HTTP_{code}").into(), |(_, name)| name.as_str().into()))
            }
        }
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

/// An integer that is not negative, whichever way it is written.
pub(super) fn integer(value: Any<'_>) -> Option<i64> {
    match value {
        Any::Integer(value) => (value >= 0).then_some(value),
        Any::Double(value) => (value > -1.0 && value < 9.2e18).then_some(value as i64),
        Any::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok().filter(|value| *value >= 0),
        Any::Other => None,
    }
}

/// A finite number that is not negative.
pub(super) fn float(value: Any<'_>) -> Option<f64> {
    let value = match value {
        Any::Integer(value) => value as f64,
        Any::Double(value) => value,
        Any::Text(_) | Any::Other => return None,
    };
    (value >= 0.0 && value.is_finite()).then_some(value)
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
