//! What a server waits for, whom it asks for it and when, and how it counts that.

use super::bench::{recovered, ServerBench};
use crate::by_hand::{barrier, client_address, device_address, header, nonce, order, session_keys};
use scotfree_core::{BootEpoch, DeviceId, Epoch, Nanos, SeqNum, SessionId, Token};
use scotfree_wire::{
    BusyTail, CloseReason, CloseTail, Flags, Kind, LeaseTail, ManifestRecord, Packet, RangeTail, Stamp, Tail,
};

/// A server that serves sessions 1 and 2, of which nothing is logged.
fn serving(adjust: impl FnOnce(&mut crate::ServerConfig)) -> ServerBench {
    let mut bench = ServerBench::new(&[recovered(1, 0), recovered(2, 0)], adjust);
    bench.manifest(1, 0, 1, &[]);
    assert!(bench.server.is_serving());
    bench.sent.clear();
    bench
}

fn last_tail(bench: &ServerBench, kind: Kind) -> Option<(std::net::SocketAddr, Tail)> {
    bench.sent.iter().rev().find_map(|(to, bytes)| {
        let packet = Packet::parse(bytes).expect("it sends whole packets");
        (packet.kind() == kind).then(|| (*to, *packet.tail()))
    })
}

fn range(first: u64, last: u64, boot_epoch: u32) -> Tail {
    Tail::Range(RangeTail { first, last, boot_epoch: BootEpoch(boot_epoch) })
}

#[test]
fn a_missing_order_number_is_asked_of_the_head_in_its_time_whatever_else_comes() {
    let mut bench = serving(|_| {});
    bench.request(Kind::Update, 1, 1, order(1, 3, 0));
    bench.pass(Nanos::from_millis(1));
    bench.request(Kind::Update, 2, 1, order(1, 5, 0));
    bench.pass(Nanos(999_999));
    assert_eq!(bench.server.counters().orders_asked, 0, "it may be on its way");
    bench.pass(Nanos(1));
    assert_eq!(bench.server.counters().orders_asked, 1);
    assert_eq!(last_tail(&bench, Kind::Retransmit), Some((device_address(), range(1, 2, 1))));
    bench.pass(Nanos(19_999_999));
    assert_eq!(bench.server.counters().orders_asked, 1);
    bench.pass(Nanos(1));
    assert_eq!(bench.server.counters().orders_asked, 2, "the question is repeated");
    // The next number that is missing is another question, with a time of its own.
    bench.request(Kind::Update, 1, 2, order(1, 1, 0));
    bench.replay(2, 2, order(1, 2, 1));
    let void = Stamp { previous_write: SeqNum(0), ..order(1, 1, 0) };
    let mut gone = header(Kind::Replay, 0, 0);
    gone.flags = Flags::VOID;
    bench.device_says(&gone, &Tail::Stamp(void), &[]);
    bench.pass(Nanos::from_millis(2));
    assert_eq!(bench.server.counters().orders_asked, 3);
}

#[test]
fn a_run_of_unstamped_requests_is_asked_about_at_once_and_takes_the_place_that_is_answered() {
    let mut bench = serving(|_| {});
    for (kind, seq) in [(Kind::Bypass, 2), (Kind::Read, 3), (Kind::Update, 5)] {
        bench.request(kind, 1, seq, Stamp::default());
    }
    assert_eq!(bench.server.counters().drains_asked, 0, "the first is not here");
    bench.request(Kind::Update, 1, 1, Stamp::default());
    assert_eq!(bench.server.counters().drains_asked, 1);
    let asked = bench.last_sent(Kind::Drain).expect("it asks");
    assert_eq!((asked.seq_num, asked.run_last(), asked.run_last_write()), (SeqNum(1), SeqNum(3), SeqNum(2)));
    bench.pass(Nanos::from_millis(20));
    assert_eq!(bench.server.counters().drains_asked, 2);
    let mut answer = header(Kind::Drain, 1, 1);
    answer.set_run_last(SeqNum(3));
    bench.device_says(&answer, &Tail::Stamp(barrier(1, 0, 3)), &[]);
    assert_eq!(bench.executed, [1, 2, 3].map(|seq| (SessionId(1), SeqNum(seq))));
    let accepted = |bench: &ServerBench| bench.sent_to(client_address()).contains(&Kind::SessionAccept);
    assert!(!accepted(&bench));
    answer.flags = Flags::VOID;
    bench.device_says(&answer, &Tail::Stamp(barrier(1, 0, 3)), &[]);
    assert!(accepted(&bench), "a device that does not know the session learns it from the acceptance");
}

#[test]
fn a_gap_is_asked_of_the_client_up_to_what_is_here() {
    let mut bench = serving(|_| {});
    bench.request(Kind::Read, 1, 4, barrier(1, 0, 0));
    bench.pass(Nanos(1_999_999));
    assert_eq!(bench.server.counters().gaps_asked, 0);
    bench.pass(Nanos(1));
    assert_eq!(bench.server.counters().gaps_asked, 1);
    assert_eq!(last_tail(&bench, Kind::Retransmit), Some((client_address(), range(1, 3, 0))));
    bench.pass(Nanos::from_millis(20));
    assert_eq!(bench.server.counters().gaps_asked, 2);
    // Where nothing is here, it is asked up to what its client has spoken of.
    bench.heartbeat(2, 0, 2);
    bench.pass(Nanos::from_millis(2));
    assert_eq!(last_tail(&bench, Kind::Retransmit), Some((client_address(), range(1, 2, 0))));
}

#[test]
fn where_the_buffer_is_full_clients_are_told_to_wait_and_the_next_request_is_taken() {
    let mut bench = serving(|config| config.buffer_bytes_max = 2);
    for seq in [2, 3] {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    assert_eq!((bench.server.buffer_bytes(), bench.server.counters().busy), (2, 0));
    bench.request(Kind::Read, 1, 4, barrier(1, 0, 0));
    assert_eq!((bench.server.buffer_bytes(), bench.server.counters().busy), (2, 1));
    let told = Tail::Busy(BusyTail { backoff: Nanos::from_millis(20) });
    assert_eq!(last_tail(&bench, Kind::Busy), Some((client_address(), told)));
    bench.replay(2, 2, order(1, 7, 0));
    assert_eq!(bench.server.buffer_bytes(), 3, "what a device sends from its log is not refused");
    bench.request(Kind::Read, 1, 1, barrier(1, 0, 0));
    assert_eq!((bench.executed.len(), bench.server.buffer_bytes()), (3, 1));
}

#[test]
fn a_retry_is_answered_again_until_its_client_has_the_reply_or_it_is_gone() {
    let mut bench = serving(|config| config.replies_bytes_max = 1_500);
    bench.reply = vec![b'x'; 1_000];
    bench.request(Kind::Update, 1, 1, order(1, 1, 0));
    let counts = |bench: &ServerBench| {
        let counters = bench.server.counters();
        (counters.executed, counters.duplicates, counters.replies_resent, counters.replies_gone)
    };
    bench.sent.clear();
    bench.request(Kind::Update, 1, 1, order(1, 1, 0));
    assert_eq!(
        (counts(&bench), bench.sent_to(client_address())),
        ((1, 1, 1, 0), vec![Kind::ServerAck, Kind::Response])
    );
    bench.request(Kind::Update, 1, 2, order(1, 2, 1));
    bench.request(Kind::Update, 1, 1, order(1, 1, 0));
    assert_eq!(counts(&bench), (2, 2, 1, 1), "the older gave way");
    let gone = Tail::Close(CloseTail { reason: CloseReason::ReplyGone });
    assert_eq!(last_tail(&bench, Kind::SessionClose), Some((client_address(), gone)));
    bench.heartbeat(1, 2, 2);
    bench.request(Kind::Update, 1, 2, order(1, 2, 1));
    assert_eq!(counts(&bench), (2, 3, 1, 1), "its client has it");
    bench.request(Kind::Update, 9, 1, order(1, 9, 0));
    assert_eq!(bench.server.counters().unknown_session, 1);
}

#[test]
fn what_is_executed_is_stable_when_storage_says_so_and_no_further() {
    let mut bench = serving(|_| {});
    bench.answers = false;
    bench.request(Kind::Bypass, 1, 1, barrier(1, 0, 0));
    bench.request(Kind::Bypass, 1, 2, barrier(1, 0, 1));
    let tickets = |bench: &ServerBench| (bench.server.ticket_last(), bench.server.ticket_stable());
    assert_eq!((tickets(&bench), bench.server.is_drained()), ((2, 0), false));
    let times = scotfree_wire::ResponseTail::default;
    bench.act(|server, now, effects| server.on_executed(now, 1, b"ok", false, times(), effects));
    assert_eq!(bench.server.counters().replies_held, 1);
    assert!(bench.server.wants_stable() && bench.sent_to(client_address()).is_empty());
    bench.act(|server, now, effects| scotfree_core::Machine::on_persisted(server, now, Token(1), effects));
    assert_eq!((tickets(&bench), bench.server.wants_stable()), ((2, 1), false));
    assert_eq!(bench.sent_to(client_address()), [Kind::Response, Kind::ServerAck]);
    bench.act(|server, now, effects| server.on_executed(now, 2, b"ok", false, times(), effects));
    assert!(!bench.server.is_drained(), "it is not stable");
    bench.act(|server, now, effects| scotfree_core::Machine::on_persisted(server, now, Token(9), effects));
    assert_eq!((tickets(&bench), bench.server.is_drained()), ((2, 2), true));
    assert_eq!((bench.server.counters().server_acks, bench.server.session_count()), (2, 2));
}

#[test]
fn a_reply_says_what_it_is_of_and_that_it_failed() {
    let mut bench = serving(|_| {});
    bench.answers = false;
    let times = |dequeued| scotfree_wire::ResponseTail { dequeued: Nanos(dequeued), ..Default::default() };
    for (seq, failed, reply) in [(1, true, b"why".to_vec()), (2, false, b"ok".to_vec())] {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
        bench.act(|server, now, effects| server.on_executed(now, seq, &reply, failed, times(7), effects));
        let (_, bytes) = bench.sent.last().expect("it answers");
        let packet = Packet::parse(bytes).expect("ours");
        assert!(packet.verify(&session_keys(1).server_to_client).is_ok());
        assert_eq!((packet.seq_num(), packet.payload(), packet.epoch()), (SeqNum(seq), &reply[..], Epoch(2)));
        assert_eq!(packet.flags().has(Flags::FAILED), failed);
        assert_eq!(*packet.tail(), Tail::Response(times(7)));
    }
    // Of a reply that no response can carry only the failure is said.
    bench.request(Kind::Read, 1, 3, barrier(1, 0, 0));
    let large = vec![0; scotfree_wire::RESPONSE_BYTES_MAX + 1];
    bench.act(|server, now, effects| server.on_executed(now, 3, &large, false, times(0), effects));
    let packet = Packet::parse(&bench.sent.last().expect("it answers").1).expect("ours");
    assert!(packet.flags().has(Flags::FAILED) && packet.payload().is_empty());
}

#[test]
fn a_device_is_told_what_of_its_log_is_stable_already() {
    let mut bench = ServerBench::new(&[recovered(1, 5)], |_| {});
    let polled = bench.last_sent(Kind::RecoveryPoll).expect("a poll is open");
    let (mut payload, none) = (Vec::new(), SeqNum(0));
    let record = ManifestRecord {
        session: SessionId(1),
        epoch: Epoch(1),
        window: 16,
        client_nonce: nonce(1),
        server_nonce: [9; 16],
        first: none,
        last: none,
        entry_count: 0,
    };
    record.write(&mut payload);
    bench.manifest_page(polled, 1, 0, 1, &payload);
    assert!(bench.server.is_serving());
    assert_eq!(bench.server.counters().server_acks, 0, "it holds nothing");
    assert_eq!(bench.server.devices().collect::<Vec<_>>(), [(DeviceId(1), true)]);

    let mut bench = ServerBench::new(&[recovered(1, 5)], |_| {});
    payload.clear();
    ManifestRecord { first: SeqNum(4), last: SeqNum(5), entry_count: 2, ..record }.write(&mut payload);
    bench.manifest_page(polled, 1, 2, 1, &payload);
    assert!(bench.server.is_serving(), "nothing is to be fetched");
    let told = bench.last_sent(Kind::ServerAck).expect("it is told");
    assert_eq!(
        (told.session, told.seq_num, bench.server.counters().server_acks),
        (SessionId(1), SeqNum(5), 1)
    );

    let mut bench = ServerBench::new(&[recovered(1, 4)], |_| {});
    bench.manifest_page(polled, 1, 2, 1, &payload);
    assert!(!bench.server.is_serving());
    assert_eq!(
        last_tail(&bench, Kind::Retransmit),
        Some((device_address(), range(5, 5, 0))),
        "the rest is fetched"
    );
    assert_eq!(bench.server.devices().collect::<Vec<_>>(), [(DeviceId(1), false)]);
    assert_eq!(bench.server.counters().polls, 1);
}

#[test]
fn a_lease_is_granted_to_the_incarnation_that_has_said_what_it_holds() {
    let question = |boot_epoch| LeaseTail {
        asked_at: Nanos(5),
        duration: Nanos(0),
        device: DeviceId(1),
        boot_epoch: BootEpoch(boot_epoch),
    };
    let ask = |bench: &mut ServerBench, boot_epoch| {
        bench.sent.clear();
        bench.device_says(&header(Kind::Lease, 0, 0), &Tail::Lease(question(boot_epoch)), &[]);
        last_tail(bench, Kind::Lease).map(|(_, tail)| tail)
    };
    let mut bench = serving(|config| (config.lease, config.lease_max) = (Nanos(700), Nanos(500)));
    let granted = Tail::Lease(LeaseTail { duration: Nanos(500), ..question(1) });
    assert_eq!(ask(&mut bench, 1), Some(granted), "no longer than lease_max");
    let above = Tail::Lease(LeaseTail { boot_epoch: BootEpoch(1), ..question(0) });
    assert_eq!(ask(&mut bench, 0), Some(above), "an incarnation of the past rises");
    assert_eq!(ask(&mut bench, 2), None);
    assert_eq!(bench.sent_to(device_address()), [Kind::RecoveryPoll], "a new one says first what it holds");
    assert_eq!(ask(&mut bench, 2), None);
    assert_eq!(bench.sent_to(device_address()), [], "it is asked already");
}

#[test]
fn each_reply_that_is_taken_makes_room_for_one_more_of_its_size() {
    let mut bench = serving(|config| config.replies_bytes_max = 8_000);
    bench.reply = vec![b'x'; 1_000];
    for seq in 1..=20 {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    assert_eq!(bench.executed.len(), 4, "half of what is kept");
    for completed in [1, 2, 4] {
        bench.heartbeat(1, completed, 20);
        assert_eq!(bench.executed.len() as u64, completed + 4);
    }
}
