//! Groups in simulated time: what can be computed by hand comes out, to the nanosecond.

use remedy_replicate_world::timed::{measure, Costs, Outcome, Setup};
use remedy_replicate_world::Protocol::{self, Chain, Craq, Hermes};
use scotfree_core::Nanos;

/// Between members, and between a client and a member: no multiple of each other.
const WIRE: u64 = 5_000;
const CLIENT: u64 = 7_001;

/// One client's writes to the member of this place, of this many.
fn writes(protocol: Protocol, member_count: usize, to: usize) -> Setup {
    Setup {
        protocol,
        member_count,
        client_count: 1,
        write_percent: 100,
        reads_to: Some(to),
        writes_to: Some(to),
        key_count: 10,
        value_bytes: 100,
        one_way: Nanos(WIRE),
        client_one_way: Nanos(CLIENT),
        costs: Costs::NONE,
        request_count: 50,
        warmup_count: 5,
        seed: 1,
    }
}

fn reads(protocol: Protocol, member_count: usize, to: usize) -> Setup {
    Setup { write_percent: 0, ..writes(protocol, member_count, to) }
}

/// So many one-way times between members, which each request took beside its way to the group and back.
fn wires(setup: &Setup) -> u64 {
    let Outcome { reads, writes, resent, .. } = measure(setup);
    assert_eq!(resent, 0, "nothing is lost");
    let all = [reads, writes].concat();
    assert_eq!(all.len(), 50);
    assert!(all.iter().all(|latency| *latency == all[0]), "{all:?}");
    let between = all[0].0 - 2 * CLIENT;
    assert_eq!(between % WIRE, 0, "{between}");
    between / WIRE
}

#[test]
fn a_write_of_a_chain_goes_to_the_head_through_all_and_from_the_tail_to_whose_client_waits() {
    for protocol in [Chain, Craq] {
        let took = |member_count, to| wires(&writes(protocol, member_count, to));
        assert_eq!([took(1, 0)], [0]);
        assert_eq!([took(2, 0), took(2, 1)], [2, 2]);
        assert_eq!([took(3, 0), took(3, 1), took(3, 2)], [3, 4, 3]);
        assert_eq!([took(4, 0), took(4, 1), took(4, 2), took(4, 3)], [4, 5, 5, 4]);
    }
}

#[test]
fn a_write_of_hermes_goes_to_all_and_back_wherever_it_came() {
    for member_count in 2..=4 {
        for to in 0..member_count {
            assert_eq!(wires(&writes(Hermes, member_count, to)), 2);
        }
    }
    assert_eq!(wires(&writes(Hermes, 1, 0)), 0);
}

#[test]
fn a_read_is_answered_where_it_comes_but_a_chain_asks_its_tail() {
    for to in 0..3 {
        assert_eq!(wires(&reads(Craq, 3, to)), 0);
        assert_eq!(wires(&reads(Hermes, 3, to)), 0);
        assert_eq!(wires(&reads(Chain, 3, to)), if to == 2 { 0 } else { 2 });
    }
}

const COSTS: Costs = Costs {
    turn: Nanos(1_000),
    receive: Nanos(300),
    call: Nanos(200),
    send: Nanos(1_400),
    request: Nanos(5_000),
    step: Nanos(900),
    apply: Nanos(70),
    store: Nanos(700),
    byte_ps: 0,
};

#[test]
fn a_group_of_one_is_a_single_server() {
    for protocol in [Chain, Craq, Hermes] {
        let alone = Setup {
            costs: COSTS,
            one_way: Nanos(0),
            client_one_way: Nanos(0),
            warmup_count: 0,
            ..reads(protocol, 1, 0)
        };
        let each = 1_000 + 300 + 5_000 + 200 + 1_400;
        let outcome = measure(&alone);
        assert!(outcome.reads.iter().all(|latency| latency.0 == each));
        assert_eq!(outcome.elapsed.0, 50 * each);
        assert_eq!(outcome.busy, [outcome.elapsed]);
        let costs = Costs { turn: Nanos(0), call: Nanos(0), ..COSTS };
        let full = Setup { costs, client_count: 100, request_count: 10_000, warmup_count: 1_000, ..alone };
        let (rate, most) = (measure(&full).per_second(), 1e9 / 6_700.0);
        assert!((rate / most - 1.0).abs() < 0.01, "{rate} of {most}");
    }
}

#[test]
fn what_a_member_spends_is_on_the_way_of_each_datagram() {
    let setup = Setup { costs: COSTS, ..writes(Hermes, 3, 0) };
    let latency = measure(&setup).writes[0].0;
    // The request, and two datagrams out, of which the later one's way is the longer.
    let coordinator_first = 1_000 + 300 + 5_000 + 70 + 200 + 2 * 1_400;
    let follower = 1_000 + 300 + 900 + 70 + 200 + 1_400;
    // Acknowledgements that are apart by one sending are taken in two turns; only the second commits.
    let coordinator_last = 1_000 + 300 + 900 + (200 + 1_400);
    let first_turn_left = (1_000 + 300 + 900) - 1_400;
    let own = coordinator_first + follower + first_turn_left + coordinator_last;
    // All have handed it to storage while others were on their way, and that it is valid is told behind the answer.
    assert_eq!(latency, own + 2 * WIRE + 2 * CLIENT);
}

#[test]
fn a_chain_answers_a_write_when_it_is_committed_and_stores_behind_that() {
    let setup = Setup { costs: COSTS, ..writes(Chain, 3, 2) };
    let latency = measure(&setup).writes[0].0;
    let submits = 1_000 + 300 + 5_000 + 200 + 1_400;
    let passes_on = 1_000 + 300 + 900 + 200 + 1_400;
    // The tail answers; then it tells the one before it how far it is, and stores.
    let tail = 1_000 + 300 + 900 + 70 + (200 + 1_400);
    assert_eq!(latency, submits + 2 * passes_on + tail + 3 * WIRE + 2 * CLIENT);
}

#[test]
fn a_seed_is_a_run() {
    for protocol in [Chain, Craq, Hermes] {
        let busy = Setup {
            client_count: 16,
            write_percent: 20,
            reads_to: None,
            writes_to: None,
            costs: COSTS,
            request_count: 2_000,
            ..writes(protocol, 3, 0)
        };
        let outcome = measure(&busy);
        assert_eq!(outcome, measure(&busy));
        assert_ne!(outcome, measure(&Setup { seed: 2, ..busy.clone() }));
        assert!(outcome.reads.len() > outcome.writes.len() && !outcome.writes.is_empty());
    }
}
