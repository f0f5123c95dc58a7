//! A reader by hand, as the study had it before it was generated: a message as the fields that it consists of.
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

/// An attribute's value, of the kinds that a record can say something with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Any<'a> {
    /// A text, as its bytes stand there.
    Text(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A number.
    Double(f64),
    /// A truth, bytes, a list, a map, or nothing.
    Other,
}

/// A `KeyValue`: its key, and its value.
pub fn attribute(message: &[u8]) -> Result<(&[u8], Any<'_>), Damage<'_>> {
    let mut found: (&[u8], Any<'_>) = (&[], Any::Other);
    for field in Fields::new(message) {
        match field? {
            (1, Value::Bytes(key)) => found.0 = key,
            (2, Value::Bytes(value)) => found.1 = any(value)?,
            _ => {}
        }
    }
    Ok(found)
}

fn any(message: &[u8]) -> Result<Any<'_>, Damage<'_>> {
    let mut found = Any::Other;
    for field in Fields::new(message) {
        found = match field? {
            (1, Value::Bytes(text)) => Any::Text(text),
            (3, Value::Varint(integer)) => Any::Integer(integer as i64),
            (4, Value::Fixed64(bits)) => Any::Double(f64::from_bits(bits)),
            _ => Any::Other,
        };
    }
    Ok(found)
}
