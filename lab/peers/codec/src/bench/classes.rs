//! The three classes.

use super::messages::protobuf;
use super::{Bench, MESSAGES};
use crate::{fill_flat, fill_mixed, fill_nested, Drawn};
use prost::Message;

/// So many distinct messages.
pub(super) fn drawn<M: Message>(fill: fn(&mut Drawn) -> M, absent: u64) -> Vec<Vec<u8>> {
    (0..MESSAGES).map(|seed| fill(&mut Drawn::new(seed * 77 + 5, absent)).encode_to_vec()).collect()
}

pub(super) fn flat(absent: u64, work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires = drawn(fill_flat, absent);
    protobuf!("flat", MESSAGES, work, classes::Flat, FlatView, wires);
}

pub(super) fn mixed(absent: u64, work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires = drawn(fill_mixed, absent);
    protobuf!("mixed", MESSAGES, work, classes::Mixed, MixedView, wires);
}

pub(super) fn nested(absent: u64, work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires = drawn(fill_nested, absent);
    protobuf!("nested", MESSAGES, work, classes::Nested, NestedView, wires);
}
