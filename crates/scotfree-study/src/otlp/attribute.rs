//! An attribute: its key, and its value of the kinds that a record can say something with.
//!
//! Invariant: of several values the last counts.

use super::messages::{AnyValue, AnyValueVisitor, KeyValue, KeyValueVisitor};
use scotfree_transform::protobuf::Part;

/// An attribute's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Any<'a> {
    /// A text, as its bytes stand there.
    Text(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A number.
    Double(f64),
    /// A truth, bytes, a list, a map, or nothing.
    Other,
}

/// An attribute could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// A `KeyValue`: its key, and its value.
#[inline(always)]
pub fn attribute(message: Part<'_, KeyValue>) -> Result<(&[u8], Any<'_>), Unreadable> {
    let mut found = Found { key: &[], value: Ok(Any::Other) };
    KeyValue::visit(message, &mut found).map_err(|_| Unreadable)?;
    found.value.map(|value| (found.key, value))
}

struct Found<'a> {
    key: &'a [u8],
    value: Result<Any<'a>, Unreadable>,
}

impl<'a> KeyValueVisitor<'a> for Found<'a> {
    #[inline(always)]
    fn key(&mut self, key: &'a [u8]) {
        self.key = key;
    }

    #[inline(always)]
    fn value(&mut self, message: Part<'a, AnyValue>) {
        let mut value = Any::Other;
        let read = AnyValue::visit(message, &mut value);
        self.value = read.map(|()| value).map_err(|_| Unreadable);
    }
}

impl<'a> AnyValueVisitor<'a> for Any<'a> {
    #[inline(always)]
    fn string_value(&mut self, text: &'a [u8]) {
        *self = Any::Text(text);
    }

    #[inline(always)]
    fn int_value(&mut self, integer: i64) {
        *self = Any::Integer(integer);
    }

    #[inline(always)]
    fn double_value(&mut self, double: f64) {
        *self = Any::Double(double);
    }

    #[inline(always)]
    fn bool_value(&mut self, _: bool) {
        *self = Any::Other;
    }

    #[inline(always)]
    fn array_value(&mut self, _: &'a [u8]) {
        *self = Any::Other;
    }

    #[inline(always)]
    fn kvlist_value(&mut self, _: &'a [u8]) {
        *self = Any::Other;
    }

    #[inline(always)]
    fn bytes_value(&mut self, _: &'a [u8]) {
        *self = Any::Other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<(&[u8], Any<'_>), Unreadable> {
        attribute(Part::new(bytes))
    }

    #[test]
    fn a_value_is_what_was_said_last() {
        let cases: [(&[u8], Any<'_>); 7] = [
            (b"\x0a\x01k\x12\x03\x0a\x01v", Any::Text(b"v")),
            (b"\x12\x03\x0a\x01v\x0a\x01k", Any::Text(b"v")),
            (b"\x0a\x01k\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Any::Integer(-1)),
            (b"\x0a\x01k\x12\x09\x21\x00\x00\x00\x00\x00\x00\xf8\x3f", Any::Double(1.5)),
            (b"\x0a\x01k\x12\x05\x0a\x01v\x10\x01", Any::Other),
            (b"\x0a\x01k\x12\x05\x10\x01\x0a\x01v", Any::Text(b"v")),
            // A tag and a length in more bytes than they need, and a field that nobody knows.
            (b"\x8a\x00\x81\x80\x00k\x12\x83\x80\x80\x80\x00\x0a\x01v\x48\x07", Any::Text(b"v")),
        ];
        for (bytes, value) in cases {
            assert_eq!(read(bytes), Ok((&b"k"[..], value)), "{bytes:?}");
        }
        assert_eq!(read(b"\x0a\x01k"), Ok((&b"k"[..], Any::Other)));
    }

    #[test]
    fn one_that_is_cut_off_anywhere_within_cannot_be_read() {
        let whole = b"\x0a\x01k\x12\x03\x0a\x01v";
        for end in 0..whole.len() {
            let is_whole = [0, 3].contains(&end);
            assert_eq!(read(&whole[..end]).is_ok(), is_whole, "cut at {end}");
            // Bytes behind the message are not its own.
            let message = Part::within(whole, 0..end);
            assert_eq!(attribute(message).is_ok(), is_whole, "ends at {end}");
        }
        assert_eq!(read(b"\x0a\x01k\x12\x02\x0a\x01v"), Err(Unreadable));
    }
}
