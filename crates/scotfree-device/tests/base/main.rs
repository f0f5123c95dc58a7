//! What all functions of a device share, tried without any that does something.

mod bench;
mod fast_path;
mod servers;
mod sessions;
