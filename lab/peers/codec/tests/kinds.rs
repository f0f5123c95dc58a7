//! Registered kinds: a UUID that is text on the wire, and 16 bytes in a message.

use codec_peers::ways::{bytes_field, refused, taken};
use scotfree_transform::descriptor::{read, types_of};
use scotfree_transform::{
    protobuf, register, Arena, Converter, DecodeError, Limits, Message, RegisterError, Value,
};
use std::sync::Once;

#[allow(missing_docs, dead_code)]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/uuid.rs"));
}
use messages::every::uuid::Named;

const TEXT: &str = "00112233-4455-6677-8899-aabbccddeeff";
const UUID: [u8; 16] =
    [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];

/// Before the first message, once for all tests.
fn registered() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register(40, Converter { slot_bytes: 16, decode, encode }).unwrap());
}

/// Pairs of hexadecimal digits, with hyphens behind the 4th, 6th, 8th and 10th.
fn decode(text: &[u8], uuid: &mut [u8]) -> bool {
    let has_hyphens = text.len() == 36 && [8, 13, 18, 23].iter().all(|&at| text[at] == b'-');
    let mut digits = text.iter().filter(|&&byte| byte != b'-').map(|&byte| char::from(byte).to_digit(16));
    let mut next = || digits.next().flatten().map(|digit| digit as u8);
    has_hyphens
        && uuid.iter_mut().all(|byte| match (next(), next()) {
            (Some(high), Some(low)) => {
                *byte = high << 4 | low;
                true
            }
            _ => false,
        })
}

fn encode(uuid: &[u8], out: &mut Vec<u8>) {
    for (at, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            out.push(b'-');
        }
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

#[test]
fn a_value_is_converted_on_each_way_and_back() {
    registered();
    let uuid = |number| bytes_field(number, TEXT.as_bytes());
    let whole = [
        uuid(1),
        b"\x10\x05".to_vec(),
        uuid(3),
        uuid(4),
        uuid(4),
        uuid(5),
        bytes_field(7, &[uuid(1), b"\x10\x01".to_vec()].concat()),
    ];
    assert_eq!(taken::<Named>(&whole.concat()), whole.concat());
    // The other way round, which has the straight line come back.
    let turned: Vec<u8> = whole.iter().rev().flatten().copied().collect();
    assert_eq!(taken::<Named>(&turned), whole.concat());
    // What no converter writes is written as it is: here in small letters.
    assert_eq!(taken::<Named>(&bytes_field(1, TEXT.to_uppercase().as_bytes())), uuid(1));
    // Of a field that is zero where it is absent, an empty one is.
    assert_eq!(taken::<Named>(b"\x0a\x00\x10\x05"), b"\x10\x05");
    assert_eq!(taken::<Named>(&[uuid(5), bytes_field(6, b"x")].concat()), bytes_field(6, b"x"));
}

#[test]
fn a_message_has_bytes() {
    registered();
    let wire = [bytes_field(1, TEXT.as_bytes()), bytes_field(4, TEXT.as_bytes())].concat();
    let mut message = Message::<Named>::decode(&wire, &Limits::default()).unwrap();
    assert_eq!(message.get().id(), UUID);
    assert_eq!(message.get().many().collect::<Vec<_>>(), [UUID]);
    assert_eq!((message.get().maybe(), message.get().chosen()), (None, None));
    message.edit().set_maybe(&UUID).unwrap();
    let mut out = Vec::new();
    message.encode(&mut out);
    let expected = [&wire[..38], &bytes_field(3, TEXT.as_bytes()), &wire[38..]].concat();
    assert_eq!(out, expected);
}

#[test]
fn what_is_no_value_is_told_with_its_place() {
    registered();
    let wrong =
        [&TEXT[1..], "", "00112233-4455-6677-8899-aabbccddeefg", "00112233+4455-6677-8899-aabbccddeeff"];
    for text in wrong {
        for number in [3, 4, 5] {
            let wire = [b"\x10\x05", &bytes_field(number, text.as_bytes())[..]].concat();
            assert_eq!(refused::<Named>(&wire), DecodeError::Converted { number, at: 2 }, "{text}");
        }
    }
    let unregistered = bytes_field(8, TEXT.as_bytes());
    assert_eq!(refused::<Named>(&unregistered), DecodeError::Converted { number: 8, at: 0 });
}

#[test]
fn types_that_are_loaded_convert_too() {
    registered();
    let set = include_bytes!(concat!(env!("OUT_DIR"), "/uuid.bin"));
    let loaded = types_of(&read(set).unwrap()).unwrap();
    let index = loaded.by_name[".every.uuid.Named"];
    let (mut arena, wire) = (Arena::new(), bytes_field(1, TEXT.as_bytes()));
    let view = protobuf::table::decode(&loaded.types, index, &wire, &mut arena, &Limits::default()).unwrap();
    let id = loaded.types.types[index as usize].named("id").unwrap();
    assert!(matches!(view.get(id), Some(Value::Bytes(bytes)) if bytes == UUID));
    let mut out = Vec::new();
    protobuf::table::encode(view, &mut out);
    assert_eq!(out, wire);
}

#[test]
fn nobody_else_may_register_the_kind() {
    registered();
    let other = Converter { slot_bytes: 1, decode, encode };
    assert_eq!(register(40, other), Err(RegisterError::Taken(40)));
}
