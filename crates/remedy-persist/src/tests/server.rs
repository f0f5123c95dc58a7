//! Decisions of the server that need a rare meeting of events, each brought about by hand.

use super::bench::{barrier, client_address, order, recovered, ServerBench};
use scotfree_core::{DeviceId, Nanos, SeqNum, SessionId};
use scotfree_wire::Kind;

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
