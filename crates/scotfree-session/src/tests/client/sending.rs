//! When a client opens, what it sends, and when it sends it again.

use super::*;

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
