//! Decisions of the server that need a rare meeting of events, each brought about by hand.

use super::bench::{recovered, ServerBench};
use crate::by_hand::{barrier, client_address, device_address, order};
use scotfree_core::{DeviceId, Nanos, SeqNum, SessionId};
use scotfree_wire::{Identity, Kind};

/// Update 19 was logged anew, behind 21; the client that holds the read 18 is dead.
fn logged_anew() -> ServerBench {
    let mut bench = ServerBench::new(&[recovered(1, 17), recovered(2, 0)], |_| {});
    bench.manifest(2, 1, 1, &[(19, order(2, 1, 0)), (21, order(1, 11, 19))]);
    assert!(bench.server.is_serving() && bench.executed.is_empty());
    bench
}

const ALL_OF_IT: [(SessionId, SeqNum); 2] = [(SessionId(1), SeqNum(19)), (SessionId(1), SeqNum(21))];

#[test]
fn a_gap_of_reads_is_passed_over_whoever_of_those_behind_it_says_so() {
    let mut bench = logged_anew();
    bench.pass(Nanos::from_secs(6));
    assert_eq!(bench.executed, ALL_OF_IT);
    assert_eq!(bench.server.counters().orders_given_up, 0);
}

#[test]
fn what_was_logged_before_its_elder_is_seen_by_all_that_comes_behind_the_elder() {
    let mut bench = logged_anew();
    bench.request(Kind::Read, 2, 1, barrier(2, 1, 0));
    bench.pass(Nanos::from_secs(6));
    assert_eq!(bench.executed[..2], ALL_OF_IT);
    assert_eq!(bench.executed[2..], [(SessionId(2), SeqNum(1))]);
}

#[test]
fn an_exclusion_after_a_restart_waits_for_the_longest_lease_of_the_past() {
    let mut bench = ServerBench::new(&[], |config| config.lease_max = Nanos::from_secs(4));
    bench.act(|server, now, effects| server.exclude(now, DeviceId(1), effects));
    bench.pass(Nanos::from_millis(4_499));
    assert!(!bench.server.is_serving());
    bench.pass(Nanos::from_millis(1));
    assert!(bench.server.is_serving());
}

#[test]
fn a_session_that_failed_is_told_so_and_nothing_else() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
    bench.manifest(1, 0, 1, &[]);
    bench.answers = false;
    bench.request(Kind::Bypass, 1, 1, barrier(1, 0, 0));
    assert_eq!(bench.executed.len(), 1);
    bench.act(|server, now, effects| server.fail_session(now, SessionId(1), effects));
    bench.sent.clear();
    bench.answer(1);
    bench.request(Kind::Bypass, 1, 1, barrier(1, 0, 0));
    let told: Vec<Kind> = bench.sent_to(client_address());
    assert_eq!(told, [Kind::SessionClose]);
}

/// Its client is reached, but perhaps not by a way that passes the device.
#[test]
fn a_device_that_sends_again_what_is_stable_is_told_so_itself() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
    bench.manifest(1, 0, 1, &[]);
    bench.request(Kind::Update, 1, 1, order(1, 1, 0));
    bench.sent.clear();
    bench.replay(1, 1, order(1, 1, 0));
    assert_eq!(bench.sent_to(device_address()), [Kind::ServerAck]);
    assert_eq!(bench.executed.len(), 1);
}

/// A session whose replies take 1,000 bytes and a server that keeps 8,000 for it: half of it is for what
/// the client has not taken.
fn large_replies() -> ServerBench {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |config| config.replies_bytes_max = 8_000);
    bench.manifest(1, 0, 1, &[]);
    bench.reply = vec![b'x'; 1_000];
    bench
}

#[test]
fn reads_wait_until_the_client_has_taken_replies_and_none_is_lost_to_a_retry() {
    let mut bench = large_replies();
    for seq in 1..=20 {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    assert_eq!(bench.executed.len(), 4, "replies for half of what may be kept");
    bench.sent.clear();
    bench.request(Kind::Read, 1, 1, barrier(1, 0, 0));
    assert!(bench.sent_to(client_address()).contains(&Kind::Response), "the first is there still");
    for completed in [4, 8, 12, 16] {
        bench.heartbeat(1, completed, 20);
        assert_eq!(bench.executed.len() as u64, completed + 4);
    }
    assert_eq!(bench.server.counters().replies_gone, 0);
}

#[test]
fn nobody_waits_for_a_client_that_takes_no_replies() {
    let mut bench = large_replies();
    for seq in 1..=6 {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    assert_eq!(bench.executed.len(), 4);
    bench.request(Kind::Update, 1, 7, order(1, 1, 0));
    assert_eq!(bench.executed.len(), 7, "other sessions wait for the update's number");
}

#[test]
fn small_replies_of_writes_say_nothing_about_those_of_reads() {
    let mut bench = large_replies();
    bench.reply = b"ok".to_vec();
    for seq in 1..=30 {
        bench.request(Kind::Update, 1, seq, order(1, seq, 0));
    }
    bench.reply = vec![b'x'; 1_000];
    bench.answers = false;
    for seq in 31..=50 {
        bench.request(Kind::Read, 1, seq, barrier(1, 30, 30));
    }
    assert_eq!(bench.executed.len(), 30 + 3, "reads whose sizes are not known yet");
}

#[test]
fn small_replies_are_not_waited_for() {
    let mut bench = large_replies();
    bench.reply = b"ok".to_vec();
    for seq in 1..=200 {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    assert_eq!(bench.executed.len(), 200);
}

#[test]
fn a_request_that_was_given_a_place_and_logged_later_fills_its_order_number() {
    let mut bench = ServerBench::new(&[recovered(1, 0), recovered(2, 0)], |_| {});
    bench.manifest(1, 0, 1, &[]);
    // Its predecessor is missing, so it waits with the place that it was given.
    bench.request(Kind::Update, 1, 2, barrier(1, 0, 0));
    bench.request(Kind::Update, 1, 2, order(1, 1, 0));
    bench.request(Kind::Update, 2, 1, order(1, 2, 0));
    assert!(bench.executed.is_empty());
    bench.request(Kind::Read, 1, 1, barrier(1, 0, 0));
    let all = [(1, 1), (1, 2), (2, 1)].map(|(id, seq)| (SessionId(id), SeqNum(seq)));
    assert_eq!(bench.executed, all);
    bench.pass(Nanos::from_millis(100));
    assert_eq!(bench.server.counters().orders_asked, 0);
}

#[test]
fn a_place_among_a_newer_incarnations_is_not_given_up_for_an_older_one() {
    let mut bench = ServerBench::new(&[recovered(1, 0), recovered(2, 0)], |_| {});
    bench.manifest(1, 0, 1, &[]);
    // Behind the first number of the next incarnation, of which the server knows nothing yet; then an older copy comes.
    bench.request(Kind::Read, 1, 2, barrier(2, 1, 0));
    bench.request(Kind::Read, 1, 2, barrier(1, 0, 0));
    bench.request(Kind::Read, 1, 1, barrier(1, 0, 0));
    assert_eq!(bench.executed, [(SessionId(1), SeqNum(1))]);
    bench.manifest(2, 0, 1, &[]);
    assert_eq!(bench.executed.len(), 1, "what it stands behind has not come");
    bench.request(Kind::Update, 2, 1, order(2, 1, 0));
    assert_eq!(bench.executed[1..], [(SessionId(2), SeqNum(1)), (SessionId(1), SeqNum(2))]);
}

fn identity(number: u64) -> Identity {
    Identity { client: [4; 16], number }
}

#[test]
fn a_request_is_executed_with_the_identity_that_its_client_says() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
    bench.manifest(1, 0, 1, &[]);
    bench.request_of(Kind::Update, 1, 1, order(1, 1, 0), Some(identity(7)));
    bench.request(Kind::Update, 1, 2, order(1, 2, 1));
    bench.request_of(Kind::Read, 1, 3, barrier(1, 2, 2), Some(identity(8)));
    assert_eq!(bench.identities, [Some(identity(7)), None, Some(identity(8))]);
    bench.request_of(Kind::Update, 1, 1, order(1, 1, 0), Some(identity(7)));
    assert_eq!(bench.identities.len(), 3, "what comes again is not executed again");
}

/// A device gives back what its log holds of a request; the client's copy, earlier or later, says the rest.
#[test]
fn a_request_that_waits_learns_its_identity_from_any_of_its_copies() {
    for replayed_first in [true, false] {
        let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
        bench.manifest(1, 0, 1, &[]);
        // Both wait for the request before them.
        if replayed_first {
            bench.replay(1, 2, order(1, 1, 0));
        }
        bench.request_of(Kind::Update, 1, 2, order(1, 1, 0), Some(identity(9)));
        bench.replay(1, 2, order(1, 1, 0));
        assert!(bench.executed.is_empty());
        bench.request(Kind::Read, 1, 1, barrier(1, 0, 0));
        assert_eq!(bench.identities, [None, Some(identity(9))], "replayed first: {replayed_first}");
    }
}
