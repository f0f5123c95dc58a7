//! A reply as a tree of values, for those who look at what a server answered.
//!
//! Invariant: a tree takes no more memory than a small multiple of [`Limits::reply_bytes_max`] and is no
//! deeper than [`Limits::depth_max`], whatever the peer sends.

use super::reply::{value_head, Head};
use super::{parse_integer, Limits, ReplyError};

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and its kin; also RESP3's booleans, doubles and big numbers, as text.
    Simple(String),
    /// `-ERR ...`.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// A string of bytes; also RESP3's verbatim strings, without their form.
    Bulk(Vec<u8>),
    /// Nothing.
    Null,
    /// Several replies; also RESP3's sets, and its maps as a flat list.
    Array(Vec<Reply>),
}

/// What an element costs at least, so that empty elements are bounded as well.
const ELEMENT_BYTES: usize = 32;

impl Reply {
    /// The reply at the beginning of `bytes`; none if it is not all there. Attributes are skipped, and pushes
    /// too, where they may stand: between replies.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Option<Reply>, ReplyError> {
        Parser { rest: bytes, limits, bytes_left: limits.reply_bytes_max }.value(0)
    }
}

struct Parser<'a> {
    rest: &'a [u8],
    limits: &'a Limits,
    bytes_left: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Option<Reply>, ReplyError> {
        loop {
            let Some(head) = value_head(self.rest, self.limits)? else { return Ok(None) };
            let own = self.take(&head)?;
            if head.is_push && depth > 0 {
                return Err(ReplyError::BadValue);
            }
            let is_skipped = head.is_push || head.is_attribute;
            let is_null = own == b"*-1\r\n";
            if !is_skipped && (is_null || !matches!(own[0], b'*' | b'~' | b'%')) {
                return leaf(own).map(Some);
            }
            let Some(elements) = self.elements(head.children, depth + 1)? else { return Ok(None) };
            if !is_skipped {
                return Ok(Some(Reply::Array(elements)));
            }
        }
    }

    fn elements(&mut self, count: u64, depth: usize) -> Result<Option<Vec<Reply>>, ReplyError> {
        // As a scanner counts: the stretch of bytes itself is the first level.
        if count > 0 && depth + 1 > self.limits.depth_max {
            return Err(ReplyError::TooDeep);
        }
        let mut elements = Vec::new();
        for _ in 0..count {
            let Some(element) = self.value(depth)? else { return Ok(None) };
            elements.push(element);
        }
        Ok(Some(elements))
    }

    /// The bytes of a value without those inside it.
    fn take(&mut self, head: &Head) -> Result<&'a [u8], ReplyError> {
        let (own, rest) = self.rest.split_at(head.bytes);
        self.rest = rest;
        let cost = head.bytes + ELEMENT_BYTES;
        self.bytes_left = self.bytes_left.checked_sub(cost).ok_or(ReplyError::TooLong)?;
        Ok(own)
    }
}

/// A value that holds no others, whose extent is known to be right.
fn leaf(own: &[u8]) -> Result<Reply, ReplyError> {
    let line = own.iter().position(|byte| *byte == b'\r').unwrap_or(own.len());
    let text = || String::from_utf8_lossy(&own[1..line]).into_owned();
    let body = || own.get(line + 2..own.len() - 2).unwrap_or_default();
    Ok(match own[0] {
        b'-' => Reply::Error(text()),
        b':' => Reply::Integer(parse_integer(&own[1..line]).ok_or(ReplyError::BadValue)?),
        b'_' => Reply::Null,
        b'*' | b'$' if own[1] == b'-' => Reply::Null,
        b'$' => Reply::Bulk(body().to_vec()),
        b'=' => Reply::Bulk(body().get(FORM_BYTES..).ok_or(ReplyError::BadValue)?.to_vec()),
        b'!' => Reply::Error(String::from_utf8_lossy(body()).into_owned()),
        _ => Reply::Simple(text()),
    })
}

/// A verbatim string begins with its form, as in `txt:`.
const FORM_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::test_bytes::{resp_like, small};
    use super::super::ReplyScanner;
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Option<Reply>, ReplyError> {
        Reply::parse(text.as_bytes(), &Limits::default())
    }

    #[test]
    fn replies_of_both_versions_are_read() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let simple = |text: &str| Reply::Simple(text.to_owned());
        for (text, wanted) in [
            ("+OK\r\n", simple("OK")),
            ("-ERR no\r\n", Reply::Error("ERR no".into())),
            (":-12\r\n", Reply::Integer(-12)),
            ("$2\r\na\n\r\n", bulk("a\n")),
            ("$0\r\n\r\n", bulk("")),
            ("$-1\r\n", Reply::Null),
            ("*-1\r\n", Reply::Null),
            ("*0\r\n", Reply::Array(vec![])),
            ("_\r\n", Reply::Null),
            (
                "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
                Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![bulk("a")])]),
            ),
            ("%1\r\n+k\r\n:1\r\n", Reply::Array(vec![simple("k"), Reply::Integer(1)])),
            (">2\r\n+invalidate\r\n_\r\n+OK\r\n", simple("OK")),
            ("|1\r\n+ttl\r\n:9\r\n*1\r\n|1\r\n+a\r\n+b\r\n:2\r\n", Reply::Array(vec![Reply::Integer(2)])),
            ("!5\r\nERR x\r\n", Reply::Error("ERR x".into())),
            ("=5\r\ntxt:a\r\n", bulk("a")),
            ("#t\r\n", simple("t")),
            (",1.5\r\n", simple("1.5")),
            ("(123456789012345678901\r\n", simple("123456789012345678901")),
        ] {
            assert_eq!(parse(text), Ok(Some(wanted)), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(parse(&text[..cut]), Ok(None), "{:?}", &text[..cut]);
            }
        }
    }

    #[test]
    fn what_no_reply_may_hold_is_a_typed_error() {
        assert_eq!(parse("*2\r\n>0\r\n:1\r\n"), Err(ReplyError::BadValue), "a push inside a reply");
        assert_eq!(parse("=3\r\nabc\r\n"), Err(ReplyError::BadValue), "a verbatim string without a form");
        let nested = |depth: usize| format!("{}:1\r\n", "*1\r\n".repeat(depth));
        let depth_max = Limits::default().depth_max;
        assert!(matches!(parse(&nested(depth_max - 1)), Ok(Some(Reply::Array(_)))));
        assert_eq!(parse(&nested(depth_max)), Err(ReplyError::TooDeep));
    }

    #[test]
    fn empty_elements_cost_what_they_take() {
        let limits = Limits { reply_bytes_max: 1_000, ..Limits::default() };
        let nulls = |count: usize| format!("*{count}\r\n{}", "_\r\n".repeat(count)).into_bytes();
        assert!(matches!(Reply::parse(&nulls(20), &limits), Ok(Some(Reply::Array(_)))));
        assert_eq!(Reply::parse(&nulls(40), &limits), Err(ReplyError::TooLong), "160 bytes of 40 elements");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_tree_is_there_when_its_bytes_are(bytes in resp_like()) {
            // Out of reach, since elements count with what they take.
            let limits = Limits { reply_bytes_max: 1 << 20, ..small() };
            let extent = ReplyScanner::default().advance(&bytes, &limits);
            match Reply::parse(&bytes, &limits) {
                Ok(tree) => prop_assert_eq!(Ok(tree.is_some()), extent.map(|extent| extent.is_some())),
                Err(ReplyError::BadValue) => {}
                Err(error) => prop_assert_eq!(extent, Err(error)),
            }
        }
    }
}
