//! Thrift's two binary formats: `TBinary` and `TCompact`, of structs and of what stands before them.
//!
//! A struct is decoded into slots as a message of Protobuf is, and read by the same views and readers. What differs:
//!
//! - A container within another, or in a union, has no place in a `Field`. It lies in a type of its own, of one field
//!   (`TypeSchema::is_container`), which is in the schema only.
//! - A field that comes twice counts as it came last, a struct or container too: nothing is merged.
//! - Of a union the member counts that came last; one without a member is taken.
//! - A field of a known id but of another type is as one of an unknown id, also a container whose elements are of another
//!   type; only in a container within another one that is an error, for there nothing can be passed over.
//! - Unknown fields are kept and written again by the protocol that they came by. By the other one they are left out.
//! - Of equal keys of a map all entries are kept; the last counts.
//! - A field of default requiredness is written even if nobody has set it, as zero or empty, unless it is a struct or the
//!   file says a default. What is required and is a struct must be set: who reads the message refuses it otherwise.
//!
//! Types are those of [`types_of`], or of a .thrift file by `scotfree-codegen`; Protobuf's own are not for this format,
//! nor these for Protobuf's.
//!
//! Invariant: whatever the bytes are, they give a message or an error that says where; nothing panics.

pub(crate) mod decode;
pub(crate) mod encode;
mod envelope;
pub(crate) mod format;
mod layout;
pub(crate) mod read;
pub(crate) mod wire;
mod write;

pub use envelope::{Envelope, MessageKind};
pub use layout::{types_of, FieldDescription, LayoutError, Loaded, Of, StructDescription};

use crate::arena::{Arena, Memory, Offset};
use crate::error::DecodeError;
use crate::limits::Limits;
use crate::message::Type;
use crate::protobuf;
use crate::protobuf::decode::{begin, Decoding};
use crate::raw::path::{chosen, CpuPath, Path as _, Portable};
use crate::raw::read::Slots;
use crate::raw::writer::Writer;
use format::{Binary, Compact};
use read::Reader;

/// Which format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Numbers of their full width, the highest byte first.
    Binary,
    /// Numbers as varints, a field's id as how much it is more than the one before, a bool in its field's header.
    Compact,
}

/// Decodes a struct, which takes all of `input`; what is read of it lies in `input` and `arena`.
pub fn decode<'m, T: Type>(
    protocol: Protocol,
    input: &'m [u8],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<T::Ref<'m>, DecodeError> {
    decode_on::<T>(chosen(), protocol, input, arena, limits)
}

/// The same by a path that is said.
pub fn decode_on<'m, T: Type>(
    path: CpuPath,
    protocol: Protocol,
    input: &'m [u8],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<T::Ref<'m>, DecodeError> {
    decode_slots_on(path, protocol, input, arena, limits).map(T::reader)
}

/// The same as its slots.
#[doc(hidden)]
#[inline(always)]
pub fn decode_slots_on<'m, T: Type>(
    path: CpuPath,
    protocol: Protocol,
    input: &'m [u8],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<Slots<'m, T>, DecodeError> {
    let slots = straight::<T>(path, protocol, input, &mut arena.memory, limits)?;
    Ok(Slots::new(&arena.memory.bytes, input, slots))
}

/// Decodes a copy, which stays in the arena: where the struct's slots begin.
pub(crate) fn decode_kept<T: Type>(
    protocol: Protocol,
    input: &[u8],
    arena: &mut Arena,
    limits: &Limits,
) -> Result<Offset, DecodeError> {
    let slots = straight::<T>(chosen(), protocol, input, &mut arena.memory, limits)?;
    protobuf::copy(input, &mut arena.input);
    Ok(slots)
}

/// By the straight line: where the struct's slots begin.
#[inline(never)]
fn straight<T: Type>(
    path: CpuPath,
    protocol: Protocol,
    input: &[u8],
    memory: &mut Memory,
    limits: &Limits,
) -> Result<Offset, DecodeError> {
    const { assert!(T::IS_THRIFT, "a message of Protobuf is no struct of Thrift") };
    let depth_left = begin(input.len(), memory, limits)?;
    let slots = memory.allocate(T::SLOT_BYTES)?;
    let mut table = Decoding { memory, types: T::types(), input, unknown_left: limits.unknown_fields_max };
    let table = &mut table;
    let at = match (path, protocol) {
        (CpuPath::Portable, Protocol::Binary) => {
            Portable.decoded_thrift::<T, Binary>(table, 0, slots, depth_left)
        }
        (CpuPath::Portable, Protocol::Compact) => {
            Portable.decoded_thrift::<T, Compact>(table, 0, slots, depth_left)
        }
        #[cfg(target_arch = "x86_64")]
        (CpuPath::Bmi2(path), Protocol::Binary) => {
            path.decoded_thrift::<T, Binary>(table, 0, slots, depth_left)
        }
        #[cfg(target_arch = "x86_64")]
        (CpuPath::Bmi2(path), Protocol::Compact) => {
            path.decoded_thrift::<T, Compact>(table, 0, slots, depth_left)
        }
    }?;
    decode::ended(at, input)?;
    Ok(slots)
}

/// Appends a struct.
pub fn encode<T: Type>(protocol: Protocol, message: Slots<'_, T>, out: &mut Vec<u8>) {
    encode_on::<T>(chosen(), protocol, message, out);
}

/// The same by a path that is said.
#[inline]
pub fn encode_on<T: Type>(path: CpuPath, protocol: Protocol, message: Slots<'_, T>, out: &mut Vec<u8>) {
    const { assert!(T::IS_THRIFT, "a message of Protobuf is no struct of Thrift") };
    let at = out.len();
    let writer = Writer::new(out, at);
    match (path, protocol) {
        (CpuPath::Portable, Protocol::Binary) => Portable.encode_thrift::<T, Binary>(message, writer),
        (CpuPath::Portable, Protocol::Compact) => Portable.encode_thrift::<T, Compact>(message, writer),
        #[cfg(target_arch = "x86_64")]
        (CpuPath::Bmi2(path), Protocol::Binary) => path.encode_thrift::<T, Binary>(message, writer),
        #[cfg(target_arch = "x86_64")]
        (CpuPath::Bmi2(path), Protocol::Compact) => path.encode_thrift::<T, Compact>(message, writer),
    }
    .finish();
}

/// How many bytes the struct takes that `input` begins with, whatever its type is: for transports that have no frames.
/// `DecodeError::Cut` says that more are needed.
pub fn struct_bytes(protocol: Protocol, input: &[u8], limits: &Limits) -> Result<usize, DecodeError> {
    let depth_left = limits.depth_max.checked_sub(1).ok_or(DecodeError::TooDeep { at: 0 })?;
    let bytes_max = input.len().min(limits.message_bytes_max as usize);
    let mut reader = Reader { protocol, input: &input[..bytes_max], at: 0 };
    match reader.skip_struct(depth_left) {
        Ok(()) => Ok(reader.at),
        Err(DecodeError::Cut { .. }) if bytes_max < input.len() => Err(DecodeError::TooLarge),
        Err(error) => Err(error),
    }
}

/// By the table, of types that are known at run time.
pub mod table {
    use super::{decode::decode_into, Arena, DecodeError, Limits, Protocol};
    use crate::message::View;
    use crate::schema::Types;

    pub use super::encode::encode;

    /// Decodes a struct of the type at `index` of `types`, which takes all of `input`.
    pub fn decode<'m>(
        protocol: Protocol,
        types: &'m Types,
        index: u16,
        input: &'m [u8],
        arena: &'m mut Arena,
        limits: &Limits,
    ) -> Result<View<'m>, DecodeError> {
        let slots = decode_into(protocol, types, index, input, &mut arena.memory, limits)?;
        Ok(View { types, schema: &types.types[index as usize], memory: &arena.memory.bytes, input, slots })
    }
}
