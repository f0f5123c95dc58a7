//! What members send each other: datagrams of several messages, authentic as a whole.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic |
//! | 4 | 1 | version of the layout of packets |
//! | 5 | 1 | kind: the first of replication's, so that devices let it pass unread |
//! | 6 | 1 | the member that sends it |
//! | 7 | 1 | the member it is for |
//! | 8 | 8 | the group: a hash of its name and protocol |
//! | 16 | 8 | epoch of the sender's view |
//! | 24 | 8 | MAC over all the rest |
//! | 32 | | messages: tag (1), zero (3), bytes (4), body |
//!
//! Invariant: what is read was written by a member that has the group's key; nothing is looked at before that is
//! known.

use crate::view::MemberId;
use scotfree_wire::{ControlKeys, Family, Identity, Key, MAGIC, VERSION};

/// The size of what precedes the messages.
pub(crate) const HEAD_BYTES: usize = 32;
/// The size of a datagram at most: what UDP takes, with room to spare. The kernel cuts what is longer than a link's
/// frames, and puts it together again.
pub const DATAGRAM_BYTES_MAX: usize = 60 << 10;
/// The size of what precedes a message's body.
const MESSAGE_HEAD_BYTES: usize = 8;

/// Why a datagram is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// It is none of ours.
    #[error("it is no datagram of a group")]
    Foreign,
    /// It was made under a key that this member does not have.
    #[error("it was not made under this group's key: compare the key files")]
    BadMac,
    /// It is of another group or protocol.
    #[error("it is of another group, or of a member that runs another protocol")]
    OtherGroup,
    /// It is for another member.
    #[error("it is for another member: the view has a wrong address")]
    OtherMember,
    /// Its messages contradict themselves.
    #[error("its messages are damaged")]
    Damaged,
}

/// The group as datagrams name it.
pub fn group_name_hash(name: &str, protocol: &str) -> u64 {
    scotfree_core::Fnv1a::EMPTY.and(name.as_bytes()).and(b"\0").and(protocol.as_bytes()).value()
}

/// The outside of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Who sends it.
    pub from: MemberId,
    /// For whom.
    pub to: MemberId,
    /// The group.
    pub group: u64,
    /// The epoch of the sender's view.
    pub epoch: u64,
}

/// Begins a datagram: room for the head.
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEAD_BYTES, 0);
}

/// Appends a message, whose body `write` appends.
pub(crate) fn message(tag: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[tag, 0, 0, 0, 0, 0, 0, 0]);
    write(out);
    let bytes = (out.len() - start - MESSAGE_HEAD_BYTES) as u32;
    out[start + 4..start + 8].copy_from_slice(&bytes.to_le_bytes());
}

/// Writes the head of a datagram that is complete.
pub(crate) fn seal(head: &Head, key: &Key, out: &mut [u8]) {
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&[VERSION, Family::Replicate.code(), head.from.0, head.to.0]);
    out[8..16].copy_from_slice(&head.group.to_le_bytes());
    out[16..24].copy_from_slice(&head.epoch.to_le_bytes());
    let mac = key.mac(&[&out[..24], &out[HEAD_BYTES..]]);
    out[24..32].copy_from_slice(&mac.to_le_bytes());
}

/// Reads the head of a datagram, and its messages if it is authentic.
pub fn open<'a>(bytes: &'a [u8], keys: &ControlKeys) -> Result<(Head, Messages<'a>), Refusal> {
    let head = read_head(bytes).ok_or(Refusal::Foreign)?;
    let stated = u64_at(bytes, 24);
    let is_made_by = |key: Key| key.mac(&[&bytes[..24], &bytes[HEAD_BYTES..]]) == stated;
    if !keys.all().any(is_made_by) {
        return Err(Refusal::BadMac);
    }
    Ok((head, Messages(&bytes[HEAD_BYTES..])))
}

/// The head, of something that need not be authentic.
pub fn read_head(bytes: &[u8]) -> Option<Head> {
    let is_ours = bytes.len() >= HEAD_BYTES
        && bytes[..4] == MAGIC.to_le_bytes()
        && bytes[4] == VERSION
        && bytes[5] == Family::Replicate.code();
    is_ours.then(|| Head {
        from: MemberId(bytes[6]),
        to: MemberId(bytes[7]),
        group: u64_at(bytes, 8),
        epoch: u64_at(bytes, 16),
    })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The messages of a datagram: tag and body.
#[derive(Debug, Clone)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<(u8, Reader<'a>), Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.0);
        let Some((head, rest)) = rest.split_at_checked(MESSAGE_HEAD_BYTES) else {
            return Some(Err(Refusal::Damaged));
        };
        let bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some((body, rest)) = rest.split_at_checked(bytes).filter(|_| head[1..4] == [0; 3]) else {
            return Some(Err(Refusal::Damaged));
        };
        self.0 = rest;
        Some(Ok((head[0], Reader(body))))
    }
}

/// Reads a body from its beginning.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Of bytes that are no message's body.
    pub(crate) fn of(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Refusal::Damaged)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Refusal> {
        self.array::<1>().map(|byte| byte[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Refusal> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Refusal> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes with their number (4) before them.
    pub(crate) fn blob(&mut self) -> Result<&'a [u8], Refusal> {
        let bytes = self.u32()? as usize;
        let (blob, rest) = self.0.split_at_checked(bytes).ok_or(Refusal::Damaged)?;
        self.0 = rest;
        Ok(blob)
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), Refusal> {
        self.0.is_empty().then_some(()).ok_or(Refusal::Damaged)
    }
}

/// Appends bytes with their number before them.
pub(crate) fn blob(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends numbers.
pub(crate) fn write_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// A body of one number.
pub(crate) fn read_number(mut reader: Reader<'_>) -> Result<u64, Refusal> {
    let number = reader.u64()?;
    reader.end().map(|()| number)
}

pub(crate) fn write_identity(identity: &Identity, out: &mut Vec<u8>) {
    out.extend_from_slice(&identity.client);
    out.extend_from_slice(&identity.number.to_le_bytes());
}

pub(crate) fn read_identity(reader: &mut Reader<'_>) -> Result<Identity, Refusal> {
    Ok(Identity { client: reader.array()?, number: reader.u64()? })
}

/// How many of what has these sizes go into one message: as much as half a datagram takes, and one at least.
pub(crate) fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fits = |size: &usize| {
        bytes += size;
        bytes <= DATAGRAM_BYTES_MAX / 2
    };
    sizes.take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_wire::{ClusterKey, Direction};

    #[test]
    fn a_datagram_is_read_back_and_a_changed_one_is_not() {
        let keys = ClusterKey::from_bytes([7; 32]).controls(Direction::MemberToMember);
        let head =
            Head { from: MemberId(1), to: MemberId(2), group: group_name_hash("g", "chain"), epoch: 9 };
        let mut bytes = Vec::new();
        begin(&mut bytes);
        message(3, &mut bytes, |out| blob(b"body", out));
        message(4, &mut bytes, |_| {});
        seal(&head, &keys.newest(), &mut bytes);
        let (read, messages) = open(&bytes, &keys).expect("it is authentic");
        assert_eq!(read, head);
        let tags: Vec<u8> = messages.map(|message| message.expect("it is whole").0).collect();
        assert_eq!(tags, [3, 4]);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(open(&changed, &keys).is_err(), "{at}");
        }
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length], &keys).is_err(), "{length}");
        }
        let others = ClusterKey::from_bytes([8; 32]).controls(Direction::MemberToMember);
        assert_eq!(open(&bytes, &others).err(), Some(Refusal::BadMac));
    }
}
