//! The commands and replies of RESP2 and RESP3: what both directions share, and how they are written.
//!
//! Invariant: whatever the bytes and however they are cut into pieces, the same requests, replies and
//! errors come out, memory stays below the limits, and nothing panics.

mod frames;
mod reply;
mod request;
mod value;

pub use frames::Frames;
pub use reply::{elements, is_error, text_of, Elements, ReplyDecoder, ReplyError, ReplyScanner};
pub use request::{ProtocolError, RequestDecoder, RequestParser};
pub use value::Reply;

use std::fmt;
use std::ops::Range;

/// Bounds on what a peer may make us hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest single argument; a longer one is an "invalid bulk length", as with Redis.
    pub bulk_bytes_max: usize,
    /// The most arguments of one request; more are an "invalid multibulk length".
    pub argument_count_max: usize,
    /// The longest request, counted as soon as its arguments' lengths are announced. The default is Redis' own
    /// `client-query-buffer-limit`.
    pub whole_bytes_max: usize,
    /// The longest line: an inline request or a length.
    pub line_bytes_max: usize,
    /// How deep a reply may nest.
    pub depth_max: usize,
    /// The longest reply.
    pub reply_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bulk_bytes_max: 512 << 20,
            argument_count_max: 1 << 20,
            whole_bytes_max: 1 << 30,
            line_bytes_max: 64 << 10,
            depth_max: 64,
            reply_bytes_max: 1 << 30,
        }
    }
}

/// The arguments of one command, borrowed from the buffer they arrived in.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    spans: &'a [Range<usize>],
}

impl<'a> Args<'a> {
    /// The arguments that lie at `spans` in `buffer`.
    pub fn new(buffer: &'a [u8], spans: &'a [Range<usize>]) -> Self {
        Args { buffer, spans }
    }

    /// How many there are, the command's name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`; empty if there is none.
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.spans.get(index).map_or(&[], |span| &self.buffer[span.clone()])
    }

    /// Whether the argument at `index` is `word`, in whatever case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + 'a {
        let buffer = self.buffer;
        self.spans.iter().map(move |span| &buffer[span.clone()])
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

/// One command that owns its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    bytes: Vec<u8>,
    spans: Vec<Range<usize>>,
}

impl Command {
    /// A command of these arguments.
    pub fn new<A: AsRef<[u8]>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = Command::default();
        for argument in arguments {
            command.push(argument.as_ref());
        }
        command
    }

    /// Adds an argument.
    pub fn push(&mut self, argument: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(argument);
        self.spans.push(start..self.bytes.len());
    }

    /// A view of the arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

impl From<Args<'_>> for Command {
    fn from(args: Args<'_>) -> Self {
        Command::new(args.iter())
    }
}

/// Appends a decimal number.
pub fn write_decimal(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the header of a request or array of `count` elements.
pub fn write_header(out: &mut Vec<u8>, count: usize) {
    out.push(b'*');
    write_decimal(out, count as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends one bulk string.
pub fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    write_decimal(out, bytes.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a command of these arguments.
pub fn write_arguments<A: AsRef<[u8]>>(out: &mut Vec<u8>, arguments: impl ExactSizeIterator<Item = A>) {
    write_header(out, arguments.len());
    for argument in arguments {
        write_bulk(out, argument.as_ref());
    }
}

/// Appends a command.
pub fn write_command(out: &mut Vec<u8>, args: Args<'_>) {
    write_arguments(out, args.iter());
}

/// Appends a command of a few plain words.
pub fn write_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    write_arguments(out, words.iter());
}

/// Appends a simple string.
pub fn write_simple(out: &mut Vec<u8>, text: &str) {
    write_line(out, b'+', text);
}

/// Appends an error, whose first word is its code; line ends in `text` become spaces.
pub fn write_error(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    write_line(out, b'-', text);
    let end = out.len() - 2;
    for byte in out[start..end].iter_mut().filter(|byte| matches!(**byte, b'\r' | b'\n')) {
        *byte = b' ';
    }
}

/// Appends an integer.
pub fn write_integer(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    if value < 0 {
        out.push(b'-');
    }
    write_decimal(out, value.unsigned_abs());
    out.extend_from_slice(b"\r\n");
}

/// Appends the absence of a value.
pub fn write_null(out: &mut Vec<u8>, is_resp3: bool) {
    out.extend_from_slice(if is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
}

fn write_line(out: &mut Vec<u8>, prefix: u8, text: &str) {
    out.push(prefix);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// An error reply of ours; line ends in `text` become spaces.
pub fn error_reply(text: &str) -> Vec<u8> {
    let mut reply = Vec::with_capacity(text.len() + 3);
    write_error(&mut reply, text);
    reply
}

/// A number as Redis reads it: no plus, no leading zeros, no spaces, within 64 bits.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let is_canonical = match digits {
        [] => false,
        [b'0', rest @ ..] => rest.is_empty() && !is_negative,
        // As many as can be summed up in 64 bits.
        _ => digits.len() <= 19,
    };
    if !is_canonical {
        return None;
    }
    let mut sum = 0_u64;
    for digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        sum = sum * 10 + u64::from(value);
    }
    if is_negative {
        0_i64.checked_sub_unsigned(sum)
    } else {
        i64::try_from(sum).ok()
    }
}

/// Above this much used-up space a buffer is moved to its front.
pub(crate) const COMPACT_BYTES: usize = 64 << 10;

/// What an empty buffer of one connection keeps of its room.
pub(crate) const KEPT_BYTES_MAX: usize = 4 * COMPACT_BYTES;

/// What an empty buffer keeps that there is one of for all.
pub(crate) const SHARED_KEPT_BYTES_MAX: usize = 2 << 20;

/// A buffer that is empty gives back its room above `kept`: a large value must not hold it for good.
pub(crate) fn drop_room(buffer: &mut Vec<u8>, kept: usize) {
    if buffer.is_empty() {
        buffer.shrink_to(kept);
    }
}

fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from..].iter().position(|byte| *byte == b'\r').map(|at| from + at)
}

#[cfg(test)]
pub(crate) mod test_bytes {
    //! What the tests of both directions feed their decoders.

    use super::Limits;
    use proptest::prelude::*;

    pub(crate) fn small() -> Limits {
        Limits {
            bulk_bytes_max: 64,
            argument_count_max: 16,
            whole_bytes_max: 192,
            line_bytes_max: 96,
            depth_max: 4,
            reply_bytes_max: 256,
        }
    }

    /// Bytes that look enough like RESP to get past the first byte.
    pub(crate) fn resp_like() -> impl Strategy<Value = Vec<u8>> {
        let tokens: Vec<&'static [u8]> = vec![
            b"*", b"$", b"+", b"-", b":", b"%", b"~", b">", b"|", b"_", b"#t", b",1", b"=", b"!", b"(",
            b"\r\n", b"0", b"1", b"2", b"3", b"-1", b"99", b"a", b"\"", b"'", b"\\x4", b" ", b"\n", b"\r",
            b"\0", b"PING",
        ];
        let token = prop_oneof![
            9 => proptest::sample::select(tokens).prop_map(<[u8]>::to_vec),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(token, 0..60).prop_map(|parts| parts.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_gives_its_room_back_and_no_other() {
        let mut buffer = vec![0; 2 * SHARED_KEPT_BYTES_MAX];
        drop_room(&mut buffer, SHARED_KEPT_BYTES_MAX);
        assert_eq!(buffer.len(), 2 * SHARED_KEPT_BYTES_MAX);
        buffer.clear();
        drop_room(&mut buffer, SHARED_KEPT_BYTES_MAX);
        assert!((1..=SHARED_KEPT_BYTES_MAX).contains(&buffer.capacity()), "{}", buffer.capacity());
    }

    #[test]
    fn what_is_written_has_its_form() {
        let mut out = Vec::new();
        write_simple(&mut out, "OK");
        write_error(&mut out, "ERR two\r\nlines\n");
        write_integer(&mut out, -12);
        write_integer(&mut out, i64::MIN);
        write_null(&mut out, false);
        write_null(&mut out, true);
        write_words(&mut out, &[b"GET", b""]);
        let text = "+OK\r\n-ERR two  lines \r\n:-12\r\n:-9223372036854775808\r\n$-1\r\n_\r\n\
                    *2\r\n$3\r\nGET\r\n$0\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), text);
    }

    #[test]
    fn integers_are_read_as_redis_reads_them() {
        for (text, value) in [("0", Some(0)), ("-1", Some(-1)), ("9223372036854775807", Some(i64::MAX))] {
            assert_eq!(parse_integer(text.as_bytes()), value);
        }
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "1e3"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }
}
