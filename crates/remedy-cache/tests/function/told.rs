//! What programs tell that answer in the function's place.

use crate::bench::{answered, key_hash, value, Bench, Outcome, FOR_EVER, LEASE};
use remedy_cache::{ReadCache, Told};
use scotfree_core::{BootEpoch, DeviceId, KeyHash, OrderNumber, SeqNum, ServerIndex, SessionId};
use scotfree_device::Place;
use scotfree_session::by_hand::NOW;
use scotfree_wire::{Flags, Kind, Stamp, StampKind};

/// How a GET of `k` in database 0 is told from all other reads.
const KEY: &[u8] = b"\0\0\0k";

fn told(kind: Kind, (session, seq): (u64, u64), stamp: StampKind, number: u64) -> Told<'static> {
    let stamp = Stamp {
        kind: stamp,
        device: DeviceId(9),
        boot_epoch: BootEpoch(1),
        number: OrderNumber(number),
        previous_write: SeqNum(0),
    };
    Told {
        server: ServerIndex(0),
        session: SessionId(session),
        seq: SeqNum(seq),
        kind,
        flags: Flags::NONE,
        completed: SeqNum(seq - 1),
        place: Place::Next,
        stamp,
        passed_at: NOW,
        key_hash: key_hash("k"),
        reads: 0,
        read: (kind == Kind::Read).then_some(KEY),
        is_unkept: false,
    }
}

fn tell(bench: &mut Bench, told: &Told<'_>) {
    let (base, cache) = bench.device.with_base::<ReadCache>().expect("it is in the list");
    cache.on_told(base, told);
}

fn lasting(bench: &mut Bench) -> Option<Vec<u8>> {
    let now = bench.now;
    let (base, cache) = bench.device.with_base::<ReadCache>().expect("it is in the list");
    cache.lasting(now, base, ServerIndex(0), key_hash("k"), KEY).map(<[u8]>::to_vec)
}

/// A read that was told of, and its reply.
fn fill(bench: &mut Bench, of: (u64, u64), flags: Flags, text: &str) {
    let number = 0;
    tell(bench, &Told { flags, ..told(Kind::Read, of, StampKind::Barrier, number) });
    bench.reply(of, &value(text), FOR_EVER);
}

#[test]
fn a_read_that_is_told_of_fills_and_what_is_known_may_be_shown() {
    let mut bench = Bench::eager();
    assert_eq!(lasting(&mut bench), None);
    fill(&mut bench, (1, 1), Flags::NONE, "v");
    assert_eq!(lasting(&mut bench).as_deref(), Some(&b"\x01\x20$1\r\nv\r\n"[..]));
    assert_eq!(bench.get((2, 1), "k"), answered("v"));
    bench.now = NOW.plus(LEASE);
    assert_eq!(lasting(&mut bench), None, "the device may not speak for the server");
}

#[test]
fn a_read_whose_reply_nobody_keeps_is_counted_and_nothing_else() {
    let mut bench = Bench::eager();
    let misses = |bench: &mut Bench| {
        let (_, cache) = bench.device.with_base::<ReadCache>().expect("it is in the list");
        cache.counters().misses.iter().sum::<u64>()
    };
    let before = misses(&mut bench);
    let unkept = Told { read: None, is_unkept: true, ..told(Kind::Read, (1, 1), StampKind::Barrier, 0) };
    tell(&mut bench, &unkept);
    bench.reply((1, 1), &value("v"), FOR_EVER);
    assert_eq!(lasting(&mut bench), None);
    assert_eq!(misses(&mut bench) - before, 1);
    fill(&mut bench, (1, 2), Flags::NONE, "v");
    assert!(lasting(&mut bench).is_some(), "nothing else has changed");
}

#[test]
fn a_read_that_was_sent_again_or_is_relaxed_fills_nothing() {
    for flags in [Flags::AGAIN, Flags::RELAXED] {
        let mut bench = Bench::eager();
        fill(&mut bench, (1, 1), flags, "v");
        assert_eq!(lasting(&mut bench), None);
    }
}

#[test]
fn a_write_that_is_told_of_makes_stale_what_it_touches_and_becomes_no_pending_value() {
    for key in [key_hash("k"), KeyHash(0)] {
        let mut bench = Bench::eager();
        fill(&mut bench, (1, 1), Flags::NONE, "old");
        tell(&mut bench, &Told { key_hash: key, ..told(Kind::Update, (2, 1), StampKind::Order, 1) });
        assert_eq!(lasting(&mut bench), None);
        assert_eq!(bench.get((1, 2), "k"), Outcome::PassedOn);
    }
}

#[test]
fn a_write_without_a_number_is_under_way_until_it_is_stable() {
    let mut bench = Bench::eager();
    fill(&mut bench, (1, 1), Flags::NONE, "old");
    tell(&mut bench, &told(Kind::Bypass, (2, 1), StampKind::Barrier, 0));
    fill(&mut bench, (1, 2), Flags::NONE, "old");
    assert_eq!(lasting(&mut bench), None, "that read may have been executed before the write");
    bench.stable(2, 1);
    fill(&mut bench, (1, 3), Flags::NONE, "new");
    assert!(lasting(&mut bench).is_some());
}

#[test]
fn a_write_that_is_stable_before_it_is_told_of_was_one_all_the_same() {
    let mut bench = Bench::eager();
    fill(&mut bench, (1, 1), Flags::NONE, "old");
    tell(&mut bench, &told(Kind::Read, (1, 2), StampKind::Barrier, 0));
    bench.stable(2, 1);
    tell(&mut bench, &told(Kind::Bypass, (2, 1), StampKind::Barrier, 0));
    assert_eq!(lasting(&mut bench), None, "what was there before is not shown");
    bench.reply((1, 2), &value("old"), FOR_EVER);
    assert_eq!(lasting(&mut bench), None, "nor what was read before");
    fill(&mut bench, (1, 3), Flags::NONE, "new");
    assert!(lasting(&mut bench).is_some());
}
