//! A span's own fields, and what of them must be as OTLP says for it to become a row.
//!
//! Invariant: a row has ids that are ids, and does not end before it starts.

/// A span's own fields, as far as they were read.
#[derive(Debug, Default)]
pub(super) struct Own<'a> {
    pub trace_id: &'a [u8],
    pub span_id: &'a [u8],
    pub parent_id: &'a [u8],
    pub name: &'a [u8],
    pub kind: u64,
    pub start: u64,
    pub end: u64,
    pub status_code: u64,
    pub message: &'a [u8],
}

/// What of a span must be as OTLP says.
pub(super) struct Row {
    pub span_id: i64,
    /// An error if it is no id.
    pub parent: Result<Option<i64>, ()>,
    pub start_ns: i64,
    pub duration_ns: i64,
}

impl Row {
    pub fn of(own: &Own<'_>) -> Result<Row, &'static str> {
        if own.trace_id.len() != 16 || own.trace_id == [0; 16] {
            return Err("a trace's id is not of 16 bytes, or zero");
        }
        let span_id =
            id(own.span_id).filter(|id| *id != 0).ok_or("a span's id is not of 8 bytes, or zero")?;
        let parent = match own.parent_id {
            [] => Ok(None),
            bytes => id(bytes).map(|id| (id != 0).then_some(id)).ok_or(()),
        };
        let (start_ns, duration_ns) = times(own.start, own.end)?;
        Ok(Row { span_id, parent, start_ns, duration_ns })
    }
}

fn id(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

fn times(start: u64, end: u64) -> Result<(i64, i64), &'static str> {
    if start == 0 || end == 0 {
        return Err("a start or an end is missing");
    }
    let (Ok(start_ns), Ok(end_ns)) = (i64::try_from(start), i64::try_from(end)) else {
        return Err("a time is beyond the year 2262");
    };
    if end_ns < start_ns {
        return Err("it ends before it starts");
    }
    Ok((start_ns, end_ns - start_ns))
}
