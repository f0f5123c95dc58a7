//! Values as the wire has them, appended.

use super::read::Header;
use super::wire::{Wire, FALSE, STOP, TRUE};
use super::Protocol;
use crate::protobuf::encode::encoded;

/// Where bytes are appended.
pub(crate) struct Writer<'o> {
    pub(crate) protocol: Protocol,
    pub(crate) out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    pub(crate) fn new(protocol: Protocol, out: &'o mut Vec<u8>) -> Self {
        Writer { protocol, out }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(crate) fn varint(&mut self, value: u64) {
        let (bytes, count) = encoded(value);
        self.out.extend_from_slice(&bytes[..count]);
    }

    fn zigzag(&mut self, value: i64) {
        self.varint((value << 1 ^ value >> 63) as u64);
    }

    pub(crate) fn i16(&mut self, value: i16) {
        match self.protocol {
            Protocol::Binary => self.out.extend_from_slice(&value.to_be_bytes()),
            Protocol::Compact => self.zigzag(value.into()),
        }
    }

    pub(crate) fn i32(&mut self, value: i32) {
        match self.protocol {
            Protocol::Binary => self.out.extend_from_slice(&value.to_be_bytes()),
            Protocol::Compact => self.zigzag(value.into()),
        }
    }

    pub(crate) fn i64(&mut self, value: i64) {
        match self.protocol {
            Protocol::Binary => self.out.extend_from_slice(&value.to_be_bytes()),
            Protocol::Compact => self.zigzag(value),
        }
    }

    /// A double by its bits.
    pub(crate) fn double(&mut self, bits: u64) {
        self.out.extend_from_slice(&match self.protocol {
            Protocol::Binary => bits.to_be_bytes(),
            Protocol::Compact => bits.to_le_bytes(),
        });
    }

    /// A bool that no header says.
    pub(crate) fn truth(&mut self, truth: bool) {
        let no = match self.protocol {
            Protocol::Binary => 0,
            Protocol::Compact => FALSE,
        };
        self.byte(if truth { TRUE } else { no });
    }

    /// A length or count.
    pub(crate) fn length(&mut self, length: usize) {
        let length = i32::try_from(length).expect("what an arena holds is shorter than 2^31");
        match self.protocol {
            Protocol::Binary => self.i32(length),
            Protocol::Compact => self.varint(length as u64),
        }
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.length(text.len());
        self.out.extend_from_slice(text);
    }

    /// What stands before a field's value, of which `last` was the one before.
    pub(crate) fn header(&mut self, header: Header, last: i16) {
        let delta = i32::from(header.id) - i32::from(last);
        match self.protocol {
            Protocol::Compact if (1..16).contains(&delta) => {
                self.byte((delta as u8) << 4 | header_code(header, self.protocol));
            }
            Protocol::Compact => {
                let (bytes, count) = whole_header(header);
                self.out.extend_from_slice(&bytes[..count]);
            }
            Protocol::Binary => {
                self.byte(header_code(header, self.protocol));
                self.i16(header.id);
            }
        }
    }

    /// What ends a struct.
    pub(crate) fn stop(&mut self) {
        self.byte(STOP);
    }

    /// What stands before a list's or set's elements.
    pub(crate) fn elements(&mut self, wire: Wire, count: usize) {
        let code = wire.code(self.protocol);
        match self.protocol {
            Protocol::Compact if count < 15 => self.byte((count as u8) << 4 | code),
            Protocol::Compact => {
                self.byte(0xf0 | code);
                self.length(count);
            }
            Protocol::Binary => {
                self.byte(code);
                self.length(count);
            }
        }
    }

    /// What stands before a map's entries.
    pub(crate) fn entries(&mut self, key: Wire, value: Wire, count: usize) {
        let (key, value) = (key.code(self.protocol), value.code(self.protocol));
        match self.protocol {
            Protocol::Binary => {
                self.byte(key);
                self.byte(value);
                self.length(count);
            }
            Protocol::Compact => {
                self.length(count);
                if count > 0 {
                    self.byte(key << 4 | value);
                }
            }
        }
    }
}

/// The header of a field of `TCompact` that says the whole id, and how many bytes it is.
pub(crate) fn whole_header(header: Header) -> ([u8; 4], usize) {
    let id = i64::from(header.id);
    let (id, id_bytes) = encoded((id << 1 ^ id >> 63) as u64);
    ([header_code(header, Protocol::Compact), id[0], id[1], id[2]], 1 + id_bytes)
}

/// A field's type as its header says it: of `TCompact`'s bools with their value.
fn header_code(header: Header, protocol: Protocol) -> u8 {
    match (header.truth, protocol) {
        (Some(false), Protocol::Compact) => FALSE,
        _ => header.wire.code(protocol),
    }
}
