//! Inputs between pages that may not be touched: a byte read before the first or behind the last is a signal that ends
//! the test.

use crate::draw::draw;
use crate::fenced::{Fenced, PAGE, PAGES};
use codec_peers::every::every::kinds::Packed;
use codec_peers::every::every::three::All;
use codec_peers::every::every::two::{Needs, Wide};
use codec_peers::ways::bytes_field;
use codec_peers::Drawn;
use scotfree_transform::generated::Type;
use scotfree_transform::{protobuf, Arena, CpuPath, Limits, Padded};

/// Decodes, reads all of what came of it, and encodes: on each way, at either fence.
fn is_within<T: Type>(bytes: &[u8], fenced: &mut Fenced) {
    decode_all::<T>(fenced.at_end(bytes));
    decode_all::<T>(fenced.at_start(bytes));
    // What may be read behind it ends at the fence.
    let bytes_behind = [bytes, &[0x81; Padded::BEHIND]].concat();
    if bytes_behind.len() <= PAGES * PAGE {
        decode_padded::<T>(Padded::within(fenced.at_end(&bytes_behind), bytes.len()).unwrap());
    }
}

fn decode_padded<T: Type>(input: Padded<'_>) {
    let limits = Limits::default();
    for path in CpuPath::all() {
        let (mut arena, mut of_padded) = (Arena::new(), Vec::new());
        let padded = protobuf::decode_padded_slots_on::<T>(path, input, &mut arena, &limits)
            .map(|slots| protobuf::encode_on::<T>(path, slots, &mut of_padded));
        let (mut arena, mut of_slice) = (Arena::new(), Vec::new());
        let slice = protobuf::decode_slots_on::<T>(path, input.message(), &mut arena, &limits)
            .map(|slots| protobuf::encode_on::<T>(path, slots, &mut of_slice));
        assert_eq!((padded, of_padded), (slice, of_slice), "{path:?}");
    }
}

fn decode_all<T: Type>(input: &[u8]) {
    let (limits, mut out) = (Limits::default(), Vec::new());
    let mut arena = Arena::new();
    let by_table = protobuf::table::decode(T::types(), T::INDEX, input, &mut arena, &limits)
        .map(|view| protobuf::table::encode(view, &mut out));
    for path in CpuPath::all() {
        let mut arena = Arena::new();
        let mut again = Vec::new();
        let straight = protobuf::decode_slots_on::<T>(path, input, &mut arena, &limits)
            .map(|slots| protobuf::encode_on::<T>(path, slots, &mut again));
        assert_eq!((straight, &again), (by_table, &out), "{path:?}");
    }
}

/// Random messages of a type, and the same long enough to be read where they lie: the first bytes are an unknown field.
fn messages(name: &str) -> Vec<Vec<u8>> {
    let set = include_bytes!(concat!(env!("OUT_DIR"), "/every.bin"));
    let pool = prost_reflect::DescriptorPool::decode(&set[..]).unwrap();
    let of = pool.get_message_by_name(name).unwrap();
    let long = bytes_field(131_071, &[7; 4100]);
    (0..40)
        .map(|seed| draw(&of, &mut Drawn::new(seed, 0)))
        .flat_map(|bytes| [[&long[..], &bytes].concat(), bytes])
        .filter(|bytes| bytes.len() <= PAGES * PAGE)
        .collect()
}

/// Every message, and each of its last prefixes, so that each field in turn is the one at the fence.
fn all<T: Type>(name: &str) {
    let mut fenced = Fenced::new();
    for bytes in messages(name) {
        let ends = bytes.len().saturating_sub(150)..=bytes.len();
        ends.for_each(|end| is_within::<T>(&bytes[..end], &mut fenced));
    }
}

#[test]
fn no_kind_of_proto3_is_read_beyond_its_input() {
    all::<All>("every.three.All");
}

#[test]
fn no_kind_of_proto2_is_read_beyond_its_input() {
    all::<Needs>("every.two.Needs");
    all::<Wide>("every.two.Wide");
}

#[test]
fn no_number_behind_one_tag_is_read_beyond_its_input() {
    all::<Packed>("every.kinds.Packed");
}

#[test]
fn texts_of_each_length_end_at_the_fence() {
    let mut fenced = Fenced::new();
    for len in 0..=70 {
        for text in ["a".repeat(len), "ä".repeat(len / 2)] {
            let field = bytes_field(14, text.as_bytes());
            is_within::<All>(&field, &mut fenced);
            is_within::<All>(&[&bytes_field(131_071, &[7; 4100])[..], &field].concat(), &mut fenced);
        }
    }
}
