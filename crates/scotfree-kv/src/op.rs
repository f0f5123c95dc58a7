//! What the log of requests holds: one record per request that may have written, with its session's
//! position in the same record, so that the two are stored together or not at all.
//!
//! Record: tag (1 byte), session (8), then by tag
//! 1 apply: `seq_num` (8), the request's payload;
//! 2 position: `seq_num` (8), of a request that changed nothing;
//! 3 start: epoch (4), client nonce (16), server nonce (16), position (8);
//! 4 end: nothing.
//! Or tag 5 limit: how much the data may take (8).
//!
//! Of a member of a group, behind session and `seq_num` (8), which are 0 unless the request came to this member:
//! 6 applied: mark (8), client (16), number (8), milliseconds (8), the request's payload;
//! 7 answered, of a request that changed nothing: the same, with the answer in the payload's place;
//! 8 installed: client (16), number (8), milliseconds (8), counter (8), member (2), whether there is a value (1),
//! length (4) and bytes of key and of value, the answer.
//! Or tag 9 loaded: 1 for the first part and 2 for the last (8), then a part of a snapshot that takes the place of
//! all that was before. Parts follow each other without other ops between them; without its last one they mean
//! nothing.
//!
//! Invariant: what was written is read back; other bytes are an error.

use scotfree_core::{Epoch, SeqNum, SessionId};
use scotfree_session::RecoveredSession;
use scotfree_state::{Installed, Mark, Placed, Version};
use scotfree_wire::{Identity, Nonce};

/// What happened to the service's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// A request was executed.
    Apply {
        /// Whose.
        session: SessionId,
        /// Its place: the session's position from now on.
        seq: SeqNum,
        /// The request.
        payload: &'a [u8],
    },
    /// A request took its place and changed nothing.
    Position {
        /// Whose.
        session: SessionId,
        /// Its place.
        seq: SeqNum,
    },
    /// A session began.
    Start(RecoveredSession),
    /// A session ended.
    End(SessionId),
    /// From here on the data may take so many bytes. What a request did depends on it.
    Limit(u64),
    /// A write of a group was executed.
    Applied {
        /// Where it stands, and whose it is.
        place: Place,
        /// The request.
        payload: &'a [u8],
    },
    /// A write of a group took its place and changed nothing.
    Answered {
        /// Where it stands, and whose it is.
        place: Place,
        /// What it was answered.
        reply: &'a [u8],
    },
    /// A key got what a write of a group made of it.
    Installed(Installed<'a>),
    /// A part of a snapshot came from another member.
    Loaded(Part<'a>),
}

/// The place of a write in its group's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its place.
    pub mark: Mark,
    /// Who made it.
    pub identity: Identity,
    /// When it was ordered.
    pub at_ms: u64,
    /// The session whose position it moves forward.
    pub session: Option<(SessionId, SeqNum)>,
}

impl From<&Placed<'_>> for Place {
    fn from(placed: &Placed<'_>) -> Place {
        let Placed { mark, identity, at_ms, session, op: _ } = *placed;
        Place { mark, identity, at_ms, session }
    }
}

/// A part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// Nothing of it came before.
    pub is_first: bool,
    /// With it the snapshot is whole.
    pub is_last: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Op<'a> {
    /// Appends the record.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Op::Apply { session, seq, payload } => {
                head(1, *session, out);
                out.extend_from_slice(&seq.0.to_le_bytes());
                out.extend_from_slice(payload);
            }
            Op::Position { session, seq } => {
                head(2, *session, out);
                out.extend_from_slice(&seq.0.to_le_bytes());
            }
            Op::Start(record) => {
                head(3, record.session, out);
                out.extend_from_slice(&record.epoch.0.to_le_bytes());
                out.extend_from_slice(&record.client_nonce);
                out.extend_from_slice(&record.server_nonce);
                out.extend_from_slice(&record.position.0.to_le_bytes());
            }
            Op::End(session) => head(4, *session, out),
            Op::Limit(bytes) => head(5, SessionId(*bytes), out),
            Op::Applied { place, payload } => write_placed(6, place, payload, out),
            Op::Answered { place, reply } => write_placed(7, place, reply, out),
            Op::Installed(installed) => write_installed(installed, out),
            Op::Loaded(part) => {
                head(9, SessionId(u64::from(part.is_first) | u64::from(part.is_last) << 1), out);
                out.extend_from_slice(part.bytes);
            }
        }
    }

    /// Reads a record; `None` if it is none.
    pub fn read(bytes: &'a [u8]) -> Option<Op<'a>> {
        let (tag, rest) = bytes.split_first()?;
        let (session, rest) = take::<8>(rest)?;
        let session = SessionId(u64::from_le_bytes(session));
        match (tag, rest) {
            (1, rest) => {
                let (seq, payload) = take::<8>(rest)?;
                Some(Op::Apply { session, seq: SeqNum(u64::from_le_bytes(seq)), payload })
            }
            (2, rest) => {
                let seq = SeqNum(u64::from_le_bytes(rest.try_into().ok()?));
                Some(Op::Position { session, seq })
            }
            (3, rest) => read_start(session, rest).map(Op::Start),
            (4, []) => Some(Op::End(session)),
            (5, []) => Some(Op::Limit(session.0)),
            (6, rest) => read_place(session, rest).map(|(place, payload)| Op::Applied { place, payload }),
            (7, rest) => read_place(session, rest).map(|(place, reply)| Op::Answered { place, reply }),
            (8, rest) => read_installed(session, rest).map(Op::Installed),
            (9, bytes) if session.0 < 4 => {
                Some(Op::Loaded(Part { is_first: session.0 & 1 != 0, is_last: session.0 & 2 != 0, bytes }))
            }
            _ => None,
        }
    }
}

fn write_placed(tag: u8, place: &Place, rest: &[u8], out: &mut Vec<u8>) {
    write_session(tag, place.session, out);
    out.extend_from_slice(&place.mark.0.to_le_bytes());
    write_identity(&place.identity, place.at_ms, out);
    out.extend_from_slice(rest);
}

fn read_place(session: SessionId, bytes: &[u8]) -> Option<(Place, &[u8])> {
    let (seq, rest) = number(bytes)?;
    let (mark, rest) = number(rest)?;
    let (identity, at_ms, rest) = read_identity(rest)?;
    Some((Place { mark: Mark(mark), identity, at_ms, session: place_of(session, seq) }, rest))
}

fn write_installed(installed: &Installed<'_>, out: &mut Vec<u8>) {
    write_session(8, installed.session, out);
    write_identity(&installed.identity, installed.at_ms, out);
    write_version(installed.version, out);
    out.push(u8::from(installed.value.is_some()));
    write_blob(installed.key, out);
    write_blob(installed.value.unwrap_or_default(), out);
    out.extend_from_slice(installed.reply);
}

fn read_installed(session: SessionId, bytes: &[u8]) -> Option<Installed<'_>> {
    let (seq, rest) = number(bytes)?;
    let (identity, at_ms, rest) = read_identity(rest)?;
    let (version, rest) = read_version(rest)?;
    let ([has_value], rest) = take::<1>(rest)?;
    let (key, rest) = read_blob(rest)?;
    let (value, reply) = read_blob(rest)?;
    let value = match has_value {
        0 if value.is_empty() => None,
        1 => Some(value),
        _ => return None,
    };
    Some(Installed { key, version, value, identity, at_ms, reply, session: place_of(session, seq) })
}

fn write_session(tag: u8, session: Option<(SessionId, SeqNum)>, out: &mut Vec<u8>) {
    let (session, seq) = session.unwrap_or((SessionId(0), SeqNum(0)));
    head(tag, session, out);
    out.extend_from_slice(&seq.0.to_le_bytes());
}

/// No request has the place 0.
fn place_of(session: SessionId, seq: u64) -> Option<(SessionId, SeqNum)> {
    (seq != 0).then_some((session, SeqNum(seq)))
}

fn write_identity(identity: &Identity, at_ms: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&identity.client);
    out.extend_from_slice(&identity.number.to_le_bytes());
    out.extend_from_slice(&at_ms.to_le_bytes());
}

fn read_identity(bytes: &[u8]) -> Option<(Identity, u64, &[u8])> {
    let (client, rest) = take::<16>(bytes)?;
    let (of_client, rest) = number(rest)?;
    let (at_ms, rest) = number(rest)?;
    Some((Identity { client, number: of_client }, at_ms, rest))
}

/// Appends a version: counter (8), member (2).
pub(crate) fn write_version(version: Version, out: &mut Vec<u8>) {
    out.extend_from_slice(&version.counter.to_le_bytes());
    out.extend_from_slice(&version.member.to_le_bytes());
}

/// The version at the beginning, and the rest.
pub(crate) fn read_version(bytes: &[u8]) -> Option<(Version, &[u8])> {
    let (counter, rest) = number(bytes)?;
    let (member, rest) = take::<2>(rest)?;
    Some((Version { counter, member: u16::from_le_bytes(member) }, rest))
}

/// Appends bytes behind their length (4).
pub(crate) fn write_blob(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The bytes behind the length at the beginning, and the rest.
pub(crate) fn read_blob(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = take::<4>(bytes)?;
    rest.split_at_checked(u32::from_le_bytes(length) as usize)
}

/// The number (8) at the beginning, and the rest.
pub(crate) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = take::<8>(bytes)?;
    Some((u64::from_le_bytes(word), rest))
}

/// The tag and the eight bytes behind it, which of all records but one are the session.
fn head(tag: u8, session: SessionId, out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&session.0.to_le_bytes());
}

fn read_start(session: SessionId, bytes: &[u8]) -> Option<RecoveredSession> {
    let (epoch, rest) = take::<4>(bytes)?;
    let (client_nonce, rest): (Nonce, _) = take(rest)?;
    let (server_nonce, rest): (Nonce, _) = take(rest)?;
    let position = SeqNum(u64::from_le_bytes(rest.try_into().ok()?));
    Some(RecoveredSession {
        session,
        epoch: Epoch(u32::from_le_bytes(epoch)),
        client_nonce,
        server_nonce,
        position,
    })
}

/// The first `N` bytes and the rest.
pub(crate) fn take<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    Some((*first, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_nothing_else_is() {
        let record = RecoveredSession {
            session: SessionId(7 << 32 | 1),
            epoch: Epoch(7),
            client_nonce: [1; 16],
            server_nonce: [2; 16],
            position: SeqNum(9),
        };
        let (session, seq) = (SessionId(3), SeqNum(u64::MAX - 2));
        let identity = Identity { client: [5; 16], number: 1 << 56 | 3 };
        let place = Place { mark: Mark(8), identity, at_ms: 77, session: Some((session, seq)) };
        let installed = Installed {
            key: b"key",
            version: Version { counter: 1 << 40, member: 3 },
            value: Some(b"\0value"),
            identity,
            at_ms: 78,
            reply: b"reply",
            session: None,
        };
        for op in [
            Op::Apply { session, seq, payload: b"payload" },
            Op::Position { session, seq },
            Op::Start(record),
            Op::End(session),
            Op::Limit(1 << 40),
            Op::Applied { place, payload: b"payload" },
            Op::Applied { place: Place { session: None, ..place }, payload: b"" },
            Op::Answered { place, reply: b"reply" },
            Op::Installed(installed),
            Op::Installed(Installed { value: None, session: Some((session, seq)), ..installed }),
            Op::Loaded(Part { is_first: true, is_last: false, bytes: b"part" }),
            Op::Loaded(Part { is_first: false, is_last: true, bytes: b"" }),
        ] {
            let mut bytes = Vec::new();
            op.write(&mut bytes);
            assert_eq!(Op::read(&bytes), Some(op));
            let header_bytes = bytes.len()
                - match op {
                    Op::Apply { payload, .. } | Op::Applied { payload, .. } => payload.len(),
                    Op::Answered { reply, .. } | Op::Installed(Installed { reply, .. }) => reply.len(),
                    Op::Loaded(part) => part.bytes.len(),
                    Op::Position { .. } | Op::Start(_) | Op::End(_) | Op::Limit(_) => 0,
                };
            for length in 0..header_bytes {
                assert_eq!(Op::read(&bytes[..length]), None, "{op:?} cut to {length}");
            }
        }
        assert_eq!(Op::read(&[9; 40]), None);
        assert_eq!(Op::read(&[10; 40]), None);
    }
}
