//! Messages between their bytes on the wire and slots in an arena, driven by schemata (Optimus Prime, 4.1.3, 5.4).
//!
//! Invariant: a message's slots hold no addresses: a text is where it begins and how long it is, in the message's input
//! or in its arena. So a message that was received is `'static + Send`, and moves between cores, rings and processes as
//! its bytes do.
#![deny(unsafe_code)]
// The straight line of a type is one function: what it calls is its parts.
#![allow(clippy::inline_always)]

mod arena;
mod debug;
pub mod descriptor;
pub mod dynamic;
mod edit;
mod error;
mod input;
mod kinds;
mod limits;
mod message;
pub mod owned;
#[doc(hidden)]
pub mod planted;
pub mod protobuf;
mod raw;
mod schema;
mod slots;
pub mod thrift;

pub use arena::Arena;
pub use error::{DecodeError, Exhausted};
pub use input::{Input, Padded};
pub use kinds::{register, Converter, RegisterError};
pub use limits::Limits;
pub use message::{Message, Type, Value, View};
pub use owned::Owned;
pub use raw::path::CpuPath;
pub use schema::{EnumSchema, Field, Kind, Need, Shape, TypeSchema, Types, Utf8, NONE};

/// What generated code calls. Not for others: it may change with every version.
#[doc(hidden)]
pub mod generated {
    pub use crate::edit::Edit;
    pub use crate::error::{DecodeError, Exhausted};
    pub use crate::message::Type;
    pub use crate::owned::{other, Merge, Plain, Within};
    pub use crate::protobuf::decode::in_slot;
    pub use crate::protobuf::visit::{is_of, Part, Raw, Visit};
    pub use crate::raw::frame::thrift::ThriftFrame;
    pub use crate::raw::frame::{Frame, DONE};
    pub use crate::raw::path::Path;
    pub use crate::raw::read::Slots;
    pub use crate::raw::writer::thrift::ThriftWriter;
    pub use crate::raw::writer::{Writer, NUMBER_BYTES_MAX};
    pub use crate::schema::{EnumSchema, Field, Kind, Need, Shape, TypeSchema, Types, Utf8, NONE};
    pub use crate::thrift::format::ThriftFormat;
    pub use std::borrow::Cow;
}
