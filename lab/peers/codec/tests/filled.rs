//! Messages that are filled by their setters, beside prost's.

use codec_peers::*;
use prost::Message as _;
use scotfree_transform::{Limits, Message};

macro_rules! filled {
    ($name:ident, $fill:ident, $copy:ident, $ours:ident, $theirs:ident) => {
        for (seed, absent) in (0..300).flat_map(|seed| [0, 10, 60, 95].map(|absent| (seed, absent))) {
            let theirs = $fill(&mut Drawn::new(seed, absent));
            let mut own = Message::<messages::classes::$name>::new();
            $copy(&theirs, &mut own.edit());
            let mut bytes = Vec::new();
            own.encode(&mut bytes);
            assert_eq!(bytes, theirs.encode_to_vec());
            let again = Message::<messages::classes::$name>::decode(&bytes, &Limits::default()).unwrap();
            // It may go elsewhere.
            let sum = std::thread::spawn(move || $ours(again.get())).join().unwrap();
            assert_eq!(sum, $theirs(&theirs));
        }
    };
}

#[test]
fn what_is_filled_is_written_as_prost_writes_it() {
    filled!(Flat, fill_flat, copy_flat, ours_flat, theirs_flat);
    filled!(Mixed, fill_mixed, copy_mixed, ours_mixed, theirs_mixed);
    filled!(Nested, fill_nested, copy_nested, ours_nested, theirs_nested);
}

use every::every::three::All;

#[test]
fn of_a_oneof_the_last_that_was_set_is_there() {
    let mut message = Message::<All>::new();
    let mut all = message.edit();
    all.set_number(7);
    assert_eq!(all.reader().number(), Some(7));
    all.set_word("word").unwrap();
    assert_eq!((all.reader().number(), all.reader().word()), (None, Some("word")));
    all.nested_mut().unwrap().set_a(1);
    all.nested_mut().unwrap().set_b("b").unwrap();
    assert_eq!(all.reader().word(), None);
    assert_eq!(all.reader().nested().map(|inner| (inner.a(), inner.b())), Some((1, "b")));
    // What is not there is not cleared.
    all.clear_number();
    assert!(all.reader().nested().is_some());
    all.clear_nested();
    assert!(all.reader().nested().is_none());
    all.set_flag(false);
    assert_eq!(all.reader().flag(), Some(false), "one that was set is there, whatever it is");
}

#[test]
fn zero_is_written_only_where_somebody_may_ask_whether_it_was_set() {
    let mut message = Message::<All>::new();
    let mut all = message.edit();
    all.set_i32(0);
    all.set_text("").unwrap();
    all.set_maybe(0);
    all.add_numbers(0).unwrap();
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(bytes, b"\x90\x01\x00\xa2\x01\x01\x00");
    let again = Message::<All>::decode(&bytes, &Limits::default()).unwrap();
    assert_eq!(
        (again.get().maybe(), again.get().maybe_text(), again.get().numbers().len()),
        (Some(0), None, 1)
    );
}

#[test]
fn what_was_decoded_may_be_changed() {
    let mut message =
        Message::<All>::decode(b"\x72\x02ab\xa2\x01\x02\x01\x02\x82\xf1\x04\x01x", &Limits::default())
            .unwrap();
    let mut all = message.edit();
    all.add_numbers(-3).unwrap();
    all.set_text("other").unwrap();
    all.add_texts("one").unwrap();
    let all = message.get();
    assert_eq!((all.text(), all.numbers().collect::<Vec<_>>()), ("other", vec![1, 2, -3]));
    assert_eq!(all.texts().collect::<Vec<_>>(), ["one"]);
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert!(bytes.ends_with(b"\x82\xf1\x04\x01x"), "what is not known stays");
}
