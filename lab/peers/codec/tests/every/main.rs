//! All kinds and shapes of fields, beside prost-reflect, which knows them all by their descriptors.

mod bad;
mod draw;
mod pages;
mod planted;
mod vectors;

use codec_peers::{every, Drawn};
use draw::draw;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, Value};
use scotfree_transform::descriptor::{read, types_of};
use scotfree_transform::generated::Type;
use scotfree_transform::{protobuf, Arena, CpuPath, DecodeError, Limits, Types};

const SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/every.bin"));

/// What both give of the same bytes: the same message, or an error of both.
fn compare<T: Type>(of: &MessageDescriptor, bytes: &[u8], loaded: &Types) {
    let theirs = DynamicMessage::decode(of.clone(), bytes);
    let is_proto2 = of.full_name().starts_with("every.two");
    let limits = Limits::default();
    let mut arena = Arena::new();
    let by_table = protobuf::table::decode(loaded, T::INDEX, bytes, &mut arena, &limits).map(|view| {
        let mut out = Vec::new();
        protobuf::table::encode(view, &mut out);
        out
    });
    for path in CpuPath::all() {
        let mut arena = Arena::new();
        let straight = protobuf::decode_slots_on::<T>(path, bytes, &mut arena, &limits).map(|slots| {
            let mut out = vec![7];
            protobuf::encode_on::<T>(path, slots, &mut out);
            out.split_off(1)
        });
        assert_eq!(straight, by_table, "{bytes:?}");
    }
    match (theirs, by_table) {
        (Ok(theirs), Ok(ours)) => {
            let again = DynamicMessage::decode(of.clone(), &ours[..]).unwrap();
            // What holds a number that is none is not equal to itself.
            // To it, what was set to its default and what was not set differ, until they were written.
            let theirs = DynamicMessage::decode(of.clone(), &theirs.encode_to_vec()[..]).unwrap();
            let is_same = again == theirs || theirs != theirs.clone();
            // It keeps a closed enumeration's unknown numbers where they stood, and not as unknown fields.
            assert!(is_same || has_unknown_enum(&theirs), "{bytes:?} gave {ours:?}");
        }
        // prost takes messages without what they require.
        (Ok(_), Err(DecodeError::Missing { .. })) | (Err(_), Err(_)) => {}
        // It takes an unknown group that does not end, or in which there is what is no field; prost itself, to which all
        // fields are unknown, does not.
        (Ok(_), Err(_)) if <()>::decode(bytes).is_err() => {}
        // prost looks whether strings of proto2 are UTF-8, which the specification does not ask.
        (Err(theirs), Ok(_)) if is_proto2 && theirs.to_string().contains("invalid string") => {}
        // Nor does it take a known number of another wire type for an unknown field, of which we say that there is one.
        (Err(theirs), Ok(_)) if theirs.to_string().contains("invalid wire type") => {}
        (Err(_), Ok(ours)) if has_unknown::<T>(&ours, loaded) => {}
        // Nor numbers with bits beyond the 64th, which are dropped.
        (Err(theirs), Ok(_)) if theirs.to_string().contains("invalid varint") => {}
        (theirs, ours) => panic!("{:?} and {ours:?} of {bytes:?}", theirs.map(|_| ())),
    }
}

fn has_unknown<T: Type>(bytes: &[u8], loaded: &Types) -> bool {
    let mut arena = Arena::new();
    let view = protobuf::table::decode(loaded, T::INDEX, bytes, &mut arena, &Limits::default()).unwrap();
    let first = view.unknown().next();
    first.is_some()
}

fn has_unknown_enum(message: &DynamicMessage) -> bool {
    message.fields().any(|(field, value)| is_unknown(&field.kind(), value))
}

fn is_unknown(kind: &Kind, value: &Value) -> bool {
    match (kind, value) {
        (_, Value::List(values)) => values.iter().any(|value| is_unknown(kind, value)),
        (Kind::Enum(of), Value::EnumNumber(number)) => of.get_value(*number).is_none(),
        (_, Value::Message(message)) => has_unknown_enum(message),
        _ => false,
    }
}

fn all<T: Type>(name: &str, rounds: u64) {
    let pool = DescriptorPool::decode(SET).unwrap();
    let of = pool.get_message_by_name(name).unwrap();
    let loaded = types_of(&read(SET).unwrap()).unwrap();
    assert_eq!(&loaded.types, T::types(), "what is loaded and what is generated are the same");
    for seed in 0..rounds {
        let mut r = Drawn::new(seed, 0);
        let message = draw(&of, &mut r, 0);
        let bytes = message.encode_to_vec();
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
        let half = draw(&of, &mut r, 0).encode_to_vec();
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
