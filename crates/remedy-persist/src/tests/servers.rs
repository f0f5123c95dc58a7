//! Several servers behind one device: sessions, orders, leases and words of one are not the other's.

use crate::PersistConfig;
use scotfree_core::{BootEpoch, DeviceId, Effect, Epoch, Machine, Nanos, SeqNum, ServerIndex, SessionId};
use scotfree_device::{DeviceConfig, DeviceEffects, DeviceOwn, Pipeline, Served};
use scotfree_session::by_hand::{
    accept, address, client_address, cluster, device_address, header, packet, session_keys, update, NOW,
};
use scotfree_wire::{Direction, Kind, LeaseTail, Packet, StampKind, Tail};
use std::net::SocketAddr;

const FIRST: ServerIndex = ServerIndex(0);
const SECOND: ServerIndex = ServerIndex(1);

fn server(index: ServerIndex) -> SocketAddr {
    address(2 + index.0)
}

struct Bench {
    device: Pipeline,
    effects: DeviceEffects,
}

impl Bench {
    /// Before two servers, each of which has a session of the same name.
    fn new(is_second_logged: bool) -> Bench {
        let mut config =
            DeviceConfig::new(DeviceId(1), BootEpoch(1), device_address(), server(FIRST), cluster());
        config.servers.push(Served { logged: is_second_logged, ..Served::new(server(SECOND)) });
        config.window_max = 16;
        let device = crate::device(config, PersistConfig::default());
        let mut bench = Bench { device, effects: DeviceEffects::new() };
        for index in [FIRST, SECOND] {
            bench.lease(index);
            bench.receive(server(index), client_address(), &accept(1, 16));
        }
        bench
    }

    fn lease(&mut self, index: ServerIndex) {
        let duration = Nanos::from_secs(100);
        let tail = LeaseTail { asked_at: NOW, duration, device: DeviceId(1), boot_epoch: BootEpoch(1) };
        let key = cluster().control(Direction::ServerToDevice);
        let bytes = packet(&header(Kind::Lease, 0, 0), &Tail::Lease(tail), &[], &key);
        self.receive(server(index), device_address(), &bytes);
    }

    fn receive(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.device.on_message(NOW, from, to, bytes, &mut self.effects);
        let mut leaving = Vec::new();
        while !self.effects.is_empty() {
            let wished = std::mem::take(&mut self.effects);
            for effect in wished.iter() {
                match effect {
                    Effect::Send { bytes, .. } | Effect::Own(DeviceOwn::Forward { bytes }) => {
                        leaving.push(wished.bytes(*bytes).to_vec());
                    }
                    Effect::Persist { token, .. } => {
                        self.device.on_persisted(NOW, *token, &mut self.effects);
                    }
                    _ => {}
                }
            }
        }
        leaving
    }

    fn update(&mut self, index: ServerIndex, seq: u64) -> (StampKind, u64, bool) {
        let leaving = self.receive(client_address(), server(index), &update(1, seq, b"x")[0]);
        let packets: Vec<_> = leaving.iter().map(|bytes| Packet::parse(bytes).expect("ours")).collect();
        let passed = packets.iter().find(|packet| packet.kind() == Kind::Update).expect("it is passed on");
        let acknowledged = packets.iter().any(|packet| packet.kind() == Kind::PersistAck);
        (passed.stamp().kind, passed.stamp().number.0, acknowledged)
    }
}

#[test]
fn each_server_has_its_sessions_and_its_order() {
    let mut bench = Bench::new(true);
    for (index, seq, number) in [(FIRST, 1, 1), (SECOND, 1, 1), (SECOND, 2, 2), (FIRST, 2, 2)] {
        assert_eq!(bench.update(index, seq), (StampKind::Order, number, true), "{index} {seq}");
    }
    assert_eq!((bench.device.session_count(), bench.device.entry_count()), (2, 4));
    let orders: Vec<_> = bench.device.entries().iter().map(|entry| entry.session.server).collect();
    assert_eq!(orders, [FIRST, FIRST, SECOND, SECOND]);
}

#[test]
fn what_one_server_says_is_stable_frees_only_its_own() {
    let mut bench = Bench::new(true);
    bench.update(FIRST, 1);
    bench.update(SECOND, 1);
    let word = packet(&header(Kind::ServerAck, 1, 1), &Tail::Empty, &[], &session_keys(1).server_to_client);
    bench.receive(server(SECOND), client_address(), &word);
    let left: Vec<_> = bench.device.entries().iter().map(|entry| entry.session.server).collect();
    assert_eq!(left, [FIRST]);
}

#[test]
fn updates_for_a_server_that_is_not_logged_pass_stamped() {
    let mut bench = Bench::new(false);
    assert_eq!(bench.update(FIRST, 1), (StampKind::Order, 1, true));
    assert_eq!(bench.update(SECOND, 1), (StampKind::Barrier, 0, false));
    assert_eq!(crate::counters(&bench.device).ungranted, 1);
}

#[test]
fn a_poll_of_one_server_raises_its_epoch_alone_and_tells_of_its_sessions() {
    let mut bench = Bench::new(true);
    let mut poll = header(Kind::RecoveryPoll, 0, 7);
    poll.epoch = Epoch(9);
    let key = cluster().control(Direction::ServerToDevice);
    let pages = bench.receive(server(SECOND), device_address(), &packet(&poll, &Tail::Empty, &[], &key));
    assert_eq!(pages.len(), 1);
    let Tail::Manifest(tail) = *Packet::parse(&pages[0]).expect("ours").tail() else { panic!("a manifest") };
    assert_eq!(tail.session_count, 1);
    assert_eq!((bench.device.server_epoch(FIRST), bench.device.server_epoch(SECOND)), (Epoch(0), Epoch(9)));
    assert!(bench.device.has_lease(FIRST, NOW) && !bench.device.has_lease(SECOND, NOW));
}

#[test]
fn records_of_both_are_restored_to_their_servers() {
    let mut bench = Bench::new(true);
    let mut kept = Vec::new();
    for index in [FIRST, SECOND] {
        let bytes = &update(1, 1, b"x")[0];
        bench.device.on_message(NOW, client_address(), server(index), bytes, &mut bench.effects);
        for effect in bench.effects.iter() {
            if let Effect::Persist { token, bytes } = effect {
                kept.push((*token, bench.effects.bytes(*bytes).to_vec()));
            }
        }
        bench.effects.clear();
    }
    let restored = |servers: &[ServerIndex]| {
        let mut config =
            DeviceConfig::new(DeviceId(1), BootEpoch(2), device_address(), server(FIRST), cluster());
        config.servers = servers.iter().map(|index| Served::new(server(*index))).collect();
        config.window_max = 16;
        let mut device = crate::device(config, PersistConfig::default());
        let results: Vec<_> =
            kept.iter().map(|(token, record)| device.restore(NOW, *token, record)).collect();
        (device, results)
    };
    let (device, results) = restored(&[FIRST, SECOND]);
    assert_eq!(results, [Ok(()), Ok(())]);
    let found: Vec<_> = device.entries().iter().map(|entry| (entry.session, entry.seq)).collect();
    let name = |server| scotfree_device::SessionName { server, id: SessionId(1) };
    assert_eq!(found, [(name(FIRST), SeqNum(1)), (name(SECOND), SeqNum(1))]);
    let (_, results) = restored(&[FIRST]);
    assert_eq!(results, [Ok(()), Err(scotfree_device::RestoreError::Server(1))]);
}
