//! Why bytes are no message.

use thiserror::Error;

/// The arena may hold no more: its own bound, or that of the message's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the arena may hold no more; give it a higher limit, or reset it after each message")]
pub struct Exhausted;

/// Why bytes were not decoded, and where: `at` counts bytes from the beginning of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A field, or what it says of its length, ends behind the message that it is in.
    #[error("byte {at}: the message ends within a field")]
    Cut {
        /// Where what does not end begins: a tag, a number or a length; of a group, where its end would be.
        at: usize,
    },
    /// A number of more than ten bytes, or a field's tag of more than five.
    #[error("byte {at}: a varint that does not end, or a tag beyond 32 bits")]
    Overlong {
        /// Where it begins.
        at: usize,
    },
    /// A field of number 0, or of a wire type that there is not.
    #[error("byte {at}: no field begins so")]
    NotAField {
        /// Where it begins.
        at: usize,
    },
    /// A group that ends without having begun, or that ends as another than it began.
    #[error("byte {at}: a group ends that did not begin")]
    GroupEnd {
        /// Where the end's tag is.
        at: usize,
    },
    /// A text that is not UTF-8.
    #[error("byte {at}: field {number} is no UTF-8")]
    NotUtf8 {
        /// The field's number.
        number: u32,
        /// Where its tag is.
        at: usize,
    },
    /// A packed field that ends within one of its numbers.
    #[error("byte {at}: packed field {number} ends within a number")]
    Packed {
        /// The field's number.
        number: u32,
        /// Where its tag is.
        at: usize,
    },
    /// A required field is not there (proto2).
    #[error("required field {number} is not there")]
    Missing {
        /// The first such field's number.
        number: u32,
    },
    /// Messages in messages, deeper than `Limits::depth_max`.
    #[error("byte {at}: deeper than the limit")]
    TooDeep {
        /// Where the message begins that is too deep.
        at: usize,
    },
    /// More bytes than `Limits::message_bytes_max`.
    #[error("the message is longer than the limit")]
    TooLarge,
    /// More runs of unknown fields than `Limits::unknown_fields_max`.
    #[error("byte {at}: more unknown fields than the limit")]
    TooManyUnknown {
        /// Where the first one too many is.
        at: usize,
    },
    /// See there.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}
