//! Messages of types that are known at run time only, read and filled field by field: what the faces in other languages
//! are made of.
//!
//! Invariant: a field is said by its place in its type's schema, and looked at on each call; what does not fit it is
//! refused and changes nothing. So no caller has the slot of one field read as that of another one.

mod edit;
mod node;
mod path;
mod scalar;

pub use edit::{begin, Editor};
pub use node::{Dynamic, Node};
pub use path::{missing, path_at};
pub use scalar::Scalar;

use crate::error::{DecodeError, Exhausted};
use thiserror::Error;

/// Why a value is not one of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Misfit {
    /// The set has no type at this place.
    #[error("there is no such type")]
    NoType,
    /// The type has no field at this place.
    #[error("the type has no such field")]
    NoField,
    /// A field of one value is asked for many, or the reverse.
    #[error("the field has many values, and was used as one of one, or the reverse")]
    Count,
    /// There are not so many values.
    #[error("the field has not so many values")]
    NoElement,
    /// The message within is not there.
    #[error("the message is not there")]
    Absent,
    /// A value of another kind.
    #[error("the field is of another kind")]
    Kind,
    /// A number beyond the field's bits.
    #[error("the number is beyond what the field holds")]
    Range,
    /// A number that a closed enumeration does not have.
    #[error("the enumeration has no such number")]
    NotInEnum,
    /// A string that is not UTF-8.
    #[error("the string is no UTF-8")]
    NotUtf8,
    /// Messages in messages, deeper than was allowed.
    #[error("deeper than the limit")]
    TooDeep,
    /// What is to be kept of unknown fields is none.
    #[error("these are no unknown fields: {0}")]
    Unknown(DecodeError),
    /// A node of a message that was decoded or emptied since.
    #[error("the node is of a message that was decoded or cleared since")]
    Stale,
    /// See there.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}
