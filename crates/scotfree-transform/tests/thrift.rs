//! Thrift's two formats by the table and by the straight line: golden bytes, what is kept, and what a stranger may cost.

#![allow(clippy::unwrap_used)]

use golden::golden::{All, Needs};
use scotfree_transform::generated::Type;
use scotfree_transform::thrift::{
    decode_slots_on, encode_on, struct_bytes, table, types_of, Envelope, FieldDescription, LayoutError,
    Loaded, MessageKind, Of, Protocol, StructDescription,
};
use scotfree_transform::{Arena, CpuPath, DecodeError, Limits, Need, Value};

/// The same structs, generated.
#[allow(dead_code, missing_docs, unused_qualifications, clippy::all, clippy::pedantic)]
#[path = "golden/messages.rs"]
#[rustfmt::skip]
mod golden;

const BOTH: [Protocol; 2] = [Protocol::Binary, Protocol::Compact];

fn field(id: i16, name: &str, need: Need, of: Of) -> FieldDescription {
    FieldDescription { id, name: name.to_owned(), need, has_default: false, of }
}

fn optional(id: i16, name: &str, of: Of) -> FieldDescription {
    field(id, name, Need::Optional, of)
}

fn structure(name: &str, fields: Vec<FieldDescription>) -> StructDescription {
    StructDescription { name: name.to_owned(), fields, is_union: false }
}

fn list(of: Of) -> Of {
    Of::List(Box::new(of))
}

fn set(of: Of) -> Of {
    Of::Set(Box::new(of))
}

fn map(key: Of, value: Of) -> Of {
    Of::Map(Box::new(key), Box::new(value))
}

fn all() -> Loaded {
    let of = |name: &str| Of::Struct(name.to_owned());
    let choice = StructDescription {
        is_union: true,
        ..structure(
            "Choice",
            vec![
                optional(1, "number", Of::I64),
                optional(2, "many", list(Of::String)),
                optional(3, "all", of("All")),
            ],
        )
    };
    let all = structure(
        "All",
        vec![
            optional(1, "truth", Of::Bool),
            optional(2, "small", Of::I8),
            optional(3, "short", Of::I16),
            optional(4, "number", Of::I32),
            optional(5, "long", Of::I64),
            optional(6, "real", Of::Double),
            optional(7, "text", Of::String),
            optional(8, "raw", Of::Binary),
            optional(9, "id", Of::Uuid),
            optional(10, "choice", of("Choice")),
            optional(11, "kind", Of::Enum),
            optional(12, "truths", list(Of::Bool)),
            optional(13, "smalls", set(Of::I8)),
            optional(14, "grid", list(list(Of::I32))),
            optional(15, "groups", map(Of::String, list(of("All")))),
            optional(40, "keyed", map(set(Of::I16), map(Of::Bool, Of::Double))),
            optional(56, "far", Of::I32),
            optional(-1, "before", Of::I32),
            optional(0, "zero", Of::I32),
            optional(1000, "ids", set(Of::Uuid)),
        ],
    );
    types_of(&[
        all,
        choice,
        structure(
            "Needs",
            vec![
                field(1, "must", Need::Required, Of::I32),
                field(2, "list", Need::Required, list(Of::I32)),
                field(3, "usual", Need::Default, Of::String),
                field(4, "map", Need::Default, map(Of::I32, Of::Struct("All".into()))),
                field(5, "inner", Need::Default, Of::Struct("All".into())),
                FieldDescription { has_default: true, ..field(6, "preset", Need::Default, Of::I32) },
                field(7, "flag", Need::Default, Of::Bool),
                optional(8, "maybe", list(Of::I32)),
            ],
        ),
    ])
    .unwrap()
}

/// The same by the straight line, of a generated type, on each path of the processor.
fn straight<T: Type>(
    (from, to): (Protocol, Protocol),
    input: &[u8],
    limits: &Limits,
    expected: &Result<Vec<u8>, DecodeError>,
) {
    for path in CpuPath::all() {
        let (mut arena, mut out) = (Arena::new(), Vec::new());
        let written = decode_slots_on::<T>(path, from, input, &mut arena, limits).map(|slots| {
            encode_on::<T>(path, to, slots, &mut out);
            out
        });
        assert_eq!(&written, expected, "{path:?} of {input:02x?}");
    }
}

/// Decodes a struct and encodes it by another protocol, by the table; the straight line does the same.
fn over(
    name: &str,
    from: Protocol,
    to: Protocol,
    input: &[u8],
    limits: &Limits,
) -> Result<Vec<u8>, DecodeError> {
    let (loaded, mut arena, mut out) = (all(), Arena::new(), Vec::new());
    let decoded = table::decode(from, &loaded.types, loaded.by_name[name], input, &mut arena, limits);
    let written = decoded.map(|view| {
        table::encode(to, view, &mut out);
        out
    });
    match name {
        "All" => straight::<All>((from, to), input, limits, &written),
        "Needs" => straight::<Needs>((from, to), input, limits, &written),
        _ => panic!("{name} is not generated"),
    }
    written
}

fn again(protocol: Protocol, input: &[u8]) -> Result<Vec<u8>, DecodeError> {
    over("All", protocol, protocol, input, &Limits::default())
}

/// The same struct twice, by hand from the specification: true, -1, 300, 1 << 20, 1.5, "Negar", an empty union, two lists
/// of bools and numbers, and a map.
const BINARY: &[u8] = b"\
    \x02\x00\x01\x01\
    \x03\x00\x02\xff\
    \x06\x00\x03\x01\x2c\
    \x08\x00\x04\x00\x10\x00\x00\
    \x04\x00\x06\x3f\xf8\x00\x00\x00\x00\x00\x00\
    \x0b\x00\x07\x00\x00\x00\x05Negar\
    \x0c\x00\x0a\x00\
    \x0f\x00\x0c\x02\x00\x00\x00\x02\x01\x00\
    \x0f\x00\x0e\x0f\x00\x00\x00\x02\x08\x00\x00\x00\x01\x00\x00\x00\x07\x08\x00\x00\x00\x00\
    \x0d\x00\x28\x0e\x0d\x00\x00\x00\x01\x06\x00\x00\x00\x01\x00\x05\x02\x04\x00\x00\x00\x00\
    \x00";
const COMPACT: &[u8] = b"\
    \x11\
    \x13\xff\
    \x14\xd8\x04\
    \x15\x80\x80\x80\x01\
    \x27\x00\x00\x00\x00\x00\x00\xf8\x3f\
    \x18\x05Negar\
    \x3c\x00\
    \x29\x21\x01\x02\
    \x29\x29\x15\x0e\x05\
    \x0b\x50\x01\xab\x14\x0a\x00\
    \x00";

#[test]
fn the_same_struct_is_read_and_written_by_both() {
    assert_eq!(again(Protocol::Binary, BINARY).unwrap(), BINARY);
    assert_eq!(again(Protocol::Compact, COMPACT).unwrap(), COMPACT);
    let limits = Limits::default();
    assert_eq!(over("All", Protocol::Binary, Protocol::Compact, BINARY, &limits).unwrap(), COMPACT);
    assert_eq!(over("All", Protocol::Compact, Protocol::Binary, COMPACT, &limits).unwrap(), BINARY);
}

#[test]
fn a_struct_is_read_by_its_schema() {
    let (loaded, mut arena) = (all(), Arena::new());
    let index = loaded.by_name["All"];
    let view =
        table::decode(Protocol::Compact, &loaded.types, index, COMPACT, &mut arena, &Limits::default())
            .unwrap();
    let field = |name| *view.schema().named(name).unwrap();
    assert!(matches!(view.get(&field("truth")), Some(Value::Number(1))));
    assert!(matches!(view.get(&field("small")), Some(Value::Number(0xff))));
    assert!(matches!(view.get(&field("short")), Some(Value::Number(300))));
    assert!(matches!(view.get(&field("text")), Some(Value::Bytes(b"Negar"))));
    assert!(view.get(&field("raw")).is_none());
    let grid = field("grid");
    assert_eq!(view.count(&grid), 2);
    let Value::Message(row) = view.element(&grid, 0) else { panic!("a row is a type of its own") };
    assert!(row.schema().is_container && row.schema().name == "All.gridList");
    assert!(matches!(row.element(&row.schema().fields[0], 0), Value::Number(7)));
    let Value::Message(entry) = view.element(&field("keyed"), 0) else { panic!("an entry is a message") };
    let Some(Value::Message(key)) = entry.get(&entry.schema().fields[0]) else { panic!("its key is a set") };
    assert!(key.schema().fields[0].is_set);
}

#[test]
fn a_struct_that_ends_too_early_is_cut() {
    for (protocol, whole) in [(Protocol::Binary, BINARY), (Protocol::Compact, COMPACT)] {
        for end in 0..whole.len() {
            let error = again(protocol, &whole[..end]).unwrap_err();
            assert!(matches!(error, DecodeError::Cut { at } if at <= end), "{error:?} up to {end}");
            assert!(matches!(
                struct_bytes(protocol, &whole[..end], &Limits::default()),
                Err(DecodeError::Cut { .. })
            ));
        }
        let behind = [whole, b"more"].concat();
        assert_eq!(struct_bytes(protocol, &behind, &Limits::default()), Ok(whole.len()));
        assert_eq!(again(protocol, &behind), Err(DecodeError::Trailing { at: whole.len() }));
        let little = Limits { message_bytes_max: whole.len() as u32 - 1, ..Limits::default() };
        assert_eq!(struct_bytes(protocol, whole, &little), Err(DecodeError::TooLarge));
        assert_eq!(over("All", protocol, protocol, whole, &little), Err(DecodeError::TooLarge));
    }
}

#[test]
fn ids_below_zero_and_far_apart_are_written_whole() {
    let compact = b"\x05\x00\x02\x05\xd0\x0f\x04\x05\x01\x06\x00";
    // 1000 is a set of uuids, and not a number: so it is unknown, and written last.
    let written = b"\x05\x00\x02\x05\x01\x06\x05\xd0\x0f\x04\x00";
    assert_eq!(again(Protocol::Compact, compact).unwrap(), written);
    let set = [b"\x0a\xd0\x0f\x1d" as &[u8], &[7; 16], b"\x00"].concat();
    assert_eq!(again(Protocol::Compact, &set).unwrap(), set);
    // From 4 to 19 is a step of 15, the longest; what is unknown says its id.
    let steps = b"\x45\x02\xf5\x02\x00";
    assert_eq!(again(Protocol::Compact, steps).unwrap(), b"\x45\x02\x05\x26\x02\x00");
    // From 40 to 56 is one too far.
    let far = b"\x0b\x50\x00\x05\x70\x02\x00";
    assert_eq!(again(Protocol::Compact, far).unwrap(), far);
    assert_eq!(again(Protocol::Compact, b"\x15\x02\x00").unwrap(), b"\x05\x02\x02\x00");
}

#[test]
fn a_count_of_fifteen_stands_behind_its_header() {
    let fourteen = [b"\xc9\xe1" as &[u8], &[1; 14], b"\x00"].concat();
    let fifteen = [b"\xc9\xf1\x0f" as &[u8], &[1; 15], b"\x00"].concat();
    for whole in [fourteen, fifteen] {
        assert_eq!(again(Protocol::Compact, &whole).unwrap(), whole);
    }
}

#[test]
fn bools_of_a_compact_list_may_be_written_as_zero_and_their_type_as_two() {
    assert_eq!(again(Protocol::Compact, b"\xc9\x32\x01\x00\x02\x00").unwrap(), b"\xc9\x31\x01\x02\x02\x00");
    assert_eq!(again(Protocol::Compact, b"\xc9\x11\x03\x00"), Err(DecodeError::NotABool { at: 2 }));
    assert_eq!(again(Protocol::Binary, b"\x02\x00\x01\x02\x00"), Err(DecodeError::NotABool { at: 3 }));
}

#[test]
fn what_is_no_struct_is_told_apart() {
    let binary = |bytes: &[u8]| again(Protocol::Binary, bytes).unwrap_err();
    let compact = |bytes: &[u8]| again(Protocol::Compact, bytes).unwrap_err();
    assert_eq!(binary(b"\x0b\x00\x07\xff\xff\xff\xff\x00"), DecodeError::Length { at: 3 });
    assert_eq!(binary(b"\x0b\x00\x07\x00\x00\x00\x09\x00"), DecodeError::Cut { at: 3 });
    assert_eq!(binary(b"\x0e\x00\x0d\x03\x80\x00\x00\x00\x00"), DecodeError::Length { at: 4 });
    assert_eq!(binary(b"\x0e\x00\x0d\x03\x7f\xff\xff\xff\x00"), DecodeError::Cut { at: 3 });
    assert_eq!(binary(b"\x0d\x00\x0f\x0b\x0f\x7f\xff\xff\xff\x00"), DecodeError::Cut { at: 3 });
    assert_eq!(binary(b"\x01\x00\x01\x00"), DecodeError::NotAField { at: 0 });
    assert_eq!(binary(b"\x0f\x00\x0c\x01\x00\x00\x00\x01\x00"), DecodeError::NotAField { at: 3 });
    assert_eq!(binary(b"\x0f\x00\x0c\x00\x00\x00\x00\x01\x00"), DecodeError::NotAField { at: 3 });
    assert_eq!(
        binary(b"\x0b\x00\x07\x00\x00\x00\x02\xc3\x28\x00"),
        DecodeError::NotUtf8 { number: 7, at: 3 }
    );
    assert_eq!(compact(b"\x78\xff\xff\xff\xff\x0f\x00"), DecodeError::Length { at: 1 });
    assert_eq!(compact(b"\x78\x80\x80\x80\x80\x08\x00"), DecodeError::Length { at: 1 });
    assert_eq!(compact(b"\xda\xf3\x80\x80\x80\x80\x08\x00"), DecodeError::Length { at: 2 });
    assert_eq!(compact(b"\xda\xf3\x80\x80\x04\x00"), DecodeError::Cut { at: 1 });
    assert_eq!(compact(b"\x1e\x00"), DecodeError::NotAField { at: 0 });
    assert_eq!(compact(b"\xc9\x1f\x00\x00"), DecodeError::NotAField { at: 1 });
    // The id behind 32,767 has no 16 bits, nor has an id of 70,000, nor a short of 70,000; an int of 33 bits.
    assert_eq!(compact(b"\x05\xfe\xff\x03\x02\x15\x02\x00"), DecodeError::NotAField { at: 5 });
    assert_eq!(compact(b"\x05\xe0\xc5\x08\x02\x00"), DecodeError::Overlong { at: 1 });
    assert_eq!(compact(b"\x34\xe0\xc5\x08\x00"), DecodeError::Overlong { at: 1 });
    assert_eq!(compact(b"\x45\x80\x80\x80\x80\x10\x00"), DecodeError::Overlong { at: 1 });
    assert_eq!(
        compact(b"\x56\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00"),
        DecodeError::Overlong { at: 1 }
    );
    // The same of a field that nobody knows.
    assert_eq!(compact(b"\x05\x64\x80\x80\x80\x80\x10\x00"), DecodeError::Overlong { at: 2 });
    // A row of texts, in a grid of numbers.
    assert_eq!(compact(b"\xe9\x19\x18\x01a\x00"), DecodeError::WrongType { at: 2 });
}

#[test]
fn what_the_schema_does_not_know_is_kept_by_the_same_protocol() {
    // A number for a text (7), a list of texts for one of bools (12), and ids that there are not; then `kind`.
    let binary = b"\x08\x00\x07\x00\x00\x00\x01\x0f\x00\x0c\x0b\x00\x00\x00\x01\x00\x00\x00\x00\
        \x0c\x01\x00\x0d\x00\x01\x08\x0c\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\
        \x08\x00\x0b\x00\x00\x00\x05\x02\x02\x00\x01\x00";
    let compact = b"\x75\x02\x59\x18\x00\x0c\x80\x04\x1b\x01\x5c\x02\x00\x00\x05\x16\x0a\x01\x80\x08\x00";
    let kept_binary =
        [b"\x08\x00\x0b\x00\x00\x00\x05" as &[u8], &binary[..37], b"\x02\x02\x00\x01\x00"].concat();
    assert_eq!(again(Protocol::Binary, binary).unwrap(), kept_binary);
    let kept_compact =
        b"\xb5\x0a\x05\x0e\x02\x09\x18\x18\x00\x0c\x80\x04\x1b\x01\x5c\x02\x00\x00\x01\x80\x08\x00";
    assert_eq!(again(Protocol::Compact, compact).unwrap(), kept_compact);
    assert_eq!(again(Protocol::Compact, kept_compact).unwrap(), kept_compact);
    let limits = Limits::default();
    assert_eq!(over("All", Protocol::Binary, Protocol::Compact, binary, &limits).unwrap(), b"\xb5\x0a\x00");
    assert_eq!(
        over("All", Protocol::Compact, Protocol::Binary, compact, &limits).unwrap(),
        b"\x08\x00\x0b\x00\x00\x00\x05\x00"
    );
    let none = Limits { unknown_fields_max: 1, ..limits };
    assert_eq!(
        over("All", Protocol::Compact, Protocol::Compact, compact, &none),
        Err(DecodeError::TooManyUnknown { at: 2 })
    );
}

#[test]
fn a_field_that_comes_twice_counts_as_the_last() {
    // A list of two and one of one; a text and another.
    let twice = b"\xc9\x21\x01\x01\x08\x0e\x01a\x09\x18\x11\x02\x08\x0e\x01b\x00";
    assert_eq!(again(Protocol::Compact, twice).unwrap(), b"\x78\x01b\x59\x11\x02\x00");
    // Of a union the last member, and none is none.
    let both = b"\xac\x16\x02\x19\x18\x01a\x00\x00";
    assert_eq!(again(Protocol::Compact, both).unwrap(), b"\xac\x29\x18\x01a\x00\x00");
    let other = b"\xac\x29\x18\x01a\x06\x02\x02\x00\x00";
    assert_eq!(again(Protocol::Compact, other).unwrap(), b"\xac\x16\x02\x00\x00");
    assert_eq!(again(Protocol::Compact, b"\xac\x00\x00").unwrap(), b"\xac\x00\x00");
}

#[test]
fn what_is_empty_and_there_is_not_what_is_absent() {
    for there in [b"\xc9\x01\x00" as &[u8], b"\xfb\x00\x00", b"\xac\x29\x08\x00\x00"] {
        assert_eq!(again(Protocol::Compact, there).unwrap(), there);
    }
    // Elements that are not there need no type.
    assert_eq!(again(Protocol::Compact, b"\xc9\x00\x00").unwrap(), b"\xc9\x01\x00");
    assert_eq!(
        again(Protocol::Binary, b"\x0d\x00\x0f\x00\x00\x00\x00\x00\x00\x00").unwrap(),
        b"\x0d\x00\x0f\x0b\x0f\x00\x00\x00\x00\x00"
    );
}

#[test]
fn what_is_required_must_be_there_and_what_is_usual_is_written() {
    let needs = |input: &[u8]| over("Needs", Protocol::Compact, Protocol::Compact, input, &Limits::default());
    assert_eq!(needs(b"\x00"), Err(DecodeError::Missing { number: 1 }));
    assert_eq!(needs(b"\x15\x02\x00"), Err(DecodeError::Missing { number: 2 }));
    assert_eq!(needs(b"\x15\x02\x19\x05\x00").unwrap(), b"\x15\x02\x19\x05\x18\x00\x1b\x00\x32\x00");
    let whole = b"\x15\x00\x19\x15\x02\x18\x01a\x1b\x01\x5c\x02\x00\x1c\x00\x15\x00\x11\x19\x05\x00";
    assert_eq!(needs(whole).unwrap(), whole);
}

#[test]
fn no_stranger_costs_more_than_the_limits_say() {
    let refused =
        |protocol, bytes: &[u8], limits: &Limits| over("All", protocol, protocol, bytes, limits).unwrap_err();
    let limits = Limits::default();
    // Lists of lists of lists, of a struct that nobody knows and of one that is known; structs in structs.
    let unknown = [b"\x09\x80\x08" as &[u8], &[0x19; 5000], b"\x15\x02"].concat();
    assert!(matches!(refused(Protocol::Compact, &unknown, &limits), DecodeError::TooDeep { .. }));
    assert!(matches!(struct_bytes(Protocol::Compact, &unknown, &limits), Err(DecodeError::TooDeep { .. })));
    let known = b"\xac\x3c".repeat(5000);
    assert!(matches!(refused(Protocol::Compact, &known, &limits), DecodeError::TooDeep { at: 101 | 100 }));
    let deep = [b"\xac\x3c".repeat(49), b"\xac\x00".to_vec(), vec![0; 99]].concat();
    assert_eq!(again(Protocol::Compact, &deep).unwrap(), deep);
    let shallow = Limits { depth_max: 99, ..limits };
    assert!(matches!(refused(Protocol::Compact, &deep, &shallow), DecodeError::TooDeep { .. }));
    // A byte each on the wire, and the slots of a struct in memory.
    let groups = [b"\xfb\x01\x89\x00\xfc\x90\x4e" as &[u8], &[0; 10_001]].concat();
    assert!(again(Protocol::Compact, &groups).is_ok());
    let little = Limits { slots_bytes_max: 100_000, ..limits };
    assert!(matches!(refused(Protocol::Compact, &groups, &little), DecodeError::Exhausted(_)));
    let mut arena = Arena::new();
    let loaded = all();
    let view = table::decode(Protocol::Compact, &loaded.types, 0, &groups, &mut arena, &little);
    assert!(view.is_err() && arena.used_bytes() <= 100_000);
}

/// Numbers that look random.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }
}

#[test]
fn damaged_structs_are_refused_or_are_structs() {
    let mut r = Drawn(0x9e37_79b9);
    let (mut taken, mut refused) = (0, 0);
    for round in 0..40_000 {
        let (protocol, whole) = [(BOTH[0], BINARY), (BOTH[1], COMPACT)][round % 2];
        let mut bytes = whole.to_vec();
        for _ in 0..=r.below(4) {
            let (at, byte) = (r.below(bytes.len()), r.below(256) as u8);
            match r.below(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        match again(protocol, &bytes) {
            Ok(written) => {
                taken += 1;
                assert_eq!(again(protocol, &written).as_ref(), Ok(&written), "{bytes:?}");
                let skipped = struct_bytes(protocol, &written, &Limits::default());
                assert_eq!(skipped, Ok(written.len()), "{bytes:?}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 2000 && refused > 10_000, "{taken} taken, {refused} refused");
}

#[test]
fn envelopes_are_as_the_specification_has_them() {
    let envelope = Envelope { name: "ping", kind: MessageKind::Call, seq_num: 300 };
    let (mut binary, mut old, mut compact) = (Vec::new(), Vec::new(), Vec::new());
    envelope.write(Protocol::Binary, &mut binary);
    envelope.write_unversioned(&mut old);
    envelope.write(Protocol::Compact, &mut compact);
    assert_eq!(binary, b"\x80\x01\x00\x01\x00\x00\x00\x04ping\x00\x00\x01\x2c");
    assert_eq!(old, b"\x00\x00\x00\x04ping\x01\x00\x00\x01\x2c");
    assert_eq!(compact, b"\x82\x21\xac\x02\x04ping");
    for (protocol, bytes) in [(BOTH[0], &binary), (BOTH[0], &old), (BOTH[1], &compact)] {
        assert_eq!(Envelope::read(protocol, bytes), Ok((envelope, bytes.len())));
        for end in 0..bytes.len() {
            let cut = Envelope::read(protocol, &bytes[..end]);
            assert!(matches!(cut, Err(DecodeError::Cut { .. })), "{cut:?} up to {end}");
        }
    }
    assert_eq!(Envelope::read_strict(BOTH[0], &binary), Ok((envelope, binary.len())));
    assert_eq!(Envelope::read_strict(BOTH[1], &compact), Ok((envelope, compact.len())));
    assert_eq!(Envelope::read_strict(BOTH[0], &old), Err(DecodeError::NotAnEnvelope { at: 0 }));
    let refused = |protocol, bytes: &[u8]| Envelope::read(protocol, bytes).unwrap_err();
    assert_eq!(refused(BOTH[0], b"\x80\x02\x00\x01\x00\x00\x00\x00"), DecodeError::NotAnEnvelope { at: 0 });
    assert_eq!(refused(BOTH[0], b"\x80\x01\x00\x05\x00\x00\x00\x00"), DecodeError::NotAnEnvelope { at: 3 });
    assert_eq!(
        refused(BOTH[0], b"\x00\x00\x00\x01a\x00\x00\x00\x00\x00"),
        DecodeError::NotAnEnvelope { at: 5 }
    );
    assert_eq!(refused(BOTH[0], b"\x80\x01\x00\x01\xff\xff\xff\xff"), DecodeError::Length { at: 4 });
    assert_eq!(refused(BOTH[0], b"POST / HTTP/1.1"), DecodeError::Cut { at: 0 });
    assert_eq!(refused(BOTH[1], b"\x80\x21\x00\x00"), DecodeError::NotAnEnvelope { at: 0 });
    assert_eq!(refused(BOTH[1], b"\x82\x22\x00\x00"), DecodeError::NotAnEnvelope { at: 1 });
    assert_eq!(refused(BOTH[1], b"\x82\x01\x00\x00"), DecodeError::NotAnEnvelope { at: 1 });
    assert_eq!(refused(BOTH[1], b"\x82\x21\x80\x80\x80\x80\x10\x00"), DecodeError::Overlong { at: 2 });
    assert_eq!(refused(BOTH[1], b"\x82\x21\x00\x01\xff"), DecodeError::NotUtf8 { number: 0, at: 3 });
    let last = Envelope { name: "", kind: MessageKind::Oneway, seq_num: -1 };
    let mut bytes = Vec::new();
    last.write(Protocol::Compact, &mut bytes);
    assert_eq!(
        (&bytes[..], Envelope::read(BOTH[1], &bytes).unwrap().0),
        (b"\x82\x81\xff\xff\xff\xff\x0f\x00" as &[u8], last)
    );
}

#[test]
fn descriptions_that_cannot_be_are_refused() {
    let of = |fields| types_of(&[structure("A", fields)]).unwrap_err();
    let twice = of(vec![optional(1, "a", Of::Bool), optional(1, "b", Of::Bool)]);
    assert_eq!(twice, LayoutError::Twice { name: "A: field 1".into() });
    let twice = of(vec![optional(1, "a", Of::Bool), optional(2, "a", Of::Bool)]);
    assert_eq!(twice, LayoutError::Twice { name: "A: a".into() });
    let unknown = of(vec![optional(1, "a", list(Of::Struct("B".into())))]);
    assert_eq!(unknown, LayoutError::Unknown { of: "A.a".into(), name: "B".into() });
    let same = types_of(&[structure("A", vec![]), structure("A", vec![])]).unwrap_err();
    assert_eq!(same, LayoutError::Twice { name: "A".into() });
    let names = types_of(&[structure(
        "A",
        vec![optional(1, "a", list(list(list(Of::Bool)))), optional(2, "aList", list(list(Of::Bool)))],
    )])
    .unwrap();
    let names: Vec<&str> = names.types.types.iter().map(|of| &*of.name).collect();
    assert_eq!(names, ["A", "A.aList", "A.aListList", "A.aListList2"]);
}
