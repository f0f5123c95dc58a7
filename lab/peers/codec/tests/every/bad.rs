//! Bytes that are no message, or a costly one: each gives a typed error and its place, on every way that decodes, and
//! takes no more than the limits say.

use codec_peers::every::every::kinds::{Packed, Unpacked};
use codec_peers::every::every::three::{All, Inner};
use codec_peers::every::every::two::{Needs, Wide};
use codec_peers::ways::{again, bytes_field, refused, tag, taken, varint, within};
use scotfree_transform::generated::Type;
use scotfree_transform::{DecodeError, Exhausted, Field, Kind, Limits, Shape, Utf8};

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const GROUP: u32 = 3;
const GROUP_END: u32 = 4;
const FIXED32: u32 = 5;

fn wire_of(kind: Kind) -> u32 {
    match kind {
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => FIXED32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => FIXED64,
        Kind::String | Kind::Bytes | Kind::Message => BYTES,
        Kind::Group => GROUP,
        _ => VARINT,
    }
}

/// Fields of a type that are of this wire type.
fn fields_of<T: Type>(wire: u32) -> impl Iterator<Item = &'static Field> {
    T::FIELDS.iter().filter(move |field| wire_of(field.kind) == wire)
}

/// Calls with every field of some types that begins with this wire type, and a function that decodes its type.
fn each_field(wire: u32, mut with: impl FnMut(&Field, &dyn Fn(&[u8]) -> Result<Vec<u8>, DecodeError>)) {
    fields_of::<All>(wire).for_each(|field| with(field, &again::<All>));
    fields_of::<Needs>(wire).for_each(|field| with(field, &again::<Needs>));
    fields_of::<Unpacked>(wire).for_each(|field| with(field, &again::<Unpacked>));
    // One is enough of a type of which all are alike.
    fields_of::<Wide>(wire).take(1).for_each(|field| with(field, &again::<Wide>));
}

#[test]
fn a_number_of_more_than_ten_bytes_is_overlong() {
    let (ten, eleven) = (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", [&[0x80; 10][..], &[0]].concat());
    each_field(VARINT, |field, again| {
        let tag = tag(field.number, VARINT);
        let overlong = Err(DecodeError::Overlong { at: tag.len() });
        assert_eq!(again(&[&tag[..], &eleven].concat()), overlong, "field {}", field.number);
        assert_eq!(again(&[&tag[..], &[0xff; 20]].concat()), overlong, "field {}", field.number);
        let taken = again(&[&tag[..], ten].concat());
        assert!(matches!(taken, Ok(_) | Err(DecodeError::Missing { number: 1 })), "field {}", field.number);
    });
    each_field(BYTES, |field, again| {
        let tag = tag(field.number, BYTES);
        let overlong = Err(DecodeError::Overlong { at: tag.len() });
        assert_eq!(again(&[&tag[..], &eleven].concat()), overlong, "the length of {}", field.number);
    });
    // Of an unknown field, its number and its length.
    assert_eq!(refused::<All>(&[&tag(99, VARINT)[..], &eleven].concat()), DecodeError::Overlong { at: 2 });
    assert_eq!(refused::<All>(&[&tag(99, BYTES)[..], &eleven].concat()), DecodeError::Overlong { at: 2 });
}

#[test]
pub fn a_tag_of_more_than_five_bytes_is_overlong() {
    // Field 3 in five bytes, and in six and more.
    assert_eq!(taken::<All>(b"\x98\x80\x80\x80\x00\x01"), b"\x18\x01");
    for more in 5..10 {
        let tag = [&[0x98][..], &vec![0x80; more - 1], &[0]].concat();
        assert_eq!(refused::<All>(&[&tag[..], b"\x01"].concat()), DecodeError::Overlong { at: 0 });
        // Within a message, and behind another field.
        let inner = [b"\x08\x01", &tag[..], b"\x01"].concat();
        assert_eq!(refused::<All>(&bytes_field(17, &inner)), DecodeError::Overlong { at: 5 });
    }
    assert_eq!(refused::<All>(b"\xf8\xff\xff\xff\x1f\x01"), DecodeError::Overlong { at: 0 });
    assert_eq!(refused::<All>(&[0xff; 12]), DecodeError::Overlong { at: 0 });
}

#[test]
fn a_field_of_number_zero_or_of_no_wire_type_is_none() {
    for wire in 0..8 {
        for prefix in [&b""[..], b"\x18\x01", b"\xf8\x01\x01"] {
            let zero = [prefix, &[wire as u8], &[0; 9]].concat();
            assert_eq!(refused::<All>(&zero), DecodeError::NotAField { at: prefix.len() });
        }
    }
    // Zero in more bytes than it needs.
    assert_eq!(refused::<All>(b"\x80\x80\x00\x01"), DecodeError::NotAField { at: 0 });
    for number in [3, 14, 99, 100_000, (1 << 29) - 1] {
        for wire in [6, 7] {
            assert_eq!(
                refused::<All>(&[&tag(number, wire)[..], b"\x01"].concat()),
                DecodeError::NotAField { at: 0 }
            );
        }
    }
}

#[test]
fn a_group_that_ends_without_having_begun_is_told() {
    for number in [1, 3, 14, 17, 22, 99] {
        let end = tag(number, GROUP_END);
        assert_eq!(refused::<All>(&end), DecodeError::GroupEnd { at: 0 });
        assert_eq!(refused::<All>(&[b"\x18\x01", &end[..]].concat()), DecodeError::GroupEnd { at: 2 });
        assert_eq!(refused::<All>(&bytes_field(17, &end)), DecodeError::GroupEnd { at: 3 });
    }
    // One that ends as another, known and unknown; and a message within a group that has the group's end.
    assert_eq!(refused::<Needs>(b"\x08\x01\x33\x3c"), DecodeError::GroupEnd { at: 3 });
    assert_eq!(refused::<Needs>(b"\x08\x01\x7b\x34"), DecodeError::GroupEnd { at: 3 });
    assert_eq!(refused::<Needs>(b"\x08\x01\x42\x01\x34"), DecodeError::GroupEnd { at: 4 });
    // One that does not end at all, or behind the message that it is in.
    assert_eq!(refused::<Needs>(b"\x08\x01\x33\x08\x05"), DecodeError::Cut { at: 5 });
    assert_eq!(refused::<Needs>(b"\x08\x01\x42\x03\x08\x01\x33\x34"), DecodeError::Cut { at: 7 });
}

/// Whether it may come as many behind one tag.
fn is_packable(field: &Field) -> bool {
    matches!(field.shape, Shape::Repeated | Shape::Packed) && wire_of(field.kind) != BYTES
}

#[test]
fn a_known_field_of_another_wire_type_is_unknown() {
    let values: [(u32, &[u8]); 5] = [
        (VARINT, b"\x85\x01"),
        (FIXED64, b"\x01\x02\x03\x04\x05\x06\x07\x08"),
        (BYTES, b"\x03abc"),
        (GROUP, b"\x08\x01"),
        (FIXED32, b"\x01\x02\x03\x04"),
    ];
    for field in All::FIELDS {
        for (wire, value) in values {
            if wire == wire_of(field.kind) || wire == BYTES && is_packable(field) {
                continue;
            }
            let end = if wire == GROUP { tag(field.number, GROUP_END) } else { Vec::new() };
            let one = [&tag(field.number, wire)[..], value, &end].concat();
            assert_eq!(taken::<All>(&one), one, "field {} as {wire}", field.number);
            // What is known is written first, whatever came first.
            let both = [&one[..], b"\x18\x05"].concat();
            assert_eq!(taken::<All>(&both), [b"\x18\x05", &one[..]].concat(), "field {}", field.number);
        }
    }
}

#[test]
fn a_length_past_the_end_is_cut_there() {
    let lengths = [1, 2, 0x7f, 0x80, 0x3fff, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 63, u64::MAX];
    each_field(BYTES, |field, again| {
        let tag = tag(field.number, BYTES);
        for length in lengths {
            let cut = [&tag[..], &varint(length)].concat();
            assert_eq!(again(&cut), Err(DecodeError::Cut { at: tag.len() }), "{} of {length}", field.number);
        }
    });
    // Past the end of the message that it is in, with bytes behind that.
    for length in lengths {
        let inner = [&b"\x12"[..], &varint(length)].concat();
        let bytes = [&bytes_field(17, &inner)[..], &[0x18, 1].repeat(40)].concat();
        assert_eq!(refused::<All>(&bytes), DecodeError::Cut { at: 4 }, "{length}");
        let unknown = [&tag(99, BYTES)[..], &varint(length)].concat();
        assert_eq!(refused::<All>(&unknown), DecodeError::Cut { at: 2 }, "{length}");
        let bytes = [&bytes_field(17, &unknown)[..], &[0x18, 1].repeat(40)].concat();
        assert_eq!(refused::<All>(&bytes), DecodeError::Cut { at: 5 }, "{length}");
    }
}

#[test]
pub fn a_number_that_ends_behind_its_message_is_cut() {
    for (wire, bytes) in [(VARINT, 10), (FIXED32, 4), (FIXED64, 8)] {
        each_field(wire, |field, again| {
            let tag = tag(field.number, wire);
            for has in 0..bytes {
                let cut = [&tag[..], &vec![0x81; has]].concat();
                assert_eq!(again(&cut), Err(DecodeError::Cut { at: tag.len() }), "field {}", field.number);
            }
        });
    }
    // The last field of a message within: what lies behind it is its parent's.
    let cut = [&bytes_field(17, b"\x08\x81")[..], &[0x18, 1]].concat();
    assert_eq!(refused::<All>(&cut), DecodeError::Cut { at: 4 });
    let cut = [&bytes_field(17, b"\x08")[..], &[0x18, 1]].concat();
    assert_eq!(refused::<All>(&cut), DecodeError::Cut { at: 4 });
}

/// Messages within each other.
fn nested(number: u32, depth: usize) -> Vec<u8> {
    // From the inside, backwards, so that it takes no time of the depth's square.
    let (mut reversed, tag) = (Vec::new(), tag(number, BYTES));
    for _ in 0..depth {
        let length = varint(reversed.len() as u64);
        reversed.extend(length.iter().rev());
        reversed.extend(tag.iter().rev());
    }
    reversed.reverse();
    reversed
}

#[test]
fn ten_thousand_messages_within_each_other_are_too_deep() {
    let limits = Limits::default();
    let deep = usize::from(limits.depth_max);
    assert_eq!(taken::<Inner>(&nested(3, deep - 1)), nested(3, deep - 1));
    for depth in [deep, 10_000] {
        assert!(matches!(refused::<Inner>(&nested(3, depth)), DecodeError::TooDeep { .. }));
        assert!(matches!(refused::<Needs>(&nested(8, depth)), DecodeError::TooDeep { .. }));
        let groups = [tag(99, GROUP).repeat(depth), tag(99, GROUP_END).repeat(depth)].concat();
        assert!(matches!(refused::<All>(&groups), DecodeError::TooDeep { .. }));
        // None of them ends.
        assert!(matches!(refused::<All>(&tag(99, GROUP).repeat(depth)), DecodeError::TooDeep { .. }));
    }
    let flat = Limits { depth_max: 1, ..limits };
    assert_eq!(within::<Inner>(b"\x1a\x00", &flat), Err(DecodeError::TooDeep { at: 0 }));
    assert_eq!(within::<Inner>(b"\x08\x01", &flat).as_deref(), Ok(&b"\x08\x01"[..]));
    assert_eq!(within::<Inner>(b"", &Limits { depth_max: 0, ..limits }), Err(DecodeError::TooDeep { at: 0 }));
}

#[test]
pub fn slots_are_refused_at_the_limit_and_not_before() {
    // Eight bytes are nobody's, then the root's, then those of the message within.
    let (root, both) = (8 + All::SLOT_BYTES, 8 + All::SLOT_BYTES + Inner::SLOT_BYTES);
    let within =
        |bytes, slots_bytes_max| within::<All>(bytes, &Limits { slots_bytes_max, ..Limits::default() });
    assert_eq!(within(b"\x18\x01", root).as_deref(), Ok(&b"\x18\x01"[..]));
    assert_eq!(within(b"\x8a\x01\x00", both).as_deref(), Ok(&b"\x8a\x01\x00"[..]));
    for less in [1, 8, 63, 64] {
        assert_eq!(within(b"", root - less), Err(DecodeError::Exhausted(Exhausted)));
        assert_eq!(within(b"\x8a\x01\x00", both - less), Err(DecodeError::Exhausted(Exhausted)));
    }
}

#[test]
pub fn strings_that_are_no_utf8_are_told_at_each_place_of_each_length() {
    let is_checked = |field: &&Field| field.kind == Kind::String && field.utf8 == Utf8::Checked;
    let fields: Vec<&Field> = All::FIELDS.iter().filter(is_checked).collect();
    assert_eq!(fields.len(), 5, "one, one that may be absent, many, one of a choice, one far away");
    for len in (1..=41).chain([63, 64, 65, 127, 128, 129]) {
        for at in 0..len {
            for &wrong in &[0x80, 0xbf, 0xc3, 0xe2, 0xf0, 0xff] {
                let mut text = vec![b'a'; len];
                text[at] = wrong;
                let field = fields[(len + at) % fields.len()];
                let bytes = bytes_field(field.number, &text);
                let expected = DecodeError::NotUtf8 { number: field.number, at: 0 };
                assert_eq!(refused::<All>(&bytes), expected, "{wrong:#x} at {at} of {len}");
                let more = [&bytes[..], b"\x18\x01"].concat();
                assert_eq!(refused::<All>(&more), expected, "{wrong:#x} at {at} of {len}, and more");
            }
        }
    }
}

#[test]
fn letters_of_many_bytes_are_taken_over_each_edge() {
    for letter in ["é", "€", "🦀"] {
        for before in 0..70 {
            for behind in [0, 1, 7, 40] {
                let text = ["a".repeat(before), letter.to_owned(), "b".repeat(behind)].concat();
                let bytes = bytes_field(14, text.as_bytes());
                assert_eq!(taken::<All>(&bytes), bytes);
                // The same, cut within the letter.
                let cut = bytes_field(14, &text.as_bytes()[..before + letter.len() - 1]);
                assert_eq!(refused::<All>(&cut), DecodeError::NotUtf8 { number: 14, at: 0 });
            }
        }
    }
    // Surrogates, what is beyond Unicode, and letters in more bytes than they need.
    for wrong in
        [&b"\xed\xa0\x80"[..], b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf"]
    {
        assert_eq!(refused::<All>(&bytes_field(14, wrong)), DecodeError::NotUtf8 { number: 14, at: 0 });
        // Bytes and strings of proto2 are taken as they are.
        assert_eq!(taken::<All>(&bytes_field(15, wrong)), bytes_field(15, wrong));
        let needs = [b"\x08\x01", &bytes_field(2, wrong)[..]].concat();
        assert_eq!(taken::<Needs>(&needs), needs);
    }
    // Keys and values of maps.
    let entry = bytes_field(26, b"\x0a\x01\xff\x10\x01");
    assert_eq!(refused::<All>(&entry), DecodeError::NotUtf8 { number: 1, at: 3 });
}

#[test]
fn a_packed_field_that_ends_within_a_number_is_told() {
    for field in Packed::FIELDS {
        let (size, number) = match wire_of(field.kind) {
            FIXED32 => (4, field.number),
            FIXED64 => (8, field.number),
            _ => (1, field.number),
        };
        let cut = DecodeError::Packed { number, at: 0 };
        for count in 0..20 {
            // The last byte goes on, for those whose length that says.
            let whole: Vec<u8> = (0..count * size).map(|at| if size == 1 { 1 } else { at as u8 }).collect();
            let bytes = bytes_field(number, &whole);
            assert_eq!(taken::<Packed>(&bytes), if count == 0 { vec![] } else { bytes }, "field {number}");
            let more = if size == 1 { 2 } else { size };
            for more in 1..more {
                let bytes = bytes_field(number, &[&whole[..], &vec![0x81; more]].concat());
                assert_eq!(refused::<Packed>(&bytes), cut, "field {number}, {count} and {more} bytes");
                // What follows is another field's, whatever it could be read as.
                let bytes = [&bytes[..], &tag(number, BYTES), &[0]].concat();
                assert_eq!(refused::<Packed>(&bytes), cut, "field {number}, {count} and {more} bytes");
            }
        }
    }
    assert_eq!(
        refused::<Packed>(&bytes_field(1, &[[0x80; 10].as_slice(), &[0]].concat())),
        DecodeError::Packed { number: 1, at: 0 }
    );
}

#[test]
fn a_message_that_comes_twice_is_merged() {
    // Three's inner: of `a` the last counts, `b` of the first stays, and of the inner's inner the same.
    let first = bytes_field(17, b"\x08\x01\x12\x01x\x1a\x02\x08\x05");
    let second = bytes_field(17, b"\x08\x02\x1a\x05\x12\x03abc");
    let merged = bytes_field(17, b"\x08\x02\x12\x01x\x1a\x07\x08\x05\x12\x03abc");
    assert_eq!(taken::<All>(&[&first[..], &second].concat()), merged);
    assert_eq!(taken::<All>(&[&first[..], b"\x92\x01\x00", &second].concat()), {
        [&merged[..], b"\x92\x01\x00"].concat()
    });
    // In a choice, if nothing else was chosen between.
    let nested = |inner: &[u8]| bytes_field(30, inner);
    assert_eq!(
        taken::<All>(&[nested(b"\x08\x01"), nested(b"\x12\x01x")].concat()),
        nested(b"\x08\x01\x12\x01x")
    );
    let between = [nested(b"\x08\x01"), b"\xf8\x01\x01".to_vec(), nested(b"\x12\x01x")].concat();
    assert_eq!(taken::<All>(&between), nested(b"\x12\x01x"));
    // Groups, and unknown fields of both.
    assert_eq!(
        taken::<Needs>(b"\x08\x01\x33\x08\x05\x78\x07\x34\x33\x12\x01x\x78\x08\x34"),
        b"\x08\x01\x33\x08\x05\x12\x01x\x78\x07\x78\x08\x34"
    );
    // What the first had of what is required, the second need not have: they are one.
    let twice = b"\x08\x01\x42\x02\x08\x02\x42\x02\x08\x03";
    assert_eq!(taken::<Needs>(twice), b"\x08\x01\x42\x02\x08\x03");
}

/// A message with each field of `All`, by field.
fn whole() -> Vec<Vec<u8>> {
    let one = |field: &Field| {
        let value = match wire_of(field.kind) {
            FIXED32 => b"\x01\x02\x03\x84".to_vec(),
            FIXED64 => b"\x01\x02\x03\x84\x05\x06\x07\x88".to_vec(),
            VARINT => b"\x81\x82\x03".to_vec(),
            _ if field.number == 26 => b"\x07\x0a\x02ab\x10\x96\x01".to_vec(),
            _ if field.number == 27 => b"\x08\x08\x96\x01\x12\x03\x12\x01x".to_vec(),
            _ if field.kind == Kind::Message => b"\x0a\x08\x81\x82\x03\x12\x04\xc3\xa4xy".to_vec(),
            _ => b"\x0a0123\xc3\xa46789"[..11].to_vec(),
        };
        [tag(field.number, wire_of(field.kind)), value].concat()
    };
    All::FIELDS.iter().filter(|field| field.oneof == u16::MAX || field.number == 29).map(one).collect()
}

#[test]
fn every_prefix_of_a_message_is_whole_or_cut_within_its_last_field() {
    let fields = whole();
    let bytes = fields.concat();
    let mut ends = vec![0];
    fields.iter().for_each(|field| ends.push(ends[ends.len() - 1] + field.len()));
    for end in 0..=bytes.len() {
        let got = again::<All>(&bytes[..end]);
        if ends.contains(&end) {
            assert!(got.is_ok(), "up to {end}: {got:?}");
            continue;
        }
        let begins = ends.iter().rev().find(|&&begins| begins < end).copied().unwrap();
        match got {
            Err(DecodeError::Cut { at }) => assert!(begins <= at && at <= end, "up to {end}: {at}"),
            other => panic!("up to {end}: {other:?}"),
        }
    }
}

#[test]
fn every_prefix_of_a_group_is_cut() {
    let bytes = b"\x08\x01\x33\x08\x05\x12\x02ab\x7b\x08\x01\x7c\x34";
    assert_eq!(taken::<Needs>(bytes), bytes);
    for end in 3..bytes.len() {
        assert!(
            matches!(refused::<Needs>(&bytes[..end]), DecodeError::Cut { at } if at <= end),
            "up to {end}"
        );
    }
}

#[test]
fn what_is_required_and_not_there_is_told_by_its_number() {
    assert_eq!(refused::<Needs>(b""), DecodeError::Missing { number: 1 });
    assert_eq!(refused::<Needs>(b"\x08\x01\x42\x00"), DecodeError::Missing { number: 1 });
    assert_eq!(refused::<Needs>(b"\x08\x01\x3b\x3c"), DecodeError::Missing { number: 1 });
    // As a number of another wire type it is not there.
    assert_eq!(refused::<Needs>(b"\x0d\x01\x02\x03\x04"), DecodeError::Missing { number: 1 });
}

#[test]
fn more_than_the_limits_is_refused() {
    let limits = Limits::default();
    let many = b"\xf8\x3f\x01\x18\x01".repeat(100);
    let runs = |unknown_fields_max| within::<All>(&many, &Limits { unknown_fields_max, ..limits });
    assert_eq!(runs(99), Err(DecodeError::TooManyUnknown { at: 495 }));
    assert!(runs(100).is_ok());
    let bytes = |message_bytes_max| within::<All>(&many, &Limits { message_bytes_max, ..limits });
    assert_eq!(bytes(499), Err(DecodeError::TooLarge));
    assert!(bytes(500).is_ok());
}
