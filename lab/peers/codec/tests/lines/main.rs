//! The straight line of Thrift beside the table: the same slots, the same bytes, the same errors.

mod draw;
#[path = "../every/fenced.rs"]
mod fenced;
mod pages;
mod planted;

use codec_peers::structs::{again, within, BOTH};
use codec_peers::thrift_messages::every::shared::Refused;
use codec_peers::thrift_messages::every::thrift::{store, All, Choice, Usual};
use codec_peers::thrift_messages::social::Post;
use codec_peers::Drawn;
use draw::{drawn, write};
use scotfree_transform::generated::Type;
use scotfree_transform::thrift::Protocol;
use scotfree_transform::{DecodeError, Limits};

/// Random structs of a type.
fn structs<T: Type>(protocol: Protocol, count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(move |seed| drawn::<T>(protocol, seed))
}

/// Whole, cut at each byte, with bytes that are damaged, and with fields in another order.
fn all<T: Type>(count: u64) {
    let (mut taken, mut refused) = (0, 0);
    for protocol in BOTH {
        for (seed, bytes) in structs::<T>(protocol, count).enumerate() {
            let mut r = Drawn::new(seed as u64, 0);
            assert_eq!(again::<T>(protocol, &bytes).as_ref(), Ok(&bytes));
            for end in 0..bytes.len().min(300) {
                assert!(again::<T>(protocol, &bytes[..end]).is_err());
            }
            for _ in 0..100 {
                let mut changed = bytes.clone();
                for _ in 0..=r.below(3) {
                    let (at, byte) = (r.below(changed.len() as u64) as usize, r.below(256) as u8);
                    match r.below(3) {
                        0 => changed[at] = byte,
                        1 => changed.insert(at, byte),
                        _ if changed.len() > 1 => drop(changed.remove(at)),
                        _ => {}
                    }
                }
                match again::<T>(protocol, &changed) {
                    Ok(_) => taken += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(taken > count && refused > count, "{taken} taken, {refused} refused");
}

#[test]
fn random_structs_are_the_same_cut_and_damaged() {
    all::<All>(60);
    all::<Usual>(60);
    all::<Choice>(60);
    all::<Post>(60);
    all::<Refused>(60);
    all::<store::GetResult>(60);
    all::<store::GetArgs>(60);
}

/// Two structs' fields behind each other: what comes twice, and out of its order.
#[test]
fn fields_that_come_twice_and_in_any_order_are_the_same() {
    fn twice<T: Type>() {
        for protocol in BOTH {
            let all: Vec<Vec<u8>> = structs::<T>(protocol, 40).collect();
            for pair in all.windows(2) {
                let first = &pair[0][..pair[0].len() - 1];
                let both = [first, &pair[1]].concat();
                // Of TCompact the second's ids are steps from where the first ended: other fields, or none.
                let _ = again::<T>(protocol, &both);
            }
        }
    }
    twice::<All>();
    twice::<Usual>();
    twice::<Post>();
    twice::<Choice>();
}

#[test]
fn limits_are_the_same_at_each_byte_of_memory() {
    fn limited<T: Type>() {
        for protocol in BOTH {
            for bytes in structs::<T>(protocol, 12) {
                for slots_bytes_max in (0..1200).step_by(8) {
                    let limits = Limits { slots_bytes_max, ..Limits::default() };
                    let _ = within::<T>(protocol, &bytes, &limits);
                }
                for depth_max in 0..8 {
                    let _ = within::<T>(protocol, &bytes, &Limits { depth_max, ..Limits::default() });
                }
                for unknown_fields_max in 0..3 {
                    let limits = Limits { unknown_fields_max, ..Limits::default() };
                    let _ = within::<T>(protocol, &bytes, &limits);
                }
            }
        }
    }
    limited::<All>();
    limited::<Usual>();
    limited::<Post>();
}

/// A field of each type for each id, known or not.
#[test]
fn fields_of_another_type_are_the_same() {
    for id in [1_i16, 2, 3, 7, 9, 12, 15, 40, 300, 0, -4, i16::MAX, i16::MIN] {
        for value in draw::values() {
            let tree = draw::Tree::Struct(vec![(1, draw::Tree::Bool(true)), (id, value)]);
            for protocol in BOTH {
                let bytes = write(protocol, &tree);
                let _ = again::<All>(protocol, &bytes);
                let _ = again::<Post>(protocol, &bytes);
                let _ = again::<Usual>(protocol, &bytes);
                let _ = again::<store::GetResult>(protocol, &bytes);
            }
        }
    }
}

/// The cases whose answer is known: the table's own tests say why.
#[test]
fn what_is_no_struct_is_refused_at_its_place() {
    let binary = |bytes: &[u8]| again::<All>(Protocol::Binary, bytes).unwrap_err();
    let compact = |bytes: &[u8]| again::<All>(Protocol::Compact, bytes).unwrap_err();
    assert_eq!(binary(b"\x0b\x00\x07\xff\xff\xff\xff\x00"), DecodeError::Length { at: 3 });
    assert_eq!(binary(b"\x0b\x00\x07\x00\x00\x00\x09\x00"), DecodeError::Cut { at: 3 });
    assert_eq!(
        binary(b"\x0b\x00\x07\x00\x00\x00\x02\xc3\x28\x00"),
        DecodeError::NotUtf8 { number: 7, at: 3 }
    );
    assert_eq!(binary(b"\x0b\x00\x07\x00\x00\x00\x02a"), DecodeError::Cut { at: 3 });
    assert_eq!(binary(b"\x02\x00\x01\x02\x00"), DecodeError::NotABool { at: 3 });
    assert_eq!(binary(b"\x0f\x00\x0c\x02\x7f\xff\xff\xff\x00"), DecodeError::Cut { at: 3 });
    assert_eq!(compact(b"\x78\x80\x80\x80\x80\x08\x00"), DecodeError::Length { at: 1 });
    assert_eq!(compact(b"\x34\xe0\xc5\x08\x00"), DecodeError::Overlong { at: 1 });
    assert_eq!(compact(b"\x45\x80\x80\x80\x80\x10\x00"), DecodeError::Overlong { at: 1 });
    assert_eq!(compact(b"\xc9\x11\x03\x00"), DecodeError::NotABool { at: 2 });
    for protocol in BOTH {
        let missing = again::<Usual>(protocol, b"\x00");
        assert_eq!(missing, Err(DecodeError::Missing { number: 1 }));
        assert_eq!(again::<Post>(protocol, b"\x00\x00"), Err(DecodeError::Trailing { at: 1 }));
    }
}

#[test]
fn numbers_of_each_length_are_taken_or_overlong() {
    for bytes in 1..=12 {
        for last in [0x00, 0x01, 0x02, 0x7f] {
            // Alone, and before others.
            for behind in [&[0][..], &[0x76, 2, 0][..], &[0x76, 2, 0x15, 2, 0][..]] {
                let number = [&vec![0xa5; bytes - 1][..], &[last]].concat();
                let post = [&[0x16][..], &number, behind].concat();
                assert_eq!(again::<Post>(Protocol::Compact, &post).is_ok(), bytes <= 10, "{post:02x?}");
                let usual = [&[0x15][..], &number, behind].concat();
                let _ = again::<Usual>(Protocol::Compact, &usual);
            }
        }
    }
}

#[test]
fn texts_of_each_length_are_looked_at() {
    for protocol in BOTH {
        for len in 0..140_usize {
            for at in [0, len / 3, len.saturating_sub(1)] {
                let mut text = vec![b'a'; len];
                for byte in [b'z', 0xc3, 0xff] {
                    if let Some(place) = text.get_mut(at) {
                        *place = byte;
                    }
                    let text = draw::Tree::Bytes(text.clone());
                    let bytes =
                        write(protocol, &draw::Tree::Struct(vec![(4, text), (8, draw::Tree::I64(1))]));
                    let is_text = byte == b'z' || len == 0;
                    assert_eq!(again::<Post>(protocol, &bytes).is_ok(), is_text, "{len} letters, {at}");
                }
            }
        }
    }
}
