//! What members of a Hermes group say to each other.
//!
//! Invariant: what is written is read back; other bytes are an error.

use crate::datagram::{blob, read_identity, write_identity, Reader, Refusal};
use crate::replica::Decline;
use crate::view::MemberId;
use scotfree_state::Version;
use scotfree_wire::Identity;

pub(crate) const INVALIDATE: u8 = 64;
pub(crate) const ACK: u8 = 65;
pub(crate) const VALIDATE: u8 = 66;
pub(crate) const PROBE: u8 = 67;
pub(crate) const POLL: u8 = 68;
pub(crate) const SETTLED: u8 = 69;
pub(crate) const FORWARD: u8 = 70;
pub(crate) const REPLY: u8 = 71;
pub(crate) const REFUSED: u8 = 72;
pub(crate) const READY: u8 = 73;
pub(crate) const JOINED: u8 = 74;
pub(crate) const COUNTED: u8 = 75;
pub(crate) const CLAIM: u8 = 76;
pub(crate) const CONFIRMED: u8 = 77;
pub(crate) const GREETING: u8 = 78;
pub(crate) const HEARD: u8 = 79;

/// What a member holds that does not know whether it is the group's: the history that it stands in (0: none), and by
/// how many writes it was made. The greater is ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub lineage: u64,
    pub progress: u64,
}

/// Who made a write, and what it was answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Made {
    pub identity: Identity,
    pub at_ms: u64,
    pub is_refused: bool,
    pub reply: Box<[u8]>,
}

/// What a write makes of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    /// It holds this from now on.
    Value(Box<[u8]>),
    /// It is gone.
    Gone,
    /// Nothing: a later write has taken its place everywhere, or the application refused it. What it was answered
    /// is to be noted.
    Note,
}

impl Content {
    /// How many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Content::Value(value) => value.len(),
            Content::Gone | Content::Note => 0,
        }
    }
}

/// A write on its way to all members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Invalidate {
    /// The sender's name for this telling.
    pub round: u64,
    /// All rounds of the sender below this one are over.
    pub done_below: u64,
    pub key: Box<[u8]>,
    pub version: Version,
    pub content: Content,
    pub made: Made,
}

impl Invalidate {
    /// How much room it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.made.reply.len() + self.content.bytes() + 64
    }
}

/// All members have a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validate<'a> {
    pub round: u64,
    pub done_below: u64,
    pub key: &'a [u8],
    pub version: Version,
    /// In storage too.
    pub is_stable: bool,
}

fn read_bool(reader: &mut Reader<'_>) -> Result<bool, Refusal> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Refusal::Damaged),
    }
}

pub(crate) fn write_version(version: Version, out: &mut Vec<u8>) {
    out.extend_from_slice(&version.counter.to_le_bytes());
    out.extend_from_slice(&version.member.to_le_bytes());
}

pub(crate) fn read_version(reader: &mut Reader<'_>) -> Result<Version, Refusal> {
    Ok(Version { counter: reader.u64()?, member: u16::from_le_bytes(reader.array()?) })
}

pub(crate) fn write_made(made: &Made, out: &mut Vec<u8>) {
    write_identity(&made.identity, out);
    out.extend_from_slice(&made.at_ms.to_le_bytes());
    out.push(u8::from(made.is_refused));
    blob(&made.reply, out);
}

pub(crate) fn read_made(reader: &mut Reader<'_>) -> Result<Made, Refusal> {
    let (identity, at_ms) = (read_identity(reader)?, reader.u64()?);
    Ok(Made { identity, at_ms, is_refused: read_bool(reader)?, reply: reader.blob()?.into() })
}

/// An [`Invalidate`] as its sender has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telling<'a> {
    pub round: u64,
    pub done_below: u64,
    pub key: &'a [u8],
    pub version: Version,
    pub content: &'a Content,
    pub made: &'a Made,
}

impl Telling<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.round.to_le_bytes());
        out.extend_from_slice(&self.done_below.to_le_bytes());
        write_version(self.version, out);
        write_made(self.made, out);
        blob(self.key, out);
        let (code, value) = match self.content {
            Content::Gone => (0, &[][..]),
            Content::Value(value) => (1, &value[..]),
            Content::Note => (2, &[][..]),
        };
        out.push(code);
        blob(value, out);
    }

    /// How many bytes are written.
    pub(crate) fn bytes(&self) -> usize {
        TELLING_HEAD_BYTES + self.key.len() + self.made.reply.len() + self.content.bytes()
    }
}

/// Two numbers, a version, who made it and when, whether it was refused, three lengths and what it does.
const TELLING_HEAD_BYTES: usize = 8 + 8 + 10 + 24 + 8 + 1 + 3 * 4 + 1;

pub(crate) fn read_invalidate(mut reader: Reader<'_>) -> Result<Invalidate, Refusal> {
    let (round, done_below) = (reader.u64()?, reader.u64()?);
    let version = read_version(&mut reader)?;
    let made = read_made(&mut reader)?;
    let key = reader.blob()?.into();
    let content = match (reader.u8()?, reader.blob()?) {
        (0, &[]) => Content::Gone,
        (1, value) => Content::Value(value.into()),
        (2, &[]) => Content::Note,
        _ => return Err(Refusal::Damaged),
    };
    reader.end().map(|()| Invalidate { round, done_below, key, version, content, made })
}

/// That a write is here: its round, and whether storage has it.
pub(crate) fn write_ack(round: u64, is_stored: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&round.to_le_bytes());
    out.push(u8::from(is_stored));
}

pub(crate) fn read_ack(mut reader: Reader<'_>) -> Result<(u64, bool), Refusal> {
    let ack = (reader.u64()?, read_bool(&mut reader)?);
    reader.end().map(|()| ack)
}

pub(crate) fn write_validate(validate: &Validate<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&validate.round.to_le_bytes());
    out.extend_from_slice(&validate.done_below.to_le_bytes());
    write_version(validate.version, out);
    out.push(u8::from(validate.is_stable));
    blob(validate.key, out);
}

pub(crate) fn read_validate(mut reader: Reader<'_>) -> Result<Validate<'_>, Refusal> {
    let (round, done_below) = (reader.u64()?, reader.u64()?);
    let version = read_version(&mut reader)?;
    let is_stable = read_bool(&mut reader)?;
    let key = reader.blob()?;
    reader.end().map(|()| Validate { round, done_below, key, version, is_stable })
}

pub(crate) fn write_claim(claim: Claim, out: &mut Vec<u8>) {
    out.extend_from_slice(&claim.lineage.to_le_bytes());
    out.extend_from_slice(&claim.progress.to_le_bytes());
}

pub(crate) fn read_claim(mut reader: Reader<'_>) -> Result<Claim, Refusal> {
    let claim = Claim { lineage: reader.u64()?, progress: reader.u64()? };
    reader.end().map(|()| claim)
}

/// A request on its way to the member that coordinates it: its identity and operation.
pub(crate) fn write_forward(identity: &Identity, op: &[u8], out: &mut Vec<u8>) {
    write_identity(identity, out);
    blob(op, out);
}

pub(crate) fn read_forward(mut reader: Reader<'_>) -> Result<(Identity, &[u8]), Refusal> {
    let (identity, op) = (read_identity(&mut reader)?, reader.blob()?);
    reader.end().map(|()| (identity, op))
}

/// Its answer.
pub(crate) fn read_reply(mut reader: Reader<'_>) -> Result<Made, Refusal> {
    let made = read_made(&mut reader)?;
    reader.end().map(|()| made)
}

/// Why it has none.
const REASONS: [Decline; 4] = [Decline::Busy, Decline::Forgotten, Decline::NoRoom, Decline::Contended];

pub(crate) fn write_refused(identity: &Identity, why: Decline, out: &mut Vec<u8>) {
    write_identity(identity, out);
    out.push(REASONS.iter().position(|reason| *reason == why).unwrap_or(0) as u8);
}

pub(crate) fn read_refused(mut reader: Reader<'_>) -> Result<(Identity, Decline), Refusal> {
    let identity = read_identity(&mut reader)?;
    let why = *REASONS.get(usize::from(reader.u8()?)).ok_or(Refusal::Damaged)?;
    reader.end().map(|()| (identity, why))
}

/// Where a write came from: the member that told it, and its name for the telling.
pub(crate) type Source = (MemberId, u64);

pub(crate) fn write_source(source: Source, out: &mut Vec<u8>) {
    out.push(source.0 .0);
    out.extend_from_slice(&source.1.to_le_bytes());
}

pub(crate) fn read_source(reader: &mut Reader<'_>) -> Result<Source, Refusal> {
    Ok((MemberId(reader.u8()?), reader.u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Made {
        let identity = Identity { client: [7; 16], number: 3 << 56 | 9 };
        Made { identity, at_ms: 11, is_refused: true, reply: b"answer"[..].into() }
    }

    fn invalidate(content: Content) -> Invalidate {
        let version = Version { counter: 1 << 40, member: 513 };
        Invalidate { round: 5, done_below: 4, key: b"key"[..].into(), version, content, made: made() }
    }

    #[test]
    fn a_write_is_read_back_and_a_cut_one_is_not() {
        for content in [Content::Value(b"value"[..].into()), Content::Gone, Content::Note] {
            let Invalidate { round, done_below, key, version, made, .. } = invalidate(content.clone());
            let telling = Telling { round, done_below, key: &key, version, content: &content, made: &made };
            let mut bytes = Vec::new();
            telling.write(&mut bytes);
            assert_eq!(bytes.len(), telling.bytes());
            assert_eq!(read_invalidate(Reader::of(&bytes)), Ok(invalidate(content)));
            for length in 0..bytes.len() {
                assert_eq!(read_invalidate(Reader::of(&bytes[..length])), Err(Refusal::Damaged), "{length}");
            }
        }
    }

    #[test]
    fn what_is_short_is_read_back() {
        let mut bytes = Vec::new();
        write_ack(9, true, &mut bytes);
        assert_eq!(read_ack(Reader::of(&bytes)), Ok((9, true)));
        bytes.clear();
        let version = Version { counter: 3, member: 2 };
        let validate = Validate { round: 1, done_below: 2, key: b"k", version, is_stable: true };
        write_validate(&validate, &mut bytes);
        assert_eq!(read_validate(Reader::of(&bytes)), Ok(validate));
        bytes.clear();
        write_forward(&made().identity, b"op", &mut bytes);
        assert_eq!(read_forward(Reader::of(&bytes)), Ok((made().identity, &b"op"[..])));
        bytes.clear();
        let claim = Claim { lineage: 3, progress: 99 };
        write_claim(claim, &mut bytes);
        assert_eq!(read_claim(Reader::of(&bytes)), Ok(claim));
        for why in REASONS {
            bytes.clear();
            write_refused(&made().identity, why, &mut bytes);
            assert_eq!(read_refused(Reader::of(&bytes)), Ok((made().identity, why)));
        }
    }
}
