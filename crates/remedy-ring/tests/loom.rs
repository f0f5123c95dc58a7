//! The orders in which two threads can see each other's words, all of them (`RUSTFLAGS="--cfg loom"`).
#![allow(clippy::unwrap_used)]
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use remedy_ring::{
    announce, announce_marked, AtomicU32, AtomicU64, Doorbell, Fault, Reader, Ready, Seen, Shape, Writer,
};
use std::panic::{catch_unwind, AssertUnwindSafe};

fn ring(shape: Shape) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..shape.words()).map(|_| AtomicU64::new(0)).collect())
}

/// One writes two messages of two entries into a ring of four, so that neither laps; the other sees each whole or not.
fn publish(planted: Option<Fault>) {
    let shape = Shape::new(2, 64).unwrap();
    let words = ring(shape);
    let others = Arc::clone(&words);
    let writing = thread::spawn(move || {
        let mut writer = Writer::new(shape);
        if let Some(fault) = planted {
            writer.plant(fault);
        }
        writer.write(&others, 1, &[1; 8]).unwrap();
        writer.write(&others, 2, &[2; 8]).unwrap();
    });
    let (mut reader, mut bytes) = (Reader::new(shape), Vec::new());
    let mut expected = 1;
    for _ in 0..3 {
        if let Some(message) = reader.read(&words, &mut bytes).unwrap() {
            assert_eq!((message.index, &bytes[..]), (u32::from(expected), &[expected; 8][..]));
            bytes.clear();
            expected += 1;
        }
    }
    writing.join().unwrap();
}

#[test]
fn what_is_sealed_is_there() {
    loom::model(|| publish(None));
    let sealed_first = catch_unwind(AssertUnwindSafe(|| loom::model(|| publish(Some(Fault::SealFirst)))));
    assert!(sealed_first.is_err());
}

/// One writes and looks whether the other sleeps; the other is about to sleep and looks.
fn sleep(is_marked: bool, looks_again: bool) {
    let halves = || Arc::new(vec![AtomicU32::new(0)]);
    let (word, pointers, marks) = (halves(), halves(), halves());
    let others = (Arc::clone(&word), Arc::clone(&pointers), Arc::clone(&marks));
    let writing = thread::spawn(move || {
        let (word, pointers, marks) = others;
        if is_marked {
            announce_marked(&pointers, &marks, 0, 1);
            return Doorbell::at(&word[0]).must_wake_behind_fence();
        }
        announce(&pointers, 0, 1);
        Doorbell::at(&word[0]).must_wake()
    });
    let (mut seen, mut ready) = (Seen::new(1), Ready::new(1));
    let has_seen = seen.look(&pointers, &mut ready) == 1;
    Doorbell::at(&word[0]).about_to_sleep();
    let sees = looks_again && seen.look(&pointers, &mut ready) == 1;
    let is_woken = writing.join().unwrap();
    assert!(has_seen || sees || is_woken, "it sleeps over what was written");
}

#[test]
fn nobody_sleeps_over_what_was_written() {
    for is_marked in [false, true] {
        loom::model(move || sleep(is_marked, true));
        let at_once = catch_unwind(AssertUnwindSafe(|| loom::model(move || sleep(is_marked, false))));
        assert!(at_once.is_err());
    }
}

/// One writes to two rings of a group; the other looks meanwhile and once more behind that.
fn find(planted: Option<Fault>) {
    let halves = |count: usize| Arc::new((0..count).map(|_| AtomicU32::new(0)).collect::<Vec<_>>());
    let (marks, pointers) = (halves(1), halves(2));
    let (others_marks, others_pointers) = (Arc::clone(&marks), Arc::clone(&pointers));
    let writing = thread::spawn(move || {
        for ring in 0..2 {
            announce_marked(&others_pointers, &others_marks, ring, 1);
        }
    });
    let (mut seen, mut ready) = (Seen::new(2), Ready::new(2));
    (0..2).for_each(|ring| ready.use_ring(ring, true));
    let mut found = seen.look_where_marked(&marks, &pointers, &mut ready, planted);
    writing.join().unwrap();
    found += seen.look_where_marked(&marks, &pointers, &mut ready, planted);
    assert_eq!(found, 2, "a ring is missed");
}

#[test]
fn what_was_marked_is_found() {
    loom::model(|| find(None));
    assert!(catch_unwind(AssertUnwindSafe(|| loom::model(|| find(Some(Fault::ClearLate))))).is_err());
}
