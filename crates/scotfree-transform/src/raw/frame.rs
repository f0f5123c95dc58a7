//! One message while straight-line code decodes it (Optimus Prime, 5.3.1: the Reader).
//!
//! Invariant: `room` points at the slots of a message of type `T` in the arena, `T::SLOT_BYTES` long; whatever may move
//! the arena sets it anew. A field that is not as the straight line expects changes nothing, and is the table's.

pub(crate) mod thrift;

use super::loose::{sparse_bytes, Entries, EntriesOf, Loose};
use super::path::{Path, Portable, STOPS_BYTES};
use super::read::slot_checked;
use super::text::{is_utf8, is_utf8_ahead};
use super::word::{bytes_within, long_varint, tag_of, varint, word_at, word_at_end, word_within, MASKS};
use crate::arena::{Memory, Offset};
use crate::error::DecodeError;
use crate::input::Padded;
use crate::message::Type;
use crate::planted::{self, Fault};
use crate::protobuf::decode::{in_slot, wire_of, Decoding, Place};
use crate::protobuf::wire::{Bytes, Wire};
use crate::schema::{closed_value, Field, Kind, Shape, Types, Utf8, NONE};
use crate::slots::{width, Span};
use std::hint::select_unpredictable;
use std::marker::PhantomData;
use std::ops::Range;

/// See above. By value, so that where it stands lies in registers.
pub struct Frame<'d, 'i, T: Type> {
    decoding: &'d mut Decoding<'i>,
    input: &'i [u8],
    /// From here on fewer than `Padded::BEHIND` bytes of input follow: what begins there is the table's, numbers of a row
    /// aside, of which it is known where they end or each byte is asked for.
    line_end: usize,
    at: usize,
    end: usize,
    /// Where the straight line refused last: what stands there is the table's.
    refused: usize,
    slots: Offset,
    depth_left: u16,
    room: *mut u8,
    presence: T::Presence,
    /// Of a row of numbers where varints end, tags among them, at or behind `at`: one bit for each byte from `looked` on.
    /// None are known where it is zero; otherwise `at` is less than `STOPS_BYTES` behind `looked`, and sixteen bytes follow
    /// these. Behind other fields it says nothing: a row begins with a look, and so does what is behind `other`.
    stops: u64,
    looked: usize,
    of: PhantomData<T>,
}

/// As many bytes as the line looks at from where a field begins: those of a row or of a text, behind a tag and a length,
/// and a word behind a number.
const _: () = assert!(LENGTH_BEHIND_MAX + STOPS_BYTES + 16 <= Padded::BEHIND);

/// A tag and a length take at most so many bytes.
const LENGTH_BEHIND_MAX: usize = 5 + 10;

/// What the table says when a message is at its end.
pub const DONE: usize = usize::MAX;

/// A message that is to be decoded: a part of the input into slots.
pub struct Begun<'d, 'i, T: Type> {
    pub(crate) decoding: &'d mut Decoding<'i>,
    pub(crate) at: usize,
    pub(crate) end: usize,
    pub(crate) slots: Offset,
    pub(crate) depth_left: u16,
    /// Whether nothing is in the slots yet.
    pub(crate) is_empty: bool,
    of: PhantomData<T>,
}

impl<'d, 'i, T: Type> Begun<'d, 'i, T> {
    /// The first `end` bytes of the input, into slots that are nobody's yet.
    pub(crate) fn root(
        decoding: &'d mut Decoding<'i>,
        end: usize,
        depth_left: u16,
    ) -> Result<Self, DecodeError> {
        let slots = decoding.memory.allocate(T::SLOT_BYTES)?;
        Ok(Begun { decoding, at: 0, end, slots, depth_left, is_empty: true, of: PhantomData })
    }
}

impl<'d, 'i, T: Type> Frame<'d, 'i, T> {
    #[inline(always)]
    pub(super) fn new(
        decoding: &'d mut Decoding<'i>,
        part: Range<usize>,
        slots: Offset,
        depth_left: u16,
        is_empty: bool,
    ) -> Self {
        // As generated code says of presence bits, which `room` is read and written by: they lie before all slots.
        const {
            assert!(size_of::<T::Presence>() <= T::UNKNOWN_SLOT as usize && T::UNKNOWN_SLOT % 8 == 0);
            assert!(T::UNKNOWN_SLOT + 8 <= T::SLOT_BYTES);
        }
        let input = decoding.input;
        let mut frame = Frame {
            decoding,
            input,
            line_end: line_end(input),
            at: part.start,
            end: part.end,
            refused: usize::MAX,
            slots,
            depth_left,
            room: std::ptr::null_mut(),
            presence: T::Presence::default(),
            stops: 0,
            looked: 0,
            of: PhantomData,
        };
        frame.find_room();
        // Not of slots that are zero: these were written as wide words just now, and to read a part of one waits.
        if !is_empty {
            frame.load_presence();
        }
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
            // SAFETY: words of presence bits are the first of the slots, which `room` points at.
            *word = u64::from_le(unsafe { self.room.add(index * 8).cast::<u64>().read_unaligned() });
        }
    }

    #[inline(always)]
    fn save_presence(&mut self) {
        for (index, word) in self.presence.as_ref().iter().enumerate() {
            // SAFETY: as of `load_presence`.
            unsafe { self.room.add(index * 8).cast::<u64>().write_unaligned(word.to_le()) }
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

    /// Writes the place and the count of a field of many values into its slot.
    #[inline(always)]
    fn write_many<const I: usize>(&mut self, span: Span) {
        let field = const { slot_checked::<T>(I) };
        const { assert!(T::FIELDS[I].shape.is_many()) };
        // SAFETY: as of `write`: the slot of a field of many values is eight bytes wide.
        unsafe { self.room.add(field.slot as usize).cast::<u64>().write_unaligned(span.word().to_le()) }
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
        if at + 8 <= self.input.len() {
            // SAFETY: as was asked.
            unsafe { self.word_within(at) }
        } else {
            word_at_end(self.input, at)
        }
    }

    /// The eight bytes at `at`.
    ///
    /// # Safety
    ///
    /// They are within the input.
    #[inline(always)]
    unsafe fn word_within(&self, at: usize) -> u64 {
        // SAFETY: the caller says so.
        unsafe { word_within(self.input, at) }
    }

    /// The next eight bytes, if the next field is this one.
    #[inline(always)]
    fn ahead<const I: usize>(&self) -> Option<u64> {
        let (tag, bytes) = const { tag_of(T::FIELDS[I].number, wire_of(T::FIELDS[I].kind)) };
        self.ahead_behind(tag, bytes)
    }

    /// The next eight bytes, if they begin with these.
    #[inline(always)]
    fn ahead_behind(&self, tag: u64, bytes: usize) -> Option<u64> {
        if self.at >= self.line_end {
            return None;
        }
        // SAFETY: as of `line_end`.
        let word = unsafe { self.word_within(self.at) };
        (word & MASKS[bytes] == tag).then_some(word)
    }

    /// Decodes a number, if it is the next field.
    #[inline(always)]
    pub fn number<const I: usize, P: Path>(&mut self, path: P) {
        const { assert!(is_number(&T::FIELDS[I]) && !T::FIELDS[I].shape.is_many()) };
        if let Some((value, until)) = self.number_ahead::<I, P>(path) {
            self.take::<I>(value, until);
        }
    }

    /// Decodes a truth that is there only if it is one, if it is the next field: without a branch, since nobody can
    /// foresee what is one half of the time.
    #[inline(always)]
    #[allow(clippy::needless_bitwise_bool)]
    pub fn truth<const I: usize, P: Path>(&mut self, _: P) {
        let field = const { slot_checked::<T>(I) };
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, Wire::Varint) };
        const {
            let field = T::FIELDS[I];
            assert!(
                matches!((field.kind, field.shape), (Kind::Bool, Shape::Implicit)) && field.oneof == NONE
            );
        };
        let wanted = tag | 1 << (8 * tag_bytes);
        let bytes = tag_bytes + 1;
        if self.at >= self.line_end {
            return;
        }
        // SAFETY: as of `line_end`.
        let word = unsafe { self.word_within(self.at) };
        let is_next = (word & MASKS[bytes] == wanted) & (self.at + bytes <= self.end);
        // SAFETY: as of `write`.
        unsafe {
            let slot = self.room.add(field.slot as usize);
            slot.write(slot.read() | u8::from(is_next));
        }
        self.presence.as_mut()[field.presence as usize / 64] |= u64::from(is_next) << (field.presence % 64);
        let without = without_lowest(without_lowest(self.stops));
        self.at += bytes & usize::from(is_next).wrapping_neg();
        self.stops = select_unpredictable(is_next, without, self.stops);
    }

    /// Looks where the numbers end that come next: of all in a row at once, so that where one begins does not hang on
    /// what the one before it is.
    #[inline(always)]
    pub fn look<P: Path>(&mut self, path: P) {
        if P::HAS_STOPS {
            self.looked = self.at;
            self.stops = if self.at < self.line_end {
                // SAFETY: as of `line_end`.
                path.stops(unsafe { bytes_within(self.input, self.at) })
            } else {
                0
            };
        }
    }

    /// As `number`, of one in a row of which it was looked where they end.
    #[inline(always)]
    pub fn number_in_row<const I: usize, P: Path>(&mut self, path: P) {
        const { assert!(is_number(&T::FIELDS[I]) && !T::FIELDS[I].shape.is_many()) };
        if !P::HAS_STOPS {
            return self.number::<I, P>(path);
        }
        let field = const { T::FIELDS[I] };
        if let Some((raw, until, stops)) = self.ahead_in_row::<I, P>(path) {
            let is_within = until <= self.end || planted::is(Fault::SkipEndCheck);
            if is_within && self.take::<I>(in_slot(field.kind, raw), until) {
                self.stops = stops;
            }
        }
    }

    /// The next number if it is this field's, where it ends, and the stops behind it.
    #[inline(always)]
    fn ahead_in_row<const I: usize, P: Path>(&self, path: P) -> Option<(u64, usize, u64)> {
        let wire = const { wire_of(T::FIELDS[I].kind) };
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, wire_of(T::FIELDS[I].kind)) };
        debug_assert!(self.stops == 0 || self.at - self.looked < STOPS_BYTES);
        // The first one is the tag's.
        let behind_tag = without_lowest(self.stops);
        if behind_tag == 0 {
            let (raw, until) = number_slowly(self.input, self.at, tag, wire);
            return (until != 0).then_some((raw, until, 0));
        }
        // SAFETY: there are stops, so that eight bytes are within the input, as said of them.
        let word = unsafe { self.word_within(self.at) };
        if word & MASKS[tag_bytes] != tag {
            return None;
        }
        let from = self.at + tag_bytes;
        // SAFETY: as above, since the tag ends before the last stop.
        let body = unsafe { self.word_within(from) };
        match wire {
            Wire::Fixed32 => Some((body & MASKS[4], from + 4, self.stops_from(from + 4))),
            Wire::Fixed64 => Some((body, from + 8, self.stops_from(from + 8))),
            _ => {
                let until = self.looked + behind_tag.trailing_zeros() as usize + 1;
                let bytes = until - from;
                let raw = if bytes > 8 {
                    let (raw, until) = number_slowly(self.input, self.at, tag, wire);
                    if until == 0 {
                        return None;
                    }
                    raw
                } else {
                    path.gathered(body & (u64::MAX >> (64 - 8 * bytes)))
                };
                Some((raw, until, without_lowest(behind_tag)))
            }
        }
    }

    /// The stops at or behind a place, which is not before `at`.
    #[inline(always)]
    fn stops_from(&self, at: usize) -> u64 {
        let passed = at - self.looked;
        if passed < STOPS_BYTES {
            self.stops & u64::MAX << passed
        } else {
            0
        }
    }

    /// Takes a number, which ends there; whether it may.
    #[inline(always)]
    fn take<const I: usize>(&mut self, value: u64, until: usize) -> bool {
        let field = const { T::FIELDS[I] };
        // One that has to be absent then is the table's: nobody writes it, so that looking costs less than counting.
        if matches!(field.shape, Shape::Implicit) && value == 0 {
            return false;
        }
        if planted::is(Fault::DropPresenceOfZero) && value == 0 || self.is_first_kept::<I>() {
            (self.at, self.stops) = (until, 0);
            return false;
        }
        self.write::<I>(value);
        self.mark::<I>();
        self.at = until;
        true
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
        const { assert!(is_text(&T::FIELDS[I]) && !T::FIELDS[I].shape.is_many()) };
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
        let (from, until) = self.length_ahead::<I>()?;
        if matches!((field.kind, field.utf8), (Kind::String, Utf8::Checked)) {
            // SAFETY: as of `line_end`: a text begins at most `LENGTH_BEHIND_MAX` bytes behind where its field does.
            let is_text = unsafe { is_utf8_ahead(path, self.input, from, until) };
            if !is_text {
                return None;
            }
        }
        Some((Span { at: from as u32, len: (until - from) as u32 }, until))
    }

    /// From where to where the next field is, if it is this one.
    #[inline(always)]
    fn length_ahead<const I: usize>(&self) -> Option<(usize, usize)> {
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, Wire::Bytes) };
        let body = self.ahead_behind(tag, tag_bytes)? >> (8 * tag_bytes);
        let at = self.at + tag_bytes;
        let (length, from) =
            if body & 0x80 == 0 { ((body & 0x7f) as usize, at + 1) } else { long_length(self.input, at) };
        let until = from + length;
        (until <= self.end).then_some((from, until))
    }

    /// Decodes the values of a repeated number, string or field of bytes, as long as they are the next fields.
    #[inline(always)]
    pub fn each<const I: usize, P: Path>(&mut self, path: P) {
        const { assert!(is_number(&T::FIELDS[I]) || is_text(&T::FIELDS[I])) };
        const { assert!(T::FIELDS[I].shape.is_many()) };
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
        self.ahead::<I>()?;
        let from = self.at + tag_bytes;
        // SAFETY: as of `line_end`, behind a tag.
        let body = unsafe { self.word_within(from) };
        let (raw, bytes) = match wire_of(field.kind) {
            Wire::Fixed32 => (body & MASKS[4], 4),
            Wire::Fixed64 => (body, 8),
            _ => varint(path, body, 8, self.input, from, is_short(field.kind))?,
        };
        let is_within = from + bytes <= self.end || planted::is(Fault::SkipEndCheck);
        is_within.then(|| (in_slot(field.kind, raw), from + bytes))
    }

    /// Puts a value behind those that are there; none, if the arena is full, which the table says then.
    #[inline(always)]
    fn push(&mut self, field: Field, value: u64) -> Option<()> {
        let slot = (self.slots + field.slot) as usize;
        let pushed = self.decoding.push(slot, width(field.kind), value);
        self.find_room();
        pushed.ok()?;
        self.presence.as_mut()[field.presence as usize / 64] |= 1 << (field.presence % 64);
        Some(())
    }

    /// Decodes a message, if it is the next field: within this one, or behind those that are there.
    #[inline(always)]
    pub fn child<'f, const I: usize, C: Type>(&'f mut self) -> Result<Option<Begun<'f, 'i, C>>, DecodeError> {
        let field = const { T::FIELDS[I] };
        const { assert!(matches!(T::FIELDS[I].kind, Kind::Message) && T::FIELDS[I].sub == C::INDEX) };
        // An entry that may be none is the table's.
        const { assert!(!matches!(T::FIELDS[I].shape, Shape::Map) || closed_value(C::FIELDS).is_none()) };
        let Some((from, until)) = self.length_ahead::<I>() else { return Ok(None) };
        // Where none may be within this one the table says so.
        let Some(depth_left) = self.depth_left.checked_sub(1) else { return Ok(None) };
        let slot = (self.slots + field.slot) as usize;
        let bit = 1_u64 << (field.presence % 64);
        let is_there = self.presence.as_ref()[field.presence as usize / 64] & bit != 0;
        let is_empty = field.shape.is_many() || !is_there;
        let slots = if is_empty {
            let slots = self.decoding.memory.allocate(C::SLOT_BYTES)?;
            if field.shape.is_many() {
                self.decoding.push(slot, 4, slots.into())?;
            } else {
                crate::protobuf::decode::write(&mut self.decoding.memory.bytes[slot..], 4, slots.into());
            }
            self.mark::<I>();
            slots
        } else {
            crate::slots::number::<4>(&self.decoding.memory.bytes[slot..]) as Offset
        };
        // Already here, and not by where it says that it ended: so what follows it need not wait for it.
        self.at = until;
        let decoding = &mut *self.decoding;
        Ok(Some(Begun { decoding, at: from, end: until, slots, depth_left, is_empty, of: PhantomData }))
    }

    /// After a message within this one.
    #[inline(always)]
    pub fn back(&mut self) {
        self.find_room();
    }

    /// What is next, where the straight line did not go on: which field it goes on with, or that the message is over.
    #[inline(always)]
    pub fn other<P: Path>(mut self, path: P) -> Result<(Self, usize), DecodeError> {
        self.save_presence();
        let rest = Rest {
            at: self.at,
            end: self.end,
            refused: self.refused,
            slots: self.slots,
            depth_left: self.depth_left,
            index: T::INDEX,
            entries: EntriesOf::<T>::ALL,
        };
        let (at, next) = rest.decode(self.decoding, path)?;
        (self.at, self.stops) = (at, 0);
        if next != DONE {
            self.refused = at;
            self.find_room();
            self.load_presence();
        }
        Ok((self, next))
    }

    /// Whether so few bytes are left that most fields are absent.
    #[inline(always)]
    pub fn is_sparse(&self) -> bool {
        self.end - self.at < const { sparse_bytes(T::FIELDS) }
    }

    /// The same in another place, so that where the straight line keeps it is known to nobody else.
    #[inline(always)]
    #[must_use]
    pub fn moved(self) -> Self {
        let Frame {
            decoding,
            input,
            line_end,
            at,
            end,
            refused,
            slots,
            depth_left,
            room,
            presence,
            stops,
            looked,
            of,
        } = self;
        Frame {
            decoding,
            input,
            line_end,
            at,
            end,
            refused,
            slots,
            depth_left,
            room,
            presence,
            stops,
            looked,
            of,
        }
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
        const { assert!(is_number(&T::FIELDS[I]) && T::FIELDS[I].shape.is_many()) };
        let field = const { T::FIELDS[I] };
        if let Some((from, until)) = self.length_ahead::<I>() {
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
}

/// What is left of a message where its straight line did not go on: the same code for all types.
struct Rest {
    at: usize,
    end: usize,
    refused: usize,
    slots: Offset,
    depth_left: u16,
    /// Its type's place among those of the decoding.
    index: u16,
    /// Those of that type.
    entries: &'static Entries,
}

impl Rest {
    /// Decodes up to a field that the straight line may go on with, or to the end: where that is, and which field.
    #[inline(never)]
    fn decode<P: Path>(self, decoding: &mut Decoding<'_>, path: P) -> Result<(usize, usize), DecodeError> {
        let Rest { at, end, refused, slots, depth_left, index, entries } = self;
        let (types, input) = (decoding.types, decoding.input);
        let schema = &types.types[index as usize];
        let place = Place { schema, slots, depth_left };
        let mut bytes = Bytes { input, at };
        loop {
            bytes.at = path.loose(Loose::new(input, bytes.at, end, slots, entries, decoding.memory));
            if bytes.at >= end {
                break;
            }
            let at = bytes.at;
            let tag = bytes.tag(end)?;
            if tag.wire == Wire::GroupEnd {
                return Err(DecodeError::GroupEnd { at });
            }
            if let Some(index) = schema.place(tag.number) {
                if refused != at
                    && at < line_end(input)
                    && is_straight(types, &schema.fields[index], tag.wire)
                {
                    return Ok((at, index));
                }
            }
            decoding.field(place, tag, at, &mut bytes, end)?;
        }
        decoding.check_required(place)?;
        Ok((bytes.at, DONE))
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
    /// Puts them behind those of the slot: what is in the slot then; none, if they end within a number, and then nothing
    /// has changed.
    #[inline(always)]
    pub(crate) fn decode<P: Path>(mut self, path: P) -> Option<Span> {
        let (used, span) = (self.memory.used, Span::read(&self.memory.bytes[self.slot..]));
        let decoded = self.put(path, span);
        if decoded.is_none() {
            // So that the table finds as much room as if this had not been tried.
            self.memory.used = used;
        }
        decoded
    }

    #[inline(always)]
    fn put<P: Path>(&mut self, path: P, span: Span) -> Option<Span> {
        let Numbers { field, input, from, memory, .. } = self;
        let (input, from) = (*input, *from);
        let (size, bytes) = (width(field.kind) as usize, input.len() - from);
        let count = match wire_of(field.kind) {
            Wire::Fixed32 | Wire::Fixed64 if bytes % size != 0 => return None,
            Wire::Fixed32 | Wire::Fixed64 => bytes / size,
            _ => input[from..].iter().filter(|&&byte| byte < 0x80).count(),
        };
        let at = memory.room_for(span.at, span.len, u64::from(span.len) + count as u64, size as u32).ok()?;
        let first = at as usize + span.len as usize * size;
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

const fn is_number(field: &Field) -> bool {
    !matches!(field.kind, Kind::String | Kind::Bytes | Kind::Uuid | Kind::Message | Kind::Group)
}

const fn is_text(field: &Field) -> bool {
    matches!(field.kind, Kind::String | Kind::Bytes)
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

/// A number behind its tag, and where it ends, if it is the next field, otherwise 0: at the end of what was looked at, or
/// of one that is longer than others. In registers, which an `Option` would not be.
#[cold]
#[inline(never)]
fn number_slowly(input: &[u8], at: usize, tag: u64, wire: Wire) -> (u64, usize) {
    number_at(input, at, tag, wire).unwrap_or((0, 0))
}

fn number_at(input: &[u8], at: usize, tag: u64, wire: Wire) -> Option<(u64, usize)> {
    let tag_bytes = 8 - tag.leading_zeros() as usize / 8;
    if word_at(input, at) & MASKS[tag_bytes] != tag {
        return None;
    }
    let from = at + tag_bytes;
    let (raw, bytes) = match wire {
        Wire::Fixed32 => (word_at(input, from) & MASKS[4], 4),
        Wire::Fixed64 => (word_at(input, from), 8),
        _ => long_varint(input, from)?,
    };
    Some((raw, from + bytes))
}

/// All bits that are set but the lowest.
#[inline(always)]
fn without_lowest(bits: u64) -> u64 {
    bits & bits.wrapping_sub(1)
}

/// A length of more than one byte, and what is behind it: one function for all fields. Of what is no length it is longer
/// than what is left of any message, since an `Option` of both would not be in registers.
#[inline(never)]
fn long_length(input: &[u8], at: usize) -> (usize, usize) {
    const TOO_LONG: usize = i32::MAX as usize;
    let found = varint(Portable, word_at(input, at), 8, input, at, false);
    let (length, bytes) = found.unwrap_or((u64::MAX, 0));
    (i32::try_from(length).map_or(TOO_LONG, |length| length as usize), at + bytes)
}

/// From where on fewer than `Padded::BEHIND` bytes follow.
#[inline(always)]
fn line_end(input: &[u8]) -> usize {
    (input.len() + 1).saturating_sub(Padded::BEHIND)
}

/// Whether the straight line may go on with a field that comes so.
fn is_straight(types: &Types, field: &Field, wire: Wire) -> bool {
    match field.kind {
        Kind::Group | Kind::ClosedEnum => false,
        Kind::Message if types.has_closed_values(field) => false,
        _ if field.shape == Shape::Packed => wire == Wire::Bytes,
        kind => wire_of(kind) == wire,
    }
}

/// Whether its numbers are most often of one byte, so that guessing it takes the length out of the chain.
const fn is_short(kind: Kind) -> bool {
    matches!(kind, Kind::Bool | Kind::Enum | Kind::ClosedEnum)
}
