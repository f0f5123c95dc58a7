//! Frames: round trips, every malformation a typed error, arbitrary bytes never a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use scotfree_io::frame::{
    complete_checksums, parse, ArpOperation, ArpPacket, Checksums, Frame, FrameError, Layer, Link,
    MacAddress, UdpFrame, VlanTag,
};
use std::net::{Ipv4Addr, SocketAddr};

const V4_LINK_BYTES: usize = 14;

proptest! {
    #[test]
    fn udp_round_trips(link in any_link(), ends in any_ends(), hops: u8, class: u8, payload in vec(any::<u8>(), 0..1_500)) {
        let (source, destination) = ends;
        let frame = UdpFrame { link, source, destination, hop_limit: hops, traffic_class: class, payload: &payload };
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("it fits");
        prop_assert_eq!(parse(&bytes, Checksums::Ready), Ok(Frame::Udp(frame)));
        // What pads a short frame is not content.
        bytes.extend_from_slice(&[0xAA; 18]);
        prop_assert_eq!(parse(&bytes, Checksums::Ready), Ok(Frame::Udp(frame)));
    }

    #[test]
    fn arp_round_trips(link in any_link(), is_reply: bool, macs: [[u8; 6]; 2], ips: [u32; 2]) {
        let packet = ArpPacket {
            operation: if is_reply { ArpOperation::Reply } else { ArpOperation::Request },
            sender_mac: MacAddress(macs[0]),
            sender_ip: Ipv4Addr::from(ips[0]),
            target_mac: MacAddress(macs[1]),
            target_ip: Ipv4Addr::from(ips[1]),
        };
        let mut bytes = Vec::new();
        packet.write(&link, &mut bytes);
        prop_assert_eq!(parse(&bytes, Checksums::Ready), Ok(Frame::Arp { link, packet }));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, Checksums::Ready);
        let _ = parse(&bytes, Checksums::NotReady);
        let _ = complete_checksums(&mut bytes);
    }

    #[test]
    fn disturbed_frames_never_panic(ends in any_ends(), at in 12..60_usize, with: u8, cut in 0..200_usize) {
        let payload = [7; 100];
        let mut bytes = Vec::new();
        udp(ends, &payload).write(&mut bytes).expect("it fits");
        bytes[at] = with;
        bytes.truncate(cut);
        let _ = parse(&bytes, Checksums::Ready);
        let _ = parse(&bytes, Checksums::NotReady);
        let _ = complete_checksums(&mut bytes);
    }

    #[test]
    fn a_flipped_bit_of_the_content_is_noticed(ends in any_ends(), at in 0..100_usize, bit in 0..8_u8) {
        let payload = [7; 100];
        let mut bytes = Vec::new();
        udp(ends, &payload).write(&mut bytes).expect("it fits");
        let start = bytes.len() - payload.len();
        bytes[start + at] ^= 1 << bit;
        prop_assert_eq!(parse(&bytes, Checksums::Ready), Err(FrameError::BadChecksum { layer: Layer::Udp }));
        prop_assert!(matches!(parse(&bytes, Checksums::NotReady), Ok(Frame::Udp(_))));
        complete_checksums(&mut bytes).expect("well-formed");
        prop_assert!(matches!(parse(&bytes, Checksums::Ready), Ok(Frame::Udp(_))));
    }
}

#[test]
fn every_truncation_of_a_datagram_is_an_error() {
    for ends in [v4_ends(), v6_ends()] {
        let mut bytes = Vec::new();
        udp(ends, b"content").write(&mut bytes).expect("it fits");
        for length in 0..bytes.len() {
            let error = parse(&bytes[..length], Checksums::Ready).expect_err("a part is missing");
            assert!(matches!(error, FrameError::Truncated { .. }), "{length}: {error}");
        }
    }
}

#[test]
fn each_malformation_has_its_error() {
    let cases: [(usize, &[u8], FrameError); 5] = [
        (0, &[0x55], FrameError::BadVersion { layer: Layer::Ipv4, version: 5 }),
        (0, &[0x44], FrameError::BadLength { layer: Layer::Ipv4, length: 16 }),
        (8, &[63], FrameError::BadChecksum { layer: Layer::Ipv4 }),
        (24, &[0, 7], FrameError::BadLength { layer: Layer::Udp, length: 7 }),
        (24, &[0, 200], FrameError::Truncated { layer: Layer::Udp, needed: 200, found: 15 }),
    ];
    for (at, with, expected) in cases {
        let mut bytes = Vec::new();
        udp(v4_ends(), b"content").write(&mut bytes).expect("it fits");
        bytes[V4_LINK_BYTES + at..][..with.len()].copy_from_slice(with);
        assert_eq!(parse(&bytes, Checksums::Ready), Err(expected));
    }
}

#[test]
fn a_missing_checksum_is_fine_with_ipv4_only() {
    for (ends, header_bytes) in [(v4_ends(), 34), (v6_ends(), 54)] {
        let mut bytes = Vec::new();
        udp(ends, b"content").write(&mut bytes).expect("it fits");
        bytes[header_bytes + 6..][..2].fill(0);
        let parsed = parse(&bytes, Checksums::Ready);
        if ends.0.is_ipv4() {
            assert_eq!(parsed, Ok(Frame::Udp(udp(ends, b"content"))));
        } else {
            assert_eq!(parsed, Err(FrameError::ChecksumMissing));
        }
    }
}

#[test]
fn fragments_other_protocols_and_other_types_are_passed_on() {
    let mut bytes = Vec::new();
    udp(v4_ends(), b"content").write(&mut bytes).expect("it fits");
    let mut fragment = bytes.clone();
    fragment[V4_LINK_BYTES + 6] = 0x20;
    repair_v4_header(&mut fragment);
    assert_eq!(parse(&fragment, Checksums::Ready), Ok(Frame::Other));
    let mut icmp = bytes.clone();
    icmp[V4_LINK_BYTES + 9] = 1;
    repair_v4_header(&mut icmp);
    assert_eq!(parse(&icmp, Checksums::Ready), Ok(Frame::Other));
    bytes[12..14].copy_from_slice(&[0x88, 0xCC]);
    assert_eq!(parse(&bytes, Checksums::Ready), Ok(Frame::Other));
}

#[test]
fn options_of_ipv4_are_skipped() {
    let mut bytes = Vec::new();
    udp(v4_ends(), b"content").write(&mut bytes).expect("it fits");
    let total_bytes = u16::try_from(bytes.len() - V4_LINK_BYTES + 4).expect("a small frame");
    bytes[V4_LINK_BYTES] = 0x46;
    bytes[V4_LINK_BYTES + 2..][..2].copy_from_slice(&total_bytes.to_be_bytes());
    bytes.splice(V4_LINK_BYTES + 20..V4_LINK_BYTES + 20, [1, 1, 1, 0]);
    repair_v4_header(&mut bytes);
    assert_eq!(parse(&bytes, Checksums::Ready), Ok(Frame::Udp(udp(v4_ends(), b"content"))));
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let mut out = b"before".to_vec();
    let mixed = udp((v4_ends().0, v6_ends().1), b"content");
    assert_eq!(mixed.write(&mut out), Err(FrameError::MixedFamilies));
    let long = vec![0; 65_536];
    assert!(matches!(udp(v4_ends(), &long).write(&mut out), Err(FrameError::TooLong { .. })));
    assert!(matches!(udp(v6_ends(), &long).write(&mut out), Err(FrameError::TooLong { .. })));
    assert_eq!(out, b"before");
}

#[test]
fn an_answer_goes_back() {
    let frame = udp(v4_ends(), b"question");
    let answer = frame.answer(b"answer");
    assert_eq!((answer.source, answer.destination), (frame.destination, frame.source));
    assert_eq!(answer.link, frame.link.reversed());
    let question =
        ArpPacket::request(MacAddress([2; 6]), Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let reply = question.reply(MacAddress([4; 6]));
    assert_eq!((reply.sender_mac, reply.sender_ip), (MacAddress([4; 6]), question.target_ip));
    assert_eq!((reply.target_mac, reply.target_ip), (question.sender_mac, question.sender_ip));
}

#[test]
fn the_first_bytes_of_a_known_frame() {
    // Checked by hand: 10.0.0.1:1 to 10.0.0.2:2, "hi", header sum 0x26cd, UDP sum 0x836b.
    let mut bytes = Vec::new();
    udp(v4_ends(), b"hi").write(&mut bytes).expect("it fits");
    let expected = [
        4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 8, 0, 0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, 17, 0x26, 0xCD, 10, 0,
        0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 10, 0x83, 0x6B, b'h', b'i',
    ];
    assert_eq!(bytes, expected);
}

fn udp(ends: (SocketAddr, SocketAddr), payload: &[u8]) -> UdpFrame<'_> {
    let link = Link { destination: MacAddress([4; 6]), source: MacAddress([2; 6]), vlan: None };
    UdpFrame { link, source: ends.0, destination: ends.1, hop_limit: 64, traffic_class: 0, payload }
}

fn v4_ends() -> (SocketAddr, SocketAddr) {
    (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into())
}

fn v6_ends() -> (SocketAddr, SocketAddr) {
    (([0xFD00, 0, 0, 0, 0, 0, 0, 1], 1).into(), ([0xFD00, 0, 0, 0, 0, 0, 0, 2], 2).into())
}

fn repair_v4_header(frame: &mut [u8]) {
    let header_bytes = usize::from(frame[V4_LINK_BYTES] & 0xF) * 4;
    let header = &mut frame[V4_LINK_BYTES..V4_LINK_BYTES + header_bytes];
    header[10..12].fill(0);
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn any_link() -> impl Strategy<Value = Link> {
    (any::<[u8; 6]>(), any::<[u8; 6]>(), any::<Option<u16>>()).prop_map(|(destination, source, vlan)| Link {
        destination: MacAddress(destination),
        source: MacAddress(source),
        vlan: vlan.map(VlanTag),
    })
}

fn any_ends() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<[([u8; 4], u16); 2]>().prop_map(|[a, b]| (a.into(), b.into()));
    let v6 = any::<[([u16; 8], u16); 2]>().prop_map(|[a, b]| (a.into(), b.into()));
    prop_oneof![v4, v6]
}
