//! What prost-reflect and every way of this codec make of the same bytes.
//!
//! Invariant: they agree, but for what is written beside the cases below.

use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, Syntax, Value};
use scotfree_transform::generated::Type;
use scotfree_transform::{protobuf, Arena, CpuPath, DecodeError, Limits, Types};

/// What both give of the same bytes: the same message, or an error of both.
pub fn compare<T: Type>(of: &MessageDescriptor, bytes: &[u8], loaded: &Types) {
    let theirs = DynamicMessage::decode(of.clone(), bytes);
    let is_proto2 = of.parent_file().syntax() == Syntax::Proto2;
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
            // It keeps a closed enumeration's unknown numbers where they stood, and not as unknown fields: behind an entry of
            // the same key, the one that is none is the last to it.
            let is_other = has_unknown_enum(&theirs) || has_unknown_enum(&again);
            assert!(is_same || is_other, "{bytes:?} gave {ours:?}");
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
        (Kind::Message(entry), Value::Map(values)) => {
            let kind = entry.map_entry_value_field().kind();
            values.values().any(|value| is_unknown(&kind, value))
        }
        (_, Value::List(values)) => values.iter().any(|value| is_unknown(kind, value)),
        (Kind::Enum(of), Value::EnumNumber(number)) => of.get_value(*number).is_none(),
        (_, Value::Message(message)) => has_unknown_enum(message),
        _ => false,
    }
}
