//! Sessions that the device has no room for.

use crate::bench::{answered, response, value, Bench, Outcome, FOR_EVER, SERVER};
use remedy_cache::Limits;
use scotfree_core::Nanos;
use scotfree_session::by_hand::{
    accept, client_address, cluster, device_address, header, packet, session_keys,
};
use scotfree_wire::{CloseReason, CloseTail, Direction, Kind, ResponseTail, Tail};

const OK: &[u8] = b"\x01\x00+OK\r\n";
/// The session that finds no room.
const THIRD: u64 = 3;

/// A device with room for two, which knows a value; a third has been accepted.
fn crowded() -> Bench {
    let limits = Limits { admit_reads: 0, bucket_count: 1 << 8, needs_word: false, ..Limits::default() };
    let mut bench = Bench::new(limits, |config| config.sessions_max = 2);
    // Who has not spoken gives way.
    bench.fill((1, 1), "k", "old");
    assert_eq!(bench.get((2, 1), "k"), answered("old"));
    bench.receive(SERVER, client_address(), &accept(THIRD, 16));
    assert_eq!(bench.get((1, 2), "k"), answered("old"));
    bench
}

/// Whether a read that passes now fills, as one that is answered behind it shows.
fn fills(bench: &mut Bench, seq: u64) -> bool {
    if bench.get((1, seq), "k") != Outcome::PassedOn {
        return true;
    }
    bench.reply((1, seq), &value("new"), FOR_EVER);
    bench.get((1, seq + 1), "k") == answered("new")
}

#[test]
fn its_write_is_over_with_its_reply() {
    let mut bench = crowded();
    bench.bypass((THIRD, 1), "SET k new");
    assert!(!fills(&mut bench, 3), "it is under way");
    bench.reply((THIRD, 1), OK, None);
    assert!(fills(&mut bench, 5));
    // And whatever it writes later.
    bench.bypass((THIRD, 2), "APPEND k er");
    assert!(!fills(&mut bench, 7));
    bench.reply((THIRD, 2), OK, None);
    assert!(fills(&mut bench, 9));
}

#[test]
fn its_reads_change_nothing() {
    let mut bench = crowded();
    assert_eq!(bench.get((THIRD, 1), "k"), Outcome::PassedOn);
    bench.reply((THIRD, 1), &value("old"), FOR_EVER);
    assert_eq!(bench.get((1, 3), "k"), answered("old"));
    assert_eq!(bench.count_of("scotfree_cache_resets_total", ""), 0);
}

#[test]
fn who_cannot_be_believed_ends_nothing_of_it() {
    let mut bench = crowded();
    bench.bypass((THIRD, 1), "SET k new");
    let forged = packet(
        &header(Kind::Response, THIRD, 1),
        &Tail::Response(ResponseTail::default()),
        OK,
        &session_keys(2).server_to_client,
    );
    bench.receive(SERVER, client_address(), &forged);
    assert!(!fills(&mut bench, 3));
}

#[test]
fn a_reply_to_what_never_passed_tells_of_a_write() {
    let mut bench = crowded();
    bench.receive(SERVER, client_address(), &response((THIRD, 5), OK, None));
    assert_eq!(bench.get((1, 3), "k"), Outcome::PassedOn);
}

#[test]
fn of_a_session_that_its_server_has_ended_a_write_is_over_when_nothing_of_it_can_be_on_its_way() {
    let mut bench = crowded();
    bench.bypass((THIRD, 1), "SET k new");
    let close = packet(
        &header(Kind::SessionClose, THIRD, 0),
        &Tail::Close(CloseTail { reason: CloseReason::Expire }),
        &[],
        &cluster().control(Direction::ServerToDevice),
    );
    bench.receive(SERVER, device_address(), &close);
    assert!(!fills(&mut bench, 3), "it may be executed yet");
    bench.now = bench.now.plus(Limits::default().orphan_wait).plus(Nanos(1));
    bench.lease(SERVER, Nanos::from_secs(100));
    assert!(fills(&mut bench, 5));
}

#[test]
fn without_the_word_of_its_server_nothing_is_known_of_it() {
    let limits = Limits { admit_reads: 0, bucket_count: 1 << 8, needs_word: false, ..Limits::default() };
    let mut bench = Bench::new(limits, |config| config.sessions_max = 2);
    bench.fill((1, 1), "k", "old");
    bench.bypass((THIRD, 1), "SET k new");
    bench.reply((THIRD, 1), OK, None);
    assert!(!fills(&mut bench, 2), "its keys are not known");
}
