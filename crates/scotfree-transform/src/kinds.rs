//! Kinds of values that an application brings itself: converted while a message is decoded and encoded (Optimus Prime,
//! 4.2.1, 5.3.2).
//!
//! Invariant: a kind's converter never changes once it is registered, so that what one has decoded no other one encodes.

use std::sync::OnceLock;
use thiserror::Error;

/// How a kind's values lie on the wire, as a string or bytes, and in a message: as so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Converter {
    /// So many bytes are its value in a message.
    pub slot_bytes: u32,
    /// Writes the value of what is on the wire into bytes that are zero; false, if it is none.
    pub decode: fn(&[u8], &mut [u8]) -> bool,
    /// Appends a value as it is on the wire: what was decoded, or what a setter was given.
    pub encode: fn(&[u8], &mut Vec<u8>),
}

/// Why a converter is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// A number that is no application's.
    #[error("kind {0}: register one of 32 to 127; those below are the codec's own")]
    NotYours(u8),
    /// A kind that has one.
    #[error("kind {0} has a converter already; register each once, before the first message")]
    Taken(u8),
}

/// The first kind that an application may register.
const FIRST: u8 = 32;
/// So many may be.
const COUNT: usize = 96;

static CONVERTERS: [OnceLock<Converter>; COUNT] = [const { OnceLock::new() }; COUNT];

/// Whether it is an application's number.
pub(crate) fn may_be_registered(kind: u64) -> bool {
    (u64::from(FIRST)..u64::from(FIRST) + COUNT as u64).contains(&kind)
}

/// Has fields that say `[(scotfree.kind) = …]` be converted, in all messages of this process: to be called before the
/// first of them is decoded.
///
/// ```
/// use scotfree_transform::{register, Converter};
/// // A number on the wire as decimal digits, in a message as eight bytes.
/// fn decode(digits: &[u8], value: &mut [u8]) -> bool {
///     let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
///     number.map(|number| value.copy_from_slice(&number.to_le_bytes())).is_some()
/// }
/// fn encode(value: &[u8], out: &mut Vec<u8>) {
///     let number = u64::from_le_bytes(value.try_into().unwrap_or_default());
///     out.extend_from_slice(number.to_string().as_bytes());
/// }
/// register(33, Converter { slot_bytes: 8, decode, encode }).unwrap();
/// ```
pub fn register(kind: u8, converter: Converter) -> Result<(), RegisterError> {
    let place = kind.checked_sub(FIRST).and_then(|place| CONVERTERS.get(place as usize));
    let place = place.ok_or(RegisterError::NotYours(kind))?;
    place.set(converter).map_err(|_| RegisterError::Taken(kind))
}

/// The converter of a kind, if it is registered.
pub(crate) fn converter(kind: u8) -> Option<&'static Converter> {
    CONVERTERS.get(kind.checked_sub(FIRST)? as usize)?.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_an_application_is_registered_once() {
        let converter = Converter { slot_bytes: 1, decode: |_, _| true, encode: |_, _| () };
        for kind in [0, 31, 128, 255] {
            assert_eq!(register(kind, converter), Err(RegisterError::NotYours(kind)));
            assert!(!may_be_registered(kind.into()) && super::converter(kind).is_none());
        }
        for kind in [32, 127] {
            assert!(may_be_registered(kind.into()) && super::converter(kind).is_none());
            assert_eq!(register(kind, converter), Ok(()));
            assert_eq!(super::converter(kind).map(|of| of.slot_bytes), Some(1));
            assert_eq!(register(kind, converter), Err(RegisterError::Taken(kind)));
        }
    }
}
