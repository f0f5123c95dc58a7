//! OTLP's bytes to columns: the few messages that the study reads, field by field, without building them.
//!
//! Invariant: whatever the bytes, the outcome is rows and troubles, of which each record is in exactly one; work and
//! memory grow with the bytes and the rows asked for.

// An attribute is read in one function: what it calls is its parts.
#[allow(clippy::inline_always)]
mod attribute;
mod columns;
mod json;
#[allow(dead_code, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
mod messages;
mod metrics;
mod row;
mod said;
mod signal;
mod spans;
mod table;
mod trouble;
mod wire;

pub use columns::{Bitmap, Column, Texts};
pub use json::{from_json, Broken, Transcoded};
pub use metrics::{MetricColumns, MetricDecoder, STREAMS_MAX};
pub use signal::{signal, Signal};
pub use spans::{SpanColumns, SpanDecoder};
pub use table::{AttributeTable, Pairs};
pub use trouble::{Trouble, Troubles};
