//! Messages that own what they refer to: as slots in an arena of their own, or as plain structs.
//!
//! Invariant: whatever the bytes are, a plain struct comes of them or an error, and what its lists, maps and boxes hold
//! is counted against `Limits::slots_bytes_max` before it is allocated.

use crate::error::{DecodeError, Exhausted};
use crate::limits::Limits;
use crate::message::{Message, Type};
use crate::protobuf::visit::{Part, Raw, Visit};
use crate::raw::path::{chosen, CpuPath, Path, Portable};
use crate::raw::writer::Writer;
use crate::schema::Kind;

/// A message of Protobuf that may go to other threads and stay as long as wanted: a [`Message`], or a struct that
/// `scotfree-codegen` made by `Config::owned()`.
pub trait Owned: Sized + Send + 'static {
    /// Decodes all of the bytes.
    fn decode(input: &[u8], limits: &Limits) -> Result<Self, DecodeError>;

    /// Appends its bytes.
    fn encode(&self, out: &mut Vec<u8>);
}

impl<T: Type> Owned for Message<T> {
    fn decode(input: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        Message::decode(input, limits)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        Message::encode(self, out);
    }
}

impl<T: Plain> Owned for T {
    fn decode(input: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let mut message = T::default();
        merge(&mut message, input, limits)?;
        Ok(message)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_on(chosen(), self, out);
    }
}

/// Decodes into a plain struct, as if the bytes stood behind those that it came of. After an error it holds what came
/// before.
pub fn merge<T: Plain>(message: &mut T, input: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    if input.len() as u64 > u64::from(limits.message_bytes_max.min(i32::MAX as u32)) {
        return Err(DecodeError::TooLarge);
    }
    let depth_left = limits.depth_max.checked_sub(1).ok_or(DecodeError::TooDeep { at: 0 })?;
    message.merge(Part::new(input), &mut Within { depth_left, bytes_left: limits.slots_bytes_max as usize })
}

/// Appends a plain struct by a path that is said.
pub fn encode_on<T: Plain>(path: CpuPath, message: &T, out: &mut Vec<u8>) {
    let at = out.len();
    let writer = Writer::new(out, at);
    match path {
        CpuPath::Portable => writer.plain(Portable, message),
        #[cfg(target_arch = "x86_64")]
        CpuPath::Bmi2(path) => writer.plain(path, message),
    }
    .finish();
}

/// What decodes into a struct's fields. Generated code implements it.
pub trait Merge: Default {
    /// Takes the fields of a message: those that stand in their order by one compare each.
    fn merge(&mut self, message: Part<'_>, within: &mut Within) -> Result<(), DecodeError>;
}

/// A plain struct. Generated code implements it.
pub trait Plain: Merge + Send + 'static {
    /// Writes its fields by ascending number.
    fn write<'o, P: Path>(&self, path: P, writer: Writer<'o>) -> Writer<'o>;
}

/// What a message that is being decoded may still take.
pub struct Within {
    depth_left: u16,
    bytes_left: usize,
}

impl Within {
    /// Room for so many bytes on the heap.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(Exhausted)?;
        Ok(())
    }

    /// Decodes a message within another one, whose tag is at `at`.
    #[inline]
    pub fn message<T: Merge>(
        &mut self,
        to: &mut T,
        (at, part): (usize, Part<'_>),
    ) -> Result<(), DecodeError> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or(DecodeError::TooDeep { at })?;
        to.merge(part, self)?;
        self.depth_left += 1;
        Ok(())
    }

    /// The same as one more of a list.
    #[inline]
    pub fn element<T: Merge>(
        &mut self,
        to: &mut Vec<T>,
        placed: (usize, Part<'_>),
    ) -> Result<(), DecodeError> {
        let index = to.len();
        self.push(to, T::default())?;
        self.message(&mut to[index], placed)
    }

    /// The same as a new one.
    #[inline]
    pub fn made<T: Merge>(&mut self, placed: (usize, Part<'_>)) -> Result<T, DecodeError> {
        let mut made = T::default();
        self.message(&mut made, placed)?;
        Ok(made)
    }

    /// The same as a new one that will lie on the heap, as an entry of a map does.
    #[inline]
    pub fn entry<T: Merge>(&mut self, placed: (usize, Part<'_>)) -> Result<T, DecodeError> {
        self.take(size_of::<T>())?;
        self.made(placed)
    }

    /// The same in a box, which is made if there is none.
    #[inline]
    pub fn boxed<T: Merge>(
        &mut self,
        to: &mut Option<Box<T>>,
        placed: (usize, Part<'_>),
    ) -> Result<(), DecodeError> {
        if let Some(message) = to {
            return self.message(&mut **message, placed);
        }
        *to = Some(Box::new(self.entry(placed)?));
        Ok(())
    }

    /// One more of a list.
    #[inline]
    pub fn push<T>(&mut self, to: &mut Vec<T>, value: T) -> Result<(), Exhausted> {
        self.take(size_of::<T>())?;
        to.push(value);
        Ok(())
    }

    /// A string.
    #[inline]
    pub fn text<const NUMBER: u32>(&mut self, (at, part): (usize, Part<'_>)) -> Result<String, DecodeError> {
        let bytes = part.bytes();
        self.take(bytes.len())?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(DecodeError::NotUtf8 { number: NUMBER, at }),
        }
    }

    /// A field of bytes.
    #[inline]
    pub fn bytes(&mut self, (_, part): (usize, Part<'_>)) -> Result<Vec<u8>, Exhausted> {
        let bytes = part.bytes();
        self.take(bytes.len())?;
        Ok(bytes.to_vec())
    }

    /// Numbers that stand together behind one tag, as their bits in a slot.
    pub fn numbers<const NUMBER: u32, T>(
        &mut self,
        to: &mut Vec<T>,
        kind: Kind,
        (at, part): (usize, Part<'_>),
        of: impl Fn(u64) -> T,
    ) -> Result<(), DecodeError> {
        let mut visit = Visit::new(part);
        while !visit.is_over() {
            let bits = visit.bare(kind).map_err(|_| DecodeError::Packed { number: NUMBER, at })?;
            self.push(to, of(bits))?;
        }
        Ok(())
    }
}

/// What the next field is, whichever it is, and where its tag is. Groups are as deep as messages, unknown ones too.
pub fn other<'i>(visit: &mut Visit<'i>, within: &Within) -> Result<(Raw<'i>, u32, usize), DecodeError> {
    let at = visit.at();
    let (raw, number) = visit.other_within(within.depth_left)?;
    Ok((raw, number, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct whose schema knows no field.
    #[derive(Default)]
    struct Nothing;

    impl Merge for Nothing {
        fn merge(&mut self, message: Part<'_>, within: &mut Within) -> Result<(), DecodeError> {
            let mut visit = Visit::new(message);
            while !visit.is_over() {
                other(&mut visit, within)?;
            }
            Ok(())
        }
    }

    impl Plain for Nothing {
        fn write<'o, P: Path>(&self, _: P, writer: Writer<'o>) -> Writer<'o> {
            writer
        }
    }

    #[test]
    fn unknown_groups_are_as_deep_as_the_limit_says() {
        for depth_max in [1, 20, 100, 101, 1000] {
            let limits = Limits { depth_max, ..Limits::default() };
            let decoded = |depth: usize| {
                let groups = [[0x4b].repeat(depth), [0x4c].repeat(depth)].concat();
                <Nothing as Owned>::decode(&groups, &limits).err()
            };
            // The message itself is one.
            let most = usize::from(depth_max) - 1;
            assert_eq!(decoded(most), None);
            assert_eq!(decoded(most + 1), Some(DecodeError::TooDeep { at: most + 1 }));
        }
    }
}
