//! Random messages of the random .proto files beside buffa's structs, which its own generator makes of them.
//!
//! Invariant: what either writes is the same message to the other, and bytes that are no message are that to both, but for
//! what is written beside `is_known`. Ours is the table: that the straight line is the same says tests/schemata.rs.
#![allow(clippy::unwrap_used)]

#[path = "every/closed.rs"]
mod closed;
#[path = "every/draw.rs"]
mod draw;

use buffa::Message;
use closed::Entries;
use codec_peers::Drawn;
use draw::draw;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use scotfree_transform::descriptor::{read, types_of, Loaded};
use scotfree_transform::{protobuf, Arena, DecodeError, Field, Kind, Limits, Shape, Value, View};
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[allow(warnings, clippy::all, clippy::pedantic)]
mod random {
    include!(concat!(env!("OUT_DIR"), "/buffa-random/all.rs"));
}

const SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schemata.bin"));

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(SET).unwrap());
static LOADED: LazyLock<Loaded> = LazyLock::new(|| types_of(&read(SET).unwrap()).unwrap());

const MESSAGES: u64 = 40;
const CUTS: u64 = 10;
const DAMAGES: u64 = 20;

macro_rules! tests {
    ($($package:ident)*) => {
        $(
            #[test]
            fn $package() {
                both_ways::<random::$package::Root>(stringify!($package));
            }
        )*
    };
}

// Without those that have a message `Self` or `match`, for which buffa-build makes what is no Rust.
tests!(s0 s1 s2 s3 s5 s6 s8 s9 s10 s11 s12 s13 s14 s15 s17 s18 s20 s21 s22 s23);

fn both_ways<B: Message>(package: &str) {
    let name = format!("{package}.Root");
    let of = POOL.get_message_by_name(&name).unwrap();
    let index = LOADED.by_name[&format!(".{name}")];
    closed_maps::<B>(index, &of);
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..MESSAGES {
        let mut r = Drawn::new(seed, 0);
        let whole = draw(&of, &mut r);
        let merged = [&whole[..], &draw(&of, &mut r)].concat();
        for bytes in [&whole, &merged] {
            assert!(is_same::<B>(index, bytes), "{bytes:02x?}");
        }
        for _ in 0..CUTS {
            is_same::<B>(index, &whole[..r.below(whole.len() as u64 + 1) as usize]);
        }
        for _ in 0..DAMAGES {
            let mut damaged = merged.clone();
            if damaged.is_empty() {
                continue;
            }
            for _ in 0..=r.below(3) {
                let at = r.below(damaged.len() as u64) as usize;
                damaged[at] = r.below(256) as u8;
            }
            let is_taken = is_same::<B>(index, &damaged);
            taken += u64::from(is_taken);
            refused += u64::from(!is_taken);
        }
    }
    assert!(taken > MESSAGES && refused > MESSAGES, "{taken} taken, {refused} refused");
}

/// Entries that are none, before and behind others of the same key.
fn closed_maps<B: Message>(index: u16, of: &MessageDescriptor) {
    let whole = draw(of, &mut Drawn::new(1, 0));
    for Entries { known, unknown, known_last, unknown_last } in closed::entries(of) {
        for none in [&unknown, &unknown_last] {
            for entry in [&known, &known_last] {
                for bytes in [[&whole[..], none, entry], [&whole[..], entry, none]] {
                    let bytes = bytes.concat();
                    assert!(is_same::<B>(index, &bytes), "{bytes:02x?}");
                }
            }
        }
    }
}

/// Whether both take the bytes; then they are the same message to both, and so is what each writes of it.
fn is_same<B: Message>(index: u16, bytes: &[u8]) -> bool {
    match (B::decode_from_slice(bytes), by_table(index, bytes)) {
        (Ok(theirs), Ok((ours, written))) => {
            let (theirs_again, _) = by_table(index, &theirs.encode_to_vec()).unwrap();
            assert_eq!(theirs_again, ours, "{bytes:02x?}");
            let ours_again = B::decode_from_slice(&written).unwrap();
            // What holds a number that is none is not equal to itself, and what is not known may stand in another order.
            let is_equal =
                ours_again == theirs || by_table(index, &ours_again.encode_to_vec()).unwrap().0 == ours;
            assert!(is_equal, "{bytes:02x?} gave {written:02x?}");
            true
        }
        (Err(_), Err(_)) => false,
        (theirs, ours) => {
            let (theirs, ours) = (theirs.err(), ours.err());
            assert!(
                is_known(bytes, theirs.as_ref(), ours.as_ref()),
                "{theirs:?} and {ours:?} of {bytes:02x?}"
            );
            false
        }
    }
}

/// Where one refuses what the other takes.
fn is_known(bytes: &[u8], theirs: Option<&buffa::DecodeError>, ours: Option<&DecodeError>) -> bool {
    match (theirs, ours) {
        // It takes tags of more than five bytes, as long as any number may be.
        (None, Some(DecodeError::Overlong { at })) => {
            let mut behind = &bytes[*at..];
            varint(&mut behind);
            (6..=10).contains(&(bytes.len() - at - behind.len()))
        }
        // It takes messages without what they require.
        (None, Some(DecodeError::Missing { .. })) => true,
        // A known number of another wire type is no unknown field to it, nor does it take numbers of more than 64
        // bits, which are dropped here; and it looks whether strings of proto2 are UTF-8, which the specification does not ask.
        (
            Some(
                buffa::DecodeError::WireTypeMismatch { .. }
                | buffa::DecodeError::VarintTooLong
                | buffa::DecodeError::InvalidUtf8,
            ),
            None,
        ) => true,
        _ => false,
    }
}

/// What the table reads, and what it writes of that.
fn by_table(index: u16, bytes: &[u8]) -> Result<(String, Vec<u8>), DecodeError> {
    let (mut arena, mut out) = (Arena::new(), Vec::new());
    let view = protobuf::table::decode(&LOADED.types, index, bytes, &mut arena, &Limits::default())?;
    protobuf::table::encode(view, &mut out);
    Ok((said(view), out))
}

/// A message in words: of a map its keys in their order, each with its last value.
fn said(view: View<'_>) -> String {
    let fields = view.schema().fields.iter().filter(|field| view.has(field));
    let fields: Vec<String> =
        fields.map(|field| format!("{}: {}", field.number, said_field(view, field))).collect();
    let unknown: Vec<u8> = view.unknown().flatten().copied().collect();
    format!("{{{} {}}}", fields.join(" "), said_unknown(&unknown))
}

fn said_field(view: View<'_>, field: &Field) -> String {
    let each = || (0..view.count(field)).map(|index| view.element(field, index));
    match field.shape {
        Shape::Map => {
            let part = |entry: View<'_>, at: usize| {
                let field = &entry.schema().fields[at];
                entry.get(field).map_or_else(|| said_absent(field.kind).to_owned(), said_value)
            };
            let entries: BTreeMap<_, _> = each()
                .map(|entry| {
                    let Value::Message(entry) = entry else { panic!("an entry is a message") };
                    (part(entry, 0), part(entry, 1))
                })
                .collect();
            format!("{entries:?}")
        }
        Shape::Repeated | Shape::Packed => format!("{:?}", each().map(said_value).collect::<Vec<_>>()),
        Shape::Implicit | Shape::Explicit | Shape::Required => {
            format!("{:?}", view.get(field).map(said_value))
        }
    }
}

fn said_value(value: Value<'_>) -> String {
    match value {
        Value::Number(bits) => bits.to_string(),
        Value::Bytes(bytes) => format!("{bytes:02x?}"),
        Value::Message(view) => said(view),
    }
}

/// What a map's key or value is that is not there.
fn said_absent(kind: Kind) -> &'static str {
    match kind {
        Kind::Message | Kind::Group => "{ }",
        Kind::String | Kind::Bytes => "[]",
        _ => "0",
    }
}

/// What is not known: it writes numbers again in fewer bytes, and those that a closed enumeration does not know as 32 bits.
fn said_unknown(mut bytes: &[u8]) -> String {
    let mut said = String::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let length = match tag & 7 {
            0 => {
                said += &format!("{tag}: {} ", varint(&mut bytes) as u32);
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            _ => 0,
        };
        let (value, rest) = bytes.split_at(length);
        said += &format!("{tag}: {value:02x?} ");
        bytes = rest;
    }
    said
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let count = bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    let (number, rest) = bytes.split_at(count);
    *bytes = rest;
    let low = number.iter().take(9).rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    low | number.get(9).map_or(0, |byte| u64::from(*byte) << 63)
}
