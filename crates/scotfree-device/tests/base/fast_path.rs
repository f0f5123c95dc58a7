//! What a fast path brings in, and what it must be told.

use super::bench::{lease, name, Bench, FIRST, SECOND};
use scotfree_core::{DeviceId, Effect, Nanos, OrderNumber, SeqNum};
use scotfree_device::{Base, DeviceOwn, OrderCounter, PortNumber};
use scotfree_session::by_hand::{address, barrier, order, session_keys, update, NOW};
use scotfree_wire::{ClusterKey, Key, KeyEpoch, Packet};

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
