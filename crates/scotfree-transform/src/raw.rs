//! What is not checked again at each access, with the reason why it need not be.
//!
//! Invariant: slots are written by this crate alone. Generated code says a field by its place in the type's schema, whose
//! kind and shape are asserted when it is compiled, so that what a slot is read as is what was written to it. That
//! `Type` says what its layout is, and that a line looks and makes room where it has to, is the generator's; who writes
//! these by hand, against the documentation, is trusted alike.
#![allow(unsafe_code)]

pub(crate) mod frame;
pub(crate) mod loose;
pub(crate) mod path;
pub(crate) mod read;
pub(crate) mod text;
pub(crate) mod word;
pub(crate) mod writer;
