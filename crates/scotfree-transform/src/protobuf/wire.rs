//! Bytes as the wire has them: varints, tags and lengths, within bounds.
//!
//! Invariant: nothing is read at or behind `end`, and a cursor that refused something stands where it stood.

use crate::error::DecodeError;
use crate::planted::{self, Fault};
use crate::schema::TypeSchema;

/// How a field's value is told apart from the next field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Protobuf's own names.
pub enum Wire {
    Varint,
    Fixed64,
    Bytes,
    GroupBegin,
    GroupEnd,
    Fixed32,
}

impl Wire {
    /// Its number in a tag.
    pub(crate) const fn code(self) -> u64 {
        match self {
            Wire::Varint => 0,
            Wire::Fixed64 => 1,
            Wire::Bytes => 2,
            Wire::GroupBegin => 3,
            Wire::GroupEnd => 4,
            Wire::Fixed32 => 5,
        }
    }
}

/// The number of a field and what comes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) number: u32,
    pub(crate) wire: Wire,
}

/// Where reading stands in an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'i> {
    pub(crate) input: &'i [u8],
    pub(crate) at: usize,
}

/// A varint has at most so many bytes.
const VARINT_BYTES_MAX: usize = 10;
/// A tag has at most so many.
const TAG_BYTES_MAX: usize = 5;

/// How many of these bytes the number takes that begins there; more than there are, if it does not end among them.
fn varint_bytes(word: [u8; 8]) -> usize {
    let stops = !u64::from_le_bytes(word) & 0x8080_8080_8080_8080;
    stops.trailing_zeros() as usize / 8 + 1
}

impl Bytes<'_> {
    /// A number of at most ten bytes; bits beyond the 64th are dropped, as all libraries do.
    #[inline]
    pub(crate) fn varint(&mut self, end: usize) -> Result<u64, DecodeError> {
        match self.input[self.at..end].first() {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_varint(end),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self, end: usize) -> Result<u64, DecodeError> {
        let (start, mut value) = (self.at, 0_u64);
        for (count, &byte) in self.input[start..end].iter().take(VARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f).checked_shl(7 * count as u32).unwrap_or(0);
            if byte < 0x80 {
                self.at += count + 1;
                return Ok(value);
            }
        }
        let is_cut = end - start < VARINT_BYTES_MAX;
        Err(if is_cut { DecodeError::Cut { at: start } } else { DecodeError::Overlong { at: start } })
    }

    /// The next field's tag.
    pub(crate) fn tag(&mut self, end: usize) -> Result<Tag, DecodeError> {
        let at = self.at;
        let mut ahead = *self;
        let tag = ahead.varint(end)?;
        let tag = u32::try_from(tag).map_err(|_| DecodeError::Overlong { at })?;
        if ahead.at - at > TAG_BYTES_MAX && !planted::is(Fault::AcceptOverlongTag) {
            return Err(DecodeError::Overlong { at });
        }
        let wire = match tag & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Bytes,
            3 => Wire::GroupBegin,
            4 => Wire::GroupEnd,
            5 => Wire::Fixed32,
            _ => return Err(DecodeError::NotAField { at }),
        };
        if tag >> 3 == 0 {
            return Err(DecodeError::NotAField { at });
        }
        *self = ahead;
        Ok(Tag { number: tag >> 3, wire })
    }

    /// A length, and where what is so long ends.
    pub(crate) fn length(&mut self, end: usize) -> Result<usize, DecodeError> {
        let start = self.at;
        let mut ahead = *self;
        let length = ahead.varint(end)?;
        if length > (end - ahead.at) as u64 {
            return Err(DecodeError::Cut { at: start });
        }
        *self = ahead;
        Ok(ahead.at + length as usize)
    }

    /// So many bytes as a number.
    pub(crate) fn fixed<const N: usize>(&mut self, end: usize) -> Result<u64, DecodeError> {
        if end - self.at < N {
            return Err(DecodeError::Cut { at: self.at });
        }
        let value = crate::slots::number::<N>(&self.input[self.at..end]);
        self.at += N;
        Ok(value)
    }

    /// Passes over a field whose tag was read; one group within another counts as one message deeper.
    pub(crate) fn skip(&mut self, tag: Tag, end: usize, depth_left: u16) -> Result<(), DecodeError> {
        match tag.wire {
            Wire::Varint => match self.input[self.at..end].first_chunk().map(|word| varint_bytes(*word)) {
                Some(bytes @ 1..=8) => self.at += bytes,
                _ => drop(self.varint(end)?),
            },
            Wire::Fixed64 => drop(self.fixed::<8>(end)?),
            Wire::Fixed32 => drop(self.fixed::<4>(end)?),
            Wire::Bytes => self.at = self.length(end)?,
            Wire::GroupEnd => return Err(DecodeError::GroupEnd { at: self.at }),
            Wire::GroupBegin => drop(self.skip_group(tag.number, end, depth_left)?),
        }
        Ok(())
    }

    /// Passes over the fields that a type does not know, up to one that it does or that is wrong: one after the other,
    /// since all of them will be one run.
    pub(crate) fn skip_unknown(&mut self, schema: &TypeSchema, end: usize, depth_left: u16) {
        loop {
            let mut ahead = *self;
            let Ok(tag) = ahead.tag(end) else { return };
            let is_other = tag.wire == Wire::GroupEnd || schema.place(tag.number).is_some();
            if is_other || ahead.skip(tag, end, depth_left).is_err() {
                return;
            }
            *self = ahead;
        }
    }

    /// Passes over a group whose beginning was read; where its end's tag is.
    pub(crate) fn skip_group(
        &mut self,
        number: u32,
        end: usize,
        depth_left: u16,
    ) -> Result<usize, DecodeError> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err(DecodeError::TooDeep { at: self.at });
        };
        loop {
            let at = self.at;
            let tag = self.tag(end)?;
            match tag.wire {
                Wire::GroupEnd if tag.number == number => return Ok(at),
                Wire::GroupEnd => return Err(DecodeError::GroupEnd { at }),
                _ => self.skip(tag, end, depth_left)?,
            }
        }
    }
}
