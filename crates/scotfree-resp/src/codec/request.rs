//! Where one request ends in a stream of bytes, and what its arguments are.
//!
//! Invariant: requests are read as Redis 7 reads them, and refused with its error texts.

use super::{line_end, parse_integer, Args, Limits, COMPACT_BYTES, KEPT_BYTES_MAX};
use std::ops::Range;

/// Why a stream of requests cannot be read on. Its text is Redis' own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// An inline request without an end.
    #[error("too big inline request")]
    InlineTooLong,
    /// A quote that is not closed, or is followed by something other than a space.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// An argument count without an end.
    #[error("too big mbulk count string")]
    CountTooLong,
    /// An argument count that is no number or over the limit.
    #[error("invalid multibulk length")]
    BadCount,
    /// More arguments than a client may send before it has authenticated itself.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// A length without an end.
    #[error("too big bulk count string")]
    LengthTooLong,
    /// Something else than an argument.
    #[error("expected '$', got '{0}'")]
    NotBulk(char),
    /// A length that is no number or over the limit.
    #[error("invalid bulk length")]
    BadLength,
    /// Announced arguments that make the request longer than the limit; what it has is not waited for.
    #[error("invalid bulk length, since the request has at least {bytes} bytes and may have {max}")]
    RequestTooLong {
        /// What the request has at least.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A longer argument than a client may send before it has authenticated itself.
    #[error("unauthenticated bulk length")]
    UnauthenticatedLength,
}

impl ProtocolError {
    /// What Redis answers before it closes the connection.
    pub fn reply(&self) -> Vec<u8> {
        format!("-ERR Protocol error: {self}\r\n").into_bytes()
    }
}

/// Reads one request from the beginning of a growing stretch of bytes; asked again with more bytes, it
/// goes on where it stopped.
#[derive(Debug, Clone, Default)]
pub struct RequestParser {
    cursor: usize,
    arguments_left: usize,
    bulk_bytes: Option<usize>,
    in_multibulk: bool,
    spans: Vec<Range<usize>>,
    inline: Vec<u8>,
    is_inline: bool,
}

/// A request with many arguments leaves no more room than this behind.
const KEPT_SPANS_MAX: usize = 1_024;

/// Limits on a client that has not authenticated itself, as in Redis.
const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16_384;

impl RequestParser {
    /// Forgets everything, for the next request.
    pub fn reset(&mut self) {
        self.cursor = 0;
        self.arguments_left = 0;
        self.bulk_bytes = None;
        self.in_multibulk = false;
        self.spans.clear();
        self.spans.shrink_to(KEPT_SPANS_MAX);
        self.inline.clear();
        self.is_inline = false;
    }

    /// The length of the request at the beginning of `bytes`, or none if it is not all there.
    pub fn advance(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        authenticated: bool,
    ) -> Result<Option<usize>, ProtocolError> {
        if !self.in_multibulk {
            match bytes.first() {
                None => return Ok(None),
                Some(b'*') => {
                    if !self.begin_multibulk(bytes, limits, authenticated)? {
                        return Ok(None);
                    }
                }
                Some(_) => return self.inline(bytes, limits),
            }
        }
        while self.arguments_left > 0 {
            if !self.argument(bytes, limits, authenticated)? {
                return Ok(None);
            }
        }
        Ok(Some(self.cursor))
    }

    /// Where the arguments of the complete request lie in `bytes`; only for a request that is an array.
    pub fn spans(&self) -> &[Range<usize>] {
        &self.spans
    }

    /// The arguments of the complete request at the beginning of `bytes`.
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        Args::new(if self.is_inline { &self.inline } else { bytes }, &self.spans)
    }

    fn begin_multibulk(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        authenticated: bool,
    ) -> Result<bool, ProtocolError> {
        let line = line_end(bytes, 0);
        if line.unwrap_or(bytes.len()) > limits.line_bytes_max {
            return Err(ProtocolError::CountTooLong);
        }
        let Some(line) = line.filter(|line| bytes.len() >= line + 2) else {
            return Ok(false);
        };
        let count = parse_integer(&bytes[1..line]).ok_or(ProtocolError::BadCount)?;
        if count > limits.argument_count_max as i64 {
            return Err(ProtocolError::BadCount);
        }
        if count > UNAUTHENTICATED_ARGUMENTS_MAX && !authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        self.arguments_left = usize::try_from(count).unwrap_or(0);
        self.cursor = line + 2;
        self.in_multibulk = true;
        Ok(true)
    }

    fn argument(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        authenticated: bool,
    ) -> Result<bool, ProtocolError> {
        let length = match self.bulk_bytes {
            Some(length) => length,
            None => match self.bulk_length(bytes, limits, authenticated)? {
                Some(length) => length,
                None => return Ok(false),
            },
        };
        // Redis skips the two bytes behind an argument without looking at them, and so do we.
        if bytes.len() - self.cursor < length + 2 {
            return Ok(false);
        }
        self.spans.push(self.cursor..self.cursor + length);
        self.cursor += length + 2;
        self.bulk_bytes = None;
        self.arguments_left -= 1;
        Ok(true)
    }

    fn bulk_length(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        authenticated: bool,
    ) -> Result<Option<usize>, ProtocolError> {
        let line = line_end(bytes, self.cursor);
        if line.unwrap_or(bytes.len()) - self.cursor > limits.line_bytes_max {
            return Err(ProtocolError::LengthTooLong);
        }
        let Some(line) = line.filter(|line| bytes.len() >= line + 2) else {
            return Ok(None);
        };
        if bytes[self.cursor] != b'$' {
            return Err(ProtocolError::NotBulk(printable(bytes[self.cursor])));
        }
        let length = parse_integer(&bytes[self.cursor + 1..line]).ok_or(ProtocolError::BadLength)?;
        if length < 0 || length > limits.bulk_bytes_max as i64 {
            return Err(ProtocolError::BadLength);
        }
        if length > UNAUTHENTICATED_BULK_BYTES_MAX && !authenticated {
            return Err(ProtocolError::UnauthenticatedLength);
        }
        self.cursor = line + 2;
        let bytes = self.cursor + length as usize;
        if bytes > limits.whole_bytes_max {
            return Err(ProtocolError::RequestTooLong { bytes, max: limits.whole_bytes_max });
        }
        self.bulk_bytes = Some(length as usize);
        Ok(self.bulk_bytes)
    }

    fn inline(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let newline = bytes[self.cursor..].iter().position(|byte| *byte == b'\n');
        let end = newline.map_or(bytes.len(), |at| self.cursor + at);
        if end > limits.line_bytes_max {
            return Err(ProtocolError::InlineTooLong);
        }
        if newline.is_none() {
            self.cursor = end;
            return Ok(None);
        }
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        self.is_inline = true;
        split_inline(line, &mut self.inline, &mut self.spans)?;
        self.cursor = end + 1;
        Ok(Some(self.cursor))
    }
}

/// Reads requests from a connection's bytes.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    limits: Limits,
    parser: RequestParser,
    buffer: Vec<u8>,
    start: usize,
    complete: usize,
}

impl RequestDecoder {
    /// A decoder with these limits.
    pub fn new(limits: Limits) -> Self {
        RequestDecoder { limits, ..Self::default() }
    }

    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.drop_complete();
        if self.start >= COMPACT_BYTES {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete request. Empty requests are skipped, as Redis skips them.
    pub fn pop(&mut self, authenticated: bool) -> Result<Option<Args<'_>>, ProtocolError> {
        loop {
            self.drop_complete();
            let bytes = &self.buffer[self.start..];
            let Some(length) = self.parser.advance(bytes, &self.limits, authenticated)? else {
                return Ok(None);
            };
            self.complete = length;
            if !self.parser.spans.is_empty() {
                break;
            }
        }
        Ok(Some(self.parser.args(&self.buffer[self.start..])))
    }

    /// The bytes that no request has used yet.
    pub fn unread(&mut self) -> &[u8] {
        self.drop_complete();
        &self.buffer[self.start..]
    }

    /// How many bytes of memory the requests take that have arrived, in whole or in part.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() + self.parser.spans.len() * size_of::<Range<usize>>()
    }

    fn drop_complete(&mut self) {
        if self.complete > 0 {
            self.start += self.complete;
            self.complete = 0;
            self.parser.reset();
        }
        if self.start == self.buffer.len() {
            // A large request must not hold its room for as long as the connection lives.
            self.start = 0;
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_BYTES_MAX);
        }
    }
}

fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' {
        char::from(byte)
    } else {
        '?'
    }
}

/// Splits a line as a shell would, with Redis' rules for quotes and escapes.
fn split_inline(
    line: &[u8],
    words: &mut Vec<u8>,
    spans: &mut Vec<Range<usize>>,
) -> Result<(), ProtocolError> {
    let mut at = 0;
    loop {
        while at < line.len() && is_space(line[at]) {
            at += 1;
        }
        if at == line.len() || line[at] == 0 {
            return Ok(());
        }
        let start = words.len();
        at = inline_word(line, at, words)?;
        spans.push(start..words.len());
    }
}

fn inline_word(line: &[u8], mut at: usize, words: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    while at < line.len() {
        match line[at] {
            // A NUL ends the line for Redis, which reads it as a C string.
            0 => return Ok(line.len()),
            byte if is_space(byte) => return Ok(at),
            quote @ (b'"' | b'\'') => {
                at = quoted(line, at + 1, quote, words)?;
                return match line.get(at) {
                    None | Some(0) => Ok(at),
                    Some(byte) if is_space(*byte) => Ok(at),
                    Some(_) => Err(ProtocolError::UnbalancedQuotes),
                };
            }
            byte => words.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

/// Reads up to behind the closing quote.
fn quoted(line: &[u8], mut at: usize, quote: u8, words: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match (*line.get(at).ok_or(ProtocolError::UnbalancedQuotes)?, line.get(at + 1).copied()) {
            (byte, _) if byte == quote => return Ok(at + 1),
            (0, _) => return Err(ProtocolError::UnbalancedQuotes),
            (b'\\', Some(b'\'')) if quote == b'\'' => {
                words.push(b'\'');
                at += 2;
            }
            (b'\\', Some(b'x')) if quote == b'"' && hex_byte(line, at + 2).is_some() => {
                words.extend(hex_byte(line, at + 2));
                at += 4;
            }
            (b'\\', Some(escaped)) if quote == b'"' && escaped != 0 => {
                words.push(unescape(escaped));
                at += 2;
            }
            (byte, _) => {
                words.push(byte);
                at += 1;
            }
        }
    }
}

fn hex_byte(line: &[u8], at: usize) -> Option<u8> {
    let digits = line.get(at..at + 2)?;
    let high = char::from(digits[0]).to_digit(16)?;
    let low = char::from(digits[1]).to_digit(16)?;
    Some((high * 16 + low) as u8)
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::super::{test_bytes::*, write_command, Command};
    use super::*;
    use proptest::prelude::*;

    /// All requests of a stream that arrives in the pieces given, and the error that ends it.
    fn requests<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        limits: Limits,
    ) -> (Vec<Command>, Option<ProtocolError>) {
        let mut decoder = RequestDecoder::new(limits);
        let mut found = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            loop {
                match decoder.pop(true) {
                    Ok(Some(args)) => found.push(args.into()),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    fn one(bytes: &[u8]) -> Result<Vec<Command>, ProtocolError> {
        let (found, error) = requests([bytes], Limits::default());
        error.map_or(Ok(found), Err)
    }

    #[test]
    fn multibulk_and_inline_requests_mix() {
        let found =
            one(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nset  b \"c \\x41\\n\" 'd\\'e'\r\nPING\n*0\r\n\r\nPING\r\n");
        let words: [&[&[u8]]; 4] =
            [&[b"GET", b"a"], &[b"set", b"b", b"c A\n", b"d'e"], &[b"PING"], &[b"PING"]];
        assert_eq!(found, Ok(words.iter().map(|words| Command::new(words.iter())).collect()));
    }

    #[test]
    fn broken_requests_get_the_error_that_redis_gives() {
        let cases: [(&[u8], &str); 8] = [
            (b"*a\r\n", "invalid multibulk length"),
            (b"*99999999\r\n", "invalid multibulk length"),
            (b"*1\r\nx\r\n", "expected '$', got 'x'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$01\r\n", "invalid bulk length"),
            (b"\"a\r\n", "unbalanced quotes in request"),
            (b"'a'b\r\n", "unbalanced quotes in request"),
            (b"*1\r\n$99999999999\r\n", "invalid bulk length"),
        ];
        for (bytes, text) in cases {
            let error = one(bytes).expect_err("broken");
            assert_eq!(error.to_string(), text);
            assert_eq!(error.reply(), format!("-ERR Protocol error: {text}\r\n").into_bytes());
        }
    }

    #[test]
    fn a_request_is_refused_when_its_lengths_are_announced_and_not_when_it_is_there() {
        let limits = Limits { whole_bytes_max: 100, ..Limits::default() };
        let announced = b"*3\r\n$3\r\nSET\r\n$40\r\n0123456789012345678901234567890123456789\r\n$60\r\n";
        let expected = ProtocolError::RequestTooLong { bytes: announced.len() + 60, max: 100 };
        assert_eq!(requests([&announced[..]], limits), (vec![], Some(expected.clone())));
        let reply = String::from_utf8(expected.reply()).expect("text");
        assert!(reply.starts_with("-ERR Protocol error: invalid bulk length"), "{reply}");
        assert!(reply.contains("may have 100"), "{reply}");
        // Each request counts for itself.
        let small = b"*1\r\n$70\r\n".iter().copied().chain([b'x'; 72]).collect::<Vec<u8>>().repeat(5);
        assert_eq!(requests([&small[..]], limits).0.len(), 5);
    }

    #[test]
    fn arguments_are_bounded_in_number_and_length() {
        let limits = Limits { bulk_bytes_max: 5, argument_count_max: 2, ..Limits::default() };
        let most = b"*2\r\n$1\r\na\r\n$5\r\nabcde\r\n";
        assert_eq!(requests([&most[..]], limits), (vec![Command::new(["a", "abcde"])], None));
        assert_eq!(requests([&b"*3\r\n"[..]], limits), (vec![], Some(ProtocolError::BadCount)));
        assert_eq!(requests([&b"*1\r\n$6\r\n"[..]], limits), (vec![], Some(ProtocolError::BadLength)));
    }

    #[test]
    fn a_large_request_leaves_no_room_behind() {
        let mut decoder = RequestDecoder::new(Limits::default());
        decoder.push(b"*100002\r\n$1000000\r\n");
        decoder.push(&vec![b'x'; 1_000_002]);
        decoder.push(&b"$0\r\n\r\n".repeat(100_000));
        assert!(decoder.pop(true).expect("no error").is_none());
        assert!(
            decoder.held_bytes() > 3_000_000,
            "arguments count with what they take: {}",
            decoder.held_bytes()
        );
        decoder.push(b"$0\r\n\r\n");
        assert!(decoder.pop(true).expect("a request").is_some());
        assert!(decoder.pop(true).expect("no error").is_none());
        assert_eq!(decoder.held_bytes(), 0);
        assert!(decoder.buffer.capacity() <= KEPT_BYTES_MAX);
        assert!(decoder.parser.spans.capacity() <= KEPT_SPANS_MAX);
    }

    #[test]
    fn lines_without_an_end_are_refused_at_the_limit() {
        let endless = vec![b'1'; 100];
        let cases = [
            (&b""[..], ProtocolError::InlineTooLong),
            (b"*", ProtocolError::CountTooLong),
            (b"*1\r\n$", ProtocolError::LengthTooLong),
        ];
        for (start, expected) in cases {
            assert_eq!(requests([start, &endless], small()).1, Some(expected));
        }
    }

    #[test]
    fn a_client_that_has_not_authenticated_itself_gets_little_memory() {
        let mut decoder = RequestDecoder::new(Limits::default());
        decoder.push(b"*11\r\n");
        assert_eq!(decoder.pop(false).expect_err("over 10"), ProtocolError::UnauthenticatedCount);
        let mut decoder = RequestDecoder::new(Limits::default());
        decoder.push(b"*1\r\n$20000\r\n");
        assert_eq!(decoder.pop(false).expect_err("over 16 KiB"), ProtocolError::UnauthenticatedLength);
        let mut decoder = RequestDecoder::new(Limits::default());
        let most = (UNAUTHENTICATED_ARGUMENTS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX);
        decoder.push(format!("*{}\r\n${}\r\n", most.0, most.1).as_bytes());
        assert!(decoder.pop(false).expect("so much is admitted").is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn requests_do_not_depend_on_how_the_bytes_are_cut(bytes in resp_like(), size in 1usize..9) {
            let whole = requests([&bytes[..]], small());
            prop_assert_eq!(&whole, &requests(bytes.chunks(1), small()));
            prop_assert_eq!(&whole, &requests(bytes.chunks(size), small()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = requests([&bytes[..]], small());
        }

        #[test]
        fn a_written_command_is_read_back(
            words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..9)
        ) {
            let command = Command::new(&words);
            let mut bytes = Vec::new();
            write_command(&mut bytes, command.args());
            prop_assert_eq!(one(&bytes), Ok(vec![command]));
        }
    }
}
