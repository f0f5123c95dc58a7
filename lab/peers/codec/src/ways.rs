//! One input through everything that decodes it: the table, and the straight line on each path of the processor; where
//! it lies, as a copy, and where other bytes follow it.
//!
//! Invariant: all of them say the same, or it panics; whoever asks sees one answer.

use scotfree_transform::generated::Type;
use scotfree_transform::{protobuf, Arena, CpuPath, DecodeError, Limits, Padded};

/// An unknown field that no type has, so long that an input with it is read where it lies.
const LONG_BYTES: usize = 4100;

/// What comes of a message that is decoded and encoded.
pub fn again<T: Type>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let limits = Limits::default();
    let (short, long) = match by_table::<T>(bytes, &limits) {
        Ok((out, unknown_from)) => {
            let long = [&out[..unknown_from], &long_field(), &out[unknown_from..]].concat();
            (Ok(out), Ok(long))
        }
        Err(error) => (Err(error), Err(later(error))),
    };
    straight::<T>(bytes, &limits, &short);
    straight::<T>(&[&long_field()[..], bytes].concat(), &limits, &long);
    short
}

/// The same within other limits; as a copy alone, since a longer input would cost more.
pub fn within<T: Type>(bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, DecodeError> {
    let out = by_table::<T>(bytes, limits).map(|(out, _)| out);
    straight::<T>(bytes, limits, &out);
    out
}

/// The same, if every way is fine with it.
pub fn taken<T: Type>(bytes: &[u8]) -> Vec<u8> {
    again::<T>(bytes).unwrap_or_else(|error| panic!("{bytes:02x?}: {error}"))
}

/// Why every way refuses it.
pub fn refused<T: Type>(bytes: &[u8]) -> DecodeError {
    again::<T>(bytes).expect_err("it is refused")
}

/// What the table makes of it, and where the root's unknown fields begin.
fn by_table<T: Type>(bytes: &[u8], limits: &Limits) -> Result<(Vec<u8>, usize), DecodeError> {
    let mut arena = Arena::new();
    let view = protobuf::table::decode(T::types(), T::INDEX, bytes, &mut arena, limits)?;
    let mut out = Vec::new();
    protobuf::table::encode(view, &mut out);
    let unknown_bytes: usize = view.unknown().map(<[u8]>::len).sum();
    let unknown_from = out.len() - unknown_bytes;
    Ok((out, unknown_from))
}

fn straight<T: Type>(bytes: &[u8], limits: &Limits, expected: &Result<Vec<u8>, DecodeError>) {
    for path in CpuPath::all() {
        let mut arena = Arena::new();
        let got = protobuf::decode_slots_on::<T>(path, bytes, &mut arena, limits).map(|slots| {
            // Behind what is there already.
            let mut out = vec![7];
            protobuf::encode_on::<T>(path, slots, &mut out);
            out.split_off(1)
        });
        assert_eq!(&got, expected, "{path:?} of {bytes:02x?}");
        for buffer in followed(bytes) {
            let mut arena = Arena::new();
            let input = Padded::within(&buffer, bytes.len()).unwrap();
            let got = protobuf::decode_padded_slots_on::<T>(path, input, &mut arena, limits).map(|slots| {
                let mut out = Vec::new();
                protobuf::encode_on::<T>(path, slots, &mut out);
                out
            });
            assert_eq!(&got, expected, "{path:?} of {bytes:02x?} before others");
        }
    }
}

/// The bytes before others: such that go on where they end, none that end anything, and fields like theirs.
fn followed(bytes: &[u8]) -> [Vec<u8>; 3] {
    let again = [bytes, &[0; Padded::BEHIND]].concat();
    [&[0; Padded::BEHIND][..], &[0xff; Padded::BEHIND], &again].map(|behind| [bytes, behind].concat())
}

fn long_field() -> Vec<u8> {
    let (tag, length) = ([0xfa, 0xff, 0x3f], [LONG_BYTES as u8 & 0x7f | 0x80, (LONG_BYTES >> 7) as u8]);
    [&tag[..], &length, &[7; LONG_BYTES]].concat()
}

/// The same error behind the long field.
fn later(error: DecodeError) -> DecodeError {
    let by = long_field().len();
    match error {
        DecodeError::Cut { at } => DecodeError::Cut { at: at + by },
        DecodeError::Overlong { at } => DecodeError::Overlong { at: at + by },
        DecodeError::NotAField { at } => DecodeError::NotAField { at: at + by },
        DecodeError::GroupEnd { at } => DecodeError::GroupEnd { at: at + by },
        DecodeError::NotUtf8 { number, at } => DecodeError::NotUtf8 { number, at: at + by },
        DecodeError::Converted { number, at } => DecodeError::Converted { number, at: at + by },
        DecodeError::Packed { number, at } => DecodeError::Packed { number, at: at + by },
        DecodeError::TooDeep { at } => DecodeError::TooDeep { at: at + by },
        DecodeError::TooManyUnknown { at } => DecodeError::TooManyUnknown { at: at + by },
        DecodeError::Missing { .. } | DecodeError::TooLarge | DecodeError::Exhausted(_) => error,
        DecodeError::Length { .. }
        | DecodeError::NotABool { .. }
        | DecodeError::WrongType { .. }
        | DecodeError::Trailing { .. }
        | DecodeError::NotAnEnvelope { .. } => unreachable!("Thrift's"),
    }
}

/// A field's tag, by its number and wire type.
pub fn tag(number: u32, wire: u32) -> Vec<u8> {
    varint(u64::from(number << 3 | wire))
}

/// A number as a varint.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field of bytes.
pub fn bytes_field(number: u32, bytes: &[u8]) -> Vec<u8> {
    [tag(number, 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}
