//! Fields in any order, one behind the other, without a branch on which they are.
//!
//! The straight line foresees which field is next; where most are absent nobody can, and each one that is there costs a
//! misprediction. Here a table says what becomes of a field's value, so that fields of different kinds take the same
//! instructions. It costs about twice those of the line, and pays where few fields are there, or where they are in an
//! order of their own.
//!
//! Invariant: what is not simple changes nothing, and is left to others: many values, messages, members of a oneof,
//! numbers of more than eight bytes, texts that are long or not ASCII, zeros that have to be absent, values that the
//! application converts.

use super::path::Path;
use super::read::slot_checked;
use super::word::{bytes_within, word_within, MASKS, STOPS};
use crate::arena::{Memory, Offset, FIRST};
use crate::message::Type;
use crate::protobuf::decode::wire_of;
use crate::protobuf::wire::Wire;
use crate::schema::{Field, Kind, Shape, Utf8, NONE};
use crate::slots::{width, SLACK};
use std::hint::select_unpredictable;
use std::marker::PhantomData;

/// Fields with lower numbers are looked up.
const NUMBERS_MAX: usize = 64;

/// So many bytes from where a field begins are within the input: tag, number and a text that is looked at.
const LOOKED_AT: usize = 2 + 9 + SLACK;

/// What becomes of a field.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// What its tag says beside the number; of what is not simple a wire type that there is not.
    wire: u8,
    /// Its place among `CLASSES`.
    class: u8,
    slot: u16,
    /// Where its word of presence bits begins, and which bit is its own.
    presence: u16,
    bit: u8,
    may_be_zero: bool,
}

const NOT_SIMPLE: Entry = Entry { wire: u8::MAX, class: 0, slot: 0, presence: 0, bit: 0, may_be_zero: false };

/// What becomes of a type's fields, by their numbers.
///
/// Invariant: slots and presence bits lie within the first `slot_bytes` of a message's slots.
pub(super) struct Entries<E: ?Sized = [Entry]> {
    slot_bytes: u32,
    of: E,
}

/// Those of a type.
pub(super) struct EntriesOf<T>(PhantomData<T>);

impl<T: Type> EntriesOf<T> {
    /// As few as its numbers need, roughly: each type of a program has some, and most have few numbers.
    pub(super) const ALL: &'static Entries = match numbers(T::FIELDS) {
        0 => &FirstOf::<T, 0>::ENTRIES,
        1..=4 => &FirstOf::<T, 4>::ENTRIES,
        5..=8 => &FirstOf::<T, 8>::ENTRIES,
        9..=12 => &FirstOf::<T, 12>::ENTRIES,
        13..=16 => &FirstOf::<T, 16>::ENTRIES,
        17..=24 => &FirstOf::<T, 24>::ENTRIES,
        25..=32 => &FirstOf::<T, 32>::ENTRIES,
        33..=48 => &FirstOf::<T, 48>::ENTRIES,
        _ => &FirstOf::<T, NUMBERS_MAX>::ENTRIES,
    };
}

/// Those of the fields of a type with the lowest numbers.
struct FirstOf<T, const NUMBERS: usize>(PhantomData<T>);

impl<T: Type, const NUMBERS: usize> FirstOf<T, NUMBERS> {
    const ENTRIES: Entries<[Entry; NUMBERS]> = {
        assert!(T::UNKNOWN_SLOT <= T::SLOT_BYTES);
        let mut of = [NOT_SIMPLE; NUMBERS];
        let mut index = 0;
        while index < T::FIELDS.len() {
            let field = slot_checked::<T>(index);
            if (field.number as usize) < NUMBERS && is_simple(&field) {
                assert!((field.presence as u32) < T::UNKNOWN_SLOT * 8);
                of[field.number as usize] = entry(&field);
            }
            index += 1;
        }
        Entries { slot_bytes: T::SLOT_BYTES, of }
    };
}

/// How many numbers are looked up: up to the highest one of a simple field.
const fn numbers(fields: &[Field]) -> usize {
    let (mut numbers, mut index) = (0, 0);
    while index < fields.len() {
        let number = fields[index].number as usize;
        if number < NUMBERS_MAX && number >= numbers && is_simple(&fields[index]) {
            numbers = number + 1;
        }
        index += 1;
    }
    numbers
}

const fn is_simple(field: &Field) -> bool {
    let is_single = !field.shape.is_many() && field.oneof == NONE;
    is_single
        && field.converter == 0
        && field.slot <= u16::MAX as u32
        && !matches!(field.kind, Kind::Message | Kind::Group | Kind::ClosedEnum)
}

const fn entry(field: &Field) -> Entry {
    // A string that nobody looks at is taken as bytes are.
    let is_unchecked = matches!((field.kind, field.utf8), (Kind::String, Utf8::Unchecked));
    Entry {
        wire: wire_of(field.kind).code() as u8,
        class: if is_unchecked { Kind::Bytes } else { field.kind } as u8,
        slot: field.slot as u16,
        presence: field.presence / 64 * 8,
        bit: (field.presence % 64) as u8,
        may_be_zero: !matches!(field.shape, Shape::Implicit),
    }
}

/// What becomes of a kind's numbers.
#[derive(Clone, Copy)]
struct Class {
    /// How many bytes of a number count, and the most that they count as: 1, or all bits.
    kept_bytes: u8,
    most: i8,
    /// All bits, if it is.
    is_zigzag: i8,
    width: u8,
    is_text: bool,
}

/// By kind.
static CLASSES: [Class; 32] = {
    let kinds = [
        Kind::Bool,
        Kind::Int32,
        Kind::Int64,
        Kind::Uint32,
        Kind::Uint64,
        Kind::Sint32,
        Kind::Sint64,
        Kind::Fixed32,
        Kind::Fixed64,
        Kind::Sfixed32,
        Kind::Sfixed64,
        Kind::Float,
        Kind::Double,
        Kind::Enum,
        Kind::String,
        Kind::Bytes,
    ];
    let mut all = [class(Kind::Bytes); 32];
    let mut index = 0;
    while index < kinds.len() {
        all[kinds[index] as usize] = class(kinds[index]);
        index += 1;
    }
    all
};

const fn class(kind: Kind) -> Class {
    let is_bool = matches!(kind, Kind::Bool);
    let width = width(kind);
    Class {
        kept_bytes: if is_bool { 8 } else { width as u8 },
        most: if is_bool { 1 } else { -1 },
        is_zigzag: if matches!(kind, Kind::Sint32 | Kind::Sint64) { -1 } else { 0 },
        width: width as u8,
        is_text: matches!(kind, Kind::String),
    }
}

/// A part of an input, and the slots of the message that it is of.
pub struct Loose<'l> {
    input: &'l [u8],
    at: usize,
    end: usize,
    /// As many slots as the entries say.
    room: *mut u8,
    /// Eight bytes of the arena that are nobody's: what is not as wide as a store is goes there.
    nowhere: *mut u8,
    entries: &'static [Entry],
}

impl<'l> Loose<'l> {
    /// Of a message of the type that the entries are of.
    pub(super) fn new(
        input: &'l [u8],
        at: usize,
        end: usize,
        slots: Offset,
        entries: &'static Entries,
        memory: &'l mut Memory,
    ) -> Self {
        let (nobodys, others) = memory.bytes.split_at_mut(FIRST as usize);
        let first = (slots - FIRST) as usize;
        let room = others[first..first + entries.slot_bytes as usize].as_mut_ptr();
        Loose { input, at, end, room, nowhere: nobodys.as_mut_ptr(), entries: &entries.of }
    }

    /// Decodes simple fields up to one that is not; where that begins, or the end.
    #[inline(always)]
    pub(crate) fn run<P: Path>(self, path: P) -> usize {
        let Loose { input, mut at, end, room, nowhere, entries } = self;
        let last = end.min((input.len() + 1).saturating_sub(LOOKED_AT));
        while at < last {
            // SAFETY: as many bytes as a field is looked at are within the input, see `last`.
            let word = unsafe { word_within(input, at) };
            let is_two = word >> 7 & 1;
            let tag = word & 0x7f | (word >> 1 & 0x7f80) & is_two.wrapping_neg();
            let Some(entry) = entries.get(tag as usize >> 3) else { break };
            if u64::from(entry.wire) != tag & 7 {
                break;
            }
            let class = &CLASSES[entry.class as usize % CLASSES.len()];
            let number_at = at + 1 + is_two as usize;
            // SAFETY: as above, behind the tag.
            let body = unsafe { word_within(input, number_at) };
            let (value, until) = if tag & 7 == Wire::Fixed32.code() {
                (body & MASKS[4], number_at + 4)
            } else if tag & 7 == Wire::Fixed64.code() {
                (body, number_at + 8)
            } else {
                let stops = !body & STOPS;
                if stops == 0 {
                    break;
                }
                let raw = path.gathered(body & (stops ^ stops.wrapping_sub(1)));
                let from = number_at + stops.trailing_zeros() as usize / 8 + 1;
                if tag & 7 == Wire::Varint.code() {
                    let kept = raw & MASKS[class.kept_bytes as usize % MASKS.len()];
                    let varint = kept.min(i64::from(class.most) as u64);
                    let zigzag = varint >> 1 ^ (varint & 1).wrapping_neg();
                    (varint ^ (varint ^ zigzag) & i64::from(class.is_zigzag) as u64, from)
                } else {
                    // SAFETY: as above, behind a number of at most nine bytes.
                    let text = unsafe { bytes_within(input, from) };
                    let is_short = raw <= SLACK as u64;
                    if class.is_text && !(is_short && path.is_ascii(text, raw as usize)) {
                        break;
                    }
                    if raw > (end - at) as u64 || raw == 0 && !entry.may_be_zero {
                        break;
                    }
                    (from as u64 | raw << 32, from + raw as usize)
                }
            };
            if until > end || value == 0 && !entry.may_be_zero {
                break;
            }
            // SAFETY: entries' slots and presence bits lie within the slots, as was asserted when they were made.
            unsafe {
                let slot = room.add(entry.slot as usize);
                let wide = select_unpredictable(class.width == 8, slot, nowhere);
                let half = select_unpredictable(class.width == 4, slot, nowhere);
                let byte = select_unpredictable(class.width == 1, slot, nowhere);
                wide.cast::<u64>().write_unaligned(value.to_le());
                half.cast::<u32>().write_unaligned((value as u32).to_le());
                byte.write(value as u8);
                let presence = room.add(entry.presence as usize).cast::<[u8; 8]>();
                let bits = u64::from_le_bytes(presence.read()) | 1 << (entry.bit % 64);
                presence.write(bits.to_le_bytes());
            }
            at = until;
        }
        at
    }
}

/// How many bytes a message of a type takes of which a little more than half of the fields are there: those of numbers
/// and texts as they mostly are. With fewer it is decoded without a guess which field is next.
pub(super) const fn sparse_bytes(fields: &[Field]) -> usize {
    let mut bytes = 0;
    let mut index = 0;
    while index < fields.len() {
        let field = &fields[index];
        if is_simple(field) {
            bytes += if field.number < 16 { 1 } else { 2 };
            bytes += match field.kind {
                Kind::Bool | Kind::Enum => 1,
                Kind::String | Kind::Bytes => 10,
                kind if matches!(wire_of(kind), Wire::Varint) => 3,
                kind => width(kind) as usize,
            };
        }
        index += 1;
    }
    bytes * 6 / 10
}
