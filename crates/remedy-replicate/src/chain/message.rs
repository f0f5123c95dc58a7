//! What members of a chain say to each other.
//!
//! Invariant: what is written is read back; other bytes are an error.

use crate::chain::log::Entry;
use crate::datagram::{blob, read_identity, write_identity, write_numbers, Reader, Refusal};
use crate::replica::Decline;
use crate::view::MemberId;
use scotfree_wire::Identity;

pub(crate) const FORWARD: u8 = 1;
pub(crate) const PROGRESS: u8 = 2;
pub(crate) const SUBMIT: u8 = 3;
pub(crate) const REFUSED: u8 = 4;
pub(crate) const COMMITTED: u8 = 5;
pub(crate) const QUERY: u8 = 6;
pub(crate) const QUERY_ANSWER: u8 = 7;
pub(crate) const READ: u8 = 8;
pub(crate) const READ_ANSWER: u8 = 9;

/// The size of an entry beside its operation.
pub(crate) const ENTRY_HEAD_BYTES: usize = 16 + 8 + 8 + 1 + 4;

/// From a member to the next: how far it is, and writes behind each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ForwardHead {
    /// The last write that the sender has.
    pub last: u64,
    /// The last of which it knows that all have it.
    pub committed: u64,
    /// The last of which it knows that it is stable at all.
    pub stable_all: u64,
    /// The first write that follows.
    pub first: u64,
}

/// From a member to the one before it: how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// The last write that it has, with all before.
    pub received: u64,
    /// The last of which it knows that all have it.
    pub committed: u64,
    /// The last that it and all behind it have stored.
    pub stable: u64,
}

impl Progress {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_numbers(&[self.received, self.committed, self.stable], out);
    }
}

/// A write on its way from the member that got it to the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Submitted<'a> {
    pub identity: Identity,
    pub op: &'a [u8],
}

pub(crate) fn write_forward_head(head: &ForwardHead, count: u32, out: &mut Vec<u8>) {
    write_numbers(&[head.last, head.committed, head.stable_all, head.first], out);
    out.extend_from_slice(&count.to_le_bytes());
}

pub(crate) fn read_forward_head(reader: &mut Reader<'_>) -> Result<(ForwardHead, u32), Refusal> {
    let (last, committed) = (reader.u64()?, reader.u64()?);
    let (stable_all, first) = (reader.u64()?, reader.u64()?);
    Ok((ForwardHead { last, committed, stable_all, first }, reader.u32()?))
}

pub(crate) fn write_entry(entry: &Entry, out: &mut Vec<u8>) {
    write_identity(&entry.identity, out);
    out.extend_from_slice(&entry.at_ms.to_le_bytes());
    out.push(entry.origin.0);
    blob(&entry.op, out);
}

/// An entry as it lies in a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryView<'a> {
    pub identity: Identity,
    pub at_ms: u64,
    pub origin: MemberId,
    pub op: &'a [u8],
}

pub(crate) fn read_entry<'a>(reader: &mut Reader<'a>) -> Result<EntryView<'a>, Refusal> {
    let identity = read_identity(reader)?;
    let at_ms = reader.u64()?;
    let origin = MemberId(reader.u8()?);
    Ok(EntryView { identity, at_ms, origin, op: reader.blob()? })
}

pub(crate) fn read_progress(mut reader: Reader<'_>) -> Result<Progress, Refusal> {
    let progress = Progress { received: reader.u64()?, committed: reader.u64()?, stable: reader.u64()? };
    reader.end().map(|()| progress)
}

/// A message of two numbers.
pub(crate) fn read_pair(mut reader: Reader<'_>) -> Result<(u64, u64), Refusal> {
    let pair = (reader.u64()?, reader.u64()?);
    reader.end().map(|()| pair)
}

pub(crate) fn write_submitted(submitted: &Submitted<'_>, out: &mut Vec<u8>) {
    write_identity(&submitted.identity, out);
    blob(submitted.op, out);
}

pub(crate) fn read_submitted<'a>(reader: &mut Reader<'a>) -> Result<Submitted<'a>, Refusal> {
    Ok(Submitted { identity: read_identity(reader)?, op: reader.blob()? })
}

/// Why a head takes no write: the identity, and which of the two reasons there are.
pub(crate) fn write_refused(identity: &Identity, why: Decline, out: &mut Vec<u8>) {
    write_identity(identity, out);
    out.push(u8::from(why == Decline::NoRoom));
}

pub(crate) fn read_refused(mut reader: Reader<'_>) -> Result<(Identity, Decline), Refusal> {
    let identity = read_identity(&mut reader)?;
    let why = match reader.u8()? {
        0 => Decline::Forgotten,
        1 => Decline::NoRoom,
        _ => return Err(Refusal::Damaged),
    };
    reader.end().map(|()| (identity, why))
}
