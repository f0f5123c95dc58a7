//! OTLP's bytes to columns: the few messages that the study reads, field by field, without building them.
//!
//! Invariant: whatever the bytes, the outcome is rows and troubles, of which each record is in exactly one; work and
//! memory grow with the bytes and the rows asked for.

mod columns;
mod json;
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
