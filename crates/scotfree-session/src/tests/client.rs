//! What a client does with each message and at each alarm, and what its counters count.

use crate::by_hand::{
    accept, address, client_address, cluster, header, nonce, order, packet, server_address, session_keys, NOW,
};
use crate::{
    Client, ClientConfig, ClientCounters, ClientOwn, ClosedReason, CompletedBy, Completion, ExtendedError,
    Mode, Request, RequestKind, SubmitError,
};
use scotfree_core::{
    DeviceId, Durability, Effect, Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId,
};
use scotfree_wire::{
    AcceptTail, Answerer, BusyTail, CloseReason, CloseTail, ClusterKey, Direction, ExtensionSet, Extensions,
    Family, Flags, Header, HeartbeatTail, Key, KeyEpoch, Kind, LateStamp, OpenTail, Packet, RangeTail,
    ResponseTail, Stamp, Tail, WireError, FURTHER_KEYS_MAX, PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX,
};
use CompletedBy::{Device, Server, ServerAck};
use Mode::{Covered, Early};
use RequestKind::{Bypass, Read, Update};

/// How long a client waits that has measured nothing.
const GUESS: Nanos = Nanos::from_millis(20);
const WINDOW: u32 = 8;

/// A client and what it wished for.
struct ClientBench {
    client: Client,
    now: Nanos,
    effects: Effects<ClientOwn>,
    /// The headers of what it sent since somebody looked, with when.
    sent: Vec<(Nanos, Header)>,
    /// What its last heartbeat called its highest request.
    highest: SeqNum,
    done: Vec<Completion>,
    closed: Vec<ClosedReason>,
    late: Vec<LateStamp>,
}

impl ClientBench {
    /// One that is not open.
    fn new(adjust: impl FnOnce(&mut ClientConfig)) -> ClientBench {
        let mut config = ClientConfig::new(client_address(), server_address(), cluster(), nonce(1), 1);
        // Heartbeats would stand between what is looked at.
        config.heartbeat_interval = Nanos::from_secs(1_000);
        config.idle_interval = Nanos::from_secs(2_000);
        adjust(&mut config);
        ClientBench {
            client: Client::new(config),
            now: NOW,
            effects: Effects::new(),
            sent: Vec::new(),
            highest: SeqNum(0),
            done: Vec::new(),
            closed: Vec::new(),
            late: Vec::new(),
        }
    }

    fn open(adjust: impl FnOnce(&mut ClientConfig)) -> ClientBench {
        let mut bench = ClientBench::new(adjust);
        bench.act(Client::open);
        bench.receive(&accept(1, WINDOW));
        bench.sent.clear();
        bench
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Client, Nanos, &mut Effects<ClientOwn>) -> T) -> T {
        let result = act(&mut self.client, self.now, &mut self.effects);
        for effect in self.effects.iter() {
            match effect {
                Effect::Send { bytes, .. } => {
                    let packet = Packet::parse(self.effects.bytes(*bytes)).expect("it sends whole packets");
                    self.sent.push((self.now, *packet.header()));
                    if let Tail::Heartbeat(tail) = packet.tail() {
                        self.highest = tail.highest;
                    }
                }
                Effect::Own(ClientOwn::Complete(done)) => self.done.push(*done),
                Effect::Own(ClientOwn::Closed { reason }) => self.closed.push(*reason),
                Effect::Own(ClientOwn::LateStamp(stamp)) => self.late.push(*stamp),
                Effect::Own(ClientOwn::Opened { .. }) | Effect::Persist { .. } | Effect::Erase { .. } => {}
            }
        }
        self.effects.clear();
        result
    }

    fn submit(&mut self, kind: RequestKind, mode: Mode) -> Result<SeqNum, SubmitError> {
        self.act(|client, now, effects| client.submit(now, Request { kind, mode, ..read() }, effects))
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.act(|client, now, effects| {
            client.on_message(now, server_address(), client_address(), bytes, effects);
        });
    }

    fn server_says(&mut self, header: &Header, tail: &Tail) {
        self.receive(&packet(header, tail, &[], &session_keys(1).server_to_client));
    }

    fn respond(&mut self, seq: u64) {
        self.server_says(&header(Kind::Response, 1, seq), &Tail::Response(ResponseTail::default()));
    }

    fn respond_in(&mut self, epoch: u32, seq: u64) {
        let header = Header { epoch: Epoch(epoch), ..header(Kind::Response, 1, seq) };
        self.server_says(&header, &Tail::Response(ResponseTail::default()));
    }

    fn stable(&mut self, seq: u64) {
        self.server_says(&header(Kind::ServerAck, 1, seq), &Tail::Empty);
    }

    fn acknowledge(&mut self, device: u16, boot_epoch: u32, seq: u64) {
        let header = Header { granted: Durability::Ram, ..header(Kind::PersistAck, 1, seq) };
        let stamp = Stamp { device: DeviceId(device), ..order(boot_epoch, seq, 0) };
        self.receive(&packet(&header, &Tail::Stamp(stamp), &[], &session_keys(1).device_to_client));
    }

    fn close_reason(&mut self, seq: u64, reason: CloseReason) {
        self.server_says(&header(Kind::SessionClose, 1, seq), &Tail::Close(CloseTail { reason }));
    }

    /// Time goes by, alarm by alarm.
    fn pass(&mut self, span: Nanos) {
        let end = self.now.plus(span);
        for _ in 0..10_000 {
            let Some(at) = self.client.next_timer().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at);
            self.act(Client::on_timer);
        }
        panic!("the alarms do not end");
    }

    fn take_sent(&mut self) -> Vec<Header> {
        std::mem::take(&mut self.sent).into_iter().map(|(_, header)| header).collect()
    }

    /// The kinds and numbers of what it sent since the last look.
    fn take_numbers(&mut self) -> Vec<(Kind, u64)> {
        self.take_sent().into_iter().map(|header| (header.kind, header.seq_num.0)).collect()
    }

    /// Who completed which requests so far.
    fn done(&self) -> Vec<(u64, CompletedBy)> {
        self.done.iter().map(|done| (done.seq.0, done.answered_by)).collect()
    }

    fn counters(&self) -> ClientCounters {
        *self.client.counters()
    }

    fn refused(&self) -> u64 {
        self.counters().refused.iter().sum()
    }
}

fn read() -> Request<'static> {
    Request {
        kind: Read,
        mode: Covered,
        fixed_reply: false,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(0),
        payload: b"x",
    }
}

#[test]
fn an_opening_is_tried_open_tries_max_times_each_after_twice_the_wait() {
    let mut bench = ClientBench::new(|config| config.open_tries_max = 4);
    bench.act(Client::open);
    bench.act(Client::open);
    assert_eq!(bench.sent.len(), 1, "it opens once");
    bench.pass(Nanos::from_secs(10));
    assert_eq!((bench.sent.len(), &bench.closed[..]), (4, &[ClosedReason::Unreachable][..]));
    for (tries, pair) in bench.sent.windows(2).enumerate() {
        let (least, wait) = (Nanos::from_millis(4 << tries).0, pair[1].0.since(pair[0].0).0);
        assert!((least..least + least / 4).contains(&wait), "{wait} ns after try {tries}");
    }
    assert!(bench.client.is_closed() && !bench.client.is_open() && bench.client.next_timer().is_none());
}

#[test]
fn a_session_opens_on_its_own_acceptance_with_the_smaller_window() {
    let accepted = |number: u64, window| {
        let tail =
            AcceptTail { client_nonce: nonce(number), server_nonce: [9; 16], window, expiry_ms: 1_000 };
        let key = cluster().control(Direction::Handshake);
        packet(&header(Kind::SessionAccept, number, 0), &Tail::Accept(tail), &[], &key)
    };
    let mut bench = ClientBench::new(|config| config.window_asked = 5);
    bench.act(Client::open);
    for (number, window) in [(2, 8), (1, 0)] {
        bench.receive(&accepted(number, window));
        assert!(!bench.client.is_open() && bench.client.session().is_none());
    }
    assert_eq!((bench.counters().foreign, bench.counters().heartbeats), (2, 0));
    assert_eq!(bench.submit(Read, Covered), Err(SubmitError::NotOpen));
    bench.sent.clear();
    bench.receive(&accepted(1, 8));
    assert_eq!((bench.client.session(), bench.client.credit()), (Some(SessionId(1)), 5));
    assert_eq!(bench.take_numbers(), [(Kind::Heartbeat, 0)], "which proves that it has the keys");
    bench.receive(&accepted(1, 3));
    assert_eq!((bench.client.credit(), bench.counters().foreign), (5, 2), "a repetition changes nothing");
    assert_eq!(bench.client.client_nonce(), &nonce(1));
}

#[test]
fn the_window_counts_what_is_kept() {
    let mut bench = ClientBench::open(|_| {});
    for seq in 1..=u64::from(WINDOW) {
        assert_eq!(bench.submit(Update, Early), Ok(SeqNum(seq)));
    }
    assert_eq!(bench.submit(Read, Covered), Err(SubmitError::WindowFull));
    let numbers = |client: &Client| (client.credit(), client.outstanding(), client.kept());
    assert_eq!(numbers(&bench.client), (0, 8, 8));
    assert_eq!((bench.counters().submitted, bench.counters().completed), (8, 0));
    bench.acknowledge(1, 1, 1);
    bench.acknowledge(1, 1, 2);
    bench.acknowledge(1, 1, 4);
    assert_eq!(numbers(&bench.client), (0, 6, 8), "complete and not stable, and in the session's order");
    bench.stable(2);
    assert_eq!(numbers(&bench.client), (2, 6, 6));
    assert_eq!(bench.submit(Read, Covered), Ok(SeqNum(9)));
}

#[test]
fn a_request_may_be_as_large_as_its_packets_and_no_larger() {
    let keys = [KeyHash(7); FURTHER_KEYS_MAX + 1];
    let with = |count: usize| Extensions { further_keys: &keys[..count], ..Extensions::NONE };
    let one_packet = |count: usize| PAYLOAD_BYTES_MAX - with(count).bytes();
    let cases = [
        (0, REQUEST_BYTES_MAX, true),
        (0, REQUEST_BYTES_MAX + 1, false),
        (1, one_packet(1), true),
        (1, one_packet(1) + 1, false),
        (FURTHER_KEYS_MAX, 1, true),
        (FURTHER_KEYS_MAX + 1, 1, false),
    ];
    for (key_count, bytes, taken) in cases {
        let mut bench = ClientBench::new(|_| {});
        bench.act(Client::open);
        let mut accepted = header(Kind::SessionAccept, 1, 0);
        accepted.set_offered(ExtensionSet::ALL);
        let tail = AcceptTail { client_nonce: nonce(1), server_nonce: [9; 16], window: 8, expiry_ms: 1_000 };
        bench.receive(&packet(&accepted, &Tail::Accept(tail), &[], &cluster().control(Direction::Handshake)));
        let payload = vec![0; bytes];
        let request = Request { payload: &payload, ..read() };
        let result =
            bench.act(|client, now, effects| client.submit_extended(now, request, &with(key_count), effects));
        let expected = if taken { Ok(SeqNum(1)) } else { Err(ExtendedError::Submit(SubmitError::TooLarge)) };
        assert_eq!(result, expected, "{key_count} keys and {bytes} bytes");
    }
}

/// What of a request its header says.
#[test]
fn a_header_says_what_its_kind_of_request_can_mean() {
    let all = Request { mode: Early, relaxed: true, traced: true, key_hash: KeyHash(6), ..read() };
    for (kind, wire, flags, asked, acks) in [
        (Update, Kind::Update, Flags::EARLY.with(Flags::TRACED), Durability::Ram, 1),
        (Read, Kind::Read, Flags::RELAXED.with(Flags::TRACED), Durability::None, 0),
        (Bypass, Kind::Bypass, Flags::TRACED, Durability::None, 0),
    ] {
        let mut bench = ClientBench::open(|_| {});
        let taken = bench.act(|client, now, effects| client.submit(now, Request { kind, ..all }, effects));
        assert_eq!(taken, Ok(SeqNum(1)));
        bench.pass(Nanos::from_millis(26));
        let expected =
            Header { flags, asked, device_acks_asked: acks, key_hash: KeyHash(6), ..header(wire, 1, 1) };
        let again = Header { flags: flags.with(Flags::AGAIN), ..expected };
        assert_eq!(bench.take_sent(), [expected, again], "{kind:?}");
        assert_eq!(kind.writes(), kind != Read);
    }
    let mut bench = ClientBench::open(|_| {});
    bench.submit(Read, Covered).expect("the window is open");
    bench.respond(1);
    bench.sent.clear();
    bench.submit(Update, Covered).expect("the window is open");
    assert_eq!(bench.take_sent()[0].completed, SeqNum(1));
}

#[test]
fn a_request_is_sent_again_each_time_after_twice_the_wait_until_it_is_answered() {
    let mut bench = ClientBench::open(|_| {});
    bench.submit(Update, Covered).expect("the window is open");
    bench.pass(Nanos::from_millis(400));
    let times: Vec<Nanos> = bench.sent.iter().map(|(at, _)| *at).collect();
    for (tries, pair) in times.windows(2).enumerate() {
        let (least, wait) = (GUESS.0 << tries, pair[1].since(pair[0]).0);
        assert!((least..least + least / 4).contains(&wait), "{wait} ns after try {tries}");
    }
    assert_eq!((times.len(), bench.counters().retransmitted), (5, 4));
    bench.acknowledge(1, 1, 1);
    bench.respond(1);
    bench.sent.clear();
    // Complete and not stable: much later, lest a device has lost it.
    bench.pass(Nanos::from_millis(999));
    assert_eq!(bench.sent, []);
    bench.pass(Nanos::from_millis(252));
    assert_eq!(bench.take_numbers(), [(Kind::Update, 1)]);
    bench.stable(1);
    bench.pass(Nanos::from_secs(60));
    assert_eq!(bench.sent, []);
}

/// Only what was sent once says how long the way is, and only an answer that nothing held up.
#[test]
fn the_wait_follows_the_answers_that_tell_of_the_way() {
    let eight = Nanos::from_millis(8);
    // (request, whether a device answers and not the server, whether it was sent again, whether it counts)
    for (kind, mode, by_device, again, counts) in [
        (Read, Covered, false, false, true),
        (Update, Covered, false, false, true),
        (Update, Early, true, false, true),
        (Update, Early, false, false, false),
        (Update, Covered, true, false, false),
        (Bypass, Covered, false, false, false),
        (Read, Covered, false, true, false),
        (Update, Early, true, true, false),
    ] {
        let mut bench = ClientBench::open(|_| {});
        bench.submit(kind, mode).expect("the window is open");
        bench.now = bench.now.plus(eight);
        if again {
            let range = RangeTail { first: 1, last: 1, boot_epoch: scotfree_core::BootEpoch(0) };
            bench.server_says(&header(Kind::Retransmit, 1, 0), &Tail::Range(range));
        }
        if by_device {
            bench.acknowledge(1, 1, 1);
        } else {
            bench.respond(1);
        }
        bench.stable(1);
        let seq = bench.submit(Read, Covered).expect("the window is open");
        bench.pass(Nanos::from_millis(31));
        let times = bench.sent.iter().filter(|(_, header)| header.seq_num == seq).map(|(at, _)| *at);
        let times: Vec<Nanos> = times.collect();
        let wait = times[1].since(times[0]).0;
        // Measured once, the way takes what it took, give or take twice as much.
        let least = if counts { 3 * eight.0 } else { GUESS.0 };
        let case = format!("{kind:?} {mode:?} {by_device} {again}");
        assert!((least..least + least / 4).contains(&wait), "{case}: {wait} ns");
    }
}

#[test]
fn a_tick_sends_burst_max_again_and_the_rest_with_the_next() {
    let mut bench = ClientBench::open(|config| config.burst_max = 2);
    for _ in 0..5 {
        bench.submit(Read, Covered).expect("the window is open");
    }
    bench.sent.clear();
    bench.now = bench.now.plus(Nanos::from_millis(26));
    for expected in [&[1, 2][..], &[3, 4][..], &[5][..]] {
        bench.act(Client::on_timer);
        let expected: Vec<_> = expected.iter().map(|seq| (Kind::Read, *seq)).collect();
        assert_eq!(bench.take_numbers(), expected);
        assert!(bench.client.next_timer() > Some(bench.now), "what was sent is not due");
        bench.now = bench.now.plus(Nanos::from_millis(4));
    }
}

#[test]
fn nothing_is_sent_while_the_server_is_busy_but_for_rto_max_at_most() {
    for (backoff, waits) in [(Nanos::from_millis(100), 100), (Nanos::from_secs(9), 500)] {
        let mut bench = ClientBench::open(|_| {});
        bench.submit(Read, Covered).expect("the window is open");
        bench.sent.clear();
        let busy = Tail::Busy(BusyTail { backoff });
        bench.server_says(&header(Kind::Busy, 1, 0), &busy);
        bench.server_says(&header(Kind::Busy, 1, 0), &Tail::Busy(BusyTail { backoff: Nanos(1) }));
        bench.submit(Read, Covered).expect("the window is open");
        bench.pass(Nanos(Nanos::from_millis(waits).0 - 1));
        assert_eq!(bench.sent, [], "before {waits} ms");
        bench.pass(Nanos(1));
        assert_eq!(bench.take_numbers(), [(Kind::Read, 1), (Kind::Read, 2)]);
        assert_eq!((bench.counters().busy, bench.counters().retransmitted), (2, 1));
        bench.submit(Read, Covered).expect("the window is open");
        assert_eq!(bench.take_numbers(), [(Kind::Read, 3)]);
    }
}

#[test]
fn heartbeats_come_soon_while_anything_is_kept_and_seldom_while_not() {
    let (soon, seldom) = (Nanos::from_millis(3), Nanos::from_millis(100));
    let mut bench = ClientBench::open(|config| {
        (config.heartbeat_interval, config.idle_interval) = (soon, seldom);
    });
    assert_eq!(bench.client.next_timer(), Some(NOW.plus(seldom)));
    bench.submit(Update, Early).expect("the window is open");
    bench.now = NOW.plus(Nanos::from_millis(2));
    bench.submit(Update, Early).expect("the window is open");
    assert_eq!(bench.client.next_timer(), Some(NOW.plus(soon)), "a further request puts it off no longer");
    bench.acknowledge(1, 1, 1);
    bench.sent.clear();
    bench.pass(Nanos::from_millis(1));
    let beat = bench.take_sent();
    assert_eq!((beat[0].kind, beat[0].completed, beat.len()), (Kind::Heartbeat, SeqNum(1), 1));
    assert_eq!(bench.highest, SeqNum(2));
    bench.acknowledge(1, 1, 2);
    bench.stable(2);
    bench.pass(soon);
    assert_eq!(bench.counters().heartbeats, 3);
    bench.pass(Nanos(seldom.0 - 1));
    assert_eq!(bench.counters().heartbeats, 3, "nothing is kept any more");
    bench.pass(Nanos(1));
    assert_eq!(bench.counters().heartbeats, 4);
}

/// What makes a request complete (rule 8).
#[test]
fn a_request_is_complete_when_its_kind_and_mode_say_so() {
    let by_device = Device(DeviceId(1));
    // (request, whether its caller knows the reply; what has come: acknowledged, answered, stable; who completed it)
    for (kind, mode, fixed, acknowledged, answered, stable, by) in [
        (Update, Early, true, true, false, false, Some(by_device)),
        (Update, Early, true, true, true, false, Some(by_device)),
        (Update, Early, true, false, true, false, None),
        (Update, Early, true, false, true, true, Some(Server)),
        (Update, Early, true, false, false, true, Some(ServerAck)),
        (Update, Covered, false, true, false, false, None),
        (Update, Covered, false, false, true, false, None),
        (Update, Covered, false, true, true, false, Some(Server)),
        (Update, Covered, false, false, true, true, Some(Server)),
        (Update, Covered, false, false, false, true, None),
        (Update, Covered, true, false, false, true, Some(ServerAck)),
        (Update, Covered, true, true, false, false, None),
        (Read, Covered, false, false, true, false, Some(Server)),
        (Read, Covered, true, false, false, true, None),
        (Bypass, Early, true, true, false, true, None),
        (Bypass, Covered, false, false, true, false, Some(Server)),
    ] {
        let mut bench = ClientBench::open(|_| {});
        let request = Request { kind, mode, fixed_reply: fixed, ..read() };
        bench.act(|client, now, effects| client.submit(now, request, effects)).expect("the window is open");
        if answered && !acknowledged {
            bench.respond(1);
        }
        if stable {
            bench.stable(1);
        }
        if acknowledged {
            bench.acknowledge(1, 1, 1);
        }
        if answered && acknowledged {
            bench.respond(1);
        }
        let case = format!("{kind:?} {mode:?} {fixed} {acknowledged} {answered} {stable}");
        assert_eq!(bench.done(), by.map(|by| (1, by)).into_iter().collect::<Vec<_>>(), "{case}");
        assert_eq!(bench.counters().completed_early, u64::from(by == Some(by_device)), "{case}");
        let lacked = kind == Update && !acknowledged && by.is_some();
        assert_eq!(bench.counters().completed_stable, u64::from(lacked), "{case}");
        assert_eq!(bench.counters().device_acks, u64::from(acknowledged && kind == Update), "{case}");
    }
}

#[test]
fn an_update_that_asks_for_no_durability_is_complete_and_forgotten_with_its_answer() {
    let mut bench = ClientBench::open(|config| config.asked = Durability::None);
    bench.submit(Update, Covered).expect("the window is open");
    bench.respond(1);
    assert_eq!((bench.done(), bench.client.kept()), (vec![(1, Server)], 0));
    assert_eq!(bench.counters().completed_stable, 0);
}

#[test]
fn as_many_distinct_devices_acknowledge_as_were_asked() {
    for (asked, devices, complete) in [
        (2, &[1, 1][..], false),
        (2, &[1, 2][..], true),
        (3, &[1, 2, 1, 2][..], false),
        (1, &[1][..], true),
        (0, &[][..], false),
        (0, &[1][..], true),
    ] {
        let mut bench = ClientBench::open(|config| config.device_acks_asked = asked);
        bench.submit(Update, Early).expect("the window is open");
        for device in devices {
            bench.acknowledge(*device, 1, 1);
        }
        assert_eq!(bench.done.len(), usize::from(complete), "{asked} of {devices:?}");
    }
}

#[test]
fn an_acknowledgement_that_grants_too_little_counts_for_nothing() {
    let mut bench = ClientBench::open(|config| config.asked = Durability::Disk);
    bench.submit(Update, Early).expect("the window is open");
    bench.acknowledge(1, 1, 1);
    assert_eq!((bench.done.len(), bench.counters().device_acks), (0, 0));
}

/// A device that comes back under a new boot epoch may have lost what it acknowledged (rule 12).
#[test]
fn what_is_not_stable_is_sent_again_when_a_device_comes_back() {
    for (device, boot_epoch, again) in [(1, 5, false), (1, 4, false), (2, 9, false), (1, 6, true)] {
        let mut bench = ClientBench::open(|_| {});
        bench.submit(Update, Early).expect("the window is open");
        bench.submit(Read, Covered).expect("the window is open");
        bench.submit(Update, Early).expect("the window is open");
        bench.acknowledge(1, 5, 1);
        bench.sent.clear();
        bench.acknowledge(device, boot_epoch, 1);
        bench.pass(Nanos(0));
        let expected = if again { vec![(Kind::Update, 1), (Kind::Update, 3)] } else { Vec::new() };
        assert_eq!(bench.take_numbers(), expected, "device {device} of boot {boot_epoch}");
        bench.acknowledge(device, boot_epoch, 1);
        bench.pass(Nanos(0));
        assert_eq!(bench.sent, [], "it is noticed once");
    }
}

/// Three reads are complete and forgotten, five stand, and a tick sends three.
#[test]
fn what_the_server_misses_is_sent_at_once_and_fillers_for_what_is_forgotten() {
    for (first, last, filler, again) in [
        (1, 2, Some((1, 2)), &[][..]),
        (3, 3, Some((3, 3)), &[][..]),
        (2, 6, Some((2, 3)), &[4, 5, 6][..]),
        (0, 4, None, &[4][..]),
        (4, 4, None, &[4][..]),
        (5, 99, None, &[5, 6, 7][..]),
        (9, 12, None, &[][..]),
    ] {
        let mut bench = ClientBench::open(|config| config.burst_max = 3);
        for seq in 1..=8 {
            bench.submit(Read, Covered).expect("the window is open");
            if seq <= 3 {
                bench.respond(seq);
            }
        }
        bench.sent.clear();
        let range = RangeTail { first, last, boot_epoch: scotfree_core::BootEpoch(0) };
        bench.server_says(&header(Kind::Retransmit, 1, 0), &Tail::Range(range));
        let sent = bench.take_sent();
        let (fillers, requests): (Vec<Header>, Vec<Header>) =
            sent.into_iter().partition(|header| header.flags.has(Flags::SKIP));
        let fillers: Vec<_> =
            fillers.iter().map(|filler| (filler.skip_first().0, filler.seq_num.0)).collect();
        let requests: Vec<_> = requests.iter().map(|request| request.seq_num.0).collect();
        let expected: Vec<_> = filler.into_iter().collect();
        assert_eq!((fillers, &requests[..]), (expected, again), "{first} to {last}");
    }
}

/// Behind an update that is not stable; nobody is to execute them again.
#[test]
fn a_request_whose_answer_is_there_is_passed_over() {
    for kind in [Read, Bypass] {
        let mut bench = ClientBench::open(|_| {});
        bench.submit(Update, Early).expect("the window is open");
        bench.submit(kind, Covered).expect("the window is open");
        bench.acknowledge(1, 1, 1);
        bench.respond(2);
        bench.sent.clear();
        let range = RangeTail { first: 1, last: 2, boot_epoch: scotfree_core::BootEpoch(0) };
        bench.server_says(&header(Kind::Retransmit, 1, 0), &Tail::Range(range));
        let sent = bench.take_sent();
        assert_eq!((sent[0].kind, sent[0].flags.has(Flags::SKIP)), (Kind::Update, false));
        assert_eq!((sent[1].kind, sent[1].flags.has(Flags::SKIP)), (Kind::Read, true), "{kind:?}");
        assert_eq!(sent[1].skip_first(), SeqNum(2));
    }
}

/// Until its elder is complete, an answer of a function is there for good, and one of the server's may be outdated.
#[test]
fn a_read_that_waits_for_its_elder_is_passed_over_if_a_function_answered_it() {
    let function = Answerer::device(DeviceId(4), Family::Trial);
    let keys = session_keys(1);
    for (answered_by, key, skipped) in
        [(function, keys.device_to_client, true), (Answerer::SERVER, keys.server_to_client, false)]
    {
        let mut bench = ClientBench::open(|_| {});
        bench.submit(Read, Covered).expect("the window is open");
        bench.submit(Read, Covered).expect("the window is open");
        let tail = Tail::Response(ResponseTail { answered_by, ..ResponseTail::default() });
        bench.receive(&packet(&header(Kind::Response, 1, 2), &tail, b"", &key));
        bench.sent.clear();
        let range = RangeTail { first: 2, last: 2, boot_epoch: scotfree_core::BootEpoch(0) };
        bench.server_says(&header(Kind::Retransmit, 1, 0), &Tail::Range(range));
        assert_eq!(bench.take_sent()[0].flags.has(Flags::SKIP), skipped);
        bench.close_reason(2, CloseReason::ReplyGone);
        assert_eq!(bench.client.is_closed(), !skipped, "nobody wants it of the server");
    }
}

/// A read that an older incarnation of the server answered may show an older state than one before it.
#[test]
fn a_read_of_an_older_server_behind_one_of_a_newer_is_asked_again() {
    let mut bench = ClientBench::open(|_| {});
    for kind in [Read, Read, Bypass, Read] {
        bench.submit(kind, Covered).expect("the window is open");
    }
    bench.respond_in(1, 2);
    bench.respond_in(1, 3);
    bench.respond_in(2, 4);
    bench.sent.clear();
    bench.respond_in(2, 1);
    assert_eq!(bench.done(), [(1, Server)]);
    bench.pass(Nanos(0));
    assert_eq!(bench.take_numbers(), [(Kind::Read, 2)], "at once");
    bench.respond_in(2, 2);
    assert_eq!(bench.done().len(), 4, "a write's answer is as old as it is");
}

#[test]
fn a_device_that_answered_for_an_older_server_is_not_asked_again_at_once() {
    let mut bench = ClientBench::open(|_| {});
    bench.submit(Read, Covered).expect("the window is open");
    bench.submit(Read, Covered).expect("the window is open");
    let answered_by = Answerer::device(DeviceId(4), Family::Trial);
    let tail = Tail::Response(ResponseTail { answered_by, ..ResponseTail::default() });
    bench.receive(&packet(&header(Kind::Response, 1, 2), &tail, b"", &session_keys(1).device_to_client));
    bench.respond_in(2, 1);
    bench.sent.clear();
    bench.pass(Nanos::from_millis(3));
    assert_eq!(bench.sent, []);
    bench.pass(Nanos::from_millis(30));
    assert_eq!(bench.take_numbers()[0], (Kind::Read, 2));
}

#[test]
fn a_second_answer_changes_nothing() {
    let mut bench = ClientBench::open(|_| {});
    bench.submit(Read, Covered).expect("the window is open");
    bench.submit(Read, Covered).expect("the window is open");
    bench.respond_in(1, 2);
    bench.server_says(
        &Header { flags: Flags::FAILED, ..header(Kind::Response, 1, 2) },
        &Tail::Response(ResponseTail::default()),
    );
    bench.respond(1);
    bench.respond(1);
    let failed: Vec<_> = bench.done.iter().map(|done| (done.seq.0, done.failed)).collect();
    assert_eq!((failed, bench.refused()), (vec![(1, false), (2, false)], 0));
    assert_eq!(bench.counters().completed, 2);
}

#[test]
fn a_session_is_closed_when_all_is_stable_and_that_is_said_until_it_is_answered() {
    let mut bench = ClientBench::open(|config| config.open_tries_max = 3);
    bench.submit(Update, Early).expect("the window is open");
    bench.acknowledge(1, 1, 1);
    bench.sent.clear();
    bench.act(Client::close);
    assert_eq!(bench.submit(Read, Covered), Err(SubmitError::Closed));
    assert_eq!((bench.take_numbers(), bench.client.is_open()), (Vec::new(), false));
    bench.stable(1);
    assert_eq!(bench.take_numbers(), [(Kind::SessionClose, 1)]);
    bench.stable(1);
    bench.act(Client::close);
    assert_eq!(bench.take_numbers(), [], "it is said again at its time only");
    bench.pass(Nanos::from_secs(1));
    assert_eq!(bench.take_numbers(), [(Kind::SessionClose, 1); 2]);
    assert_eq!(bench.closed, [ClosedReason::Finished], "the server lets it expire");
}

#[test]
fn what_never_opened_is_closed_at_once() {
    let mut bench = ClientBench::new(|_| {});
    bench.act(Client::open);
    bench.act(Client::close);
    bench.act(Client::close);
    assert_eq!(bench.closed, [ClosedReason::Finished]);
    assert_eq!(bench.submit(Read, Covered), Err(SubmitError::Closed));
    bench.receive(&accept(1, 8));
    assert!(bench.client.is_closed(), "nothing is heard any more");
}

/// What the word of a server that the session ends means, by whether the client has asked for it and whether
/// anything is kept.
#[test]
fn a_close_ends_a_session_if_its_reason_says_so() {
    let ended = |reason| Some(ClosedReason::Server(reason));
    let finished = Some(ClosedReason::Finished);
    for (reason, closing, kept, expected) in [
        (CloseReason::ByClient, false, false, None),
        (CloseReason::ByClient, false, true, None),
        (CloseReason::ByClient, true, true, None),
        (CloseReason::ByClient, true, false, finished),
        (CloseReason::UnknownSession, true, false, finished),
        (CloseReason::UnknownSession, true, true, ended(CloseReason::UnknownSession)),
        (CloseReason::UnknownSession, false, false, ended(CloseReason::UnknownSession)),
        (CloseReason::Expire, false, true, ended(CloseReason::Expire)),
        (CloseReason::ServerFailed, true, true, ended(CloseReason::ServerFailed)),
    ] {
        let mut bench = ClientBench::open(|_| {});
        if kept {
            bench.submit(Update, Early).expect("the window is open");
        }
        if closing {
            bench.act(Client::close);
        }
        bench.close_reason(0, reason);
        let case = format!("{reason:?} {closing} {kept}");
        assert_eq!(bench.closed, expected.into_iter().collect::<Vec<_>>(), "{case}");
        assert_eq!(bench.client.is_closed(), expected.is_some(), "{case}");
    }
}

#[test]
fn a_reply_that_is_gone_ends_the_session_only_while_it_is_wanted() {
    for (seq, ends) in [(1, false), (2, false), (3, true), (4, false)] {
        let mut bench = ClientBench::open(|_| {});
        bench.submit(Update, Early).expect("the window is open");
        bench.submit(Read, Covered).expect("the window is open");
        bench.submit(Read, Covered).expect("the window is open");
        bench.acknowledge(1, 1, 1);
        bench.respond(2);
        bench.close_reason(seq, CloseReason::ReplyGone);
        let expected = ends.then_some(ClosedReason::Server(CloseReason::ReplyGone));
        assert_eq!(bench.closed, expected.into_iter().collect::<Vec<_>>(), "of request {seq}");
    }
}

/// A server without the session's keys speaks under the cluster's: that counts for this opening, or for this
/// session that it does not know.
#[test]
fn a_close_without_keys_counts_only_for_the_session_that_it_names() {
    let said = |id: u64, number: u64, reason| {
        let tail = Tail::Close(CloseTail { reason });
        let key = cluster().control(Direction::Handshake);
        packet(&header(Kind::SessionClose, id, 0), &tail, &nonce(number), &key)
    };
    let (no_room, unknown) = (CloseReason::NoRoom, CloseReason::UnknownSession);
    for (open, id, number, reason, ends) in [
        (false, 0, 1, no_room, true),
        (false, 0, 2, no_room, false),
        (false, 0, 2, unknown, false),
        (true, 0, 1, no_room, false),
        (true, 1, 1, unknown, true),
        (true, 2, 1, unknown, false),
        (true, 1, 1, no_room, false),
    ] {
        let mut bench = ClientBench::new(|_| {});
        bench.act(Client::open);
        if open {
            bench.receive(&accept(1, 8));
        }
        bench.receive(&said(id, number, reason));
        let case = format!("open {open}, session {id}, nonce {number}, {reason:?}");
        assert_eq!((bench.client.is_closed(), bench.counters().foreign), (ends, u64::from(!ends)), "{case}");
    }
}

#[test]
fn what_is_not_for_this_session_or_for_no_client_is_foreign_and_what_is_not_authentic_refused() {
    let mut bench = ClientBench::open(|_| {});
    let key = session_keys(1).server_to_client;
    for (count, kind, id, tail) in [
        (1, Kind::Response, 2, Tail::Response(ResponseTail::default())),
        (2, Kind::Update, 1, Tail::Stamp(Stamp::default())),
        (3, Kind::SessionOpen, 1, open_tail()),
    ] {
        bench.receive(&packet(&header(kind, id, 1), &tail, &[], &key));
        assert_eq!((bench.counters().foreign, bench.refused()), (count, 0), "{kind:?}");
    }
    let wrong = Key::from_bytes([0; 16]);
    bench.submit(Update, Early).expect("the window is open");
    for (count, kind, tail) in [
        (1, Kind::PersistAck, Tail::Stamp(order(1, 1, 0))),
        (2, Kind::Response, Tail::Response(ResponseTail::default())),
        (3, Kind::ServerAck, Tail::Empty),
        (
            4,
            Kind::Heartbeat,
            Tail::Heartbeat(HeartbeatTail { stable: SeqNum(1), ..HeartbeatTail::default() }),
        ),
        (5, Kind::Busy, Tail::Busy(BusyTail { backoff: Nanos(1) })),
        (6, Kind::SessionClose, Tail::Close(CloseTail { reason: CloseReason::Expire })),
    ] {
        bench.receive(&packet(&header(kind, 1, 1), &tail, &[], &wrong));
        assert_eq!(bench.counters().refused[WireError::BadMac as usize], count, "{kind:?}");
    }
    assert_eq!((bench.done.len(), bench.counters().busy, bench.client.is_open()), (0, 0, true));
}

fn open_tail() -> Tail {
    Tail::Open(OpenTail { client_nonce: nonce(1), window_asked: 1, key_epoch: KeyEpoch(0) })
}

#[test]
fn a_heartbeat_says_what_is_stable_and_brings_late_stamps() {
    let mut bench = ClientBench::open(|_| {});
    bench.submit(Update, Early).expect("the window is open");
    let stamps = [1, 2].map(|seq| LateStamp { seq: SeqNum(seq), sent: Nanos(10 * seq) });
    let mut payload = Vec::new();
    for stamp in &stamps {
        stamp.write(&mut payload);
    }
    let tail = Tail::Heartbeat(HeartbeatTail { stable: SeqNum(1), ..HeartbeatTail::default() });
    let beat = header(Kind::Heartbeat, 1, 0);
    bench.receive(&packet(&beat, &tail, &payload, &session_keys(1).server_to_client));
    assert_eq!((&bench.late[..], bench.done()), (&stamps[..], vec![(1, ServerAck)]));
}

#[test]
fn a_session_ends_with_the_epoch_of_its_keys() {
    let newer = ClusterKey::from_epochs(vec![(KeyEpoch(5), [4; 32])]).expect("one is enough");
    let both =
        ClusterKey::from_epochs(vec![(KeyEpoch(0), [3; 32]), (KeyEpoch(5), [4; 32])]).expect("they grow");
    let mut bench = ClientBench::open(|_| {});
    bench.act(|client, _, effects| client.set_cluster_key(both, effects));
    assert_eq!(bench.closed, []);
    for _ in 0..2 {
        bench.act(|client, _, effects| client.set_cluster_key(newer.clone(), effects));
        assert_eq!(bench.closed, [ClosedReason::KeyRemoved], "once");
    }
    let mut bench = ClientBench::new(|_| {});
    bench.act(Client::open);
    bench.act(|client, _, effects| client.set_cluster_key(newer, effects));
    assert_eq!(bench.closed, [], "it has no keys yet, and asks for some under the new epoch");
}

#[test]
fn no_more_buffers_are_kept_than_requests_can_be() {
    let mut bench = ClientBench::open(|_| {});
    for round in 0..3 {
        for _ in 0..WINDOW {
            bench.submit(Read, Covered).expect("the window is open");
        }
        for seq in 1..=u64::from(WINDOW) {
            bench.respond(round * u64::from(WINDOW) + seq);
        }
    }
    assert_eq!(bench.client.spare.len(), WINDOW as usize);
}

#[test]
fn packets_go_from_the_client_to_the_server() {
    let mut client = Client::new(ClientConfig::new(address(7), address(8), cluster(), nonce(1), 1));
    let mut effects = Effects::new();
    client.open(NOW, &mut effects);
    let ways: Vec<_> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Send { from, to, .. } => Some((*from, *to)),
            _ => None,
        })
        .collect();
    assert_eq!(ways, [Some((address(7), address(8)))]);
}
