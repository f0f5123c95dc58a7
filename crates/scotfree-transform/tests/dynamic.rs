//! Messages of types that are known at run time, read and filled by the places of their fields.
#![allow(clippy::unwrap_used)]

use scotfree_transform::descriptor::{self, Loaded};
use scotfree_transform::dynamic::{missing, path_at, Dynamic, Misfit, Node, Scalar};
use scotfree_transform::{DecodeError, Limits};
use std::sync::Arc;

/// A field's or type's description: a message of lengths below 128.
fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

fn field(name: &str, number: u8, label: u8, kind: u8, of: &str) -> Vec<u8> {
    let numbers = [3 << 3, number, 4 << 3, label, 5 << 3, kind];
    let of = if of.is_empty() { vec![] } else { part(6, of.as_bytes()) };
    part(2, &[&part(1, name.as_bytes())[..], &numbers[..], &of[..]].concat())
}

/// Of proto3: `a.M { int32 i = 1; string s = 2; a.M m = 3; repeated a.M many = 4; repeated string texts = 5; }`, and
/// of proto2's label `a.N { required int32 must = 1; repeated a.N n = 2; }`.
fn loaded() -> Arc<Loaded> {
    let m = [
        part(1, b"M"),
        field("i", 1, 1, 5, ""),
        field("s", 2, 1, 9, ""),
        field("m", 3, 1, 11, ".a.M"),
        field("many", 4, 3, 11, ".a.M"),
        field("texts", 5, 3, 9, ""),
    ];
    let n = [part(1, b"N"), field("must", 1, 2, 5, ""), field("n", 2, 3, 11, ".a.N")];
    let messages = [part(4, &m.concat()), part(4, &n.concat())].concat();
    let file = [&part(2, b"a")[..], &messages, &part(12, b"proto3")].concat();
    let length = [file.len() as u8 & 0x7f | 0x80, (file.len() >> 7) as u8];
    let set = [&[10][..], &length, &file].concat();
    Arc::new(descriptor::types_of(&descriptor::read(&set).unwrap()).unwrap())
}

fn message() -> Dynamic {
    Dynamic::new(loaded(), 0, Limits::default()).unwrap()
}

fn bytes_of(message: &Dynamic) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_set_is_read_and_written() {
    let mut message = message();
    message.edit(Node::ROOT).unwrap().set(0, Scalar::Signed(-1)).unwrap();
    message.edit(Node::ROOT).unwrap().set(1, Scalar::Bytes(b"text")).unwrap();
    let within = message.within(Node::ROOT, 2).unwrap();
    message.edit(within).unwrap().set(0, Scalar::Unsigned(7)).unwrap();
    for text in ["", "x"] {
        message.edit(within).unwrap().push(4, Scalar::Bytes(text.as_bytes())).unwrap();
    }
    let last = message.push(within, 3).unwrap();
    assert_eq!(message.index(last), Ok(0));
    let wanted =
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x04text\x1a\x09\x08\x07\x22\x00\x2a\x00\x2a\x01x";
    assert_eq!(bytes_of(&message), wanted);

    message.edit(Node::ROOT).unwrap().clear(0).unwrap();
    message.edit(Node::ROOT).unwrap().set(1, Scalar::Bytes(b"")).unwrap();
    message.edit(within).unwrap().clear(4).unwrap();
    assert_eq!(bytes_of(&message), b"\x1a\x04\x08\x07\x22\x00");
}

#[test]
fn what_was_decoded_is_changed() {
    let mut message = message();
    message.decode(b"\x08\x05\x22\x02\x08\x01\x22\x00\xf8\x01\x09").unwrap();
    let second = message.find(Node::ROOT, 3, 1).unwrap();
    message.edit(second).unwrap().set(1, Scalar::Bytes(b"x")).unwrap();
    message.push(Node::ROOT, 3).unwrap();
    let view = message.view(Node::ROOT).unwrap();
    assert_eq!(view.count(&view.schema().fields[3]), 3);
    message.edit(Node::ROOT).unwrap().keep_unknown(b"\xf8\x01\x08").unwrap();
    assert_eq!(
        bytes_of(&message),
        b"\x08\x05\x22\x02\x08\x01\x22\x03\x12\x01x\x22\x00\xf8\x01\x09\xf8\x01\x08"
    );
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut message = message();
    let mut set = |place: usize, value: Scalar<'_>| message.edit(Node::ROOT).unwrap().set(place, value);
    let (text, one) = (Scalar::Bytes(b"x"), Scalar::Signed(1));
    assert_eq!(set(0, text), Err(Misfit::Kind));
    assert_eq!(set(0, Scalar::Float(1.0)), Err(Misfit::Kind));
    assert_eq!(set(0, Scalar::Signed(1 << 31)), Err(Misfit::Range));
    assert_eq!(set(1, one), Err(Misfit::Kind));
    assert_eq!(set(1, Scalar::Bytes(b"\xff")), Err(Misfit::NotUtf8));
    assert_eq!(
        (set(2, one), set(3, one), set(5, one)),
        (Err(Misfit::Kind), Err(Misfit::Count), Err(Misfit::NoField))
    );
    let push = |message: &mut Dynamic, place, value| message.edit(Node::ROOT).unwrap().push(place, value);
    assert_eq!(
        (push(&mut message, 0, one), push(&mut message, 4, one)),
        (Err(Misfit::Count), Err(Misfit::Kind))
    );
    assert_eq!(
        (message.within(Node::ROOT, 0), message.within(Node::ROOT, 3)),
        (Err(Misfit::Kind), Err(Misfit::Count))
    );
    assert_eq!(
        (message.push(Node::ROOT, 2), message.push(Node::ROOT, 4)),
        (Err(Misfit::Count), Err(Misfit::Kind))
    );
    assert_eq!(
        (message.find(Node::ROOT, 2, 0), message.find(Node::ROOT, 3, 0)),
        (Err(Misfit::Absent), Err(Misfit::NoElement))
    );
    let unknown = message.edit(Node::ROOT).unwrap().keep_unknown(b"\x08");
    assert_eq!(unknown, Err(Misfit::Unknown(DecodeError::Cut { at: 1 })));
    assert_eq!(bytes_of(&message), b"");
}

#[test]
fn a_node_is_refused_once_its_message_is_gone() {
    let mut message = message();
    let old = message.within(Node::ROOT, 2).unwrap();
    message.decode(b"\x1a\x00").unwrap();
    assert_eq!(message.edit(old).err(), Some(Misfit::Stale));
    let new = message.within(Node::ROOT, 2).unwrap();
    assert!(new != old && message.view(new).is_ok());
    message.clear().unwrap();
    assert_eq!(message.view(new).err(), Some(Misfit::Stale));
    for number in [1, u64::MAX, new.number() + 1, new.number() & !0xffff_ffff] {
        assert_eq!(message.view(Node::from_number(number)).err(), Some(Misfit::Stale), "{number}");
    }
}

#[test]
fn a_message_is_empty_behind_bytes_that_are_none() {
    let mut message = message();
    message.edit(Node::ROOT).unwrap().set(0, Scalar::Signed(1)).unwrap();
    assert_eq!(message.decode(b"\x08\x02\x08"), Err(DecodeError::Cut { at: 3 }));
    assert_eq!(bytes_of(&message), b"");
    let limits = Limits { message_bytes_max: 2, ..Limits::default() };
    let mut small = Dynamic::new(loaded(), 0, limits).unwrap();
    assert_eq!(small.decode(b"\x08\x02\x08\x02"), Err(DecodeError::TooLarge));
    small.edit(Node::ROOT).unwrap().set(0, Scalar::Signed(1)).unwrap();
    assert_eq!(bytes_of(&small), b"\x08\x01");
}

#[test]
fn messages_lie_no_deeper_in_each_other_than_the_limit() {
    let limits = Limits { depth_max: 3, ..Limits::default() };
    let mut message = Dynamic::new(loaded(), 0, limits).unwrap();
    let second = message.within(Node::ROOT, 2).unwrap();
    let third = message.push(second, 3).unwrap();
    assert_eq!(
        (message.within(third, 2), message.push(third, 3)),
        (Err(Misfit::TooDeep), Err(Misfit::TooDeep))
    );
    let found = message.find(second, 3, 0).unwrap();
    assert_eq!(message.within(found, 2), Err(Misfit::TooDeep));
}

#[test]
fn errors_have_paths() {
    let loaded = loaded();
    // Two of `many`, the second with a message whose text is none.
    let input = b"\x22\x00\x22\x07\x08\x01\x1a\x03\x12\x01\xff";
    let mut message = message();
    assert_eq!(message.decode(input), Err(DecodeError::NotUtf8 { number: 2, at: 8 }));
    assert_eq!(path_at(&loaded.types, 0, input, 8), "many[1].m.s");
    assert_eq!(path_at(&loaded.types, 0, b"\xfa\x01\x05", 2), "31");
    assert_eq!(path_at(&loaded.types, 0, b"", 0), "");

    let mut needing = Dynamic::new(loaded, 1, Limits::default()).unwrap();
    assert_eq!(missing(needing.view(Node::ROOT).unwrap()).as_deref(), Some("must"));
    needing.edit(Node::ROOT).unwrap().set(0, Scalar::Signed(0)).unwrap();
    needing.push(Node::ROOT, 1).unwrap();
    assert_eq!(missing(needing.view(Node::ROOT).unwrap()).as_deref(), Some("n[0].must"));
    let within = needing.find(Node::ROOT, 1, 0).unwrap();
    needing.edit(within).unwrap().set(0, Scalar::Signed(0)).unwrap();
    assert_eq!(missing(needing.view(Node::ROOT).unwrap()), None);
}
