//! Random types: what build.rs draws of all kinds and shapes, numbers and names, beside prost-reflect.
//!
//! Invariant: whatever the type is, the straight line, the table of generated types and the table of loaded ones give the
//! same, and it is what prost-reflect reads.

#[path = "every/closed.rs"]
mod closed;
#[path = "every/compare.rs"]
mod compare;
#[path = "every/draw.rs"]
mod draw;

use closed::Entries;
use codec_peers::ways::{tag, taken, varint};
use codec_peers::Drawn;
use compare::compare;
use draw::draw;
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};
use scotfree_transform::descriptor::{read, types_of, Loaded};
use scotfree_transform::generated::Type;
use std::sync::LazyLock;

#[allow(missing_docs, dead_code)]
mod random {
    include!(concat!(env!("OUT_DIR"), "/schemata.rs"));
}

const SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schemata.bin"));

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(SET).unwrap());
static LOADED: LazyLock<Loaded> = LazyLock::new(|| types_of(&read(SET).unwrap()).unwrap());

const MESSAGES: u64 = 30;
const CUTS: u64 = 20;

macro_rules! tests {
    ($($package:ident)*) => {
        const PACKAGES: &[&str] = &[$(stringify!($package)),*];
        $(
            #[test]
            fn $package() {
                every_way::<random::$package::Root>(stringify!($package));
            }
        )*
    };
}

tests!(s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 s12 s13 s14 s15 s16 s17 s18 s19 s20 s21 s22 s23);

#[test]
fn each_file_has_its_test_and_what_is_loaded_is_what_is_generated() {
    assert_eq!(POOL.files().map(|file| file.package_name().to_owned()).collect::<Vec<_>>(), PACKAGES);
    assert_eq!(&LOADED.types, random::s0::Root::types());
}

fn every_way<T: Type>(package: &str) {
    let of = POOL.get_message_by_name(&format!("{package}.Root")).unwrap();
    assert_eq!(LOADED.by_name[&format!(".{package}.Root")], T::INDEX);
    for seed in 0..MESSAGES {
        let mut r = Drawn::new(seed, 0);
        let bytes = draw(&of, &mut r);
        compare::<T>(&of, &bytes, &LOADED.types);
        let in_order = taken::<T>(&bytes);
        let shuffled = shuffled(&of, &bytes, &mut r);
        assert_eq!(taken::<T>(&shuffled), in_order, "{bytes:02x?} as {shuffled:02x?}");
        for _ in 0..CUTS {
            compare::<T>(&of, &bytes[..r.below(bytes.len() as u64 + 1) as usize], &LOADED.types);
        }
    }
}

#[test]
fn an_entry_whose_number_its_closed_enumeration_does_not_have_is_an_unknown_field() {
    let mut maps = 0;
    macro_rules! each {
        ($($package:ident)*) => {
            $(maps += closed_maps::<random::$package::Root>(stringify!($package));)*
        };
    }
    each!(s1 s3 s5 s7 s9 s11 s13 s15 s17 s19 s21 s23);
    assert!(maps > 0, "no root has such a map");
}

/// Looks at each such map of a root, on each way; how many there are.
fn closed_maps<T: Type>(package: &str) -> usize {
    let of = POOL.get_message_by_name(&format!("{package}.Root")).unwrap();
    let (maps, whole) = (closed::entries(&of), draw(&of, &mut Drawn::new(1, 0)));
    for Entries { known, unknown, known_last, unknown_last } in &maps {
        let wanted =
            [taken::<T>(&[&whole[..], known, known].concat()), unknown_last.clone(), unknown.clone()];
        let mixed = [&whole[..], unknown_last, known, unknown, known_last].concat();
        assert_eq!(taken::<T>(&mixed), wanted.concat(), "{mixed:02x?}");
    }
    maps.len()
}

/// The same fields in another order, in messages within it too; those of one number stay in theirs.
fn shuffled(of: &MessageDescriptor, bytes: &[u8], r: &mut Drawn) -> Vec<u8> {
    let (mut rest, mut fields) = (bytes, Vec::<(u32, u64, Vec<u8>)>::new());
    while !rest.is_empty() {
        let (number, whole, text) = next(rest);
        let (field, behind) = rest.split_at(whole);
        rest = behind;
        let kind = of.get_field(number).filter(|field| !field.is_group()).map(|field| field.kind());
        let field = match (kind, text) {
            (Some(Kind::Message(inner)), Some(text)) => {
                let inner = shuffled(&inner, text, r);
                [tag(number, 2), varint(inner.len() as u64), inner].concat()
            }
            _ => field.to_vec(),
        };
        let known = fields.iter().find(|(other, ..)| *other == number);
        let place = known.map_or_else(|| r.below(1 << 30), |&(_, place, _)| place);
        fields.push((number, place, field));
    }
    fields.sort_by_key(|&(number, place, _)| (place, number));
    fields.into_iter().flat_map(|(.., field)| field).collect()
}

/// The number of the field that bytes begin with, how many it takes, and of one with a length what lies in it.
fn next(bytes: &[u8]) -> (u32, usize, Option<&[u8]>) {
    let (tag, from) = number(bytes);
    let (wire, number_is) = (tag & 7, (tag >> 3) as u32);
    match wire {
        0 => (number_is, from + number(&bytes[from..]).1, None),
        1 => (number_is, from + 8, None),
        5 => (number_is, from + 4, None),
        2 => {
            let (length, its_bytes) = number(&bytes[from..]);
            let (begins, ends) = (from + its_bytes, from + its_bytes + length as usize);
            (number_is, ends, Some(&bytes[begins..ends]))
        }
        3 => {
            let mut at = from;
            while number(&bytes[at..]).0 & 7 != 4 {
                at += next(&bytes[at..]).1;
            }
            (number_is, at + number(&bytes[at..]).1, None)
        }
        other => panic!("{other} is what prost does not write"),
    }
}

/// The varint that bytes begin with, and how many it takes.
fn number(bytes: &[u8]) -> (u64, usize) {
    let (mut value, mut at) = (0, 0);
    loop {
        value |= u64::from(bytes[at] & 0x7f) << (7 * at);
        at += 1;
        if bytes[at - 1] < 0x80 {
            return (value, at);
        }
    }
}
