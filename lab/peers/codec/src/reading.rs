//! What reads every field of a message, whoever's message it is.
//!
//! Invariant: equal messages of two codecs have equal sums; what is absent adds nothing.

use std::collections::HashMap;

/// A value that is read, as one number. A text's bytes are not all looked at: that would be another measurement.
pub trait Read {
    /// All of it, added up.
    fn sum(&self) -> u64;
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Read for $number {
            #[inline(always)]
            fn sum(&self) -> u64 {
                *self as u64
            }
        })*
    };
}
numbers!(bool i8 i16 i32 i64 u32 u64);

impl Read for f64 {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.to_bits()
    }
}

impl Read for [u8] {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.len() as u64 + self.first().map_or(0, |&byte| u64::from(byte))
    }
}

impl Read for str {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.as_bytes().sum()
    }
}

impl Read for String {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.as_bytes().sum()
    }
}

impl Read for Vec<u8> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self[..].sum()
    }
}

impl<T: Read + ?Sized> Read for &T {
    #[inline(always)]
    fn sum(&self) -> u64 {
        (**self).sum()
    }
}

impl<T: Read> Read for Box<T> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        (**self).sum()
    }
}

impl<T: Read> Read for Option<T> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.as_ref().map_or(0, Read::sum)
    }
}

impl<T: Read> Read for Vec<T> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        all(self)
    }
}

impl<K: Read, V: Read, S> Read for HashMap<K, V, S> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.iter().map(|(key, value)| key.sum().wrapping_add(value.sum())).fold(0, u64::wrapping_add)
    }
}

/// Many of them.
#[inline(always)]
pub fn all<'a, T: Read + 'a>(values: impl IntoIterator<Item = &'a T>) -> u64 {
    values.into_iter().map(Read::sum).fold(0, u64::wrapping_add)
}

include!(concat!(env!("OUT_DIR"), "/reading.rs"));
