//! What all functions share: what a device was told, leases, polls, the ends of sessions, and what a fast path
//! brings in.

use scotfree_core::{
    BootEpoch, DeviceId, Effect, Epoch, Machine, Nanos, OrderNumber, SeqNum, ServerIndex, SessionId,
};
use scotfree_device::{
    Base, DeviceConfig, DeviceCounters, DeviceEffects, DeviceOwn, Function, Noted, OrderCounter, Passing,
    Pipeline, PortNumber, Region, RestoreError, Restored, Served, SessionName, Verdict, ENDED_MAX,
};
use scotfree_session::by_hand::{
    accept, address, barrier, client_address, cluster, device_address, header, nonce, order, packet,
    session_keys, update, NOW,
};
use scotfree_wire::{
    AcceptTail, CloseReason, CloseTail, ClusterKey, Direction, Family, Header, Key, KeyEpoch, Kind,
    LeaseTail, ManifestRecord, Packet, Tail, MANIFEST_RECORD_BYTES,
};
use std::any::Any;

const FIRST: ServerIndex = ServerIndex(0);
const SECOND: ServerIndex = ServerIndex(1);

/// Lets everything pass.
#[derive(Debug)]
struct Idle;

impl Function for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn family(&self) -> Family {
        Family::Trial
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn on_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _passing: &mut Passing<'_>,
        _effects: &mut DeviceEffects,
    ) -> Verdict {
        Verdict::Next
    }
}

fn name(server: ServerIndex, id: u64) -> SessionName {
    SessionName { server, id: SessionId(id) }
}

fn lease(device: u16, boot_epoch: u32, asked_at: Nanos, duration: Nanos) -> LeaseTail {
    LeaseTail { asked_at, duration, device: DeviceId(device), boot_epoch: BootEpoch(boot_epoch) }
}

struct Bench {
    device: Pipeline,
    effects: DeviceEffects,
}

impl Bench {
    /// Device 7 in its incarnation 3, before two servers of the epochs 1 and 4.
    fn new(adjust: impl FnOnce(&mut DeviceConfig)) -> Bench {
        let mut config =
            DeviceConfig::new(DeviceId(7), BootEpoch(3), device_address(), address(2), cluster());
        config.servers[0].epoch = Epoch(1);
        config.servers.push(Served { epoch: Epoch(4), ..Served::new(address(3)) });
        config.window_max = 16;
        adjust(&mut config);
        let device = Pipeline::new(config, vec![Box::new(Idle)]).expect("the list is in order");
        Bench { device, effects: DeviceEffects::new() }
    }

    fn base(&mut self) -> &mut Base {
        self.device.with_base::<Idle>().expect("it is there").0
    }

    fn receive(&mut self, now: Nanos, from: u8, to: std::net::SocketAddr, bytes: &[u8]) {
        self.device.on_message(now, address(from), to, bytes, &mut self.effects);
    }

    /// A word of the first server's to the device.
    fn command(&mut self, header: &Header, tail: &Tail) {
        let bytes = packet(header, tail, &[], &cluster().control(Direction::ServerToDevice));
        self.receive(NOW, 2, device_address(), &bytes);
    }

    fn grant(&mut self, tail: LeaseTail) {
        self.command(&header(Kind::Lease, 0, 0), &Tail::Lease(tail));
    }

    fn expire(&mut self, id: u64) {
        self.command(
            &header(Kind::SessionClose, id, 0),
            &Tail::Close(CloseTail { reason: CloseReason::Expire }),
        );
    }

    fn learn(&mut self, now: Nanos, id: u64) -> Option<Region> {
        self.receive(now, 2, client_address(), &accept(id, 16));
        self.device.base().find(FIRST, SessionId(id))
    }

    /// What it wished for of its own: erasures to be flushed, and incarnations to be kept.
    fn wishes(&mut self) -> (Vec<scotfree_core::Token>, Vec<(u32, u8, u32)>) {
        let effects = std::mem::take(&mut self.effects);
        let (mut flushes, mut metas) = (Vec::new(), Vec::new());
        for effect in effects.iter() {
            match effect {
                Effect::Own(DeviceOwn::FlushErasures { token }) => flushes.push(*token),
                Effect::Own(DeviceOwn::SetMeta { boot_epoch, server, server_epoch }) => {
                    metas.push((boot_epoch.0, server.0, server_epoch.0));
                }
                _ => {}
            }
        }
        (flushes, metas)
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        scotfree_session::by_hand::sent(&mut self.effects)
    }
}

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
    bench.base().resume(SECOND, true, Nanos(2 * NOW.0));
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
    let held = Noted { seq: SeqNum(3), stamp: order(4, 2, 0), held: true };
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
    assert_eq!(noted(base, 19), Some(Noted { held: false, seq: SeqNum(19), stamp: order(4, 5, 0) }));
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
fn what_a_fast_path_must_be_told_is_noted_once_there_is_one() {
    let mut bench = Bench::new(|_| {});
    let region = bench.learn(NOW, 1).expect("there is room");
    bench.base().hold(region, SeqNum(2), order(3, 1, 0));
    let touched = |bench: &mut Bench| {
        let touched = bench.base().take_touched();
        (touched.sessions.into_iter().collect::<Vec<_>>(), touched.slots.into_iter().collect::<Vec<_>>())
    };
    let session = name(FIRST, 1);
    bench.base().touch_all();
    bench.base().touch_session(session);
    bench.base().touch_slot(session, SeqNum(2));
    assert_eq!(touched(&mut bench), (vec![], vec![]));
    bench.base().note_touched();
    bench.base().touch_all();
    assert_eq!(touched(&mut bench), (vec![session], vec![(session, SeqNum(2))]));
    assert_eq!(touched(&mut bench), (vec![], vec![]), "each change is told once");
    bench.base().touch_session(session);
    assert_eq!(touched(&mut bench), (vec![session], vec![]));
    bench.base().touch_slot(session, SeqNum(7));
    assert_eq!(touched(&mut bench), (vec![], vec![(session, SeqNum(7))]));
    bench.learn(NOW, 2);
    assert_eq!(touched(&mut bench), (vec![name(FIRST, 2)], vec![]), "a session that is learnt");
}

#[test]
fn what_a_fast_path_has_heard_is_taken_over_and_never_back() {
    let mut bench = Bench::new(|_| {});
    let region = bench.learn(NOW, 1).expect("there is room");
    let later = NOW.plus(Nanos(5));
    let base = bench.base();
    let heard = |base: &Base| {
        let session = base.session(region).expect("it is there");
        (session.heard_at, session.confirmed, session.port)
    };
    base.absorb_heard(region, later, false);
    assert_eq!(heard(base), (later, false, None));
    base.absorb_heard(region, NOW, true);
    base.absorb_heard(region, NOW, false);
    base.absorb_port(region, PortNumber(4));
    assert_eq!(heard(base), (later, true, Some(PortNumber(4))));
    base.absorb_stamp(region, SeqNum(6), barrier(3, 9, 0));
    let noted = base.session(region).expect("it is there").noted(SeqNum(6)).expect("it is noted");
    assert_eq!((noted.stamp, noted.held), (barrier(3, 9, 0), false));
}

#[test]
fn the_key_of_what_was_logged_is_kept_of_a_session_whose_epoch_is_gone_and_of_no_other() {
    let mut bench = Bench::new(|_| {});
    let region = bench.learn(NOW, 1).expect("there is room");
    let logged = Key::from_bytes([8; 16]);
    let key = |base: &Base| base.session(region).expect("it is there").keys.client_to_server;
    bench.base().keep_log_key(region, logged);
    assert_eq!(key(bench.base()), session_keys(1).client_to_server);
    let other = ClusterKey::from_epochs(vec![(KeyEpoch(1), [4; 32])]).expect("one is enough");
    bench.device.set_cluster_key(NOW, other, &mut bench.effects);
    assert_eq!(
        key(bench.base()),
        session_keys(1).client_to_server,
        "what was logged under it can still be told"
    );
    bench.base().keep_log_key(region, logged);
    assert_eq!(key(bench.base()), logged);
}

/// A counter that somebody else counts with too.
#[derive(Debug)]
struct Shared(u64);

impl OrderCounter for Shared {
    fn current(&self) -> OrderNumber {
        OrderNumber(self.0)
    }

    fn next(&mut self) -> OrderNumber {
        self.0 += 1;
        OrderNumber(self.0)
    }

    fn restart(&mut self) {
        self.0 = 0;
    }
}

#[test]
fn an_order_that_is_shared_goes_on_with_the_counter_that_is_shared() {
    let mut bench = Bench::new(|_| {});
    bench.learn(NOW, 1);
    bench.grant(lease(7, 3, NOW, Nanos(1000)));
    bench.base().share_order(FIRST, Box::new(Shared(40)));
    assert_eq!(
        (bench.base().order_current(FIRST), bench.base().order_current(SECOND)),
        (OrderNumber(40), OrderNumber(0))
    );
    bench.wishes();
    bench.receive(NOW, 1, address(2), &update(1, 1, b"x")[0]);
    let passed = bench.effects.iter().find_map(|effect| match effect {
        Effect::Own(DeviceOwn::Forward { bytes }) => Some(bench.effects.bytes(*bytes).to_vec()),
        _ => None,
    });
    let passed = passed.expect("it passes");
    let stamp = Packet::parse(&passed).expect("ours").stamp();
    assert_eq!(
        stamp,
        scotfree_wire::Stamp { device: DeviceId(7), ..barrier(3, 40, 0) },
        "behind all that is logged"
    );
    bench.grant(lease(7, 4, NOW, Nanos(1000)));
    assert_eq!(bench.base().order_current(FIRST), OrderNumber(0), "an incarnation counts anew");
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
