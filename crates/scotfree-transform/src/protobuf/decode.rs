//! Decoding by the table: field by field as the schema says, for types that are rare or known at run time only, and
//! for what straight-line code leaves.
//!
//! Invariant: whatever the bytes are, they give slots or an error; no more memory is taken than the limits say.

use super::encode::encoded;
use super::wire::{Bytes, Tag, Wire};
use crate::arena::{Memory, Offset};
use crate::error::{DecodeError, Exhausted};
use crate::kinds;
use crate::limits::Limits;
use crate::planted::{self, Fault};
use crate::schema::{closed_value, Field, Kind, Shape, TypeSchema, Types, Utf8, NONE};
use crate::slots::{number, width, Span, IN_ARENA};

/// What decoding one message shares with those within it.
pub struct Decoding<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) types: &'a Types,
    pub(crate) input: &'a [u8],
    pub(crate) unknown_left: u32,
}

/// One message: its type, its slots, and how deep others may still lie in it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'t> {
    pub(crate) schema: &'t TypeSchema,
    pub(crate) slots: Offset,
    pub(crate) depth_left: u16,
}

/// Decodes `input` as the type at `index` of `types`; returns where its slots begin.
pub(crate) fn decode_into(
    types: &Types,
    index: u16,
    input: &[u8],
    memory: &mut Memory,
    limits: &Limits,
) -> Result<Offset, DecodeError> {
    let depth_left = begin(input.len(), memory, limits)?;
    let schema = &types.types[index as usize];
    let slots = memory.allocate(schema.slot_bytes)?;
    let mut decoding = Decoding { memory, types, input, unknown_left: limits.unknown_fields_max };
    let mut bytes = Bytes { input, at: 0 };
    decoding.message(Place { schema, slots, depth_left }, &mut bytes, input.len(), None)?;
    Ok(slots)
}

/// What is asked of a message before it is looked at; how deep others may lie in it.
#[inline(always)]
pub(crate) fn begin(bytes: usize, memory: &mut Memory, limits: &Limits) -> Result<u16, DecodeError> {
    if bytes as u64 > u64::from(limits.message_bytes_max.min(i32::MAX as u32)) {
        return Err(DecodeError::TooLarge);
    }
    memory.limit = memory.used.saturating_add(limits.slots_bytes_max).min(i32::MAX as u32);
    // What an earlier message was allowed is not this one's: whether it fits does not depend on those before.
    memory.bytes.truncate(memory.limit as usize);
    limits.depth_max.checked_sub(1).ok_or(DecodeError::TooDeep { at: 0 })
}

impl Decoding<'_> {
    /// Decodes up to `end`, or to the end of the group of this number.
    pub(crate) fn message(
        &mut self,
        place: Place<'_>,
        bytes: &mut Bytes<'_>,
        end: usize,
        group: Option<u32>,
    ) -> Result<(), DecodeError> {
        loop {
            let at = bytes.at;
            if at == end {
                if group.is_some() {
                    return Err(DecodeError::Cut { at });
                }
                break;
            }
            let tag = bytes.tag(end)?;
            if tag.wire == Wire::GroupEnd {
                if group != Some(tag.number) {
                    return Err(DecodeError::GroupEnd { at });
                }
                break;
            }
            self.field(place, tag, at, bytes, end)?;
        }
        self.check_required(place)
    }

    /// Decodes one field, whose tag at `at` was read.
    pub(crate) fn field(
        &mut self,
        place: Place<'_>,
        tag: Tag,
        at: usize,
        bytes: &mut Bytes<'_>,
        end: usize,
    ) -> Result<(), DecodeError> {
        let known = place.schema.place(tag.number).map(|index| place.schema.fields[index]);
        match known {
            Some(field) if wire_of(field.kind) == tag.wire => self.value(place, &field, at, bytes, end),
            Some(field) if is_packable(&field) && tag.wire == Wire::Bytes => {
                self.packed(place, &field, at, bytes, end)
            }
            _ => {
                bytes.skip(tag, end, place.depth_left)?;
                self.unknown(place, at, bytes.at)?;
                let from = bytes.at;
                bytes.skip_unknown(place.schema, end, place.depth_left);
                if bytes.at > from {
                    self.unknown(place, from, bytes.at)?;
                }
                Ok(())
            }
        }
    }

    fn value(
        &mut self,
        place: Place<'_>,
        field: &Field,
        at: usize,
        bytes: &mut Bytes<'_>,
        end: usize,
    ) -> Result<(), DecodeError> {
        match field.kind {
            Kind::Message | Kind::Group => self.nested(place, field, at, bytes, end),
            Kind::String | Kind::Bytes => {
                let until = bytes.length(end)?;
                let text = &bytes.input[bytes.at..until];
                if field.converter != 0 && !(text.is_empty() && field.shape == Shape::Implicit) {
                    let span = self.converted(field, at, text)?;
                    bytes.at = until;
                    return self.put(place, field, span.word(), true);
                }
                if field.kind == Kind::String
                    && field.utf8 == Utf8::Checked
                    && std::str::from_utf8(text).is_err()
                {
                    return Err(DecodeError::NotUtf8 { number: field.number, at });
                }
                let span = Span { at: bytes.at as u32, len: text.len() as u32 };
                bytes.at = until;
                self.put(place, field, span.word(), span.len > 0)
            }
            kind => {
                let raw = match wire_of(kind) {
                    Wire::Fixed32 => bytes.fixed::<4>(end)?,
                    Wire::Fixed64 => bytes.fixed::<8>(end)?,
                    _ => bytes.varint(end)?,
                };
                if kind == Kind::ClosedEnum && !self.knows(field, raw) {
                    return self.unknown(place, at, bytes.at);
                }
                let value = in_slot(kind, raw);
                self.put(place, field, value, value != 0)
            }
        }
    }

    /// A value of a registered kind, as its converter has it.
    fn converted(&mut self, field: &Field, at: usize, on_wire: &[u8]) -> Result<Span, DecodeError> {
        let refused = DecodeError::Converted { number: field.number, at };
        let converter = kinds::converter(field.converter).ok_or(refused)?;
        let (slot, len) = (self.memory.allocate(converter.slot_bytes)?, converter.slot_bytes);
        let value = &mut self.memory.bytes[slot as usize..][..len as usize];
        let is_taken = (converter.decode)(on_wire, value);
        is_taken.then_some(Span { at: slot | IN_ARENA, len }).ok_or(refused)
    }

    /// Whether a closed enumeration has this number.
    fn knows(&self, field: &Field, raw: u64) -> bool {
        self.types.enums[field.sub as usize].numbers.binary_search(&(raw as i32)).is_ok()
    }

    /// Writes a number or a span into its slot, or behind those that are there.
    fn put(&mut self, place: Place<'_>, field: &Field, value: u64, is_set: bool) -> Result<(), DecodeError> {
        let slot = (place.slots + field.slot) as usize;
        match field.shape {
            Shape::Repeated | Shape::Packed | Shape::Map => {
                let size = width(field.kind);
                self.push(slot, size, value)?;
                self.mark(place, field, true);
            }
            Shape::Implicit | Shape::Explicit | Shape::Required => {
                if planted::is(Fault::FirstWins) && self.is_there(place, field.presence) {
                    return Ok(());
                }
                let is_implicit = field.shape == Shape::Implicit || planted::is(Fault::DropPresenceOfZero);
                self.mark(place, field, is_set || !is_implicit);
                write(&mut self.memory.bytes[slot..], width(field.kind), value);
            }
        }
        Ok(())
    }

    /// Puts one more element behind those of a slot. A call, since else each field of many values would have all this.
    #[inline(never)]
    pub(crate) fn push(&mut self, slot: usize, size: u32, value: u64) -> Result<(), Exhausted> {
        let span = Span::read(&self.memory.bytes[slot..]);
        let at = self.memory.room_for_one_more(span.at, span.len, size)?;
        Span { at, len: span.len + 1 }.write(&mut self.memory.bytes[slot..]);
        write(&mut self.memory.bytes[(at + span.len * size) as usize..], size, value);
        Ok(())
    }

    /// Says that a field is there, or is not; of those of which one may be there the others are not.
    pub(crate) fn mark(&mut self, place: Place<'_>, field: &Field, is_there: bool) {
        if field.oneof != NONE {
            let (first, count) = place.schema.oneofs[field.oneof as usize];
            for bit in first..first + count {
                self.presence(place, bit, false);
            }
        }
        self.presence(place, field.presence, is_there);
    }

    fn presence(&mut self, place: Place<'_>, bit: u16, is_there: bool) {
        let byte = &mut self.memory.bytes[place.slots as usize + bit as usize / 8];
        *byte = *byte & !(1 << (bit % 8)) | u8::from(is_there) << (bit % 8);
    }

    pub(crate) fn is_there(&self, place: Place<'_>, bit: u16) -> bool {
        self.memory.bytes[place.slots as usize + bit as usize / 8] >> (bit % 8) & 1 == 1
    }

    /// Many numbers behind one tag.
    fn packed(
        &mut self,
        place: Place<'_>,
        field: &Field,
        at: usize,
        bytes: &mut Bytes<'_>,
        end: usize,
    ) -> Result<(), DecodeError> {
        let until = bytes.length(end)?;
        let whole = |_| DecodeError::Packed { number: field.number, at };
        while bytes.at < until {
            let from = bytes.at;
            let raw = match wire_of(field.kind) {
                Wire::Fixed32 => bytes.fixed::<4>(until).map_err(whole)?,
                Wire::Fixed64 => bytes.fixed::<8>(until).map_err(whole)?,
                _ => bytes.varint(until).map_err(whole)?,
            };
            if field.kind == Kind::ClosedEnum && !self.knows(field, raw) {
                self.unknown_number(place, field.number, at, &bytes.input[from..bytes.at])?;
            } else {
                self.put(place, field, in_slot(field.kind, raw), true)?;
            }
        }
        Ok(())
    }

    /// A message within this one, merged with what is there of it.
    fn nested(
        &mut self,
        place: Place<'_>,
        field: &Field,
        at: usize,
        bytes: &mut Bytes<'_>,
        end: usize,
    ) -> Result<(), DecodeError> {
        let types = self.types;
        let schema = &types.types[field.sub as usize];
        let (until, group) = match field.kind {
            Kind::Group => (end, Some(field.number)),
            _ => (bytes.length(end)?, None),
        };
        let Some(depth_left) = place.depth_left.checked_sub(1) else {
            return Err(DecodeError::TooDeep { at });
        };
        let slot = (place.slots + field.slot) as usize;
        let slots = match field.shape {
            Shape::Map if closed_value(&schema.fields).is_some() => {
                let slots = self.memory.allocate(schema.slot_bytes)?;
                let entry = Place { schema, slots, depth_left };
                return self.closed_entry(place, field, entry, at, bytes, until);
            }
            Shape::Repeated | Shape::Packed | Shape::Map => {
                let slots = self.memory.allocate(schema.slot_bytes)?;
                self.push(slot, width(field.kind), slots.into())?;
                self.mark(place, field, true);
                slots
            }
            Shape::Implicit | Shape::Explicit | Shape::Required if self.is_there(place, field.presence) => {
                number::<4>(&self.memory.bytes[slot..]) as Offset
            }
            Shape::Implicit | Shape::Explicit | Shape::Required => {
                let slots = self.memory.allocate(schema.slot_bytes)?;
                self.mark(place, field, true);
                write(&mut self.memory.bytes[slot..], 4, slots.into());
                slots
            }
        };
        self.message(Place { schema, slots, depth_left }, bytes, until, group)
    }

    /// An entry of a map whose values are of a closed enumeration. With a number that this does not know it is no entry,
    /// but as a whole an unknown field of the message that the map is in; of several numbers the last one counts.
    fn closed_entry(
        &mut self,
        place: Place<'_>,
        field: &Field,
        entry: Place<'_>,
        at: usize,
        bytes: &mut Bytes<'_>,
        until: usize,
    ) -> Result<(), DecodeError> {
        let value = closed_value(&entry.schema.fields).expect("who calls has looked");
        let unknown_left = self.unknown_left;
        let mut last = None;
        while bytes.at < until {
            let at = bytes.at;
            let tag = bytes.tag(until)?;
            match tag.wire {
                Wire::GroupEnd => return Err(DecodeError::GroupEnd { at }),
                // Those before it are forgotten: as unknown fields they would be written behind it, and be the last.
                Wire::Varint if tag.number == value.number => last = Some(bytes.varint(until)?),
                _ => self.field(entry, tag, at, bytes, until)?,
            }
        }
        if last.is_some_and(|raw| !self.knows(value, raw)) {
            // It lies behind all that stays, so that its room is free again.
            (self.memory.used, self.unknown_left) = (entry.slots, unknown_left);
            return self.unknown(place, at, until);
        }
        if let Some(raw) = last {
            self.put(entry, value, in_slot(value.kind, raw), raw != 0)?;
        }
        self.check_required(entry)?;
        self.push((place.slots + field.slot) as usize, width(field.kind), entry.slots.into())?;
        self.mark(place, field, true);
        Ok(())
    }

    /// Keeps a field that the schema does not know: as a run of the input, together with one that ends where it begins.
    pub(crate) fn unknown(&mut self, place: Place<'_>, at: usize, until: usize) -> Result<(), DecodeError> {
        if planted::is(Fault::ForgetUnknown) {
            return Ok(());
        }
        let slot = place.slots as usize + unknown_slot(place.schema);
        let runs = Span::read(&self.memory.bytes[slot..]);
        if let Some(before) = runs.len.checked_sub(1) {
            let last = (runs.at + before * RUN_BYTES) as usize;
            let run = Span::read(&self.memory.bytes[last..]);
            if (run.at + run.len) as usize == at {
                Span { at: run.at, len: (until - run.at as usize) as u32 }
                    .write(&mut self.memory.bytes[last..]);
                return Ok(());
            }
        }
        self.run(place, at, Span { at: at as u32, len: (until - at) as u32 })
    }

    /// Keeps a run of unknown fields.
    pub(crate) fn run(&mut self, place: Place<'_>, at: usize, run: Span) -> Result<(), DecodeError> {
        let Some(left) = self.unknown_left.checked_sub(1) else {
            return Err(DecodeError::TooManyUnknown { at });
        };
        self.unknown_left = left;
        Ok(self.push(place.slots as usize + unknown_slot(place.schema), RUN_BYTES, run.word())?)
    }

    /// Keeps a number of a packed field that its closed enumeration does not know, as if it stood behind a tag.
    fn unknown_number(
        &mut self,
        place: Place<'_>,
        field: u32,
        at: usize,
        number: &[u8],
    ) -> Result<(), DecodeError> {
        let (tag, tag_bytes) = encoded(u64::from(field) << 3);
        let run_bytes = tag_bytes + number.len();
        let copy = self.memory.allocate(run_bytes as u32)?;
        let (its_tag, its_number) = self.memory.bytes[copy as usize..][..run_bytes].split_at_mut(tag_bytes);
        its_tag.copy_from_slice(&tag[..tag_bytes]);
        its_number.copy_from_slice(number);
        self.run(place, at, Span { at: copy | IN_ARENA, len: run_bytes as u32 })
    }

    /// That all required fields are there.
    pub(crate) fn check_required(&self, place: Place<'_>) -> Result<(), DecodeError> {
        if !place.schema.has_required {
            return Ok(());
        }
        let missing = place
            .schema
            .fields
            .iter()
            .find(|field| field.is_required() && !self.is_there(place, field.presence));
        missing.map_or(Ok(()), |field| Err(DecodeError::Missing { number: field.number }))
    }
}

/// A run of unknown fields: a span.
pub(crate) const RUN_BYTES: u32 = 8;

/// Where the slot of unknown fields is.
pub(crate) const fn unknown_slot(schema: &TypeSchema) -> usize {
    schema.presence_words as usize * 8
}

/// What comes behind the tag of a value of this kind.
pub(crate) const fn wire_of(kind: Kind) -> Wire {
    match kind {
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => Wire::Fixed32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => Wire::Fixed64,
        Kind::String | Kind::Bytes | Kind::Uuid | Kind::Message => Wire::Bytes,
        Kind::Group => Wire::GroupBegin,
        Kind::Bool
        | Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Enum
        | Kind::ClosedEnum
        | Kind::Int8
        | Kind::Int16 => Wire::Varint,
    }
}

/// Whether many values of it may stand behind one tag.
fn is_packable(field: &Field) -> bool {
    matches!(field.shape, Shape::Repeated | Shape::Packed)
        && !matches!(wire_of(field.kind), Wire::Bytes | Wire::GroupBegin)
}

/// A number of the wire as it lies in its slot.
#[inline(always)]
pub const fn in_slot(kind: Kind, raw: u64) -> u64 {
    match kind {
        Kind::Bool => (raw != 0) as u64,
        Kind::Sint32 => (((raw as u32) >> 1) ^ ((raw as u32) & 1).wrapping_neg()) as u64,
        Kind::Sint64 => (raw >> 1) ^ (raw & 1).wrapping_neg(),
        Kind::Int64 | Kind::Uint64 | Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => raw,
        _ => raw as u32 as u64,
    }
}

/// Writes the low bytes of a number.
#[inline(always)]
pub(crate) fn write(slot: &mut [u8], size: u32, value: u64) {
    slot[..size as usize].copy_from_slice(&value.to_le_bytes()[..size as usize]);
}
