//! Replies in RESP.
//!
//! Invariant: a reply is one whole RESP value; an error's text has no line end in it.

/// Appends a simple string.
pub fn simple(text: &str, out: &mut Vec<u8>) {
    line(b'+', text, out);
}

/// Appends an error; the first word is its code.
pub fn error(text: &str, out: &mut Vec<u8>) {
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    line(b'-', &text, out);
}

/// Appends an integer.
pub fn integer(value: i64, out: &mut Vec<u8>) {
    line(b':', &value.to_string(), out);
}

/// Appends a string of any bytes.
pub fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    line(b'$', &bytes.len().to_string(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the absence of a value.
pub fn null(is_resp3: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
}

/// Appends the beginning of an array of `count` values.
pub fn array(count: usize, out: &mut Vec<u8>) {
    line(b'*', &count.to_string(), out);
}

fn line(prefix: u8, text: &str, out: &mut Vec<u8>) {
    out.push(prefix);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}
