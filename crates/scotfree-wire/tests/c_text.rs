//! How a layout and the values of constants read in C.

use scotfree_wire::c_header::{enum_text, struct_text, upper};
use scotfree_wire::layout::{Field, Layout};

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
