//! What a fast path brings in and has to know: persist and its base, as it sees them.

use crate::{FastEntry, FastSession, FastSide, Persist, PersistConfig};
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Effect, Epoch, Machine, Nanos, OrderNumber, SeqNum, ServerIndex,
    SessionId,
};
use scotfree_device::{DeviceConfig, DeviceEffects, OrderCounter, Pipeline, PortNumber, SessionName};
use scotfree_session::by_hand::{
    accept, barrier, client_address, cluster, device_address, header, nonce, order, packet, server_address,
    session_keys, update, NOW,
};
use scotfree_wire::{ClusterKey, Direction, Key, KeyEpoch, Kind, LeaseTail, Tail, WireError};

const SERVER: ServerIndex = ServerIndex(0);
const NAME: SessionName = SessionName { server: SERVER, id: SessionId(1) };
const NOBODY: SessionName = SessionName { server: SERVER, id: SessionId(9) };

/// A counter that a fast path counts with too.
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

struct Bench {
    device: Pipeline,
    effects: DeviceEffects,
}

impl Bench {
    /// Before a server with one session, whose credit is 16.
    fn new(adjust: impl FnOnce(&mut DeviceConfig)) -> Bench {
        let mut config =
            DeviceConfig::new(DeviceId(1), BootEpoch(3), device_address(), server_address(), cluster());
        config.sessions_max = 2;
        adjust(&mut config);
        let device = crate::device(
            config,
            PersistConfig { media: Durability::RamAndDisk, ..PersistConfig::default() },
        );
        let mut bench = Bench { device, effects: DeviceEffects::new() };
        bench.learn(1);
        bench.effects.clear();
        bench
    }

    fn learn(&mut self, id: u64) {
        let bytes = accept(id, 16);
        self.device.on_message(NOW, server_address(), client_address(), &bytes, &mut self.effects);
    }

    fn fast<T>(&mut self, with: impl FnOnce(&mut FastSide<'_>, &mut DeviceEffects) -> T) -> T {
        let (base, persist) = self.device.with_base::<Persist>().expect("it is there");
        with(&mut FastSide::new(base, persist), &mut self.effects)
    }

    fn absorb(&mut self, bytes: &[u8], number: u64, acknowledged: bool) -> Result<(), WireError> {
        let entry = FastEntry {
            packet: bytes,
            stamp: order(3, number, 0),
            acknowledged,
            logged_at: Nanos(NOW.0 + number),
        };
        self.fast(|fast, effects| fast.absorb_entry(SERVER, &entry, effects))
    }

    fn held(&self) -> Vec<u64> {
        self.device.entries().iter().map(|entry| entry.seq.0).collect()
    }

    fn records(&mut self) -> usize {
        let effects = std::mem::take(&mut self.effects);
        effects.iter().filter(|effect| matches!(effect, Effect::Persist { .. })).count()
    }
}

#[test]
fn a_fast_path_sees_what_the_device_was_told_and_has_heard() {
    let mut bench = Bench::new(|config| config.servers[0].epoch = Epoch(1));
    let duration = Nanos(1000);
    let lease = LeaseTail { asked_at: NOW, duration, device: DeviceId(1), boot_epoch: BootEpoch(3) };
    let word = scotfree_wire::Header { epoch: Epoch(4), ..header(Kind::Lease, 0, 0) };
    let bytes = packet(&word, &Tail::Lease(lease), &[], &cluster().control(Direction::ServerToDevice));
    assert!(!bench.fast(|fast, _| fast.is_accepted(SERVER)));
    bench.device.on_message(NOW, server_address(), device_address(), &bytes, &mut bench.effects);
    bench.device.on_timer(NOW, &mut bench.effects);
    bench.fast(|fast, _| {
        assert_eq!((fast.boot_epoch(), fast.boot_seen()), (BootEpoch(3), BootEpoch(3)));
        assert_eq!((fast.server_epoch(SERVER), fast.heard_epoch(SERVER)), (Epoch(1), Epoch(4)));
        assert_eq!((fast.is_accepted(SERVER), fast.lease_until(SERVER)), (true, NOW.plus(duration)));
        assert_eq!(
            (fast.media(), fast.stamp_key()),
            (Durability::RamAndDisk, cluster().control(Direction::Stamp))
        );
        assert!(fast.is_head() && fast.has_room());
        let quarter = NOW.plus(Nanos(fast.base().config().idle_max.0 / 4));
        assert!(!fast.forgets_at(quarter) && fast.forgets_at(quarter.plus(Nanos(1))));
        fast.resume(SERVER, false, Nanos(7));
        assert_eq!((fast.is_accepted(SERVER), fast.lease_until(SERVER)), (false, Nanos(7)));
    });
    bench.learn(2);
    assert!(!bench.fast(|fast, _| fast.has_room()));
    assert!(!Bench::new(|config| config.head = false).fast(|fast, _| fast.is_head()));
    bench.device.set_media(Durability::Ram);
    assert_eq!(bench.fast(|fast, _| fast.media()), Durability::Ram);
}

#[test]
fn what_changes_is_told_to_a_fast_path_once_it_shares_the_order() {
    let mut bench = Bench::new(|_| {});
    assert!(bench.fast(|fast, _| fast.take_touched()).sessions.is_empty());
    bench.fast(|fast, _| fast.share(SERVER, Box::new(Shared(40))));
    assert_eq!(bench.device.base().order_current(SERVER), OrderNumber(40));
    let touched = bench.fast(|fast, _| {
        fast.touch_all();
        fast.take_touched()
    });
    assert_eq!(touched.sessions.into_iter().collect::<Vec<_>>(), [NAME]);
    bench.learn(2);
    assert_eq!(bench.fast(|fast, _| fast.take_touched()).sessions.len(), 1);
}

#[test]
fn a_session_is_seen_as_far_as_either_has_come_with_it() {
    let mut bench = Bench::new(|_| {});
    let reached = FastSession {
        next: SeqNum(6),
        last_write: SeqNum(4),
        stable: SeqNum(2),
        heard_at: NOW.plus(Nanos(5)),
        confirmed: true,
    };
    bench.absorb(&update(1, 2, b"two")[0], 1, true).expect("it is whole");
    bench.absorb(&update(1, 4, b"four")[0], 2, true).expect("it is whole");
    assert_eq!(bench.held(), [2, 4]);
    bench.fast(|fast, effects| {
        fast.absorb_session(NAME, &reached, effects);
        fast.absorb_session(NOBODY, &reached, effects);
        fast.absorb_port(NAME, PortNumber(4));
        fast.absorb_port(NOBODY, PortNumber(5));
        let view = fast.session_view(NAME).expect("it is there");
        assert_eq!((view.reached, view.epoch, view.keys), (reached, Epoch(1), session_keys(1)));
        assert_eq!((view.client, view.port), (client_address(), Some(PortNumber(4))));
        assert_eq!((view.client_nonce, view.server_nonce), (nonce(1), [9; 16]));
        assert_eq!((view.window, view.region, view.closing, view.entry_count), (16, 0, false, 1));
        assert!(fast.session_view(NOBODY).is_none());
    });
    assert_eq!(bench.held(), [4], "what is stable is freed");
}

#[test]
fn an_entry_of_the_fast_path_is_taken_over_once_if_it_is_authentic_and_not_stable() {
    let mut bench = Bench::new(|_| {});
    let two = &update(1, 2, b"two")[0];
    assert_eq!(bench.absorb(&two[1..], 1, false), Err(WireError::WrongMagic));
    let foreign =
        packet(&header(Kind::Update, 1, 2), &Tail::Stamp(order(3, 1, 0)), b"two", &Key::from_bytes([1; 16]));
    assert_eq!(bench.absorb(&foreign, 1, false), Err(WireError::BadMac));
    bench.absorb(&update(9, 2, b"two")[0], 1, false).expect("nobody's entry is passed over");
    assert!(bench.held().is_empty());
    bench.absorb(two, 1, false).expect("it is whole");
    bench.absorb(two, 5, true).expect("it is there already");
    bench.fast(|fast, _| {
        let view = fast.slot_view(NAME, SeqNum(2)).expect("it is logged");
        assert_eq!((view.stamp, view.logged, view.fast), (order(3, 1, 0), true, true));
        assert_eq!(
            (view.asked, view.persisted, view.writing),
            (Durability::Ram, Durability::Ram, Durability::None)
        );
        assert_eq!((view.acknowledged, view.logged_at), (false, Nanos(NOW.0 + 1)));
        assert!(fast.slot_view(NAME, SeqNum(3)).is_none() && fast.slot_view(NOBODY, SeqNum(2)).is_none());
    });
    let entries = bench.device.entries();
    assert_eq!((entries.len(), entries[0].payload), (1, b"two".as_slice()));
    assert_eq!(bench.records(), 0, "what is in memory alone the fast path keeps");
    let reached = FastSession {
        next: SeqNum(3),
        last_write: SeqNum(2),
        stable: SeqNum(2),
        heard_at: NOW,
        confirmed: true,
    };
    bench.fast(|fast, effects| fast.absorb_session(NAME, &reached, effects));
    bench.absorb(two, 6, true).expect("it is stable");
    assert!(bench.held().is_empty());
}

#[test]
fn what_is_asked_to_be_on_disk_is_written_there_and_is_not_kept_before() {
    let mut bench = Bench::new(|_| {});
    let asks = scotfree_wire::Header { asked: Durability::RamAndDisk, ..header(Kind::Update, 1, 2) };
    let bytes = packet(
        &asks,
        &Tail::Stamp(scotfree_wire::Stamp::default()),
        b"two",
        &session_keys(1).client_to_server,
    );
    bench.absorb(&bytes, 1, false).expect("it is whole");
    assert_eq!(bench.records(), 1);
    let view = bench.fast(|fast, _| fast.slot_view(NAME, SeqNum(2))).expect("it is logged");
    assert_eq!(
        (view.asked, view.persisted, view.writing),
        (Durability::RamAndDisk, Durability::Ram, Durability::Disk)
    );
}

#[test]
fn what_the_fast_path_holds_and_has_not_acknowledged_is_named() {
    let mut bench = Bench::new(|_| {});
    for (seq, acknowledged) in [(2, false), (3, true), (5, false)] {
        bench.absorb(&update(1, seq, b"x")[0], seq, acknowledged).expect("it is whole");
    }
    let waiting = |bench: &mut Bench, name| {
        bench.fast(|fast, _| fast.unacknowledged(name).map(|seq| seq.0).collect::<Vec<_>>())
    };
    assert_eq!((waiting(&mut bench, NAME), waiting(&mut bench, NOBODY)), (vec![2, 5], vec![]));
    bench.fast(|fast, _| {
        for (name, seq) in [(NAME, 18), (NAME, 4), (NOBODY, 5)] {
            fast.absorb_acknowledged(name, SeqNum(seq));
        }
    });
    assert_eq!(waiting(&mut bench, NAME), [2, 5], "others have been acknowledged");
    bench.fast(|fast, _| fast.absorb_acknowledged(NAME, SeqNum(2)));
    assert_eq!(waiting(&mut bench, NAME), [5]);
    // What passed unlogged has a stamp and is no entry.
    bench.fast(|fast, _| {
        fast.absorb_stamp(NAME, SeqNum(6), barrier(3, 9, 0));
        fast.absorb_stamp(NOBODY, SeqNum(6), barrier(3, 9, 0));
        let view = fast.slot_view(NAME, SeqNum(6)).expect("it is noted");
        assert_eq!((view.stamp, view.logged, view.fast), (barrier(3, 9, 0), false, false));
    });
    assert_eq!(waiting(&mut bench, NAME), [5]);
}

#[test]
fn of_a_session_whose_key_is_gone_the_key_of_its_log_is_kept_and_its_port_is_not_told() {
    let mut bench = Bench::new(|_| {});
    bench.fast(|fast, _| fast.absorb_port(NAME, PortNumber(4)));
    let other = ClusterKey::from_epochs(vec![(KeyEpoch(1), [4; 32])]).expect("one is enough");
    bench.device.set_cluster_key(NOW, other, &mut bench.effects);
    let logged = Key::from_bytes([8; 16]);
    bench.fast(|fast, _| {
        fast.keep_log_key(NAME, logged);
        fast.keep_log_key(NOBODY, logged);
        let view = fast.session_view(NAME).expect("it is there");
        assert_eq!((view.keys.client_to_server, view.port), (logged, None));
    });
}
