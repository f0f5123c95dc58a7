//! What a server asks for, when, and again when; what it answers; and what its counters count.

use super::bench::{recovered, ServerBench};
use crate::by_hand::{
    address, barrier, client_address, device_address, header, nonce, order, packet, server_address,
    session_keys, NOW,
};
use crate::server::SEQ_MAX;
use crate::{DeadLetterReason, ServerConfig};
use scotfree_core::{Machine, Nanos, OrderNumber, SeqNum, SessionId, Token};
use scotfree_wire::{
    CloseReason, CloseTail, Flags, Header, Kind, Packet, ResponseTail, Stamp, Tail, RESPONSE_BYTES_MAX,
};

const UNSTAMPED: Stamp = Stamp {
    kind: scotfree_wire::StampKind::None,
    device: scotfree_core::DeviceId(0),
    boot_epoch: scotfree_core::BootEpoch(0),
    number: OrderNumber(0),
    previous_write: SeqNum(0),
};
const ASK_AFTER: Nanos = Nanos::from_millis(2);
const RETRY: Nanos = Nanos::from_millis(20);

/// A server that serves session 1, which has come to `position`, and has heard of it.
fn serving(position: u64, adjust: impl FnOnce(&mut ServerConfig)) -> ServerBench {
    let mut bench = ServerBench::new(&[recovered(1, position), recovered(2, 0)], adjust);
    bench.manifest(1, 0, 1, &[]);
    bench.sent.clear();
    bench
}

/// The packets of `kind` that it sent since the last look.
fn take_sent(bench: &mut ServerBench, kind: Kind) -> Vec<(Header, Tail, Vec<u8>)> {
    let sent = std::mem::take(&mut bench.sent);
    let packets = sent.iter().map(|(_, bytes)| Packet::parse(bytes).expect("it sends whole packets"));
    packets
        .filter(|packet| packet.kind() == kind)
        .map(|packet| (*packet.header(), *packet.tail(), packet.payload().to_vec()))
        .collect()
}

/// The ranges that it asked for since the last look.
fn ranges(bench: &mut ServerBench) -> Vec<(u64, u64, u64)> {
    let asked = take_sent(bench, Kind::Retransmit);
    let range = |(header, tail, _): (Header, Tail, _)| match tail {
        Tail::Range(range) => (header.session.0, range.first, range.last),
        _ => panic!("a question has a range"),
    };
    asked.into_iter().map(range).collect()
}

#[test]
fn a_client_is_asked_for_what_is_missing_after_a_while_and_again() {
    let mut bench = serving(0, |_| {});
    bench.request(Kind::Read, 1, 5, barrier(1, 0, 0));
    bench.pass(Nanos(ASK_AFTER.0 - 1));
    // What else happens puts it off no longer.
    bench.request(Kind::Read, 2, 1, barrier(1, 0, 0));
    bench.heartbeat(1, 0, 6);
    assert_eq!(ranges(&mut bench), []);
    bench.pass(Nanos(1));
    assert_eq!(ranges(&mut bench), [(1, 1, 4)]);
    bench.request(Kind::Read, 1, 3, barrier(1, 0, 0));
    bench.pass(Nanos(RETRY.0 - 1));
    assert_eq!(ranges(&mut bench), []);
    bench.pass(Nanos(1));
    assert_eq!(ranges(&mut bench), [(1, 1, 2)]);
    assert_eq!(bench.server.counters().gaps_asked, 2);
    for seq in [1, 2, 4] {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    bench.pass(RETRY);
    // The heartbeat has named a sixth; nobody holds it.
    assert_eq!(ranges(&mut bench)[0], (1, 6, 6));
    bench.request(Kind::Read, 1, 6, barrier(1, 0, 0));
    bench.pass(Nanos::from_secs(1));
    assert_eq!(ranges(&mut bench), [], "nothing is missing");
    assert_eq!((bench.executed.len(), bench.server.counters().executed), (7, 7));
}

#[test]
fn a_heartbeat_names_no_more_than_a_window() {
    let mut bench = serving(0, |config| config.window = 4);
    bench.heartbeat(1, 0, 1_000);
    bench.pass(ASK_AFTER);
    assert_eq!(ranges(&mut bench), [(1, 1, 5)]);
}

#[test]
fn the_head_is_asked_for_missing_order_numbers_after_a_while_and_again() {
    let mut bench = serving(0, |_| {});
    bench.request(Kind::Update, 1, 1, order(1, 4, 0));
    bench.pass(Nanos(ASK_AFTER.0 - 1));
    bench.heartbeat(1, 0, 1);
    assert_eq!(ranges(&mut bench), []);
    bench.pass(Nanos(1));
    assert_eq!(bench.sent_to(device_address()), [Kind::Retransmit]);
    assert_eq!(ranges(&mut bench), [(0, 1, 3)]);
    bench.pass(Nanos(RETRY.0 - 1));
    bench.heartbeat(1, 0, 1);
    assert_eq!(ranges(&mut bench), []);
    bench.pass(Nanos(1));
    assert_eq!(ranges(&mut bench), [(0, 1, 3)]);
    // The first of them comes: the question is another.
    bench.request(Kind::Update, 2, 1, order(1, 1, 0));
    bench.pass(Nanos(ASK_AFTER.0 - 1));
    assert_eq!(ranges(&mut bench), []);
    bench.pass(Nanos(1));
    assert_eq!(ranges(&mut bench), [(0, 2, 3)]);
    assert_eq!((bench.server.counters().orders_asked, bench.executed.len()), (3, 1));
    // The head never logged anything under these.
    for number in [2, 3] {
        let void = Header { flags: Flags::VOID, ..header(Kind::Replay, 0, 0) };
        bench.device_says(&void, &Tail::Stamp(order(1, number, 0)), &[]);
    }
    assert_eq!(bench.executed.len(), 2);
    bench.pass(Nanos::from_secs(1));
    assert_eq!(ranges(&mut bench), []);
}

/// The runs that it asked the head about since the last look: first, last and last write.
fn runs(bench: &mut ServerBench) -> Vec<(u64, u64, u64)> {
    let run = |(header, ..): &(Header, Tail, Vec<u8>)| {
        (header.seq_num.0, header.run_last().0, header.run_last_write().0)
    };
    take_sent(bench, Kind::Drain).iter().map(run).collect()
}

#[test]
fn the_head_is_asked_at_once_for_the_place_of_a_request_and_then_of_all_that_follow_without_one() {
    for (kinds, stamped, run) in [
        (&[Kind::Update][..], None, (8, 8, 8)),
        (&[Kind::Read, Kind::Read][..], None, (8, 9, 7)),
        (&[Kind::Update, Kind::Read][..], None, (8, 9, 8)),
        (&[Kind::Read, Kind::Bypass][..], None, (8, 9, 9)),
        (&[Kind::Update, Kind::Read, Kind::Update][..], Some(10), (8, 9, 8)),
    ] {
        let mut bench = serving(7, |_| {});
        for (seq, kind) in (8..).zip(kinds) {
            let stamp = if stamped == Some(seq) { barrier(1, 9, 8) } else { UNSTAMPED };
            bench.request(*kind, 1, seq, stamp);
            let first_write = if kinds[0] == Kind::Read { 7 } else { 8 };
            let expected = if seq == 8 { vec![(8, 8, first_write)] } else { Vec::new() };
            assert_eq!(runs(&mut bench), expected, "at once, and once");
        }
        // Behind a gap: of another run.
        bench.request(Kind::Update, 1, 20, UNSTAMPED);
        bench.pass(RETRY);
        assert_eq!(runs(&mut bench), [run], "{kinds:?}");
        assert_eq!(bench.server.counters().drains_asked, 2);
        assert!(bench.executed.is_empty());
    }
}

#[test]
fn the_heads_answer_gives_a_place_to_the_whole_run() {
    for (void, last, executed) in [(false, 3, 3), (false, 2, 2), (true, 3, 3), (false, 0, 1)] {
        let mut bench = serving(0, |_| {});
        for seq in 1..=3 {
            bench.request(Kind::Read, 1, seq, UNSTAMPED);
        }
        bench.sent.clear();
        let mut answer = header(Kind::Drain, 1, 1);
        answer.set_run_last(SeqNum(last));
        answer.flags = if void { Flags::VOID } else { Flags::NONE };
        bench.device_says(&answer, &Tail::Stamp(barrier(1, 0, 0)), &[]);
        assert_eq!(bench.executed.len(), executed, "to {last}");
        // A device that does not know the session learns it from the acceptance.
        assert_eq!(take_sent(&mut bench, Kind::SessionAccept).len(), usize::from(void));
    }
}

#[test]
fn a_place_that_the_heads_past_incarnation_gave_counts_if_the_head_says_so_itself() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
    bench.manifest(2, 5, 1, &[]);
    bench.request(Kind::Read, 1, 1, barrier(1, 3, 0));
    assert!(bench.executed.is_empty(), "whoever else says so may be late");
    bench.device_says(&header(Kind::Drain, 1, 1), &Tail::Stamp(barrier(1, 3, 0)), &[]);
    assert_eq!(bench.executed.len(), 1);
}

/// A write's reply is held until it is stable (rules 6 and 8).
#[test]
fn a_reply_is_held_until_storage_has_what_it_depends_on() {
    let mut bench = serving(0, |_| {});
    bench.answers = false;
    for seq in 1..=3 {
        bench.request(Kind::Bypass, 1, seq, barrier(1, 0, seq - 1));
    }
    assert_eq!((bench.server.ticket_last(), bench.server.ticket_stable()), (3, 0));
    assert!(!bench.server.is_drained() && !bench.server.wants_stable());
    bench.sent.clear();
    for (ticket, dequeued) in [(1, Nanos(10)), (2, Nanos(0))] {
        let times = ResponseTail { dequeued, ..ResponseTail::default() };
        bench.act(|server, now, effects| server.on_executed(now, ticket, b"ok", false, times, effects));
    }
    assert_eq!((bench.sent.len(), bench.server.counters().replies_held), (0, 2));
    assert!(bench.server.wants_stable());
    bench.pass(Nanos(5));
    for (ticket, dequeued) in [(1, Nanos(15)), (2, Nanos(0))] {
        bench.act(|server, now, effects| server.on_persisted(now, Token(ticket), effects));
        assert_eq!(bench.server.ticket_stable(), ticket);
        assert_eq!(bench.last_sent(Kind::ServerAck).map(|ack| ack.seq_num), Some(SeqNum(ticket)));
        let responses = take_sent(&mut bench, Kind::Response);
        let times = ResponseTail { dequeued, ..ResponseTail::default() };
        let told: Vec<_> = responses.iter().map(|(header, tail, _)| (header.seq_num.0, *tail)).collect();
        assert_eq!(told, [(ticket, Tail::Response(times))], "the wait belongs to the queue");
    }
    assert!(!bench.server.is_drained() && !bench.server.wants_stable());
    bench.act(|server, now, effects| server.on_persisted(now, Token(99), effects));
    assert_eq!(bench.server.ticket_stable(), 3, "nothing is stable that was not executed");
    assert!(!bench.server.is_drained(), "the third is not answered");
    bench.act(|server, now, effects| {
        server.on_executed(now, 3, b"ok", false, ResponseTail::default(), effects);
    });
    assert!(bench.server.is_drained());
    assert_eq!((bench.server.counters().replies_held, bench.server.counters().server_acks), (2, 3));
}

#[test]
fn what_comes_again_is_answered_again_as_long_as_it_is_wanted() {
    let mut bench = serving(5, |_| {});
    bench.request(Kind::Bypass, 1, 6, barrier(1, 0, 5));
    bench.sent.clear();
    let again = |bench: &mut ServerBench, seq| {
        bench.request(Kind::Bypass, 1, seq, barrier(1, 0, 5));
        let kinds = bench.sent_to(client_address());
        bench.sent.clear();
        kinds
    };
    assert_eq!(again(&mut bench, 6), [Kind::ServerAck, Kind::Response]);
    assert_eq!(again(&mut bench, 5), [Kind::ServerAck, Kind::SessionClose], "its reply is gone");
    bench.heartbeat(1, 6, 6);
    bench.sent.clear();
    assert_eq!(again(&mut bench, 6), [Kind::ServerAck], "it is complete there");
    let counters = bench.server.counters();
    assert_eq!((counters.duplicates, counters.replies_resent, counters.replies_gone), (3, 1, 1));
    assert_eq!((counters.executed, counters.server_acks), (1, 4));
    bench.answers = false;
    bench.request(Kind::Bypass, 1, 7, barrier(1, 0, 6));
    assert_eq!(again(&mut bench, 7), [], "the application has it, and it is not stable");
}

#[test]
fn the_oldest_replies_give_way_at_replies_bytes_max() {
    let mut bench = serving(0, |config| config.replies_bytes_max = 8_000);
    bench.reply = vec![b'x'; 1_000];
    for (seq, oldest) in [(8, 1), (9, 2), (10, 3)] {
        let first = if seq == 8 { 1 } else { seq };
        for seq in first..=seq {
            bench.request(Kind::Update, 1, seq, order(1, seq, seq - 1));
        }
        for (again, there) in
            [(oldest, true), (oldest - 1, false)].into_iter().filter(|(again, _)| *again > 0)
        {
            bench.sent.clear();
            bench.request(Kind::Update, 1, again, order(1, again, again - 1));
            let kinds = bench.sent_to(client_address());
            assert_eq!(kinds.contains(&Kind::Response), there, "{again} after {seq}");
        }
    }
}

#[test]
fn a_reply_that_no_response_can_carry_becomes_a_failure() {
    for (bytes, failed) in [(RESPONSE_BYTES_MAX, false), (RESPONSE_BYTES_MAX + 1, true)] {
        let mut bench = serving(0, |_| {});
        bench.reply = vec![b'x'; bytes];
        bench.request(Kind::Update, 1, 1, order(1, 1, 0));
        let responses = take_sent(&mut bench, Kind::Response);
        let total: usize = responses.iter().map(|(_, _, payload)| payload.len()).sum();
        let said = responses[0].0.flags.has(Flags::FAILED);
        assert_eq!((total, said), (if failed { 0 } else { bytes }, failed));
    }
}

#[test]
fn a_client_is_told_to_wait_at_buffer_bytes_max_but_for_the_request_that_is_next() {
    let mut bench = serving(0, |config| config.buffer_bytes_max = 3);
    for seq in 2..=4 {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    assert_eq!((bench.server.buffer_bytes(), bench.server.counters().busy), (3, 0));
    bench.sent.clear();
    bench.request(Kind::Read, 1, 5, barrier(1, 0, 0));
    assert_eq!((bench.server.buffer_bytes(), bench.server.counters().busy), (3, 1));
    assert_eq!(bench.sent_to(client_address()), [Kind::Busy]);
    bench.request(Kind::Read, 1, 1, barrier(1, 0, 0));
    assert_eq!((bench.server.buffer_bytes(), bench.executed.len()), (0, 4));
}

#[test]
fn whoever_speaks_for_an_unknown_session_is_told_so_once_the_server_serves() {
    for served in [false, true] {
        let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
        if served {
            bench.manifest(1, 0, 1, &[]);
        }
        bench.sent.clear();
        bench.request(Kind::Read, 9, 1, barrier(1, 0, 0));
        let expected = if served { vec![Kind::SessionClose] } else { Vec::new() };
        assert_eq!(bench.sent_to(client_address()), expected);
        assert_eq!((bench.server.counters().unknown_session, bench.server.session_count()), (1, 1));
    }
}

#[test]
fn the_last_number_that_can_be_is_beyond_the_credit_and_not_nonsense() {
    let mut bench = serving(0, |_| {});
    bench.request(Kind::Read, 1, SEQ_MAX, barrier(1, 0, 0));
    let counters = bench.server.counters();
    assert_eq!((counters.beyond_window, counters.refused.iter().sum::<u64>()), (1, 0));
}

#[test]
fn an_acceptance_says_how_long_and_how_much_and_names_a_session_of_this_epoch() {
    let mut bench = serving(0, |config| {
        (config.window, config.expiry) = (77, Nanos::from_millis(1_500));
    });
    for number in 1..=2 {
        bench.open(10 + number, client_address());
        let accepted = take_sent(&mut bench, Kind::SessionAccept);
        let (header, Tail::Accept(tail), _) = accepted[0] else { panic!("an acceptance has its tail") };
        assert_eq!((tail.window, tail.expiry_ms, tail.client_nonce), (77, 1_500, nonce(10 + number)));
        assert_eq!(header.session, SessionId((2 << 32) | number));
        assert_eq!(header.offered(), scotfree_wire::ExtensionSet::ALL);
    }
    bench.act(|server, _, _| server.drain());
    bench.open(13, client_address());
    assert_eq!(bench.sent_to(client_address()), [Kind::SessionClose], "it takes no more sessions");
    assert_eq!(bench.server.session_count(), 4);
}

fn client_closes(bench: &mut ServerBench, seq: u64) -> usize {
    client_closes_having(bench, seq, 0)
}

/// The client says as well up to where it has its answers.
fn client_closes_having(bench: &mut ServerBench, seq: u64, completed: u64) -> usize {
    bench.sent.clear();
    let tail = Tail::Close(CloseTail { reason: CloseReason::ByClient });
    let key = session_keys(1).client_to_server;
    let mut header = header(Kind::SessionClose, 1, seq);
    header.completed = SeqNum(completed);
    let bytes = packet(&header, &tail, &[], &key);
    bench.receive(client_address(), &bytes);
    bench.sent_to(client_address()).iter().filter(|kind| **kind == Kind::SessionClose).count()
}

#[test]
fn a_session_ends_when_its_client_says_so_and_all_of_it_is_stable() {
    let mut bench = serving(0, |_| {});
    bench.answers = false;
    bench.request(Kind::Update, 1, 1, order(1, 1, 0));
    assert_eq!(client_closes(&mut bench, 1), 0, "it is not stable");
    bench.answer(1);
    assert_eq!(client_closes(&mut bench, 2), 0, "its second request is not here");
    assert_eq!(client_closes(&mut bench, 1), 1);
    assert_eq!(client_closes(&mut bench, 1), 1, "said again, answered again");
    assert_eq!(bench.deleted, [], "the device has to empty itself first");
    bench.confirm_empty(1..=1);
    assert_eq!(bench.deleted, [SessionId(1)]);
    bench.forget_deleted();
    assert_eq!(bench.server.session_count(), 1);
}

#[test]
fn a_session_ends_at_once_whose_last_requests_a_device_has_answered_however_many_they_are() {
    let mut bench = serving(0, |config| config.window = 4);
    bench.answers = false;
    bench.request(Kind::Update, 1, 1, order(1, 1, 0));
    assert_eq!(client_closes_having(&mut bench, 99, 98), 0, "it wants an answer");
    assert_eq!(client_closes_having(&mut bench, 99, 99), 0, "what it has written is not stable");
    bench.answer(1);
    assert_eq!(client_closes_having(&mut bench, 99, 99), 1);
    assert_eq!(bench.executed, [(SessionId(1), SeqNum(1))]);
}

/// Eight times in that span it is looked at, and expires when more than the span has gone by.
#[test]
fn a_silent_session_expires_when_more_than_expiry_has_gone_by() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |config| {
        config.devices.clear();
        config.expiry = Nanos(56);
    });
    for check in 1..=8 {
        assert_eq!(bench.server.next_timer(), Some(NOW.plus(Nanos(8 * check))));
        bench.pass(Nanos(8));
        assert_eq!(bench.server.counters().expired, u64::from(check == 8), "at check {check}");
    }
    assert_eq!(bench.deleted, [SessionId(1)]);
}

/// The update's elder is missing, and it is known to be a write.
#[test]
fn an_order_number_is_given_up_when_its_client_has_been_silent_for_long_or_does_not_send_what_is_missing() {
    let given_up = |bench: &ServerBench| bench.server.counters().orders_given_up;
    let mut bench = serving(0, |_| {});
    bench.pass(Nanos::from_secs(10));
    // Its client has long been silent, and a device sends its log: an eighth of the grace will do.
    bench.replay(1, 2, order(1, 1, 1));
    bench.pass(Nanos(Nanos::from_millis(250).0 - 1));
    assert_eq!(given_up(&bench), 0);
    bench.pass(Nanos(1));
    assert_eq!(given_up(&bench), 1);
    // Nobody waits for it any more; if what was missing comes all the same, it is executed behind that.
    assert_eq!(bench.executed, []);
    bench.request(Kind::Update, 1, 1, barrier(1, 1, 0));
    assert_eq!(bench.executed, [1, 2].map(|seq| (SessionId(1), SeqNum(seq))));
    let mut bench = serving(0, |config| config.expiry = Nanos::from_secs(3));
    bench.request(Kind::Update, 1, 2, order(1, 1, 1));
    for _ in 0..3 {
        assert_eq!(given_up(&bench), 0);
        bench.pass(Nanos::from_secs(1));
        bench.heartbeat(1, 0, 2);
    }
    assert_eq!(given_up(&bench), 1, "it speaks and does not send it");
    assert_eq!(bench.executed, []);
}

#[test]
fn what_lies_behind_a_missing_write_of_a_closing_session_becomes_dead_letters() {
    let mut bench = serving(0, |config| config.expiry = Nanos::from_secs(8));
    bench.request(Kind::Update, 1, 3, order(1, 1, 2));
    bench.pass(Nanos::from_secs(9));
    assert_eq!((bench.server.counters().expired, bench.dead_letters.len()), (2, 0));
    assert_eq!(bench.server.buffer_bytes(), 1);
    bench.pass(Nanos::from_secs(3));
    let letter = |seq| (SessionId(1), SeqNum(seq), DeadLetterReason::BehindGap);
    assert_eq!((&bench.dead_letters[..], bench.server.buffer_bytes()), (&[letter(3)][..], 0));
    // What a device still has of it: each once, and only what was logged.
    for (seq, stamp) in [(3, order(1, 1, 2)), (5, order(1, 2, 3)), (5, order(1, 2, 3)), (6, barrier(1, 2, 5))]
    {
        bench.replay(1, seq, stamp);
    }
    assert_eq!(bench.dead_letters, [letter(3), letter(5)]);
    assert_eq!((bench.server.counters().dead_letters, bench.executed.len()), (2, 0));
}

#[test]
fn a_server_speaks_from_its_address_and_counts_what_it_refuses() {
    let mut bench = serving(0, |_| {});
    let mut bytes =
        packet(&header(Kind::Read, 1, 1), &Tail::Stamp(UNSTAMPED), b"x", &session_keys(1).client_to_server);
    bytes[60] ^= 1;
    bench.receive(address(66), &bytes);
    bench.receive(address(66), b"no packet");
    assert_eq!(bench.server.counters().refused.iter().sum::<u64>(), 2);
    assert_eq!(bench.sent_to(address(66)), [], "who has not the keys hears nothing");
    assert_ne!(server_address(), client_address());
}
