//! What must hold of every [`Transport`].
//!
//! Invariant: nothing here sleeps; what takes time is awaited with a deadline.

use crate::clock::{now_monotonic, now_realtime};
use crate::poll::{Interest, Poller};
use crate::transport::{RxBurst, Stamps, Transport, TxPacket};
use scotfree_core::Nanos;
use std::net::SocketAddr;
use std::time::Duration;

const DEADLINE: Nanos = Nanos::from_secs(10);
const BURST_MAX: usize = 8;

/// Runs every rule over `make`, which gives two fresh transports that reach each other and an address
/// that nobody listens at.
pub fn suite<T: Transport>(mut make: impl FnMut() -> (T, T, SocketAddr)) {
    datagrams_arrive_whole_with_their_sender(make());
    nothing_waiting_is_zero(make());
    bursts_are_bounded_and_ordered(make());
    empty_and_largest_datagrams_pass(make());
    a_datagram_above_the_mtu_is_dropped_alone(make());
    a_datagram_above_the_room_is_dropped_alone(make());
    a_datagram_to_nobody_is_no_error(make());
    a_flood_is_no_error(make());
    received_datagrams_are_stamped(make());
    sampled_datagrams_are_stamped(make());
}

type Ends<T> = (T, T, SocketAddr);

fn datagrams_arrive_whole_with_their_sender<T: Transport>((mut a, mut b, _): Ends<T>) {
    let bytes: Vec<u8> = (0..=255).collect();
    send(&mut a, &[to(&b, &bytes)]);
    let (here, there) = (a.local_address(), b.local_address());
    let got = receive(&mut b, 1);
    assert_eq!(got, [(here, bytes.clone())], "a datagram arrives whole and names its sender");
    send(&mut b, &[TxPacket { to: here, bytes: &bytes, stamp: None }]);
    assert_eq!(receive(&mut a, 1), [(there, bytes)], "an answer finds the sender");
}

fn nothing_waiting_is_zero<T: Transport>((mut a, _b, _): Ends<T>) {
    let mut burst = RxBurst::new(BURST_MAX, 64);
    burst.push(a.local_address(), None, b"stale");
    assert_eq!(a.rx_burst(&mut burst).expect("an idle transport works"), 0);
    assert!(burst.is_empty(), "a burst replaces what the buffer held");
}

fn bursts_are_bounded_and_ordered<T: Transport>((mut a, mut b, _): Ends<T>) {
    let payloads: Vec<[u8; 1]> = (0..3 * BURST_MAX as u8).map(|index| [index]).collect();
    let packets: Vec<TxPacket<'_>> = payloads.iter().map(|bytes| to(&b, bytes)).collect();
    send(&mut a, &packets);
    let got: Vec<Vec<u8>> = receive(&mut b, packets.len()).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(got, payloads, "on an idle host nothing is lost or reordered");
}

fn empty_and_largest_datagrams_pass<T: Transport>((mut a, mut b, _): Ends<T>) {
    let largest = vec![7; a.mtu()];
    send(&mut a, &[to(&b, b""), to(&b, &largest)]);
    let lengths: Vec<usize> = receive(&mut b, 2).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [0, a.mtu()], "empty datagrams and those of the mtu pass");
}

fn a_datagram_above_the_mtu_is_dropped_alone<T: Transport>((mut a, mut b, _): Ends<T>) {
    let long = vec![7; a.mtu() + 1];
    send(&mut a, &[to(&b, b"before"), to(&b, &long), to(&b, b"after")]);
    let got: Vec<Vec<u8>> = receive(&mut b, 2).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(got, [b"before".to_vec(), b"after".to_vec()], "only the long datagram is dropped");
}

fn a_datagram_above_the_room_is_dropped_alone<T: Transport>((mut a, mut b, _): Ends<T>) {
    send(&mut a, &[to(&b, &[7; 65]), to(&b, b"short")]);
    let mut burst = RxBurst::new(BURST_MAX, 64);
    await_that(&b, "the short datagram arrives");
    let mut lengths = Vec::new();
    let deadline = now_monotonic().plus(DEADLINE);
    while lengths.is_empty() && now_monotonic() < deadline {
        b.rx_burst(&mut burst).expect("a long datagram is no error");
        lengths.extend(burst.iter().map(|packet| packet.bytes.len()));
    }
    assert_eq!(lengths, [5], "a datagram that does not fit is dropped, never cut");
}

fn a_datagram_to_nobody_is_no_error<T: Transport>((mut a, mut b, nobody): Ends<T>) {
    for _ in 0..3 {
        send(&mut a, &[TxPacket { to: nobody, bytes: b"hello?", stamp: None }]);
    }
    let mut burst = RxBurst::new(BURST_MAX, 64);
    assert_eq!(a.rx_burst(&mut burst).expect("a refusal is no error"), 0);
    send(&mut a, &[to(&b, b"still alive")]);
    assert_eq!(receive(&mut b, 1).len(), 1, "a refusal does not spoil the transport");
}

fn a_flood_is_no_error<T: Transport>((mut a, mut b, _): Ends<T>) {
    let bytes = vec![7; a.mtu().min(1_400)];
    let packets = vec![to(&b, &bytes); 64];
    for _ in 0..200 {
        let taken = a.tx_burst(&packets).expect("a flood is no error");
        assert!(taken <= packets.len());
    }
    let mut burst = RxBurst::new(BURST_MAX, bytes.len());
    let mut count = 0;
    while b.rx_burst(&mut burst).expect("a flood is no error") > 0 {
        count += burst.len();
    }
    assert!(count > 0, "some of a flood arrives");
    send(&mut a, &[to(&b, b"after")]);
    assert_eq!(receive(&mut b, 1)[0].1, b"after", "a flood does not spoil the transport");
}

fn received_datagrams_are_stamped<T: Transport>((mut a, mut b, _): Ends<T>) {
    if a.stamps() == Stamps::None {
        return;
    }
    // A kernel may need a moment to switch its stamps on for the first socket that asks.
    let deadline = now_monotonic().plus(DEADLINE);
    loop {
        let before = now_realtime();
        send(&mut a, &[to(&b, b"when?")]);
        let mut burst = RxBurst::new(BURST_MAX, 64);
        await_that(&b, "a datagram arrives");
        b.rx_burst(&mut burst).expect("receiving works");
        let after = now_realtime();
        if let Some(stamp) = burst.get(0).and_then(|packet| packet.received_at) {
            assert!(before <= stamp && stamp <= after, "a stamp lies between sending and receiving");
            return;
        }
        assert!(now_monotonic() < deadline, "datagrams are stamped when they arrive");
    }
}

fn sampled_datagrams_are_stamped<T: Transport>((mut a, mut b, _): Ends<T>) {
    if a.stamps() == Stamps::None {
        return;
    }
    let before = now_realtime();
    for key in 0..40_u32 {
        let stamp = (key % 4 == 0).then_some(1_000 + key);
        send(&mut a, &[TxPacket { stamp, ..to(&b, b"when?") }]);
    }
    let mut stamps = Vec::new();
    let deadline = now_monotonic().plus(DEADLINE);
    while stamps.len() < 10 && now_monotonic() < deadline {
        a.tx_stamps(&mut stamps);
    }
    let after = now_realtime();
    let keys: Vec<u32> = stamps.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, (0..10).map(|index| 1_000 + index * 4).collect::<Vec<u32>>(), "just the sampled keys");
    assert!(stamps.iter().all(|(_, at)| before <= *at && *at <= after), "stamps lie around the sending");
    assert!(stamps.is_sorted_by_key(|(_, at)| *at), "stamps follow the order of sending");
    receive(&mut b, 40);
}

fn to<'a>(target: &impl Transport, bytes: &'a [u8]) -> TxPacket<'a> {
    TxPacket { to: target.local_address(), bytes, stamp: None }
}

fn send(transport: &mut impl Transport, packets: &[TxPacket<'_>]) {
    let taken = transport.tx_burst(packets).expect("sending works");
    assert_eq!(taken, packets.len(), "an idle transport takes a small burst whole");
}

/// Receives until `count` datagrams have come.
fn receive(transport: &mut impl Transport, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut burst = RxBurst::new(BURST_MAX, transport.mtu());
    let mut got = Vec::new();
    while got.len() < count {
        await_that(transport, "datagrams arrive");
        transport.rx_burst(&mut burst).expect("receiving works");
        assert!(burst.len() <= BURST_MAX, "a burst is bounded");
        got.extend(burst.iter().map(|packet| (packet.from, packet.bytes.to_vec())));
    }
    got
}

fn await_that(transport: &impl Transport, rule: &str) {
    let mut poller = Poller::new(1).expect("a poller");
    let fd = transport.poll_fd().expect("a transport of this suite can be polled");
    poller.add(fd, 0, Interest::Read).expect("a watch");
    let deadline = now_monotonic().plus(DEADLINE);
    loop {
        let left = Duration::from_nanos(deadline.since(now_monotonic()).0);
        let events = poller.wait(Some(left)).expect("a wait");
        assert!(!events.is_empty(), "{rule}");
        if events[0].readable {
            return;
        }
    }
}
