//! Thrift's two formats, beside the protocols of Apache's crate, which are driven by hand.

mod apache;
mod walk;

use apache::{apache_reads, apache_writes, knows_not, Tree, BOTH};
use codec_peers::Drawn;
use scotfree_transform::thrift::{
    table, types_of, Envelope, FieldDescription, Loaded, MessageKind, Of, Protocol, StructDescription,
};
use scotfree_transform::{Arena, DecodeError, Limits, Message, Need};
use thrift::protocol::{
    TBinaryOutputProtocol, TCompactOutputProtocol, TMessageIdentifier, TMessageType, TOutputProtocol, TType,
};
use walk::walk;

/// A random schema: the first struct, some others, a union.
fn schema(r: &mut Drawn) -> Vec<StructDescription> {
    let count = 2 + r.below(4);
    (0..count)
        .map(|at| {
            let mut id = r.below(3) as i16 - 1;
            let fields = (0..1 + r.below(if at == 0 { 80 } else { 12 })).map(|number| {
                id += 1 + if r.below(6) == 0 { r.below(400) as i16 } else { 0 };
                FieldDescription {
                    id,
                    name: format!("f{number}"),
                    need: Need::Optional,
                    has_default: false,
                    of: of(r, count, 0),
                }
            });
            let fields = fields.collect();
            StructDescription { name: format!("demo.S{at}"), fields, is_union: at > 0 && r.below(4) == 0 }
        })
        .collect()
}

fn of(r: &mut Drawn, structs: u64, depth: u64) -> Of {
    let inner = |r: &mut Drawn| Box::new(of(r, structs, depth + 1));
    match r.below(if depth > 2 { 10 } else { 14 }) {
        0 => Of::Bool,
        1 => Of::I8,
        2 => Of::I16,
        3 => Of::I32,
        4 => Of::I64,
        5 => Of::Double,
        6 => Of::String,
        7 => Of::Binary,
        8 => Of::Enum,
        9 | 10 => Of::Struct(format!("demo.S{}", r.below(structs))),
        11 => Of::List(inner(r)),
        12 => Of::Set(inner(r)),
        _ => Of::Map(inner(r), inner(r)),
    }
}

fn wire(of: &Of) -> TType {
    match of {
        Of::Bool => TType::Bool,
        Of::I8 => TType::I08,
        Of::I16 => TType::I16,
        Of::I32 | Of::Enum => TType::I32,
        Of::I64 => TType::I64,
        Of::Double => TType::Double,
        Of::String | Of::Binary => TType::String,
        Of::Struct(_) => TType::Struct,
        Of::List(_) => TType::List,
        Of::Set(_) => TType::Set,
        Of::Map(..) => TType::Map,
        Of::Uuid => panic!("Apache's crate has none in this version"),
    }
}

/// A random struct: each field there or not, deeper ones more seldom. Ids ascend, those below zero last.
fn draw(structs: &[StructDescription], index: usize, r: &mut Drawn, depth: u64) -> Tree {
    let of = &structs[index];
    let mut fields = Vec::new();
    let only = of.is_union.then(|| r.below(of.fields.len() as u64) as usize);
    for (at, field) in of.fields.iter().enumerate() {
        let is_there = only.map_or(r.below(2 + depth * 3) < 1, |only| only == at && depth < 6);
        if is_there {
            fields.push((field.id, value(structs, &field.of, r, depth + 1)));
        }
    }
    fields.sort_by_key(|(id, _)| *id as u16);
    Tree::Struct(fields)
}

fn value(structs: &[StructDescription], of: &Of, r: &mut Drawn, depth: u64) -> Tree {
    let number = if r.below(4) == 0 { !r.number() } else { r.number() };
    let count = match r.below(40) {
        0 => 14 + r.below(4),
        _ => r.below(if depth > 3 { 2 } else { 4 }),
    };
    match of {
        Of::Bool => Tree::Bool(number % 2 == 0),
        Of::I8 => Tree::I8(number as i8),
        Of::I16 => Tree::I16(number as i16),
        Of::I32 | Of::Enum => Tree::I32(number as i32),
        Of::I64 => Tree::I64((number << r.below(30)) as i64),
        Of::Double => Tree::Double((number as f64).to_bits()),
        Of::String => Tree::Bytes(if r.below(5) == 0 {
            "äöü €".repeat(9).into_bytes()
        } else {
            r.text().into_bytes()
        }),
        Of::Binary => Tree::Bytes(vec![number as u8; r.below(300) as usize]),
        Of::Struct(name) => {
            let index = structs.iter().position(|of| of.name == *name).unwrap();
            draw(structs, index, r, depth)
        }
        Of::List(of) => Tree::List(wire(of), (0..count).map(|_| value(structs, of, r, depth + 1)).collect()),
        Of::Set(of) => Tree::Set(wire(of), (0..count).map(|_| value(structs, of, r, depth + 1)).collect()),
        Of::Map(key, of) => {
            let entry = |_| (value(structs, key, r, depth + 1), value(structs, of, r, depth + 1));
            Tree::Map(wire(key), wire(of), (0..count).map(entry).collect())
        }
        Of::Uuid => panic!("Apache's crate has none in this version"),
    }
}

/// Decodes and encodes again: what it is, and its bytes.
fn ours(loaded: &Loaded, from: Protocol, to: Protocol, bytes: &[u8]) -> Result<(Tree, Vec<u8>), DecodeError> {
    let (mut arena, mut out) = (Arena::new(), Vec::new());
    let view = table::decode(from, &loaded.types, 0, bytes, &mut arena, &Limits::default())?;
    table::encode(to, view, &mut out);
    Ok((walk(view), out))
}

#[test]
fn random_structs_of_random_schemata_are_as_apache_has_them() {
    for seed in 0..300 {
        let mut r = Drawn::new(seed, 0);
        let structs = schema(&mut r);
        let loaded = types_of(&structs).unwrap();
        let tree = draw(&structs, 0, &mut r, 0);
        for (protocol, other) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0])] {
            let bytes = apache_writes(protocol, &tree);
            let (read, again) = ours(&loaded, protocol, protocol, &bytes).unwrap();
            assert_eq!(read, tree.clone().untyped(), "of {bytes:?}");
            let (theirs, length) = apache_reads(protocol, &again).unwrap().unwrap();
            assert_eq!((theirs.untyped(), length), (tree.clone().untyped(), again.len()));
            // It writes a step of 15 from one id to the next as a whole id.
            assert!(
                again == bytes || protocol == Protocol::Compact && again.len() < bytes.len(),
                "{again:?}"
            );
            let (_, crossed) = ours(&loaded, protocol, other, &bytes).unwrap();
            assert_eq!(crossed, ours(&loaded, other, other, &apache_writes(other, &tree)).unwrap().1);
        }
    }
}

#[test]
fn what_the_schema_does_not_know_is_there_for_apache() {
    for seed in 0..300 {
        let mut r = Drawn::new(seed, 0);
        let structs = schema(&mut r);
        // Half of its fields, as an older file has them.
        let mut older = structs.clone();
        older[0].fields.retain(|_| r.below(2) == 0);
        let (loaded, tree) = (types_of(&older).unwrap(), draw(&structs, 0, &mut r, 0));
        for protocol in BOTH {
            let (_, again) = ours(&loaded, protocol, protocol, &apache_writes(protocol, &tree)).unwrap();
            let (theirs, length) = apache_reads(protocol, &again).unwrap().unwrap();
            assert_eq!((theirs.untyped(), length), (tree.clone().untyped(), again.len()));
        }
    }
}

#[test]
fn prefixes_and_damaged_structs_are_taken_where_apache_takes_them() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..150 {
        let mut r = Drawn::new(seed, 0);
        let structs = schema(&mut r);
        let loaded = types_of(&structs).unwrap();
        let tree = draw(&structs, 0, &mut r, 1);
        for protocol in BOTH {
            let bytes = apache_writes(protocol, &tree);
            for end in 0..bytes.len().min(400) {
                assert!(ours(&loaded, protocol, protocol, &bytes[..end]).is_err());
            }
            for _ in 0..60 {
                let mut changed = bytes.clone();
                let at = r.below(bytes.len() as u64) as usize;
                changed[at] = r.below(256) as u8;
                let ours = ours(&loaded, protocol, protocol, &changed);
                taken += u64::from(ours.is_ok());
                refused += u64::from(ours.is_err());
                compare(protocol, &changed, ours);
            }
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}

/// What both make of damaged bytes.
fn compare(protocol: Protocol, bytes: &[u8], ours: Result<(Tree, Vec<u8>), DecodeError>) {
    // It makes room for what a length says before it looks what is left: for gigabytes.
    if has_long_length(&ours) {
        return;
    }
    match (apache_reads(protocol, bytes), ours) {
        (Some(Ok((_, length))), Ok(_)) => assert_eq!(length, bytes.len(), "{bytes:?}"),
        (None | Some(Err(_)), Err(_)) => {}
        // It does not look what a string is, nor that nothing follows, and takes what is too long for its kind.
        (
            Some(Ok(_)),
            Err(
                DecodeError::NotUtf8 { .. }
                | DecodeError::Trailing { .. }
                | DecodeError::Overlong { .. }
                | DecodeError::WrongType { .. }
                | DecodeError::NotABool { .. }
                | DecodeError::NotAField { .. },
            ),
        ) => {}
        // What is kept unknown it need not know either.
        (None | Some(Err(_)), Ok((_, again))) => {
            let theirs = apache_reads(protocol, &again);
            assert!(
                matches!(&theirs, Some(Ok(_))) || matches!(&theirs, Some(Err(error)) if knows_not(error)),
                "{theirs:?} of {bytes:?} and {again:?}"
            );
        }
        (Some(Ok(theirs)), Err(error)) => panic!("{error} of {bytes:?}, of which Apache makes {theirs:?}"),
    }
}

fn has_long_length(ours: &Result<(Tree, Vec<u8>), DecodeError>) -> bool {
    matches!(ours, Err(DecodeError::Length { .. } | DecodeError::Cut { .. }))
}

#[test]
fn envelopes_are_as_apache_has_them() {
    let kinds = [
        (MessageKind::Call, TMessageType::Call),
        (MessageKind::Reply, TMessageType::Reply),
        (MessageKind::Exception, TMessageType::Exception),
        (MessageKind::Oneway, TMessageType::OneWay),
    ];
    for ((kind, theirs), seq_num) in
        kinds.into_iter().flat_map(|kind| [0, 1, 300, i32::MAX, -1].map(|seq| (kind, seq)))
    {
        let identifier = TMessageIdentifier::new("Store:get", theirs, seq_num);
        let envelope = Envelope { name: "Store:get", kind, seq_num };
        let (mut strict, mut old, mut compact) = (Vec::new(), Vec::new(), Vec::new());
        TBinaryOutputProtocol::new(&mut strict, true).write_message_begin(&identifier).unwrap();
        TBinaryOutputProtocol::new(&mut old, false).write_message_begin(&identifier).unwrap();
        TCompactOutputProtocol::new(&mut compact).write_message_begin(&identifier).unwrap();
        let mut own = [Vec::new(), Vec::new(), Vec::new()];
        envelope.write(Protocol::Binary, &mut own[0]);
        envelope.write_unversioned(&mut own[1]);
        envelope.write(Protocol::Compact, &mut own[2]);
        assert_eq!(own, [strict.clone(), old.clone(), compact.clone()]);
        for (protocol, bytes) in [(BOTH[0], strict), (BOTH[0], old), (BOTH[1], compact)] {
            assert_eq!(Envelope::read(protocol, &bytes), Ok((envelope, bytes.len())));
        }
    }
}

use codec_peers::thrift_messages::every::shared;
use codec_peers::thrift_messages::every::thrift::{store, All, Usual};

#[test]
fn generated_structs_are_filled_and_read_by_both() {
    let mut message = Message::<All>::new();
    let mut all = message.edit();
    all.set_truth(false);
    all.set_small(-1);
    all.set_short(-300);
    all.set_text("text").unwrap();
    all.set_id(&[7; 16]).unwrap();
    all.choice_mut().unwrap().set_number(5);
    all.choice_mut().unwrap().many_mut().unwrap().add_values("one").unwrap();
    all.set_color(shared::Color::Blue as i32);
    all.add_truths(true).unwrap();
    all.add_smalls(-2).unwrap();
    all.add_grid().unwrap().add_values(9).unwrap();
    all.add_grid().unwrap();
    let mut groups = all.add_groups().unwrap();
    groups.set_key("key").unwrap();
    groups.value_mut().unwrap().add_values().unwrap().set_long(-5);
    all.add_type().unwrap().add_values().unwrap();
    all.add_reals(1.5).unwrap();
    all.add_keyed().unwrap();
    let mut written = Vec::new();
    for protocol in BOTH {
        let mut bytes = Vec::new();
        message.encode_thrift(protocol, &mut bytes);
        let again = Message::<All>::decode_thrift(protocol, &bytes, &Limits::default()).unwrap();
        let again = std::thread::spawn(move || again).join().unwrap();
        let all = again.get();
        assert_eq!((all.truth(), all.small(), all.short()), (Some(false), Some(-1), Some(-300)));
        assert_eq!((all.number(), all.text(), all.raw()), (None, Some("text"), None));
        assert_eq!(all.id(), Some(&[7; 16][..]));
        let choice = all.choice().unwrap();
        assert_eq!(choice.number(), None);
        assert_eq!(choice.many().unwrap().values().collect::<Vec<_>>(), ["one"]);
        assert_eq!(all.color().map(shared::Color::try_from), Some(Ok(shared::Color::Blue)));
        assert_eq!(all.smalls().collect::<Vec<_>>(), [-2]);
        let grid: Vec<Vec<i32>> = all.grid().map(|row| row.values().collect()).collect();
        assert_eq!(grid, [vec![9], vec![]]);
        let group = all.groups().next().unwrap();
        let long = group.value().unwrap().values().next().unwrap().long();
        assert_eq!((group.key(), long), ("key", Some(-5)));
        assert_eq!(all.r#type().next().unwrap().values().map(|entry| entry.value()).collect::<Vec<_>>(), [0]);
        assert_eq!((all.reals().next(), all.keyed().len()), (Some(1.5), 1));
        let mut twice = Vec::new();
        again.encode_thrift(protocol, &mut twice);
        assert_eq!(twice, bytes);
        written.push(bytes);
    }
    // Apache's crate knows no uuids.
    let mut plain = Message::<All>::decode_thrift(BOTH[1], &written[1], &Limits::default()).unwrap();
    plain.edit().clear_id();
    for protocol in BOTH {
        let mut bytes = Vec::new();
        plain.encode_thrift(protocol, &mut bytes);
        let (theirs, length) = apache_reads(protocol, &bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        let Tree::Struct(fields) = theirs else { panic!("it is a struct") };
        let ids: Vec<i16> = fields.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [1, 2, 3, 7, 10, 11, 12, 13, 14, 15, 16, 300, -4]);
    }
}

#[test]
fn what_is_usual_is_written_and_what_has_a_default_is_not() {
    let mut message = Message::<Usual>::new();
    message.edit().set_must(0);
    let mut bytes = Vec::new();
    message.encode_thrift(Protocol::Binary, &mut bytes);
    let (theirs, _) = apache_reads(Protocol::Binary, &bytes).unwrap().unwrap();
    let empty = Tree::List(TType::I16, vec![]);
    let expected = vec![(1, Tree::I32(0)), (2, Tree::Bytes(vec![])), (3, empty), (-1, Tree::Bool(false))];
    assert_eq!(theirs, Tree::Struct(expected));
    let read = Message::<Usual>::decode_thrift(Protocol::Binary, &bytes, &Limits::default()).unwrap();
    let usual = read.get();
    assert_eq!((usual.must(), usual.text(), usual.preset(), usual.last()), (0, "", None, false));
    let missing = Message::<Usual>::decode_thrift(Protocol::Binary, b"\0", &Limits::default());
    assert!(matches!(missing, Err(DecodeError::Missing { number: 1 })));
}

#[test]
fn a_call_and_its_reply_are_structs_behind_envelopes() {
    let mut call = Message::<store::GetArgs>::new();
    call.edit().set_key("k").unwrap();
    let mut bytes = Vec::new();
    Envelope { name: "get", kind: MessageKind::Call, seq_num: 7 }.write(Protocol::Compact, &mut bytes);
    call.encode_thrift(Protocol::Compact, &mut bytes);
    assert_eq!(bytes, b"\x82\x21\x07\x03get\x18\x01k\x19\x06\x00");
    let (envelope, at) = Envelope::read(Protocol::Compact, &bytes).unwrap();
    assert_eq!((envelope.name, envelope.seq_num), ("get", 7));
    let got = Message::<store::GetArgs>::decode_thrift(Protocol::Compact, &bytes[at..], &Limits::default())
        .unwrap();
    assert_eq!((got.get().key(), got.get().times().len()), ("k", 0));
    let mut reply = Message::<store::GetResult>::new();
    reply.edit().refused_mut().unwrap().set_why("no").unwrap();
    let mut bytes = Vec::new();
    reply.encode_thrift(Protocol::Binary, &mut bytes);
    let got =
        Message::<store::GetResult>::decode_thrift(Protocol::Binary, &bytes, &Limits::default()).unwrap();
    assert!(got.get().success().is_none() && got.get().refused().unwrap().why() == "no");
    assert_eq!(Message::<store::ForgetArgs>::new().get().key(), "");
}
