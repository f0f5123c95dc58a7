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
//! Invariant: what was written is read back; other bytes are an error.

use scotfree_core::{Epoch, SeqNum, SessionId};
use scotfree_session::RecoveredSession;
use scotfree_wire::Nonce;

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
            _ => None,
        }
    }
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
        for op in [
            Op::Apply { session, seq, payload: b"payload" },
            Op::Position { session, seq },
            Op::Start(record),
            Op::End(session),
            Op::Limit(1 << 40),
        ] {
            let mut bytes = Vec::new();
            op.write(&mut bytes);
            assert_eq!(Op::read(&bytes), Some(op));
            let header_bytes = bytes.len().min(if matches!(op, Op::Apply { .. }) { 17 } else { usize::MAX });
            for length in 0..header_bytes {
                assert_eq!(Op::read(&bytes[..length]), None, "{op:?} cut to {length}");
            }
        }
        assert_eq!(Op::read(&[9; 40]), None);
    }
}
