//! All kinds and shapes of fields, beside prost-reflect, which knows them all by their descriptors.

mod bad;
mod compare;
mod draw;
mod fenced;
mod pages;
mod planted;
mod vectors;

use codec_peers::{every, Drawn};
use compare::compare;
use draw::draw;
use prost_reflect::DescriptorPool;
use scotfree_transform::descriptor::{read, types_of};
use scotfree_transform::generated::Type;

const SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/every.bin"));

fn all<T: Type>(name: &str, rounds: u64) {
    let pool = DescriptorPool::decode(SET).unwrap();
    let of = pool.get_message_by_name(name).unwrap();
    let loaded = types_of(&read(SET).unwrap()).unwrap();
    assert_eq!(&loaded.types, T::types(), "what is loaded and what is generated are the same");
    for seed in 0..rounds {
        let mut r = Drawn::new(seed, 0);
        let bytes = draw(&of, &mut r);
        compare::<T>(&of, &bytes, &loaded.types);
        for _ in 0..20 {
            compare::<T>(&of, &bytes[..r.below(bytes.len() as u64 + 1) as usize], &loaded.types);
            let mut changed = bytes.clone();
            for _ in 0..1 + r.below(2) {
                if let Some(byte) = (!changed.is_empty()).then(|| r.below(changed.len() as u64) as usize) {
                    changed[byte] = r.below(256) as u8;
                }
            }
            compare::<T>(&of, &changed, &loaded.types);
        }
        // Its fields in another order, and twice.
        let half = draw(&of, &mut r);
        compare::<T>(&of, &[&half[..], &bytes].concat(), &loaded.types);
    }
}

#[test]
fn all_kinds_of_proto3_are_as_prost_reflect_has_them() {
    all::<every::every::three::All>("every.three.All", 400);
}

#[test]
fn all_kinds_of_proto2_are_as_prost_reflect_has_them() {
    all::<every::every::two::Needs>("every.two.Needs", 400);
}

#[test]
fn all_kinds_in_all_shapes_are_as_prost_reflect_has_them() {
    use every::every::kinds::{Choice, Maps, Packed, Unpacked};
    all::<Packed>("every.kinds.Packed", 100);
    all::<Unpacked>("every.kinds.Unpacked", 100);
    all::<Maps>("every.kinds.Maps", 100);
    all::<Choice>("every.kinds.Choice", 100);
}

#[test]
fn a_type_of_many_fields_is_the_tables() {
    all::<every::every::two::Wide>("every.two.Wide", 100);
}
