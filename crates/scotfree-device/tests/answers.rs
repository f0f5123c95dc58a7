//! Reads that a function answers: what the server is told to pass over, what is given again, and what is not kept.

use remedy_toy::{Toy, ANSWERED};
use scotfree_core::{BootEpoch, DeviceId, Effect, Machine, Nanos, SeqNum};
use scotfree_device::{DeviceConfig, DeviceEffects, DeviceOwn, Pipeline};
use scotfree_session::by_hand::{
    accept, address, barrier, client_address, cluster, device_address, header, order, packet, session_keys,
    NOW,
};
use scotfree_session::Planted;
use scotfree_wire::{
    emit_stamp, CloseReason, CloseTail, Direction, Flags, Kind, LeaseTail, Packet, Stamp, Tail,
};

const SERVER: u8 = 2;

/// What leaves: its kind, and the first and the last place that it is about.
type Left = (Kind, u64, u64);

struct Bench {
    device: Pipeline,
    effects: DeviceEffects,
}

impl Bench {
    fn new(change: impl FnOnce(&mut DeviceConfig)) -> Bench {
        let mut config =
            DeviceConfig::new(DeviceId(9), BootEpoch(1), device_address(), address(SERVER), cluster());
        change(&mut config);
        let toy = Toy::new(b"known", Planted::NONE);
        let device = Pipeline::new(config, vec![Box::new(toy)]).expect("one function");
        let mut bench = Bench { device, effects: DeviceEffects::new() };
        let duration = Nanos::from_secs(100);
        let lease = LeaseTail { asked_at: NOW, duration, device: DeviceId(9), boot_epoch: BootEpoch(1) };
        let key = cluster().control(Direction::ServerToDevice);
        let lease = packet(&header(Kind::Lease, 0, 0), &Tail::Lease(lease), &[], &key);
        bench.receive(SERVER, device_address(), &lease);
        bench.receive(SERVER, client_address(), &accept(1, 16));
        bench
    }

    fn receive(&mut self, host: u8, to: std::net::SocketAddr, bytes: &[u8]) -> Vec<Left> {
        self.device.on_message(NOW, address(host), to, bytes, &mut self.effects);
        let effects = std::mem::take(&mut self.effects);
        let bytes = effects.iter().filter_map(|effect| match effect {
            Effect::Send { bytes, .. } | Effect::Own(DeviceOwn::Forward { bytes }) => Some(*bytes),
            _ => None,
        });
        let left = bytes.map(|range| {
            let packet = Packet::parse(effects.bytes(range)).expect("ours");
            let (header, last) = (packet.header(), packet.seq_num());
            let first = if header.flags.has(Flags::SKIP) { header.skip_first() } else { last };
            (packet.kind(), first.0, last.0)
        });
        left.collect()
    }

    /// A request of the client, which has everything up to `completed`.
    fn request(&mut self, kind: Kind, seq: u64, completed: u64, stamp: Option<Stamp>) -> Vec<Left> {
        let mut header = header(kind, 1, seq);
        (header.completed, header.key_hash) = (SeqNum(completed), ANSWERED);
        let tail = Tail::Stamp(Stamp::default());
        let mut bytes = packet(&header, &tail, b"", &session_keys(1).client_to_server);
        if let Some(stamp) = stamp {
            let key = cluster().control(Direction::Stamp);
            emit_stamp(&mut bytes, &stamp, &key).expect("a request has room for a stamp");
        }
        self.receive(1, address(SERVER), &bytes)
    }
}

fn answer(seq: u64) -> Left {
    (Kind::Response, seq, seq)
}

#[test]
fn one_word_passes_over_one_run() {
    let mut bench = Bench::new(|_| {});
    assert_eq!(bench.request(Kind::Read, 1, 0, None), [answer(1)]);
    assert_eq!(bench.request(Kind::Read, 2, 0, None), [answer(2)]);
    let passed_on = bench.request(Kind::Update, 3, 0, None);
    assert_eq!(passed_on, [(Kind::Read, 1, 2), (Kind::Update, 3, 3)]);
    assert_eq!(bench.request(Kind::Update, 4, 0, None), [(Kind::Update, 4, 4)]);
}

/// Behind the head what the head has stamped comes in any order: what has not come yet is passed over by no word.
#[test]
fn what_stands_between_two_answered_reads_is_not_passed_over() {
    let mut bench = Bench::new(|config| config.head = false);
    assert_eq!(bench.request(Kind::Read, 1, 0, Some(barrier(1, 0, 0))), [answer(1)]);
    let third = bench.request(Kind::Read, 3, 0, Some(barrier(1, 1, 2)));
    assert_eq!(third, [(Kind::Read, 1, 1), answer(3)]);
    let second = bench.request(Kind::Update, 2, 0, Some(order(1, 1, 0)));
    assert_eq!(second, [(Kind::Read, 3, 3), (Kind::Update, 2, 2)]);
}

#[test]
fn behind_the_head_a_read_that_comes_late_is_the_servers() {
    let mut bench = Bench::new(|config| config.head = false);
    bench.request(Kind::Update, 2, 0, Some(order(1, 1, 0)));
    assert_eq!(bench.request(Kind::Read, 1, 0, Some(barrier(1, 0, 0))), [(Kind::Read, 1, 1)]);
}

#[test]
fn where_the_server_has_lost_a_reply_the_device_that_has_it_speaks() {
    let mut bench = Bench::new(|_| {});
    bench.request(Kind::Read, 1, 0, None);
    bench.request(Kind::Update, 2, 0, None);
    let gone = Tail::Close(CloseTail { reason: CloseReason::ReplyGone });
    let word =
        |seq: u64| packet(&header(Kind::SessionClose, 1, seq), &gone, &[], &session_keys(1).server_to_client);
    assert_eq!(bench.receive(SERVER, client_address(), &word(1)), [answer(1)]);
    assert_eq!(bench.receive(SERVER, client_address(), &word(2)), [(Kind::SessionClose, 2, 2)]);
}

#[test]
fn without_room_only_a_read_is_answered_whose_client_has_all_before_it_and_a_retry_goes_on() {
    let mut bench = Bench::new(|config| config.answers_bytes_max = 0);
    assert_eq!(bench.request(Kind::Read, 1, 0, None), [answer(1)]);
    assert_eq!(bench.request(Kind::Read, 1, 0, None), [(Kind::Read, 1, 1)]);
    assert_eq!(bench.request(Kind::Read, 2, 0, None), [(Kind::Read, 2, 2)]);
    assert_eq!(bench.request(Kind::Update, 3, 2, None), [(Kind::Update, 3, 3)]);
    assert_eq!(bench.device.counters().answered, 1);
}
