//! What a device was told, and what servers say to it: leases, polls and incarnations.

use super::bench::{lease, Bench, FIRST, SECOND};
use scotfree_core::{BootEpoch, DeviceId, Epoch, Machine, Nanos, SeqNum, SessionId};
use scotfree_device::DeviceCounters;
use scotfree_session::by_hand::{accept, address, client_address, cluster, header, nonce, order, NOW};
use scotfree_wire::{Direction, Header, Kind, ManifestRecord, Packet, Tail, MANIFEST_RECORD_BYTES};

#[test]
fn counts_of_two_are_added_each_to_its_own() {
    let counted = |first: u64| {
        let mut next = first..;
        let mut take = || next.next().expect("there are more");
        DeviceCounters {
            requests: take(),
            admitted: take(),
            unadmitted: take(),
            duplicate: take(),
            bad: take(),
            answered: take(),
            passed_over: take(),
            past_epoch: take(),
            refused: std::array::from_fn(|_| take()),
            sessions_refused: take(),
        }
    };
    let (mut expected, both) = (counted(0), counted(10).plus(&counted(20)));
    for (at, value) in expected.refused.iter_mut().enumerate() {
        *value = 2 * (8 + at as u64) + 30;
    }
    assert_eq!(both.refused, expected.refused);
    let counts = |of: &DeviceCounters| {
        [
            of.requests,
            of.admitted,
            of.unadmitted,
            of.duplicate,
            of.bad,
            of.answered,
            of.passed_over,
            of.past_epoch,
        ]
    };
    assert_eq!(counts(&both), [30, 32, 34, 36, 38, 40, 42, 44]);
    assert_eq!(both.sessions_refused, 2 * (8 + both.refused.len() as u64) + 30);
}

#[test]
fn functions_see_what_the_device_was_told() {
    let mut bench = Bench::new(|_| {});
    let base = bench.base();
    assert_eq!(
        (base.device(), base.boot_epoch(), base.boot_seen()),
        (DeviceId(7), BootEpoch(3), BootEpoch(3))
    );
    assert_eq!((base.server_count(), base.config().window_max), (2, 16));
    assert_eq!((base.server_address(FIRST), base.server_address(SECOND)), (address(2), address(3)));
    assert_eq!((base.server_epoch(FIRST), base.server_epoch(SECOND)), (Epoch(1), Epoch(4)));
    assert_eq!(base.stamp_key(), cluster().control(Direction::Stamp));
    assert_eq!(base.to_server_key(), cluster().control(Direction::DeviceToServer));
    assert!(base.is_head());
    assert!(!Bench::new(|config| config.head = false).base().is_head());
}

#[test]
fn a_lease_runs_from_its_question_to_its_end_for_its_device_and_incarnation() {
    let duration = Nanos(1000);
    let end = NOW.plus(duration);
    for (tail, until) in [
        (lease(7, 3, NOW, duration), end),
        (lease(7, 3, Nanos(NOW.0 - 400), duration), Nanos(end.0 - 400)),
        (lease(7, 3, Nanos(NOW.0 + 1), duration), Nanos(0)),
        (lease(8, 3, NOW, duration), Nanos(0)),
        (lease(7, 2, NOW, duration), Nanos(0)),
    ] {
        let mut bench = Bench::new(|_| {});
        bench.grant(tail);
        let base = bench.base();
        assert_eq!((base.lease_until(FIRST), base.is_accepted(FIRST)), (until, until.0 > 0), "{tail:?}");
        if until.0 > 0 {
            assert!(base.has_lease(FIRST, Nanos(until.0 - 1)) && !base.has_lease(FIRST, until));
        }
        assert!(!base.is_accepted(SECOND) && !base.has_lease(SECOND, NOW), "it is one server's word");
    }
    let mut bench = Bench::new(|_| {});
    bench.grant(lease(7, 3, NOW, Nanos(0)));
    assert!(!bench.base().is_accepted(FIRST), "an answer that refuses");
    bench.grant(lease(7, 3, NOW, duration));
    bench.grant(lease(7, 3, NOW, Nanos(1)));
    assert_eq!(bench.base().lease_until(FIRST), end, "no answer shortens what was granted");
    bench.grant(lease(7, 3, NOW, Nanos(0)));
    assert!(bench.base().is_accepted(FIRST), "nor takes an acceptance back");
}

#[test]
fn an_incarnation_that_the_server_outruns_begins_anew_for_every_server() {
    let mut bench = Bench::new(|_| {});
    bench.learn(NOW, 1);
    bench.grant(lease(7, 3, NOW, Nanos(1000)));
    bench.device.resume(SECOND, true, Nanos(2 * NOW.0));
    assert!(bench.base().has_lease(SECOND, NOW) && bench.base().is_accepted(SECOND));
    bench.wishes();
    bench.grant(lease(7, 5, NOW, Nanos(1000)));
    assert_eq!(bench.wishes().1, [(5, 0, 1)]);
    let base = bench.base();
    assert_eq!((base.boot_epoch(), base.boot_seen()), (BootEpoch(5), BootEpoch(5)));
    for server in [FIRST, SECOND] {
        assert!(!base.is_accepted(server) && !base.has_lease(server, NOW));
    }
    assert_eq!(bench.device.next_timer(), Some(Nanos(0)), "it asks at once");
}

#[test]
fn a_lease_is_asked_for_at_the_interval_and_soon_again_where_there_is_none() {
    let mut bench = Bench::new(|config| config.lease_interval = Nanos(1600));
    bench.grant(lease(7, 3, NOW, Nanos(1_000_000)));
    bench.device.on_timer(NOW, &mut bench.effects);
    let questions = bench.sent();
    assert_eq!(questions.len(), 2, "each server is asked");
    for (question, epoch) in questions.iter().zip([1, 4]) {
        let question = Packet::parse(question).expect("ours");
        assert!(question.verify(&cluster().control(Direction::DeviceToServer)).is_ok());
        assert_eq!((question.kind(), question.epoch()), (Kind::Lease, Epoch(epoch)));
        assert_eq!(*question.tail(), Tail::Lease(lease(7, 3, NOW, Nanos(0))));
    }
    let asked_of = |bench: &mut Bench, now: u64| {
        bench.device.on_timer(Nanos(NOW.0 + now), &mut bench.effects);
        let epoch = |bytes: &Vec<u8>| Packet::parse(bytes).expect("ours").epoch().0;
        bench.sent().iter().map(epoch).collect::<Vec<_>>()
    };
    assert_eq!(asked_of(&mut bench, 100), []);
    assert_eq!(asked_of(&mut bench, 101), [4], "the one that has granted none, after a sixteenth");
    assert_eq!(asked_of(&mut bench, 1599), [4]);
    assert_eq!(asked_of(&mut bench, 1600), [1]);
}

#[test]
fn a_poll_of_a_new_server_ends_what_its_predecessor_granted() {
    let mut bench = Bench::new(|_| {});
    bench.grant(lease(7, 3, NOW, Nanos(1000)));
    bench.wishes();
    bench.command(&header(Kind::RecoveryPoll, 0, 9), &Tail::Empty);
    assert_eq!(bench.wishes().1, [], "it is the same server");
    assert!(bench.base().has_lease(FIRST, NOW));
    let later = Header { epoch: Epoch(2), ..header(Kind::RecoveryPoll, 0, 9) };
    bench.command(&later, &Tail::Empty);
    assert_eq!(bench.wishes().1, [(3, 0, 2)]);
    assert_eq!((bench.base().server_epoch(FIRST), bench.base().heard_epoch(FIRST)), (Epoch(2), Epoch(2)));
    assert!(!bench.base().has_lease(FIRST, NOW));
    bench.command(&header(Kind::RecoveryPoll, 0, 9), &Tail::Empty);
    assert_eq!(
        (bench.sent(), bench.device.counters().past_epoch),
        (vec![], 1),
        "the predecessor commands nothing"
    );
    let word = Header { epoch: Epoch(6), ..header(Kind::Lease, 0, 0) };
    bench.command(&word, &Tail::Lease(lease(7, 3, NOW, Nanos(1))));
    assert_eq!((bench.base().server_epoch(FIRST), bench.base().heard_epoch(FIRST)), (Epoch(2), Epoch(6)));
}

#[test]
fn a_manifest_says_what_the_logs_hold_of_each_session_of_the_server() {
    let mut bench = Bench::new(|_| {});
    let region = bench.learn(NOW, 5).expect("there is room");
    bench.learn(NOW, 6);
    bench.receive(NOW, 3, client_address(), &accept(5, 16));
    for seq in [4, 2, 9] {
        assert_eq!(bench.base().hold(region, SeqNum(seq), order(3, seq, 0)), None);
    }
    bench.wishes();
    bench.command(&header(Kind::RecoveryPoll, 0, 9), &Tail::Empty);
    let manifest = bench.sent().pop().expect("an answer");
    let manifest = Packet::parse(&manifest).expect("ours");
    let (head, Tail::Manifest(tail)) = (manifest.header(), manifest.tail()) else { panic!("{manifest:?}") };
    assert_eq!((head.seq_num, head.fragment_index, head.fragment_count), (SeqNum(9), 0, 1));
    assert_eq!((tail.device, tail.boot_epoch, tail.session_count), (DeviceId(7), BootEpoch(3), 2));
    assert_eq!(manifest.payload().len(), 2 * MANIFEST_RECORD_BYTES);
    let mut expected = Vec::new();
    let none = ManifestRecord {
        session: SessionId(6),
        epoch: Epoch(1),
        window: 16,
        client_nonce: nonce(6),
        server_nonce: [9; 16],
        first: SeqNum(0),
        last: SeqNum(0),
        entry_count: 0,
    };
    let of_5 = (SessionId(5), nonce(5), SeqNum(2), SeqNum(9), 3);
    let (session, client_nonce, first, last, entry_count) = of_5;
    ManifestRecord { session, client_nonce, first, last, entry_count, ..none }.write(&mut expected);
    none.write(&mut expected);
    assert_eq!(manifest.payload(), expected);
}
