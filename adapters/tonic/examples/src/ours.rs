//! The services as scotfree-tonic-build makes them.
#![allow(missing_docs, clippy::pedantic)]

pub mod helloworld {
    tonic::include_proto!("helloworld");
}

pub mod routeguide {
    tonic::include_proto!("routeguide");
}

pub mod logs {
    tonic::include_proto!("logs");
}
