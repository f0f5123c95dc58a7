//! The codec's structs of Thrift, of both formats: the straight line on each path beside the table.
//!
//! Invariant: what one way makes of bytes all of them make of them; what was written is read as it was.

use crate::transform::LIMITS;
use scotfree_transform::generated::Type;
use scotfree_transform::thrift::{
    decode_slots_on, encode_on, struct_bytes, table, Envelope, MessageKind, Protocol,
};
use scotfree_transform::{Arena, CpuPath, DecodeError, Message};

#[allow(missing_docs, dead_code, clippy::all, clippy::pedantic)]
mod structs {
    include!(concat!(env!("OUT_DIR"), "/structs.rs"));
}

use structs::every::shared::Refused;
use structs::every::thrift::{store, All, Choice, Usual};
use structs::social::Post;

const BOTH: [Protocol; 2] = [Protocol::Binary, Protocol::Compact];
const TYPES: u8 = 7;

/// Decodes the input as each of some types, of one format, by its first byte.
pub fn thrift(data: &[u8]) {
    let Some((&which, bytes)) = data.split_first() else { return };
    let protocol = BOTH[usize::from(which / TYPES % 2)];
    match which % TYPES {
        0 => same::<All>(protocol, bytes),
        1 => same::<Usual>(protocol, bytes),
        2 => same::<Choice>(protocol, bytes),
        3 => same::<Post>(protocol, bytes),
        4 => same::<Refused>(protocol, bytes),
        5 => same::<store::GetArgs>(protocol, bytes),
        _ => same::<store::GetResult>(protocol, bytes),
    }
    envelope(protocol, bytes);
}

/// What is written of a struct that was decoded, by each format, and how many bytes of the arena it took.
#[derive(Debug, PartialEq)]
struct Decoded {
    written: [Vec<u8>; 2],
    used_bytes: usize,
}

fn same<T: Type>(protocol: Protocol, bytes: &[u8]) {
    let decoded = by_table::<T>(protocol, bytes);
    for path in CpuPath::all() {
        let straight = straight::<T>(path, protocol, bytes);
        assert_eq!(straight, decoded, "{path:?} and the table differ");
    }
    match &decoded {
        Ok(decoded) => {
            assert_eq!(struct_bytes(protocol, bytes, &LIMITS), Ok(bytes.len()));
            BOTH.into_iter()
                .zip(&decoded.written)
                .for_each(|(protocol, written)| again::<T>(protocol, written));
        }
        Err(DecodeError::Trailing { at }) => assert_eq!(struct_bytes(protocol, bytes, &LIMITS), Ok(*at)),
        Err(_) => {}
    }
}

fn by_table<T: Type>(protocol: Protocol, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut arena = Arena::new();
    let view = table::decode(protocol, T::types(), T::INDEX, bytes, &mut arena, &LIMITS)?;
    let written = BOTH.map(|protocol| {
        let mut out = Vec::new();
        table::encode(protocol, view, &mut out);
        out
    });
    Ok(Decoded { written, used_bytes: arena.used_bytes() })
}

fn straight<T: Type>(path: CpuPath, protocol: Protocol, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut arena = Arena::new();
    let slots = decode_slots_on::<T>(path, protocol, bytes, &mut arena, &LIMITS)?;
    let written = BOTH.map(|protocol| {
        let mut out = Vec::new();
        encode_on::<T>(path, protocol, slots, &mut out);
        out
    });
    Ok(Decoded { written, used_bytes: arena.used_bytes() })
}

/// What was written is read and written as it is, unless what is written unasked has made it too large.
fn again<T: Type>(protocol: Protocol, written: &[u8]) {
    match by_table::<T>(protocol, written) {
        Ok(once_more) => assert_eq!(once_more.written[protocol as usize], written),
        Err(DecodeError::Exhausted(_) | DecodeError::TooLarge) => {}
        Err(error) => panic!("what was written is refused: {error}"),
    }
}

/// An envelope that is read is written as one that is read the same.
fn envelope(protocol: Protocol, bytes: &[u8]) {
    let Ok((envelope, length)) = Envelope::read(protocol, bytes) else { return };
    assert!(length <= bytes.len());
    let mut out = Vec::new();
    envelope.write(protocol, &mut out);
    assert_eq!(Envelope::read(protocol, &out), Ok((envelope, out.len())));
}

/// Structs with many kinds of fields, by both formats, and envelopes.
pub fn thrift_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (place, protocol) in BOTH.into_iter().enumerate() {
        let first = place as u8 * TYPES;
        seeds.push(seed(first, protocol, &all()));
        seeds.push(seed(first + 1, protocol, &usual()));
        seeds.push(seed(first + 2, protocol, &choice()));
        seeds.push(seed(first + 3, protocol, &post()));
        // Fields of a post as one that knows few of them, and not of these types.
        seeds.push(seed(first + 4, protocol, &refused()));
        seeds.push(seed(first, protocol, &post()));
        let mut arguments = Message::<store::GetArgs>::new();
        filled(arguments.edit().set_key("key"));
        filled(arguments.edit().add_times(-300));
        seeds.push(seed(first + 5, protocol, &arguments));
        let mut result = Message::<store::GetResult>::new();
        filled(result.edit().success_mut()).set_truth(true);
        seeds.push(seed(first + 6, protocol, &result));
        let mut called = vec![first];
        Envelope { name: "get", kind: MessageKind::Call, seq_num: -7 }.write(protocol, &mut called);
        seeds.push(called);
    }
    seeds
}

fn seed<T: Type>(which: u8, protocol: Protocol, message: &Message<T>) -> Vec<u8> {
    let mut out = vec![which];
    message.encode_thrift(protocol, &mut out);
    out
}

fn filled<T, E: std::fmt::Debug>(set: Result<T, E>) -> T {
    set.expect("a seed is small")
}

fn all() -> Message<All> {
    let mut message = Message::<All>::new();
    let mut all = message.edit();
    all.set_truth(true);
    all.set_small(-1);
    all.set_short(-300);
    all.set_number(1 << 20);
    all.set_long(-1 << 40);
    all.set_real(1.5);
    filled(all.set_text("äöü and some more, so that it is longer than a word"));
    filled(all.set_raw(&[0xff; 40]));
    filled(all.set_id(&[7; 16]));
    filled(filled(filled(all.choice_mut()).many_mut()).add_values("one"));
    all.set_color(2);
    (0..17).for_each(|at| filled(all.add_truths(at % 3 == 0)));
    filled(all.add_smalls(-2));
    filled(filled(all.add_grid()).add_values(9));
    let mut groups = filled(all.add_groups());
    filled(groups.set_key("key"));
    filled(filled(groups.value_mut()).add_values()).set_long(-5);
    filled(all.add_reals(1.5));
    filled(filled(all.add_keyed()).key_mut()).set_truth(true);
    message
}

fn usual() -> Message<Usual> {
    let mut message = Message::<Usual>::new();
    let mut usual = message.edit();
    usual.set_must(-1);
    filled(usual.set_text("text"));
    filled(usual.add_shorts(300));
    filled(usual.inner_mut()).set_truth(false);
    message
}

fn choice() -> Message<Choice> {
    let mut message = Message::<Choice>::new();
    message.edit().set_number(1 << 40);
    message
}

fn refused() -> Message<Refused> {
    let mut message = Message::<Refused>::new();
    filled(message.edit().set_why("no"));
    message.edit().set_at(1 << 33);
    message
}

fn post() -> Message<Post> {
    let mut message = Message::<Post>::new();
    let mut post = message.edit();
    post.set_post_id(1 << 34);
    filled(filled(post.creator_mut()).set_username("somebody"));
    filled(
        post.set_text("a text of a post that is longer than the thirty-two bytes that are looked at once"),
    );
    (0..3).for_each(|at| filled(post.add_user_mentions()).set_user_id(at));
    filled(filled(post.add_media()).set_media_type("image/png"));
    filled(filled(post.add_urls()).set_expanded_url("https://example.org/"));
    post.set_post_type(1);
    message
}
