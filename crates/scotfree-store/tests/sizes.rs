//! Keys and values of every length that could matter: at the edges of classes, of short heads, of segments.

mod common;

use common::{run, stored, with, Answer};
use scotfree_store::{Condition, Op, Outcome, Replies, Verb, KEY_BYTES_MAX, SEGMENT_BYTES, VALUE_BYTES_MAX};

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + seed) as u8).collect()
}

/// Lengths around the edges of slots, whatever the words of a head take.
fn lengths() -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..300).collect();
    let mut at = 300;
    while at < SEGMENT_BYTES * 5 / 2 {
        lengths.extend(at..at + 3);
        at += 1 + at / 11;
    }
    for edge in [65_536, 8 << 10, SEGMENT_BYTES / 8, SEGMENT_BYTES / 2, SEGMENT_BYTES, 2 * SEGMENT_BYTES] {
        lengths.extend(edge - 40..edge + 3);
    }
    lengths
}

#[test]
#[cfg_attr(miri, ignore)]
fn values_of_all_lengths_are_read_back() {
    for has_versions in [false, true] {
        let mut shard = with(|options| {
            options.memory_max = 1 << 30;
            options.has_versions = has_versions;
        });
        for (number, length) in lengths().into_iter().enumerate() {
            let value = bytes(length, number);
            let key = if number % 3 == 0 { bytes(1 + number % 300, 1) } else { b"k".to_vec() };
            // From one length to the next in place or elsewhere, beside others of the same class.
            for (key, value) in [(&key, &value), (&b"beside".to_vec(), &bytes(length, 3))] {
                assert_eq!(run(&mut shard, 0, &Op::set(key, value)).outcome, Outcome::Done, "{length}");
                assert_eq!(run(&mut shard, 0, &Op::get(key)).value.as_ref(), Some(value), "{length}");
            }
            assert_eq!(run(&mut shard, 0, &Op::get(&key)).value, Some(value), "{length}");
        }
        for (key, _) in stored(&shard, 0) {
            assert_eq!(run(&mut shard, 0, &Op::delete(&key)).outcome, Outcome::Done);
        }
        assert_eq!((shard.len(), shard.stats().slot_bytes), (0, 0));
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn keys_of_all_lengths_are_told_apart() {
    let mut shard = with(|options| options.memory_max = 1 << 30);
    let lengths: Vec<usize> = (0..600).chain([4095, 4096, 65_534, 65_535, 65_536]).collect();
    for length in &lengths {
        assert_eq!(
            run(&mut shard, 0, &Op::set(&bytes(*length, 0), &bytes(*length, 9))).outcome,
            Outcome::Done
        );
    }
    for length in &lengths {
        assert_eq!(run(&mut shard, 0, &Op::get(&bytes(*length, 0))).value, Some(bytes(*length, 9)));
        if *length > 0 {
            let mut other = bytes(*length, 0);
            other[length / 2] ^= 1;
            assert_eq!(run(&mut shard, 0, &Op::get(&other)).outcome, Outcome::Absent);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn what_is_too_long_is_refused_and_changes_nothing() {
    let mut shard = with(|options| options.memory_max = 1 << 30);
    let refused = Answer { outcome: Outcome::TooLong, value: None, number: 0 };
    assert_eq!(run(&mut shard, 0, &Op::set(&bytes(KEY_BYTES_MAX + 1, 0), b"v")), refused);
    run(&mut shard, 0, &Op::set(b"k", b"v"));
    assert_eq!(run(&mut shard, 0, &Op::new(b"k", Verb::SetRange(VALUE_BYTES_MAX, b"x"))), refused);
    assert_eq!(run(&mut shard, 0, &Op::new(b"k", Verb::SetRange(usize::MAX, b"x"))), refused);
    let name = bytes(65_536, 0);
    assert_eq!(run(&mut shard, 0, &Op::new(b"h", Verb::HashSet(&[(&name, b"v")]))), refused);
    assert_eq!(run(&mut shard, 0, &Op::get(b"k")).value, Some(b"v".to_vec()));
    assert_eq!(shard.len(), 1);
}

#[test]
#[cfg_attr(miri, ignore)]
fn the_largest_value_is_taken_and_read_back() {
    let mut shard = with(|options| options.memory_max = 600 << 20);
    let value = vec![3; VALUE_BYTES_MAX];
    let mut out = Replies::new();
    shard.run(0, &Op::set(b"k", &value), &mut out);
    shard.run(0, &Op::get(b"k"), &mut out);
    assert!(out.get(0).outcome == Outcome::Done && out.value(1) == Some(&value[..]));
    assert_eq!(
        run(&mut shard, 0, &Op::new(b"k", Verb::Append(b"x", Condition::Always))).outcome,
        Outcome::TooLong
    );
    assert_eq!(run(&mut shard, 0, &Op::set(b"other", &value)).outcome, Outcome::Full);
    assert_eq!(run(&mut shard, 0, &Op::delete(b"k")).outcome, Outcome::Done);
    assert_eq!(run(&mut shard, 0, &Op::set(b"other", &value)).outcome, Outcome::Done);
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_value_grows_by_appending_through_all_sizes() {
    let mut shard = with(|options| options.memory_max = 256 << 20);
    let mut expected = Vec::new();
    let mut length = 1;
    while expected.len() < 4 * SEGMENT_BYTES {
        let more = bytes(length, expected.len());
        expected.extend_from_slice(&more);
        let answer = run(&mut shard, 0, &Op::new(b"k", Verb::Append(&more, Condition::Always)));
        assert_eq!((answer.outcome, answer.number), (Outcome::Done, expected.len() as i64));
        length += 1 + length / 30;
    }
    assert_eq!(run(&mut shard, 0, &Op::get(b"k")).value, Some(expected));
}
