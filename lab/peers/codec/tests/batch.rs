//! Batches: many messages into one arena.

use codec_peers::every::every::three::All;
use codec_peers::messages::classes::Mixed;
use codec_peers::ways::{again, bytes_field};
use codec_peers::{fill_mixed, ours_mixed, Drawn};
use prost::Message as _;
use scotfree_transform::{protobuf, Arena, DecodeError, Input, Limits, Padded};

fn drawn() -> Vec<Vec<u8>> {
    (0..50).map(|seed| fill_mixed(&mut Drawn::new(seed, seed)).encode_to_vec()).collect()
}

#[test]
fn messages_of_a_batch_are_those_that_they_are_alone() {
    // Short ones, one that is read where it lies, one before other bytes, and three that are none.
    let long = [bytes_field(131_071, &[7; 5000]), bytes_field(14, "ä long one".as_bytes())].concat();
    let mut buffer = bytes_field(14, b"padded");
    let padded = Padded::of(&mut buffer);
    let short = bytes_field(14, b"short");
    let wrong = bytes_field(14, b"\xff");
    let inputs = [
        Input::from(&short[..]),
        Input::from(&b"\x18"[..]),
        Input::from(&long[..]),
        Input::from(padded),
        Input::from(&wrong[..]),
        Input::from(&b""[..]),
        Input::from(&short[..]),
        Input::from(&b"\x07"[..]),
    ];
    let mut arena = Arena::new();
    let batch = protobuf::decode_batch::<All>(&inputs, &mut arena, &Limits::default());
    assert_eq!(batch.len(), inputs.len());
    for (index, input) in inputs.iter().enumerate() {
        let got = batch.slots(index).map(|slots| {
            let mut out = Vec::new();
            protobuf::encode(slots, &mut out);
            out
        });
        assert_eq!(got, again::<All>(input.message()), "{index}");
    }
    let errors: Vec<_> = batch.iter().filter_map(Result::err).collect();
    let expected = [
        DecodeError::Cut { at: 1 },
        DecodeError::NotUtf8 { number: 14, at: 0 },
        DecodeError::NotAField { at: 0 },
    ];
    assert_eq!(errors, expected);
}

#[test]
fn a_bad_message_takes_nothing_of_the_arena() {
    let nested = bytes_field(17, &bytes_field(2, b"text"));
    let bad = [&nested[..], b"\x07"].concat();
    let (good, with_bad) = ([Input::from(&nested[..])], [Input::from(&bad[..]), Input::from(&nested[..])]);
    let used = |inputs: &[Input<'_>]| {
        let mut arena = Arena::new();
        protobuf::decode_batch::<All>(inputs, &mut arena, &Limits::default());
        let twice = arena.used_bytes();
        arena.reset();
        twice - arena.used_bytes()
    };
    assert_eq!(used(&with_bad), used(&good));
}

#[test]
fn limits_are_those_of_each_message() {
    let wires = drawn();
    let inputs: Vec<Input<'_>> = wires.iter().map(|wire| Input::from(&wire[..])).collect();
    let bytes_max = wires.iter().map(Vec::len).max().unwrap() as u32;
    let limits = |message_bytes_max, slots_bytes_max| Limits {
        message_bytes_max,
        slots_bytes_max,
        ..Limits::default()
    };
    let errors = |limits: &Limits| {
        let mut arena = Arena::new();
        protobuf::decode_batch::<Mixed>(&inputs, &mut arena, limits).iter().filter(Result::is_err).count()
    };
    // So many slots as one needs, and not all together.
    assert_eq!(errors(&limits(bytes_max, 2000)), 0);
    assert!(errors(&limits(bytes_max - 1, 2000)) > 0);
}

#[test]
fn a_batch_that_was_encoded_is_one_that_is_decoded() {
    let wires = drawn();
    let inputs: Vec<Input<'_>> = wires.iter().map(|wire| Input::from(&wire[..])).collect();
    let mut arena = Arena::new();
    let batch = protobuf::decode_batch::<Mixed>(&inputs, &mut arena, &Limits::default());
    let mut stream = Vec::new();
    protobuf::encode_batch((0..batch.len()).map(|index| batch.slots(index).unwrap()), &mut stream);
    let theirs: Vec<u8> =
        wires.iter().flat_map(|wire| fill_of(wire).encode_length_delimited_to_vec()).collect();
    assert_eq!(stream, theirs);
    let parts: Vec<&[u8]> = protobuf::delimited(&stream).map(Result::unwrap).collect();
    assert_eq!(parts, wires);
    let read: Vec<u64> = batch.iter().map(|message| ours_mixed(message.unwrap())).collect();
    assert_eq!(read, wires.iter().map(|wire| codec_peers::theirs_mixed(&fill_of(wire))).collect::<Vec<_>>());
    // What is cut is told once, behind what is whole.
    let cut: Vec<_> = protobuf::delimited(&stream[..stream.len() - 1]).collect();
    assert_eq!(cut.len(), wires.len());
    assert!(matches!(cut.last(), Some(Err(DecodeError::Cut { .. }))));
}

fn fill_of(wire: &[u8]) -> codec_peers::prost_messages::Mixed {
    prost::Message::decode(wire).unwrap()
}
