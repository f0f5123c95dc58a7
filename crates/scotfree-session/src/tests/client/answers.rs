//! What completes a request, and what is told of it to whom.

use super::*;

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

/// Which elders an early update waits for (rule 8).
#[test]
fn an_early_update_overtakes_what_cannot_be_lost_and_nothing_else() {
    let by_device = Device(DeviceId(1));
    // (elder, whether it is acknowledged, answered, stable; whether the update behind it completes)
    for (kind, mode, acknowledged, answered, stable, overtakes) in [
        (Read, Covered, false, false, false, true),
        (Update, Covered, true, false, false, true),
        (Update, Covered, false, false, false, false),
        (Update, Covered, false, true, false, false),
        (Update, Covered, false, false, true, true),
        (Bypass, Covered, false, false, false, false),
        (Bypass, Covered, false, false, true, true),
        (Update, Early, false, false, false, false),
    ] {
        for early_overtakes in [true, false] {
            let mut bench = ClientBench::open(|config| config.early_overtakes = early_overtakes);
            bench.submit(kind, mode).expect("the window is open");
            bench.submit(Update, Early).expect("the window is open");
            if acknowledged {
                bench.acknowledge(1, 1, 1);
            }
            if answered {
                bench.respond(1);
            }
            if stable {
                bench.stable(1);
            }
            bench.acknowledge(1, 1, 2);
            let case = format!("{early_overtakes} {kind:?} {mode:?} {acknowledged} {answered} {stable}");
            let expected = if overtakes && early_overtakes { vec![(2, by_device)] } else { vec![] };
            assert_eq!(bench.done(), expected, "{case}");
            assert_eq!(bench.client.outstanding(), 2, "the elder is not complete: {case}");
        }
    }
}

/// What was overtaken completes afterwards, in its order, and what overtook does not complete again.
#[test]
fn what_was_overtaken_completes_later_and_once() {
    let mut bench = ClientBench::open(|config| config.early_overtakes = true);
    for (kind, mode) in
        [(Read, Covered), (Update, Early), (Read, Covered), (Update, Covered), (Update, Early)]
    {
        bench.submit(kind, mode).expect("the window is open");
    }
    for seq in [2, 4, 5] {
        bench.acknowledge(1, 1, seq);
    }
    let early: Vec<u64> = bench.done().iter().map(|(seq, _)| *seq).collect();
    assert_eq!(early, [2, 5]);
    for seq in [4, 3, 1] {
        bench.respond(seq);
    }
    let all: Vec<u64> = bench.done().iter().map(|(seq, _)| *seq).collect();
    assert_eq!(all, [2, 5, 1, 3, 4]);
    assert_eq!((bench.client.outstanding(), bench.client.kept()), (0, 4));
    bench.stable(5);
    assert_eq!((bench.done().len(), bench.client.kept()), (5, 0));
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
