//! The packet port over a virtual link in a network namespace of its own.
//!
//! The outer test makes the namespace and runs itself again inside; where neither root nor user
//! namespaces are to be had, it says so and skips.

use scotfree_core::Nanos;
use scotfree_io::frame::{parse, ArpOperation, Checksums, Frame, Layer, Link, MacAddress, UdpFrame, VlanTag};
use scotfree_io::packet_port::{FrameBurst, PacketPort, PacketPortConfig};
use scotfree_io::{now_monotonic, now_realtime, Interest, Poller};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::time::Duration;

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "SCOT_IO_INSIDE";
const HOST: &str = "scot-host";
const PORT: &str = "scot-port";

#[test]
fn a_packet_port_over_a_virtual_link() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(reason) => return println!("SKIP: {reason}"),
    };
    let output = namespace.run_again_inside();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn inside() {
    set_link_up();
    let mut port =
        PacketPort::open(PORT, &PacketPortConfig::default()).expect("an interface and the privilege");
    assert_eq!((port.interface(), port.mtu()), (PORT, 1_500));
    a_datagram_of_the_host_is_read_whole(&mut port);
    a_frame_of_ours_reaches_the_host(&mut port);
    our_own_frames_do_not_come_back(&mut port);
    a_tag_is_restored_and_sent(&mut port);
    a_question_for_an_address_is_answered(&mut port);
    unfinished_checksums_are_marked_when_not_completed();
    frames_for_others_are_received(&mut port);
    bursts_are_bounded_and_long_frames_dropped(&mut port);
    a_link_that_is_down_is_no_error(&mut port);
}

/// Two ends of a link: the host's with addresses, the port's without.
fn set_link_up() {
    for command in [
        format!("link add {HOST} type veth peer name {PORT}"),
        format!("link set {HOST} address 02:00:00:00:00:01"),
        format!("link set {PORT} address 02:00:00:00:00:02"),
        format!("addr add 10.9.0.1/24 dev {HOST}"),
        format!("link set {PORT} up"),
        format!("link set {HOST} up"),
        format!("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev {HOST}"),
    ] {
        ip(&command);
    }
}

fn a_datagram_of_the_host_is_read_whole(port: &mut PacketPort) {
    let host = UdpSocket::bind("10.9.0.1:5000").expect("the host's address");
    let before = now_realtime();
    host.send_to(b"from the host", "10.9.0.2:6000").expect("a route");
    let (bytes, checksums, received_at) = receive_datagram(port, b"from the host");
    assert_eq!(checksums, Checksums::Ready, "the port has completed what the host left to hardware");
    let Ok(Frame::Udp(frame)) = parse(&bytes, Checksums::Ready) else { panic!("a datagram") };
    assert_eq!(frame.source, "10.9.0.1:5000".parse().expect("an address"));
    assert_eq!(frame.destination, "10.9.0.2:6000".parse().expect("an address"));
    assert_eq!(frame.link.source, MacAddress([2, 0, 0, 0, 0, 1]));
    assert!(port.counters().rx_checksums_completed > 0, "a virtual link leaves checksums to hardware");
    if let Some(received_at) = received_at {
        assert!(before <= received_at && received_at <= now_realtime());
    }
}

fn a_frame_of_ours_reaches_the_host(port: &mut PacketPort) {
    let host = UdpSocket::bind("10.9.0.1:5001").expect("the host's address");
    let mut bytes = Vec::new();
    to_host(None, "10.9.0.2:6000", "10.9.0.1:5001", b"to the host").write(&mut bytes).expect("it fits");
    let mut broken = bytes.clone();
    *broken.last_mut().expect("it is not empty") ^= 1;
    let frames = [&broken[..], &bytes[..]];
    assert_eq!(port.tx_burst(frames.iter().copied()).expect("the link is up"), 2);
    let mut buffer = [0; 100];
    host.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let (length, from) = host.recv_from(&mut buffer).expect("the datagram arrives");
    assert_eq!(&buffer[..length], b"to the host", "and the one with a wrong checksum does not");
    assert_eq!(from, "10.9.0.2:6000".parse().expect("an address"));
}

fn our_own_frames_do_not_come_back(port: &mut PacketPort) {
    let mut bytes = Vec::new();
    to_host(None, "10.9.0.2:6000", "10.9.0.1:9", b"mine").write(&mut bytes).expect("it fits");
    port.tx_burst([&bytes[..]].into_iter()).expect("the link is up");
    let host = UdpSocket::bind("10.9.0.1:5000").expect("the host's address");
    host.send_to(b"yours", "10.9.0.2:6000").expect("a route");
    let mut seen = Vec::new();
    receive_until(port, &mut |bytes| {
        seen.push(bytes.to_vec());
        payload_of(bytes) == Some(b"yours".to_vec())
    });
    assert!(!seen.contains(&bytes), "what a port sends it does not receive");
}

fn a_tag_is_restored_and_sent(port: &mut PacketPort) {
    // A port at the host's end stands in for a host with VLANs, which not every kernel has.
    let mut host =
        PacketPort::open(HOST, &PacketPortConfig::default()).expect("an interface and the privilege");
    let mut tagged = Vec::new();
    let tag = Some(VlanTag(0x6007));
    to_host(tag, "10.9.0.1:5000", "10.9.0.2:6000", b"tagged").write(&mut tagged).expect("it fits");
    for to_port in [true, false] {
        let (from, to) = if to_port { (&mut host, &mut *port) } else { (&mut *port, &mut host) };
        let before = to.counters().rx_tags_restored;
        from.tx_burst([&tagged[..]].into_iter()).expect("the link is up");
        let (bytes, ..) = receive_datagram(to, b"tagged");
        assert_eq!(bytes, tagged, "the tag that the kernel took off is back, priority included");
        assert_eq!(to.counters().rx_tags_restored - before, 1);
    }
}

fn a_question_for_an_address_is_answered(port: &mut PacketPort) {
    let host = UdpSocket::bind("10.9.0.1:5000").expect("the host's address");
    host.send_to(b"after arp", "10.9.0.3:6000").expect("a route");
    let mut answer = Vec::new();
    receive_until(port, &mut |bytes| match parse(bytes, Checksums::Ready) {
        Ok(Frame::Arp { link, packet }) if packet.target_ip.octets() == [10, 9, 0, 3] => {
            assert_eq!(packet.operation, ArpOperation::Request);
            packet.reply(MacAddress([2, 0, 0, 0, 0, 3])).write(&link.reversed(), &mut answer);
            true
        }
        _ => false,
    });
    port.tx_burst([&answer[..]].into_iter()).expect("the link is up");
    let (bytes, ..) = receive_datagram(port, b"after arp");
    assert_eq!(bytes[..6], [2, 0, 0, 0, 0, 3], "the host believes the answer");
}

fn unfinished_checksums_are_marked_when_not_completed() {
    let config = PacketPortConfig { complete_checksums: false, ..PacketPortConfig::default() };
    let mut port = PacketPort::open(PORT, &config).expect("an interface and the privilege");
    let host = UdpSocket::bind("10.9.0.1:5000").expect("the host's address");
    host.send_to(b"unfinished", "10.9.0.2:6000").expect("a route");
    let (bytes, checksums, _) = receive_datagram(&mut port, b"unfinished");
    assert_eq!(checksums, Checksums::NotReady);
    assert!(parse(&bytes, Checksums::NotReady).is_ok(), "it is not rejected");
    let rejected = parse(&bytes, Checksums::Ready).map(|_| ());
    assert_eq!(rejected, Err(scotfree_io::frame::FrameError::BadChecksum { layer: Layer::Udp }));
}

fn frames_for_others_are_received(port: &mut PacketPort) {
    let others = "neigh replace 10.9.0.4 lladdr 02:00:00:00:00:99 dev ";
    ip(&format!("{others}{HOST}"));
    let host = UdpSocket::bind("10.9.0.1:5000").expect("the host's address");
    host.send_to(b"for others", "10.9.0.4:6000").expect("a route");
    receive_datagram(port, b"for others");
}

fn bursts_are_bounded_and_long_frames_dropped(port: &mut PacketPort) {
    let host = UdpSocket::bind("10.9.0.1:5000").expect("the host's address");
    for index in 0..30_u8 {
        host.send_to(&[index; 32], "10.9.0.2:6000").expect("a route");
    }
    host.send_to(&[99; 1_000], "10.9.0.2:6000").expect("a route");
    host.send_to(b"last", "10.9.0.2:6000").expect("a route");
    let before = port.counters().rx_truncated;
    let mut burst = FrameBurst::new(8, 256);
    let mut payloads = Vec::new();
    await_that(|| {
        assert!(port.rx_burst(&mut burst).expect("the link is up") <= 8);
        payloads.extend(burst.iter().filter_map(|frame| payload_of(frame.bytes)));
        payloads.last().is_some_and(|last| last == b"last")
    });
    let expected: Vec<Vec<u8>> = (0..30).map(|index| vec![index; 32]).chain([b"last".to_vec()]).collect();
    assert_eq!(payloads, expected, "in order, without the one that is too long");
    assert_eq!(port.counters().rx_truncated - before, 1);
    let long = vec![2; 4_000];
    assert_eq!(port.tx_burst([&long[..]].into_iter()).expect("no error"), 1);
    assert_eq!(port.counters().tx_too_long, 1, "a frame longer than the interface takes is dropped");
}

fn a_link_that_is_down_is_no_error(port: &mut PacketPort) {
    let mut bytes = Vec::new();
    to_host(None, "10.9.0.2:6000", "10.9.0.1:9", b"x").write(&mut bytes).expect("it fits");
    ip(&format!("link set {PORT} down"));
    let mut burst = FrameBurst::new(8, 2_048);
    await_that(|| {
        port.rx_burst(&mut burst).expect("no error");
        port.counters().link_down > 0
    });
    assert_eq!(port.tx_burst([&bytes[..]].into_iter()).expect("no error"), 1);
    assert_eq!(port.counters().tx_dropped, 1);
    ip(&format!("link set {PORT} up"));
    let host = UdpSocket::bind("10.9.0.1:5000").expect("the host's address");
    ip(&format!("neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev {HOST}"));
    await_that(|| {
        host.send_to(b"up again", "10.9.0.2:6000").expect("a route");
        port.rx_burst(&mut burst).expect("no error");
        let found = burst.iter().any(|frame| payload_of(frame.bytes) == Some(b"up again".to_vec()));
        found
    });
}

fn to_host<'a>(vlan: Option<VlanTag>, source: &str, destination: &str, payload: &'a [u8]) -> UdpFrame<'a> {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    UdpFrame {
        link: Link {
            destination: MacAddress([2, 0, 0, 0, 0, 1]),
            source: MacAddress([2, 0, 0, 0, 0, 2]),
            vlan,
        },
        source: address(source),
        destination: address(destination),
        hop_limit: 64,
        traffic_class: 0,
        payload,
    }
}

fn payload_of(bytes: &[u8]) -> Option<Vec<u8>> {
    match parse(bytes, Checksums::NotReady) {
        Ok(Frame::Udp(frame)) => Some(frame.payload.to_vec()),
        Ok(Frame::Arp { .. } | Frame::Other) => None,
        Err(error) => panic!("the host sends well-formed frames: {error}"),
    }
}

/// Receives until the datagram with `payload` comes.
fn receive_datagram(port: &mut PacketPort, payload: &[u8]) -> (Vec<u8>, Checksums, Option<Nanos>) {
    let mut burst = FrameBurst::new(64, 2_048);
    let mut poller = Poller::new(1).expect("a poller");
    poller.add(port.as_raw_fd(), 0, Interest::Read).expect("a watch");
    loop {
        let events = poller.wait(Some(Duration::from_secs(10))).expect("a wait");
        assert!(!events.is_empty(), "the datagram arrives within ten seconds");
        port.rx_burst(&mut burst).expect("the link is up");
        let found = burst.iter().find(|frame| payload_of(frame.bytes).as_deref() == Some(payload));
        if let Some(frame) = found {
            return (frame.bytes.to_vec(), frame.checksums, frame.received_at);
        }
    }
}

fn receive_until(port: &mut PacketPort, found: &mut dyn FnMut(&[u8]) -> bool) {
    let mut burst = FrameBurst::new(1, 2_048);
    await_that(|| {
        port.rx_burst(&mut burst).expect("the link is up");
        let is_found = burst.iter().any(|frame| found(frame.bytes));
        is_found
    });
}

fn await_that(mut condition: impl FnMut() -> bool) {
    let deadline = now_monotonic().plus(Nanos::from_secs(10));
    while !condition() {
        assert!(now_monotonic() < deadline, "the condition comes true within ten seconds");
        std::thread::yield_now();
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A namespace to run the inner test in.
enum Namespace {
    /// Made by root, removed on drop.
    Named(String),
    /// Of an unprivileged user, gone with the process in it.
    Anonymous,
}

impl Namespace {
    fn make() -> Result<Namespace, String> {
        let name = format!("scot-io-{}", std::process::id());
        if succeeds("ip", &["netns", "add", &name])? {
            return Ok(Namespace::Named(name));
        }
        if succeeds("unshare", &["-Urn", "ip", "link", "add", HOST, "type", "veth", "peer", "name", PORT])? {
            return Ok(Namespace::Anonymous);
        }
        Err("neither `ip netns add` nor `unshare -Urn` is allowed here; run as root, or enable user \
             namespaces (sysctl kernel.unprivileged_userns_clone=1)"
            .to_owned())
    }

    fn run_again_inside(&self) -> Output {
        let own = std::env::current_exe().expect("a running program has a path");
        let mut command = match self {
            Namespace::Named(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(own);
                command
            }
            Namespace::Anonymous => {
                let mut command = Command::new("unshare");
                command.arg("-Urn").arg(own);
                command
            }
        };
        command.args(["--exact", "a_packet_port_over_a_virtual_link", "--nocapture"]).env(INSIDE, "1");
        command.output().expect("the program can be run again")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Namespace::Named(name) = self {
            let removed = succeeds("ip", &["netns", "del", name]);
            assert!(matches!(removed, Ok(true)), "the namespace {name} could not be removed");
        }
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> Result<bool, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output
        .map_err(|error| format!("`{program}` cannot be run ({error}); install iproute2 and util-linux"))?;
    Ok(output.status.success())
}
