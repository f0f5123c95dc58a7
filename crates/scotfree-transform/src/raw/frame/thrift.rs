//! One struct of Thrift while straight-line code decodes it.
//!
//! Invariant: that of `Frame`, and `at` is within the input. A field that is not as the straight line expects changes
//! nothing, and is the table's: an error is found there alone.

use super::super::path::Path;
use super::super::word::{varint, word_at};
use super::{is_utf8, Frame, DONE};
use crate::arena::Offset;
use crate::error::DecodeError;
use crate::message::Type;
use crate::planted::{self, Fault};
use crate::protobuf::decode::{in_slot, write, Decoding, Place};
use crate::schema::{Field, Kind, Utf8};
use crate::slots::{width, Span};
use crate::thrift::decode::Structs;
use crate::thrift::format::{binary_header, id_of, of_numbers, value_of, whole_of, ThriftFormat};
use crate::thrift::read::Reader;
use crate::thrift::wire::{Wire, FALSE, STOP, TRUE};
use crate::thrift::Protocol;
use std::marker::PhantomData;

/// See above. By value, so that where it stands lies in registers.
pub struct ThriftFrame<'d, 'i, T: Type, F: ThriftFormat> {
    frame: Frame<'d, 'i, T>,
    /// The id of the field before.
    last: i32,
    of: PhantomData<F>,
}

/// Elements of a list that is the next field: how many, and where they begin.
#[derive(Clone, Copy)]
struct Elements {
    count: u32,
    from: usize,
}

impl<'d, 'i, T: Type, F: ThriftFormat> ThriftFrame<'d, 'i, T, F> {
    /// The struct that begins at `at`, into slots that are nobody's yet.
    #[inline(always)]
    pub(crate) fn new(decoding: &'d mut Decoding<'i>, at: usize, slots: Offset, depth_left: u16) -> Self {
        let end = decoding.input.len();
        let frame = Frame::new(decoding, at..end, slots, depth_left, true);
        ThriftFrame { frame, last: 0, of: PhantomData }
    }

    /// The same in another place, so that where the straight line keeps it is known to nobody else.
    #[inline(always)]
    #[must_use]
    pub fn moved(self) -> Self {
        let ThriftFrame { frame, last, of } = self;
        ThriftFrame { frame: frame.moved(), last, of }
    }

    /// The next `N` bytes, if there are so many.
    #[inline(always)]
    fn ahead<const N: usize>(&self) -> Option<&'i [u8; N]> {
        let (input, at) = (self.frame.input, self.frame.at);
        if input.len() - at < N {
            return None;
        }
        // SAFETY: so many bytes follow within the input, as was just asked.
        Some(unsafe { &*input.as_ptr().add(at).cast::<[u8; N]>() })
    }

    /// The same, if the next field is this one: of `TBinary`, where a field takes more than its header's three bytes.
    #[inline(always)]
    fn binary_ahead<const I: usize, const N: usize>(&self) -> Option<&'i [u8; N]> {
        let header = const { binary_header(&T::FIELDS[I]) as u32 };
        let ahead = self.ahead::<N>()?;
        (number_of(&ahead[..4]) as u32 & 0xff_ffff == header).then_some(ahead)
    }

    /// The next eight bytes, and how many of them are the header, if the next field is this one: of `TCompact`. Behind the
    /// input's end they are zero.
    #[inline(always)]
    fn compact_ahead<const I: usize>(&self) -> Option<(u64, usize)> {
        let (id, code) = const { (id_of(&T::FIELDS[I]), whole_of(&T::FIELDS[I]).code(Protocol::Compact)) };
        let word = self.frame.word(self.frame.at);
        if id == 0 {
            // Its id is said whole, since it is no step from anything.
            let is_next = word as u16 == u16::from(code) && self.frame.input.len() - self.frame.at >= 2;
            return is_next.then_some((word, 2));
        }
        // A step that is none, or one that is too long, gives what no byte is. A step of zero is not asked for: after a
        // field the line goes on to those behind it, and what the table leaves to the line is a step.
        let step = id.wrapping_sub(self.last) as u32;
        let header = (step << 4) | u32::from(code);
        let is_bool = const { matches!(whole_of(&T::FIELDS[I]), Wire::Bool) };
        let byte = u32::from(word as u8);
        let is_next = byte == header || is_bool && byte == (step << 4 | u32::from(FALSE));
        is_next.then_some((word, 1))
    }

    /// Says that a field was taken, which ended there.
    #[inline(always)]
    fn took<const I: usize>(&mut self, until: usize) {
        self.frame.mark::<I>();
        self.frame.at = until;
        self.last = const { id_of(&T::FIELDS[I]) };
    }

    /// Decodes a number, if it is the next field.
    #[inline(always)]
    pub fn number<const I: usize, P: Path>(&mut self, path: P) {
        let found = match F::PROTOCOL {
            Protocol::Binary => self.binary_number::<I>(),
            Protocol::Compact => self.compact_number::<I, P>(path),
        };
        if let Some((bits, until)) = found {
            self.frame.write::<I>(bits);
            self.took::<I>(until);
        }
    }

    #[inline(always)]
    fn binary_number<const I: usize>(&self) -> Option<(u64, usize)> {
        let (bits, bytes) = match const { of_numbers(T::FIELDS[I].kind) }? {
            Wire::Bool => (Some(u64::from(self.binary_ahead::<I, 4>()?[3])).filter(|bits| *bits < 2)?, 4),
            Wire::I8 => (u64::from(self.binary_ahead::<I, 4>()?[3]), 4),
            Wire::I16 => (short_of(&self.binary_ahead::<I, 5>()?[3..]), 5),
            Wire::I32 => (number_of(&self.binary_ahead::<I, 7>()?[3..]).swap_bytes() >> 32, 7),
            _ => (number_of(&self.binary_ahead::<I, 11>()?[3..]).swap_bytes(), 11),
        };
        Some((bits, self.frame.at + bytes))
    }

    #[inline(always)]
    fn compact_number<const I: usize, P: Path>(&self, path: P) -> Option<(u64, usize)> {
        let (word, header_bytes) = self.compact_ahead::<I>()?;
        let from = self.frame.at + header_bytes;
        let field = const { T::FIELDS[I] };
        match const { of_numbers(T::FIELDS[I].kind) }? {
            // A bool that is zero and has its id said whole has another header, which is the table's.
            Wire::Bool => Some((u64::from(word as u8 & 0xf == TRUE), from)),
            Wire::I8 => {
                (from < self.frame.input.len()).then(|| (word >> (8 * header_bytes) & 0xff, from + 1))
            }
            Wire::Double => Some((number_of(self.frame.input.get(from..from + 8)?), from + 8)),
            Wire::I64 => {
                let (raw, bytes) = long_ahead(path, self.frame.word(from), self.frame.word(from + 8))?;
                let until = from + bytes;
                (until <= self.frame.input.len()).then_some((unzigzagged(Wire::I64, raw)?, until))
            }
            wire => {
                let (raw, bytes) = varint(
                    path,
                    word >> (8 * header_bytes),
                    8 - header_bytes,
                    self.frame.input,
                    from,
                    is_short(field.kind),
                )?;
                let until = from + bytes;
                (until <= self.frame.input.len()).then_some((unzigzagged(wire, raw)?, until))
            }
        }
    }

    /// Decodes a string or binary, if it is the next field.
    #[inline(always)]
    pub fn text<const I: usize, P: Path>(&mut self, path: P) {
        let (from, len) = match F::PROTOCOL {
            Protocol::Binary => {
                // A length, and the byte behind it, without which the struct does not end.
                let Some(ahead) = self.binary_ahead::<I, 8>() else { return };
                (self.frame.at + 7, number_of(&ahead[3..7]).swap_bytes() >> 32)
            }
            Protocol::Compact => {
                let Some((word, header_bytes)) = self.compact_ahead::<I>() else { return };
                let from = self.frame.at + header_bytes;
                let body = word >> (8 * header_bytes);
                let found = varint(path, body, 8 - header_bytes, self.frame.input, from, true);
                let Some((len, bytes)) = found else { return };
                (from + bytes, len)
            }
        };
        let field = const { T::FIELDS[I] };
        if let Some((span, until)) = self.span(path, field, from, len) {
            self.frame.write::<I>(span.word());
            self.took::<I>(until);
        }
    }

    /// So many bytes from there on, if they are within the input and, of a string, UTF-8; and where they end.
    #[inline(always)]
    fn span<P: Path>(&self, path: P, field: Field, from: usize, len: u64) -> Option<(Span, usize)> {
        let input = self.frame.input;
        let left = input.len().checked_sub(from)? as u64;
        let is_within = len <= left || planted::is(Fault::TextBehindEnd) && len == left + 1;
        if !is_within {
            return None;
        }
        let until = (from + len as usize).min(input.len());
        let is_text = matches!((field.kind, field.utf8), (Kind::String, Utf8::Checked));
        if is_text && !is_utf8(path, input, from, until) {
            return None;
        }
        Some((Span { at: from as u32, len: (until - from) as u32 }, until))
    }

    /// Elements of a list or set, if it is the next field, and there are bytes for so many.
    #[inline(always)]
    fn elements<const I: usize, P: Path>(&self, path: P) -> Option<Elements> {
        let wire = const { value_of(&T::FIELDS[I]) };
        let input = self.frame.input;
        let (code, count, from) = match F::PROTOCOL {
            Protocol::Binary => {
                let ahead = self.binary_ahead::<I, 8>()?;
                (ahead[3], number_of(&ahead[4..]).swap_bytes() >> 32, self.frame.at + 8)
            }
            Protocol::Compact => {
                let (word, header_bytes) = self.compact_ahead::<I>()?;
                let byte = (word >> (8 * header_bytes)) as u8;
                let from = self.frame.at + header_bytes + 1;
                if byte >> 4 == 15 {
                    let (count, bytes) = varint(path, word_at(input, from), 8, input, from, false)?;
                    (byte & 0xf, count, from + bytes)
                } else {
                    (byte & 0xf, u64::from(byte >> 4), from)
                }
            }
        };
        let left = input.len().checked_sub(from)? as u64;
        let is_within = count <= left && count * wire.least_bytes(F::PROTOCOL) <= left;
        (is_within && code == wire.code(F::PROTOCOL)).then_some(Elements { count: count as u32, from })
    }

    /// Decodes the numbers, strings or binaries of a list or set, if it is the next field.
    #[inline(always)]
    pub fn each<const I: usize, P: Path>(&mut self, path: P) {
        let Some(elements) = self.elements::<I, P>(path) else { return };
        let used = self.frame.decoding.memory.used;
        if let Some((span, until)) = self.values(path, const { T::FIELDS[I] }, elements) {
            self.frame.find_room();
            self.frame.write_many::<I>(span);
            self.took::<I>(until);
        } else {
            // The table makes the same room.
            self.frame.decoding.memory.used = used;
            self.frame.find_room();
        }
    }

    #[inline(always)]
    fn values<P: Path>(&mut self, path: P, field: Field, elements: Elements) -> Option<(Span, usize)> {
        let Elements { count, from } = elements;
        let size = width(field.kind);
        let at = self.frame.decoding.memory.room_for_new(count, size).ok()?;
        let mut until = from;
        for index in 0..count {
            let (bits, end) = self.value(path, field, until)?;
            write(&mut self.frame.decoding.memory.bytes[(at + index * size) as usize..], size, bits);
            until = end;
        }
        Some((Span { at, len: count }, until))
    }

    /// A value that no header precedes, and where it ends.
    #[inline(always)]
    fn value<P: Path>(&self, path: P, field: Field, from: usize) -> Option<(u64, usize)> {
        let input = self.frame.input;
        let is_binary = matches!(F::PROTOCOL, Protocol::Binary);
        let fixed = |bytes: usize| Some((number_of(input.get(from..from + bytes)?), from + bytes));
        match value_of(&field) {
            Wire::Bool => match fixed(1)? {
                (1, until) => Some((1, until)),
                (byte, until) => (byte == u64::from(if is_binary { 0 } else { FALSE })).then_some((0, until)),
            },
            Wire::I8 => fixed(1),
            Wire::Double if !is_binary => fixed(8),
            Wire::I16 if is_binary => fixed(2).map(|(_, until)| (short_of(&input[from..until]), until)),
            Wire::I32 if is_binary => fixed(4).map(|(raw, until)| (raw.swap_bytes() >> 32, until)),
            Wire::I64 | Wire::Double if is_binary => fixed(8).map(|(raw, until)| (raw.swap_bytes(), until)),
            wire => {
                let (raw, until) = if is_binary {
                    fixed(4).map(|(raw, until)| (raw.swap_bytes() >> 32, until))?
                } else {
                    let (raw, bytes) = varint(path, word_at(input, from), 8, input, from, true)?;
                    (raw, from + bytes)
                };
                if matches!(wire, Wire::Bytes) {
                    return self.span(path, field, until, raw).map(|(span, until)| (span.word(), until));
                }
                (until <= input.len()).then_some((unzigzagged(wire, raw)?, until))
            }
        }
    }

    /// Decodes a struct, if it is the next field.
    #[inline(always)]
    pub fn child<const I: usize, C: Type, P: Path>(&mut self, path: P) -> Result<(), DecodeError> {
        const { assert!(T::FIELDS[I].sub == C::INDEX) };
        let header_bytes = match F::PROTOCOL {
            Protocol::Binary => self.binary_ahead::<I, 4>().map(|_| 3),
            Protocol::Compact => self.compact_ahead::<I>().map(|(_, bytes)| bytes),
        };
        let (Some(header_bytes), Some(depth_left)) = (header_bytes, self.frame.depth_left.checked_sub(1))
        else {
            return Ok(());
        };
        let from = self.frame.at + header_bytes;
        let decoding = &mut *self.frame.decoding;
        let slots = decoding.memory.allocate(C::SLOT_BYTES)?;
        let until = path.decoded_thrift::<C, F>(decoding, from, slots, depth_left)?;
        self.frame.find_room();
        self.frame.write::<I>(slots.into());
        self.took::<I>(until);
        Ok(())
    }

    /// Decodes the structs of a list or set, if it is the next field.
    #[inline(always)]
    pub fn structs<const I: usize, C: Type, P: Path>(&mut self, path: P) -> Result<(), DecodeError> {
        const { assert!(T::FIELDS[I].sub == C::INDEX) };
        let Some(Elements { count, from }) = self.elements::<I, P>(path) else { return Ok(()) };
        let Some(depth_left) = self.frame.depth_left.checked_sub(1) else { return Ok(()) };
        let decoding = &mut *self.frame.decoding;
        let at = decoding.memory.room_for_new(count, width(Kind::Message))?;
        let mut until = from;
        for index in 0..count {
            let slots = decoding.memory.allocate(C::SLOT_BYTES)?;
            until = path.decoded_thrift::<C, F>(decoding, until, slots, depth_left)?;
            write(&mut decoding.memory.bytes[(at + index * 4) as usize..], 4, slots.into());
        }
        self.frame.find_room();
        self.frame.write_many::<I>(Span { at, len: count });
        self.took::<I>(until);
        Ok(())
    }

    /// Whether no field follows.
    #[inline(always)]
    pub fn is_at_end(&self) -> bool {
        self.frame.input.get(self.frame.at) == Some(&STOP)
    }

    /// Ends a struct, if no field follows and those that must be there are; otherwise asks the table.
    #[inline(always)]
    pub fn is_over(&mut self) -> bool {
        let is_over = self.is_at_end() && self.has_required();
        if is_over {
            self.frame.save_presence();
            self.frame.at += 1;
        }
        is_over
    }

    #[inline(always)]
    fn has_required(&self) -> bool {
        let words = self.frame.presence.as_ref();
        !T::HAS_REQUIRED
            || (0..words.len()).all(|word| {
                let required = required::<T>(word);
                words[word] & required == required
            })
    }

    /// Where the struct ended.
    #[inline(always)]
    pub fn ended_at(&self) -> usize {
        self.frame.at
    }

    /// What is next, where the straight line did not go on: which field it goes on with, or that the struct is over.
    #[inline(always)]
    pub fn other(self) -> Result<(Self, usize), DecodeError> {
        self.moved().other_out_of_line()
    }

    #[inline(never)]
    fn other_out_of_line(mut self) -> Result<(Self, usize), DecodeError> {
        self.frame.save_presence();
        let refused = self.frame.refused;
        let (place, last) = (self.place(), self.last as i16);
        let (next, stand) = self.structs_by_table().until_straight(place, last, refused)?;
        self.frame.at = stand.at;
        if !planted::is(Fault::StaleId) {
            self.last = stand.last.into();
        }
        self.frame.refused = stand.at;
        self.frame.find_room();
        self.frame.load_presence();
        Ok((self, next.unwrap_or(DONE)))
    }

    fn place(&self) -> Place<'i> {
        let schema = &self.frame.decoding.types.types[T::INDEX as usize];
        Place { schema, slots: self.frame.slots, depth_left: self.frame.depth_left }
    }

    fn structs_by_table(&mut self) -> Structs<'_, 'i> {
        let reader = Reader { protocol: F::PROTOCOL, input: self.frame.input, at: self.frame.at };
        Structs { table: self.frame.decoding, reader }
    }

    /// Decodes all of the struct by the table.
    pub fn by_table(mut self) -> Result<usize, DecodeError> {
        let place = self.place();
        let mut structs = self.structs_by_table();
        structs.fields(place)?;
        Ok(structs.reader.at)
    }
}

/// The presence bits of a word that must be there.
const fn required<T: Type>(word: usize) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < T::FIELDS.len() {
        let field = &T::FIELDS[at];
        if field.is_required() && field.presence as usize / 64 == word {
            bits |= 1 << (field.presence % 64);
        }
        at += 1;
    }
    bits
}

/// The number that at most eight bytes are, the lowest first.
#[inline(always)]
fn number_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// A number of two bytes, the highest first, as its slot has it.
#[inline(always)]
fn short_of(bytes: &[u8]) -> u64 {
    u64::from(i32::from(i16::from_be_bytes([bytes[0], bytes[1]])) as u32)
}

/// The number that begins with eight bytes, and how many it has; none, if it has more than ten. Ids and times are of 63
/// bits, and nine bytes, as often as not: those two words are looked at without asking how many there are.
#[inline(always)]
fn long_ahead<P: Path>(path: P, low: u64, high: u64) -> Option<(u64, usize)> {
    let stops = !low & 0x8080_8080_8080_8080;
    if stops != 0 {
        let bytes = stops.trailing_zeros() as usize / 8 + 1;
        return Some((path.gathered(low & (stops ^ stops.wrapping_sub(1))), bytes));
    }
    let value = path.gathered(low) | (high & 0x7f) << 56;
    match (high & 0x80, high & 0x8000) {
        (0, _) => Some((value, 9)),
        (_, 0) => Some((value | (high >> 8) << 63, 10)),
        _ => None,
    }
}

/// A number whose sign is its lowest bit, as its slot has it; none, if it has more bits than its kind.
#[inline(always)]
fn unzigzagged(wire: Wire, raw: u64) -> Option<u64> {
    match wire {
        Wire::I64 => Some(in_slot(Kind::Sint64, raw)),
        Wire::I16 if raw >> 16 != 0 => None,
        _ if raw >> 32 != 0 => None,
        _ => Some(in_slot(Kind::Sint32, raw)),
    }
}

/// Whether its numbers are most often of one byte.
const fn is_short(kind: Kind) -> bool {
    matches!(kind, Kind::Enum)
}
