//! Shapes that are none of the classes: where a library that is fast on these may be slow.

use super::classes::drawn;
use super::messages::protobuf;
use super::{Bench, MESSAGES};
use crate::prost_messages::shapes::{Blob, Maps, Packed};
use crate::{fill_flat, Drawn};
use prost::Message;

/// 10 % of the shuffled and of the unknown messages' fields are absent.
const ABSENT: u64 = 10;

/// Numbers behind one tag: up to 64 of each of four kinds. None is a sint: pilota 0.13 reads it as an int.
pub(super) fn packed(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires = drawn(
        |r| Packed {
            f1: (0..1 + r.below(64)).map(|_| r.written(31) as i32).collect(),
            f2: (0..1 + r.below(64)).map(|_| r.written(35)).collect(),
            f3: (0..1 + r.below(64)).map(|_| r.written(35) as i64).collect(),
            f4: (0..1 + r.below(64)).map(|_| r.written(32) as u32).collect(),
        },
        0,
    );
    protobuf!("packed", MESSAGES, work, shapes::Packed, PackedView, wires);
}

/// Maps of up to eight texts and of up to eight numbers.
pub(super) fn maps(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires = drawn(
        |r| Maps {
            f1: (0..1 + r.below(8)).map(|_| (r.text_below(49), r.text_below(49))).collect(),
            f2: (0..1 + r.below(8)).map(|_| (r.written(31) as i32, r.written(35))).collect(),
        },
        0,
    );
    protobuf!("maps", MESSAGES, work, shapes::Maps, MapsView, wires);
}

/// 64 KiB of bytes behind a name.
pub(super) fn bytes(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let mut wires = drawn(|r| Blob { f1: r.text_below(49), f2: vec![r.below(256) as u8; 64 << 10] }, 0);
    // More than the processor's caches is another measurement: of the memory.
    wires.truncate(8);
    protobuf!("bytes", wires.len() as u64, work, shapes::Blob, BlobView, wires);
}

/// Fields of `Flat` in any order.
pub(super) fn shuffled(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires: Vec<Vec<u8>> = (0..MESSAGES)
        .map(|seed| {
            let mut r = Drawn::new(seed * 77 + 5, ABSENT);
            let wire = fill_flat(&mut r).encode_to_vec();
            let mut fields = fields(&wire);
            for at in (1..fields.len()).rev() {
                fields.swap(at, r.below(at as u64 + 1) as usize);
            }
            fields.concat()
        })
        .collect();
    protobuf!("shuffled", MESSAGES, work, classes::Flat, FlatView, wires, without encode);
}

/// Fields of `Flat`, of which the type knows none. Ours and buffa keep them, the others do not.
pub(super) fn unknown(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires = drawn(fill_flat, ABSENT);
    protobuf!("unknown", MESSAGES, work, shapes::Nothing, NothingView, wires, without encode);
}

/// A message's fields, each with its tag.
fn fields(mut wire: &[u8]) -> Vec<&[u8]> {
    let mut fields = Vec::new();
    while !wire.is_empty() {
        let (tag, tag_bytes) = varint(wire);
        let (value, value_bytes) = varint(&wire[tag_bytes..]);
        let bytes = tag_bytes
            + match tag & 7 {
                0 => value_bytes,
                2 => value_bytes + value as usize,
                5 => 4,
                wire => unreachable!("Flat has no field of wire type {wire}"),
            };
        let (field, rest) = wire.split_at(bytes);
        fields.push(field);
        wire = rest;
    }
    fields
}

/// A number, and how many bytes it takes. The first bytes of four that are no varint say something that nobody asks for.
fn varint(wire: &[u8]) -> (u64, usize) {
    let mut value = 0;
    for (index, byte) in wire.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return (value, index + 1);
        }
    }
    (value, 10)
}
