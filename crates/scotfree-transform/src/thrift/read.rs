//! Values as the wire has them, within bounds.
//!
//! Invariant: nothing is read behind the input, and a count that is returned is at most the number of bytes that are left.

use super::wire::{Wire, FALSE, STOP, TRUE};
use super::Protocol;
use crate::error::DecodeError;
use crate::protobuf::wire::Bytes;

/// Where reading stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'i> {
    pub(crate) protocol: Protocol,
    pub(crate) input: &'i [u8],
    pub(crate) at: usize,
}

/// What stands before a field's value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) wire: Wire,
    pub(crate) id: i16,
    /// The value itself, where the header has it: `TCompact`'s bools.
    pub(crate) truth: Option<bool>,
}

/// Elements of a list or set: what they are, unless there are none and it is not said, and how many.
pub(crate) type Elements = (Option<Wire>, u32);

impl<'i> Reader<'i> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'i [u8], DecodeError> {
        let taken = self.input[self.at..].get(..bytes).ok_or(DecodeError::Cut { at: self.at })?;
        self.at += bytes;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// A number of `N` bytes, the highest first.
    fn fixed<const N: usize>(&mut self) -> Result<u64, DecodeError> {
        Ok(self.take(N)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut bytes = Bytes { input: self.input, at: self.at };
        let value = bytes.varint(self.input.len())?;
        self.at = bytes.at;
        Ok(value)
    }

    /// A number whose sign is its lowest bit, of so many bits.
    fn zigzag(&mut self, bits: u32) -> Result<i64, DecodeError> {
        let at = self.at;
        let raw = self.varint()?;
        if bits < 64 && raw >> bits != 0 {
            return Err(DecodeError::Overlong { at });
        }
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, DecodeError> {
        match self.protocol {
            Protocol::Binary => Ok(self.fixed::<2>()? as i16),
            Protocol::Compact => Ok(self.zigzag(16)? as i16),
        }
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        match self.protocol {
            Protocol::Binary => Ok(self.fixed::<4>()? as i32),
            Protocol::Compact => Ok(self.zigzag(32)? as i32),
        }
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        match self.protocol {
            Protocol::Binary => Ok(self.fixed::<8>()? as i64),
            Protocol::Compact => self.zigzag(64),
        }
    }

    /// A double's bits: `TCompact` has the lowest byte first.
    pub(crate) fn double(&mut self) -> Result<u64, DecodeError> {
        let bits = self.fixed::<8>()?;
        Ok(match self.protocol {
            Protocol::Binary => bits,
            Protocol::Compact => bits.swap_bytes(),
        })
    }

    /// A bool that no header has said.
    pub(crate) fn truth(&mut self) -> Result<bool, DecodeError> {
        let at = self.at;
        match (self.byte()?, self.protocol) {
            (1, _) => Ok(true),
            // TCompact's false is 2; some have written 0.
            (0, _) | (FALSE, Protocol::Compact) => Ok(false),
            _ => Err(DecodeError::NotABool { at }),
        }
    }

    /// A length or count that is no negative number.
    pub(crate) fn length(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        let length = match self.protocol {
            Protocol::Binary => i64::from(self.i32()?) as u64,
            Protocol::Compact => self.varint()?,
        };
        if length > i32::MAX as u64 {
            return Err(DecodeError::Length { at });
        }
        Ok(length as u32)
    }

    /// A string's or binary's bytes: where they begin, and how many.
    pub(crate) fn text(&mut self) -> Result<&'i [u8], DecodeError> {
        let at = self.at;
        let length = self.length()?;
        self.take(length as usize).map_err(|_| DecodeError::Cut { at })
    }

    /// The next field's header, of which `last` was the one before; none at the struct's end.
    pub(crate) fn field(&mut self, last: i16) -> Result<Option<Header>, DecodeError> {
        let at = self.at;
        let byte = self.byte()?;
        if byte == STOP {
            return Ok(None);
        }
        let refused = DecodeError::NotAField { at };
        match self.protocol {
            Protocol::Binary => {
                let wire = Wire::of(byte, self.protocol).ok_or(refused)?;
                Ok(Some(Header { wire, id: self.i16()?, truth: None }))
            }
            Protocol::Compact => {
                let wire = Wire::of(byte & 0xf, self.protocol).ok_or(refused)?;
                let id = match byte >> 4 {
                    0 => self.i16()?,
                    delta => last.checked_add(i16::from(delta)).ok_or(refused)?,
                };
                let truth = (wire == Wire::Bool).then_some(byte & 0xf == TRUE);
                Ok(Some(Header { wire, id, truth }))
            }
        }
    }

    /// What stands before a list's or set's elements.
    pub(crate) fn elements(&mut self) -> Result<Elements, DecodeError> {
        let at = self.at;
        let byte = self.byte()?;
        let (code, count) = match (self.protocol, byte >> 4) {
            (Protocol::Binary, _) => (byte, self.length()?),
            (Protocol::Compact, 15) => (byte & 0xf, self.length()?),
            (Protocol::Compact, count) => (byte & 0xf, u32::from(count)),
        };
        let wire = self.element(code, count, at)?;
        self.enough(count, wire.map_or(0, |wire| wire.least_bytes(self.protocol)), at)?;
        Ok((wire, count))
    }

    /// What stands before a map's entries: keys, values.
    pub(crate) fn entries(&mut self) -> Result<(Option<Wire>, Option<Wire>, u32), DecodeError> {
        let at = self.at;
        let (key, value, count) = match self.protocol {
            Protocol::Binary => (self.byte()?, self.byte()?, self.length()?),
            Protocol::Compact => match self.length()? {
                0 => (STOP, STOP, 0),
                count => {
                    let both = self.byte()?;
                    (both >> 4, both & 0xf, count)
                }
            },
        };
        let (key, value) = (self.element(key, count, at)?, self.element(value, count, at)?);
        let least = |wire: Option<Wire>| wire.map_or(0, |wire| wire.least_bytes(self.protocol));
        self.enough(count, least(key) + least(value), at)?;
        Ok((key, value, count))
    }

    /// What elements are; where there are none it need not be said.
    fn element(&self, code: u8, count: u32, at: usize) -> Result<Option<Wire>, DecodeError> {
        match Wire::of(code, self.protocol) {
            None if code == STOP && count == 0 => Ok(None),
            None => Err(DecodeError::NotAField { at }),
            wire => Ok(wire),
        }
    }

    /// That so many values may be in the bytes that are left.
    fn enough(&self, count: u32, least_bytes: u64, at: usize) -> Result<(), DecodeError> {
        if u64::from(count) * least_bytes > (self.input.len() - self.at) as u64 {
            return Err(DecodeError::Cut { at });
        }
        Ok(())
    }

    /// Passes over a field's value; what lies within it counts as deep as if it were decoded.
    pub(crate) fn skip(&mut self, wire: Wire, depth_left: u16) -> Result<(), DecodeError> {
        match wire {
            Wire::Bytes => drop(self.text()?),
            Wire::Struct => self.skip_struct(self.deeper(depth_left)?)?,
            Wire::List | Wire::Set => {
                let (wire, count) = self.elements()?;
                self.skip_many(&[wire], count, depth_left)?;
            }
            Wire::Map => {
                let (key, value, count) = self.entries()?;
                self.skip_many(&[key, value], count, depth_left)?;
            }
            Wire::I16 => drop(self.i16()?),
            Wire::I32 => drop(self.i32()?),
            Wire::I64 => drop(self.i64()?),
            Wire::Bool | Wire::I8 => drop(self.byte()?),
            Wire::Double => drop(self.take(8)?),
            Wire::Uuid => drop(self.take(16)?),
        }
        Ok(())
    }

    /// Passes over a struct's fields.
    pub(crate) fn skip_struct(&mut self, depth_left: u16) -> Result<(), DecodeError> {
        let mut last = 0;
        while let Some(header) = self.field(last)? {
            last = header.id;
            if header.truth.is_none() {
                self.skip(header.wire, depth_left)?;
            }
        }
        Ok(())
    }

    fn skip_many(&mut self, wires: &[Option<Wire>], count: u32, depth_left: u16) -> Result<(), DecodeError> {
        if count == 0 {
            return Ok(());
        }
        let fixed = wires
            .iter()
            .map(|wire| wire.and_then(|wire| wire.fixed_bytes(self.protocol)))
            .sum::<Option<u64>>();
        if let Some(bytes) = fixed {
            return self.take((bytes * u64::from(count)) as usize).map(drop);
        }
        for _ in 0..count {
            wires.iter().flatten().try_for_each(|wire| self.skip_element(*wire, depth_left))?;
        }
        Ok(())
    }

    /// A container within another one is as deep as a struct would be.
    fn skip_element(&mut self, wire: Wire, depth_left: u16) -> Result<(), DecodeError> {
        match wire {
            Wire::List | Wire::Set | Wire::Map => self.skip(wire, self.deeper(depth_left)?),
            wire => self.skip(wire, depth_left),
        }
    }

    fn deeper(&self, depth_left: u16) -> Result<u16, DecodeError> {
        depth_left.checked_sub(1).ok_or(DecodeError::TooDeep { at: self.at })
    }
}
