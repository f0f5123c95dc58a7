//! Random structs of random .thrift files: what build.rs draws of all kinds and shapes, ids and names, beside Apache's
//! crate.
//!
//! Invariant: whatever the type is, the straight line and the table give the same, and it is what Apache's crate reads and
//! writes, but for what is written beside `compare`.

#[path = "../thrift/apache.rs"]
mod apache;
mod draw;
mod expected;
#[path = "../../thrift_schemata.rs"]
#[allow(dead_code)] // What build.rs alone calls.
mod schemata;
#[path = "../thrift/walk.rs"]
mod walk;

use apache::{apache_reads, apache_writes, knows_not, Tree, BOTH};
use codec_peers::drawn;
use codec_peers::structs::again;
use codec_peers::Drawn;
use draw::{shuffled, structure, with_unknown};
use expected::{expected, What};
use schemata::{File, Kind};
use scotfree_transform::generated::Type;
use scotfree_transform::thrift::{self as ours, types_of, FieldDescription, Protocol, StructDescription};
use scotfree_transform::{Arena, CpuPath, DecodeError, Limits};
use walk::walk;

#[allow(missing_docs, dead_code)]
mod random {
    include!(concat!(env!("OUT_DIR"), "/thrift_schemata.rs"));
}

const STRUCTS: u64 = 40;
const CUTS: u64 = 10;
const DAMAGES: u64 = 20;

macro_rules! tests {
    ($($module:ident $place:literal)*) => {
        $(
            #[test]
            fn $module() {
                every_way::<random::$module::Root>($place);
            }
        )*

        const FILES: &[usize] = &[$($place),*];
    };
}

tests!(t0 0 t1 1 t2 2 t3 3 t4 4 t5 5 t6 6 t7 7 t8 8 t9 9 t10 10 t11 11 t12 12 t13 13 t14 14 t15 15 t16 16 t17 17);

#[test]
fn what_is_generated_is_what_the_files_say() {
    let described: Vec<StructDescription> =
        FILES.iter().flat_map(|place| described(&schemata::drawn(*place).0, *place)).collect();
    let loaded = types_of(&described).unwrap().types;
    let generated = random::t0::Root::types();
    assert_eq!(loaded.types.len(), generated.types.len());
    for (loaded, generated) in loaded.types.iter().zip(generated.types.iter()) {
        assert_eq!(loaded, generated);
    }
}

fn described(file: &File, place: usize) -> Vec<StructDescription> {
    let name = |of: &str| format!("t{place}.{of}");
    file.structs
        .iter()
        .map(|of| StructDescription {
            name: name(of.name),
            is_union: of.is_union,
            fields: of
                .fields
                .iter()
                .map(|field| FieldDescription {
                    id: field.id,
                    name: field.name.clone(),
                    need: match field.need {
                        schemata::Need::Required => scotfree_transform::Need::Required,
                        schemata::Need::Optional => scotfree_transform::Need::Optional,
                        schemata::Need::Usual => scotfree_transform::Need::Default,
                    },
                    has_default: field.has_default,
                    of: described_of(&field.of, &|at| name(file.structs[at].name)),
                })
                .collect(),
        })
        .collect()
}

fn described_of(of: &Kind, name: &dyn Fn(usize) -> String) -> ours::Of {
    let inner = |of: &Kind| Box::new(described_of(of, name));
    match of {
        Kind::Bool => ours::Of::Bool,
        Kind::I8 => ours::Of::I8,
        Kind::I16 => ours::Of::I16,
        Kind::I32 => ours::Of::I32,
        Kind::I64 => ours::Of::I64,
        Kind::Double => ours::Of::Double,
        Kind::String => ours::Of::String,
        Kind::Binary => ours::Of::Binary,
        Kind::Enum => ours::Of::Enum,
        Kind::Struct(at) => ours::Of::Struct(name(*at)),
        Kind::List(of) => ours::Of::List(inner(of)),
        Kind::Set(of) => ours::Of::Set(inner(of)),
        Kind::Map(key, of) => ours::Of::Map(inner(key), inner(of)),
    }
}

fn every_way<T: Type>(place: usize) {
    let file = schemata::drawn(place).0;
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..STRUCTS {
        let mut r = Drawn::new(seed, 0);
        let tree = structure(&file, &file.structs[0], &mut r, 0);
        let other = shuffled(&tree, &mut r);
        let unknown = with_unknown(&file, &file.structs[0], tree.clone(), &mut r);
        for protocol in BOTH {
            let bytes = apache_writes(protocol, &tree);
            let in_order = as_apache_has_it::<T>(&file, protocol, &tree);
            // Where nothing is written unasked, the same bytes; but Apache writes a step of 15 as a whole id.
            let is_shorter = protocol == Protocol::Compact && in_order.len() < bytes.len();
            let is_all =
                expected(&file, &file.structs[0], &tree, What::Same).untyped() == tree.clone().untyped();
            assert!(in_order == bytes || is_shorter || !is_all, "{in_order:02x?} of {bytes:02x?}");
            assert_eq!(as_apache_has_it::<T>(&file, protocol, &other), in_order, "{other:?}");
            as_apache_has_it::<T>(&file, protocol, &unknown);
            for _ in 0..CUTS {
                let cut = &bytes[..r.below(bytes.len() as u64) as usize];
                assert!(again::<T>(protocol, cut).is_err(), "{cut:02x?}");
                assert!(!matches!(apache_reads(protocol, cut), Some(Ok(_))), "{cut:02x?}");
            }
            for _ in 0..DAMAGES {
                let bytes = damaged(&bytes, &mut r);
                match compare::<T>(&file, protocol, &bytes) {
                    Ok(()) => taken += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(taken > STRUCTS && refused > STRUCTS, "{taken} taken, {refused} refused");
}

/// What Apache writes we read, what we write it reads, by both protocols; returns what we wrote by the one it came by.
fn as_apache_has_it<T: Type>(file: &File, protocol: Protocol, tree: &Tree) -> Vec<u8> {
    let root = &file.structs[0];
    let bytes = apache_writes(protocol, tree);
    let again = again::<T>(protocol, &bytes).unwrap_or_else(|error| panic!("{error} of {bytes:02x?}"));
    let (read, both) = read::<T>(protocol, &bytes);
    assert_eq!(both[protocol as usize], again);
    assert_eq!(read, expected(file, root, tree, What::Read).untyped(), "{bytes:02x?}");
    for (to, bytes) in BOTH.into_iter().zip(&both) {
        let what = if to == protocol { What::Same } else { What::Other };
        let (theirs, length) = apache_reads(to, bytes).expect("Apache panics").expect("Apache refuses");
        assert_eq!(theirs.untyped(), expected(file, root, tree, what).untyped(), "{bytes:02x?}");
        assert_eq!(length, bytes.len());
    }
    again
}

/// What is there of a struct, and what is written of it by each protocol.
fn read<T: Type>(protocol: Protocol, bytes: &[u8]) -> (Tree, [Vec<u8>; 2]) {
    let mut arena = Arena::new();
    let limits = Limits::default();
    let slots = ours::decode_slots_on::<T>(CpuPath::Portable, protocol, bytes, &mut arena, &limits).unwrap();
    let written = BOTH.map(|to| {
        let mut out = Vec::new();
        ours::encode::<T>(to, slots, &mut out);
        out
    });
    (walk(slots.view()).untyped(), written)
}

/// One to four bytes changed, put in or taken out.
fn damaged(bytes: &[u8], r: &mut Drawn) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for _ in 0..=r.below(4) {
        let (at, byte) = (r.below(changed.len() as u64) as usize, r.below(256) as u8);
        match r.below(4) {
            0 => changed.insert(at, byte),
            1 if changed.len() > 1 => drop(changed.remove(at)),
            _ => changed[at] = byte,
        }
    }
    changed
}

/// What both make of damaged bytes: the same struct, or an error of both, but for what stands here.
fn compare<T: Type>(file: &File, protocol: Protocol, bytes: &[u8]) -> Result<(), DecodeError> {
    let ours = again::<T>(protocol, bytes);
    if ours.as_ref().is_err_and(|error| is_long(protocol, bytes, error)) {
        return ours.map(drop);
    }
    match (apache_reads(protocol, bytes), &ours) {
        (Some(Ok((theirs, length))), Ok(again)) => {
            assert_eq!(length, bytes.len(), "{bytes:02x?}");
            let (got, _) = apache_reads(protocol, again).expect("Apache panics").expect("Apache refuses");
            let expected = expected(file, &file.structs[0], &theirs, What::Same);
            assert_eq!(got.untyped(), expected.untyped(), "{bytes:02x?}");
        }
        (None | Some(Err(_)), Err(_)) => {}
        // Bytes behind the end are nobody's to it.
        (Some(Ok((_, length))), Err(DecodeError::Trailing { at })) => assert_eq!(length, *at, "{bytes:02x?}"),
        // To it a count below zero is none, and nothing is too deep.
        (Some(Ok(_)), Err(DecodeError::Length { .. } | DecodeError::TooDeep { .. })) => {}
        // Its reader here does not know the file: what a text is, of what a container within another one, and what is
        // required.
        (
            Some(Ok(_)),
            Err(DecodeError::NotUtf8 { .. } | DecodeError::WrongType { .. } | DecodeError::Missing { .. }),
        ) => {}
        // Of a number that is too long for its kind it drops what is too much; each byte but 0 is a bool of `TBinary`; and
        // whatever its upper half is, a byte of `TCompact` without a type ends a struct.
        (
            Some(Ok(_)),
            Err(DecodeError::Overlong { .. } | DecodeError::NotABool { .. } | DecodeError::NotAField { .. }),
        ) => {}
        // What is kept unknown it need not know.
        (Some(Err(theirs)), Ok(_)) => assert!(knows_not(&theirs), "{theirs} of {bytes:02x?}"),
        (theirs, ours) => panic!("{theirs:?} and {ours:?} of {bytes:02x?}"),
    }
    ours.map(drop)
}

/// Whether a length is of megabytes: Apache makes room for them before it looks what is left.
fn is_long(protocol: Protocol, bytes: &[u8], error: &DecodeError) -> bool {
    let DecodeError::Cut { at } = *error else { return false };
    let at = &bytes[at.min(bytes.len())..];
    let length = match protocol {
        Protocol::Binary => at.iter().take(4).fold(0, |length, &byte| length << 8 | u64::from(byte)),
        Protocol::Compact => {
            let bytes = at.iter().take(9).take_while(|byte| **byte >= 0x80).count() + 1;
            let low = at.iter().take(bytes).rev();
            low.fold(0, |length, &byte| length << 7 | u64::from(byte & 0x7f))
        }
    };
    length > 1 << 24
}
