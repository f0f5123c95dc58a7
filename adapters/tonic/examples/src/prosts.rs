//! The same as tonic-prost-build makes them.
#![allow(missing_docs, clippy::pedantic)]

pub mod helloworld {
    include!(concat!(env!("OUT_DIR"), "/prost/helloworld.rs"));
}

pub mod routeguide {
    include!(concat!(env!("OUT_DIR"), "/prost/routeguide.rs"));
}

pub mod logs {
    include!(concat!(env!("OUT_DIR"), "/prost/logs.rs"));
}
