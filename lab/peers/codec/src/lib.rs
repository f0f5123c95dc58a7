//! Messages of three classes for each codec, drawn at random, and what reads every field of them.
#![forbid(unsafe_code)]
#![allow(clippy::pedantic)]

#[allow(missing_docs)]
pub mod prost_messages {
    include!(concat!(env!("OUT_DIR"), "/classes.rs"));
}

pub mod messages {
    include!(concat!(env!("OUT_DIR"), "/scotfree.rs"));
}

/// Messages of all kinds and shapes of fields.
pub mod every {
    include!(concat!(env!("OUT_DIR"), "/every.rs"));
}

/// What a conformance runner asks.
pub mod testee {
    include!(concat!(env!("OUT_DIR"), "/testee.rs"));
}

/// Structs of .thrift files.
pub mod thrift_messages {
    include!(concat!(env!("OUT_DIR"), "/thrift.rs"));
}

pub mod conformance;
mod drawn;
pub mod structs;
pub mod ways;

pub use drawn::Drawn;

fn text(text: &str) -> u64 {
    text.len() as u64 + text.as_bytes().first().map_or(0, |&byte| u64::from(byte))
}

include!(concat!(env!("OUT_DIR"), "/reading.rs"));
