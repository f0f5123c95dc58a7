//! Where straight-line code encodes to (Optimus Prime, 5.3.3: the Writer).
//!
//! Invariant: `at` is at most `room`, and all bytes before it were written; whoever writes has asked for room.

mod plain;
pub(crate) mod thrift;

use super::path::{Path, Portable};
use super::read::Slots;
use super::word::{tag_of, MASKS};
use crate::message::{bytes_in, runs_in, Type};
use crate::planted::{self, Fault};
use crate::protobuf::decode::wire_of;
use crate::protobuf::encode::on_wire;
use crate::protobuf::wire::Wire;
use crate::schema::{Kind, Shape};
use crate::slots::{width, Span, SLACK};

/// Appends to a vector. By value, so that where it stands lies in registers.
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    start: *mut u8,
    at: usize,
    room: usize,
}

/// A number takes at most so many bytes with its tag, and is written by words of eight.
pub const NUMBER_BYTES_MAX: usize = 5 + 10 + 8;

impl<'o> Writer<'o> {
    /// Goes on behind the first `at` bytes, which were written.
    #[inline(always)]
    pub(crate) fn new(out: &'o mut Vec<u8>, at: usize) -> Self {
        let (start, room) = (out.as_mut_ptr(), out.capacity());
        Writer { out, start, at, room }
    }

    /// What it writes to, and how many bytes were written.
    #[inline(always)]
    pub(crate) fn parts(self) -> (&'o mut Vec<u8>, usize) {
        (self.out, self.at)
    }

    /// Says how much was written.
    pub(crate) fn finish(self) {
        // SAFETY: so many bytes were written, within the capacity.
        unsafe { self.out.set_len(self.at) }
    }

    /// Makes room for so many bytes more.
    #[inline(always)]
    pub fn room(&mut self, bytes: usize) {
        if self.room - self.at < bytes {
            (self.start, self.room) = grown(self.out, self.at, bytes);
        }
    }

    /// The same in another place, so that where the straight line keeps it is known to nobody else.
    #[inline(always)]
    #[must_use]
    pub fn moved(self) -> Self {
        let Writer { out, start, at, room } = self;
        Writer { out, start, at, room }
    }

    /// Writes a word; how many of its bytes count is up to who does.
    #[inline(always)]
    fn word(&mut self, at: usize, word: u64) {
        debug_assert!(at + 8 <= self.room);
        // SAFETY: there is room, which whoever calls has asked for.
        unsafe { self.start.add(at).cast::<u64>().write_unaligned(word.to_le()) }
    }

    /// Writes a field's number if the field is there, for which there is room; without a branch on it.
    #[inline(always)]
    pub fn number<T: Type, const I: usize, P: Path>(&mut self, path: P, of: Slots<'_, T>, presence: u64) {
        let field = const { T::FIELDS[I] };
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, wire_of(T::FIELDS[I].kind)) };
        // All bits, if it is there.
        let is_there = (presence << (63 - field.presence % 64)) as i64 >> 63;
        let bits = of.bits::<I>();
        self.word(self.at, tag);
        let from = self.at + tag_bytes;
        let bytes = match wire_of(field.kind) {
            Wire::Fixed32 | Wire::Fixed64 => {
                self.word(from, bits);
                width(field.kind) as usize
            }
            _ if is_long_sometimes(field.kind) => self.varint(path, from, on_wire(field.kind, bits)),
            _ => self.short_varint(path, from, on_wire(field.kind, bits)),
        };
        self.at += (tag_bytes + bytes) & is_there as usize;
    }

    /// Writes a number of at most 56 bits; how many bytes it takes.
    #[inline(always)]
    fn short_varint<P: Path>(&mut self, path: P, at: usize, value: u64) -> usize {
        let zeros = value.leading_zeros() as usize;
        self.word(at, path.spread(value) | CONTINUED[zeros]);
        BYTES[zeros] as usize
    }

    #[inline(always)]
    fn varint<P: Path>(&mut self, path: P, at: usize, value: u64) -> usize {
        if value >> 56 == 0 {
            self.short_varint(path, at, value)
        } else {
            debug_assert!(at + 10 <= self.room);
            // SAFETY: there is room, as for a word.
            unsafe { long_varint(self.start.add(at), value) }
        }
    }

    /// Writes a field's string or bytes, which is there.
    #[inline(always)]
    #[must_use]
    pub fn text<T: Type, const I: usize, P: Path>(self, _: P, of: Slots<'_, T>) -> Self {
        let tag = const { tag_of(T::FIELDS[I].number, Wire::Bytes) };
        self.tagged(tag, of, of.bits::<I>())
    }

    /// Writes a text behind its tag. A short one here, as in most messages most are; others by one function for all.
    #[inline(always)]
    fn tagged<T: Type>(mut self, (tag, tag_bytes): (u64, usize), of: Slots<'_, T>, bits: u64) -> Self {
        let (whole, at, len) = of.placed(bits);
        if is_short(whole, at, len) && self.room - self.at >= NUMBER_BYTES_MAX + SLACK {
            self.word(self.at, tag);
            self.word(self.at + tag_bytes, len as u64);
            self.at += tag_bytes + 1;
            self.short_copy(whole, at, len);
            return self;
        }
        let (out, from) = self.parts();
        let until = long_text(out, from, tag, whole, bits);
        Writer::new(out, until)
    }

    /// Appends bytes of a whole, for which there is room.
    #[inline(always)]
    fn copy(&mut self, whole: &[u8], at: usize, len: usize) {
        if is_short(whole, at, len) {
            self.short_copy(whole, at, len);
        } else {
            let bytes = &whole[at..at + len];
            // SAFETY: there is room, which whoever calls has asked for.
            unsafe { long_copy(self.start.add(self.at), bytes) }
            self.at += len;
        }
    }

    /// Short ones: by a length that does not depend on theirs, so that no branch does.
    #[inline(always)]
    fn short_copy(&mut self, whole: &[u8], at: usize, len: usize) {
        debug_assert!(is_short(whole, at, len) && self.at + SLACK <= self.room);
        // SAFETY: so many bytes are within the whole, and there is room for them; the two do not overlap, since one is
        // borrowed and the other is not.
        unsafe {
            let from = whole.as_ptr().add(at).cast::<[u8; SLACK]>();
            self.start.add(self.at).cast::<[u8; SLACK]>().write_unaligned(from.read_unaligned());
        }
        self.at += len;
    }

    /// Begins what has a length, a message within this one or a run of numbers: its tag, and a byte for its length.
    #[inline(always)]
    #[must_use]
    pub fn begin<T: Type, const I: usize>(mut self) -> (Self, usize) {
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, Wire::Bytes) };
        self.room(NUMBER_BYTES_MAX);
        self.word(self.at, tag);
        self.at += tag_bytes + 1;
        let from = self.at;
        (self, from)
    }

    /// Ends it: its length, before which what was written moves if the length needs more than one byte.
    #[inline(always)]
    #[must_use]
    pub fn end(mut self, from: usize) -> Self {
        let length = self.at - from;
        if length >= 0x80 && !planted::is(Fault::ShortLength) {
            self.room(LENGTH_BYTES_MAX);
            self.at += make_room_for_length(self.start, from, length);
        } else {
            // SAFETY: `begin` kept this byte.
            unsafe { self.start.add(from - 1).write(length as u8) };
        }
        self
    }

    /// Writes the values of a repeated field: numbers, strings or bytes.
    #[inline(always)]
    #[must_use]
    pub fn each<T: Type, const I: usize, P: Path>(self, path: P, of: Slots<'_, T>) -> Self {
        let field = const { T::FIELDS[I] };
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, wire_of(T::FIELDS[I].kind)) };
        let mut writer = self;
        if matches!(field.shape, Shape::Packed) {
            let (begun, from) = writer.begin::<T, I>();
            writer = begun;
            for index in 0..of.count::<I>() {
                writer.room(NUMBER_BYTES_MAX);
                writer.bare::<P>(path, field.kind, of.element::<I>(index));
            }
            return writer.end(from);
        }
        for index in 0..of.count::<I>() {
            let bits = of.element::<I>(index);
            if matches!(wire_of(field.kind), Wire::Bytes) {
                writer = writer.tagged((tag, tag_bytes), of, bits);
            } else {
                writer.room(NUMBER_BYTES_MAX);
                writer.word(writer.at, tag);
                writer.at += tag_bytes;
                writer.bare::<P>(path, field.kind, bits);
            }
        }
        writer
    }

    #[inline(always)]
    fn bare<P: Path>(&mut self, path: P, kind: Kind, bits: u64) {
        self.at += match wire_of(kind) {
            Wire::Fixed32 | Wire::Fixed64 => {
                self.word(self.at, bits);
                width(kind) as usize
            }
            _ => self.varint(path, self.at, on_wire(kind, bits)),
        };
    }

    /// Writes the fields that the schema does not know, if there are any.
    #[inline(always)]
    #[must_use]
    pub fn unknown<T: Type>(self, of: Slots<'_, T>) -> Self {
        if of.has_unknown() {
            let (out, at) = self.parts();
            let at = unknown_runs(out, at, (of.memory, of.input), of.unknown());
            Writer::new(out, at)
        } else {
            self
        }
    }

    /// Writes a field as the table does: one of a kind that has no straight line.
    #[inline(always)]
    #[must_use]
    pub fn by_table<T: Type, const I: usize>(self, of: Slots<'_, T>) -> Self {
        self.behind(|out| crate::protobuf::encode::field(of.view(), &T::FIELDS[I], out))
    }

    /// Writes a message as the table does.
    #[must_use]
    pub fn all_by_table<T: Type>(self, of: Slots<'_, T>) -> Self {
        self.behind(|out| crate::protobuf::encode::encode(of.view(), out))
    }

    /// Goes on behind what somebody else has written. Made anew of its parts, and not given away and returned: a struct
    /// that is written number by number and copied as a whole waits until they have left the store buffer.
    #[inline(always)]
    fn behind(self, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let (out, at) = self.parts();
        // SAFETY: so many bytes were written, within the capacity.
        unsafe { out.set_len(at) };
        write(out);
        let at = out.len();
        Writer::new(out, at)
    }
}

/// Makes room for so many bytes behind the first `at`, which were written: where they begin, and how many there may be.
#[cold]
#[inline(never)]
fn grown(out: &mut Vec<u8>, at: usize, bytes: usize) -> (*mut u8, usize) {
    // SAFETY: so many bytes were written, within the capacity.
    unsafe { out.set_len(at) };
    out.reserve(bytes);
    (out.as_mut_ptr(), out.capacity())
}

/// Whether so many bytes of a whole are copied at once: few, and not at its end.
#[inline(always)]
fn is_short(whole: &[u8], at: usize, len: usize) -> bool {
    len <= SLACK && at + SLACK <= whole.len()
}

/// Copies bytes to a place with room for them. A function of its own, since the compiler would else make one copy of
/// this and of that of a length which it knows.
///
/// # Safety
///
/// There is room for as many bytes.
#[inline(never)]
unsafe fn long_copy(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller says so; the two do not overlap, since one is borrowed and the other is not.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}

/// Appends any text behind its tag, from `at` on; where it ends. It lies in the whole where its slot says.
#[inline(never)]
fn long_text(out: &mut Vec<u8>, at: usize, tag: u64, whole: &[u8], bits: u64) -> usize {
    let bytes = bytes_in(whole, whole, Span { at: bits as u32, len: (bits >> 32) as u32 });
    let mut writer = Writer::new(out, at);
    writer.room(NUMBER_BYTES_MAX + bytes.len() + SLACK);
    writer.word(writer.at, tag);
    writer.at += 8 - tag.leading_zeros() as usize / 8;
    writer.at += writer.short_varint(Portable, writer.at, bytes.len() as u64);
    // SAFETY: there is room, which was asked for.
    unsafe { long_copy(writer.start.add(writer.at), bytes) }
    writer.at + bytes.len()
}

/// Appends the fields that a message's schema does not know, from `at` on; where they end.
#[cold]
#[inline(never)]
fn unknown_runs(out: &mut Vec<u8>, at: usize, (memory, input): (&[u8], &[u8]), runs: Span) -> usize {
    let mut writer = Writer::new(out, at);
    for run in runs_in(memory, runs).map(|run| bytes_in(memory, input, run)) {
        writer.room(run.len() + SLACK);
        writer.copy(run, 0, run.len());
    }
    writer.at
}

/// Writes a number as a varint of up to ten bytes; how many these are.
///
/// # Safety
///
/// There is room for ten.
#[cold]
#[inline(never)]
unsafe fn long_varint(to: *mut u8, value: u64) -> usize {
    let (bytes, count) = crate::protobuf::encode::encoded(value);
    // SAFETY: the caller says so.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    count
}

/// A length takes at most so many bytes.
const LENGTH_BYTES_MAX: usize = 5;

/// Writes a length before what is so long, which moves; by how many bytes.
#[inline(never)]
fn make_room_for_length(start: *mut u8, from: usize, length: usize) -> usize {
    let (bytes, count) = crate::protobuf::encode::encoded(length as u64);
    // SAFETY: `end` has asked for so many bytes behind what was written, and the copy may overlap.
    unsafe {
        let body = start.add(from);
        body.copy_to(body.add(count - 1), length);
        body.sub(1).copy_from_nonoverlapping(bytes.as_ptr(), count);
    }
    count - 1
}

/// How many bytes a number takes as a varint, by its leading zeros.
static BYTES: [u8; 65] = {
    let mut bytes = [1; 65];
    let mut zeros = 0;
    while zeros < 64 {
        bytes[zeros] = (64 - zeros).div_ceil(7) as u8;
        zeros += 1;
    }
    bytes
};

/// The bits that say of all its bytes but the last that others follow, by its leading zeros; of at most eight bytes.
static CONTINUED: [u64; 65] = {
    let mut bits = [0; 65];
    let mut zeros = 0;
    while zeros <= 64 {
        bits[zeros] =
            0x8080_8080_8080_8080 & MASKS[if BYTES[zeros] > 8 { 7 } else { BYTES[zeros] as usize - 1 }];
        zeros += 1;
    }
    bits
};

/// Whether its numbers may take more than eight bytes on the wire.
const fn is_long_sometimes(kind: Kind) -> bool {
    !matches!(kind, Kind::Bool | Kind::Uint32 | Kind::Sint32)
}
