//! After warm-up neither the UDP shell, nor the in-process one, nor the domains allocate per packet.

use allocation_counter::measure;
use scotfree_core::Token;
use scotfree_io::memory::{pair, MemoryConfig};
use scotfree_io::ram::{RamConfig, RamDomain};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{PersistenceDomain, RxBurst, Transport, TxPacket};

#[test]
fn udp_does_not_allocate_per_packet() {
    let bind = || {
        UdpTransport::bind("127.0.0.1:0".parse().expect("an address"), &UdpConfig::default())
            .expect("a socket")
    };
    does_not_allocate(bind(), bind());
}

#[test]
fn memory_does_not_allocate_per_packet() {
    let (a, b) = ("10.0.0.1:1".parse().expect("an address"), "10.0.0.2:1".parse().expect("an address"));
    let (a, b) = pair(a, b, MemoryConfig::default()).expect("two endpoints");
    does_not_allocate(a, b);
}

#[test]
fn ram_does_not_allocate_per_record() {
    let path = std::env::temp_dir().join(format!("scot-io-{}-allocation", std::process::id()));
    let config = RamConfig { slot_count: 64, ..RamConfig::default() };
    let mut domain = RamDomain::open(&path, &config).expect("a new log");
    let mut done = Vec::new();
    let mut round = || {
        for token in 0..64 {
            domain.submit(Token(token), &[7; 1_000]).expect("there is room");
        }
        domain.completions(&mut done).expect("a healthy log");
        for token in done.drain(..) {
            domain.erase(token).expect("erasing works");
        }
    };
    round();
    let count = measure(|| (0..100).for_each(|_| round())).count_total;
    std::fs::remove_file(&path).expect("the log can be removed");
    assert_eq!(count, 0);
}

fn does_not_allocate(mut a: impl Transport, mut b: impl Transport) {
    let mut burst = RxBurst::new(64, 2_048);
    let mut stamps = Vec::with_capacity(4_096);
    let payload = [7; 1_000];
    let packet = TxPacket { to: b.local_address(), bytes: &payload, stamp: None };
    let mut packets = [packet; 32];
    packets[0].stamp = Some(9);
    let mut received = 0;
    let mut round = || {
        a.tx_burst(&packets).expect("sending works");
        while b.rx_burst(&mut burst).expect("receiving works") > 0 {
            received += burst.len();
        }
        a.tx_stamps(&mut stamps);
    };
    round();
    let count = measure(|| (0..100).for_each(|_| round())).count_total;
    assert_eq!(count, 0, "3,200 packets were sent");
    assert!(received >= 3_200 && !stamps.is_empty(), "packets and stamps came: {received}");
}
