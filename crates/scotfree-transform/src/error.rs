//! Why bytes are no message.

use thiserror::Error;

/// The arena may hold no more: its own bound, or that of the message's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the arena may hold no more than slots_bytes_max allows; raise that limit, or reset the arena after each message")]
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
    /// A number of more than ten bytes, or of more bits than its kind has, or a field's tag of more than five bytes.
    #[error("byte {at}: a varint that does not end, or that is longer than what it stands for")]
    Overlong {
        /// Where it begins.
        at: usize,
    },
    /// A field of number 0 (Protobuf) or beyond 16 bits (Thrift), or a type that the protocol has not.
    #[error("byte {at}: no field or container begins so")]
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
        /// Where its tag is; of Thrift, its length.
        at: usize,
    },
    /// A value that the converter of its registered kind does not take, or of a kind that has none.
    #[error("byte {at}: field {number} is none of its registered kind, or nobody has registered that")]
    Converted {
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
    /// A required field is not there (proto2, Thrift).
    #[error("required field {number} is not there")]
    Missing {
        /// The first such field's number.
        number: u32,
    },
    /// A length or count that is negative, or 2^31 or more (Thrift).
    #[error("byte {at}: a length that is negative or beyond 31 bits")]
    Length {
        /// Where it is.
        at: usize,
    },
    /// A bool that is neither true nor false (Thrift).
    #[error("byte {at}: neither true nor false")]
    NotABool {
        /// Where it is.
        at: usize,
    },
    /// A container within another one whose elements are of another type than the schema says (Thrift).
    #[error("byte {at}: elements of another type than the schema says")]
    WrongType {
        /// Where the inner container begins.
        at: usize,
    },
    /// Bytes behind a struct's end (Thrift).
    #[error("byte {at}: bytes behind the end")]
    Trailing {
        /// Where they begin.
        at: usize,
    },
    /// Not how a message of this protocol begins: another version, or a kind of message that there is not (Thrift).
    #[error("byte {at}: no message of this protocol begins so")]
    NotAnEnvelope {
        /// Where it differs.
        at: usize,
    },
    /// Messages in messages, deeper than `Limits::depth_max`.
    #[error("byte {at}: a message lies deeper than the limit, depth_max")]
    TooDeep {
        /// Where the message begins that is too deep.
        at: usize,
    },
    /// More bytes than `Limits::message_bytes_max`.
    #[error("the message is longer than the limit, message_bytes_max")]
    TooLarge,
    /// More runs of unknown fields than `Limits::unknown_fields_max`.
    #[error("byte {at}: more unknown fields than the limit, unknown_fields_max")]
    TooManyUnknown {
        /// Where the first one too many is.
        at: usize,
    },
    /// See there.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

impl DecodeError {
    /// The byte that it names, counted from the beginning of the message.
    pub fn at(&self) -> Option<usize> {
        match *self {
            DecodeError::Cut { at }
            | DecodeError::Overlong { at }
            | DecodeError::NotAField { at }
            | DecodeError::GroupEnd { at }
            | DecodeError::NotUtf8 { at, .. }
            | DecodeError::Converted { at, .. }
            | DecodeError::Packed { at, .. }
            | DecodeError::Length { at }
            | DecodeError::NotABool { at }
            | DecodeError::WrongType { at }
            | DecodeError::Trailing { at }
            | DecodeError::NotAnEnvelope { at }
            | DecodeError::TooDeep { at }
            | DecodeError::TooManyUnknown { at } => Some(at),
            DecodeError::Missing { .. } | DecodeError::TooLarge | DecodeError::Exhausted(_) => None,
        }
    }
}
