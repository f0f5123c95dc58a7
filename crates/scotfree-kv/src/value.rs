//! What a key holds, and its bytes for other members of a group.
//!
//! Bytes: 0 and the text, or 1 and the elements of a list, each its length (4) and its bytes.
//!
//! Invariant: reading what was written gives the same value; other bytes are no value.

use crate::op::{read_blob, write_blob};
use std::collections::VecDeque;

/// What an element of a list counts for beyond its bytes.
pub(crate) const ELEMENT_BYTES: usize = 16;

/// A value of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(Vec<u8>),
    /// A list.
    List(VecDeque<Vec<u8>>),
}

impl Value {
    /// What it counts for.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::List(elements) => elements.iter().map(|element| element.len() + ELEMENT_BYTES).sum(),
        }
    }

    /// Appends its bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Text(text) => {
                out.push(0);
                out.extend_from_slice(text);
            }
            Value::List(elements) => {
                out.push(1);
                for element in elements {
                    write_blob(element, out);
                }
            }
        }
    }

    /// Reads its bytes; `None` if they are no value's.
    pub(crate) fn read(bytes: &[u8]) -> Option<Value> {
        match bytes.split_first()? {
            (0, text) => Some(Value::Text(text.to_vec())),
            (1, rest) => read_elements(rest).map(Value::List),
            _ => None,
        }
    }
}

fn read_elements(mut bytes: &[u8]) -> Option<VecDeque<Vec<u8>>> {
    let mut elements = VecDeque::new();
    while !bytes.is_empty() {
        let (element, rest) = read_blob(bytes)?;
        elements.push_back(element.to_vec());
        bytes = rest;
    }
    Some(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_and_other_bytes_are_none() {
        let list = Value::List([b"a".to_vec(), Vec::new(), b"ccc".to_vec()].into());
        for value in [Value::Text(Vec::new()), Value::Text(b"\x01\0".to_vec()), list] {
            let mut bytes = Vec::new();
            value.write(&mut bytes);
            assert_eq!(Value::read(&bytes), Some(value));
        }
        for bytes in [&b""[..], &[2, 0], &[1, 0], &[1, 1, 0, 0, 0], &[1, 255, 255, 255, 255, 9]] {
            assert_eq!(Value::read(bytes), None, "{bytes:?}");
        }
    }
}
