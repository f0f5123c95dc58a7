//! The markers: how far each session has been applied, kept in one hash beside the data.
//!
//! Invariant: a session without a field is unknown, never at zero; a field that cannot be read stops the
//! start. The table in memory is what the hash will be when everything in flight is done.

use super::StopReason;
use crate::codec::{parse_integer, write_bulk, write_header};
use scotfree_core::{SeqNum, SessionId};
use std::collections::BTreeMap;

/// The field that counts the server's incarnations.
pub const EPOCH_FIELD: &[u8] = b"epoch";
const OPAQUE_SUFFIX: &[u8] = b":opaque";

/// What is kept of one session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marker {
    /// The last write that was applied.
    pub position: SeqNum,
    /// What the protocol keeps with it.
    pub opaque: Vec<u8>,
}

/// Why the hash cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the marker field `{0}` cannot be read; the hash was changed by somebody else")]
pub struct MarkerError(pub String);

/// All markers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Markers {
    /// The server's incarnation.
    pub epoch: u32,
    /// The sessions.
    pub sessions: BTreeMap<SessionId, Marker>,
}

impl Markers {
    /// Reads the fields and values of the hash.
    pub fn parse<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Markers, MarkerError> {
        let mut markers = Markers::default();
        for (field, value) in pairs {
            markers
                .read(field, value)
                .ok_or_else(|| MarkerError(String::from_utf8_lossy(field).into_owned()))?;
        }
        Ok(markers)
    }

    /// How many fields the hash has.
    pub fn field_count(&self) -> usize {
        1 + self.sessions.values().map(|marker| 1 + usize::from(!marker.opaque.is_empty())).sum::<usize>()
    }

    /// Appends the fields and values of the whole hash.
    pub fn write_all(&self, out: &mut Vec<u8>) {
        write_bulk(out, EPOCH_FIELD);
        write_bulk(out, self.epoch.to_string().as_bytes());
        for (session, marker) in &self.sessions {
            write_position(out, *session, marker.position);
            if !marker.opaque.is_empty() {
                write_opaque(out, *session, &marker.opaque);
            }
        }
    }

    fn read(&mut self, field: &[u8], value: &[u8]) -> Option<()> {
        if field == EPOCH_FIELD {
            self.epoch = number(value)?.try_into().ok()?;
        } else if let Some(session) = field.strip_suffix(OPAQUE_SUFFIX) {
            self.sessions.entry(SessionId(number(session)?)).or_default().opaque = value.to_vec();
        } else {
            self.sessions.entry(SessionId(number(field)?)).or_default().position = SeqNum(number(value)?);
        }
        Some(())
    }
}

fn number(text: &[u8]) -> Option<u64> {
    // Sessions are 64-bit numbers, the upper half of which Redis' integers do not hold.
    let canonical = text == b"0" || !text.starts_with(b"0") && text.iter().all(u8::is_ascii_digit);
    if !canonical || text.is_empty() {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends one session's field and position.
pub fn write_position(out: &mut Vec<u8>, session: SessionId, position: SeqNum) {
    write_bulk(out, session.to_string().as_bytes());
    write_bulk(out, position.to_string().as_bytes());
}

/// Appends one session's second field and what it holds.
pub fn write_opaque(out: &mut Vec<u8>, session: SessionId, opaque: &[u8]) {
    let mut field = session.to_string().into_bytes();
    field.extend_from_slice(OPAQUE_SUFFIX);
    write_bulk(out, &field);
    write_bulk(out, opaque);
}

/// Appends the command that deletes a session's fields.
pub fn write_delete(out: &mut Vec<u8>, key: &[u8], session: SessionId) {
    write_header(out, 4);
    write_bulk(out, b"HDEL");
    write_bulk(out, key);
    let field = session.to_string().into_bytes();
    write_bulk(out, &field);
    write_bulk(out, &[&field, OPAQUE_SUFFIX].concat());
}

/// What a stored epoch that is not ours says; none if it is missing.
pub(super) fn foreign_epoch(found: Option<u32>, ours: u32) -> StopReason {
    // Epochs only grow, so a smaller one is not a successor's.
    if found.is_some_and(|found| found > ours) {
        StopReason::Fenced
    } else {
        StopReason::Replaced { found, last: ours }
    }
}

/// A count in a reply such as ":3".
pub fn integer_reply(reply: &[u8]) -> Option<i64> {
    let body = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    parse_integer(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_round_trips() {
        let mut markers = Markers { epoch: 7, ..Markers::default() };
        let one = Marker { position: SeqNum(5), opaque: b"nonces\0\xff".to_vec() };
        markers.sessions.insert(SessionId(u64::MAX), one);
        markers.sessions.insert(SessionId(3), Marker::default());
        let mut bytes = b"*8\r\n".to_vec();
        markers.write_all(&mut bytes);
        assert_eq!(markers.field_count(), 4);
        let texts: Vec<&[u8]> = crate::codec::elements(&bytes)
            .map(|reply| crate::codec::text_of(reply).unwrap_or_default())
            .collect();
        let pairs = texts.chunks(2).map(|pair| (pair[0], pair[1]));
        assert_eq!(Markers::parse(pairs), Ok(markers));
    }

    #[test]
    fn foreign_fields_are_refused() {
        for (field, value) in [("x", "1"), ("1", "x"), ("1", ""), ("01", "1"), ("epoch", "-1"), ("", "1")] {
            let pairs = [(field.as_bytes(), value.as_bytes())];
            assert_eq!(Markers::parse(pairs.into_iter()), Err(MarkerError(field.to_owned())));
        }
    }
}
