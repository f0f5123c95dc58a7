//! What a request and a response carry between a front and whoever executes its commands: the server's
//! sidecar, or the embedded service.
//!
//! Invariant: a payload is complete in itself. Whoever executes it, live or replayed from a device's log,
//! needs nothing but it: database, protocol version and absolute times are inside.
//!
//! Request: version (1 byte), 0 (1), flags (2), database (2), connection (4), then the commands as RESP
//! arrays. Response: version (1), flags (1), then one RESP reply. Numbers are little endian.
//!
//! A request with the flag PACK carries commands of several requests, of one connection or many, so that they
//! share a packet: the head's flags are all of theirs, its database and connection are 0. Instead of
//! commands come parts, each its length (4 bytes, of what follows), its database (2), its connection (4) and one
//! command. The response with the flag PACK is as many responses, each behind its length (4). One without it
//! answers every part.
//!
//! A request that is too large for one packet of the protocol comes in parts: requests with the flag PART,
//! whose bytes behind the head are kept, and a last one with the flag ASSEMBLED, whose bytes behind the
//! head are the length of the whole (4), then its last bytes. A response that is too large has the flag
//! MORE, and before its bytes the reply's name (8); the next part of it is the response to a request with
//! the flag REST and that name.

pub mod pack;

use crate::codec::{write_arguments, Args, Limits, RequestParser};
pub use pack::PartHead;
pub use scotfree_session::RequestKind;
use std::ops::Range;

/// The version of both layouts.
pub const VERSION: u8 = 1;
/// The bytes before a request's commands.
pub const REQUEST_HEAD_BYTES: usize = 10;
/// The bytes that say how long an assembled request is.
pub const WHOLE_LENGTH_BYTES: usize = 4;
/// The bytes before a response's reply.
pub const RESPONSE_HEAD_BYTES: usize = 2;

/// What is to be known about a request besides its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestFlags(u16);

impl RequestFlags {
    /// No flag.
    pub const NONE: RequestFlags = RequestFlags(0);
    /// The client already has its answer; a late error is a dead letter.
    pub const EARLY: RequestFlags = RequestFlags(1);
    /// The commands are one transaction, answered by one array.
    pub const TRANSACTION: RequestFlags = RequestFlags(2);
    /// The transaction is valid only if the connection's WATCH still holds.
    pub const WATCHED: RequestFlags = RequestFlags(4);
    /// To be run on a connection to the server that is this client connection's own.
    pub const PRIVATE: RequestFlags = RequestFlags(8);
    /// That connection must have been authenticated as a user of its own.
    pub const USER: RequestFlags = RequestFlags(16);
    /// That connection is not needed afterwards.
    pub const RELEASE: RequestFlags = RequestFlags(32);
    /// No commands: asks for the server's description.
    pub const DESCRIBE: RequestFlags = RequestFlags(64);
    /// Replies are to be RESP3.
    pub const RESP3: RequestFlags = RequestFlags(128);
    /// Some bytes of a large request, to be kept.
    pub const PART: RequestFlags = RequestFlags(256);
    /// The last bytes of a large request; the others were kept.
    pub const ASSEMBLED: RequestFlags = RequestFlags(512);
    /// No commands: asks for the next part of a large response.
    pub const REST: RequestFlags = RequestFlags(1_024);
    /// Parts of one command each, which share nothing but the packet.
    pub const PACK: RequestFlags = RequestFlags(2_048);
    /// The command is not run: asks whether the server would queue it inside MULTI.
    pub const ASK: RequestFlags = RequestFlags(4_096);

    /// The client takes a note of how long the value that it reads is true; a device that has answered it before may
    /// answer it again.
    pub const NOTED: RequestFlags = RequestFlags(8_192);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: RequestFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether what follows the head is not a complete list of commands.
    pub const fn is_partial(self) -> bool {
        self.has(RequestFlags::PART) || self.has(RequestFlags::ASSEMBLED) || self.has(RequestFlags::REST)
    }

    /// Refuses a number of commands that the flags do not allow.
    pub fn check_count(self, count: usize) -> Result<(), PayloadError> {
        let may_be_empty = RequestFlags::DESCRIBE.with(RequestFlags::RELEASE).with(RequestFlags::TRANSACTION);
        let allowed = match count {
            0 => self.0 & may_be_empty.0 != 0,
            1 => true,
            _ => self.has(RequestFlags::TRANSACTION) || self.has(RequestFlags::PACK),
        };
        allowed.then_some(()).ok_or(PayloadError::CommandCount(count))
    }

    /// All but the flags of `other`.
    #[must_use]
    pub const fn without(self, other: RequestFlags) -> RequestFlags {
        RequestFlags(self.0 & !other.0)
    }

    /// Both sets of flags.
    #[must_use]
    pub const fn with(self, other: RequestFlags) -> RequestFlags {
        RequestFlags(self.0 | other.0)
    }

    /// `other` added if `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, other: RequestFlags) -> RequestFlags {
        if condition {
            self.with(other)
        } else {
            self
        }
    }
}

/// What precedes a request's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestHead {
    /// See [`RequestFlags`].
    pub flags: RequestFlags,
    /// The database that the commands begin in.
    pub db: u16,
    /// The client's connection among those that share its session.
    pub connection: u32,
}

impl RequestHead {
    /// Appends the head.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, 0]);
        out.extend_from_slice(&self.flags.0.to_le_bytes());
        out.extend_from_slice(&self.db.to_le_bytes());
        out.extend_from_slice(&self.connection.to_le_bytes());
    }

    /// Reads the head of a payload.
    pub fn parse(payload: &[u8]) -> Result<RequestHead, PayloadError> {
        let bytes = payload.get(..REQUEST_HEAD_BYTES).ok_or(PayloadError::Truncated)?;
        if bytes[0] != VERSION {
            return Err(PayloadError::Version(bytes[0]));
        }
        if bytes[1] != 0 {
            return Err(PayloadError::Malformed);
        }
        Ok(RequestHead {
            flags: RequestFlags(u16::from_le_bytes([bytes[2], bytes[3]])),
            db: u16::from_le_bytes([bytes[4], bytes[5]]),
            connection: u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]),
        })
    }

    /// The version of RESP that the reply is to have.
    pub const fn resp(self) -> u8 {
        if self.flags.has(RequestFlags::RESP3) {
            3
        } else {
            2
        }
    }
}

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Shorter than its head.
    #[error("the payload is truncated")]
    Truncated,
    /// Of a version we do not speak.
    #[error("the payload has version {0}, and version {VERSION} is spoken here")]
    Version(u8),
    /// The commands are no well-formed RESP arrays, or the parts of a pack are none.
    #[error("the payload's commands are malformed")]
    Malformed,
    /// No command, or several without being a transaction.
    #[error("the payload has {0} commands, which its flags do not allow")]
    CommandCount(usize),
}

/// A request taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestPayload {
    /// Its head.
    pub head: RequestHead,
    /// Where the arguments of all commands lie in the payload.
    spans: Vec<Range<usize>>,
    commands: Vec<CommandPlace>,
    /// Of a pack, whose each command is.
    owners: Vec<PartHead>,
}

/// Where one command is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommandPlace {
    /// Which of the spans are its arguments'.
    spans: Range<usize>,
    /// Where it lies in the payload.
    extent: Range<usize>,
}

impl RequestPayload {
    /// Takes a payload apart; whatever its bytes, this returns.
    pub fn parse(payload: &[u8]) -> Result<RequestPayload, PayloadError> {
        let head = RequestHead::parse(payload)?;
        if head.flags.is_partial() {
            return Ok(RequestPayload { head, ..RequestPayload::default() });
        }
        let mut parsed = RequestPayload { head, ..RequestPayload::default() };
        if head.flags.has(RequestFlags::PACK) {
            parsed.parse_parts(payload)?;
        } else {
            parsed.parse_commands(payload)?;
        }
        head.flags.check_count(parsed.commands.len())?;
        Ok(parsed)
    }

    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The arguments of the command at `index` of the payload this was parsed from.
    pub fn args<'a>(&'a self, payload: &'a [u8], index: usize) -> Args<'a> {
        Args::new(payload, &self.spans[self.commands[index].spans.clone()])
    }

    /// The arguments of all commands.
    pub fn all<'a>(&'a self, payload: &'a [u8]) -> impl Iterator<Item = Args<'a>> {
        (0..self.len()).map(move |index| self.args(payload, index))
    }

    /// Which database the command at `index` begins in, and which connection it is of.
    pub fn part(&self, index: usize) -> PartHead {
        let RequestHead { db, connection, .. } = self.head;
        self.owners.get(index).copied().unwrap_or(PartHead { db, connection })
    }

    /// The bytes of the command at `index`.
    pub fn bytes<'a>(&self, payload: &'a [u8], index: usize) -> &'a [u8] {
        &payload[self.commands[index].extent.clone()]
    }

    fn parse_commands(&mut self, payload: &[u8]) -> Result<(), PayloadError> {
        let mut reader = CommandReader::default();
        let mut at = REQUEST_HEAD_BYTES;
        while let Some((_, next)) = reader.read(payload, at)? {
            self.add(reader.parser.spans(), at..next);
            at = next;
        }
        Ok(())
    }

    fn parse_parts(&mut self, payload: &[u8]) -> Result<(), PayloadError> {
        let RequestHead { flags, db, connection } = self.head;
        if flags.without(pack::SHARED_FLAGS) != RequestFlags::PACK || (db, connection) != (0, 0) {
            return Err(PayloadError::Malformed);
        }
        let mut reader = CommandReader::default();
        let mut at = REQUEST_HEAD_BYTES;
        while at < payload.len() {
            let (owner, extent) = pack::read_part(payload, at)?;
            at = extent.end;
            let command = reader.read(&payload[..at], extent.start)?;
            if command.is_none_or(|(_, end)| end != at) {
                return Err(PayloadError::Malformed);
            }
            self.add(reader.parser.spans(), extent);
            self.owners.push(owner);
        }
        Ok(())
    }

    /// Adds a command that lies there and whose arguments have these places in it.
    fn add(&mut self, spans: &[Range<usize>], extent: Range<usize>) {
        let (before, start) = (self.spans.len(), extent.start);
        self.spans.extend(spans.iter().map(|span| start + span.start..start + span.end));
        let spans = before..self.spans.len();
        if self.commands.is_empty() {
            // Most requests have one, for which the vector's own first room would be four times too large.
            self.commands.reserve_exact(1);
        }
        self.commands.push(CommandPlace { spans, extent });
    }
}

/// Reads the commands of a request one after the other, with memory for one of them.
#[derive(Debug, Clone, Default)]
pub struct CommandReader {
    parser: RequestParser,
}

impl CommandReader {
    /// The command at `at` and where the next one begins; none at the payload's end. The first one begins at
    /// [`REQUEST_HEAD_BYTES`].
    pub fn read<'a>(
        &'a mut self,
        payload: &'a [u8],
        at: usize,
    ) -> Result<Option<(Args<'a>, usize)>, PayloadError> {
        let rest = payload.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        self.parser.reset();
        let length = self.parser.advance(rest, &Limits::default(), true).ok().flatten();
        let length = length.filter(|_| rest[0] == b'*').ok_or(PayloadError::Malformed)?;
        // What is between the arguments goes to the server as it is, so it has to be exact.
        let exact = self.parser.spans().iter().all(|span| rest[span.end..].starts_with(b"\r\n"));
        if self.parser.spans().is_empty() || !exact {
            return Err(PayloadError::Malformed);
        }
        Ok(Some((self.parser.args(rest), at + length)))
    }
}

/// Appends a request of these commands in database 0; several are one transaction.
pub fn write_request<A: AsRef<[u8]>>(out: &mut Vec<u8>, flags: RequestFlags, commands: &[&[A]]) {
    let flags = flags.with_if(commands.len() > 1, RequestFlags::TRANSACTION);
    RequestHead { flags, ..RequestHead::default() }.write(out);
    for command in commands {
        write_arguments(out, command.iter());
    }
}

/// What the server's sidecar says besides the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseFlags(u8);

impl ResponseFlags {
    /// No flag.
    pub const NONE: ResponseFlags = ResponseFlags(0);
    /// Early answers are allowed from now on; not allowed if absent.
    pub const EARLY_ALLOWED: ResponseFlags = ResponseFlags(1);
    /// The client's connection has to be closed behind this reply: its state is lost.
    pub const CLOSE: ResponseFlags = ResponseFlags(2);
    /// The effect is as durable as the server alone makes it, and not covered by the position. Of a pack, that of a part.
    pub const DURABILITY_NONE: ResponseFlags = ResponseFlags(4);
    /// The reply goes on; the next part has to be asked for.
    pub const MORE: ResponseFlags = ResponseFlags(8);
    /// One response for each part of a pack.
    pub const PACK: ResponseFlags = ResponseFlags(16);
    /// It says nothing of early answers: a device gives again what the server said before.
    pub const AGAIN: ResponseFlags = ResponseFlags(32);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: ResponseFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// `other` added if `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, other: ResponseFlags) -> ResponseFlags {
        if condition {
            ResponseFlags(self.0 | other.0)
        } else {
            self
        }
    }
}

/// Splits a request that is too large into what is sent in its place: all but the last are to be sent as
/// reads.
pub fn split(payload: &[u8], bytes_max: usize) -> Vec<Vec<u8>> {
    let (head_bytes, body) = payload.split_at(REQUEST_HEAD_BYTES);
    let head = RequestHead::parse(head_bytes).unwrap_or_default();
    let room = bytes_max - REQUEST_HEAD_BYTES - WHOLE_LENGTH_BYTES;
    let chunks: Vec<&[u8]> = body.chunks(room).collect();
    let last = chunks.len().saturating_sub(1);
    let part = |(index, chunk): (usize, &&[u8])| {
        let mut out = Vec::with_capacity(REQUEST_HEAD_BYTES + WHOLE_LENGTH_BYTES + chunk.len());
        if index == last {
            RequestHead { flags: head.flags.with(RequestFlags::ASSEMBLED), ..head }.write(&mut out);
            out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        } else {
            RequestHead { flags: RequestFlags::PART, ..head }.write(&mut out);
        }
        out.extend_from_slice(chunk);
        out
    };
    chunks.iter().enumerate().map(part).collect()
}

/// Puts a large request together again: `kept` are the bytes of its parts. None if bytes are missing.
pub fn assemble(kept: &[u8], last: &[u8]) -> Option<Vec<u8>> {
    let head = RequestHead::parse(last).ok()?;
    let (length, chunk) = last.get(REQUEST_HEAD_BYTES..)?.split_at_checked(WHOLE_LENGTH_BYTES)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    if kept.len() + chunk.len() != length {
        return None;
    }
    let mut whole = Vec::with_capacity(REQUEST_HEAD_BYTES + length);
    RequestHead { flags: head.flags.without(RequestFlags::ASSEMBLED), ..head }.write(&mut whole);
    whole.extend_from_slice(kept);
    whole.extend_from_slice(chunk);
    Some(whole)
}

/// Appends a response.
pub fn write_response(out: &mut Vec<u8>, flags: ResponseFlags, reply: &[u8]) {
    out.extend_from_slice(&[VERSION, flags.0]);
    out.extend_from_slice(reply);
}

/// Appends a part of a large reply behind which there is more.
pub fn write_part(out: &mut Vec<u8>, flags: ResponseFlags, name: u64, part: &[u8]) {
    out.extend_from_slice(&[VERSION, flags.with_if(true, ResponseFlags::MORE).0]);
    out.extend_from_slice(&name.to_le_bytes());
    out.extend_from_slice(part);
}

/// The name of a large reply and its part.
pub fn parse_part(part: &[u8]) -> Option<(u64, &[u8])> {
    let (name, part) = part.split_at_checked(8)?;
    Some((u64::from_le_bytes(name.try_into().ok()?), part))
}

/// The flags and the reply of a response.
pub fn parse_response(payload: &[u8]) -> Result<(ResponseFlags, &[u8]), PayloadError> {
    match payload {
        [VERSION, flags, reply @ ..] => Ok((ResponseFlags(*flags), reply)),
        [] | [_] => Err(PayloadError::Truncated),
        [version, ..] => Err(PayloadError::Version(*version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{write_command, Command};
    use proptest::prelude::*;

    fn payload(head: RequestHead, lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        for line in lines {
            write_command(&mut bytes, Command::new(line.split(' ')).args());
        }
        bytes
    }

    #[test]
    fn a_transaction_comes_apart_into_its_commands() {
        let flags = RequestFlags::TRANSACTION.with(RequestFlags::RESP3);
        let head = RequestHead { flags, db: 3, connection: 70_000 };
        let bytes = payload(head, &["SET k v", "GET k"]);
        let parsed = RequestPayload::parse(&bytes).expect("well-formed");
        assert_eq!((parsed.head, parsed.head.resp(), parsed.len()), (head, 3, 2));
        assert_eq!(parsed.args(&bytes, 0).get(2), b"v");
        assert_eq!(parsed.bytes(&bytes, 1), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }

    #[test]
    fn the_number_of_commands_has_to_fit_the_flags() {
        let plain = RequestHead::default();
        assert_eq!(RequestPayload::parse(&payload(plain, &[])), Err(PayloadError::CommandCount(0)));
        assert_eq!(RequestPayload::parse(&payload(plain, &["A", "B"])), Err(PayloadError::CommandCount(2)));
        let describe = RequestHead { flags: RequestFlags::DESCRIBE, ..plain };
        assert!(RequestPayload::parse(&payload(describe, &[])).is_ok_and(|parsed| parsed.is_empty()));
    }

    #[test]
    fn damaged_payloads_are_typed_errors() {
        let good = payload(RequestHead::default(), &["SET k v"]);
        for length in 0..good.len() {
            assert!(RequestPayload::parse(&good[..length]).is_err(), "{length}");
        }
        let mut other = good.clone();
        other[0] = 9;
        assert_eq!(RequestPayload::parse(&other), Err(PayloadError::Version(9)));
        for tail in [&b"PING\r\n"[..], b"*0\r\n", b"*1\r\n$1\r\naXX"] {
            let bytes = [&good[..REQUEST_HEAD_BYTES], tail].concat();
            assert_eq!(RequestPayload::parse(&bytes), Err(PayloadError::Malformed));
        }
    }

    #[test]
    fn a_large_request_comes_in_parts_and_is_whole_again() {
        let flags = RequestFlags::TRANSACTION.with(RequestFlags::RESP3);
        let whole = payload(RequestHead { flags, db: 3, connection: 9 }, &["SET k abcdefghij", "GET k"]);
        for bytes_max in [REQUEST_HEAD_BYTES + WHOLE_LENGTH_BYTES + 1, 30, 40] {
            let parts = split(&whole, bytes_max);
            let (last, others) = parts.split_last().expect("at least one");
            let mut kept = Vec::new();
            for part in others {
                let head = RequestPayload::parse(part).expect("a part").head;
                assert!(part.len() <= bytes_max && head.flags == RequestFlags::PART && head.connection == 9);
                kept.extend_from_slice(&part[REQUEST_HEAD_BYTES..]);
            }
            assert_eq!(assemble(&kept, last), Some(whole.clone()));
            assert_eq!(assemble(&kept[1..], last), None, "a part is missing");
        }
        assert_eq!(assemble(b"", b""), None);
    }

    #[test]
    fn a_response_keeps_flags_and_reply() {
        let mut bytes = Vec::new();
        write_response(&mut bytes, ResponseFlags::NONE.with_if(true, ResponseFlags::CLOSE), b"+OK\r\n");
        let (flags, reply) = parse_response(&bytes).expect("well-formed");
        assert!(flags.has(ResponseFlags::CLOSE) && !flags.has(ResponseFlags::EARLY_ALLOWED));
        assert_eq!(reply, b"+OK\r\n");
        assert_eq!(parse_response(b"\x01"), Err(PayloadError::Truncated));
        assert_eq!(parse_response(b"\x02\0+"), Err(PayloadError::Version(2)));
    }

    proptest! {
        #[test]
        fn arbitrary_payloads_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RequestPayload::parse(&bytes);
        }
    }
}
