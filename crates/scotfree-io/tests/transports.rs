//! Every transport passes the conformance suite; UDP's own rules follow.

use scotfree_core::Nanos;
use scotfree_io::conformance::transport::suite;
use scotfree_io::memory::{pair, MemoryConfig};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, RxBurst, Stamps, Transport, TxPacket};
use std::net::{SocketAddr, UdpSocket};

#[test]
fn memory_conforms() {
    suite(|| {
        let (a, b, nobody) = (address("10.0.0.1:1"), address("10.0.0.2:1"), address("10.0.0.3:1"));
        let (a, b) = pair(a, b, MemoryConfig::default()).expect("two endpoints");
        (a, b, nobody)
    });
}

#[test]
fn udp_conforms_over_ipv4() {
    suite(|| loopback("127.0.0.1:0"));
}

#[test]
fn udp_conforms_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        println!("SKIP: this host has no IPv6 loopback address");
        return;
    }
    suite(|| loopback("[::1]:0"));
}

#[test]
fn a_refusal_by_the_peer_is_counted_and_no_error() {
    let config = UdpConfig { peer: Some(unused_address("127.0.0.1:0")), ..UdpConfig::default() };
    let mut udp = UdpTransport::bind(address("127.0.0.1:0"), &config).expect("a socket");
    let packet = TxPacket { to: address("127.0.0.1:9"), bytes: b"anyone?", stamp: None };
    let mut burst = RxBurst::new(4, 64);
    assert_eq!(udp.tx_burst(&[packet]).expect("no error"), 1);
    await_that(|| {
        assert_eq!(udp.rx_burst(&mut burst).expect("no error"), 0);
        udp.counters().refused >= 1
    });
    for _ in 0..10 {
        assert_eq!(udp.tx_burst(&[packet, packet]).expect("no error"), 2);
    }
    assert!(udp.counters().refused > 1, "refusals met while sending are counted too");
    assert_eq!(udp.counters().tx_packets, 21);
}

#[test]
fn what_cannot_be_sent_is_taken_and_counted() {
    let (mut a, mut b, _) = loopback("127.0.0.1:0");
    let long = vec![0; a.mtu() + 1];
    let wrong_family = TxPacket { to: address("[::1]:9"), bytes: b"x", stamp: Some(1) };
    let too_long = TxPacket { to: b.local_address(), bytes: &long, stamp: None };
    let good = TxPacket { to: b.local_address(), bytes: b"x", stamp: None };
    assert_eq!(a.tx_burst(&[wrong_family, good, too_long, too_long, good]).expect("no error"), 5);
    let counters = a.counters();
    assert_eq!((counters.tx_unroutable, counters.tx_too_long, counters.tx_packets), (1, 2, 2));
    let mut burst = RxBurst::new(4, 64);
    let mut count = 0;
    await_that(|| {
        count += b.rx_burst(&mut burst).expect("no error");
        count == 2
    });
}

#[test]
fn a_full_kernel_buffer_is_counted_when_the_next_datagram_tells() {
    let small = UdpConfig { receive_buffer_bytes: 4_096, ..UdpConfig::default() };
    let mut b = UdpTransport::bind(address("127.0.0.1:0"), &small).expect("a socket");
    let mut a = UdpTransport::bind(address("127.0.0.1:0"), &UdpConfig::default()).expect("a socket");
    let packet = TxPacket { to: b.local_address(), bytes: &[0; 1_000], stamp: None };
    let mut burst = RxBurst::new(64, 1_000);
    await_that(|| {
        a.tx_burst(&[packet; 64]).expect("no error");
        while b.rx_burst(&mut burst).expect("no error") > 0 {}
        b.counters().rx_overflowed > 0
    });
}

#[test]
fn stamps_recover_when_the_kernel_counts_differently() {
    let (mut a, b, _) = loopback("127.0.0.1:0");
    let packet = TxPacket { to: b.local_address(), bytes: b"x", stamp: Some(7) };
    stamp_behind_its_back(&a, b.local_address());
    let mut stamps = Vec::new();
    await_that(|| {
        a.tx_burst(&[packet]).expect("no error");
        a.tx_stamps(&mut stamps);
        !stamps.is_empty()
    });
    assert_eq!(a.counters().tx_stamp_restarts, 1, "the difference was seen and mended");
    assert!(a.counters().tx_stamps_lost > 0, "what it cost is counted");
}

/// Sends a stamped datagram through a copy of the socket, so that the kernel counts one more than the
/// transport does.
#[test]
fn a_socket_that_is_not_to_stamp_says_so_and_stamps_nothing() {
    let config = UdpConfig { stamps: false, ..UdpConfig::default() };
    let bind = || UdpTransport::bind(address("127.0.0.1:0"), &config).expect("a socket");
    let (mut a, mut b) = (bind(), bind());
    assert_eq!(a.stamps(), Stamps::None);
    let to = b.local_address();
    assert_eq!(a.tx_burst(&[TxPacket { to, bytes: b"x", stamp: Some(1) }]).expect("no error"), 1);
    let mut burst = RxBurst::new(4, 64);
    await_that(|| b.rx_burst(&mut burst).expect("no error") == 1);
    assert!(burst.iter().all(|packet| packet.received_at.is_none()));
    let mut stamps = Vec::new();
    a.tx_stamps(&mut stamps);
    assert!(stamps.is_empty());
}

fn stamp_behind_its_back(transport: &UdpTransport, to: SocketAddr) {
    use std::os::fd::AsFd;
    let copy = transport.as_fd().try_clone_to_owned().expect("a copy of the descriptor");
    let mut stranger = UdpTransport::adopt(copy, &UdpConfig::default()).expect("a second owner");
    stranger.tx_burst(&[TxPacket { to, bytes: b"x", stamp: Some(1) }]).expect("no error");
}

fn loopback(text: &str) -> (UdpTransport, UdpTransport, SocketAddr) {
    let bind = || UdpTransport::bind(address(text), &UdpConfig::default()).expect("a socket");
    (bind(), bind(), unused_address(text))
}

/// An address that was free a moment ago.
fn unused_address(text: &str) -> SocketAddr {
    UdpSocket::bind(text).and_then(|socket| socket.local_addr()).expect("a free port")
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn await_that(mut condition: impl FnMut() -> bool) {
    let deadline = now_monotonic().plus(Nanos::from_secs(10));
    while !condition() {
        assert!(now_monotonic() < deadline, "the condition comes true within ten seconds");
    }
}
