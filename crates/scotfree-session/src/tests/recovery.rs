//! What a server asks devices for after a restart, what it takes for told, and whom it gives a lease.

use super::bench::{recovered, ServerBench};
use crate::by_hand::{address, barrier, device_address, header, nonce, order, NOW};
use crate::{DeadLetterReason, RecoveredSession, ServerConfig};
use scotfree_core::{BootEpoch, DeviceId, Epoch, Machine, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_wire::{
    ClusterKey, Flags, Header, KeyEpoch, Kind, LeaseTail, ManifestRecord, ManifestTail, Packet, Stamp, Tail,
    MANIFEST_RECORD_BYTES,
};

const RETRY: Nanos = Nanos::from_millis(20);

/// The head and another device.
fn two_devices(sessions: &[RecoveredSession], adjust: impl FnOnce(&mut ServerConfig)) -> ServerBench {
    ServerBench::new(sessions, |config| {
        config.devices.push((DeviceId(2), address(253)));
        adjust(config);
    })
}

/// What a device says that it holds: as one page of `pages`, under a poll's number.
struct Page {
    device: u16,
    boot_epoch: u32,
    poll: u64,
    place: (u16, u16),
    session_count: u32,
}

impl Page {
    fn said_to(&self, bench: &mut ServerBench, records: &[ManifestRecord]) {
        let mut payload = Vec::new();
        for record in records {
            record.write(&mut payload);
        }
        assert_eq!(payload.len(), records.len() * MANIFEST_RECORD_BYTES);
        let tail = ManifestTail {
            device: DeviceId(self.device),
            boot_epoch: BootEpoch(self.boot_epoch),
            order_current: OrderNumber(0),
            session_count: self.session_count,
        };
        let (fragment_index, fragment_count) = self.place;
        let header = Header { fragment_index, fragment_count, ..header(Kind::Manifest, 0, self.poll) };
        bench.device_says(&header, &Tail::Manifest(tail), &payload);
    }
}

/// A device that holds nothing.
fn empty(device: u16, boot_epoch: u32, poll: u64) -> Page {
    Page { device, boot_epoch, poll, place: (0, 1), session_count: 0 }
}

fn record(id: u64, first: u64, last: u64, entry_count: u32) -> ManifestRecord {
    ManifestRecord {
        session: SessionId(id),
        epoch: Epoch(1),
        window: 128,
        client_nonce: nonce(id),
        server_nonce: [9; 16],
        first: SeqNum(first),
        last: SeqNum(last),
        entry_count,
    }
}

/// What it sent to `address` since the last look.
fn take_told(bench: &mut ServerBench, to: std::net::SocketAddr) -> Vec<(Header, Tail)> {
    let sent = std::mem::take(&mut bench.sent);
    let told = sent.iter().filter(|(address, _)| *address == to);
    let told = told.map(|(_, bytes)| Packet::parse(bytes).expect("it sends whole packets"));
    told.map(|packet| (*packet.header(), *packet.tail())).collect()
}

/// The ranges that the head was asked for since the last look.
fn ranges(bench: &mut ServerBench) -> Vec<(u64, u64, u64)> {
    let range = |(header, tail): (Header, Tail)| match tail {
        Tail::Range(range) => Some((header.session.0, range.first, range.last)),
        _ => None,
    };
    take_told(bench, device_address()).into_iter().filter_map(range).collect()
}

#[test]
fn a_server_serves_when_every_device_has_answered_the_poll_that_it_was_asked_last() {
    let mut bench = two_devices(&[recovered(1, 0)], |_| {});
    assert_eq!(bench.server.counters().polls, 2);
    assert_eq!(bench.server.devices().collect::<Vec<_>>(), [(DeviceId(1), false), (DeviceId(2), false)]);
    bench.sent.clear();
    empty(1, 1, 1).said_to(&mut bench, &[]);
    assert_eq!(bench.server.devices().collect::<Vec<_>>(), [(DeviceId(1), true), (DeviceId(2), false)]);
    // Another poll's answer, and that of a device that nobody has asked.
    empty(2, 1, 1).said_to(&mut bench, &[]);
    empty(3, 1, 2).said_to(&mut bench, &[]);
    bench.pass(Nanos(RETRY.0 - 1));
    assert_eq!((bench.server.is_serving(), bench.sent.len()), (false, 0));
    bench.pass(Nanos(1));
    let asked: Vec<_> =
        take_told(&mut bench, address(253)).iter().map(|(header, _)| header.seq_num.0).collect();
    assert_eq!(
        (asked, bench.server.counters().polls),
        (vec![2], 3),
        "only who has not answered is asked again"
    );
    empty(2, 1, 2).said_to(&mut bench, &[]);
    assert!(bench.server.is_serving());
    bench.pass(Nanos::from_secs(1));
    assert_eq!(bench.server.counters().polls, 3);
}

#[test]
fn what_a_device_had_before_the_server_serves_may_have_been_acknowledged_and_nothing_else() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
    // The client sends one of them again before the device does.
    bench.request(Kind::Update, 1, 1, order(1, 1, 0));
    bench.manifest(1, 2, 1, &[(1, order(1, 1, 0)), (2, order(1, 2, 1))]);
    let before = [1, 2].map(|seq| (SessionId(1), SeqNum(seq)));
    assert_eq!((&bench.executed[..], &bench.executed_anew[..]), (&before[..], &before[..]));
    // Lost on their way: the client is not told of them yet.
    bench.request(Kind::Update, 1, 3, order(1, 3, 2));
    bench.replay(1, 4, order(1, 4, 3));
    assert_eq!((bench.executed.len(), bench.executed_anew.len()), (4, 2));
}

#[test]
fn a_stamp_settles_nothing_before_the_devices_have_said_what_they_hold() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
    bench.request(Kind::Update, 1, 1, order(1, 5, 0));
    assert_eq!((bench.server.is_serving(), bench.executed.len()), (false, 0));
    // The poll that the stamp would begin is open already.
    assert_eq!(bench.server.counters().polls, 1);
    empty(1, 1, 1).said_to(&mut bench, &[]);
    assert_eq!((bench.server.is_serving(), bench.executed.len()), (true, 0), "four are missing");
}

#[test]
fn a_stamp_of_a_newer_head_makes_the_server_ask_and_of_an_older_or_of_no_head_counts_for_nothing() {
    for (device, boot_epoch, polls, drains, executed) in
        [(1, 3, 0, 0, 1), (1, 2, 0, 1, 0), (2, 3, 0, 1, 0), (1, 4, 1, 0, 0)]
    {
        let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
        empty(1, 3, 1).said_to(&mut bench, &[]);
        let stamp = Stamp { device: DeviceId(device), ..order(boot_epoch, 1, 0) };
        bench.request(Kind::Update, 1, 1, stamp);
        let counters = bench.server.counters();
        let case = format!("device {device} of boot {boot_epoch}");
        assert_eq!((counters.polls - 1, counters.drains_asked), (polls, drains), "{case}");
        assert_eq!(bench.executed.len(), executed, "{case}");
    }
}

#[test]
fn the_place_that_a_newer_head_gave_replaces_the_older_one() {
    let mut bench = ServerBench::new(&[recovered(1, 0), recovered(2, 0)], |_| {});
    empty(1, 1, 1).said_to(&mut bench, &[]);
    bench.request(Kind::Update, 1, 2, order(1, 1, 0));
    bench.request(Kind::Update, 1, 2, order(2, 1, 0));
    empty(1, 2, 2).said_to(&mut bench, &[]);
    bench.request(Kind::Update, 2, 1, order(2, 2, 0));
    assert_eq!(bench.executed, []);
    bench.request(Kind::Read, 1, 1, barrier(2, 0, 0));
    assert_eq!(bench.executed, [(1, 1), (1, 2), (2, 1)].map(|(id, seq)| (SessionId(id), SeqNum(seq))));
}

#[test]
fn every_session_ends_whose_epoch_of_the_key_is_taken_away() {
    let epochs = |epochs: &[(u32, u8)]| {
        let secrets = epochs.iter().map(|(epoch, secret)| (KeyEpoch(*epoch), [*secret; 32]));
        ClusterKey::from_epochs(secrets.collect()).expect("they grow")
    };
    let mut bench = ServerBench::new(&[recovered(1, 0), recovered(2, 0)], |config| config.devices.clear());
    for (key, revoked) in [(epochs(&[(0, 3), (5, 4)]), 0), (epochs(&[(5, 4)]), 2)] {
        bench.act(|server, now, effects| server.set_cluster_key(now, key, effects));
        assert_eq!((bench.server.counters().revoked, bench.deleted.len() as u64), (revoked, revoked));
    }
}

#[test]
fn a_manifest_of_several_pages_counts_when_all_are_there_and_of_one_answer() {
    let mut bench = ServerBench::new(&[recovered(1, 0), recovered(2, 0)], |_| {});
    let page = |index, poll, session_count| Page { place: (index, 2), session_count, ..empty(1, 1, poll) };
    page(1, 1, 2).said_to(&mut bench, &[record(2, 0, 0, 0)]);
    assert!(!bench.server.is_serving());
    page(1, 1, 2).said_to(&mut bench, &[record(2, 0, 0, 0)]);
    assert!(!bench.server.is_serving(), "twice the same page is one");
    page(0, 1, 3).said_to(&mut bench, &[record(1, 0, 0, 0)]);
    assert!(!bench.server.is_serving(), "sessions went between the pages");
    assert_eq!(bench.server.counters().polls, 2, "so it is asked anew");
    page(0, 2, 2).said_to(&mut bench, &[record(1, 0, 0, 0)]);
    page(1, 2, 2).said_to(&mut bench, &[record(2, 0, 0, 0)]);
    assert!(bench.server.is_serving());
}

/// The session has come to request 5; the device holds `first` to `last` of it.
#[test]
fn what_a_device_holds_is_fetched_as_far_as_it_was_not_executed() {
    for (first, last, count, range, told) in [
        (3, 8, 6, Some((1, 6, 8)), false),
        (7, 8, 2, Some((1, 7, 8)), false),
        (6, 6, 1, Some((1, 6, 6)), false),
        (3, 5, 3, None, true),
        (6, 8, 0, None, false),
    ] {
        let mut bench = ServerBench::new(&[recovered(1, 5)], |_| {});
        bench.sent.clear();
        Page { session_count: 1, ..empty(1, 1, 1) }.said_to(&mut bench, &[record(1, first, last, count)]);
        let stable = bench.last_sent(Kind::ServerAck).map(|ack| ack.seq_num);
        assert_eq!(stable, told.then_some(SeqNum(5)), "{first} to {last}");
        assert_eq!(bench.server.counters().server_acks, u64::from(told));
        assert_eq!(ranges(&mut bench), range.into_iter().collect::<Vec<_>>(), "{first} to {last}");
        assert_eq!(bench.server.is_serving(), range.is_none());
    }
}

/// The end of what a device has replayed: up to `covered`, of a range from `first`, so many.
fn range_end(bench: &mut ServerBench, id: u64, first: u64, covered: u64, count: u64) {
    let end = Header { flags: Flags::VOID, ..header(Kind::Replay, id, covered) };
    bench.device_says(&end, &Tail::Stamp(barrier(1, count, first)), &[]);
}

#[test]
fn a_range_is_fetched_when_as_much_is_here_as_the_device_has_sent() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
    Page { session_count: 1, ..empty(1, 1, 1) }.said_to(&mut bench, &[record(1, 1, 6, 6)]);
    bench.sent.clear();
    for seq in [1, 3] {
        bench.replay(1, seq, order(1, seq, seq - 1));
    }
    range_end(&mut bench, 1, 1, 3, 3);
    assert_eq!(ranges(&mut bench), [], "one was lost");
    bench.pass(RETRY);
    assert_eq!(ranges(&mut bench), [(1, 1, 6)]);
    bench.replay(1, 2, order(1, 2, 1));
    // Of another range, of another session, or of none of it.
    range_end(&mut bench, 1, 2, 3, 3);
    range_end(&mut bench, 2, 1, 3, 3);
    range_end(&mut bench, 1, 1, 0, 0);
    assert_eq!(ranges(&mut bench), []);
    range_end(&mut bench, 1, 1, 3, 3);
    assert_eq!(ranges(&mut bench), [(1, 4, 6)], "the rest of it");
    for seq in 4..=6 {
        bench.replay(1, seq, order(1, seq, seq - 1));
    }
    assert!(!bench.server.is_serving());
    range_end(&mut bench, 1, 4, 6, 3);
    assert!(bench.server.is_serving());
    assert_eq!((bench.executed.len(), bench.server.counters().replayed), (6, 6));
}

#[test]
fn what_a_device_holds_of_a_session_that_storage_lost_becomes_dead_letters_before_it_is_to_forget_it() {
    let mut bench = ServerBench::new(&[], |_| {});
    Page { session_count: 2, ..empty(1, 1, 1) }
        .said_to(&mut bench, &[record(7, 4, 5, 2), record(8, 0, 0, 0)]);
    assert_eq!(ranges(&mut bench), [(7, 4, 5)]);
    bench.replay(7, 4, order(1, 1, 3));
    bench.replay(7, 5, order(1, 2, 4));
    range_end(&mut bench, 7, 4, 5, 2);
    let letter = |seq| (SessionId(7), SeqNum(seq), DeadLetterReason::UnknownSession);
    assert_eq!((&bench.dead_letters[..], bench.server.is_serving()), (&[letter(4), letter(5)][..], true));
    assert_eq!((bench.server.counters().dead_letters, bench.executed.len()), (2, 0));
    bench.sent.clear();
    bench.pass(Nanos(0));
    let told = take_told(&mut bench, device_address());
    let told: Vec<_> =
        told.iter().map(|(header, _)| (header.kind, header.session.0, header.seq_num.0)).collect();
    let (ack, close) = (Kind::ServerAck, Kind::SessionClose);
    assert_eq!(told, [(ack, 7, 5), (close, 7, 0), (ack, 8, 0), (close, 8, 0)]);
    bench.confirm_empty(7..=7);
    bench.pass(RETRY);
    let told = take_told(&mut bench, device_address());
    assert_eq!(told.iter().filter(|(header, _)| header.session == SessionId(7)).count(), 0);
    assert_eq!(told.iter().filter(|(header, _)| header.session == SessionId(8)).count(), 2, "asked again");
}

fn ask_for_lease(bench: &mut ServerBench, device: u16, boot_epoch: u32) -> Vec<(u32, u64)> {
    bench.sent.clear();
    let tail = LeaseTail {
        asked_at: Nanos(77),
        duration: Nanos(0),
        device: DeviceId(device),
        boot_epoch: BootEpoch(boot_epoch),
    };
    bench.device_says(&header(Kind::Lease, 0, 0), &Tail::Lease(tail), &[]);
    let to = if device == 1 { device_address() } else { address(253) };
    let answer = |(_, tail): (Header, Tail)| match tail {
        Tail::Lease(answer) => {
            assert_eq!((answer.asked_at, answer.device), (Nanos(77), DeviceId(device)));
            Some((answer.boot_epoch.0, answer.duration.0 / 1_000_000))
        }
        _ => None,
    };
    take_told(bench, to).into_iter().filter_map(answer).collect()
}

/// The head has said what it holds under boot epoch 3, the other device under 5.
fn leased(lease_s: u64, lease_max_s: u64) -> ServerBench {
    let mut bench = two_devices(&[recovered(1, 0)], |config| {
        (config.lease, config.lease_max) = (Nanos::from_secs(lease_s), Nanos::from_secs(lease_max_s));
    });
    empty(1, 3, 1).said_to(&mut bench, &[]);
    empty(2, 5, 2).said_to(&mut bench, &[]);
    assert!(bench.server.is_serving());
    bench
}

/// (device, its boot epoch, what it is told: the boot epoch and for how long; how many are polled anew)
#[test]
fn a_lease_is_for_the_incarnation_that_has_said_what_it_holds() {
    for (device, boot_epoch, answer, polls) in [
        (1, 3, Some((3, 2_000)), 0),
        (1, 2, Some((3, 0)), 0),
        (1, 1, Some((3, 0)), 0),
        (1, 4, None, 2),
        (2, 5, Some((5, 2_000)), 0),
        (2, 4, None, 0),
        (2, 6, None, 1),
        (3, 1, None, 0),
    ] {
        let mut bench = leased(2, 2);
        let polls_before = bench.server.counters().polls;
        let case = format!("device {device} of boot {boot_epoch}");
        assert_eq!(
            ask_for_lease(&mut bench, device, boot_epoch),
            answer.into_iter().collect::<Vec<_>>(),
            "{case}"
        );
        assert_eq!(bench.server.counters().polls - polls_before, polls, "{case}");
        // While it is asked, nothing more is asked.
        assert_eq!(ask_for_lease(&mut bench, device, boot_epoch).is_empty(), answer.is_none(), "{case}");
        assert_eq!(bench.server.counters().polls - polls_before, polls, "{case}");
    }
}

#[test]
fn no_lease_is_longer_than_the_longest() {
    assert_eq!(ask_for_lease(&mut leased(3, 2), 1, 3), [(3, 2_000)]);
    assert_eq!(ask_for_lease(&mut leased(1, 2), 1, 3), [(3, 1_000)]);
}

#[test]
fn a_head_rises_above_what_another_device_has_stamped() {
    let mut bench = leased(2, 2);
    let stamp = Stamp { device: DeviceId(2), ..order(6, 1, 0) };
    bench.replay(1, 1, stamp);
    assert_eq!(ask_for_lease(&mut bench, 1, 3), [(7, 0)]);
    assert_eq!(ask_for_lease(&mut bench, 1, 6), [(7, 0)]);
    assert_eq!(ask_for_lease(&mut bench, 1, 7), [], "it says first what it holds");
}

#[test]
fn a_device_that_is_to_be_excluded_gets_no_lease_and_goes_when_its_last_has_ended() {
    let mut bench = leased(2, 2);
    bench.pass(Nanos::from_secs(1));
    assert_eq!(ask_for_lease(&mut bench, 2, 5).len(), 1);
    bench.act(|server, now, effects| server.exclude(now, DeviceId(2), effects));
    assert_eq!(ask_for_lease(&mut bench, 2, 5), []);
    // Two seconds, and an eighth for its clock.
    bench.pass(Nanos(Nanos::from_millis(2_250).0 - 1));
    assert_eq!(bench.server.devices().count(), 2);
    assert_eq!(bench.server.next_timer(), Some(NOW.plus(Nanos::from_millis(3_250))));
    bench.pass(Nanos(1));
    assert_eq!(bench.server.devices().map(|(device, _)| device).collect::<Vec<_>>(), [DeviceId(1)]);
    assert_eq!(ask_for_lease(&mut bench, 2, 5), []);
}
