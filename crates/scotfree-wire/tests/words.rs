//! What a header's words say where a packet has no key and completes nothing, and how a layout reads in C.

use scotfree_core::{DeviceId, Epoch, KeyHash, SeqNum, SessionId};
use scotfree_wire::c_header::{enum_text, struct_text, upper};
use scotfree_wire::layout::{Field, Layout};
use scotfree_wire::{ExtensionSet, Flags, Header, Kind};

#[test]
fn a_word_says_what_its_kind_says_there_and_nothing_else_of_the_header_changes() {
    type Write = fn(&mut Header);
    type Read = fn(&Header) -> u64;
    let cases: [(Kind, Write, Read, u64, u64); 5] = [
        (Kind::SessionOpen, |to| to.set_offered(ExtensionSet(5)), |of| of.offered().0, 5, 0),
        (Kind::Read, |to| to.set_skip_first(SeqNum(7)), |of| of.skip_first().0, 7, 0),
        (Kind::Drain, |to| to.set_run_last(SeqNum(8)), |of| of.run_last().0, 0, 8),
        (Kind::Drain, |to| to.set_run_last_write(SeqNum(9)), |of| of.run_last_write().0, 9, 0),
        (
            Kind::SessionClose,
            |to| to.set_confirming_device(DeviceId(6)),
            |of| of.confirming_device().0.into(),
            6,
            0,
        ),
    ];
    for (kind, write, read, key_hash, completed) in cases {
        let empty = Header::new(kind, SessionId(3), Epoch(2));
        let mut header = empty;
        write(&mut header);
        assert_eq!(read(&header), key_hash + completed, "{kind:?}");
        assert_eq!(header, Header { key_hash: KeyHash(key_hash), completed: SeqNum(completed), ..empty });
    }
}

#[test]
fn a_run_and_its_last_write_are_said_together() {
    let mut header = Header::new(Kind::Drain, SessionId(3), Epoch(2));
    header.set_run_last(SeqNum(20));
    header.set_run_last_write(SeqNum(18));
    assert_eq!((header.run_last(), header.run_last_write()), (SeqNum(20), SeqNum(18)));
}

#[test]
fn of_sets_each_has_only_what_all_of_it_is_in() {
    let two = Flags::EARLY.with(Flags::AGAIN);
    assert!(two.has(Flags::EARLY) && two.has(two) && two.has(Flags::NONE));
    assert!(!two.has(Flags::SKIP) && !two.has(two.with(Flags::SKIP)) && !Flags::EARLY.has(two));
    assert_eq!(two.with(Flags::EARLY), two);
    let two = ExtensionSet::KEYS.with(ExtensionSet::OBJECT);
    assert!(two.has(ExtensionSet::KEYS) && two.has(two) && two.has(ExtensionSet::NONE));
    assert!(!two.has(ExtensionSet::IDENTITY) && !two.has(ExtensionSet::ALL) && !ExtensionSet::KEYS.has(two));
    assert_eq!(two.with(ExtensionSet::KEYS), two);
}

const FIELDS: [Field; 4] = [
    Field { name: "kind", offset: 0, bytes: 1, about: "what it is" },
    Field { name: "zero", offset: 1, bytes: 1, about: "reserved" },
    Field { name: "count", offset: 2, bytes: 2, about: "how many" },
    Field { name: "nonce", offset: 4, bytes: 16, about: "used once" },
];

#[test]
fn a_layout_is_a_struct_in_c_whose_places_and_sizes_c_asserts() {
    let layout = Layout { name: "trial", about: "a trial", bytes: 20, fields: &FIELDS };
    let mut expected = "/* A trial. */\nstruct scot_trial {\n".to_owned();
    expected += "\t__u8 kind;                   /* what it is */\n";
    expected += "\t__u8 zero[1];                /* reserved */\n";
    expected += "\t__le16 count;                /* how many */\n";
    expected += "\t__u8 nonce[16];              /* used once */\n};\n\n";
    let asserts = |(name, offset, bytes)| {
        format!(
            "_Static_assert(__builtin_offsetof(struct scot_trial, {name}) == {offset}, \"trial.{name}\");\n\
             _Static_assert(sizeof(((struct scot_trial *)0)->{name}) == {bytes}, \"trial.{name}\");\n"
        )
    };
    expected += &[("kind", 0, 1), ("zero", 1, 1), ("count", 2, 2), ("nonce", 4, 16)].map(asserts).concat();
    expected += "_Static_assert(sizeof(struct scot_trial) == 20, \"scot_trial\");\n\n";
    assert_eq!(struct_text(&layout), expected);
}

#[test]
fn constants_of_c_bear_the_prefix_and_large_letters() {
    let codes = [("open".to_owned(), 1), ("late_one".to_owned(), 7)];
    assert_eq!(
        enum_text("state", codes),
        "enum scot_state {\n\tSCOT_STATE_OPEN = 1,\n\tSCOT_STATE_LATE_ONE = 7,\n};\n"
    );
    assert_eq!(upper("key_epoch1"), "KEY_EPOCH1");
}
