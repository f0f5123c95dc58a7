//! Packs: requests that share a packet, and the responses to them.
//!
//! Invariant: a part is executed and answered as if it had come by itself. Only requests of one command are
//! packed, without state of their connection at the server: what else they are told by, all parts share.

use super::{PayloadError, RequestFlags, RequestHead, ResponseFlags, REQUEST_HEAD_BYTES, VERSION};
use std::ops::Range;

/// The flags that a pack's parts may have; all of them have the same.
pub(super) const SHARED_FLAGS: RequestFlags = RequestFlags::EARLY.with(RequestFlags::RESP3);

/// The bytes of a length, of a part or of its response.
const LENGTH_BYTES: usize = 4;
/// The bytes of a [`PartHead`].
const PART_HEAD_BYTES: usize = 6;
/// The bytes of a response's part before its reply: length, version, flags.
const RESPONSE_PART_BYTES: usize = LENGTH_BYTES + 2;

/// What precedes the command of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartHead {
    /// The database that the command begins in.
    pub db: u16,
    /// The client's connection among those that share its session.
    pub connection: u32,
}

/// Makes one request of several.
#[derive(Debug, Clone, Default)]
pub struct PackBuilder {
    payload: Vec<u8>,
    count: usize,
    flags: RequestFlags,
}

impl PackBuilder {
    /// Adds a request, the payload of one command, if it may share a packet of at most `bytes_max` bytes with what
    /// is there already.
    pub fn add(&mut self, request: &[u8], bytes_max: usize) -> bool {
        let Ok(head) = RequestHead::parse(request) else { return false };
        let is_plain = head.flags.without(SHARED_FLAGS) == RequestFlags::NONE;
        if self.count == 0 {
            self.flags = head.flags;
        }
        let begins_at = self.payload.len().max(REQUEST_HEAD_BYTES);
        let bytes = LENGTH_BYTES + PART_HEAD_BYTES + request.len() - REQUEST_HEAD_BYTES;
        if !is_plain || head.flags != self.flags || begins_at + bytes > bytes_max {
            return false;
        }
        if self.count == 0 {
            let flags = head.flags.with(RequestFlags::PACK);
            RequestHead { flags, ..RequestHead::default() }.write(&mut self.payload);
        }
        let command = &request[REQUEST_HEAD_BYTES..];
        self.payload.extend_from_slice(&((PART_HEAD_BYTES + command.len()) as u32).to_le_bytes());
        self.payload.extend_from_slice(&head.db.to_le_bytes());
        self.payload.extend_from_slice(&head.connection.to_le_bytes());
        self.payload.extend_from_slice(command);
        self.count += 1;
        true
    }

    /// How many requests it holds.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The payload of all; of use when there are at least two.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Begins anew, keeping the memory.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.count = 0;
    }
}

/// A part's head at `at`, and where its command lies.
pub(super) fn read_part(payload: &[u8], at: usize) -> Result<(PartHead, Range<usize>), PayloadError> {
    let (length, rest) = payload[at..].split_at_checked(LENGTH_BYTES).ok_or(PayloadError::Truncated)?;
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length > rest.len() {
        return Err(PayloadError::Truncated);
    }
    let head = rest[..length].get(..PART_HEAD_BYTES).ok_or(PayloadError::Malformed)?;
    let db = u16::from_le_bytes([head[0], head[1]]);
    let connection = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
    let begin = at + LENGTH_BYTES;
    Ok((PartHead { db, connection }, begin + PART_HEAD_BYTES..begin + length))
}

/// Appends the head of a response to a pack.
pub fn write_pack_response(out: &mut Vec<u8>, flags: ResponseFlags) {
    out.extend_from_slice(&[VERSION, flags.with_if(true, ResponseFlags::PACK).0]);
}

/// Appends one part of a response to a pack, written by `write`; returns how many bytes it took.
pub fn write_response_part(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    write(out);
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    out.len() - start
}

/// How many bytes a response to a pack has besides the replies of its parts.
pub const fn response_bytes(parts: usize) -> usize {
    2 + parts * RESPONSE_PART_BYTES
}

/// Gives each of a pack's parts its response: the part's own, or what is said to all. An error if there are not as
/// many as parts.
pub fn unpack(response: &[u8], count: usize) -> Result<Vec<&[u8]>, PayloadError> {
    let (flags, mut rest) = super::parse_response(response)?;
    if !flags.has(ResponseFlags::PACK) {
        return Ok(vec![response; count]);
    }
    let mut parts = Vec::with_capacity(count);
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (part, behind) = behind.split_at_checked(length).ok_or(PayloadError::Truncated)?;
        parts.push(part);
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(PayloadError::Truncated);
    }
    (parts.len() == count).then_some(parts).ok_or(PayloadError::CommandCount(count))
}

#[cfg(test)]
mod tests {
    use super::super::{write_response, RequestPayload};
    use super::*;
    use crate::codec::{write_command, Command};
    use proptest::prelude::*;

    fn request(flags: RequestFlags, db: u16, connection: u32, line: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        RequestHead { flags, db, connection }.write(&mut bytes);
        write_command(&mut bytes, Command::new(line.split(' ')).args());
        bytes
    }

    fn pack(requests: &[Vec<u8>]) -> PackBuilder {
        let mut builder = PackBuilder::default();
        for request in requests {
            assert!(builder.add(request, 1_000), "{request:?}");
        }
        builder
    }

    #[test]
    fn a_pack_comes_apart_into_its_parts() {
        let early = RequestFlags::EARLY;
        let built = pack(&[request(early, 3, 7, "SET k v"), request(early, 0, 70_000, "SET other w")]);
        let parsed = RequestPayload::parse(built.payload()).expect("ours");
        assert!(parsed.head.flags.has(RequestFlags::PACK) && parsed.head.flags.has(RequestFlags::EARLY));
        assert_eq!((parsed.len(), built.count()), (2, 2));
        assert_eq!(parsed.part(0), PartHead { db: 3, connection: 7 });
        assert_eq!(parsed.part(1), PartHead { db: 0, connection: 70_000 });
        assert_eq!(parsed.args(built.payload(), 1).get(1), b"other");
        assert_eq!(parsed.bytes(built.payload(), 0), b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
    }

    #[test]
    fn what_differs_or_has_state_or_is_too_large_does_not_share() {
        let plain = || request(RequestFlags::NONE, 0, 1, "GET k");
        for flags in [
            RequestFlags::RESP3,
            RequestFlags::EARLY,
            RequestFlags::TRANSACTION,
            RequestFlags::PRIVATE,
            RequestFlags::PART,
            RequestFlags::DESCRIBE,
        ] {
            assert!(!pack(&[plain()]).add(&request(flags, 0, 1, "GET k"), 1_000), "{flags:?}");
        }
        assert!(!PackBuilder::default().add(&request(RequestFlags::PRIVATE, 0, 1, "GET k"), 1_000));
        let mut one = pack(&[plain()]);
        let both = one.payload().len() + plain().len();
        assert!(!one.add(&plain(), both - 1) && one.count() == 1);
        assert!(one.add(&plain(), both), "to the last byte");
        one.clear();
        assert!(one.add(&request(RequestFlags::RESP3, 0, 1, "GET k"), 1_000), "another begins anew");
    }

    #[test]
    fn damaged_packs_are_typed_errors() {
        let good =
            pack(&[request(RequestFlags::NONE, 3, 7, "GET k"), request(RequestFlags::NONE, 3, 7, "GET l")]);
        let good = good.payload();
        let first_end = REQUEST_HEAD_BYTES + LENGTH_BYTES + good[REQUEST_HEAD_BYTES] as usize;
        for length in 0..good.len() {
            let whole = length == first_end;
            assert_eq!(RequestPayload::parse(&good[..length]).is_ok(), whole, "{length}");
        }
        let parse_with = |at: usize, byte: u8| {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            RequestPayload::parse(&bytes)
        };
        assert_eq!(parse_with(REQUEST_HEAD_BYTES, 255), Err(PayloadError::Truncated));
        assert_eq!(parse_with(REQUEST_HEAD_BYTES, 5), Err(PayloadError::Malformed));
        let flags = RequestFlags::PACK.with(RequestFlags::TRANSACTION).0.to_le_bytes();
        assert_eq!(parse_with(2, flags[0]), Err(PayloadError::Malformed), "a transaction does not share");
        let two_in_one =
            [request(RequestFlags::NONE, 0, 1, "GET k"), b"*1\r\n$4\r\nPING\r\n".to_vec()].concat();
        let two_in_one = pack(&[two_in_one]);
        assert_eq!(RequestPayload::parse(two_in_one.payload()), Err(PayloadError::Malformed));
    }

    #[test]
    fn each_part_gets_its_response_or_what_is_said_to_all() {
        let mut out = Vec::new();
        write_pack_response(&mut out, ResponseFlags::EARLY_ALLOWED);
        for reply in [&b"+OK\r\n"[..], b":1\r\n"] {
            let bytes = write_response_part(&mut out, |out| write_response(out, ResponseFlags::NONE, reply));
            assert_eq!(bytes, RESPONSE_PART_BYTES + reply.len());
        }
        assert_eq!(out.len(), response_bytes(2) + 9);
        let parts = unpack(&out, 2).expect("ours");
        assert_eq!(parts, [&b"\x01\0+OK\r\n"[..], b"\x01\0:1\r\n"]);
        assert_eq!(unpack(&out, 3), Err(PayloadError::CommandCount(3)), "one is missing");
        assert_eq!(unpack(&out, 1), Err(PayloadError::CommandCount(1)), "one too many");
        assert_eq!(unpack(&out[..out.len() - 1], 2), Err(PayloadError::Truncated));
        assert_eq!(unpack(&[&out[..], &[0]].concat(), 2), Err(PayloadError::Truncated));
        let mut refusal = Vec::new();
        write_response(&mut refusal, ResponseFlags::CLOSE, b"-ERR no\r\n");
        assert_eq!(unpack(&refusal, 2), Ok(vec![&refusal[..], &refusal[..]]));
    }

    proptest! {
        #[test]
        fn arbitrary_packs_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0..4_usize) {
            let mut payload = Vec::new();
            RequestHead { flags: RequestFlags::PACK, ..RequestHead::default() }.write(&mut payload);
            payload.extend_from_slice(&bytes);
            let _ = RequestPayload::parse(&payload);
            let _ = unpack(&[&[VERSION, ResponseFlags::PACK.0][..], &bytes].concat(), count);
        }
    }
}
