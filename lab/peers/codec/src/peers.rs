//! What the peers' own generators made of the same files, and what reads it.

use crate::reading::{all, Read};
use std::borrow::Cow;

#[allow(missing_docs, warnings, clippy::all)]
pub mod buffa_messages {
    include!(concat!(env!("OUT_DIR"), "/buffa/all.rs"));
}

#[allow(missing_docs, warnings, clippy::all)]
pub mod quick_messages {
    include!(concat!(env!("OUT_DIR"), "/quick/mod.rs"));
}

#[allow(missing_docs, warnings, clippy::all)]
pub mod pilota_messages {
    include!(concat!(env!("OUT_DIR"), "/pilota_proto.rs"));
}

#[allow(missing_docs, warnings, unsafe_code, clippy::all)]
pub mod pilota_thrift {
    include!(concat!(env!("OUT_DIR"), "/pilota_thrift.rs"));
}

impl<T: Read + Default, P: buffa::ProtoBox<T>> Read for buffa::MessageField<T, P> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.as_option().map_or(0, Read::sum)
    }
}

impl<V: Read> Read for buffa::MessageFieldView<V> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.as_option().map_or(0, Read::sum)
    }
}

impl<T: Read> Read for buffa::RepeatedView<'_, T> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        all(self.iter())
    }
}

impl<K: Read, V: Read> Read for buffa::MapView<'_, K, V> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.iter().map(|(key, value)| key.sum().wrapping_add(value.sum())).fold(0, u64::wrapping_add)
    }
}

impl<K: Read, V: Read> Read for pilota::AHashMap<K, V> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.iter().map(|(key, value)| key.sum().wrapping_add(value.sum())).fold(0, u64::wrapping_add)
    }
}

impl Read for Cow<'_, str> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.as_bytes().sum()
    }
}

impl Read for Cow<'_, [u8]> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self[..].sum()
    }
}

impl Read for Cow<'_, [u32]> {
    #[inline(always)]
    fn sum(&self) -> u64 {
        all(&self[..])
    }
}

impl Read for pilota::FastStr {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.as_bytes().sum()
    }
}

impl Read for pilota::Bytes {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self[..].sum()
    }
}

include!(concat!(env!("OUT_DIR"), "/peers_reading.rs"));
