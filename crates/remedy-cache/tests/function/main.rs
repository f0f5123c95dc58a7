//! The cache in a device, packet by packet.

mod bench;
mod hostile;
mod roomless;
mod rules;
mod sequences;
mod told;
