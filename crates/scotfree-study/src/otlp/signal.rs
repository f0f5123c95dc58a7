//! Tells what a message of OTLP carries by its first record.
//!
//! Invariant: a beginning of a message that reaches into its first record is enough.

use super::wire::{Damage, Fields, Value};

/// What a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Points of metrics.
    Metrics,
}

/// The signal of a message or of its beginning; none if it has no record or is no such message.
pub fn signal(message: &[u8]) -> Option<Signal> {
    // All signals are resources of scopes of records.
    find(message, &[1, 2, 2], false)
}

fn find(message: &[u8], path: &[u32], is_cut: bool) -> Option<Signal> {
    let [number, rest @ ..] = path else { return signal_of_record(message, is_cut) };
    for field in Fields::new(message) {
        let (found, bytes, is_cut) = match field {
            Ok((found, Value::Bytes(bytes))) => (found, bytes, is_cut),
            Err(Damage::Cut(found, bytes)) => (found, bytes, true),
            _ => continue,
        };
        if let Some(signal) = (found == *number).then(|| find(bytes, rest, is_cut)).flatten() {
            return Some(signal);
        }
    }
    None
}

/// A span has its times where a metric has its sum, and some fields that no metric has. Of one that is cut off
/// before, the length of its first field tells, which alone is not enough: a metric's name may have as many bytes
/// as a trace's id. The cut may also be between two fields, where the record itself does not show it.
fn signal_of_record(record: &[u8], mut is_cut: bool) -> Option<Signal> {
    let (mut has_trace, mut has_points) = (false, false);
    for field in Fields::new(record) {
        match field {
            Ok((7 | 8, Value::Fixed64(_)) | (4, Value::Bytes(_)) | (6, Value::Varint(_)) | (13..=16, _)) => {
                return Some(Signal::Traces);
            }
            Ok((7, Value::Bytes(_))) => return Some(Signal::Metrics),
            Ok((1, Value::Bytes(bytes))) => has_trace = bytes.len() == 16,
            Ok((5 | 9 | 10 | 11, Value::Bytes(_))) => has_points = true,
            Ok(_) => {}
            Err(damage) => {
                is_cut = true;
                has_points |= matches!(damage, Damage::Cut(5 | 7 | 9 | 10 | 11, _));
            }
        }
    }
    match (is_cut && has_trace, has_points) {
        (true, _) => Some(Signal::Traces),
        (_, true) => Some(Signal::Metrics),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(number: u8, message: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, message.len() as u8], message].concat()
    }

    fn request(record: &[u8]) -> Vec<u8> {
        let scope = wrapped(2, &wrapped(2, record));
        wrapped(1, &[wrapped(1, b""), scope].concat())
    }

    #[test]
    fn the_first_record_tells() {
        let start = [&[7 << 3 | 1][..], &[5; 8]].concat();
        let span = [wrapped(1, &[7; 16]), wrapped(2, &[8; 8]), start].concat();
        let gauge = [wrapped(1, b"cpu"), wrapped(5, b"")].concat();
        assert_eq!(signal(&request(&span)), Some(Signal::Traces));
        assert_eq!(signal(&request(&span)[..34]), Some(Signal::Traces));
        assert_eq!(signal(&request(&gauge)), Some(Signal::Metrics));
        assert_eq!(signal(&request(&[&gauge[..], &wrapped(9, b"")].concat())), Some(Signal::Metrics));
        let sum = [wrapped(1, b"process.cpu.time"), wrapped(2, b"CPU time"), wrapped(7, b"")].concat();
        assert_eq!(signal(&request(&sum)), Some(Signal::Metrics));
        assert_eq!(signal(&[request(&[]), request(&span)].concat()), Some(Signal::Traces));
    }

    /// Its name is where a metric has a gauge.
    #[test]
    fn a_span_is_one_wherever_it_is_cut_off_and_without_its_times() {
        let start = [&[7 << 3 | 1][..], &[5; 8]].concat();
        let span = [wrapped(1, &[7; 16]), wrapped(2, &[8; 8]), wrapped(5, b"Get"), start].concat();
        let whole = request(&span);
        let into_the_record = whole.len() - span.len() + 18;
        for cut in into_the_record..=whole.len() {
            assert_eq!(signal(&whole[..cut]), Some(Signal::Traces), "cut at {cut} of {}", whole.len());
        }
        for field in [wrapped(4, &[9; 8]), vec![6 << 3, 2], wrapped(15, b"")] {
            let timeless = [wrapped(1, &[7; 16]), wrapped(5, b"Get"), field].concat();
            assert_eq!(signal(&request(&timeless)), Some(Signal::Traces));
        }
    }

    #[test]
    fn what_has_no_record_has_no_signal() {
        assert_eq!(signal(b"\n\x0bhello world"), None);
        assert_eq!(signal(b""), None);
    }
}
