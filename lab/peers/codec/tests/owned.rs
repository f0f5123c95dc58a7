//! Plain structs beside prost's: ours hold the same, and so do prost's own when they are decoded and encoded here.
#![allow(clippy::pedantic, clippy::unwrap_used)]

#[path = "every/draw.rs"]
mod draw;

/// prost's structs.
#[allow(dead_code)]
mod prosts {
    include!(concat!(env!("OUT_DIR"), "/prosts/mod.rs"));
}

/// The same structs, decoded and encoded here.
#[allow(dead_code)]
mod by_prost {
    include!(concat!(env!("OUT_DIR"), "/by_prost.rs"));
}

/// Ours.
#[allow(dead_code)]
mod ours {
    include!(concat!(env!("OUT_DIR"), "/owned.rs"));
}

use codec_peers::Drawn;
use prost_reflect::DescriptorPool;
use scotfree_transform::owned::{encode_on, merge, Plain};
use scotfree_transform::{CpuPath, DecodeError, Limits, Message, Owned, Type};
use std::collections::HashMap;
use std::fmt::Debug;

/// That all agree on random messages of this name, whole, merged, cut and damaged.
fn same<T, O>(name: &str, seed: u64)
where
    T: prost::Message + Plain + PartialEq + Debug,
    O: Plain + Type + Debug,
{
    let set = &include_bytes!(concat!(env!("OUT_DIR"), "/every.bin"))[..];
    let of = DescriptorPool::decode(set).unwrap().get_message_by_name(name).unwrap();
    let mut taken = 0;
    for round in 0..400 {
        let mut r = Drawn::new(seed + round, 0);
        let mut bytes = draw::draw(&of, &mut r);
        match round % 4 {
            1 => bytes.extend(draw::draw(&of, &mut r)),
            2 => bytes.truncate(r.below(bytes.len() as u64 + 1) as usize),
            3 if !bytes.is_empty() => {
                let at = r.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << r.below(8);
            }
            _ => (),
        }
        taken += u32::from(is_same::<T, O>(&bytes));
    }
    assert!((200..400).contains(&taken), "{name}: {taken} of 400 were taken");
}

/// Whether prost takes the bytes. Here more is taken: a known field of another wire type is as an unknown one.
fn is_same<T, O>(bytes: &[u8]) -> bool
where
    T: prost::Message + Plain + PartialEq + Debug,
    O: Plain + Type + Debug,
{
    let limits = Limits::default();
    let (here, ours) = (<T as Owned>::decode(bytes, &limits), <O as Owned>::decode(bytes, &limits));
    assert_eq!(here.as_ref().err(), ours.as_ref().err(), "{bytes:?}");
    let Ok(theirs) = <T as prost::Message>::decode(bytes) else { return false };
    let (here, ours) = (here.unwrap(), ours.unwrap());
    assert_equal(&theirs, &here);
    for path in CpuPath::all() {
        let (mut of_here, mut of_ours) = (Vec::new(), Vec::new());
        encode_on(path, &here, &mut of_here);
        encode_on(path, &ours, &mut of_ours);
        for encoded in [of_here, of_ours] {
            assert_equal(&theirs, &<T as prost::Message>::decode(&encoded[..]).unwrap());
        }
    }
    // The struct is the type of the slots, too; what those keep of closed enumerations is not in structs.
    if !O::types().types[O::INDEX as usize].name.contains("two") {
        let mut encoded = Vec::new();
        Owned::encode(&Message::<O>::decode(bytes, &limits).unwrap(), &mut encoded);
        assert_equal(&theirs, &<T as prost::Message>::decode(&encoded[..]).unwrap());
    }
    true
}

/// Not a number is not itself, and maps are said in any order.
fn assert_equal<T: PartialEq + Debug>(one: &T, other: &T) {
    assert!(one == other || format!("{one:?}").contains("NaN"), "{one:?}\n{other:?}");
}

#[test]
fn structs_hold_what_prosts_hold() {
    same::<prosts::every::three::All, ours::every::three::All>("every.three.All", 1);
    same::<prosts::every::kinds::Packed, ours::every::kinds::Packed>("every.kinds.Packed", 2);
    same::<prosts::every::kinds::Unpacked, ours::every::kinds::Unpacked>("every.kinds.Unpacked", 3);
    same::<prosts::every::kinds::Maps, ours::every::kinds::Maps>("every.kinds.Maps", 4);
    same::<prosts::every::kinds::Choice, ours::every::kinds::Choice>("every.kinds.Choice", 5);
    same::<prosts::every::two::Needs, ours::every::two::Needs>("every.two.Needs", 6);
    same::<prosts::every::two::Wide, ours::every::two::Wide>("every.two.Wide", 7);
}

#[test]
fn names_and_types_are_prosts() {
    use ours::every::three::{all::Choice, All, Color, Inner};
    let all = All {
        i32: -1,
        text: "text".to_owned(),
        raw: vec![1, 2],
        color: Color::Red as i32,
        inner: Some(Inner { again: Some(Box::new(Inner::default())), ..Default::default() }),
        maybe: Some(0),
        counts: HashMap::from([("a".to_owned(), 1)]),
        choice: Some(Choice::Nested(Inner::default())),
        r#type: 5,
        self_: 6,
        ..Default::default()
    };
    assert_eq!((all.color(), all.maybe(), all.maybe_text()), (Color::Red, 0, ""));
    assert_eq!((Color::try_from(5), Color::try_from(6)), (Ok(Color::Blue), Err(6)));
    assert_eq!(Color::from_str_name("COLOR_BLUE").map(|color| color.as_str_name()), Some("COLOR_BLUE"));
    let mut bytes = Vec::new();
    all.encode(&mut bytes);
    assert_eq!(<All as Owned>::decode(&bytes, &Limits::default()), Ok(all));
    let needs = ours::every::two::Needs::default();
    assert_eq!((needs.text(), needs.closed()), ("hello", ours::every::two::Closed::Two));
}

#[test]
fn limits_bound_depth_and_memory() {
    use ours::every::three::{All, Inner};
    let mut deep = Inner::default();
    for _ in 0..4 {
        deep = Inner { again: Some(Box::new(deep)), ..Default::default() };
    }
    let mut bytes = Vec::new();
    deep.encode(&mut bytes);
    let of_depth = |depth_max| <Inner as Owned>::decode(&bytes, &Limits { depth_max, ..Limits::default() });
    assert_eq!(of_depth(5), Ok(deep));
    assert_eq!(of_depth(4), Err(DecodeError::TooDeep { at: 6 }));
    // A thousand empty messages of two bytes and a tag.
    let many = [0xba, 0x01, 0].repeat(1000);
    let of_bytes = |slots_bytes_max| {
        let limits = Limits { slots_bytes_max, ..Limits::default() };
        <All as Owned>::decode(&many, &limits).map(|all| all.inners.len())
    };
    let bytes = 1000 * size_of::<Inner>() as u32;
    assert_eq!(of_bytes(bytes), Ok(1000));
    assert_eq!(of_bytes(bytes - 1), Err(DecodeError::Exhausted(scotfree_transform::Exhausted)));
    let text = [0x72, 2, 0xc3, 0x28];
    assert_eq!(
        <All as Owned>::decode(&text, &Limits::default()).err(),
        Some(DecodeError::NotUtf8 { number: 14, at: 0 })
    );
    let mut merged = All { i32: 1, i64: 2, ..Default::default() };
    merge(&mut merged, &[0x18, 7], &Limits::default()).unwrap();
    assert_eq!((merged.i32, merged.i64), (7, 2));
}
