//! A member's value, written as its field is: integers also as digits, enumerations by name, ids in either code.
//!
//! Invariant: a value that is none of its field's kind is counted, and becomes nothing or what its decoder refuses.

use super::fields::{Field, Kind};
use super::Writer;

/// The number of no name: a decoder tells that it does not know it.
const UNKNOWN_NAME: u64 = 1000;
/// An id of no length that an id has.
const NO_ID: &[u8] = &[0xff];
const ATTRIBUTE_TEXT: u32 = 1;
const ATTRIBUTE_DOUBLE: u32 = 4;

pub(super) fn write_bool(out: &mut Writer, field: &Field, value: bool) {
    match field.kind {
        Kind::Truth => out.integer(field.number, u64::from(value)),
        _ => out.wrong += 1,
    }
}

pub(super) fn write_integer(out: &mut Writer, field: &Field, value: i128) {
    match field.kind {
        Kind::Enumeration(_) if value >= 0 => out.integer(field.number, value as u64),
        Kind::Enumeration(_) => out.integer(field.number, UNKNOWN_NAME),
        Kind::AttributeInteger => match i64::try_from(value) {
            Ok(value) => out.integer(field.number, value as u64),
            Err(_) => out.eight(ATTRIBUTE_DOUBLE, (value as f64).to_bits()),
        },
        Kind::Fixed if value >= i128::from(i64::MIN) && value <= i128::from(u64::MAX) => {
            out.eight(field.number, value as u64);
        }
        Kind::Double => out.eight(field.number, (value as f64).to_bits()),
        _ => out.wrong += 1,
    }
}

pub(super) fn write_double(out: &mut Writer, field: &Field, value: f64) {
    match field.kind {
        Kind::AttributeInteger => out.eight(ATTRIBUTE_DOUBLE, value.to_bits()),
        Kind::Double => out.eight(field.number, value.to_bits()),
        Kind::Fixed | Kind::Enumeration(_) if value.fract() == 0.0 => {
            write_integer(out, field, value as i128);
        }
        _ => out.wrong += 1,
    }
}

pub(super) fn write_text(out: &mut Writer, field: &Field, value: &str) {
    match field.kind {
        Kind::Text => out.text(field.number, value.as_bytes()),
        Kind::Id(_) if value.is_empty() => {}
        Kind::Id(size) => match hexadecimal(value, size) {
            Some(bytes) => out.text(field.number, &bytes[..size]),
            None => out.text(field.number, base64(value, size).as_deref().unwrap_or(NO_ID)),
        },
        Kind::Enumeration(names) => {
            let known = names.iter().find(|(name, _)| *name == value).map(|(_, number)| *number);
            out.integer(field.number, known.or_else(|| value.parse().ok()).unwrap_or(UNKNOWN_NAME));
        }
        Kind::AttributeInteger => match value.parse::<i64>() {
            Ok(value) => out.integer(field.number, value as u64),
            Err(_) => out.text(ATTRIBUTE_TEXT, value.as_bytes()),
        },
        Kind::Fixed => match (value.parse::<u64>(), value.parse::<i64>()) {
            (Ok(value), _) => out.eight(field.number, value),
            (_, Ok(value)) => out.eight(field.number, value as u64),
            _ => out.wrong += 1,
        },
        // Also "NaN" and "Infinity", as protobuf's JSON has them.
        Kind::Double => match value.parse::<f64>() {
            Ok(value) => out.eight(field.number, value.to_bits()),
            Err(_) => out.wrong += 1,
        },
        Kind::Truth => match value {
            "true" => out.integer(field.number, 1),
            "false" => out.integer(field.number, 0),
            _ => out.wrong += 1,
        },
        Kind::Message(_) => out.wrong += 1,
    }
}

/// The longest id.
const ID_BYTES_MAX: usize = 16;
/// What is no hexadecimal digit.
const NO_DIGIT: u8 = 0xff;
const DIGITS: [u8; 256] = digits();

const fn digits() -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        values[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    values
}

/// OTLP writes hexadecimal, protobuf's own JSON base64; of one size the two have different lengths.
fn hexadecimal(text: &str, size: usize) -> Option<[u8; ID_BYTES_MAX]> {
    if text.len() != 2 * size {
        return None;
    }
    let mut bytes = [0; ID_BYTES_MAX];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
        if high == NO_DIGIT || low == NO_DIGIT {
            return None;
        }
        *byte = high << 4 | low;
    }
    Some(bytes)
}

fn base64(text: &str, size: usize) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | sextet(byte)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    (bytes.len() == size).then_some(bytes)
}

fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str, size: usize) -> Option<Vec<u8>> {
        hexadecimal(text, size).map(|bytes| bytes[..size].to_vec()).or_else(|| base64(text, size))
    }

    #[test]
    fn an_id_is_read_in_either_code() {
        let bytes: Vec<u8> = (0xf0..0xf8).collect();
        for text in ["f0f1f2f3f4f5f6f7", "F0F1F2F3F4F5F6F7", "8PHy8/T19vc=", "8PHy8_T19vc"] {
            assert_eq!(id(text, 8).as_deref(), Some(bytes.as_slice()), "{text}");
        }
        for text in ["f0f1f2f3f4f5f6", "g0f1f2f3f4f5f6f7", "8PHy8/T19v==", "8PHy8/T1 vc="] {
            assert_eq!(id(text, 8), None, "{text}");
        }
    }
}
