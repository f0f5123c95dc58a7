//! What .thrift files say, and what is said of files that are none.

#![allow(clippy::unwrap_used)]

use scotfree_codegen::{thrift_types, Config, ThriftError};
use scotfree_transform::{Kind, Need, Shape, Types};

/// Types of a file of this text, beside which `other.thrift` lies.
fn types(text: &str) -> Result<Types, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.thrift"), text).unwrap();
    std::fs::write(
        folder.path().join("other.thrift"),
        "include 'a.thrift'\ntypedef i16 Short\nstruct B { 1: a.A a }",
    )
    .unwrap();
    thrift_types(&["a.thrift"], &[folder.path()])
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn field(types: &Types, of: &str, name: &str) -> (u32, Kind, Shape, Need) {
    let schema = types.types.iter().find(|schema| schema.name == of).unwrap();
    let field = schema.named(name).unwrap();
    (field.number, field.kind, field.shape, field.need)
}

#[test]
fn fields_are_as_the_file_says_them() {
    let types = types(
        "include \"other.thrift\" namespace * demo.app namespace java nobody
         /* A */ struct A { 1: required other.Short short; bool flag, 3: optional list<other.B> bs = [] # end
           i8 second (deprecated) 9: E kind = E.X, 10: map cpp_type \"m\" <string, set<uuid>> ids }
         enum E { X = -1, Y; Z }",
    )
    .unwrap();
    let of = |name| field(&types, "demo.app.A", name);
    assert_eq!(of("short"), (1, Kind::Int16, Shape::Required, Need::Required));
    assert_eq!(of("flag"), (0xffff, Kind::Bool, Shape::Implicit, Need::Default));
    assert_eq!(of("bs"), (3, Kind::Message, Shape::Repeated, Need::Optional));
    assert_eq!(of("second"), (0xfffe, Kind::Int8, Shape::Implicit, Need::Default));
    assert_eq!(of("kind"), (9, Kind::Enum, Shape::Explicit, Need::Optional));
    assert_eq!(of("ids"), (10, Kind::Message, Shape::Map, Need::Default));
    assert_eq!(field(&types, "demo.app.A.idsEntry", "value").1, Kind::Message);
    assert_eq!(field(&types, "other.B", "a").1, Kind::Message);
}

#[test]
fn methods_are_structs_of_arguments_and_results() {
    let types = types(
        "exception No { 1: string why } service Shop { i32 price(1: string item, 2: i64 at) throws (1: No no)
         oneway void forget(1: binary what); void nothing() }",
    )
    .unwrap();
    let names: Vec<&str> = types.types.iter().map(|schema| &*schema.name).collect();
    let methods = ["priceArgs", "priceResult", "forgetArgs", "nothingArgs", "nothingResult"];
    assert_eq!(
        names,
        [vec!["a.No".to_owned()], methods.map(|name| format!("a.Shop.{name}")).to_vec()].concat()
    );
    assert_eq!(field(&types, "a.Shop.priceArgs", "item"), (1, Kind::String, Shape::Implicit, Need::Default));
    assert_eq!(
        field(&types, "a.Shop.priceResult", "success"),
        (0, Kind::Int32, Shape::Explicit, Need::Optional)
    );
    assert_eq!(
        field(&types, "a.Shop.priceResult", "no"),
        (1, Kind::Message, Shape::Explicit, Need::Optional)
    );
}

#[test]
fn what_is_no_file_is_told_by_line_and_by_what_was_expected() {
    for (text, error) in [
        ("struct A {\n 1: i32 a\n", "a.thrift:3: expected a field's type, or `}`, found the end of the file"),
        ("struct A {\n 1 i32 a }", "a.thrift:2: expected `:` behind the field's id, found `i32`"),
        ("struct A {\n 40000: i32 a }", "a.thrift:2: expected an id of 16 bits, found `40000`"),
        ("\n\nstrukt A {}", "a.thrift:3: expected a definition: `include`, `namespace`, `const`, `typedef`, `enum`, `struct`, `union`, `exception` or `service`, found `strukt`"),
        ("struct A { 1: list<i32 a }", "a.thrift:1: expected `>` at the list's end, found `a`"),
        ("struct A {\n 1: Missing a }", "a.thrift:2: expected a type that is defined here or included, found `Missing`"),
        ("struct A {\n 1: other.B a }", "a.thrift:2: expected a type that is defined here or included, found `other.B`"),
        ("typedef B A typedef A B\nstruct C { 1: A a }", "a.thrift:2: expected a typedef that ends in a type, found `A`"),
        ("struct A {} \n enum A {}", "a.thrift:2: expected another name: line 1 defines it too, found `A`"),
        ("struct A {\n 1: i32 a.b }", "a.thrift:2: expected the field's name, found `a.b`"),
        ("struct A { 1: i32 a, 1: i32 b }", "a.A: field 1: said twice"),
        ("/* no end", "a.thrift:1: expected `*/`, which ends the comment, found the end of the file"),
        ("const string A = 'no end\n", "a.thrift:2: expected the text's end, found the end of the file"),
        ("const i32 A = 1.2.3", "a.thrift:1: expected a number, found `1.2.3`"),
        ("enum E { A = 2147483647 B }", "a.thrift:1: expected a number: the next one has more than 32 bits, found `}`"),
        ("struct A @ {}", "a.thrift:1: expected a name, a number, a text in quotes or a sign, found `@`"),
        ("service S { oneway i32 a() }", "a.thrift:1: expected `void` and no `throws`, as the method is oneway, found what `a` gives"),
        ("include 'none.thrift'", "a.thrift:1: none.thrift is not there; add its folder to the includes"),
    ] {
        assert_eq!(types(text).unwrap_err(), error);
    }
    let deep = format!("struct A {{ 1: {}i32{} a }}", "list<".repeat(70_000), ">".repeat(70_000));
    assert!(types(&deep).unwrap_err().contains("fewer containers"));
    let deep = format!("const i32 A = {}", "[".repeat(70_000));
    assert!(types(&deep).unwrap_err().contains("fewer values"));
    assert!(matches!(thrift_types(&["none.thrift"], &["."]), Err(ThriftError::Missing { .. })));
}

/// Every prefix of a file is told apart or is a file.
#[test]
fn a_file_that_ends_too_early_does_not_panic() {
    let text = "include 'other.thrift' namespace * a const map<i8,string> C = {1: \"a\\n\", 0x2: 'b'} struct A { 1: required \
        list<set<other.Short>> a = [[1.5e-3]] (b = \"c\") } service S extends other.T { oneway void a(1: A b) }";
    let whole = (0..=text.len()).filter(|end| types(&text[..*end]).is_ok()).count();
    assert!((2..10).contains(&whole), "{whole} of its prefixes are files");
}

/// What is generated of a file of this text.
fn generated(config: &mut Config, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.thrift"), text).unwrap();
    config.generate(&["a.thrift"], &[folder.path()]).unwrap()
}

#[test]
fn a_struct_has_a_line_of_what_it_does_and_leaves_the_rest_to_the_table() {
    let text = "struct A { 1: i32 n, 2: string s, 3: list<i16> ns, 4: A a, 5: set<A> all, 6: map<i8, i8> m, 7: uuid u,
        8: list<list<i8>> grid }";
    let code = generated(&mut Config::new(), text);
    for step in [
        "frame.number::<0, P>(path);",
        "frame.text::<1, P>(path);",
        "frame.each::<2, P>(path);",
        "frame.child::<3, super::a::A, P>(path)?;",
        "frame.structs::<4, super::a::A, P>(path)?;",
        "if frame.is_at_end() { break 'line; }",
        "line.room_for_numbers(1);",
        "line.number::<Self, 0, P>(path, message, p0);",
        "line = line.child::<Self, 3, super::a::A, P>(path, message);",
        "line = line.by_table::<Self, 5>(message, p0);",
        "line = line.by_table::<Self, 6>(message, p0);",
        "line = line.by_table::<Self, 7>(message, p0);",
    ] {
        assert_eq!(code.matches(step).count(), 1, "{step}");
    }
    for left in ["frame.number::<6", "frame.text::<6", "frame.structs::<5", "frame.structs::<7"] {
        assert!(!code.contains(left), "{left}");
    }
    // Of the map's entries and the grid's rows, which are no structs on the wire, there is none.
    assert_eq!(code.matches("fn decode_thrift").count(), 1);
    assert!(!generated(Config::new().cold("a.A"), "struct A { 1: i32 n }").contains("decode_thrift"));
    let many = (1..66).map(|id| format!("{id}: i8 f{id},")).collect::<Vec<_>>().concat();
    assert!(!generated(&mut Config::new(), &format!("struct A {{ {many} }}")).contains("decode_thrift"));
}

#[test]
fn both_languages_give_one_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("a.proto"),
        "syntax = \"proto3\"; package demo; message P { int32 a = 1; }",
    )
    .unwrap();
    std::fs::write(folder.path().join("b.thrift"), "namespace rs demo struct T { 1: i32 a }").unwrap();
    let text = || Config::new().generate(&["a.proto", "b.thrift"], &[folder.path()]).unwrap();
    assert_eq!(text(), text());
    for part in
        ["static TYPES", "static THRIFT_TYPES", "pub enum P {}", "pub enum T {}", "IS_THRIFT: bool = true"]
    {
        assert_eq!(text().matches(part).count(), 1, "{part}");
    }
    assert!(!text().contains("unsafe"));
}

#[test]
fn what_would_have_no_end_is_refused() {
    let doubled = |times: usize| {
        let typedefs =
            (0..times).map(|n| format!("typedef map<T{n}, T{n}> T{}\n", n + 1)).collect::<Vec<_>>().concat();
        types(&format!("typedef i32 T0\n{typedefs}struct A {{ 1: T{times} a }}"))
    };
    assert_eq!(doubled(5).unwrap().types.len(), 1 + 2 * 31 - 1);
    let listed = |times: usize| {
        let typedefs =
            (0..times).map(|n| format!("typedef list<list<T{n}>> T{}\n", n + 1)).collect::<Vec<_>>().concat();
        types(&format!("typedef i32 T0\n{typedefs}struct A {{ 1: T{times} a }}"))
    };
    assert_eq!(listed(32).unwrap().types.len(), 64);
    for refused in [doubled(40), listed(33)] {
        let error = refused.unwrap_err();
        assert!(
            error.contains("expected fewer containers in one field's type, found typedefs of more"),
            "{error}"
        );
    }
    let unnumbered = |count: usize| {
        let fields = (0..count).map(|n| format!("i32 f{n}\n")).collect::<Vec<_>>().concat();
        types(&format!("struct A {{\n{fields}}}"))
    };
    assert!(unnumbered(32_768).is_ok());
    let error = unnumbered(32_769).unwrap_err();
    assert!(error.starts_with("a.thrift:32770: expected an id: those below zero are all taken"), "{error}");
}

#[test]
fn files_that_include_each_other_in_a_long_row_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let row = |files: usize| {
        for n in 0..files {
            let next = if n + 1 < files { format!("include 'f{}.thrift'", n + 1) } else { String::new() };
            std::fs::write(folder.path().join(format!("f{n}.thrift")), next).unwrap();
        }
        thrift_types(&["f0.thrift"], &[folder.path()])
    };
    assert!(row(201).is_ok());
    let error = row(300).unwrap_err().to_string();
    assert!(error.contains("f200.thrift:1: expected at most 200 files"), "{error}");
}

#[test]
fn what_is_generated_has_names_that_are_rusts() {
    let folder = tempfile::tempdir().unwrap();
    let text = "struct _ { 1: i32 fooBar, 2: i32 foo_bar } enum E { _1 = 1 }";
    std::fs::write(folder.path().join("2-files.thrift"), text).unwrap();
    let made = Config::new().generate(&["2-files.thrift"], &[folder.path()]).unwrap();
    for name in
        ["pub mod _2_files {", "pub enum __ {}", "fn foo_bar(", "fn foo_bar_(", "fn set_foo_bar_(", "_1 = 1,"]
    {
        assert_eq!(made.matches(name).count(), 1, "{name}");
    }
    for refused in ["namespace rs a..b", "namespace rs a.", "struct Größe {}"] {
        let error = types(refused).unwrap_err();
        assert!(error.starts_with("a.thrift:1: expected "), "{error}");
    }
}
