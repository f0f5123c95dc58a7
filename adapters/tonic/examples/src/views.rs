//! The greeting and the collector with requests that are read from their slots.
#![allow(missing_docs, clippy::pedantic)]

pub mod helloworld {
    include!(concat!(env!("OUT_DIR"), "/views/helloworld.rs"));
}

pub mod logs {
    include!(concat!(env!("OUT_DIR"), "/views/logs.rs"));
}
