//! The directory of sessions: how they are learnt, brought back and forgotten, and what their windows keep.

use super::bench::{name, Bench, FIRST, SECOND};
use scotfree_core::{BootEpoch, Epoch, Machine, Nanos, SeqNum, ServerIndex, SessionId};
use scotfree_device::{Base, Noted, Region, RestoreError, Restored, SessionName, ENDED_MAX};
use scotfree_session::by_hand::{
    accept, address, barrier, client_address, cluster, device_address, header, nonce, order, packet,
    session_keys, NOW,
};
use scotfree_wire::{AcceptTail, Direction, Family, Kind, Tail, WireError};

#[test]
fn ended_sessions_are_remembered_each_once_and_the_oldest_gives_way() {
    let mut bench = Bench::new(|_| {});
    let is_taught = |bench: &mut Bench, id| {
        let learnt = bench.learn(NOW, id).is_some();
        if learnt {
            bench.expire(id);
            let (flushes, _) = bench.wishes();
            bench.device.on_persisted(NOW, flushes[0], &mut bench.effects);
        }
        learnt
    };
    bench.expire(1);
    bench.expire(2);
    assert_eq!((is_taught(&mut bench, 1), is_taught(&mut bench, 2)), (false, false));
    for id in 3..=ENDED_MAX as u64 {
        bench.expire(id);
        bench.expire(2);
    }
    assert!(!is_taught(&mut bench, 1), "as many as there is room for");
    bench.expire(ENDED_MAX as u64 + 1);
    assert!(!is_taught(&mut bench, 2));
    assert!(is_taught(&mut bench, 1));
}

#[test]
fn a_session_without_entries_is_forgotten_once_it_was_silent_for_longer_than_idle_max() {
    let mut bench = Bench::new(|config| config.idle_max = Nanos(400));
    let held = bench.learn(NOW, 1).expect("there is room");
    bench.base().hold(held, SeqNum(1), order(3, 1, 0));
    bench.learn(NOW, 2);
    let closing = bench.learn(NOW, 3).expect("there is room");
    bench.base().hold(closing, SeqNum(1), order(3, 1, 0));
    bench.expire(3);
    assert!(bench.base().session(closing).expect("it is there").closing);
    bench.wishes();
    bench.device.on_timer(NOW.plus(Nanos(400)), &mut bench.effects);
    assert_eq!(bench.wishes().0, []);
    // A quarter of the time later it is looked again, and not before.
    assert!(!bench.base().forgets_at(NOW.plus(Nanos(500))) && bench.base().forgets_at(NOW.plus(Nanos(501))));
    bench.device.on_timer(NOW.plus(Nanos(500)), &mut bench.effects);
    assert_eq!(bench.wishes().0, []);
    bench.learn(NOW.plus(Nanos(101)), 2);
    bench.device.on_timer(NOW.plus(Nanos(501)), &mut bench.effects);
    assert_eq!(bench.wishes().0, [], "what its server says again of it is traffic");
    bench.device.on_timer(NOW.plus(Nanos(602)), &mut bench.effects);
    let (flushes, _) = bench.wishes();
    assert_eq!(flushes.len(), 1);
    bench.device.on_persisted(NOW, flushes[0], &mut bench.effects);
    let left: Vec<_> = bench.base().sessions().iter().map(|(_, session)| session.name).collect();
    assert_eq!(left, [name(FIRST, 1), name(FIRST, 3)]);
}

#[test]
fn only_a_session_that_nothing_speaks_for_gives_way_to_a_new_one() {
    let mut bench = Bench::new(|config| config.sessions_max = 3);
    let (held, closing) = (bench.learn(NOW, 1).expect("room"), bench.learn(NOW, 2).expect("room"));
    let heard = bench.learn(NOW, 3).expect("room");
    assert!(!bench.base().sessions().has_room());
    let gives_way = |bench: &mut Bench| {
        bench.wishes();
        bench.learn(NOW, 4);
        bench.wishes().0
    };
    bench.base().hold(held, SeqNum(1), order(3, 1, 0));
    bench.base().hold(closing, SeqNum(1), order(3, 1, 0));
    bench.expire(2);
    bench.base().let_go(closing, SeqNum(1));
    bench.base().absorb_heard(heard, NOW, true);
    assert_eq!(gives_way(&mut bench), []);
    assert_eq!(bench.device.counters().sessions_refused, 1);
    bench.base().let_go(held, SeqNum(1));
    let flushes = gives_way(&mut bench);
    assert_eq!(flushes.len(), 1);
    assert_eq!(gives_way(&mut bench), [], "one at a time");
    bench.device.on_persisted(NOW, flushes[0], &mut bench.effects);
    assert!(bench.base().sessions().has_room());
    assert_eq!(bench.learn(NOW, 4), Some(held), "the region of the one that went");
    assert_eq!(bench.device.session_count(), 3);
}

#[test]
fn a_session_of_no_window_or_of_a_larger_one_than_granted_is_refused() {
    let mut bench = Bench::new(|config| config.sessions_max = 2);
    for (id, window, refused) in [(1, 0, 1), (2, 17, 2), (3, 16, 2), (4, 1, 2)] {
        bench.receive(NOW, 2, client_address(), &accept(id, window));
        assert_eq!(bench.device.counters().sessions_refused, refused, "a window of {window}");
    }
    assert_eq!(bench.device.session_count(), 2);
    // For one that never fits nobody gives way.
    bench.wishes();
    bench.receive(NOW, 2, client_address(), &accept(5, 17));
    assert_eq!(bench.wishes().0, []);
}

#[test]
fn a_log_brings_a_session_back_to_the_region_that_it_had() {
    let mut bench = Bench::new(|config| config.sessions_max = 4);
    let mut restore = |region, name, window| {
        let about = (Epoch(1), client_address(), window);
        bench.base().restore_session(NOW, Region(region), name, about, (nonce(1), [9; 16]))
    };
    let unserved = SessionName { server: ServerIndex(2), id: SessionId(1) };
    assert_eq!(restore(2, unserved, 16), Err(RestoreError::Server(2)));
    assert_eq!(restore(2, name(SECOND, 1), 16), Ok(Restored::New));
    assert_eq!(restore(2, name(SECOND, 1), 16), Ok(Restored::Known));
    assert_eq!(restore(1, name(SECOND, 1), 16), Err(RestoreError::Layout), "a session has one region");
    assert_eq!(restore(2, name(FIRST, 1), 16), Err(RestoreError::Layout), "a region has one session");
    for (region, window) in [(1, 0), (1, 17), (4, 16)] {
        assert_eq!(restore(region, name(FIRST, 1), window), Err(RestoreError::Layout));
    }
    assert_eq!(restore(1, name(FIRST, 1), 1), Ok(Restored::New));
    let base = bench.base();
    let session = base.session(Region(1)).expect("it is there");
    assert_eq!((session.name, session.window, session.client), (name(FIRST, 1), 1, client_address()));
    assert_eq!(session.keys.client_to_server, session_keys(1).client_to_server);
    let of_second: Vec<_> = base.sessions().of(SECOND).map(|(region, _)| region).collect();
    assert_eq!((of_second, base.find(SECOND, SessionId(1))), (vec![Region(2)], Some(Region(2))));
    // The regions that are left are given to others, each once.
    let others: Vec<_> = (7..10).map(|id| bench.learn(NOW, id)).collect();
    assert_eq!(others, [Some(Region(0)), Some(Region(3)), None]);
}

#[test]
fn a_place_of_the_window_keeps_the_stamp_that_a_log_holds() {
    let mut bench = Bench::new(|_| {});
    let region = bench.learn(NOW, 1).expect("there is room");
    let base = bench.base();
    base.absorb_stamp(region, SeqNum(3), barrier(3, 1, 0));
    assert_eq!(base.hold(region, SeqNum(3), order(4, 2, 0)), None, "a log takes the place");
    assert_eq!(base.boot_seen(), BootEpoch(4));
    base.absorb_stamp(region, SeqNum(19), barrier(3, 3, 0));
    let noted = |base: &Base, seq| base.session(region).expect("it is there").noted(SeqNum(seq)).copied();
    let held = Noted { seq: SeqNum(3), stamp: order(4, 2, 0), held: true, durable: false };
    assert_eq!(
        (noted(base, 3), noted(base, 19)),
        (Some(held), None),
        "what is held gives no way to what is not"
    );
    assert_eq!(base.session(region).expect("it is there").noted_at(3), held);
    assert_eq!(base.hold(region, SeqNum(19), order(4, 5, 0)), Some(held), "another log's entry displaces it");
    for seq in [21, 18] {
        assert_eq!(base.hold(region, SeqNum(seq), order(4, seq, 0)), None);
    }
    let session = base.session(region).expect("it is there");
    assert_eq!(
        (session.held().collect::<Vec<_>>(), session.held_count()),
        (vec![SeqNum(18), SeqNum(19), SeqNum(21)], 3)
    );
    assert!(session.is_held(SeqNum(19)) && !session.is_held(SeqNum(3)));
    for (first, expected) in [(0, vec![18, 19, 21]), (19, vec![19, 21]), (20, vec![21]), (22, vec![])] {
        let from: Vec<_> = session.held_from(SeqNum(first)).map(|seq| seq.0).collect();
        assert_eq!(from, expected);
    }
    assert!(base.let_go(region, SeqNum(19)) && !base.let_go(region, SeqNum(19)));
    assert!(!base.let_go(region, SeqNum(20)) && !base.let_go(Region(5), SeqNum(18)));
    assert_eq!(
        noted(base, 19),
        Some(Noted { held: false, durable: false, seq: SeqNum(19), stamp: order(4, 5, 0) })
    );
}

#[test]
fn stability_and_what_a_log_tells_only_carry_a_session_forward() {
    let mut bench = Bench::new(|_| {});
    let region = bench.learn(NOW, 1).expect("there is room");
    let base = bench.base();
    let reached = |base: &Base| {
        let session = base.session(region).expect("it is there");
        (session.next.0, session.last_write.0, session.stable.0)
    };
    assert!(!base.note_stable(region, SeqNum(0)));
    base.advance(region, SeqNum(5), SeqNum(3));
    base.advance(region, SeqNum(4), SeqNum(2));
    assert_eq!(reached(base), (5, 3, 0));
    assert!(base.note_stable(region, SeqNum(3)));
    assert!(!base.note_stable(region, SeqNum(3)) && !base.note_stable(region, SeqNum(2)));
    assert_eq!(reached(base), (5, 3, 3));
    assert!(base.note_stable(region, SeqNum(8)));
    assert_eq!(reached(base), (9, 3, 8), "what was stable before it passed here will not pass any more");
    assert!(!base.note_stable(Region(1), SeqNum(8)));
}

#[test]
fn an_acceptance_of_a_window_is_taken_as_it_was_made() {
    let mut bench = Bench::new(|_| {});
    let tail = AcceptTail { client_nonce: nonce(3), server_nonce: [9; 16], window: 4, expiry_ms: 1_000 };
    let bytes = packet(
        &header(Kind::SessionAccept, 3, 0),
        &Tail::Accept(tail),
        &[],
        &cluster().control(Direction::Handshake),
    );
    bench.receive(NOW, 2, address(77), &bytes);
    let region = bench.device.base().find(FIRST, SessionId(3)).expect("it is learnt");
    let session = bench.device.base().session(region).expect("it is there");
    assert_eq!((session.window, session.client, session.epoch), (4, address(77), Epoch(1)));
    assert_eq!((session.next, session.stable, session.held_count()), (SeqNum(1), SeqNum(0), 0));
    assert_eq!([1, 4, 7].map(|seq| session.place(SeqNum(seq))), [1, 0, 3]);
}

#[test]
fn packets_of_a_family_whose_function_takes_none_are_refused_here_and_pass_to_others() {
    let mut bench = Bench::new(|_| {});
    let mut bytes = accept(3, 16);
    // The code of the first kind of the idle function's family.
    bytes[5] = *Family::Trial.codes().start();
    let refused = |bench: &Bench| bench.device.counters().refused[WireError::UnknownKind as usize];
    bench.receive(NOW, 9, address(2), &bytes);
    assert_eq!((refused(&bench), bench.effects.len()), (0, 1), "it goes on");
    bench.receive(NOW, 9, device_address(), &bytes);
    assert_eq!((refused(&bench), bench.effects.len()), (1, 1));
}
