//! How a session ends, and what is none of this client's business.

use super::*;

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

#[test]
fn an_abandoned_session_ends_at_once_and_says_nothing_more() {
    let mut bench = ClientBench::open(|_| {});
    assert_eq!(bench.client.server_epoch(), Some(Epoch(1)));
    bench.submit(Update, Covered).expect("the window is open");
    bench.take_sent();
    for _ in 0..2 {
        bench.act(|client, _, effects| client.abandon(effects));
        assert_eq!(bench.closed, [ClosedReason::Unreachable], "once");
    }
    bench.pass(Nanos::from_secs(60));
    bench.respond(1);
    assert_eq!((bench.take_sent().len(), bench.done()), (0, vec![]));
    let opening = ClientBench::new(|_| {});
    assert_eq!(opening.client.server_epoch(), None, "it has not spoken yet");
}
