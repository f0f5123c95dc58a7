//! The slots of a message of a known type, to be read.
//!
//! Invariant: `room` points at `T::SLOT_BYTES` bytes of `memory`, which the decoder of `T` has written.

use crate::arena::Offset;
use crate::message::{Type, View};
use crate::planted::{self, Fault};
use crate::schema::{Field, Kind, Shape, Utf8};
use crate::slots::{number, width, Span, IN_ARENA};
use std::borrow::Cow;
use std::marker::PhantomData;

/// See above.
pub struct Slots<'m, T: Type> {
    pub(crate) memory: &'m [u8],
    pub(crate) input: &'m [u8],
    pub(super) room: *const u8,
    pub(super) of: PhantomData<fn() -> T>,
}

// SAFETY: it is a shared reference to bytes.
unsafe impl<T: Type> Send for Slots<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Type> Sync for Slots<'_, T> {}

impl<T: Type> Clone for Slots<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Type> Copy for Slots<'_, T> {}

impl<'m, T: Type> Slots<'m, T> {
    /// Those at `slots`, where a message of this type was decoded to.
    #[inline(always)]
    pub(crate) fn new(memory: &'m [u8], input: &'m [u8], slots: Offset) -> Self {
        let at = slots as usize;
        let room = memory[at..at + T::SLOT_BYTES as usize].as_ptr();
        Slots { memory, input, room, of: PhantomData }
    }

    /// The same as the table has it.
    pub fn view(self) -> View<'m> {
        let types = T::types();
        let slots = (self.room as usize - self.memory.as_ptr() as usize) as Offset;
        View { types, schema: &types.types[T::INDEX as usize], memory: self.memory, input: self.input, slots }
    }

    /// A word of presence bits.
    #[inline(always)]
    pub fn presence<const WORD: usize>(self) -> u64 {
        const { assert!(WORD * 8 + 8 <= T::SLOT_BYTES as usize) };
        // SAFETY: within the slots, as was asserted; any bytes are a number.
        u64::from_le(unsafe { self.room.add(WORD * 8).cast::<u64>().read_unaligned() })
    }

    /// Whether a field is there.
    #[inline(always)]
    pub fn has<const I: usize>(self) -> bool {
        let bit = const { T::FIELDS[I].presence };
        // SAFETY: presence bits lie at the beginning of the slots; `Type` says so many words of them.
        let byte = unsafe { self.room.add(bit as usize / 8).read() };
        byte >> (bit % 8) & 1 == 1
    }

    /// Whether there are fields that the schema does not know.
    #[inline(always)]
    pub(crate) fn has_unknown(self) -> bool {
        const { assert!(T::UNKNOWN_SLOT + 8 <= T::SLOT_BYTES) };
        // SAFETY: within the slots, as was asserted; any bytes are a number.
        unsafe { self.room.add(T::UNKNOWN_SLOT as usize + 4).cast::<u32>().read_unaligned() != 0 }
    }

    /// Where these are, and how many.
    #[inline(always)]
    pub(crate) fn unknown(self) -> Span {
        // SAFETY: as of `has_unknown`.
        let word = unsafe { self.room.add(T::UNKNOWN_SLOT as usize).cast::<u64>().read_unaligned() };
        Span::of(u64::from_le(word))
    }

    /// What is in a field's slot: zero, if it was never set.
    #[inline(always)]
    pub fn bits<const I: usize>(self) -> u64 {
        let field = const { slot_checked::<T>(I) };
        // SAFETY: within the slots, as is asserted when this is compiled.
        unsafe {
            let slot = self.room.add(field.slot as usize);
            match field.slot_width() {
                1 => u64::from(slot.read()),
                4 => u64::from(u32::from_le(slot.cast::<u32>().read_unaligned())),
                _ => u64::from_le(slot.cast::<u64>().read_unaligned()),
            }
        }
    }

    /// What is in a field's slot, or nothing where it is not there: only of a oneof, whose members share theirs, it has to
    /// be asked.
    #[inline(always)]
    pub fn bits_if_there<const I: usize>(self) -> u64 {
        if const { T::FIELDS[I].oneof == crate::schema::NONE } || self.has::<I>() {
            self.bits::<I>()
        } else {
            0
        }
    }

    /// The bytes that a slot's span names.
    #[inline(always)]
    pub fn bytes<const I: usize>(self) -> &'m [u8] {
        if const { T::FIELDS[I].oneof != crate::schema::NONE } && !self.has::<I>() {
            return &[];
        }
        self.spanned(self.bits::<I>())
    }

    #[inline(always)]
    pub(crate) fn spanned(self, word: u64) -> &'m [u8] {
        let (whole, at, len) = self.placed(word);
        &whole[at..at + len]
    }

    /// What a span's bytes lie in, where, and how many they are.
    #[inline(always)]
    pub(crate) fn placed(self, word: u64) -> (&'m [u8], usize, usize) {
        let span = Span::of(word);
        let whole = if span.at & IN_ARENA == 0 { self.input } else { self.memory };
        (whole, (span.at & !IN_ARENA) as usize, span.len as usize)
    }

    /// A string whose bytes were looked at when it was decoded.
    #[inline(always)]
    pub fn text<const I: usize>(self) -> &'m str {
        const { assert!(is_checked(&T::FIELDS[I])) };
        // SAFETY: whoever wrote a span into the slot of such a field has looked whether its bytes are UTF-8.
        unsafe { std::str::from_utf8_unchecked(self.bytes::<I>()) }
    }

    /// A string whose bytes nobody has looked at: where they are not UTF-8, with replacement characters.
    pub fn lossy<const I: usize>(self) -> Cow<'m, str> {
        String::from_utf8_lossy(self.bytes::<I>())
    }

    /// A message within this one.
    #[inline(always)]
    pub fn message<const I: usize, C: Type>(self) -> Option<Slots<'m, C>> {
        const { assert!(T::FIELDS[I].sub == C::INDEX) };
        self.has::<I>().then(|| Slots::new(self.memory, self.input, self.bits::<I>() as Offset))
    }

    /// How many values a repeated field has.
    #[inline(always)]
    pub fn count<const I: usize>(self) -> usize {
        (self.bits::<I>() >> 32) as usize
    }

    /// The bits of a value of a repeated field.
    #[inline(always)]
    pub fn element<const I: usize>(self, index: usize) -> u64 {
        let field = const { T::FIELDS[I] };
        let (word, size) = (self.bits::<I>(), width(field.kind) as usize);
        assert!(index < (word >> 32) as usize);
        let is_turned = planted::is(Fault::MapFirstWins) && matches!(field.shape, Shape::Map);
        let index = if is_turned { (word >> 32) as usize - 1 - index } else { index };
        let at = word as u32 as usize + index * size;
        match size {
            1 => u64::from(self.memory[at]),
            4 => number::<4>(&self.memory[at..at + 4]),
            _ => number::<8>(&self.memory[at..at + 8]),
        }
    }

    /// A message of a repeated field.
    #[inline(always)]
    pub fn element_message<const I: usize, C: Type>(self, index: usize) -> Slots<'m, C> {
        const { assert!(T::FIELDS[I].sub == C::INDEX) };
        Slots::new(self.memory, self.input, self.element::<I>(index) as Offset)
    }

    /// The bytes of a value of a repeated field.
    #[inline(always)]
    pub fn element_bytes<const I: usize>(self, index: usize) -> &'m [u8] {
        self.spanned(self.element::<I>(index))
    }

    /// A string of a repeated field whose bytes nobody has looked at.
    pub fn element_lossy<const I: usize>(self, index: usize) -> Cow<'m, str> {
        String::from_utf8_lossy(self.element_bytes::<I>(index))
    }

    /// A string of a repeated field.
    #[inline(always)]
    pub fn element_text<const I: usize>(self, index: usize) -> &'m str {
        const { assert!(is_checked(&T::FIELDS[I])) };
        // SAFETY: as of `text`.
        unsafe { std::str::from_utf8_unchecked(self.spanned(self.element::<I>(index))) }
    }
}

const fn is_checked(field: &Field) -> bool {
    matches!((field.kind, field.utf8), (Kind::String, Utf8::Checked))
}

/// A field whose slot is within its type's.
pub(super) const fn slot_checked<T: Type>(index: usize) -> Field {
    let field = T::FIELDS[index];
    assert!(field.slot + field.slot_width() <= T::SLOT_BYTES);
    field
}
