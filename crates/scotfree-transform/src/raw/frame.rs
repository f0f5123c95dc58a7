//! One message while straight-line code decodes it (Optimus Prime, 5.3.1: the Reader).
//!
//! Invariant: `room` points at the slots of a message of type `T` in the arena, `T::SLOT_BYTES` long; whatever may move
//! the arena sets it anew. A field that is not as the straight line expects changes nothing, and is the table's.

use super::path::Path;
use super::word::{tag_of, varint, word_at, word_at_end, MASKS};
use crate::arena::{Memory, Offset};
use crate::error::DecodeError;
use crate::message::Type;
use crate::planted::{self, Fault};
use crate::protobuf::decode::{in_slot, wire_of, Decoding, Place};
use crate::protobuf::wire::{Bytes, Wire};
use crate::schema::{Field, Kind, Shape, Utf8, NONE};
use crate::slots::{width, Span};
use std::marker::PhantomData;

/// See above. By value, so that where it stands lies in registers.
pub struct Frame<'d, 'a, 'i, T: Type> {
    decoding: &'d mut Decoding<'a>,
    input: &'i [u8],
    /// From here on there are no eight bytes of input.
    words_end: usize,
    at: usize,
    end: usize,
    /// Where the straight line refused last: what stands there is the table's.
    refused: usize,
    slots: Offset,
    depth_left: u16,
    room: *mut u8,
    presence: T::Presence,
    of: PhantomData<T>,
}

/// What the table says when a message is at its end.
pub const DONE: usize = usize::MAX;

impl<'d, 'a, 'i, T: Type> Frame<'d, 'a, 'i, T> {
    pub(crate) fn root(
        decoding: &'d mut Decoding<'a>,
        input: &'i [u8],
        end: usize,
        depth_left: u16,
    ) -> Result<Self, DecodeError> {
        let slots = decoding.memory.allocate(T::SLOT_BYTES)?;
        Ok(Frame::new(decoding, input, 0, end, slots, depth_left))
    }

    #[inline(always)]
    fn new(
        decoding: &'d mut Decoding<'a>,
        input: &'i [u8],
        at: usize,
        end: usize,
        slots: Offset,
        depth_left: u16,
    ) -> Self {
        let mut frame = Frame {
            decoding,
            input,
            words_end: (input.len() + 1).saturating_sub(8),
            at,
            end,
            refused: usize::MAX,
            slots,
            depth_left,
            room: std::ptr::null_mut(),
            presence: T::Presence::default(),
            of: PhantomData,
        };
        frame.find_room();
        frame.load_presence();
        frame
    }

    /// After the arena may have moved.
    #[inline(always)]
    fn find_room(&mut self) {
        let (at, bytes) = (self.slots as usize, T::SLOT_BYTES as usize);
        // Its bounds are asked here, once, and not at each field.
        self.room = self.decoding.memory.bytes[at..at + bytes].as_mut_ptr();
    }

    #[inline(always)]
    fn load_presence(&mut self) {
        for (index, word) in self.presence.as_mut().iter_mut().enumerate() {
            let at = self.slots as usize + index * 8;
            *word = crate::slots::number::<8>(&self.decoding.memory.bytes[at..at + 8]);
        }
    }

    #[inline(always)]
    fn save_presence(&mut self) {
        let presence = self.presence;
        for (index, word) in presence.as_ref().iter().enumerate() {
            let at = self.slots as usize + index * 8;
            self.decoding.memory.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Writes a value into a field's slot.
    #[inline(always)]
    fn write<const I: usize>(&mut self, value: u64) {
        let field = const { slot_checked::<T>(I) };
        // SAFETY: the slot lies within `T::SLOT_BYTES`, which is asserted when this is compiled, and `room` has so many.
        unsafe {
            let slot = self.room.add(field.slot as usize);
            match width(field.kind) {
                1 => slot.write(value as u8),
                4 => slot.cast::<u32>().write_unaligned((value as u32).to_le()),
                _ => slot.cast::<u64>().write_unaligned(value.to_le()),
            }
        }
    }

    /// Says that a field is there; of a oneof, that no other is.
    #[inline(always)]
    fn mark<const I: usize>(&mut self) {
        let field = const { T::FIELDS[I] };
        let presence = self.presence.as_mut();
        let (first, count) = const { oneof_of::<T>(I) };
        for bit in first..first + count {
            presence[bit as usize / 64] &= !(1 << (bit % 64));
        }
        presence[field.presence as usize / 64] |= 1 << (field.presence % 64);
    }

    /// The eight bytes at `at`; behind the input's end they are zero.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        if at < self.words_end {
            // SAFETY: eight bytes from there are within the input.
            u64::from_le(unsafe { self.input.as_ptr().add(at).cast::<u64>().read_unaligned() })
        } else {
            word_at_end(self.input, at)
        }
    }

    /// The next eight bytes, if the next field is this one.
    #[inline(always)]
    fn ahead<const I: usize>(&self) -> Option<u64> {
        let (tag, bytes) = const { tag_of(T::FIELDS[I].number, wire_of(T::FIELDS[I].kind)) };
        let word = self.word(self.at);
        (word & MASKS[bytes] == tag).then_some(word)
    }

    /// Decodes a number, if it is the next field.
    #[inline(always)]
    pub fn number<const I: usize, P: Path>(&mut self, path: P) {
        let field = const { T::FIELDS[I] };
        let Some((value, until)) = self.number_ahead::<I, P>(path) else { return };
        // One that has to be absent then is the table's: nobody writes it, so that looking costs less than counting.
        if matches!(field.shape, Shape::Implicit) && value == 0 {
            return;
        }
        if planted::is(Fault::DropPresenceOfZero) && value == 0 || self.is_first_kept::<I>() {
            self.at = until;
            return;
        }
        self.write::<I>(value);
        self.mark::<I>();
        self.at = until;
    }

    /// Whether a planted fault keeps what came first.
    #[inline(always)]
    fn is_first_kept<const I: usize>(&self) -> bool {
        let bit = const { T::FIELDS[I].presence };
        planted::is(Fault::FirstWins) && self.presence.as_ref()[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    /// Decodes a string or bytes, if it is the next field.
    #[inline(always)]
    pub fn text<const I: usize, P: Path>(&mut self, path: P) {
        let Some((span, until)) = self.span_ahead::<I, P>(path) else { return };
        if matches!(const { T::FIELDS[I].shape }, Shape::Implicit) && span.len == 0 {
            return;
        }
        self.write::<I>(span.word());
        self.mark::<I>();
        self.at = until;
    }

    #[inline(always)]
    fn span_ahead<const I: usize, P: Path>(&mut self, path: P) -> Option<(Span, usize)> {
        let field = const { T::FIELDS[I] };
        let (from, until) = self.length_ahead::<I, P>(path)?;
        if matches!((field.kind, field.utf8), (Kind::String, Utf8::Checked))
            && !super::text::is_utf8(self.input, from, until)
        {
            return None;
        }
        Some((Span { at: from as u32, len: (until - from) as u32 }, until))
    }

    /// From where to where the next field is, if it is this one.
    #[inline(always)]
    fn length_ahead<const I: usize, P: Path>(&self, path: P) -> Option<(usize, usize)> {
        let (_, tag_bytes) = const { tag_of(T::FIELDS[I].number, wire_of(T::FIELDS[I].kind)) };
        let word = self.ahead::<I>()?;
        let (length, bytes) =
            varint(path, word >> (8 * tag_bytes), 8 - tag_bytes, self.input, self.at + tag_bytes, true)?;
        let from = self.at + tag_bytes + bytes;
        (from <= self.end && length <= (self.end - from) as u64).then(|| (from, from + length as usize))
    }

    /// Decodes the values of a repeated number, string or field of bytes, as long as they are the next fields.
    #[inline(always)]
    pub fn each<const I: usize, P: Path>(&mut self, path: P) {
        let field = const { T::FIELDS[I] };
        loop {
            let found = match wire_of(field.kind) {
                Wire::Bytes => self.span_ahead::<I, P>(path).map(|(span, until)| (span.word(), until)),
                _ => self.number_ahead::<I, P>(path),
            };
            let Some((value, until)) = found else { return };
            if self.push(field, value).is_none() {
                return;
            }
            self.at = until;
        }
    }

    #[inline(always)]
    fn number_ahead<const I: usize, P: Path>(&self, path: P) -> Option<(u64, usize)> {
        let field = const { T::FIELDS[I] };
        let (_, tag_bytes) = const { tag_of(T::FIELDS[I].number, wire_of(T::FIELDS[I].kind)) };
        let word = self.ahead::<I>()?;
        let from = self.at + tag_bytes;
        let (raw, bytes) = match wire_of(field.kind) {
            Wire::Fixed32 => (u64::from(self.word(from) as u32), 4),
            Wire::Fixed64 => (self.word(from), 8),
            _ => {
                varint(path, word >> (8 * tag_bytes), 8 - tag_bytes, self.input, from, is_short(field.kind))?
            }
        };
        let is_within = from + bytes <= self.end || planted::is(Fault::SkipEndCheck);
        is_within.then(|| (in_slot(field.kind, raw), from + bytes))
    }

    /// Puts a value behind those that are there; none, if the arena is full, which the table says then.
    #[inline(always)]
    fn push(&mut self, field: Field, value: u64) -> Option<()> {
        let slot = (self.slots + field.slot) as usize;
        let element = self.decoding.one_more(slot, width(field.kind)).ok()?;
        crate::protobuf::decode::write(&mut self.decoding.memory.bytes[element..], width(field.kind), value);
        self.presence.as_mut()[field.presence as usize / 64] |= 1 << (field.presence % 64);
        self.find_room();
        Some(())
    }

    /// Decodes a message, if it is the next field: within this one, or behind those that are there.
    #[inline(always)]
    pub fn child<'f, const I: usize, C: Type, P: Path>(
        &'f mut self,
        path: P,
    ) -> Result<Option<Frame<'f, 'a, 'i, C>>, DecodeError> {
        let field = const { T::FIELDS[I] };
        let Some((from, until)) = self.length_ahead::<I, P>(path) else { return Ok(None) };
        let Some(depth_left) = self.depth_left.checked_sub(1) else {
            return Err(DecodeError::TooDeep { at: self.at });
        };
        let slot = (self.slots + field.slot) as usize;
        let bit = 1_u64 << (field.presence % 64);
        let is_there = self.presence.as_ref()[field.presence as usize / 64] & bit != 0;
        let slots = match field.shape {
            Shape::Repeated | Shape::Packed | Shape::Map => {
                let slots = self.decoding.memory.allocate(C::SLOT_BYTES)?;
                let element = self.decoding.one_more(slot, 4)?;
                crate::protobuf::decode::write(&mut self.decoding.memory.bytes[element..], 4, slots.into());
                slots
            }
            _ if is_there => crate::slots::number::<4>(&self.decoding.memory.bytes[slot..]) as Offset,
            _ => {
                let slots = self.decoding.memory.allocate(C::SLOT_BYTES)?;
                crate::protobuf::decode::write(&mut self.decoding.memory.bytes[slot..], 4, slots.into());
                slots
            }
        };
        self.mark::<I>();
        Ok(Some(Frame::new(self.decoding, self.input, from, until, slots, depth_left)))
    }

    /// After a message within this one, which ended at `at`.
    #[inline(always)]
    pub fn back(&mut self, at: usize) {
        self.at = at;
        self.find_room();
    }

    /// What is next, where the straight line did not go on: which field it goes on with, or that the message is over.
    #[inline(always)]
    pub fn other(self) -> Result<(Self, usize), DecodeError> {
        self.moved().other_out_of_line()
    }

    /// The same in another place, so that where the straight line keeps it is known to nobody else.
    #[inline(always)]
    #[must_use]
    pub fn moved(self) -> Self {
        let Frame { decoding, input, words_end, at, end, refused, slots, depth_left, room, presence, of } =
            self;
        Frame { decoding, input, words_end, at, end, refused, slots, depth_left, room, presence, of }
    }

    #[inline(never)]
    fn other_out_of_line(mut self) -> Result<(Self, usize), DecodeError> {
        self.save_presence();
        let types = self.decoding.types;
        let schema = &types.types[T::INDEX as usize];
        let place = Place { schema, slots: self.slots, depth_left: self.depth_left };
        let mut bytes = Bytes { input: self.input, at: self.at };
        while bytes.at < self.end {
            let at = bytes.at;
            let tag = bytes.tag(self.end)?;
            if tag.wire == Wire::GroupEnd {
                return Err(DecodeError::GroupEnd { at });
            }
            if let Some(index) = schema.place(tag.number) {
                if self.refused != at && is_straight(&schema.fields[index], tag.wire) {
                    (self.refused, self.at) = (at, at);
                    self.find_room();
                    self.load_presence();
                    return Ok((self, index));
                }
            }
            self.decoding.field(place, tag, at, &mut bytes, self.end)?;
        }
        self.at = bytes.at;
        self.decoding.check_required(place)?;
        Ok((self, DONE))
    }

    /// Decodes all of the message by the table.
    pub fn by_table(mut self) -> Result<usize, DecodeError> {
        self.save_presence();
        let schema = &self.decoding.types.types[T::INDEX as usize];
        let place = Place { schema, slots: self.slots, depth_left: self.depth_left };
        let mut bytes = Bytes { input: self.input, at: self.at };
        self.decoding.message(place, &mut bytes, self.end, None)?;
        Ok(bytes.at)
    }

    /// Decodes many numbers behind one tag, if they are the next field.
    #[inline(always)]
    pub fn packed<const I: usize, P: Path>(&mut self, path: P) {
        let field = const { T::FIELDS[I] };
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, Wire::Bytes) };
        let word = self.word(self.at);
        if word & MASKS[tag_bytes] != tag {
            return;
        }
        let found =
            varint(path, word >> (8 * tag_bytes), 8 - tag_bytes, self.input, self.at + tag_bytes, true);
        let Some((length, bytes)) = found else { return };
        let from = self.at + tag_bytes + bytes;
        if from <= self.end && length <= (self.end - from) as u64 {
            let until = from + length as usize;
            let slot = (self.slots + field.slot) as usize;
            let run =
                Numbers { field, input: &self.input[..until], from, memory: self.decoding.memory, slot };
            if let Some(span) = path.numbers(run) {
                span.write(&mut self.decoding.memory.bytes[slot..]);
                self.presence.as_mut()[field.presence as usize / 64] |=
                    u64::from(span.len > 0) << (field.presence % 64);
                self.at = until;
            }
            self.find_room();
        }
    }

    /// Ends a message without required fields where all fields stood in their order; otherwise asks the table.
    #[inline(always)]
    pub fn is_over(&mut self) -> bool {
        let is_over = self.at == self.end && !T::HAS_REQUIRED;
        if is_over {
            self.save_presence();
        }
        is_over
    }

    /// Whether nothing follows.
    #[inline(always)]
    pub fn is_at_end(&self) -> bool {
        self.at == self.end
    }

    /// Where the message ended.
    #[inline(always)]
    pub fn ended_at(&self) -> usize {
        self.at
    }

    pub(crate) fn slots(&self) -> Offset {
        self.slots
    }
}

/// A run of numbers: from `from` to the input's end, for a slot of the memory.
pub struct Numbers<'n> {
    field: Field,
    input: &'n [u8],
    from: usize,
    memory: &'n mut Memory,
    slot: usize,
}

impl Numbers<'_> {
    /// Puts them behind those of the slot: what is in the slot then; none, if they end within a number.
    #[inline(always)]
    pub(crate) fn decode<P: Path>(self, path: P) -> Option<Span> {
        let Numbers { field, input, from, memory, slot } = self;
        let span = Span::read(&memory.bytes[slot..]);
        let (size, bytes) = (width(field.kind) as usize, input.len() - from);
        let count = match wire_of(field.kind) {
            Wire::Fixed32 | Wire::Fixed64 if bytes % size != 0 => return None,
            Wire::Fixed32 | Wire::Fixed64 => bytes / size,
            _ => input[from..].iter().filter(|&&byte| byte < 0x80).count(),
        };
        let at = memory.room_for(span.at, span.len, u64::from(span.len) + count as u64, size as u32).ok()?;
        let first = at as usize + span.len as usize * size;
        // Where they lie now, whether or not these are taken.
        Span { at, len: span.len }.write(&mut memory.bytes[slot..]);
        let mut place = from;
        for element in memory.bytes[first..first + count * size].chunks_exact_mut(size) {
            let (raw, bytes) = match wire_of(field.kind) {
                Wire::Fixed32 => (u64::from(word_at(input, place) as u32), 4),
                Wire::Fixed64 => (word_at(input, place), 8),
                _ => varint(path, word_at(input, place), 8, input, place, is_short(field.kind))?,
            };
            place += bytes;
            crate::protobuf::decode::write(element, size as u32, in_slot(field.kind, raw));
        }
        (place == input.len()).then_some(Span { at, len: span.len + count as u32 })
    }
}

/// A field whose slot is within its type's.
const fn slot_checked<T: Type>(index: usize) -> Field {
    let field = T::FIELDS[index];
    assert!(field.slot + width(field.kind) <= T::SLOT_BYTES);
    field
}

/// The bits of a field's oneof; of one that is in none, no bits.
const fn oneof_of<T: Type>(index: usize) -> (u16, u16) {
    let oneof = T::FIELDS[index].oneof;
    if oneof == NONE {
        (0, 0)
    } else {
        T::ONEOFS[oneof as usize]
    }
}

/// Whether the straight line may go on with a field that comes so.
fn is_straight(field: &Field, wire: Wire) -> bool {
    match field.kind {
        Kind::Group | Kind::ClosedEnum => false,
        _ if field.shape == Shape::Packed => wire == Wire::Bytes,
        kind => wire_of(kind) == wire,
    }
}

/// Whether its numbers are most often of one byte, so that guessing it takes the length out of the chain.
const fn is_short(kind: Kind) -> bool {
    matches!(kind, Kind::Bool | Kind::Enum | Kind::ClosedEnum)
}
