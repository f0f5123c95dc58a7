//! The testee, asked as a conformance runner asks.

use codec_peers::conformance::serve;
use codec_peers::testee::testee::{Request, Response};
use scotfree_transform::descriptor::{read, types_of};
use scotfree_transform::{Limits, Message};

/// A request of a type, with its payload and the format that is wanted, as a frame.
fn frame(of: &str, payload: Option<&[u8]>, output: i32) -> Vec<u8> {
    let mut request = Message::<Request>::new();
    let mut edit = request.edit();
    edit.set_type(of).unwrap();
    edit.set_output(output);
    payload.map(|payload| edit.set_protobuf(payload).unwrap());
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    framed(&bytes)
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

/// The answers to some frames.
fn answers(frames: &[Vec<u8>]) -> Vec<Message<Response>> {
    let types = types_of(&read(include_bytes!(concat!(env!("OUT_DIR"), "/every.bin"))).unwrap()).unwrap();
    let mut out = Vec::new();
    serve(&types, &frames.concat()[..], &mut out).unwrap();
    let (mut rest, mut answers) = (&out[..], Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (one, others) = behind.split_at(u32::from_le_bytes(*length) as usize);
        answers.push(Message::decode(one, &Limits::default()).unwrap());
        rest = others;
    }
    answers
}

#[test]
fn the_binary_format_is_answered_and_all_else_skipped() {
    let answers = answers(&[
        frame("conformance.FailureSet", Some(b""), 1),
        frame("every.three.All", Some(b"\x18\x01\x18\x02"), 1),
        frame("every.three.All", Some(b"\x18"), 1),
        frame("every.three.All", Some(b"\x18\x01"), 2),
        frame("every.three.All", None, 1),
        frame("no.Type", Some(b""), 1),
    ]);
    let [failures, again, cut, other_output, other_input, no_type] = &answers[..] else {
        panic!("{} answers", answers.len());
    };
    assert_eq!(failures.get().protobuf(), Some(&b""[..]));
    assert_eq!(again.get().protobuf(), Some(&b"\x18\x02"[..]));
    assert_eq!(cut.get().parse_error(), Some("byte 1: the message ends within a field"));
    assert!(other_output.get().skipped().is_some() && other_input.get().skipped().is_some());
    assert_eq!(no_type.get().skipped(), Some("there is no type no.Type"));
}

#[test]
fn a_request_that_is_none_is_told_and_the_next_one_answered() {
    let answers = answers(&[framed(b"\x0a\x05"), frame("every.three.All", Some(b""), 1)]);
    assert!(answers[0].get().runtime_error().is_some());
    assert_eq!(answers[1].get().protobuf(), Some(&b""[..]));
}
