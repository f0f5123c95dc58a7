//! Bytes as hexadecimal digits, for names that are no text.
//!
//! Invariant: two digits a byte, written in lower case; what is read back is what was written, and nothing else is read.

use std::fmt::Write as _;

/// Bytes as digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes that digits of either case stand for; none if there is anything else, or half a byte.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
    (are_digits && digits.len().is_multiple_of(2)).then(|| digits.chunks(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)), Some(all));
        assert_eq!(
            (to_hex(b"k\n"), from_hex("6B0a"), from_hex("")),
            ("6b0a".to_owned(), Some(b"k\n".to_vec()), Some(vec![]))
        );
        for wrong in ["6", "+b", "6 ", "6g", "0x6b", "é"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
