//! Stamps to stage times to OTLP: the record of one call, its file and wire form, and the bars that
//! show where its time went.
//!
//! Invariant: the nine stages of a record sum to its duration (see [`MeasuredCall::sum_is_right`]), and
//! nothing here ever makes a request wait: what cannot be written is dropped and counted.
#![forbid(unsafe_code)]

mod complaint;
mod endpoint;
mod otlp;
mod reader;
mod record;
mod render;
mod report;
mod writer;

pub use endpoint::{Endpoint, EndpointError};
pub use otlp::{decode_line, encode_line, encode_request, DecodeError, Decoded, Resource};
pub use reader::{read_calls, read_file, DamagedLine, ReadSummary, DAMAGED_LINES_MAX, LINE_BYTES_MAX};
pub use record::{
    AnsweredBy, CallRecord, Ids, MeasuredCall, RecordedKey, SourceSet, Sources, SpanId, TraceId,
};
pub use render::{render_comparison, render_report, Style};
pub use report::{MethodReport, Percentile, Report, ReportBuilder, Row, METHODS_MAX, SAMPLES_MAX};
pub use writer::{TraceCounts, TraceHandle, TraceWriter, WriterOptions};
