//! A message while it is filled (Optimus Prime, 4.1.3: the setters fill the schema while the message is made).
//!
//! Invariant: a slot and its presence bit are written together; of a oneof at most one member is there.

use crate::arena::{Memory, Offset};
use crate::error::Exhausted;
use crate::message::Type;
use crate::protobuf::decode::write;
use crate::raw::read::Slots;
use crate::schema::{Field, Kind, Shape, NONE};
use crate::slots::{number, width, Span, IN_ARENA};
use std::marker::PhantomData;

/// A message of a type, in an arena that is its caller's alone.
pub struct Edit<'a, T: Type> {
    memory: &'a mut Memory,
    input: &'a [u8],
    slots: Offset,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: Type> Edit<'a, T> {
    pub(crate) fn new(memory: &'a mut Memory, input: &'a [u8], slots: Offset) -> Self {
        Edit { memory, input, slots, of: PhantomData }
    }

    /// The same to be read.
    pub fn slots(&self) -> Slots<'_, T> {
        Slots::new(&self.memory.bytes, self.input, self.slots)
    }

    /// Sets a number, by its bits.
    #[inline]
    pub fn set_bits<const I: usize>(&mut self, bits: u64) {
        let field = const { one_of_kind::<T>(I, Sort::Number) };
        self.put(&field, bits, bits != 0);
    }

    /// Sets a string.
    pub fn set_text<const I: usize>(&mut self, text: &str) -> Result<(), Exhausted> {
        let field = const { one_of_kind::<T>(I, Sort::Text) };
        let span = self.copied(text.as_bytes())?;
        self.put(&field, span, !text.is_empty());
        Ok(())
    }

    /// Sets bytes.
    pub fn set_bytes<const I: usize>(&mut self, bytes: &[u8]) -> Result<(), Exhausted> {
        let field = const { one_of_kind::<T>(I, Sort::Bytes) };
        let span = self.copied(bytes)?;
        self.put(&field, span, !bytes.is_empty());
        Ok(())
    }

    /// The message within this one, an empty one if it was not there.
    pub fn message<const I: usize, C: Type>(&mut self) -> Result<Edit<'_, C>, Exhausted> {
        let field = const { one_of_kind::<T>(I, Sort::Message) };
        const { assert!(T::FIELDS[I].sub == C::INDEX) };
        let slots = if self.has(field.presence) {
            number::<4>(&self.memory.bytes[(self.slots + field.slot) as usize..]) as Offset
        } else {
            let slots = self.memory.allocate(C::SLOT_BYTES)?;
            self.put(&field, slots.into(), true);
            slots
        };
        Ok(Edit::new(self.memory, self.input, slots))
    }

    /// Puts a number behind those that are there.
    pub fn push_bits<const I: usize>(&mut self, bits: u64) -> Result<(), Exhausted> {
        let field = const { many_of_kind::<T>(I, Sort::Number) };
        self.push(&field, bits)
    }

    /// Puts a string behind those that are there.
    pub fn push_text<const I: usize>(&mut self, text: &str) -> Result<(), Exhausted> {
        let field = const { many_of_kind::<T>(I, Sort::Text) };
        let span = self.copied(text.as_bytes())?;
        self.push(&field, span)
    }

    /// Puts bytes behind those that are there.
    pub fn push_bytes<const I: usize>(&mut self, bytes: &[u8]) -> Result<(), Exhausted> {
        let field = const { many_of_kind::<T>(I, Sort::Bytes) };
        let span = self.copied(bytes)?;
        self.push(&field, span)
    }

    /// Puts an empty message behind those that are there.
    pub fn push_message<const I: usize, C: Type>(&mut self) -> Result<Edit<'_, C>, Exhausted> {
        let field = const { many_of_kind::<T>(I, Sort::Message) };
        const { assert!(T::FIELDS[I].sub == C::INDEX) };
        let slots = self.memory.allocate(C::SLOT_BYTES)?;
        self.push(&field, slots.into())?;
        Ok(Edit::new(self.memory, self.input, slots))
    }

    /// Has a field be absent; one that is repeated, empty.
    pub fn clear<const I: usize>(&mut self) {
        let field = const { T::FIELDS[I] };
        // What shares its slot stays.
        if self.has(field.presence) {
            self.mark(field.presence, false);
            let slot = (self.slots + field.slot) as usize;
            self.memory.bytes[slot..slot + field.slot_width() as usize].fill(0);
        }
    }

    fn copied(&mut self, bytes: &[u8]) -> Result<u64, Exhausted> {
        let length = u32::try_from(bytes.len()).map_err(|_| Exhausted)?;
        let at = self.memory.allocate(length)?;
        self.memory.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(Span { at: at | IN_ARENA, len: length }.word())
    }

    fn put(&mut self, field: &Field, value: u64, is_set: bool) {
        if field.oneof != NONE {
            let (first, count) = T::ONEOFS[field.oneof as usize];
            (first..first + count).for_each(|bit| self.mark(bit, false));
        }
        self.mark(field.presence, is_set || field.shape != Shape::Implicit);
        write(&mut self.memory.bytes[(self.slots + field.slot) as usize..], width(field.kind), value);
    }

    fn push(&mut self, field: &Field, value: u64) -> Result<(), Exhausted> {
        let (slot, size) = ((self.slots + field.slot) as usize, width(field.kind));
        let span = Span::read(&self.memory.bytes[slot..]);
        let at = self.memory.room_for_one_more(span.at, span.len, size)?;
        Span { at, len: span.len + 1 }.write(&mut self.memory.bytes[slot..]);
        write(&mut self.memory.bytes[(at + span.len * size) as usize..], size, value);
        self.mark(field.presence, true);
        Ok(())
    }

    fn has(&self, bit: u16) -> bool {
        self.memory.bytes[self.slots as usize + bit as usize / 8] >> (bit % 8) & 1 == 1
    }

    fn mark(&mut self, bit: u16, is_there: bool) {
        let byte = &mut self.memory.bytes[self.slots as usize + bit as usize / 8];
        *byte = *byte & !(1 << (bit % 8)) | u8::from(is_there) << (bit % 8);
    }
}

/// What a slot is read as.
#[derive(Clone, Copy)]
enum Sort {
    Number,
    Text,
    Bytes,
    Message,
}

/// A field of one value of this sort; the compiler says where generated code says another.
const fn one_of_kind<T: Type>(index: usize, sort: Sort) -> Field {
    let field = T::FIELDS[index];
    assert!(!field.shape.is_many() && is_of(field.kind, sort));
    field
}

/// The same of many values.
const fn many_of_kind<T: Type>(index: usize, sort: Sort) -> Field {
    let field = T::FIELDS[index];
    assert!(field.shape.is_many() && is_of(field.kind, sort));
    field
}

const fn is_of(kind: Kind, sort: Sort) -> bool {
    match kind {
        Kind::String => matches!(sort, Sort::Text),
        Kind::Bytes | Kind::Uuid => matches!(sort, Sort::Bytes),
        Kind::Message | Kind::Group => matches!(sort, Sort::Message),
        _ => matches!(sort, Sort::Number),
    }
}
