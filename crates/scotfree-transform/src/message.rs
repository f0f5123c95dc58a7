//! What was decoded, to be read.
//!
//! Invariant: a view's places are within its slots and its input, for decoding has written both.

use crate::arena::{Arena, Offset};
use crate::edit::Edit;
use crate::error::DecodeError;
use crate::limits::Limits;
use crate::planted::{self, Fault};
use crate::protobuf;
use crate::protobuf::decode::{decode_into, unknown_slot, RUN_BYTES};
use crate::raw::frame::thrift::ThriftFrame;
use crate::raw::frame::Frame;
use crate::raw::path::Path;
use crate::raw::read::Slots;
use crate::raw::writer::Writer;
use crate::schema::{Field, Kind, Shape, TypeSchema, Types};
use crate::slots::{number, width, Span, IN_ARENA};
use crate::thrift::format::ThriftFormat;
use crate::thrift::{self, Protocol};
use std::marker::PhantomData;

/// A message as its schema says it: its fields by the schema's.
#[derive(Clone, Copy)]
pub struct View<'m> {
    pub(crate) types: &'m Types,
    pub(crate) schema: &'m TypeSchema,
    pub(crate) memory: &'m [u8],
    pub(crate) input: &'m [u8],
    pub(crate) slots: Offset,
}

/// A value of a field.
#[derive(Clone, Copy)]
pub enum Value<'m> {
    /// A number or a truth, as its bits.
    Number(u64),
    /// A string's or field of bytes' bytes.
    Bytes(&'m [u8]),
    /// A message.
    Message(View<'m>),
}

impl<'m> View<'m> {
    /// Its type.
    pub fn schema(&self) -> &'m TypeSchema {
        self.schema
    }

    /// Whether the field is there: of one that is repeated, whether there are any.
    pub fn has(&self, field: &Field) -> bool {
        self.memory[self.slots as usize + field.presence as usize / 8] >> (field.presence % 8) & 1 == 1
    }

    /// The value of a field that is there, and the last one of one that is repeated.
    pub fn get(&self, field: &Field) -> Option<Value<'m>> {
        self.has(field).then(|| {
            if field.shape.is_many() {
                self.element(field, self.count(field) - 1)
            } else {
                self.value(field.kind, field, self.slot(field))
            }
        })
    }

    /// How many values there are of a repeated field.
    pub fn count(&self, field: &Field) -> usize {
        debug_assert!(field.shape.is_many());
        if self.has(field) {
            Span::read(self.slot(field)).len as usize
        } else {
            0
        }
    }

    /// One of the values of a repeated field. Panics, if there are not so many.
    pub fn element(&self, field: &Field, index: usize) -> Value<'m> {
        assert!(index < self.count(field));
        let is_turned = planted::is(Fault::MapFirstWins) && field.shape == Shape::Map;
        let index = if is_turned { self.count(field) - 1 - index } else { index };
        let size = width(field.kind) as usize;
        let at = Span::read(self.slot(field)).at as usize + index * size;
        self.value(field.kind, field, &self.memory[at..at + size])
    }

    fn slot(&self, field: &Field) -> &'m [u8] {
        &self.memory[(self.slots + field.slot) as usize..]
    }

    fn value(&self, kind: Kind, field: &Field, slot: &'m [u8]) -> Value<'m> {
        match kind {
            Kind::String | Kind::Bytes | Kind::Uuid => Value::Bytes(self.bytes(Span::read(slot))),
            Kind::Message | Kind::Group => {
                let schema = &self.types.types[field.sub as usize];
                Value::Message(View { schema, slots: number::<4>(slot) as Offset, ..*self })
            }
            kind => Value::Number(match width(kind) {
                1 => u64::from(slot[0]),
                4 => number::<4>(slot),
                _ => number::<8>(slot),
            }),
        }
    }

    /// The bytes of a span: in the input, or in the arena.
    pub(crate) fn bytes(&self, span: Span) -> &'m [u8] {
        bytes_in(self.memory, self.input, span)
    }

    /// The fields that the schema does not know, in their order: runs of bytes as they came.
    pub fn unknown(&self) -> impl Iterator<Item = &'m [u8]> + use<'m> {
        let view = *self;
        self.unknown_runs().map(move |run| view.bytes(run))
    }

    /// The same as where they lie.
    pub(crate) fn unknown_runs(&self) -> impl Iterator<Item = Span> + use<'m> {
        runs_in(self.memory, Span::read(&self.memory[self.slots as usize + unknown_slot(self.schema)..]))
    }
}

/// The runs of unknown fields that a slot says.
pub(crate) fn runs_in(memory: &[u8], slot: Span) -> impl Iterator<Item = Span> + use<'_> {
    (0..slot.len).map(move |run| Span::read(&memory[(slot.at + run * RUN_BYTES) as usize..]))
}

/// The bytes of a span.
pub(crate) fn bytes_in<'m>(memory: &'m [u8], input: &'m [u8], span: Span) -> &'m [u8] {
    let whole = if span.at & IN_ARENA == 0 { input } else { memory };
    let at = (span.at & !IN_ARENA) as usize;
    &whole[at..at + span.len as usize]
}

/// Decodes by the table; what is read lies in the arena and the input.
pub fn decode<'m>(
    types: &'m Types,
    index: u16,
    input: &'m [u8],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Result<View<'m>, DecodeError> {
    let slots = decode_into(types, index, input, &mut arena.memory, limits)?;
    Ok(View { types, schema: &types.types[index as usize], memory: &arena.memory.bytes, input, slots })
}

/// A type of messages that was generated.
///
/// What it says is what decoding and reading go by: it is written by `scotfree-codegen` from the same layout as its
/// `Types`, which a test of the crate it is generated into need not look at again.
pub trait Type: Sized + 'static {
    /// Its place in `types`.
    const INDEX: u16;
    /// As `TypeSchema::slot_bytes`.
    const SLOT_BYTES: u32;
    /// As `TypeSchema::fields`.
    const FIELDS: &'static [Field];
    /// As `TypeSchema::oneofs`.
    const ONEOFS: &'static [(u16, u16)];
    /// As `TypeSchema::has_required`.
    const HAS_REQUIRED: bool;
    /// Where the slot of unknown fields is: behind the words of presence bits.
    const UNKNOWN_SLOT: u32;
    /// Whether it is of a .thrift file: then it is written by the protocols of Thrift, and only by these.
    const IS_THRIFT: bool = false;
    /// The words of presence bits.
    type Presence: Copy + Default + AsRef<[u64]> + AsMut<[u64]>;
    /// How a message of it is read.
    type Ref<'m>: Copy;
    /// How a message of it is filled.
    type Mut<'m>;

    /// The set that it is of.
    fn types() -> &'static Types;

    /// A message as its reader.
    fn reader(slots: Slots<'_, Self>) -> Self::Ref<'_>;

    /// A message as its editor.
    fn editor(edit: Edit<'_, Self>) -> Self::Mut<'_>;

    /// The straight line. Returns where the message ended.
    fn decode<P: Path>(path: P, frame: Frame<'_, '_, Self>) -> Result<usize, DecodeError>;

    /// The straight line.
    fn encode<'o, P: Path>(path: P, message: Slots<'_, Self>, writer: Writer<'o>) -> Writer<'o>;

    /// The straight line of Thrift; the table, where none was generated.
    fn decode_thrift<P: Path, F: ThriftFormat>(
        _: P,
        frame: ThriftFrame<'_, '_, Self, F>,
    ) -> Result<usize, DecodeError> {
        frame.by_table()
    }

    /// The same.
    fn encode_thrift<'o, P: Path, F: ThriftFormat>(
        _: P,
        message: Slots<'_, Self>,
        writer: Writer<'o>,
    ) -> Writer<'o> {
        writer.thrift_by_table::<Self, F>(message)
    }
}

/// A message that owns what it refers to: it may go to other threads and stay as long as wanted.
pub struct Message<T: Type> {
    arena: Arena,
    slots: Offset,
    of: PhantomData<fn() -> T>,
}

impl<T: Type> Message<T> {
    /// An empty one.
    pub fn new() -> Self {
        let mut arena = Arena::new();
        arena.memory.limit = i32::MAX as u32;
        let slots =
            arena.memory.allocate(T::SLOT_BYTES).expect("the slots of one message are less than the limit");
        Message { arena, slots, of: PhantomData }
    }

    /// Decodes a copy of the bytes.
    pub fn decode(input: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let mut arena = Arena::new();
        let slots = protobuf::decode_kept::<T>(input, &mut arena, limits)?;
        arena.memory.limit = i32::MAX as u32;
        Ok(Message { arena, slots, of: PhantomData })
    }

    /// Decodes a copy of the bytes of a struct of Thrift.
    pub fn decode_thrift(protocol: Protocol, input: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let mut arena = Arena::new();
        let slots = thrift::decode_kept::<T>(protocol, input, &mut arena, limits)?;
        arena.memory.limit = i32::MAX as u32;
        Ok(Message { arena, slots, of: PhantomData })
    }

    /// To be read.
    pub fn get(&self) -> T::Ref<'_> {
        T::reader(self.slots())
    }

    /// To be filled or changed.
    pub fn edit(&mut self) -> T::Mut<'_> {
        T::editor(Edit::new(&mut self.arena.memory, &self.arena.input, self.slots))
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        protobuf::encode::<T>(self.slots(), out);
    }

    /// Appends its bytes as a struct of Thrift.
    pub fn encode_thrift(&self, protocol: Protocol, out: &mut Vec<u8>) {
        thrift::encode::<T>(protocol, self.slots(), out);
    }

    pub(crate) fn slots(&self) -> Slots<'_, T> {
        Slots::new(&self.arena.memory.bytes, &self.arena.input, self.slots)
    }
}

impl<T: Type> Default for Message<T> {
    fn default() -> Self {
        Message::new()
    }
}

impl<T: Type> Clone for Message<T> {
    fn clone(&self) -> Self {
        Message { arena: self.arena.clone(), slots: self.slots, of: PhantomData }
    }
}
