//! Files of edition 2023, as a compiler describes them: what features say of a field, near it and far from it.
//!
//! protox compiles no editions, so that the descriptors are written here.

#![allow(clippy::unwrap_used)]

use scotfree_transform::descriptor::{read, types_of, Loaded};
use scotfree_transform::{protobuf::table, Arena, DecodeError, Limits};

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

/// Features as their message of options has them, whose field they are: which, and what it is.
type Features = &'static [(u64, u64)];

fn options(field: u64, number_in_options: u64, features: Features) -> Vec<u8> {
    let features: Vec<u8> = features.iter().flat_map(|&(which, is)| number(which, is)).collect();
    bytes(field, &bytes(number_in_options, &features))
}

const PRESENCE: u64 = 1;
const ENUMS: u64 = 2;
const REPEATED_ENCODING: u64 = 3;
const UTF8: u64 = 4;
const MESSAGES: u64 = 5;

const OPTIONAL: u64 = 1;
const REPEATED: u64 = 3;
const INT32: u64 = 5;
const STRING: u64 = 9;
const MESSAGE: u64 = 11;
const ENUM: u64 = 14;

/// A file of a message `M` of one field, number 1, and an enumeration `E` of 0 and 1.
struct Described {
    label: u64,
    kind: u64,
    of_file: Features,
    of_message: Features,
    of_enum: Features,
    of_field: Features,
}

const PLAIN: Described =
    Described { label: OPTIONAL, kind: INT32, of_file: &[], of_message: &[], of_enum: &[], of_field: &[] };

impl Described {
    fn loaded(&self) -> Loaded {
        let type_name = match self.kind {
            MESSAGE => bytes(6, b".M"),
            ENUM => bytes(6, b".E"),
            _ => Vec::new(),
        };
        let field = [
            bytes(1, b"f"),
            number(3, 1),
            number(4, self.label),
            number(5, self.kind),
            type_name,
            options(8, 21, self.of_field),
        ];
        let message = [bytes(1, b"M"), bytes(2, &field.concat()), options(7, 12, self.of_message)];
        let value = |name: &[u8], is| bytes(2, &[bytes(1, name), number(2, is)].concat());
        let enumeration = [bytes(1, b"E"), value(b"ZERO", 0), value(b"ONE", 1), options(3, 7, self.of_enum)];
        let file = [
            bytes(4, &message.concat()),
            bytes(5, &enumeration.concat()),
            options(8, 50, self.of_file),
            bytes(12, b"editions"),
            number(14, 1000),
        ];
        types_of(&read(&bytes(1, &file.concat())).unwrap()).unwrap()
    }

    /// What comes of a message that is decoded and encoded.
    fn again(&self, input: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let (loaded, mut arena, mut out) = (self.loaded(), Arena::new(), Vec::new());
        let view = table::decode(&loaded.types, loaded.by_name[".M"], input, &mut arena, &Limits::default())?;
        table::encode(view, &mut out);
        Ok(out)
    }
}

#[test]
fn a_field_is_there_if_it_was_set_unless_a_feature_says_otherwise() {
    assert_eq!(PLAIN.again(b"\x08\x00").unwrap(), b"\x08\x00");
    let implicit = &[(PRESENCE, 2)];
    assert_eq!(Described { of_field: implicit, ..PLAIN }.again(b"\x08\x00").unwrap(), b"");
    assert_eq!(Described { of_file: implicit, ..PLAIN }.again(b"\x08\x00").unwrap(), b"");
    // What is said nearer counts.
    let both = Described { of_file: implicit, of_field: &[(PRESENCE, 1)], ..PLAIN };
    assert_eq!(both.again(b"\x08\x00").unwrap(), b"\x08\x00");
    // A message is there or is not, whatever the file says.
    let message = Described { kind: MESSAGE, of_file: implicit, ..PLAIN };
    assert_eq!(message.again(b"\x0a\x00").unwrap(), b"\x0a\x00");
    let required = Described { of_field: &[(PRESENCE, 3)], ..PLAIN };
    assert_eq!(required.again(b""), Err(DecodeError::Missing { number: 1 }));
    assert_eq!(required.again(b"\x08\x00").unwrap(), b"\x08\x00");
}

#[test]
fn many_numbers_are_packed_unless_a_feature_says_otherwise() {
    let many = Described { label: REPEATED, ..PLAIN };
    let (together, apart) = (&b"\x0a\x02\x01\x02"[..], &b"\x08\x01\x08\x02"[..]);
    let expanded = Described { of_field: &[(REPEATED_ENCODING, 2)], ..many };
    for input in [together, apart] {
        assert_eq!(many.again(input).unwrap(), together);
        assert_eq!(expanded.again(input).unwrap(), apart);
    }
}

#[test]
fn strings_are_looked_at_unless_a_feature_says_otherwise() {
    let text = Described { kind: STRING, ..PLAIN };
    let wrong = b"\x0a\x01\xff";
    assert_eq!(text.again(wrong), Err(DecodeError::NotUtf8 { number: 1, at: 0 }));
    assert_eq!(Described { of_field: &[(UTF8, 3)], ..text }.again(wrong).unwrap(), wrong);
    assert_eq!(Described { of_message: &[(UTF8, 3)], ..text }.again(wrong).unwrap(), wrong);
}

#[test]
fn enumerations_are_open_unless_a_feature_of_theirs_says_otherwise() {
    // The last number counts; of a closed one, the last that it knows, and the other stays an unknown field.
    let (open, input) = (Described { kind: ENUM, ..PLAIN }, b"\x08\x01\x08\x07");
    assert_eq!(open.again(input).unwrap(), b"\x08\x07");
    assert_eq!(Described { of_enum: &[(ENUMS, 2)], ..open }.again(input).unwrap(), input);
    assert_eq!(Described { of_file: &[(ENUMS, 2)], ..open }.again(input).unwrap(), input);
    // It is the enumeration's feature, and not that of a field of it.
    assert_eq!(Described { of_field: &[(ENUMS, 2)], ..open }.again(input).unwrap(), b"\x08\x07");
}

#[test]
fn a_message_has_its_length_before_it_unless_a_feature_says_otherwise() {
    let message = Described { kind: MESSAGE, ..PLAIN };
    let (with_length, delimited) = (&b"\x0a\x02\x0a\x00"[..], &b"\x0b\x0b\x0c\x0c"[..]);
    assert_eq!(message.again(with_length).unwrap(), with_length);
    let group = Described { of_field: &[(MESSAGES, 2)], ..message };
    assert_eq!(group.again(delimited).unwrap(), delimited);
    assert_eq!(group.again(b"\x0b\x0b\x0c"), Err(DecodeError::Cut { at: 3 }));
    // The other way it is an unknown field, and stays as it is.
    assert_eq!(group.again(with_length).unwrap(), with_length);
}
