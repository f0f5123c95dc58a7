//! Where straight-line code encodes to (Optimus Prime, 5.3.3: the Writer).
//!
//! Invariant: `at` is at most `room`, and all bytes before it were written; whoever writes has asked for room.

mod plain;
pub(crate) mod thrift;

use super::path::Path;
use super::read::Slots;
use super::word::{tag_of, MASKS};
use crate::message::{Type, View};
use crate::planted::{self, Fault};
use crate::protobuf::decode::wire_of;
use crate::protobuf::encode::on_wire;
use crate::protobuf::wire::Wire;
use crate::schema::{Kind, Shape};
use crate::slots::{width, SLACK};

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
            self.long_varint(at, value)
        }
    }

    #[cold]
    #[inline(never)]
    fn long_varint(&mut self, at: usize, value: u64) -> usize {
        let (bytes, count) = crate::protobuf::encode::encoded(value);
        self.word(
            at,
            u64::from_le_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ]),
        );
        self.word(at + 8, u64::from(bytes[8]) | u64::from(bytes[9]) << 8);
        count
    }

    /// Writes a field's string or bytes, which is there.
    #[inline(always)]
    #[must_use]
    pub fn text<T: Type, const I: usize, P: Path>(mut self, path: P, of: Slots<'_, T>) -> Self {
        let (tag, tag_bytes) = const { tag_of(T::FIELDS[I].number, Wire::Bytes) };
        self.tagged(path, tag, tag_bytes, of.placed(of.bits::<I>()));
        self
    }

    #[inline(always)]
    fn tagged<P: Path>(
        &mut self,
        path: P,
        tag: u64,
        tag_bytes: usize,
        (whole, at, len): (&[u8], usize, usize),
    ) {
        self.room(NUMBER_BYTES_MAX + len + SLACK);
        self.word(self.at, tag);
        self.at += tag_bytes;
        self.at += if len < 0x80 {
            self.word(self.at, len as u64);
            1
        } else {
            self.short_varint(path, self.at, len as u64)
        };
        self.copy(whole, at, len);
    }

    /// Appends bytes of a whole, for which there is room: short ones by a length that does not depend on theirs, so
    /// that no branch does.
    #[inline(always)]
    fn copy(&mut self, whole: &[u8], at: usize, len: usize) {
        if len <= SLACK && at + SLACK <= whole.len() {
            // SAFETY: so many bytes are within the whole, and there is room for them; the two do not overlap, since one
            // is borrowed and the other is not.
            unsafe {
                let from = whole.as_ptr().add(at).cast::<[u8; SLACK]>();
                self.start.add(self.at).cast::<[u8; SLACK]>().write_unaligned(from.read_unaligned());
            }
        } else {
            // SAFETY: as above; the call asks itself whether so many bytes are within the whole.
            unsafe { copy_long(self.start.add(self.at), whole, at, len) }
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
                writer.tagged(path, tag, tag_bytes, of.placed(bits));
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
            self.behind(|out| unknown_runs(of.view(), out))
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

#[cold]
#[inline(never)]
fn unknown_runs(of: View<'_>, out: &mut Vec<u8>) {
    of.unknown().for_each(|run| out.extend_from_slice(run));
}

/// Copies bytes of a whole. Out of line: otherwise the compiler makes one copy of unknown length of this one and of that
/// of short ones.
///
/// # Safety
///
/// There is room for so many at `to`, which is not within the whole.
#[inline(never)]
unsafe fn copy_long(to: *mut u8, whole: &[u8], at: usize, len: usize) {
    let bytes = &whole[at..at + len];
    // SAFETY: the caller says so.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), len) }
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
