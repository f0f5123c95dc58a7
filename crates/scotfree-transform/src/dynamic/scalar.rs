//! A value that is no message, as languages have it.

use super::Misfit;
use crate::message::Value;
use crate::schema::{Field, Kind, Types, Utf8};

/// One of Protobuf's scalar values, those of enumerations as their numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'m> {
    /// A truth.
    Bool(bool),
    /// A number that may be negative.
    Signed(i64),
    /// A number that may not.
    Unsigned(u64),
    /// One with a point.
    Float(f64),
    /// A string's or field of bytes' bytes.
    Bytes(&'m [u8]),
}

impl<'m> Scalar<'m> {
    /// What a value of a field of this kind is; none of a message.
    #[inline]
    pub fn of(kind: Kind, value: Value<'m>) -> Option<Scalar<'m>> {
        match value {
            Value::Number(bits) => Some(Scalar::of_bits(kind, bits)),
            Value::Bytes(bytes) => Some(Scalar::Bytes(bytes)),
            Value::Message(_) => None,
        }
    }

    /// What a field of this kind is where it is not there; none of a message.
    pub fn zero(kind: Kind) -> Option<Scalar<'m>> {
        match kind {
            Kind::String | Kind::Bytes | Kind::Uuid => Some(Scalar::Bytes(&[])),
            Kind::Message | Kind::Group => None,
            kind => Some(Scalar::of_bits(kind, 0)),
        }
    }

    fn of_bits(kind: Kind, bits: u64) -> Scalar<'m> {
        match kind {
            Kind::Bool => Scalar::Bool(bits != 0),
            Kind::Float => Scalar::Float(f32::from_bits(bits as u32).into()),
            Kind::Double => Scalar::Float(f64::from_bits(bits)),
            Kind::Uint32 | Kind::Fixed32 | Kind::Uint64 | Kind::Fixed64 => Scalar::Unsigned(bits),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Scalar::Signed(bits as i64),
            Kind::Int8 => Scalar::Signed((bits as i8).into()),
            Kind::Int16 => Scalar::Signed((bits as i16).into()),
            _ => Scalar::Signed((bits as i32).into()),
        }
    }

    /// A number's bits as they lie in the slot of this field.
    pub(super) fn bits(self, field: &Field, types: &Types) -> Result<u64, Misfit> {
        match field.kind {
            Kind::Bool => match self {
                Scalar::Bool(is_true) => Ok(is_true.into()),
                _ => Err(Misfit::Kind),
            },
            Kind::Float => {
                let value = self.float()?;
                let single = value as f32;
                // Infinity of a number that is none is what it became.
                let fits = single.is_finite() || !value.is_finite();
                fits.then_some(single.to_bits().into()).ok_or(Misfit::Range)
            }
            Kind::Double => Ok(self.float()?.to_bits()),
            Kind::Uint64 | Kind::Fixed64 => self.whole(0, u64::MAX.into()),
            Kind::Uint32 | Kind::Fixed32 => self.whole(0, u32::MAX.into()),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => self.whole(i64::MIN.into(), i64::MAX.into()),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Enum => {
                Ok(u64::from(self.whole(i32::MIN.into(), i32::MAX.into())? as u32))
            }
            Kind::ClosedEnum => {
                let bits = self.whole(i32::MIN.into(), i32::MAX.into())? as u32;
                let known = types.enums[field.sub as usize].numbers.binary_search(&(bits as i32)).is_ok();
                known.then_some(bits.into()).ok_or(Misfit::NotInEnum)
            }
            Kind::Int8 => Ok(u64::from(self.whole(i8::MIN.into(), i8::MAX.into())? as u8)),
            Kind::Int16 => Ok(u64::from(self.whole(i16::MIN.into(), i16::MAX.into())? as u32)),
            Kind::String | Kind::Bytes | Kind::Uuid | Kind::Message | Kind::Group => Err(Misfit::Kind),
        }
    }

    /// The bytes for a field of bytes or a string.
    pub(super) fn bytes(self, field: &Field) -> Result<&'m [u8], Misfit> {
        let Scalar::Bytes(bytes) = self else { return Err(Misfit::Kind) };
        match field.kind {
            Kind::String if field.utf8 == Utf8::Checked && std::str::from_utf8(bytes).is_err() => {
                Err(Misfit::NotUtf8)
            }
            Kind::Uuid if bytes.len() != 16 => Err(Misfit::Range),
            _ => Ok(bytes),
        }
    }

    fn float(self) -> Result<f64, Misfit> {
        match self {
            Scalar::Float(value) => Ok(value),
            _ => Err(Misfit::Kind),
        }
    }

    fn whole(self, least: i128, most: i128) -> Result<u64, Misfit> {
        let value = match self {
            Scalar::Signed(value) => i128::from(value),
            Scalar::Unsigned(value) => i128::from(value),
            Scalar::Bool(_) | Scalar::Float(_) | Scalar::Bytes(_) => return Err(Misfit::Kind),
        };
        (least..=most).contains(&value).then_some(value as u64).ok_or(Misfit::Range)
    }
}
