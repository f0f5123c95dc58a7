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
    of_file(&[part(2, b"a"), part(4, &m.concat()), part(4, &n.concat()), part(12, b"proto3")].concat())
}

/// Of proto2: `a.M { map<int32, Color> by_id = 1; }`, and of `a.Color` the numbers 0 and 1.
fn with_colors() -> Arc<Loaded> {
    let entry = [part(1, b"Entry"), field("key", 1, 1, 5, ""), field("value", 2, 1, 14, ".a.Color")];
    // Whose option says that it is a map's entry.
    let entry = part(3, &[&entry.concat()[..], &part(7, &[7 << 3, 1])].concat());
    let m = [part(1, b"M"), entry, field("by_id", 1, 3, 11, ".a.M.Entry")];
    let value = |name: &[u8], number| part(2, &[&part(1, name)[..], &[2 << 3, number]].concat());
    let color = [part(1, b"Color"), value(b"NONE", 0), value(b"RED", 1)];
    of_file(&[part(2, b"a"), part(4, &m.concat()), part(5, &color.concat())].concat())
}

fn of_file(file: &[u8]) -> Arc<Loaded> {
    let length = [file.len() as u8 & 0x7f | 0x80, (file.len() >> 7) as u8];
    let set = [&[10][..], &length, file].concat();
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

/// How many entries are in the map, and what is written.
fn entries_and_bytes(message: &mut Dynamic, input: &[u8]) -> (usize, Vec<u8>) {
    message.decode(input).unwrap();
    let view = message.view(Node::ROOT).unwrap();
    let field = &view.schema().fields[0];
    assert_eq!(view.has(field), view.count(field) > 0);
    (view.count(field), bytes_of(message))
}

#[test]
fn an_entry_whose_number_its_closed_enumeration_does_not_have_is_an_unknown_field() {
    const RED: &[u8] = b"\x0a\x04\x08\x07\x10\x01";
    const NINE: &[u8] = b"\x0a\x04\x08\x07\x10\x09";
    let mut message = Dynamic::new(with_colors(), 0, Limits::default()).unwrap();
    let mut of = |input: &[&[u8]]| entries_and_bytes(&mut message, &input.concat());
    assert_eq!(of(&[RED]), (1, RED.to_vec()));
    assert_eq!(of(&[NINE]), (0, NINE.to_vec()));
    // It does not hide an entry of the same key, whichever comes first, and is written behind.
    for both in [[RED, NINE], [NINE, RED]] {
        assert_eq!(of(&both), (1, [RED, NINE].concat()));
    }
    // More than a list has room for at first, with others between.
    assert_eq!(of(&[RED, NINE].repeat(9)), (9, [RED.repeat(9), NINE.repeat(9)].concat()));
    // As it came: with its fields in any order, and with what the entry's type does not know.
    let odd = b"\x0a\x0a\x10\x89\x80\x00\x18\x05\x08\x01\x08\x07";
    assert_eq!(of(&[odd]), (0, odd.to_vec()));
}

#[test]
fn of_several_values_of_an_entry_the_last_says_whether_it_is_one() {
    let mut message = Dynamic::new(with_colors(), 0, Limits::default()).unwrap();
    let mut of = |input: &[u8]| entries_and_bytes(&mut message, input);
    let nine_last = b"\x0a\x06\x10\x01\x08\x07\x10\x09";
    assert_eq!(of(nine_last), (0, nine_last.to_vec()));
    // The earlier number is not kept, since behind the known one it would be the last.
    assert_eq!(of(b"\x0a\x06\x10\x09\x08\x07\x10\x01"), (1, b"\x0a\x04\x08\x07\x10\x01".to_vec()));
    assert_eq!(of(b"\x0a\x06\x10\x01\x08\x07\x10\x00"), (1, b"\x0a\x04\x08\x07\x10\x00".to_vec()));
    // Without a value it is one, and so it is with one of another wire type alone.
    for entry in [&b"\x0a\x00"[..], b"\x0a\x02\x08\x07", b"\x0a\x05\x08\x07\x12\x01\x09"] {
        assert_eq!(of(entry), (1, entry.to_vec()));
    }
}

#[test]
fn an_entry_that_is_none_takes_no_room_and_one_of_the_unknown_fields() {
    let known = b"\x0a\x04\x08\x07\x10\x01";
    let run = [&known[..], b"\x0a\x06\x10\x09\x08\x07\x10\x09"].concat();
    let limits = Limits { unknown_fields_max: 5, ..Limits::default() };
    let mut message = Dynamic::new(with_colors(), 0, limits).unwrap();
    assert_eq!(entries_and_bytes(&mut message, &run.repeat(5)).0, 5);
    assert_eq!(message.decode(&run.repeat(6)), Err(DecodeError::TooManyUnknown { at: 5 * run.len() + 6 }));
    // One behind the other they are one run.
    let slots_bytes_max = 200;
    let limits = Limits { unknown_fields_max: 1, slots_bytes_max, ..Limits::default() };
    let mut message = Dynamic::new(with_colors(), 0, limits).unwrap();
    assert_eq!(entries_and_bytes(&mut message, &run[known.len()..].repeat(1000)).0, 0);
    assert!(message.decode(&known.repeat(1000)).is_err());
}

#[test]
fn what_is_damaged_in_such_an_entry_is_told() {
    let mut message = Dynamic::new(with_colors(), 0, Limits::default()).unwrap();
    let mut error = |input: &[u8]| message.decode(input).unwrap_err();
    assert_eq!(error(b"\x0a\x02\x10\x89"), DecodeError::Cut { at: 3 });
    assert_eq!(error(b"\x0a\x03\x10\x01\x14"), DecodeError::GroupEnd { at: 4 });
    assert_eq!(error(b"\x0a\x03\x10\x09\x08"), DecodeError::Cut { at: 5 });
    let mut shallow = Dynamic::new(with_colors(), 0, Limits { depth_max: 1, ..Limits::default() }).unwrap();
    assert_eq!(shallow.decode(b"\x0a\x02\x10\x09"), Err(DecodeError::TooDeep { at: 0 }));
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
