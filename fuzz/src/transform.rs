//! The codec: messages of known types on each of its ways, and types that a stranger describes.
//!
//! Invariant: what one way makes of bytes all of them make of them; what was written is read as it was.

use scotfree_transform::descriptor::{read, types_of};
use scotfree_transform::generated::Type;
use scotfree_transform::{protobuf, Arena, CpuPath, DecodeError, Limits, Types};

#[allow(missing_docs, dead_code, clippy::all, clippy::pedantic)]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

use messages::every::{kinds, three, two};

/// A few messages' worth: what costs more is refused.
pub(crate) const LIMITS: Limits = Limits {
    message_bytes_max: 1 << 16,
    depth_max: 20,
    slots_bytes_max: 1 << 20,
    unknown_fields_max: 1 << 10,
};

/// Decodes the input as each of some types, by its first byte.
pub fn protobuf(data: &[u8]) {
    let Some((&which, bytes)) = data.split_first() else { return };
    match which % 7 {
        0 => known::<three::All>(bytes),
        1 => known::<two::Needs>(bytes),
        2 => known::<kinds::Packed>(bytes),
        3 => known::<kinds::Unpacked>(bytes),
        4 => known::<kinds::Maps>(bytes),
        5 => known::<kinds::Choice>(bytes),
        _ => known::<two::Wide>(bytes),
    }
}

/// The same as it is, and behind a field that makes it too long to be copied.
fn known<T: Type>(bytes: &[u8]) {
    same::<T>(bytes);
    same::<T>(&[&[0xfa, 0xff, 0x3f, 0x84, 0x20][..], &[7; 4100], bytes].concat());
}

fn same<T: Type>(bytes: &[u8]) {
    let by_table = table(T::types(), T::INDEX, bytes);
    for path in CpuPath::all() {
        let mut arena = Arena::new();
        let straight = protobuf::decode_slots_on::<T>(path, bytes, &mut arena, &LIMITS).map(|slots| {
            let mut out = Vec::new();
            protobuf::encode_on::<T>(path, slots, &mut out);
            out
        });
        assert_eq!(straight, by_table, "{path:?} and the table differ");
    }
}

/// What the table writes of what it has read, which it reads and writes again.
fn table(types: &Types, index: u16, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let out = again(types, index, bytes)?;
    match again(types, index, &out) {
        Ok(once_more) => assert_eq!(once_more, out, "what was written is read as something else"),
        // A number that its enumeration does not know takes a tag of its own where it had shared one, and what is
        // merged comes before what is unknown, which is then in more runs.
        Err(DecodeError::TooManyUnknown { .. } | DecodeError::Exhausted(_) | DecodeError::TooLarge) => {}
        Err(error) => panic!("what was written is refused: {error}"),
    }
    Ok(out)
}

fn again(types: &Types, index: u16, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut arena = Arena::new();
    let view = protobuf::table::decode(types, index, bytes, &mut arena, &LIMITS)?;
    let mut out = Vec::new();
    protobuf::table::encode(view, &mut out);
    Ok(out)
}

/// Messages with many kinds of fields, of each type one or two.
pub fn protobuf_seeds() -> Vec<Vec<u8>> {
    let three: &[u8] = b"\x00\x09\x01\x02\x03\x04\x05\x06\x07\x08\x15\x01\x02\x03\x04\x18\x96\x01\x38\x03\x4d\x01\x02\x03\x04\
        \x68\x01\x72\x0512\xc3\xa445\x7a\x03raw\x80\x01\x05\x8a\x01\x0a\x08\x01\x12\x01x\x1a\x03\x12\x01y\x90\x01\x00\
        \xa2\x01\x04\x01\x96\x01\x02\xba\x01\x02\x08\x07\xba\x01\x00\xd2\x01\x05\x0a\x01k\x10\x07\xea\x01\x04word\
        \x82\x02\x03\x01\x00\x01\x82\xea\x30\x03far\xf8\xff\xff\xff\x0f\x01";
    let two: &[u8] =
        b"\x01\x08\x01\x12\x05hello\x18\x02\x20\x01\x20\x63\x2a\x04\x01\x02\x63\x01\x33\x08\x05\x12\x01b\x34\
        \x3b\x08\x01\x3c\x42\x02\x08\x07\x4a\x01r\x50\x01\xa0\x06\x01";
    let packed: &[u8] = b"\x02\x0a\x03\x01\x96\x01\x3a\x08\x01\x02\x03\x04\x05\x06\x07\x08\x62\x08\x01\x02\x03\x04\x05\x06\x07\x08\
        \x6a\x02\x01\x00";
    let unpacked: &[u8] =
        b"\x03\x08\x01\x08\x96\x01\x0a\x02\x01\x02\x3d\x01\x02\x03\x04\x61\x01\x02\x03\x04\x05\x06\x07\x08";
    let maps: &[u8] = b"\x04\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x01\x10\x03\x62\x06\x0a\x01a\x12\x01b\x8a\x01\x07\x08\x01\x12\x03\x0a\x01\x01";
    let choice: &[u8] = b"\x05\x08\x01\x7a\x01x\x8a\x01\x02\x08\x01\x8a\x01\x02\x20\x05";
    let wide: &[u8] = b"\x06\x18\x01\xd0\x10\x80\x01";
    [three, two, packed, unpacked, maps, choice, wide].map(<[u8]>::to_vec).to_vec()
}

/// A set of descriptors, then, behind its length of two bytes at the beginning, a message of each of its types.
pub fn descriptor(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let (set, message) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    let Ok(loaded) = read(set).and_then(|files| types_of(&files)) else { return };
    for index in 0..loaded.types.types.len().min(16) {
        // Refused or not, it does not panic.
        let _ = table(&loaded.types, index as u16, message);
    }
}

/// The types of the other target, and a small file of its own with most of what a file may say.
pub fn descriptor_seeds() -> Vec<Vec<u8>> {
    let seed = |set: &[u8], message: &[u8]| {
        let length = u16::try_from(set.len()).expect("it is short");
        [&length.to_le_bytes()[..], set, message].concat()
    };
    let files: Vec<&[u8]> = split(include_bytes!(concat!(env!("OUT_DIR"), "/types.bin")));
    let messages = protobuf_seeds();
    files.iter().zip([0, 1, 4]).map(|(file, which)| seed(file, &messages[which][1..])).collect()
}

/// The files of a set, each as a set of its own: its tag, its length and its bytes.
fn split(mut set: &[u8]) -> Vec<&[u8]> {
    let mut files = Vec::new();
    while let [_, rest @ ..] = set {
        let count = rest.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
        let length =
            rest[..count].iter().rev().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
        let (file, others) = set.split_at(1 + count + length);
        files.push(file);
        set = others;
    }
    files
}
