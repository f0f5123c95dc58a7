//! The slots of one message, and what lies in them (Optimus Prime, 5.4: the address schema).
//!
//! ```text
//! presence: words of 64 bits | unknown fields: place, count | fields: 8, 4 and 1 byte each
//! ```
//!
//! A number is itself, a text, bytes and what is repeated are a place and a length of 32 bits each, a message is where
//! its slots begin. A text's place with its top bit set is in the arena, otherwise in the input.

use crate::schema::Kind;

/// The top bit of a text's place: it lies in the arena.
pub(crate) const IN_ARENA: u32 = 1 << 31;

/// Behind inputs and slots that are an arena's own there are so many bytes that are nobody's, so that short texts are read
/// and copied at once whatever their length.
pub(crate) const SLACK: usize = 64;

/// How many bytes a value takes: in a slot, or as an element.
pub const fn width(kind: Kind) -> u32 {
    match kind {
        Kind::Bool | Kind::Int8 => 1,
        Kind::Int32
        | Kind::Uint32
        | Kind::Sint32
        | Kind::Fixed32
        | Kind::Sfixed32
        | Kind::Float
        | Kind::Enum
        | Kind::ClosedEnum
        | Kind::Int16
        | Kind::Message
        | Kind::Group => 4,
        Kind::Int64
        | Kind::Uint64
        | Kind::Sint64
        | Kind::Fixed64
        | Kind::Sfixed64
        | Kind::Double
        | Kind::String
        | Kind::Bytes
        | Kind::Uuid => 8,
    }
}

/// A place and a length, as they lie in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Span {
    #[inline(always)]
    pub(crate) fn read(slot: &[u8]) -> Span {
        Span::of(number::<8>(slot))
    }

    /// That of a slot's word.
    #[inline(always)]
    pub(crate) fn of(word: u64) -> Span {
        Span { at: word as u32, len: (word >> 32) as u32 }
    }

    #[inline(always)]
    pub(crate) fn write(self, slot: &mut [u8]) {
        slot[..8].copy_from_slice(&self.word().to_le_bytes());
    }

    /// The same as one number.
    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.at) | u64::from(self.len) << 32
    }
}

/// The number that `N` bytes are.
#[inline(always)]
pub(crate) fn number<const N: usize>(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes[..N]);
    u64::from_le_bytes(word)
}
