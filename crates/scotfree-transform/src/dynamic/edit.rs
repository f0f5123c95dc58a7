//! A message that is filled by its schema.
//!
//! Invariant: as of edit.rs: a slot and its presence bit are written together; of a oneof at most one member is there.

use super::{Misfit, Scalar};
use crate::arena::{Arena, Memory, Offset};
use crate::error::Exhausted;
use crate::message::View;
use crate::protobuf::decode::{unknown_slot, write, RUN_BYTES};
use crate::protobuf::wire::Bytes;
use crate::schema::{Field, Kind, Shape, TypeSchema, Types, NONE};
use crate::slots::{number, width, Span, IN_ARENA};

/// Begins an empty message in an arena, which forgets what was in it. Others may lie in it `depth_max` deep, the message
/// itself counted.
pub fn begin<'a>(
    types: &'a Types,
    index: u16,
    arena: &'a mut Arena,
    depth_max: u16,
) -> Result<Editor<'a>, Misfit> {
    let schema = types.types.get(index as usize).ok_or(Misfit::NoType)?;
    arena.reset();
    arena.memory.limit = i32::MAX as u32;
    let slots = arena.memory.allocate(schema.slot_bytes)?;
    let depth_left = depth_max.checked_sub(1).ok_or(Misfit::TooDeep)?;
    Ok(Editor { types, schema, memory: &mut arena.memory, input: &arena.input, slots, depth_left })
}

/// A message of a type that is known at run time, in an arena that is its caller's alone.
pub struct Editor<'a> {
    pub(super) types: &'a Types,
    pub(super) schema: &'a TypeSchema,
    pub(super) memory: &'a mut Memory,
    pub(super) input: &'a [u8],
    pub(super) slots: Offset,
    pub(super) depth_left: u16,
}

impl<'a> Editor<'a> {
    /// The same to be read.
    pub fn view(&self) -> View<'_> {
        View {
            types: self.types,
            schema: self.schema,
            memory: &self.memory.bytes,
            input: self.input,
            slots: self.slots,
        }
    }

    /// Its type.
    pub fn schema(&self) -> &'a TypeSchema {
        self.schema
    }

    /// How many bytes of the arena are in use.
    pub fn used_bytes(&self) -> usize {
        self.memory.used as usize
    }

    /// Sets a field of one value.
    pub fn set(&mut self, place: usize, value: Scalar<'_>) -> Result<(), Misfit> {
        let field = self.one(place)?;
        let (word, is_set) = self.word(&field, value)?;
        self.put(&field, word, is_set);
        Ok(())
    }

    /// Puts a value behind those that are there.
    pub fn push(&mut self, place: usize, value: Scalar<'_>) -> Result<(), Misfit> {
        let field = self.many(place)?;
        let (word, _) = self.word(&field, value)?;
        Ok(self.append(&field, word)?)
    }

    /// The message within this one, an empty one if it was not there.
    pub fn message(&mut self, place: usize) -> Result<Editor<'_>, Misfit> {
        let field = self.one(place)?;
        let (schema, depth_left) = self.within(&field)?;
        let slots = if self.view().has(&field) {
            number::<4>(&self.memory.bytes[(self.slots + field.slot) as usize..]) as Offset
        } else {
            let slots = self.memory.allocate(schema.slot_bytes)?;
            self.put(&field, slots.into(), true);
            slots
        };
        Ok(self.at(schema, slots, depth_left))
    }

    /// Puts an empty message behind those that are there.
    pub fn push_message(&mut self, place: usize) -> Result<Editor<'_>, Misfit> {
        let field = self.many(place)?;
        let (schema, depth_left) = self.within(&field)?;
        let slots = self.memory.allocate(schema.slot_bytes)?;
        self.append(&field, slots.into())?;
        Ok(self.at(schema, slots, depth_left))
    }

    /// Has a field be absent; one of many values, empty.
    pub fn clear(&mut self, place: usize) -> Result<(), Misfit> {
        let field = self.field(place)?;
        // What shares its slot stays.
        if self.view().has(&field) {
            self.mark(field.presence, false);
            let slot = (self.slots + field.slot) as usize;
            self.memory.bytes[slot..slot + field.slot_width() as usize].fill(0);
        }
        Ok(())
    }

    /// Whether a member of the oneof of this field is there.
    pub fn has_member_beside(&self, field: &Field) -> bool {
        let oneof = self.schema.oneofs.get(field.oneof as usize);
        oneof.is_some_and(|&(first, count)| (first..first + count).any(|bit| self.has(bit)))
    }

    /// Keeps fields that the schema does not know, behind those that are kept; they are written as they are.
    pub fn keep_unknown(&mut self, fields: &[u8]) -> Result<(), Misfit> {
        let (mut bytes, end) = (Bytes { input: fields, at: 0 }, fields.len());
        while bytes.at < end {
            let tag = bytes.tag(end).map_err(Misfit::Unknown)?;
            bytes.skip(tag, end, self.depth_left).map_err(Misfit::Unknown)?;
        }
        if end == 0 {
            return Ok(());
        }
        let run = self.copied(fields)?;
        self.append_at(self.slots as usize + unknown_slot(self.schema), RUN_BYTES, run.word())?;
        Ok(())
    }

    fn field(&self, place: usize) -> Result<Field, Misfit> {
        self.schema.fields.get(place).copied().ok_or(Misfit::NoField)
    }

    fn one(&self, place: usize) -> Result<Field, Misfit> {
        let field = self.field(place)?;
        (!field.shape.is_many()).then_some(field).ok_or(Misfit::Count)
    }

    fn many(&self, place: usize) -> Result<Field, Misfit> {
        let field = self.field(place)?;
        field.shape.is_many().then_some(field).ok_or(Misfit::Count)
    }

    /// The type of messages within this field, and how deep others may lie in them.
    fn within(&self, field: &Field) -> Result<(&'a TypeSchema, u16), Misfit> {
        match field.kind {
            Kind::Message | Kind::Group => {
                let depth_left = self.depth_left.checked_sub(1).ok_or(Misfit::TooDeep)?;
                Ok((&self.types.types[field.sub as usize], depth_left))
            }
            _ => Err(Misfit::Kind),
        }
    }

    fn at(&mut self, schema: &'a TypeSchema, slots: Offset, depth_left: u16) -> Editor<'_> {
        Editor { types: self.types, schema, memory: self.memory, input: self.input, slots, depth_left }
    }

    /// A value as it lies in a slot, and whether it is other than zero and empty.
    fn word(&mut self, field: &Field, value: Scalar<'_>) -> Result<(u64, bool), Misfit> {
        if let Kind::String | Kind::Bytes | Kind::Uuid = field.kind {
            let span = self.copied(value.bytes(field)?)?;
            Ok((span.word(), span.len > 0))
        } else {
            let bits = value.bits(field, self.types)?;
            Ok((bits, bits != 0))
        }
    }

    fn copied(&mut self, bytes: &[u8]) -> Result<Span, Exhausted> {
        let len = u32::try_from(bytes.len()).map_err(|_| Exhausted)?;
        let at = self.memory.allocate(len)?;
        self.memory.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(Span { at: at | IN_ARENA, len })
    }

    fn put(&mut self, field: &Field, value: u64, is_set: bool) {
        if field.oneof != NONE {
            let (first, count) = self.schema.oneofs[field.oneof as usize];
            (first..first + count).for_each(|bit| self.mark(bit, false));
        }
        self.mark(field.presence, is_set || field.shape != Shape::Implicit);
        write(&mut self.memory.bytes[(self.slots + field.slot) as usize..], width(field.kind), value);
    }

    fn append(&mut self, field: &Field, value: u64) -> Result<(), Exhausted> {
        self.append_at((self.slots + field.slot) as usize, width(field.kind), value)?;
        self.mark(field.presence, true);
        Ok(())
    }

    fn append_at(&mut self, slot: usize, size: u32, value: u64) -> Result<(), Exhausted> {
        let span = Span::read(&self.memory.bytes[slot..]);
        let at = self.memory.room_for_one_more(span.at, span.len, size)?;
        Span { at, len: span.len + 1 }.write(&mut self.memory.bytes[slot..]);
        write(&mut self.memory.bytes[(at + span.len * size) as usize..], size, value);
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
