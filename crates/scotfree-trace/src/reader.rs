//! Reads traces line by line, however large the file.
//!
//! Invariant: memory is bounded by one line of `LINE_BYTES_MAX`; a damaged line is counted and named by
//! its number, and reading goes on behind it.

use crate::otlp::decode_line;
use crate::record::MeasuredCall;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The longest line that is read; a longer one counts as damaged.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// How many damaged lines are named; all are counted.
pub const DAMAGED_LINES_MAX: usize = 16;

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: String,
}

/// What a file held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// Lines, also empty and damaged ones.
    pub line_count: u64,
    /// Calls handed on.
    pub call_count: u64,
    /// Spans that are not calls with stages.
    pub other_span_count: u64,
    /// Lines that could not be read.
    pub damaged_count: u64,
    /// The first of them.
    pub damaged: Vec<DamagedLine>,
}

/// Reads a file or a pipe and hands every call to `on_call`. A device, which need not end, is refused.
pub fn read_file(path: &Path, on_call: impl FnMut(MeasuredCall)) -> io::Result<ReadSummary> {
    let file = File::open(path)?;
    if file.metadata()?.file_type().is_char_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a device, not a file of OTLP JSON lines",
        ));
    }
    read_calls(BufReader::with_capacity(1 << 18, file), on_call)
}

/// Reads lines and hands every call to `on_call`.
pub fn read_calls(
    mut reader: impl BufRead,
    mut on_call: impl FnMut(MeasuredCall),
) -> io::Result<ReadSummary> {
    let mut summary = ReadSummary::default();
    let mut line = Vec::new();
    while let Some(is_whole) = next_line(&mut reader, &mut line)? {
        summary.line_count += 1;
        if !is_whole {
            summary.damage(format!("it is longer than {LINE_BYTES_MAX} bytes"));
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match decode_line(&line) {
            Err(error) => summary.damage(error.to_string()),
            Ok(decoded) => {
                summary.other_span_count += decoded.other_span_count;
                summary.call_count += decoded.calls.len() as u64;
                decoded.calls.into_iter().for_each(&mut on_call);
            }
        }
    }
    Ok(summary)
}

impl ReadSummary {
    fn damage(&mut self, problem: String) {
        self.damaged_count += 1;
        if self.damaged.len() < DAMAGED_LINES_MAX {
            self.damaged.push(DamagedLine { line: self.line_count, problem });
        }
    }
}

/// Reads the next line into `line`; says whether it fitted, or nothing at the end.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    reader.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') || line.len() <= LINE_BYTES_MAX {
        return Ok(Some(true));
    }
    skip_line(reader)?;
    Ok(Some(false))
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let used = newline.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        if newline.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../tests/expected/full_call.jsonl");

    #[test]
    fn a_device_is_refused_since_it_need_not_end() {
        let error = read_file(Path::new("/dev/zero"), |_| ()).expect_err("it never ends");
        assert!(error.to_string().contains("device"), "{error}");
    }

    #[test]
    fn a_damaged_line_is_named_and_the_rest_is_read() {
        let torn = &GOOD[..GOOD.len() / 2];
        let text = format!("{GOOD}\n{torn}\n{GOOD}{torn}");
        let mut calls = 0;
        let summary = read_calls(text.as_bytes(), |_| calls += 1).expect("memory reads");
        assert_eq!((calls, summary.call_count, summary.line_count), (2, 2, 5));
        assert_eq!(summary.damaged_count, 2);
        let lines: Vec<u64> = summary.damaged.iter().map(|damaged| damaged.line).collect();
        assert_eq!(lines, [3, 5]);
    }

    #[test]
    fn an_endless_line_is_skipped_in_bounded_memory() {
        let endless = io::repeat(b'x').take(3 * LINE_BYTES_MAX as u64);
        let text = endless.chain(&b"\n"[..]).chain(GOOD.as_bytes());
        let summary = read_calls(BufReader::new(text), |_| ()).expect("memory reads");
        assert_eq!((summary.call_count, summary.damaged_count, summary.line_count), (1, 1, 2));
    }

    #[test]
    fn only_the_first_damaged_lines_are_named_but_all_are_counted() {
        let text = "x\n".repeat(100);
        let summary = read_calls(text.as_bytes(), |_| ()).expect("memory reads");
        assert_eq!((summary.damaged_count, summary.damaged.len()), (100, DAMAGED_LINES_MAX));
    }
}
