//! The text of a header for C: an enumeration and a struct, letter for letter.

use scotfree_wire::c_header::{enum_text, struct_text, upper};
use scotfree_wire::layout;

#[test]
fn an_enumeration_has_its_values_in_capitals() {
    let text = enum_text("stamp", [("none".to_owned(), 0), ("order".to_owned(), 1)]);
    assert_eq!(text, "enum scot_stamp {\n\tSCOT_STAMP_NONE = 0,\n\tSCOT_STAMP_ORDER = 1,\n};\n");
    assert_eq!(upper("busy_ns"), "BUSY_NS");
}

#[test]
fn a_struct_has_its_fields_and_asserts_where_each_lies_and_how_long_it_is() {
    let text = struct_text(&layout::OPEN);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("/* ") && lines[0].ends_with(". */"), "{}", lines[0]);
    assert!(lines[0][3..].starts_with(char::is_uppercase), "a sentence begins with a capital");
    assert_eq!(lines[1], "struct scot_open {");
    let field = |line: &str| line.split("/*").next().unwrap_or_default().trim().to_owned();
    let fields: Vec<String> =
        lines[2..].iter().take_while(|line| **line != "};").map(|line| field(line)).collect();
    let expected = ["__u8 client_nonce[16];", "__le32 window_asked;", "__le32 key_epoch;"];
    assert_eq!(fields, expected);
    for assertion in [
        "__builtin_offsetof(struct scot_open, client_nonce) == 0",
        "sizeof(((struct scot_open *)0)->client_nonce) == 16",
        "sizeof(((struct scot_open *)0)->window_asked) == 4",
    ] {
        assert!(text.contains(&format!("_Static_assert({assertion}, ")), "{assertion}");
    }
    let size = format!("_Static_assert(sizeof(struct scot_open) == {}, \"scot_open\");", layout::OPEN.bytes);
    assert_eq!(lines.iter().filter(|line| **line == size).count(), 1);
}
