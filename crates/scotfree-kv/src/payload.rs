//! What a request and a response carry: the layout that the sidecars speak, so that the client's
//! sidecar can talk to this service as to a server's sidecar.
//!
//! Request: version (1 byte), 0 (1), flags (2), database (2), connection (4), all little-endian, then
//! commands as RESP arrays of bulk strings. Response: version (1), flags (1), then one RESP reply.
//! Requests that come in parts, being larger than a packet, are refused.
//!
//! Invariant: whatever the bytes, decoding ends with an error or with commands that lie whole in them.

use std::ops::Range;

/// The version of both layouts.
pub const VERSION: u8 = 1;
/// The bytes before a request's commands.
pub const REQUEST_HEAD_BYTES: usize = 10;
/// The response flag that allows early answers.
pub const EARLY_ALLOWED: u8 = 1;

/// The client already has its answer.
const EARLY: u16 = 1;
/// The commands are one transaction, answered by one array.
const TRANSACTION: u16 = 2;
/// The transaction depends on a connection's WATCH.
const WATCHED: u16 = 4;
/// No commands: asks for the server's description.
const DESCRIBE: u16 = 64;
/// Replies are to be RESP3.
const RESP3: u16 = 128;
/// One part of a request or reply that is larger than a packet.
const PARTIAL: u16 = 256 | 512 | 1_024;

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Shorter than its head.
    #[error("the payload is truncated")]
    Truncated,
    /// Of a version that is not spoken here.
    #[error("the payload has version {0}, this service speaks version {VERSION}")]
    Version(u8),
    /// The commands are no well-formed RESP arrays.
    #[error("the payload's commands are malformed")]
    Malformed,
    /// Several commands without being a transaction.
    #[error("the payload has several commands and is no transaction")]
    TooMany,
    /// A request or reply in parts.
    #[error("this service takes no command and gives no reply that is larger than a packet")]
    Partial,
    /// WATCH needs a memory of keys that this service does not keep.
    #[error("WATCH is not supported by this service")]
    Watched,
}

/// What precedes a request's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    flags: u16,
    /// The database that the commands run in.
    pub db: u16,
}

impl Head {
    /// Whether the commands are one transaction.
    pub fn is_transaction(self) -> bool {
        self.flags & TRANSACTION != 0
    }

    /// Whether the request asks for the server's description.
    pub fn describes(self) -> bool {
        self.flags & DESCRIBE != 0
    }

    /// Whether replies are to be RESP3.
    pub fn is_resp3(self) -> bool {
        self.flags & RESP3 != 0
    }
}

/// A request whose commands are known to be well-formed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What precedes the commands.
    pub head: Head,
    /// How many commands there are.
    pub command_count: usize,
    bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// Takes a payload apart. `spans` is scratch memory.
    pub fn parse(bytes: &'a [u8], spans: &mut Vec<Range<usize>>) -> Result<Request<'a>, PayloadError> {
        let [version, _, flags_low, flags_high, db_low, db_high, _, _, _, _, ..] = *bytes else {
            return Err(PayloadError::Truncated);
        };
        if version != VERSION {
            return Err(PayloadError::Version(version));
        }
        let flags = u16::from_le_bytes([flags_low, flags_high]);
        if flags & PARTIAL != 0 {
            return Err(PayloadError::Partial);
        }
        let head = Head { flags, db: u16::from_le_bytes([db_low, db_high]) };
        let mut request = Request { head, command_count: 0, bytes };
        let mut at = REQUEST_HEAD_BYTES;
        while let Some(next) = request.command(at, spans)? {
            request.command_count += 1;
            at = next;
        }
        if request.command_count > 1 && !head.is_transaction() {
            return Err(PayloadError::TooMany);
        }
        if flags & WATCHED != 0 {
            return Err(PayloadError::Watched);
        }
        Ok(request)
    }

    /// The arguments of the command at `at`, as ranges of the payload, and where the next one begins;
    /// `None` at the end. The first command lies at [`REQUEST_HEAD_BYTES`].
    pub fn command(&self, at: usize, spans: &mut Vec<Range<usize>>) -> Result<Option<usize>, PayloadError> {
        spans.clear();
        if at == self.bytes.len() {
            return Ok(None);
        }
        let (count, mut at) = self.number(at, b'*')?;
        for _ in 0..count {
            let (length, start) = self.number(at, b'$')?;
            let end = start.checked_add(length).ok_or(PayloadError::Malformed)?;
            if self.bytes.get(end..end.saturating_add(2)) != Some(b"\r\n") {
                return Err(PayloadError::Malformed);
            }
            spans.push(start..end);
            at = end + 2;
        }
        if spans.is_empty() {
            return Err(PayloadError::Malformed);
        }
        Ok(Some(at))
    }

    /// One argument.
    pub fn argument(&self, span: &Range<usize>) -> &'a [u8] {
        &self.bytes[span.clone()]
    }

    /// A line of `prefix` and a number without sign or leading junk, and where the next line begins.
    fn number(&self, at: usize, prefix: u8) -> Result<(usize, usize), PayloadError> {
        if self.bytes.get(at) != Some(&prefix) {
            return Err(PayloadError::Malformed);
        }
        let mut value = 0_usize;
        let mut end = at + 1;
        while let Some(digit) = self.bytes.get(end).filter(|byte| byte.is_ascii_digit()) {
            value = value.checked_mul(10).ok_or(PayloadError::Malformed)? + usize::from(digit - b'0');
            end += 1;
        }
        let is_whole = end > at + 1 && self.bytes.get(end..end + 2) == Some(b"\r\n");
        is_whole.then_some((value, end + 2)).ok_or(PayloadError::Malformed)
    }
}

/// Whether the client of a request was answered before its execution, as its head says; what follows the
/// head may be anything.
pub fn is_early(bytes: &[u8]) -> bool {
    matches!(*bytes, [VERSION, _, low, high, ..] if u16::from_le_bytes([low, high]) & EARLY != 0)
}

/// Appends a request of one command whose client is answered early.
pub fn write_early_request(command: &[&[u8]], out: &mut Vec<u8>) {
    write_head(EARLY, out);
    write_command(command, out);
}

/// Appends a request of one or more commands, for clients of this service that are no sidecar.
pub fn write_request(commands: &[&[&[u8]]], out: &mut Vec<u8>) {
    write_head(if commands.len() > 1 { TRANSACTION } else { 0 }, out);
    for command in commands {
        write_command(command, out);
    }
}

fn write_command(command: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for argument in command {
        crate::reply::bulk(argument, out);
    }
}

/// Appends a request for the service's description.
pub fn write_describe(out: &mut Vec<u8>) {
    write_head(DESCRIBE, out);
}

fn write_head(flags: u16, out: &mut Vec<u8>) {
    let [low, high] = flags.to_le_bytes();
    out.extend_from_slice(&[VERSION, 0, low, high, 0, 0, 0, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(payload: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, PayloadError> {
        let mut spans = Vec::new();
        let request = Request::parse(payload, &mut spans)?;
        let (mut commands, mut at) = (Vec::new(), REQUEST_HEAD_BYTES);
        while let Some(next) = request.command(at, &mut spans)? {
            commands.push(spans.iter().map(|span| request.argument(span).to_vec()).collect());
            at = next;
        }
        assert_eq!(commands.len(), request.command_count);
        Ok(commands)
    }

    #[test]
    fn commands_come_apart_as_they_were_put_together() {
        let mut payload = Vec::new();
        write_request(&[&[b"SET", b"k", b"\r\n\0"], &[b"GET", b""]], &mut payload);
        let expected: Vec<Vec<Vec<u8>>> =
            vec![vec![b"SET".into(), b"k".into(), b"\r\n\0".into()], vec![b"GET".into(), b"".into()]];
        assert_eq!(arguments(&payload), Ok(expected));
    }

    #[test]
    fn a_payload_cut_anywhere_is_an_error_or_fewer_commands() {
        let mut payload = Vec::new();
        write_request(&[&[b"SET", b"key", b"value"]], &mut payload);
        for length in 0..payload.len() {
            let read = arguments(&payload[..length]);
            assert!(read.is_err() || read == Ok(Vec::new()), "{length}");
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
            assert_eq!(arguments(&with(text)), Err(PayloadError::Malformed), "{text:?}");
        }
        assert_eq!(arguments(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(PayloadError::Version(2)));
        assert_eq!(arguments(&[1, 0]), Err(PayloadError::Truncated));
        let two = b"*1\r\n$1\r\na\r\n*1\r\n$1\r\na\r\n";
        assert_eq!(arguments(&with(two)), Err(PayloadError::TooMany));
        assert_eq!(arguments(&[1, 0, 4, 0, 0, 0, 0, 0, 0, 0]), Err(PayloadError::Watched));
        for part in [1, 2, 4] {
            assert_eq!(arguments(&[1, 0, 0, part, 0, 0, 0, 0, 0, 0]), Err(PayloadError::Partial));
        }
    }
}
