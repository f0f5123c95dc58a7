//! Where straight-line code encodes a struct of Thrift to.
//!
//! Invariant: that of `Writer`.

use super::super::path::Path;
use super::super::read::Slots;
use super::{Writer, NUMBER_BYTES_MAX, SLACK};
use crate::message::{Type, View};
use crate::protobuf::encode::on_wire;
use crate::schema::{Field, Kind, Need};
use crate::thrift::encode::Structs;
use crate::thrift::format::{binary_header, id_of, of_numbers, value_of, whole_of, ThriftFormat};
use crate::thrift::wire::{Wire, FALSE, STOP};
use crate::thrift::Protocol;
use std::marker::PhantomData;

/// See above. By value, as `Writer`.
pub struct ThriftWriter<'o, F: ThriftFormat> {
    writer: Writer<'o>,
    /// The id of the field before.
    last: i32,
    of: PhantomData<F>,
}

impl<'o, F: ThriftFormat> ThriftWriter<'o, F> {
    /// Begins a struct.
    #[inline(always)]
    #[must_use]
    pub fn new(writer: Writer<'o>) -> Self {
        ThriftWriter { writer: writer.moved(), last: 0, of: PhantomData }
    }

    /// Makes room for so many numbers.
    #[inline(always)]
    pub fn room_for_numbers(&mut self, count: usize) {
        self.writer.room(count * NUMBER_BYTES_MAX);
    }

    /// Writes a field's header; there is room for a number.
    #[inline(always)]
    fn header<T: Type, const I: usize>(&mut self, code: u8) {
        let field = const { T::FIELDS[I] };
        let step = id_of(&field) - self.last;
        self.last = id_of(&field);
        if let Protocol::Binary = F::PROTOCOL {
            self.put(const { binary_header(&T::FIELDS[I]) }, 3);
        } else if (1..16).contains(&step) {
            self.put((step as u64) << 4 | u64::from(code), 1);
        } else {
            let (id, bytes) = const { zigzag_of_id(id_of(&T::FIELDS[I])) };
            self.put(id << 8 | u64::from(code), bytes + 1);
        }
    }

    /// Writes a word, of which so many bytes count.
    #[inline(always)]
    fn put(&mut self, word: u64, bytes: usize) {
        self.writer.word(self.writer.at, word);
        self.writer.at += bytes;
    }

    /// Writes a field's number, if the field is written; there is room for it.
    #[inline(always)]
    pub fn number<T: Type, const I: usize, P: Path>(&mut self, path: P, of: Slots<'_, T>, presence: u64) {
        let field = const { T::FIELDS[I] };
        if !is_written(&field, presence) {
            return;
        }
        let bits = of.bits::<I>();
        let code = const { whole_of(&T::FIELDS[I]).code(Protocol::Compact) };
        if let (Protocol::Compact, Kind::Bool) = (F::PROTOCOL, field.kind) {
            return self.header::<T, I>(if bits != 0 { code } else { FALSE });
        }
        self.header::<T, I>(code);
        self.bare(path, field.kind, bits);
    }

    /// Writes a number that no header precedes; there is room for it.
    #[inline(always)]
    fn bare<P: Path>(&mut self, path: P, kind: Kind, bits: u64) {
        let Some(wire) = of_numbers(kind) else { return };
        match (F::PROTOCOL, wire) {
            (Protocol::Binary, Wire::Bool) => self.put(u64::from(bits != 0), 1),
            (Protocol::Compact, Wire::Bool) => self.put(if bits != 0 { 1 } else { u64::from(FALSE) }, 1),
            (_, Wire::I8) => self.put(bits, 1),
            (Protocol::Binary, Wire::I16) => self.put((bits as u16).swap_bytes().into(), 2),
            (Protocol::Binary, Wire::I32) => self.put((bits as u32).swap_bytes().into(), 4),
            (Protocol::Binary, _) => self.put(bits.swap_bytes(), 8),
            (Protocol::Compact, Wire::Double) => self.put(bits, 8),
            (Protocol::Compact, Wire::I64) => {
                self.writer.at += self.writer.varint(path, self.writer.at, on_wire(Kind::Sint64, bits));
            }
            (Protocol::Compact, _) => self.short(path, on_wire(Kind::Sint32, bits)),
        }
    }

    #[inline(always)]
    fn short<P: Path>(&mut self, path: P, value: u64) {
        self.writer.at += if value < 0x80 {
            self.writer.word(self.writer.at, value);
            1
        } else {
            self.writer.short_varint(path, self.writer.at, value)
        };
    }

    /// Writes a field's string or binary, if the field is written.
    #[inline(always)]
    #[must_use]
    pub fn text<T: Type, const I: usize, P: Path>(
        mut self,
        path: P,
        of: Slots<'_, T>,
        presence: u64,
    ) -> Self {
        if is_written(&const { T::FIELDS[I] }, presence) {
            let placed = of.placed(of.bits::<I>());
            self.writer.room(NUMBER_BYTES_MAX + placed.2 + SLACK);
            self.header::<T, I>(const { whole_of(&T::FIELDS[I]).code(Protocol::Compact) });
            self.bare_text(path, placed);
        }
        self
    }

    /// Writes a length and so many bytes; there is room for them.
    #[inline(always)]
    fn bare_text<P: Path>(&mut self, path: P, (whole, at, len): (&[u8], usize, usize)) {
        match F::PROTOCOL {
            Protocol::Binary => self.put((len as u32).swap_bytes().into(), 4),
            Protocol::Compact => self.short(path, len as u64),
        }
        self.writer.copy(whole, at, len);
    }

    /// Writes what stands before the elements of a field that is written; there is room for it.
    #[inline(always)]
    fn elements<T: Type, const I: usize, P: Path>(&mut self, path: P, count: usize) {
        let (whole, one) = const { (whole_of(&T::FIELDS[I]), value_of(&T::FIELDS[I])) };
        self.header::<T, I>(whole.code(Protocol::Compact));
        let code = u64::from(one.code(F::PROTOCOL));
        match F::PROTOCOL {
            Protocol::Binary => self.put(code | u64::from((count as u32).swap_bytes()) << 8, 5),
            Protocol::Compact if count < 15 => self.put((count as u64) << 4 | code, 1),
            Protocol::Compact => {
                self.put(0xf0 | code, 1);
                self.short(path, count as u64);
            }
        }
    }

    /// Writes the numbers, strings or binaries of a list or set, if the field is written.
    #[inline(always)]
    #[must_use]
    pub fn each<T: Type, const I: usize, P: Path>(
        mut self,
        path: P,
        of: Slots<'_, T>,
        presence: u64,
    ) -> Self {
        let field = const { T::FIELDS[I] };
        if !is_written(&field, presence) {
            return self;
        }
        let count = of.count::<I>();
        self.writer.room(NUMBER_BYTES_MAX);
        self.elements::<T, I, P>(path, count);
        for index in 0..count {
            let bits = of.element::<I>(index);
            if let Wire::Bytes = const { value_of(&T::FIELDS[I]) } {
                let placed = of.placed(bits);
                self.writer.room(NUMBER_BYTES_MAX + placed.2 + SLACK);
                self.bare_text(path, placed);
            } else {
                self.writer.room(NUMBER_BYTES_MAX);
                self.bare(path, field.kind, bits);
            }
        }
        self
    }

    /// Writes a struct, if it is there.
    #[inline(always)]
    #[must_use]
    pub fn child<T: Type, const I: usize, C: Type, P: Path>(mut self, path: P, of: Slots<'_, T>) -> Self {
        if let Some(inner) = of.message::<I, C>() {
            self.writer.room(NUMBER_BYTES_MAX);
            self.header::<T, I>(Wire::Struct.code(Protocol::Compact));
            self.writer = path.encode_thrift::<C, F>(inner, self.writer);
        }
        self
    }

    /// Writes the structs of a list or set, if the field is written.
    #[inline(always)]
    #[must_use]
    pub fn structs<T: Type, const I: usize, C: Type, P: Path>(
        mut self,
        path: P,
        of: Slots<'_, T>,
        presence: u64,
    ) -> Self {
        if is_written(&const { T::FIELDS[I] }, presence) {
            let count = of.count::<I>();
            self.writer.room(NUMBER_BYTES_MAX);
            self.elements::<T, I, P>(path, count);
            for index in 0..count {
                let inner = of.element_message::<I, C>(index);
                self.writer = path.encode_thrift::<C, F>(inner, self.writer);
            }
        }
        self
    }

    /// Writes a field as the table does, if it is written: one of a kind that has no straight line.
    #[inline(always)]
    #[must_use]
    pub fn by_table<T: Type, const I: usize>(mut self, of: Slots<'_, T>, presence: u64) -> Self {
        if is_written(&const { T::FIELDS[I] }, presence) {
            let (field, last) = (const { &T::FIELDS[I] }, self.last as i16);
            self.writer = self.writer.behind(|out| field_by_table(of.view(), field, last, F::PROTOCOL, out));
            self.last = const { id_of(&T::FIELDS[I]) };
        }
        self
    }

    /// Ends the struct, with the fields that the schema does not know.
    #[inline(always)]
    #[must_use]
    pub fn end<T: Type>(mut self, of: Slots<'_, T>) -> Writer<'o> {
        if of.has_unknown() {
            return self.writer.behind(|out| end_by_table(of.view(), F::PROTOCOL, out));
        }
        self.writer.room(8);
        self.put(STOP.into(), 1);
        self.writer
    }
}

impl Writer<'_> {
    /// Writes a struct of Thrift as the table does.
    #[must_use]
    pub fn thrift_by_table<T: Type, F: ThriftFormat>(self, of: Slots<'_, T>) -> Self {
        self.behind(|out| Structs::new(T::types(), F::PROTOCOL, out).fields(of.view()))
    }
}

#[inline(never)]
fn field_by_table(of: View<'_>, field: &Field, last: i16, protocol: Protocol, out: &mut Vec<u8>) {
    Structs::new(of.types, protocol, out).field(of, field, last);
}

#[cold]
#[inline(never)]
fn end_by_table(of: View<'_>, protocol: Protocol, out: &mut Vec<u8>) {
    Structs::new(of.types, protocol, out).end(of);
}

/// Whether a field is written: it was set, or it is one that is written always. A struct that is not there is not.
#[inline(always)]
const fn is_written(field: &Field, presence: u64) -> bool {
    let is_struct = matches!(field.kind, Kind::Message | Kind::Group) && !field.shape.is_many();
    let is_always = !matches!(field.need, Need::Optional) && !is_struct;
    is_always || presence >> (field.presence % 64) & 1 == 1
}

/// An id as `TCompact` has it, in a word, and how many bytes it is.
const fn zigzag_of_id(id: i32) -> (u64, usize) {
    let mut left = (id << 1 ^ id >> 31) as u64;
    let (mut word, mut bytes) = (0, 0);
    while left >= 0x80 {
        word |= (left & 0x7f | 0x80) << (8 * bytes);
        left >>= 7;
        bytes += 1;
    }
    (word | left << (8 * bytes), bytes + 1)
}
