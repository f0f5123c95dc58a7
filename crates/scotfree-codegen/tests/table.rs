//! The table on what a file says: golden bytes, and what a stranger may cost.

#![allow(clippy::unwrap_used)]

use scotfree_transform::descriptor::{read, types_of, Loaded};
use scotfree_transform::{protobuf::table, Arena, DecodeError, Limits, Value};

const PERSON: &str = r#"
syntax = "proto3";
package demo;
message Phone { string number = 1; bool mobile = 2; }
message Person { int32 id = 1; string name = 2; Phone phone = 3; repeated Person friends = 4; repeated bytes raw = 5; }
"#;

/// Types of a file of this text.
fn loaded(text: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("demo.proto"), text).unwrap();
    let set = protox::compile(["demo.proto"], [folder.path()]).unwrap();
    types_of(&read(&protox::prost::Message::encode_to_vec(&set)).unwrap()).unwrap()
}

/// Decodes a `demo.Person` and encodes it again.
fn again(input: &[u8], limits: &Limits) -> Result<Vec<u8>, DecodeError> {
    let loaded = loaded(PERSON);
    let (mut arena, mut out) = (Arena::new(), Vec::new());
    let person = loaded.by_name[".demo.Person"];
    table::encode(table::decode(&loaded.types, person, input, &mut arena, limits)?, &mut out);
    Ok(out)
}

/// The message of the thesis' Figure 3.6.
const GOLDEN: &[u8] = b"\x08\x95\x9a\xef\x3a\x12\x05Negar\x1a\x07\x0a\x03555\x10\x01";

#[test]
fn the_person_of_the_thesis_is_read_and_written() {
    let (loaded, mut arena) = (loaded(PERSON), Arena::new());
    let index = loaded.by_name[".demo.Person"];
    let person = table::decode(&loaded.types, index, GOLDEN, &mut arena, &Limits::default()).unwrap();
    let field = |name| *person.schema().named(name).unwrap();
    assert!(matches!(person.get(&field("id")), Some(Value::Number(123_456_789))));
    assert!(matches!(person.get(&field("name")), Some(Value::Bytes(b"Negar"))));
    assert!(matches!(person.get(&field("phone")), Some(Value::Message(_))));
    assert!(person.get(&field("friends")).is_none() && !person.has(&field("raw")));
    assert_eq!(again(GOLDEN, &Limits::default()).unwrap(), GOLDEN);
}

#[test]
fn a_message_that_ends_too_early_is_cut_or_whole_at_a_fields_end() {
    let ends_of_fields = [0, 5, 12, GOLDEN.len()];
    for end in 0..=GOLDEN.len() {
        let is_whole = ends_of_fields.contains(&end);
        assert_eq!(again(&GOLDEN[..end], &Limits::default()).is_ok(), is_whole, "up to {end}");
    }
}

#[test]
fn bytes_that_are_no_fields_are_told_apart() {
    let refused = |bytes: &[u8]| again(bytes, &Limits::default()).unwrap_err();
    assert_eq!(refused(b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), DecodeError::Overlong { at: 1 });
    assert_eq!(refused(b"\x88\x80\x80\x80\x80\x00\x01"), DecodeError::Overlong { at: 0 });
    assert_eq!(refused(b"\xf8\xff\xff\xff\x7f\x01"), DecodeError::Overlong { at: 0 });
    assert_eq!(refused(b"\x00\x01"), DecodeError::NotAField { at: 0 });
    assert_eq!(refused(b"\x0e\x01"), DecodeError::NotAField { at: 0 });
    assert_eq!(refused(b"\x08\x01\x0c"), DecodeError::GroupEnd { at: 2 });
    assert_eq!(refused(b"\x7b\x08\x01\x84\x01"), DecodeError::GroupEnd { at: 3 });
    assert_eq!(refused(b"\x7b\x08\x01"), DecodeError::Cut { at: 3 });
    assert_eq!(refused(b"\x12\xff\xff\xff\xff\x07"), DecodeError::Cut { at: 1 });
    assert_eq!(refused(b"\x12\x02\xc3\x28"), DecodeError::NotUtf8 { number: 2, at: 0 });
}

#[test]
fn what_the_schema_does_not_know_is_kept_and_written_behind_the_rest() {
    let unknown = b"\x30\x07\x3a\x02ab\x43\x08\x01\x44";
    let input = [b"\x30\x07" as &[u8], GOLDEN, &unknown[2..]].concat();
    assert_eq!(again(&input, &Limits::default()).unwrap(), [GOLDEN, unknown].concat());
    // A known number of another wire type is as unknown.
    assert_eq!(again(b"\x09\x01\x02\x03\x04\x05\x06\x07\x08", &Limits::default()).unwrap().len(), 9);
}

#[test]
fn a_field_that_comes_twice_counts_once_and_a_message_is_merged() {
    let twice = again(b"\x08\x01\x1a\x03\x0a\x01a\x08\x00\x1a\x02\x10\x01", &Limits::default()).unwrap();
    assert_eq!(twice, b"\x1a\x05\x0a\x01a\x10\x01", "the last id is 0, which is written as nothing");
}

#[test]
fn no_stranger_costs_more_than_the_limits_say() {
    let deep = (0..101).fold(Vec::new(), |inner: Vec<u8>, _| {
        let length = u8::try_from(inner.len() % 0x80).unwrap();
        let length =
            if inner.len() < 0x80 { vec![length] } else { vec![length | 0x80, (inner.len() >> 7) as u8] };
        [b"\x22" as &[u8], &length, &inner].concat()
    });
    assert!(matches!(again(&deep, &Limits::default()), Err(DecodeError::TooDeep { .. })));
    assert!(again(&deep, &Limits { depth_max: 102, ..Limits::default() }).is_ok());
    let many = b"\x22\x00".repeat(10_000);
    let little = Limits { slots_bytes_max: 100_000, ..Limits::default() };
    assert!(matches!(again(&many, &little), Err(DecodeError::Exhausted(_))));
    assert_eq!(again(&many, &Limits::default()).unwrap(), many);
    let runs = b"\x30\x01\x08\x01".repeat(1000);
    assert!(matches!(
        again(&runs, &Limits { unknown_fields_max: 999, ..Limits::default() }),
        Err(DecodeError::TooManyUnknown { at: 3996 })
    ));
    assert!(again(&runs, &Limits { unknown_fields_max: 1000, ..Limits::default() }).is_ok());
    let short = Limits { message_bytes_max: GOLDEN.len() as u32 - 1, ..Limits::default() };
    assert_eq!(again(GOLDEN, &short), Err(DecodeError::TooLarge));
}

#[test]
fn what_is_no_file_is_told_by_what_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.proto"), "syntax = \"proto3\"; message A { Missing b = 1; }")
        .unwrap();
    let error =
        scotfree_codegen::Config::new().generate(&["a.proto"], &[folder.path()]).unwrap_err().to_string();
    assert!(error.starts_with("compile a.proto: ") && error.contains("Missing"), "{error}");
    let unsaid =
        scotfree_codegen::Config::new().compile(&["a.proto"], &[folder.path()]).unwrap_err().to_string();
    assert!(unsaid.contains("out_dir"), "{unsaid}");
}

#[test]
fn the_same_files_give_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("demo.proto"), PERSON).unwrap();
    let text = || scotfree_codegen::Config::new().generate(&["demo.proto"], &[folder.path()]).unwrap();
    assert_eq!(text(), text());
    assert!(!text().contains("unsafe"));
}
