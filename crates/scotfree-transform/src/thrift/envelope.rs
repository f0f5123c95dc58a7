//! What stands before a call's or reply's struct: which method, what kind of message, which call.
//!
//! Invariant: what is read is what `write` writes, or for `TBinary` what `write_unversioned` does.

use super::read::Reader;
use super::write::Writer;
use super::Protocol;
use crate::error::DecodeError;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// A call: its struct has the method's arguments.
    Call = 1,
    /// What a call gave: its struct has the result, or an exception that the method declares.
    Reply = 2,
    /// A call that failed otherwise: its struct is a `TApplicationException`.
    Exception = 3,
    /// A call that gets no reply.
    Oneway = 4,
}

impl MessageKind {
    fn of(number: u8, at: usize) -> Result<Self, DecodeError> {
        [MessageKind::Call, MessageKind::Reply, MessageKind::Exception, MessageKind::Oneway]
            .into_iter()
            .find(|kind| *kind as u8 == number)
            .ok_or(DecodeError::NotAnEnvelope { at })
    }
}

/// What stands before a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'m> {
    /// The method; of a service among several, `service:method`.
    pub name: &'m str,
    /// What the message is.
    pub kind: MessageKind,
    /// The call's number, which its reply says again.
    pub seq_num: i32,
}

/// `TBinary`: a version in the upper half of a negative number, the kind in its lowest byte.
const BINARY_VERSION: u32 = 0x8001_0000;
const VERSION_BITS: u32 = 0xffff_0000;
/// `TCompact`: its first byte, and the version in the lower five bits of the second.
const COMPACT_ID: u8 = 0x82;
const COMPACT_VERSION: u8 = 1;
const COMPACT_VERSION_BITS: u8 = 0x1f;

impl<'m> Envelope<'m> {
    /// Reads one, of `TBinary` with a version or without; returns how many bytes it takes, behind which the struct begins.
    pub fn read(protocol: Protocol, input: &'m [u8]) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader { protocol, input, at: 0 };
        let envelope = match protocol {
            Protocol::Binary => {
                let first = reader.i32()?;
                if first < 0 {
                    versioned(&mut reader, first as u32)?
                } else {
                    unversioned(&mut reader)?
                }
            }
            Protocol::Compact => compact(&mut reader)?,
        };
        Ok((envelope, reader.at))
    }

    /// The same, but refuses one without a version.
    pub fn read_strict(protocol: Protocol, input: &'m [u8]) -> Result<(Self, usize), DecodeError> {
        if protocol == Protocol::Binary && input.first().is_some_and(|first| first & 0x80 == 0) {
            return Err(DecodeError::NotAnEnvelope { at: 0 });
        }
        Envelope::read(protocol, input)
    }

    /// Appends it, with a version.
    pub fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let mut writer = Writer::new(protocol, out);
        match protocol {
            Protocol::Binary => {
                writer.i32((BINARY_VERSION | self.kind as u32) as i32);
                writer.text(self.name.as_bytes());
                writer.i32(self.seq_num);
            }
            Protocol::Compact => {
                writer.byte(COMPACT_ID);
                writer.byte((self.kind as u8) << 5 | COMPACT_VERSION);
                writer.varint(u64::from(self.seq_num as u32));
                writer.text(self.name.as_bytes());
            }
        }
    }

    /// Appends it as `TBinary` without a version, as peers expect it that are not strict and old.
    pub fn write_unversioned(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(Protocol::Binary, out);
        writer.text(self.name.as_bytes());
        writer.byte(self.kind as u8);
        writer.i32(self.seq_num);
    }
}

fn versioned<'m>(reader: &mut Reader<'m>, first: u32) -> Result<Envelope<'m>, DecodeError> {
    if first & VERSION_BITS != BINARY_VERSION {
        return Err(DecodeError::NotAnEnvelope { at: 0 });
    }
    let kind = MessageKind::of(first as u8, 3)?;
    let name = name(reader)?;
    Ok(Envelope { name, kind, seq_num: reader.i32()? })
}

fn unversioned<'m>(reader: &mut Reader<'m>) -> Result<Envelope<'m>, DecodeError> {
    reader.at = 0;
    let name = name(reader)?;
    let at = reader.at;
    let kind = MessageKind::of(reader.byte()?, at)?;
    Ok(Envelope { name, kind, seq_num: reader.i32()? })
}

fn compact<'m>(reader: &mut Reader<'m>) -> Result<Envelope<'m>, DecodeError> {
    if reader.byte()? != COMPACT_ID {
        return Err(DecodeError::NotAnEnvelope { at: 0 });
    }
    let second = reader.byte()?;
    if second & COMPACT_VERSION_BITS != COMPACT_VERSION {
        return Err(DecodeError::NotAnEnvelope { at: 1 });
    }
    let kind = MessageKind::of(second >> 5, 1)?;
    let at = reader.at;
    let seq_num = u32::try_from(reader.varint()?).map_err(|_| DecodeError::Overlong { at })?;
    Ok(Envelope { name: name(reader)?, kind, seq_num: seq_num as i32 })
}

fn name<'m>(reader: &mut Reader<'m>) -> Result<&'m str, DecodeError> {
    let at = reader.at;
    std::str::from_utf8(reader.text()?).map_err(|_| DecodeError::NotUtf8 { number: 0, at })
}
