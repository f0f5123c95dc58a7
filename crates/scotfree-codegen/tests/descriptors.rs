//! Sets of descriptors that no compiler wrote: each is refused with what is wrong, or gives types that can be used.

#![allow(clippy::unwrap_used)]

use scotfree_transform::descriptor::{read, types_of, DescriptorError, Loaded};
use scotfree_transform::{protobuf::table, Arena, DecodeError, Limits};

fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    let mut length = value.len();
    let mut out = vec![number << 3 | 2];
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}

fn loaded(set: &[u8]) -> Result<Loaded, DescriptorError> {
    types_of(&read(set)?)
}

/// A set of one file with one message `M` of these fields and as many oneofs.
fn message(fields: &[Vec<u8>], oneofs: usize) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|field| bytes(2, field)).collect();
    let oneofs = bytes(8, &bytes(1, b"o")).repeat(oneofs);
    bytes(1, &bytes(4, &[bytes(1, b"M"), fields, oneofs].concat()))
}

/// A field of this number: its label and its type, and what else is said.
fn field(number: &[u8], label: u8, kind: u8, more: &[u8]) -> Vec<u8> {
    [bytes(1, b"f"), vec![0x18], number.to_vec(), vec![0x20, label, 0x28, kind], more.to_vec()].concat()
}

const OPTIONAL: u8 = 1;
const REPEATED: u8 = 3;
const INT32: u8 = 5;
const STRING: u8 = 9;
const MESSAGE: u8 = 11;

#[test]
fn a_message_of_given_fields_is_what_a_compiler_would_have_said() {
    let loaded =
        loaded(&message(&[field(&[1], OPTIONAL, INT32, &[]), field(&[2], REPEATED, STRING, &[])], 0));
    let loaded = loaded.unwrap();
    let (mut arena, mut out) = (Arena::new(), Vec::new());
    let input = b"\x08\x05\x12\x01x";
    let view =
        table::decode(&loaded.types, loaded.by_name[".M"], input, &mut arena, &Limits::default()).unwrap();
    table::encode(view, &mut out);
    assert_eq!(out, input);
}

#[test]
fn a_number_that_no_field_may_have_is_refused() {
    // 0, 2^29, 2^32 + 1, and none at all.
    for (number, told) in [
        (&b"\x00"[..], 0),
        (b"\x80\x80\x80\x80\x02", 1 << 29),
        (b"\x81\x80\x80\x80\x10", u32::MAX),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", u32::MAX),
    ] {
        let set = message(&[field(number, OPTIONAL, INT32, &[])], 0);
        let expected = DescriptorError::Number { of: "M.f".to_owned(), number: told };
        assert_eq!(loaded(&set).unwrap_err(), expected);
    }
    let twice = message(&[field(&[7], OPTIONAL, INT32, &[]), field(&[7], OPTIONAL, STRING, &[])], 0);
    assert_eq!(loaded(&twice).unwrap_err(), DescriptorError::Number { of: "M.f".to_owned(), number: 7 });
    let highest = message(&[field(b"\xff\xff\xff\xff\x01", OPTIONAL, INT32, &[])], 0);
    assert!(loaded(&highest).is_ok());
}

#[test]
fn a_oneof_of_many_values_or_of_another_message_is_refused() {
    let refused = DescriptorError::Oneof { of: "M.f".to_owned() };
    // Two that would share a slot: one text, and many.
    let many = [field(&[1], OPTIONAL, STRING, &[0x48, 0]), field(&[2], REPEATED, STRING, &[0x48, 0])];
    assert_eq!(loaded(&message(&many, 1)).unwrap_err(), refused);
    for place in [&[0][..], &[1], &[0xfe, 0xff, 0x03], &[0xff, 0xff, 0x03], &[0x80, 0x80, 0x04]] {
        let one = field(&[1], OPTIONAL, STRING, &[&[0x48][..], place].concat());
        assert_eq!(loaded(&message(&[one], usize::from(place == [1]))).unwrap_err(), refused);
    }
    assert!(loaded(&message(&[field(&[1], OPTIONAL, STRING, &[0x48, 0])], 1)).is_ok());
}

#[test]
fn a_type_that_is_not_there_is_told_with_what_refers_to_it() {
    let set = message(&[field(&[1], OPTIONAL, MESSAGE, &bytes(6, b".None"))], 0);
    assert_eq!(
        loaded(&set).unwrap_err(),
        DescriptorError::Unknown { of: "M.f".to_owned(), name: ".None".to_owned() }
    );
    for kind in [0, 19, 127] {
        let set = message(&[field(&[1], OPTIONAL, kind, &[])], 0);
        assert_eq!(
            loaded(&set).unwrap_err(),
            DescriptorError::NoType { of: "M.f".to_owned(), number: u64::from(kind) }
        );
    }
}

#[test]
fn descriptions_within_each_other_are_read_to_a_depth() {
    let nested = |depth: usize| {
        let inner = (1..depth).fold(bytes(1, b"M"), |inner, _| [bytes(1, b"M"), bytes(3, &inner)].concat());
        bytes(1, &bytes(4, &inner))
    };
    assert_eq!(loaded(&nested(100)).unwrap().types.types.len(), 100);
    for depth in [101, 5_000] {
        assert_eq!(
            loaded(&nested(depth)).unwrap_err(),
            DescriptorError::Damaged(DecodeError::TooDeep { at: 0 })
        );
    }
}

#[test]
fn a_set_that_ends_too_early_is_damaged_or_shorter() {
    let set = message(&[field(&[1], OPTIONAL, STRING, &[0x48, 0]), field(&[2], OPTIONAL, INT32, &[])], 1);
    for end in 1..set.len() {
        assert!(matches!(loaded(&set[..end]), Err(DescriptorError::Damaged(DecodeError::Cut { .. }))));
    }
    // Each byte changed to each value: refused or not, nothing panics, and what is taken can be used.
    for at in 0..set.len() {
        for value in 0..=255 {
            let mut changed = set.clone();
            changed[at] = value;
            let Ok(loaded) = loaded(&changed) else { continue };
            for index in 0..loaded.types.types.len() {
                let mut arena = Arena::new();
                let limits = Limits::default();
                let input = b"\x0a\x01x\x10\x05";
                if let Ok(view) = table::decode(&loaded.types, index as u16, input, &mut arena, &limits) {
                    let mut out = Vec::new();
                    table::encode(view, &mut out);
                    assert!(!out.is_empty());
                }
            }
        }
    }
}
