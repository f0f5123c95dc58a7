//! The fields of a hash, packed one after the other: as a value of an item, and in replies.
//!
//! ```text
//! | fields u32 | field's bytes u16 | value's bytes u32 | field | value | the next ...
//! ```
//!
//! Invariant: no field is there twice. Replies may hold fields without a value, items never.

use crate::op::Field;
use std::ops::Range;

/// How long a field may be.
pub const FIELD_BYTES_MAX: usize = u16::MAX as usize;
const HEAD_BYTES: usize = 6;
const COUNT_BYTES: usize = 4;
/// In place of a value's length: there is no value.
const NO_VALUE: u32 = u32::MAX;

/// Where a field is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The whole of it.
    pub whole: Range<usize>,
    pub value: Range<usize>,
}

/// How many fields there are.
pub fn count(packed: &[u8]) -> usize {
    packed.get(..COUNT_BYTES).map_or(0, |bytes| u32_of(bytes) as usize)
}

/// All fields with their values; `None` where a reply has none.
pub fn iter(packed: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let mut at = COUNT_BYTES;
    std::iter::from_fn(move || {
        let (field, value) = head(packed, at)?;
        let field_at = at + HEAD_BYTES;
        let value_at = field_at + field;
        at = value_at + value.unwrap_or(0);
        Some((&packed[field_at..value_at], value.map(|_| &packed[value_at..at])))
    })
}

/// The lengths of the field that begins there.
fn head(packed: &[u8], at: usize) -> Option<(usize, Option<usize>)> {
    let bytes = packed.get(at..at + HEAD_BYTES)?;
    let value = u32_of(&bytes[2..]);
    let field = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let value = (value != NO_VALUE).then_some(value as usize);
    // What a closure has written may be anything: fields that are not whole are none.
    let is_whole = packed.len() - at - HEAD_BYTES >= field + value.unwrap_or(0);
    is_whole.then_some((field, value))
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Looks for a field.
pub(crate) fn find(packed: &[u8], field: &[u8]) -> Option<Found> {
    let mut at = COUNT_BYTES;
    while let Some((field_bytes, value_bytes)) = head(packed, at) {
        let field_at = at + HEAD_BYTES;
        let value_at = field_at + field_bytes;
        let end = value_at + value_bytes.unwrap_or(0);
        if field_bytes == field.len() && &packed[field_at..value_at] == field {
            return Some(Found { whole: at..end, value: value_at..end });
        }
        at = end;
    }
    None
}

/// The value of a field.
pub(crate) fn value<'a>(packed: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    find(packed, field).map(|found| &packed[found.value])
}

/// Begins a packing without fields.
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&0u32.to_le_bytes());
}

/// Adds a field that is not there to the packing that begins at `begin`.
pub(crate) fn push(out: &mut Vec<u8>, begin: usize, field: &[u8], value: Option<&[u8]>) {
    let count = u32_of(&out[begin..]) + 1;
    out[begin..begin + COUNT_BYTES].copy_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(field.len() as u16).to_le_bytes());
    out.extend_from_slice(&value.map_or(NO_VALUE, |value| value.len() as u32).to_le_bytes());
    out.extend_from_slice(field);
    out.extend_from_slice(value.unwrap_or_default());
}

/// Sets fields; how many are new.
pub(crate) fn set(packed: &mut Vec<u8>, fields: &[Field<'_>]) -> usize {
    let before = count(packed);
    for (field, value) in fields {
        match find(packed, field) {
            Some(found) if found.value.len() == value.len() => packed[found.value].copy_from_slice(value),
            found => {
                if let Some(found) = found {
                    cut(packed, found.whole);
                }
                push(packed, 0, field, Some(value));
            }
        }
    }
    count(packed) - before
}

/// Removes fields; how many there were.
pub(crate) fn remove(packed: &mut Vec<u8>, fields: &[&[u8]]) -> usize {
    let before = count(packed);
    for field in fields {
        if let Some(found) = find(packed, field) {
            cut(packed, found.whole);
        }
    }
    before - count(packed)
}

fn cut(packed: &mut Vec<u8>, whole: Range<usize>) {
    packed.drain(whole);
    let count = u32_of(packed) - 1;
    packed[..COUNT_BYTES].copy_from_slice(&count.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_found_and_removed() {
        let mut packed = Vec::new();
        begin(&mut packed);
        assert_eq!(set(&mut packed, &[(b"a", b"1"), (b"", b""), (b"a", b"22"), (b"bb", b"3")]), 3);
        assert_eq!(set(&mut packed, &[(b"bb", b"4"), (b"c", b"5")]), 1);
        assert_eq!((value(&packed, b"a"), value(&packed, b"")), (Some(&b"22"[..]), Some(&b""[..])));
        assert_eq!((value(&packed, b"bb"), value(&packed, b"b")), (Some(&b"4"[..]), None));
        assert_eq!(remove(&mut packed, &[b"a", b"nothing", b"a", b""]), 2);
        let all: Vec<_> = iter(&packed).collect();
        assert_eq!(all, [(&b"bb"[..], Some(&b"4"[..])), (b"c", Some(b"5"))]);
        push(&mut packed, 0, b"none", None);
        assert_eq!((iter(&packed).last(), count(&packed)), (Some((&b"none"[..], None)), 3));
        assert_eq!((count(b""), iter(b"").count(), find(b"", b"a")), (0, 0, None));
        for length in 0..packed.len() {
            assert!(iter(&packed[..length]).count() < 3, "a field that is cut off is none");
            assert_eq!(value(&packed[..length], b"none"), None);
        }
    }
}
