//! One struct of Thrift through everything that decodes it: the table, and the straight line on each path of the
//! processor.
//!
//! Invariant: all of them say the same, or it panics; whoever asks sees one answer.

use scotfree_transform::generated::Type;
use scotfree_transform::thrift::{self, table, Protocol};
use scotfree_transform::{Arena, CpuPath, DecodeError, Limits};

/// Both formats.
pub const BOTH: [Protocol; 2] = [Protocol::Binary, Protocol::Compact];

/// What comes of a struct that is decoded and encoded, by each format, and how many bytes of the arena it took.
#[derive(Debug, PartialEq)]
struct Again {
    written: [Vec<u8>; 2],
    used_bytes: usize,
}

/// What comes of a struct that is decoded and encoded by the same format.
pub fn again<T: Type>(protocol: Protocol, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    within::<T>(protocol, bytes, &Limits::default())
}

/// The same within other limits.
pub fn within<T: Type>(protocol: Protocol, bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, DecodeError> {
    let by_table = by_table::<T>(protocol, bytes, limits);
    for path in CpuPath::all() {
        let straight = straight::<T>(path, protocol, bytes, limits);
        assert_eq!(straight, by_table, "{path:?}, {protocol:?} of {bytes:02x?}");
    }
    by_table.map(|again| again.written.into_iter().nth(protocol as usize).expect("both are written"))
}

fn by_table<T: Type>(protocol: Protocol, bytes: &[u8], limits: &Limits) -> Result<Again, DecodeError> {
    let mut arena = Arena::new();
    let view = table::decode(protocol, T::types(), T::INDEX, bytes, &mut arena, limits)?;
    let written = BOTH.map(|protocol| behind_a_byte(|out| table::encode(protocol, view, out)));
    Ok(Again { written, used_bytes: arena.used_bytes() })
}

fn straight<T: Type>(
    path: CpuPath,
    protocol: Protocol,
    bytes: &[u8],
    limits: &Limits,
) -> Result<Again, DecodeError> {
    let mut arena = Arena::new();
    let slots = thrift::decode_slots_on::<T>(path, protocol, bytes, &mut arena, limits)?;
    let written =
        BOTH.map(|protocol| behind_a_byte(|out| thrift::encode_on::<T>(path, protocol, slots, out)));
    // What the line has written into slots, as the table reads it.
    let by_table = BOTH.map(|protocol| behind_a_byte(|out| table::encode(protocol, slots.view(), out)));
    assert_eq!(written, by_table, "{path:?}, {protocol:?} of {bytes:02x?}");
    Ok(Again { written, used_bytes: arena.used_bytes() })
}

/// What is appended to what is there already.
fn behind_a_byte(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![7];
    write(&mut out);
    out.split_off(1)
}
