//! Protobuf's wire format: a message as the fields that it consists of, for the levels above the records. Records are
//! read by generated code.
//!
//! Invariant: a field lies inside its message; after the first that does not, there are no more.

/// What a field holds, as the wire tells it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Integers, enumerations and truths.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Texts, bytes and messages.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
}

/// Why a message could not be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage<'a> {
    /// The message ends within this field's bytes, of which these are there.
    Cut(u32, &'a [u8]),
    /// This is no field.
    Nonsense,
}

/// The fields of a message, in their order.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Those of a message's bytes.
    pub fn new(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    /// How many bytes are not yet read.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Damage<'a>> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Damage::Nonsense)?;
        let value = match tag & 7 {
            _ if number == 0 => return Err(Damage::Nonsense),
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Value::Bytes(self.bytes(number)?),
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Damage::Nonsense),
        };
        Ok((number, value))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Damage<'a>> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Damage::Nonsense)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Damage<'a>> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Damage::Nonsense)?;
        self.rest = rest;
        Ok(*array)
    }

    fn bytes(&mut self, number: u32) -> Result<&'a [u8], Damage<'a>> {
        let length = usize::try_from(self.varint()?).map_err(|_| Damage::Nonsense)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Damage::Cut(number, self.rest))?;
        self.rest = rest;
        Ok(bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Damage<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_their_order() {
        let message =
            [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0];
        let fields: Vec<_> = Fields::new(&message).map(|field| field.expect("it is one")).collect();
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed32(1)),
            (4, Value::Fixed64(2)),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn what_is_no_field_ends_them() {
        let cases: [(&[u8], Damage<'_>); 6] = [
            (&[0x12, 5, 1, 2], Damage::Cut(2, &[1, 2])),
            (&[0x00, 1], Damage::Nonsense),
            (&[0x0b], Damage::Nonsense),
            (&[0xff; 11], Damage::Nonsense),
            (&[0x09, 1], Damage::Nonsense),
            (&[0x80], Damage::Nonsense),
        ];
        for (message, damage) in cases {
            let mut fields = Fields::new(message);
            assert_eq!(fields.next(), Some(Err(damage)), "{message:?}");
            assert_eq!(fields.next(), None);
        }
    }
}
