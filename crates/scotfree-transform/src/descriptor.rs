//! Types from what a Protobuf compiler says of its files: a `FileDescriptorSet`, as bytes.

mod features;
mod layout;
mod read;

pub(crate) use layout::{dense, presence, slots};
pub use layout::{types_of, Loaded};
pub use read::{read, DescriptorError, EnumDescription, FieldDescription, File, MessageDescription};
