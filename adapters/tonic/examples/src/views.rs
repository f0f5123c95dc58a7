//! The greeting with requests that are read from their slots.
#![allow(missing_docs, clippy::pedantic)]

pub mod helloworld {
    include!(concat!(env!("OUT_DIR"), "/views/helloworld.rs"));
}
