//! What this service takes of the requests that a server's sidecar would take: whole ones, without WATCH.
//!
//! Invariant: a request is taken only if all its commands lie whole in it.

use scotfree_resp::payload::{CommandReader, PayloadError, RequestFlags, RequestHead, REQUEST_HEAD_BYTES};

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// Its bytes are not what a request's are.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A request or reply in parts.
    #[error("this service takes no command and gives no reply that is larger than a packet")]
    Partial,
    /// WATCH needs a memory of keys that this service does not keep.
    #[error("WATCH is not supported by this service")]
    Watched,
}

/// A request whose commands are known to be well-formed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// What precedes the commands.
    pub head: RequestHead,
    /// How many commands there are.
    pub command_count: usize,
}

impl Request {
    /// Looks through a payload with the memory of `reader`.
    pub fn parse(bytes: &[u8], reader: &mut CommandReader) -> Result<Request, RequestError> {
        let head = RequestHead::parse(bytes)?;
        if head.flags.is_partial() {
            return Err(RequestError::Partial);
        }
        let mut command_count = 0;
        let mut at = REQUEST_HEAD_BYTES;
        while let Some((_, next)) = reader.read(bytes, at)? {
            command_count += 1;
            at = next;
        }
        head.flags.check_count(command_count)?;
        if head.flags.has(RequestFlags::WATCHED) {
            return Err(RequestError::Watched);
        }
        Ok(Request { head, command_count })
    }

    /// Whether the request has this flag.
    pub fn has(&self, flag: RequestFlags) -> bool {
        self.head.flags.has(flag)
    }
}

/// Whether the client of a request was answered before its execution, as its head says; what follows the
/// head may be anything.
pub(crate) fn is_early(bytes: &[u8]) -> bool {
    RequestHead::parse(bytes).is_ok_and(|head| head.flags.has(RequestFlags::EARLY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_resp::payload::write_request;

    fn count(payload: &[u8]) -> Result<usize, RequestError> {
        Request::parse(payload, &mut CommandReader::default()).map(|request| request.command_count)
    }

    #[test]
    fn whole_requests_are_taken() {
        let mut payload = Vec::new();
        write_request(&mut payload, RequestFlags::NONE, &[&[&b"SET"[..], b"k", b"\r\n\0"], &[b"GET", b""]]);
        assert_eq!(count(&payload), Ok(2));
        assert!(!is_early(&payload));
        payload.clear();
        write_request(&mut payload, RequestFlags::EARLY, &[&[b"GET", b"key"]]);
        assert_eq!(count(&payload), Ok(1));
        assert!(is_early(&payload));
        payload.clear();
        write_request::<&[u8]>(&mut payload, RequestFlags::RELEASE, &[]);
        assert_eq!(count(&payload), Ok(0));
    }

    #[test]
    fn a_payload_cut_anywhere_is_an_error() {
        let mut payload = Vec::new();
        write_request(&mut payload, RequestFlags::NONE, &[&[&b"SET"[..], b"key", b"value"]]);
        for length in 0..payload.len() {
            assert!(count(&payload[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn hostile_payloads_are_typed_errors() {
        let with = |text: &[u8]| [&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], text].concat();
        for text in [
            &b"PING\r\n"[..],
            b"*0\r\n",
            b"*1\r\n$1\r\naXX",
            b"*1\r\n$-1\r\n",
            b"*99999999999999999999999\r\n",
            b"*1\r\n$18446744073709551615\r\na\r\n",
            b"*1000000000000\r\n$1\r\na\r\n",
            b"*1\r\n$1\r\na\r\n*",
        ] {
            assert_eq!(count(&with(text)), Err(PayloadError::Malformed.into()), "{text:?}");
        }
        assert_eq!(count(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(PayloadError::Version(2).into()));
        assert_eq!(count(&[1, 0]), Err(PayloadError::Truncated.into()));
        let two = b"*1\r\n$1\r\na\r\n*1\r\n$1\r\na\r\n";
        assert_eq!(count(&with(two)), Err(PayloadError::CommandCount(2).into()));
        assert_eq!(count(&[1, 0, 6, 0, 0, 0, 0, 0, 0, 0]), Err(RequestError::Watched));
        for part in [1, 2, 4] {
            assert_eq!(count(&[1, 0, 0, part, 0, 0, 0, 0, 0, 0]), Err(RequestError::Partial));
        }
    }
}
