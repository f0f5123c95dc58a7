//! Decoding by the table: a struct's fields as its schema says them.
//!
//! Invariant: whatever the bytes are, they give slots or an error; no more memory is taken than the limits say. Fields
//! that the schema does not know are kept as runs of bytes: those of `TBinary` where they lie in the input, those of
//! `TCompact` in the arena, behind a header that says the whole id. So who writes them again sees of which protocol they are.

use super::read::{Header, Reader};
use super::wire::{has_line, wire_of, wire_of_one, Wire};
use super::write::whole_header;
use super::Protocol;
use crate::arena::{Memory, Offset};
use crate::error::DecodeError;
use crate::limits::Limits;
use crate::protobuf::decode::{begin, write, Decoding, Place};
use crate::schema::{Field, Kind, Shape, Types, Utf8};
use crate::slots::{width, Span, IN_ARENA};

/// Decodes the whole of `input` as the type at `index` of `types`; returns where its slots begin.
pub(crate) fn decode_into(
    protocol: Protocol,
    types: &Types,
    index: u16,
    input: &[u8],
    memory: &mut Memory,
    limits: &Limits,
) -> Result<Offset, DecodeError> {
    let depth_left = begin(input.len(), memory, limits)?;
    let schema = &types.types[index as usize];
    let slots = memory.allocate(schema.slot_bytes)?;
    let mut table = Decoding { memory, types, input, unknown_left: limits.unknown_fields_max };
    let mut structs = Structs { table: &mut table, reader: Reader { protocol, input, at: 0 } };
    structs.fields(Place { schema, slots, depth_left })?;
    ended(structs.reader.at, input)?;
    Ok(slots)
}

/// That a struct takes all of the input.
pub(crate) fn ended(at: usize, input: &[u8]) -> Result<(), DecodeError> {
    if at < input.len() {
        return Err(DecodeError::Trailing { at });
    }
    Ok(())
}

/// Structs that are decoded, one within the other.
pub(crate) struct Structs<'d, 'a> {
    pub(crate) table: &'d mut Decoding<'a>,
    pub(crate) reader: Reader<'a>,
}

/// Where a struct's straight line stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stand {
    /// Where the next field begins.
    pub(crate) at: usize,
    /// The id of the one before.
    pub(crate) last: i16,
}

impl<'a> Structs<'_, 'a> {
    /// A struct's fields, up to its end.
    pub(crate) fn fields(&mut self, place: Place<'_>) -> Result<(), DecodeError> {
        let mut last = 0;
        loop {
            let at = self.reader.at;
            let Some(header) = self.reader.field(last)? else { break };
            last = header.id;
            self.either(place, header, at)?;
        }
        self.table.check_required(place)
    }

    /// The same, until a field comes that the straight line does, unless it stands where that line has `refused` one:
    /// its place in the schema, and where the line stands then; at the struct's end no place.
    pub(crate) fn until_straight(
        &mut self,
        place: Place<'_>,
        mut last: i16,
        refused: usize,
    ) -> Result<(Option<usize>, Stand), DecodeError> {
        loop {
            let at = self.reader.at;
            let Some(header) = self.reader.field(last)? else { break };
            let is_refused = at == refused;
            match place.schema.place(u32::from(header.id as u16)) {
                Some(index) if !is_refused && self.is_straight(&place.schema.fields[index], header, at) => {
                    return Ok((Some(index), Stand { at, last }));
                }
                _ => self.either(place, header, at)?,
            }
            last = header.id;
        }
        self.table.check_required(place)?;
        Ok((None, Stand { at: self.reader.at, last }))
    }

    /// Whether the straight line does a field that came so: of `TCompact` where its id is a step from the one before, and
    /// the id 0, with which what a method gives begins.
    fn is_straight(&self, field: &Field, header: Header, at: usize) -> bool {
        let is_short = self.reader.protocol == Protocol::Binary || header.id == 0 || self.reader.at - at == 1;
        is_short && has_line(self.table.types, field) && wire_of(self.table.types, field) == header.wire
    }

    /// One field, known or not.
    fn either(&mut self, place: Place<'_>, header: Header, at: usize) -> Result<(), DecodeError> {
        if !self.field(place, header)? {
            self.unknown(place, header, at)?;
        }
        Ok(())
    }

    /// One field, whose header was read, if the schema has one of this id and of its type; otherwise nothing is done.
    fn field(&mut self, place: Place<'_>, header: Header) -> Result<bool, DecodeError> {
        let Some(index) = place.schema.place(u32::from(header.id as u16)) else {
            return Ok(false);
        };
        let field = &place.schema.fields[index];
        if wire_of(self.table.types, field) != header.wire {
            return Ok(false);
        }
        if field.shape.is_many() {
            return self.container(place, field);
        }
        let bits = match header.truth {
            Some(truth) => truth.into(),
            None => self.value(field, place.depth_left)?,
        };
        self.put(place, field, width(field.kind), bits);
        Ok(true)
    }

    /// Keeps a field that the schema does not know.
    fn unknown(&mut self, place: Place<'_>, header: Header, at: usize) -> Result<(), DecodeError> {
        let from = self.reader.at;
        if header.truth.is_none() {
            self.reader.skip(header.wire, place.depth_left)?;
        }
        let until = self.reader.at;
        match self.reader.protocol {
            Protocol::Binary => self.table.unknown(place, at, until),
            Protocol::Compact => {
                let (said, said_bytes) = whole_header(header);
                let kept_bytes = said_bytes + until - from;
                let kept = self.table.memory.allocate(kept_bytes as u32)?;
                let room = &mut self.table.memory.bytes[kept as usize..][..kept_bytes];
                room[..said_bytes].copy_from_slice(&said[..said_bytes]);
                room[said_bytes..].copy_from_slice(&self.reader.input[from..until]);
                self.table.run(place, at, Span { at: kept | IN_ARENA, len: kept_bytes as u32 })
            }
        }
    }

    /// A list, set or map, unless its elements are of another type than the schema says: then reading stands where it stood.
    fn container(&mut self, place: Place<'_>, field: &Field) -> Result<bool, DecodeError> {
        let start = self.reader.at;
        let read = if field.shape == Shape::Map { self.map(place, field)? } else { self.list(place, field)? };
        match read {
            Some(span) => self.put(place, field, 8, span.word()),
            None => self.reader.at = start,
        }
        Ok(read.is_some())
    }

    fn list(&mut self, place: Place<'_>, field: &Field) -> Result<Option<Span>, DecodeError> {
        let (wire, count) = self.reader.elements()?;
        if count > 0 && wire != Some(wire_of_one(self.table.types, field)) {
            return Ok(None);
        }
        let size = width(field.kind);
        let at = self.room(count, size)?;
        for index in 0..count {
            let bits = self.value(field, place.depth_left)?;
            self.element(at, index, size, bits);
        }
        Ok(Some(Span { at, len: count }))
    }

    fn map(&mut self, place: Place<'_>, field: &Field) -> Result<Option<Span>, DecodeError> {
        let (key, value, count) = self.reader.entries()?;
        let types: &'a Types = self.table.types;
        let schema = &types.types[field.sub as usize];
        let [of_key, of_value] = &*schema.fields else {
            unreachable!("an entry has a key and a value, as the layout makes it")
        };
        let expected = [of_key, of_value].map(|field| Some(wire_of_one(self.table.types, field)));
        if count > 0 && [key, value] != expected {
            return Ok(None);
        }
        let at = self.room(count, width(field.kind))?;
        for index in 0..count {
            let slots = self.table.memory.allocate(schema.slot_bytes)?;
            let entry = Place { schema, slots, depth_left: place.depth_left };
            for field in [of_key, of_value] {
                let bits = self.value(field, place.depth_left)?;
                self.put(entry, field, width(field.kind), bits);
            }
            self.element(at, index, width(field.kind), slots.into());
        }
        Ok(Some(Span { at, len: count }))
    }

    /// Room for so many elements, which the arena may still grow by one at a time.
    fn room(&mut self, count: u32, size: u32) -> Result<Offset, DecodeError> {
        Ok(self.table.memory.room_for(0, 0, count.into(), size)?)
    }

    fn element(&mut self, at: Offset, index: u32, size: u32, bits: u64) {
        write(&mut self.table.memory.bytes[(at + index * size) as usize..], size, bits);
    }

    /// Writes a field's slot, and that it is there.
    fn put(&mut self, place: Place<'_>, field: &Field, size: u32, bits: u64) {
        self.table.mark(place, field, true);
        write(&mut self.table.memory.bytes[(place.slots + field.slot) as usize..], size, bits);
    }

    /// One value, as its slot has it.
    fn value(&mut self, field: &Field, depth_left: u16) -> Result<u64, DecodeError> {
        let at = self.reader.at;
        let of_text =
            |text: &[u8], end: usize| Span { at: (end - text.len()) as u32, len: text.len() as u32 }.word();
        match wire_of_one(self.table.types, field) {
            Wire::Bool => Ok(self.reader.truth()?.into()),
            Wire::I8 => Ok(self.reader.byte()?.into()),
            Wire::I16 => Ok((i32::from(self.reader.i16()?) as u32).into()),
            Wire::I32 => Ok((self.reader.i32()? as u32).into()),
            Wire::I64 => Ok(self.reader.i64()? as u64),
            Wire::Double => self.reader.double(),
            Wire::Uuid => Ok(of_text(self.reader.take(16)?, self.reader.at)),
            Wire::Bytes => {
                let text = self.reader.text()?;
                let is_text = field.kind == Kind::String && field.utf8 == Utf8::Checked;
                if is_text && std::str::from_utf8(text).is_err() {
                    return Err(DecodeError::NotUtf8 { number: field.number, at });
                }
                Ok(of_text(text, self.reader.at))
            }
            Wire::Struct | Wire::List | Wire::Set | Wire::Map => self.nested(field, depth_left),
        }
    }

    /// A struct or container within, for which `depth_left` is asked.
    fn nested(&mut self, field: &Field, depth_left: u16) -> Result<u64, DecodeError> {
        let at = self.reader.at;
        let depth_left = depth_left.checked_sub(1).ok_or(DecodeError::TooDeep { at })?;
        let types: &'a Types = self.table.types;
        let schema = &types.types[field.sub as usize];
        let slots = self.table.memory.allocate(schema.slot_bytes)?;
        let place = Place { schema, slots, depth_left };
        if !schema.is_container {
            self.fields(place)?;
        } else if !self.container(place, &schema.fields[0])? {
            return Err(DecodeError::WrongType { at });
        }
        Ok(slots.into())
    }
}
