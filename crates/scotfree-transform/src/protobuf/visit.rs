//! A message's fields handed out as they come. Nothing is kept: for who looks at each field once, as a reader that
//! makes columns does.
//!
//! Invariant: what is handed out lies inside its message; whatever the bytes are, they give fields or an error.

use super::decode::{in_slot, wire_of};
use super::wire::{Bytes, Wire};
use crate::error::DecodeError;
use crate::limits::DEPTH_MAX;
use crate::raw::path::Portable;
use crate::raw::word::{tag_of, varint, word_at, MASKS};
use crate::schema::Kind;
use std::marker::PhantomData;
use std::ops::Range;

/// Some bytes of an input: a message of a type, or a text.
pub struct Part<'i, T = ()> {
    input: &'i [u8],
    at: usize,
    end: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Part<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Part<'_, T> {}

impl<'i, T> Part<'i, T> {
    /// All of an input.
    pub fn new(input: &'i [u8]) -> Self {
        Part { input, at: 0, end: input.len(), of: PhantomData }
    }

    /// Those in a range, which is cut to what there is. Better than a slice: looking at a field costs less where bytes
    /// of the input are behind it.
    pub fn within(input: &'i [u8], range: Range<usize>) -> Self {
        let end = range.end.min(input.len());
        Part { input, at: range.start.min(end), end, of: PhantomData }
    }

    /// The bytes.
    #[inline(always)]
    pub fn bytes(self) -> &'i [u8] {
        &self.input[self.at..self.end]
    }

    /// The same as a message of another type.
    #[inline(always)]
    pub fn of<U>(self) -> Part<'i, U> {
        Part { input: self.input, at: self.at, end: self.end, of: PhantomData }
    }
}

/// A field's value as the wire has it.
pub enum Raw<'i> {
    /// A number of variable length, of four bytes or of eight, and which.
    Number(u64, Wire),
    /// A text, bytes, a message, or many numbers.
    Bytes(Part<'i>),
    /// What lies in a group.
    Group(Part<'i>),
}

/// Whether a number of this kind comes so.
#[inline(always)]
pub fn is_of(kind: Kind, wire: Wire) -> bool {
    wire_of(kind) == wire
}

/// Where the visit of a message stands.
pub struct Visit<'i> {
    input: &'i [u8],
    at: usize,
    end: usize,
    /// The eight bytes at `at`, those of the input behind the message too.
    word: u64,
}

impl<'i> Visit<'i> {
    /// At its beginning.
    #[inline(always)]
    pub fn new<T>(message: Part<'i, T>) -> Self {
        let Part { input, at, end, .. } = message;
        Visit { input, at, end, word: word_at(input, at) }
    }

    #[inline(always)]
    fn go(&mut self, at: usize) {
        self.at = at;
        self.word = word_at(self.input, at);
    }

    /// What is behind the tag, and how many bytes it has, if the next field has this tag.
    #[inline(always)]
    fn behind<const NUMBER: u32>(&self, wire: Wire) -> Option<(u64, usize)> {
        let (tag, bytes) = tag_of(NUMBER, wire);
        (self.word & MASKS[bytes] == tag).then_some((self.word >> (8 * bytes), bytes))
    }

    #[inline(always)]
    fn varint_behind<const NUMBER: u32>(&self, wire: Wire) -> Option<(u64, usize)> {
        let (rest, tag) = self.behind::<NUMBER>(wire)?;
        let (value, bytes) = varint(Portable, rest, 8 - tag, self.input, self.at + tag, true)?;
        Some((value, self.at + tag + bytes))
    }

    /// The next field's bytes, if it is this one.
    #[inline(always)]
    pub fn bytes<const NUMBER: u32>(&mut self) -> Option<Part<'i>> {
        let (rest, tag) = self.behind::<NUMBER>(Wire::Bytes)?;
        let from = self.at + tag;
        let (from, end) = match (rest & 0x80, rest & 0x8000) {
            (0, _) => (from + 1, from + 1 + (rest & 0x7f) as usize),
            (_, 0) => (from + 2, from + 2 + (rest & 0x7f | rest >> 1 & 0x3f80) as usize),
            _ => self.long(from)?,
        };
        if end > self.end {
            return None;
        }
        self.go(end);
        Some(Part { input: self.input, at: from, end, of: PhantomData })
    }

    /// From where to where bytes are whose length is of more than two bytes.
    #[inline(never)]
    fn long(&self, at: usize) -> Option<(usize, usize)> {
        let mut bytes = Bytes { input: self.input, at: at.min(self.end) };
        let end = bytes.length(self.end).ok()?;
        Some((bytes.at, end))
    }

    /// The next field's number, if it is this one.
    #[inline(always)]
    pub fn number<const NUMBER: u32>(&mut self, kind: Kind) -> Option<u64> {
        let (value, end) = match wire_of(kind) {
            Wire::Fixed32 => {
                let (_, tag) = self.behind::<NUMBER>(Wire::Fixed32)?;
                (word_at(self.input, self.at + tag) & 0xffff_ffff, self.at + tag + 4)
            }
            Wire::Fixed64 => {
                let (_, tag) = self.behind::<NUMBER>(Wire::Fixed64)?;
                (word_at(self.input, self.at + tag), self.at + tag + 8)
            }
            _ => self.varint_behind::<NUMBER>(Wire::Varint)?,
        };
        (end <= self.end).then(|| {
            self.go(end);
            value
        })
    }

    /// Where the next field begins, in the whole input.
    #[inline(always)]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next field's bytes, if it is this one, and where its tag is.
    #[inline(always)]
    pub fn placed<const NUMBER: u32>(&mut self) -> Option<(usize, Part<'i>)> {
        let at = self.at;
        Some((at, self.bytes::<NUMBER>()?))
    }

    /// A number that stands without a tag, as it lies in a slot.
    #[inline(always)]
    pub fn bare(&mut self, kind: Kind) -> Result<u64, DecodeError> {
        let (mut bytes, end) = (Bytes { input: self.input, at: self.at }, self.end);
        let raw = match wire_of(kind) {
            Wire::Fixed32 => bytes.fixed::<4>(end)?,
            Wire::Fixed64 => bytes.fixed::<8>(end)?,
            _ => match varint(Portable, self.word, 8, self.input, self.at, true) {
                Some((value, count)) if self.at + count <= end => {
                    bytes.at += count;
                    value
                }
                _ => bytes.varint(end)?,
            },
        };
        self.go(bytes.at);
        Ok(in_slot(kind, raw))
    }

    /// Whether the message is over.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.at == self.end
    }

    /// The next field whichever it is, and its number.
    pub fn other(&mut self) -> Result<(Raw<'i>, u32), DecodeError> {
        self.other_within(DEPTH_MAX)
    }

    /// The same, where groups may lie so deep.
    pub(crate) fn other_within(&mut self, depth_left: u16) -> Result<(Raw<'i>, u32), DecodeError> {
        let (mut bytes, end) = (Bytes { input: self.input, at: self.at }, self.end);
        let tag = bytes.tag(end)?;
        let raw = match tag.wire {
            Wire::Varint => Raw::Number(bytes.varint(end)?, tag.wire),
            Wire::Fixed32 => Raw::Number(bytes.fixed::<4>(end)?, tag.wire),
            Wire::Fixed64 => Raw::Number(bytes.fixed::<8>(end)?, tag.wire),
            Wire::Bytes => {
                let until = bytes.length(end)?;
                let from = std::mem::replace(&mut bytes.at, until);
                Raw::Bytes(Part { input: self.input, at: from, end: until, of: PhantomData })
            }
            Wire::GroupBegin => {
                let from = bytes.at;
                let until = bytes.skip_group(tag.number, end, depth_left)?;
                Raw::Group(Part { input: self.input, at: from, end: until, of: PhantomData })
            }
            Wire::GroupEnd => return Err(DecodeError::GroupEnd { at: self.at }),
        };
        self.go(bytes.at);
        Ok((raw, tag.number))
    }
}
