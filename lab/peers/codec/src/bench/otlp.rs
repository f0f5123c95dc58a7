//! Batches of spans, as exporters send them.

use super::messages::protobuf;
use super::Bench;
use crate::requests::Class;

/// As many of each kind, each of so many spans.
const BATCHES: u64 = 2;
const SPANS: u64 = 64;

pub(super) fn spans(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires: Vec<Vec<u8>> = Class::ALL
        .into_iter()
        .flat_map(|class| (1..=BATCHES).map(move |seed| class.request(SPANS, seed)))
        .collect();
    protobuf!("otlp", wires.len() as u64 * SPANS, work, otlp::TracesData, TracesDataView, wires);
}
