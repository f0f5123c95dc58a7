//! Protobuf's binary format.

pub(crate) mod batch;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod visit;
pub(crate) mod wire;

use crate::arena::{Arena, Memory, Offset};
use crate::error::DecodeError;
use crate::input::Padded;
use crate::limits::Limits;
use crate::message::Type;
use crate::raw::frame::Begun;
use crate::raw::path::{chosen, CpuPath, Path as _, Portable};
use crate::raw::read::Slots;
use crate::raw::word::prefetch;
use crate::raw::writer::Writer;
use decode::Decoding;

pub use batch::{decode_batch, delimited, encode_batch, encode_delimited, Batch};
pub use visit::Part;

/// Decodes a message; what is read of it lies in `input` and `arena`.
// Within who calls it, as all that only hands on: what it returns is five words, which would be written one by one and read
// two by two, before they have left the store buffer.
#[inline]
pub fn decode<'m, T: Type>(
    input: &'m [u8],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<T::Ref<'m>, DecodeError> {
    decode_on::<T>(chosen(), input, arena, limits)
}

/// The same by a path that is said.
#[inline(always)]
pub fn decode_on<'m, T: Type>(
    path: CpuPath,
    input: &'m [u8],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<T::Ref<'m>, DecodeError> {
    decode_slots_on(path, input, arena, limits).map(T::reader)
}

/// The same as its slots.
#[doc(hidden)]
#[inline(always)]
pub fn decode_slots_on<'m, T: Type>(
    path: CpuPath,
    input: &'m [u8],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<Slots<'m, T>, DecodeError> {
    let end = input.len();
    let is_short = end <= COPIED_MAX;
    if is_short {
        copy(input, &mut arena.input);
    }
    let input = if is_short { &arena.input } else { input };
    let slots = straight::<T>(path, input, end, &mut arena.memory, limits)?;
    Ok(Slots::new(&arena.memory.bytes, input, slots))
}

/// Decodes a message that others' bytes follow: it is read where it lies, however short it is.
#[inline]
pub fn decode_padded<'m, T: Type>(
    input: Padded<'m>,
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<T::Ref<'m>, DecodeError> {
    decode_padded_slots_on(chosen(), input, arena, limits).map(T::reader)
}

/// The same as its slots, by a path that is said.
#[doc(hidden)]
#[inline(always)]
pub fn decode_padded_slots_on<'m, T: Type>(
    path: CpuPath,
    input: Padded<'m>,
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<Slots<'m, T>, DecodeError> {
    let (whole, end) = input.parts();
    prefetch(input.message());
    let slots = straight::<T>(path, whole, end, &mut arena.memory, limits)?;
    Ok(Slots::new(&arena.memory.bytes, whole, slots))
}

/// Decodes a copy, which stays in the arena: where the message's slots begin.
pub(crate) fn decode_kept<T: Type>(
    input: &[u8],
    arena: &mut Arena,
    limits: &Limits,
) -> Result<Offset, DecodeError> {
    // Before it is copied.
    decode::begin(input.len(), &mut arena.memory, limits)?;
    copy(input, &mut arena.input);
    straight::<T>(chosen(), &arena.input, input.len(), &mut arena.memory, limits)
}

/// Decodes the first `end` bytes of an input. What it returns is small, so that whoever reads it need not wait until all
/// of it was written.
#[inline(never)]
fn straight<T: Type>(
    path: CpuPath,
    input: &[u8],
    end: usize,
    memory: &mut Memory,
    limits: &Limits,
) -> Result<Offset, DecodeError> {
    const { assert!(!T::IS_THRIFT, "a struct of Thrift is no message of Protobuf") };
    let depth_left = decode::begin(end, memory, limits)?;
    let mut decoding = Decoding { memory, types: T::types(), input, unknown_left: limits.unknown_fields_max };
    let begun = Begun::<T>::root(&mut decoding, end, depth_left)?;
    let slots = begun.slots;
    match path {
        CpuPath::Portable => portably_decoded(begun),
        #[cfg(target_arch = "x86_64")]
        CpuPath::Bmi2(path) => path.decode(begun),
    }?;
    Ok(slots)
}

/// Out of line, as `portably_encoded`, so that whoever chooses among the paths is short.
#[inline(never)]
fn portably_decoded<T: Type>(begun: Begun<'_, '_, T>) -> Result<usize, DecodeError> {
    Portable.decode(begun)
}

#[inline(never)]
fn portably_encoded<'o, T: Type>(message: Slots<'_, T>, writer: Writer<'o>) -> Writer<'o> {
    Portable.encode(message, writer)
}

/// What is short is copied, so that there are bytes behind it: cheaper than asking at each field how many there are.
/// Longer inputs are read where they lie.
const COPIED_MAX: usize = 4096;

/// Copies an input, with bytes behind it.
#[inline(always)]
pub(crate) fn copy(input: &[u8], to: &mut Vec<u8>) {
    copy_to(input, to, 0);
}

/// The same to a place of its own.
#[inline(always)]
fn copy_to(input: &[u8], to: &mut Vec<u8>, from: usize) {
    let (at, bytes) = (from + input.len(), from + input.len() + Padded::BEHIND);
    if to.len() < bytes {
        // What is behind it of an earlier one is overwritten before it is read, or zero is written over it.
        to.resize(bytes, 0);
    }
    to[from..at].copy_from_slice(input);
    to[at..bytes].copy_from_slice(&[0; Padded::BEHIND]);
}

/// Appends a message.
#[inline]
pub fn encode<T: Type>(message: Slots<'_, T>, out: &mut Vec<u8>) {
    encode_on::<T>(chosen(), message, out);
}

/// The same by a path that is said.
#[inline]
pub fn encode_on<T: Type>(path: CpuPath, message: Slots<'_, T>, out: &mut Vec<u8>) {
    const { assert!(!T::IS_THRIFT, "a struct of Thrift is no message of Protobuf") };
    let at = out.len();
    let writer = Writer::new(out, at);
    match path {
        CpuPath::Portable => portably_encoded(message, writer),
        #[cfg(target_arch = "x86_64")]
        CpuPath::Bmi2(path) => path.encode(message, writer),
    }
    .finish();
}

/// By the table, of types that are known at run time.
pub mod table {
    pub use super::encode::encode;
    pub use crate::message::decode;
}
