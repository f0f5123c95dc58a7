//! Where one reply ends in a stream of bytes.
//!
//! Invariant: only the extent of a reply is judged, never its meaning; what is no RESP is a typed error.

use super::{line_end, parse_integer, Limits, COMPACT_BYTES, KEPT_BYTES_MAX};

/// Why a stream of replies cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A byte that begins no reply.
    #[error("byte 0x{0:02x} begins no RESP reply")]
    UnknownType(u8),
    /// A length that is no number.
    #[error("a reply's length is not a number")]
    BadLength,
    /// A value's body that its type does not allow.
    #[error("a reply's value is malformed")]
    BadValue,
    /// A body that is not followed by CR LF.
    #[error("a reply's body does not end where its length says")]
    NoTerminator,
    /// Nested deeper than [`Limits::depth_max`].
    #[error("a reply nests too deep")]
    TooDeep,
    /// Longer than [`Limits::reply_bytes_max`] or a line over [`Limits::line_bytes_max`].
    #[error("a reply is over the limit")]
    TooLong,
}

/// Reads the extent of one reply from the beginning of a growing stretch of bytes.
#[derive(Debug, Clone, Default)]
pub struct ReplyScanner {
    cursor: usize,
    begun: bool,
    /// How many values are still missing at each level that is open.
    missing: Vec<u64>,
}

impl ReplyScanner {
    /// Forgets everything, for the next reply.
    pub fn reset(&mut self) {
        self.cursor = 0;
        self.begun = false;
        self.missing.clear();
    }

    /// The length of the reply at the beginning of `bytes`, attributes and pushes before it included, or none
    /// if it is not all there. A push answers nothing, so whoever counts replies must not count it.
    pub fn advance(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ReplyError> {
        if !self.begun {
            self.begun = true;
            self.missing.push(1);
        }
        while !self.missing.is_empty() {
            match value_head(&bytes[self.cursor.min(bytes.len())..], limits)? {
                None => {
                    let waiting = bytes.len() > limits.reply_bytes_max;
                    return if waiting { Err(ReplyError::TooLong) } else { Ok(None) };
                }
                Some(head) => self.take(&head, limits)?,
            }
        }
        Ok(Some(self.cursor))
    }

    fn take(&mut self, head: &Head, limits: &Limits) -> Result<(), ReplyError> {
        self.cursor += head.bytes;
        if self.cursor > limits.reply_bytes_max {
            return Err(ReplyError::TooLong);
        }
        let precedes = head.is_attribute || head.is_push && self.missing.len() == 1;
        if !precedes {
            let level = self.missing.last_mut().expect("a value is read only while one is missing");
            *level -= 1;
        }
        if head.children > 0 {
            self.missing.push(head.children);
            if self.missing.len() > limits.depth_max {
                return Err(ReplyError::TooDeep);
            }
        }
        while self.missing.last() == Some(&0) {
            self.missing.pop();
        }
        Ok(())
    }
}

/// What one value's own bytes say: their extent and how many values follow inside it.
pub(super) struct Head {
    pub bytes: usize,
    pub children: u64,
    pub is_attribute: bool,
    pub is_push: bool,
}

impl Head {
    fn plain(bytes: usize) -> Head {
        Head { bytes, children: 0, is_attribute: false, is_push: false }
    }
}

pub(super) fn value_head(bytes: &[u8], limits: &Limits) -> Result<Option<Head>, ReplyError> {
    let Some(kind) = bytes.first() else { return Ok(None) };
    if !b"+-:$*_#,(!=%~>|".contains(kind) {
        return Err(ReplyError::UnknownType(*kind));
    }
    let line = line_end(bytes, 1);
    if line.unwrap_or(bytes.len()) > limits.line_bytes_max {
        return Err(ReplyError::TooLong);
    }
    let Some(line) = line.filter(|line| bytes.len() >= line + 2) else {
        return Ok(None);
    };
    if bytes[line + 1] != b'\n' {
        return Err(ReplyError::NoTerminator);
    }
    let body = &bytes[1..line];
    let plain = Head::plain(line + 2);
    match kind {
        b'+' | b'-' => Ok(Some(plain)),
        b':' => parse_integer(body).map(|_| Some(plain)).ok_or(ReplyError::BadValue),
        b'_' => body.is_empty().then_some(Some(plain)).ok_or(ReplyError::BadValue),
        b'#' => (body == b"t" || body == b"f").then_some(Some(plain)).ok_or(ReplyError::BadValue),
        b',' | b'(' => (!body.is_empty()).then_some(Some(plain)).ok_or(ReplyError::BadValue),
        b'$' | b'!' | b'=' => bulk_head(bytes, *kind, line, limits),
        _ => aggregate_head(*kind, body, plain),
    }
}

fn bulk_head(bytes: &[u8], kind: u8, line: usize, limits: &Limits) -> Result<Option<Head>, ReplyError> {
    let length = parse_integer(&bytes[1..line]).ok_or(ReplyError::BadLength)?;
    if length == -1 && kind == b'$' {
        return Ok(Some(Head::plain(line + 2)));
    }
    let length = usize::try_from(length).map_err(|_| ReplyError::BadLength)?;
    if length > limits.reply_bytes_max {
        return Err(ReplyError::TooLong);
    }
    let end = line + 2 + length;
    if bytes.len() < end + 2 {
        return Ok(None);
    }
    if &bytes[end..end + 2] != b"\r\n" {
        return Err(ReplyError::NoTerminator);
    }
    Ok(Some(Head::plain(end + 2)))
}

fn aggregate_head(kind: u8, body: &[u8], plain: Head) -> Result<Option<Head>, ReplyError> {
    let count = parse_integer(body).ok_or(ReplyError::BadLength)?;
    if count == -1 && kind == b'*' {
        return Ok(Some(plain));
    }
    let count = u64::try_from(count).map_err(|_| ReplyError::BadLength)?;
    let per_entry = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
    let children = count.checked_mul(per_entry).ok_or(ReplyError::BadLength)?;
    Ok(Some(Head { children, is_attribute: kind == b'|', is_push: kind == b'>', ..plain }))
}

/// Reads replies from a connection's bytes.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    limits: Limits,
    scanner: ReplyScanner,
    buffer: Vec<u8>,
    start: usize,
    complete: usize,
}

impl ReplyDecoder {
    /// A decoder with these limits.
    pub fn new(limits: Limits) -> Self {
        ReplyDecoder { limits, ..Self::default() }
    }

    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.drop_complete();
        if self.start > 0 && (self.start == self.buffer.len() || self.start >= COMPACT_BYTES) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The bytes of the next complete reply.
    pub fn pop(&mut self) -> Result<Option<&[u8]>, ReplyError> {
        self.drop_complete();
        let Some(length) = self.scanner.advance(&self.buffer[self.start..], &self.limits)? else {
            return Ok(None);
        };
        self.complete = length;
        Ok(Some(&self.buffer[self.start..self.start + length]))
    }

    /// The reply that was given out last comes again with the next [`ReplyDecoder::pop`].
    pub fn put_back(&mut self) {
        self.complete = 0;
        self.scanner.reset();
    }

    /// The bytes that no reply has used yet.
    pub fn unread(&mut self) -> &[u8] {
        self.drop_complete();
        &self.buffer[self.start..]
    }

    /// The bytes at which reading stopped: after an error, those that are no reply.
    pub fn offending(&self) -> &[u8] {
        self.buffer.get(self.start + self.scanner.cursor..).unwrap_or_default()
    }

    fn drop_complete(&mut self) {
        if self.complete > 0 {
            self.start += self.complete;
            self.complete = 0;
            self.scanner.reset();
            if self.start == self.buffer.len() {
                self.start = 0;
                self.buffer.clear();
                self.buffer.shrink_to(KEPT_BYTES_MAX);
            }
        }
    }
}

/// The values directly inside the aggregate `reply`, each with its extent; nothing for other replies.
pub fn elements(reply: &[u8]) -> Elements<'_> {
    let is_aggregate = matches!(reply.first(), Some(b'*' | b'~' | b'>' | b'%'));
    let rest = match line_end(reply, 0) {
        Some(line) if is_aggregate && reply.len() >= line + 2 => &reply[line + 2..],
        _ => &[],
    };
    Elements { rest, limits: Limits::default() }
}

/// See [`elements`].
pub struct Elements<'a> {
    rest: &'a [u8],
    limits: Limits,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = ReplyScanner::default().advance(self.rest, &self.limits).ok()??;
        let (element, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(element)
    }
}

/// The text of a status, bulk, verbatim or number reply; none for anything else.
pub fn text_of(reply: &[u8]) -> Option<&[u8]> {
    let line = line_end(reply, 0)?;
    match reply.first()? {
        b'+' | b':' | b',' => Some(&reply[1..line]),
        b'$' if reply.get(1) != Some(&b'-') => reply.get(line + 2..reply.len() - 2),
        b'=' => reply.get(line + 2 + 4..reply.len() - 2),
        _ => None,
    }
}

/// Whether a reply is an error.
pub fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}

#[cfg(test)]
mod tests {
    use super::super::test_bytes::*;
    use super::*;

    #[test]
    fn a_reply_that_is_put_back_comes_again_and_a_large_one_leaves_its_room() {
        let mut decoder = ReplyDecoder::new(Limits::default());
        let large = [b"$1000000\r\n".as_slice(), &vec![b'x'; 1_000_000], b"\r\n"].concat();
        decoder.push(&large);
        for _ in 0..2 {
            assert_eq!(decoder.pop(), Ok(Some(large.as_slice())));
            decoder.put_back();
        }
        decoder.push(b"+OK\r\n");
        assert_eq!(decoder.pop(), Ok(Some(large.as_slice())));
        assert_eq!(decoder.pop(), Ok(Some(b"+OK\r\n".as_slice())));
        assert_eq!(decoder.pop(), Ok(None));
        assert!(decoder.buffer.capacity() <= KEPT_BYTES_MAX, "{}", decoder.buffer.capacity());
    }
    use proptest::prelude::*;

    fn replies<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        limits: Limits,
    ) -> (Vec<Vec<u8>>, Option<ReplyError>) {
        let mut decoder = ReplyDecoder::new(limits);
        let mut found = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            loop {
                match decoder.pop() {
                    Ok(Some(reply)) => found.push(reply.to_vec()),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn every_type_of_reply_has_its_extent() {
        let all: [&[u8]; 18] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-5\r\n",
            b"$-1\r\n",
            b"$3\r\na\r\n\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"(123456789012345678901\r\n",
            b"!3\r\nERR\r\n",
            b"=5\r\ntxt:a\r\n",
            b"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
            b">2\r\n+invalidate\r\n*0\r\n$2\r\nhi\r\n",
            b"*2\r\n>1\r\n+subscribe\r\n:1\r\n",
            b"|1\r\n+ttl\r\n:9\r\n*2\r\n:1\r\n|1\r\n+a\r\n+b\r\n:2\r\n",
        ];
        let stream = all.concat();
        let expected: Vec<Vec<u8>> = all.iter().map(|reply| reply.to_vec()).collect();
        assert_eq!(replies([&stream[..]], Limits::default()), (expected.clone(), None));
        assert_eq!(replies(stream.chunks(1), Limits::default()), (expected, None));
    }

    #[test]
    fn nonsense_is_a_typed_error() {
        let cases: [(&[u8], ReplyError); 8] = [
            (b"HTTP/1.1 400\r\n", ReplyError::UnknownType(b'H')),
            (b":one\r\n", ReplyError::BadValue),
            (b"$x\r\n", ReplyError::BadLength),
            (b"$-2\r\n", ReplyError::BadLength),
            (b"$1\r\nabc", ReplyError::NoTerminator),
            (b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", ReplyError::TooDeep),
            (b"$300\r\n", ReplyError::TooLong),
            (b"%9223372036854775807\r\n", ReplyError::UnknownType(b'x')),
        ];
        for (bytes, error) in &cases[..7] {
            assert_eq!(replies([*bytes], small()).1, Some(*error), "{}", String::from_utf8_lossy(bytes));
        }
        // Twice the largest count does not wrap around.
        assert_eq!(
            replies([&b"%9223372036854775807\r\nx"[..]], small()).1,
            Some(ReplyError::UnknownType(b'x'))
        );
    }

    #[test]
    fn an_aggregate_comes_apart_into_its_elements() {
        let found: Vec<&[u8]> = elements(b"*3\r\n+OK\r\n*1\r\n:1\r\n$-1\r\n").collect();
        assert_eq!(found, [&b"+OK\r\n"[..], b"*1\r\n:1\r\n", b"$-1\r\n"]);
        assert_eq!(elements(b"*-1\r\n").count(), 0);
        assert_eq!(elements(b"+OK\r\n").count(), 0);
    }

    #[test]
    fn text_is_found_in_simple_replies() {
        assert_eq!(text_of(b"$5\r\nhello\r\n"), Some(&b"hello"[..]));
        assert_eq!(text_of(b"+OK\r\n"), Some(&b"OK"[..]));
        assert_eq!(text_of(b":12\r\n"), Some(&b"12"[..]));
        assert_eq!(text_of(b"=9\r\ntxt:hello\r\n"), Some(&b"hello"[..]));
        assert_eq!(text_of(b"$-1\r\n"), None);
        assert_eq!(text_of(b"-ERR\r\n"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn replies_do_not_depend_on_how_the_bytes_are_cut(bytes in resp_like(), size in 1usize..9) {
            let whole = replies([&bytes[..]], small());
            prop_assert_eq!(&whole, &replies(bytes.chunks(1), small()));
            prop_assert_eq!(&whole, &replies(bytes.chunks(size), small()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = replies([&bytes[..]], small());
        }

        #[test]
        fn what_another_decoder_accepts_has_the_same_extent(bytes in resp_like()) {
            use redis_protocol::resp2::decode::decode;
            let Ok(Some((_, theirs))) = decode(&bytes) else { return Ok(()) };
            // It reads numbers and empty frames more generously; where we agree, we agree on the extent.
            if let Ok(Some(ours)) = ReplyScanner::default().advance(&bytes, &Limits::default()) {
                prop_assert_eq!(ours, theirs);
            }
        }
    }
}
