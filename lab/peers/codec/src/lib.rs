//! Messages of three classes and of other shapes for each codec, drawn at random, and what reads every field of them.
// Of a peer one generated file is not.
#![deny(unsafe_code)]
#![allow(clippy::pedantic)]

#[allow(missing_docs, clippy::all)]
pub mod prost_messages {
    pub use classes::*;

    pub mod classes {
        include!(concat!(env!("OUT_DIR"), "/prost/classes.rs"));
    }
    pub mod shapes {
        include!(concat!(env!("OUT_DIR"), "/prost/shapes.rs"));
    }
    pub mod otlp {
        include!(concat!(env!("OUT_DIR"), "/prost/otlp.rs"));
    }
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

#[cfg(feature = "peers")]
pub mod bench;
pub mod conformance;
pub mod drawn;
#[cfg(feature = "peers")]
pub mod peers;
pub mod reading;
pub mod requests;
pub mod structs;
pub mod ways;

pub use drawn::Drawn;
pub use reading::Read;

include!(concat!(env!("OUT_DIR"), "/drawing.rs"));
